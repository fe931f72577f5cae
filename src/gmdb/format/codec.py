"""Rows of one table into bytes and back, fast.

Does what ``encode_row`` and ``decode_row`` do, with all that depends on the columns alone worked out beforehand.
A value that does not fit goes through them again, for the error that they raise.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from typing import Any

from gmdb.format.columns import Column, Kind
from gmdb.format.row import BITS_AT, SIZE_AT, UNLOCKED, SizeCode, decode_row, encode_row, header_size

_LENGTHS = tuple(n.to_bytes(2, "little") for n in range(1 << 12))
Encode = Callable[[Any], bytes]
Decode = Callable[[bytes, int], tuple[Any, int]]


def _integer_encoder(width: int) -> Encode:
    def encode(value: Any) -> bytes:
        if type(value) is not int:
            raise ValueError
        return value.to_bytes(width, "little", signed=True)

    return encode


def _text_encoder(length_max: int) -> Encode:
    lengths = _LENGTHS

    def encode(value: Any) -> bytes:
        raw = value.encode()
        if len(raw) > length_max:
            raise ValueError
        return lengths[len(raw) + 1] + raw + b"\0"

    return encode


def _encoder(column: Column) -> Encode:
    """The value's stored bytes, with the length before them where there is one; any exception means: not so."""
    type_ = column.type
    if type_.name in ("INT", "BIGINT"):
        return _integer_encoder(4 if type_.name == "INT" else 8)
    if type_.name == "VARCHAR":
        return _text_encoder(type_.length)
    if type_.size_code == SizeCode.VARIABLE:
        return lambda value: len(raw := type_.encode(value)).to_bytes(2, "little") + raw
    return type_.encode


def _decoder(column: Column) -> Decode:
    """From a position in the row to the value there and the position behind it."""
    type_ = column.type
    if type_.name in ("INT", "BIGINT", "DOUBLE"):
        form = struct.Struct({"INT": "<i", "BIGINT": "<q", "DOUBLE": "<d"}[type_.name])
        unpack, size = form.unpack_from, form.size
        return lambda row, at: (unpack(row, at)[0], at + size)
    if type_.kind is Kind.TEXT:

        def text(row: bytes, at: int) -> tuple[str, int]:
            end = at + 2 + row[at] + (row[at + 1] << 8)
            return row[at + 2 : end - 1].decode(), end

        return text
    if type_.size_code == SizeCode.VARIABLE:

        def variable(row: bytes, at: int) -> tuple[Any, int]:
            end = at + 2 + row[at] + (row[at + 1] << 8)
            return type_.decode(row[at + 2 : end]), end

        return variable
    width = 4 * type_.size_code
    return lambda row, at: (type_.decode(row[at : at + width]), at + width)


class RowCodec:
    """Rows, or patches, of a fixed list of columns."""

    def __init__(self, columns: Sequence[Column], numbers: Sequence[int] | None = None) -> None:
        self._columns = tuple(columns)
        self._encoders = [_encoder(column) for column in columns]
        self._decoders = [_decoder(column) for column in columns]
        self._head_size = header_size(len(columns))
        bits = sum(column.type.size_code << 2 * n for n, column in enumerate(columns))
        self._bits = bits.to_bytes(self._head_size - BITS_AT, "little")
        self._lock_word = UNLOCKED.to_bytes(4, "little")
        self._count = len(columns).to_bytes(2, "little")
        self._after_size = self._count + self._bits
        self._tail = b"".join(n.to_bytes(2, "little") for n in numbers or ())

    def encode(self, values: Sequence[Any]) -> bytes:
        """A row's bytes, or a patch's; raises a DataError that names the column if a value does not fit it."""
        try:
            cells = b"".join([encode(value) for encode, value in zip(self._encoders, values, strict=True)])
            size = (self._head_size + len(cells)).to_bytes(2, "little")
            return b"".join((self._lock_word, size, self._after_size, cells, self._tail))
        except Exception:
            return encode_row(self._columns, values) + self._tail  # a NULL, or an error to be raised properly

    def decode(self, row: bytes) -> tuple[Any, ...]:
        """The values of a row."""
        head = self._head_size
        if row[SIZE_AT + 2 : head] != self._after_size:
            return decode_row(self._columns, row)  # NULLs, or a row older than some of the columns
        at, values = head, []
        try:
            for decode in self._decoders:
                value, at = decode(row, at)
                values.append(value)
        except (ValueError, IndexError, struct.error):
            return decode_row(self._columns, row)  # bytes that are no such value: it raises properly
        return tuple(values)

    def encode_only(self) -> Callable[[Any], bytes]:
        """``encode`` for a patch of one column, given its value: the bytes before a value of each size are at hand."""
        (column,), encode, tail = self._columns, self._encoders[0], self._tail
        sizes = range(self._head_size, self._head_size + column.type.length + 16)
        heads = [self._lock_word + size.to_bytes(2, "little") + self._after_size for size in sizes]

        def encode_value(value: Any) -> bytes:
            try:
                cell = encode(value)
                return heads[len(cell)] + cell + tail
            except Exception:
                return self.encode([value])

        return encode_value
