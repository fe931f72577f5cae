"""What goes over the wire: messages, rows, definitions and errors, as bytes.

A message is a head, which is a JSON object, and a body of bytes.  Values of rows travel as gmdb's own row bytes, so
that both sides check them as they check any row; nothing that is received is ever evaluated.
"""

from __future__ import annotations

import builtins
import json
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

from gmdb import errors
from gmdb.access.indexes import KeyCodec, KeyRange
from gmdb.access.steps import RowChanged
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column
from gmdb.format.row import COL_COUNT_AT, ROW_HEAD, SIZE_AT
from gmdb.late import pyarrow as pa
from gmdb.server.lob_wire import Ahead, decode_lob_patch

CHUNK_SIZE = 256 << 10  # bytes of rows that make a message
END_OF_BATCHES = b"end"  # behind the last batch of an append
_LENGTH = struct.Struct("<I")
_ROW = struct.Struct("<IHI")  # page, slot, bytes that follow
Head = dict[str, Any]


def pack(head: Head, body: bytes = b"") -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, body))


def unpack(message: Any) -> tuple[Head, bytes]:
    raw = bytes(message)
    end = 4 + _LENGTH.unpack_from(raw)[0]
    head = json.loads(raw[4:end])
    if not isinstance(head, dict):
        raise errors.InterfaceError("a message's head is no object")
    return head, raw[end:]


# ---- rows


def pack_rows(rows: Iterable[tuple[RowId, bytes]]) -> bytes:
    parts: list[bytes] = []
    for row_id, row in rows:
        parts += (_ROW.pack(row_id[0], row_id[1], len(row)), row)
    return b"".join(parts)


def unpack_rows(body: bytes) -> Iterator[tuple[RowId, bytes]]:
    at = 0
    while at < len(body):
        page_id, slot_id, size = _ROW.unpack_from(body, at)
        at += _ROW.size
        yield RowId(page_id, slot_id), body[at : at + size]
        at += size


def in_chunks(rows: Iterable[tuple[RowId, bytes]]) -> Iterator[bytes]:
    """Packed rows, in messages of a good size."""
    chunk, size = [], 0
    for row_id, row in rows:
        chunk.append((row_id, row))
        size += len(row)
        if size >= CHUNK_SIZE:
            yield pack_rows(chunk)
            chunk, size = [], 0
    if chunk:
        yield pack_rows(chunk)


def decode_patch(columns: Sequence[Column], patch: bytes) -> dict[str, Any]:
    """The values of a patch by column name."""
    if any(column.type.is_lob for column in columns):
        return decode_lob_patch(columns, patch)
    if len(patch) < ROW_HEAD.size:
        raise errors.InterfaceError("a patch is too short")
    size = int.from_bytes(patch[SIZE_AT : SIZE_AT + 2], "little")
    count = int.from_bytes(patch[COL_COUNT_AT : COL_COUNT_AT + 2], "little")
    numbers = struct.unpack_from(f"<{count}H", patch, size)
    chosen = [columns[number] for number in numbers]
    return dict(zip((column.name for column in chosen), RowCodec(chosen).decode(patch[:size]), strict=True))


# ---- tables of values


def pack_table(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue().to_pybytes()


def unpack_table(body: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(body)).read_all()


# ---- errors


def error_head(error: BaseException) -> Head:
    head: Head = {"error": type(error).__name__, "message": str(error)}
    if isinstance(error, errors.Corruption):
        head.update(page_id=error.page_id, offset=error.offset)
    if isinstance(error, errors.StatementError):
        head["more"] = {"line": error.line, "column": error.column, "hint": error.hint}
    if isinstance(error, errors.UniqueViolation):
        head["more"] = {"index": error.index}
    return head


def error_from(head: Head) -> Exception:
    """The exception that the other side raised: one of gmdb's, or one of Python's own."""
    name, message = str(head["error"]), str(head["message"])
    if name == "RowChanged":
        return RowChanged(message)
    if name == "Corruption":
        return errors.Corruption(message, head.get("page_id"), head.get("offset"))
    known = getattr(errors, name, None) or getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, errors.Error | ValueError | TypeError | LookupError | MemoryError):
        try:
            made = known(message)
        except TypeError:  # one of those that want more than a message
            pass
        else:
            for attribute in ("line", "column", "hint", "index"):
                if attribute in head.get("more", {}):
                    setattr(made, attribute, head["more"][attribute])
            return made
    return errors.InternalError(f"the owner of the database failed with {name}: {message}")


def pack_range(columns: Sequence[Column], keys: KeyRange) -> tuple[Head, bytes]:
    """A range of the keys of an index that has these columns."""
    codec = KeyCodec(columns)
    ends = [(RowId(0, 0), codec.encode(end)) for end in (keys.low, keys.high)]
    bounds = [keys.low_open, keys.high_open, keys.backwards]
    return {"counts": [len(keys.low), len(keys.high)], "bounds": bounds}, pack_rows(ends)


def unpack_range(columns: Sequence[Column], body: bytes, counts: Sequence[int], bounds: Sequence[bool]) -> KeyRange:
    codec = KeyCodec(columns)
    low, high = (codec.decode(row, count) for (_, row), count in zip(unpack_rows(body), counts, strict=True))
    return KeyRange(low, high, *bounds)


# ---- values of parameters, which have no column that would say their type

_TAGS: list[tuple[str, type, Callable[[Any], Any], Callable[[Any], Any]]] = [
    ("b", bool, bool, bool),
    ("i", int, str, int),  # as text: JSON's numbers are doubles to some
    ("f", float, float.hex, float.fromhex),
    ("s", str, str, str),
    ("t", datetime, datetime.isoformat, datetime.fromisoformat),
    ("d", date, date.isoformat, date.fromisoformat),
    ("n", Decimal, str, Decimal),
    ("x", bytes, bytes.hex, bytes.fromhex),
]


_AHEAD = "a"  # of a value that was sent ahead


def pack_value(value: Any) -> list[Any] | None:
    """A parameter's value in plain terms."""
    if value is None:
        return None
    if isinstance(value, Ahead):
        return [_AHEAD, list(value)]
    if isinstance(value, bytearray | memoryview):
        value = bytes(value)
    for tag, kind, pack_one, _ in _TAGS:
        if isinstance(value, kind):
            return [tag, pack_one(value)]
    raise errors.InterfaceError(f"a {type(value).__name__} cannot be a parameter")


def unpack_value(packed: list[Any] | None) -> Any:
    if packed is not None and packed[0] == _AHEAD:
        return Ahead(*packed[1])
    return None if packed is None else {tag: unpack_one for tag, _, _, unpack_one in _TAGS}[packed[0]](packed[1])


def pack_parameters(given: Any) -> Any:
    """A statement's parameters: a list, or an object with their names."""
    if isinstance(given, Mapping):
        return {name: pack_value(value) for name, value in given.items()}
    return [pack_value(value) for value in given]


def unpack_parameters(packed: Any) -> Any:
    if isinstance(packed, dict):
        return {name: unpack_value(value) for name, value in packed.items()}
    return tuple(unpack_value(value) for value in packed)
