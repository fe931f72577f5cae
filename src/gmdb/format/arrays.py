"""Arrays of one dimension: the bytes of a value whose elements are all of one type, some of them perhaps NULL.

Behind the head come bits that say which elements are there, if some are NULL; then the elements.  Those of types whose
values have one size follow each other, NULL as zero bytes; of others, come first the numbers at which their bytes
end, then the bytes.  An element's bytes are those that a row has of such a value, without a length and without the NUL
of a text.

Invariants
 1. A value begins with a byte that no locator of a value on pages begins with (lob.py).
 2. What follows from the head is just as long as the value is.
Not here: columns of arrays (tables/arrow/array_columns.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from gmdb.errors import DataError, TypeMismatch, ValueTooLong
from gmdb.format.layout import layout

if TYPE_CHECKING:
    from gmdb.format.columns import ColumnType

ARRAY_HEAD = layout(
    "array head",
    8,
    has_nulls=("u1", "1: behind the head is a bit for each element, from the lowest of a byte on, 1 if it is not NULL"),
    reserved=("3u1", "0"),
    count=("<u4", "elements"),
)
ARRAY_MAX = 1 << 30  # bytes of a value
END_SIZE = 4  # of the number at which an element's bytes end
SUFFIX = "[]"  # of the names of array types


class EncodedArray(bytes):
    """The bytes of an array, where a value is expected."""


def encode_array(element: ColumnType, values: Any) -> EncodedArray:
    """The bytes of an array, which is a list or a tuple."""
    if not isinstance(values, list | tuple):
        raise TypeMismatch(f"{values!r} is not a list")
    parts = [None if value is None else _encoded(element, value) for value in values]
    has_nulls = None in parts
    head = ARRAY_HEAD.pack(has_nulls=int(has_nulls), count=len(parts))
    bits = _bits(parts) if has_nulls else b""
    size = element.fixed_size
    if size:
        nothing = bytes(size)
        whole = b"".join([head, bits, *(nothing if part is None else part for part in parts)])
    else:
        ends, end = [], 0
        for part in parts:
            end += len(part or b"")
            ends.append(end.to_bytes(END_SIZE, "little"))
        whole = b"".join([head, bits, *ends, *(part for part in parts if part)])
    if len(whole) > ARRAY_MAX:
        raise ValueTooLong(f"an array has at most {ARRAY_MAX} bytes, not {len(whole)}")
    return EncodedArray(whole)


def _encoded(element: ColumnType, value: Any) -> bytes:
    if isinstance(value, list | tuple):
        raise TypeMismatch("an array has one dimension: its elements cannot be lists")
    return element.encode_element(value)


def _bits(parts: Sequence[bytes | None]) -> bytes:
    bits = bytearray(-(-len(parts) // 8))
    for n, part in enumerate(parts):
        if part is not None:
            bits[n >> 3] |= 1 << (n & 7)
    return bytes(bits)


def decode_array(element: ColumnType, raw: bytes) -> list[Any]:
    """The elements of a value's bytes; DataError if they cannot be such a value."""
    if len(raw) < ARRAY_HEAD.size:
        raise DataError(f"{raw.hex()} is too short for an array")
    head = ARRAY_HEAD.at(raw)
    count, at = int(head.count), ARRAY_HEAD.size
    if head.has_nulls not in (0, 1) or count > len(raw) * 8:
        raise DataError(f"{raw[: ARRAY_HEAD.size].hex()} is not the head of an array")
    there = None
    if head.has_nulls:
        size = -(-count // 8)
        there, at = raw[at : at + size], at + size
    decode = element.decode_element
    return [
        None if there is not None and not there[n >> 3] >> (n & 7) & 1 else decode(part)
        for n, part in enumerate(_parts(element, raw, at, count))
    ]


def _parts(element: ColumnType, raw: bytes, at: int, count: int) -> Iterator[bytes]:
    """The bytes of each element."""
    size = element.fixed_size
    if size:
        if len(raw) != at + count * size:
            raise DataError(f"an array of {count} elements of {size} bytes has {len(raw)} bytes")
        return (raw[at + n * size : at + (n + 1) * size] for n in range(count))
    first = at + count * END_SIZE
    ends = [
        0,
        *(int.from_bytes(raw[n : n + END_SIZE], "little") for n in range(at, min(first, len(raw)), END_SIZE)),
    ]
    if len(ends) != count + 1 or any(a > b for a, b in pairwise(ends)) or first + ends[-1] != len(raw):
        raise DataError(f"the elements of an array of {len(raw)} bytes do not end where it says")
    return (raw[first + start : first + end] for start, end in pairwise(ends))
