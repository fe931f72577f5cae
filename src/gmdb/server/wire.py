"""What goes over the wire: messages, values, rows and errors, as bytes.

A message is a head, which is a JSON object, and a body of bytes.  Arguments and results are in the head, each by its
type: what JSON has stands for itself, everything else is an object with one key, the type's name.  Bytes and Arrow
tables are in the body, and the head says where.  Rows travel as gmdb's own row bytes, so that both sides check them as
they check any row.  Only types that are listed here exist; nothing that is received is ever evaluated.
"""

from __future__ import annotations

import builtins
import json
import operator
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import date, datetime
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from gmdb import errors
from gmdb.access.steps import RowChanged
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column
from gmdb.format.row import COL_COUNT_AT, ROW_HEAD, SIZE_AT
from gmdb.late import pyarrow as pa
from gmdb.server.lob_wire import decode_lob_patch

CHUNK_SIZE = 256 << 10  # bytes of rows that make a message
END_OF_BATCHES = b"end"  # behind the last batch of an append
_LENGTH = struct.Struct("<I")
_ROW = struct.Struct("<IHI")  # page, slot, bytes that follow
Head = dict[str, Any]


def pack(head: Head, body: bytes | bytearray = b"") -> bytes:
    text = json.dumps(head, separators=(",", ":")).encode()
    return b"".join((_LENGTH.pack(len(text)), text, body))


def unpack(message: Any) -> tuple[Head, bytes]:
    raw = bytes(message)
    end = 4 + _LENGTH.unpack_from(raw)[0]
    head = json.loads(raw[4:end])
    if not isinstance(head, dict):
        raise errors.InterfaceError("a message's head is no object")
    return head, raw[end:]


# ---- values

_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "Decimal": (Decimal, str, Decimal),
    "Path": (Path, str, Path),
}
# What travels as its fields, in order; some bring compiled code, so each is looked for when one arrives.
_CLASSES = {
    "Ahead": "gmdb.server.lob_wire",
    "Apply": "gmdb.arrow.apply",
    "BackupReport": "gmdb.log.reports",
    "CheckpointReport": "gmdb.log.reports",
    "Column": "gmdb.format.columns",
    "ColumnType": "gmdb.format.columns",
    "Constraint": "gmdb.catalog.schema",
    "Feed": "gmdb.storage.feeds",
    "Finding": "gmdb.verify.findings",
    "Holder": "gmdb.storage.holder",
    "IndexDefinition": "gmdb.access.indexes",
    "KeyRange": "gmdb.access.indexes",
    "KeyStatistics": "gmdb.catalog.statistics",
    "Load": "gmdb.arrow.attach",
    "LobSegment": "gmdb.format.lob",
    "LogPosition": "gmdb.storage.feeds",
    "NewTable": "gmdb.arrow.attach",
    "PageFormat": "gmdb.arrow.staging",
    "Pin": "gmdb.storage.pins",
    "Recovery": "gmdb.log.reports",
    "Report": "gmdb.verify.findings",
    "RowId": "gmdb.format.address",
    "StepsThere": "gmdb.server.wire",
    "StreamBatch": "gmdb.catalog.streams",
    "TableDefinition": "gmdb.catalog.schema",
    "TableStatistics": "gmdb.catalog.statistics",
}
_AS_THEY_ARE = frozenset((bool, int, float, str, type(None)))
_known: dict[str, type] = {}
_fields: dict[type, tuple[str, ...]] = {}  # of types of the list that were met


class StepsThere(NamedTuple):
    """What stands for steps that the owner takes for a client, some at a time: their number."""

    number: int


def to_plain(value: Any, body: bytearray) -> Any:
    """A value as a message's head has it; its bytes go to the end of the body."""
    kind = type(value)
    if kind in _AS_THEY_ARE:
        return value
    if kind is bytes:
        return _in_body("bytes", value, body)
    if kind is list:
        return [to_plain(one, body) for one in value]
    if kind is tuple:
        return {"tuple": [to_plain(one, body) for one in value]}
    if kind in _fields or _CLASSES.get(kind.__name__) == kind.__module__:
        return {kind.__name__: [to_plain(getattr(value, name), body) for name in _fields_of(kind)]}
    return _plain_by_likeness(value, body)


def _fields_of(kind: Any) -> tuple[str, ...]:
    """The names of the fields of a dataclass or a named tuple."""
    known = _fields.get(kind)
    if known is None:
        known = tuple(field.name for field in fields(kind)) if is_dataclass(kind) else kind._fields
        _fields[kind] = known
    return known


def _plain_by_likeness(value: Any, body: bytearray) -> Any:
    """What is no type of the list, but an instance of one, or like one."""
    for name, (kind, to_text, _) in _TEXTS.items():
        if isinstance(value, kind):
            return {name: to_text(value)}
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return _in_body("bytes", bytes(value), body)
    if hasattr(value, "__arrow_c_stream__"):
        return _in_body("table", pack_table(pa.table(value)), body)
    if hasattr(value, "__index__"):
        return operator.index(value)
    if isinstance(value, Mapping):
        return {"dict": [[to_plain(key, body), to_plain(one, body)] for key, one in value.items()]}
    if isinstance(value, Iterable):
        return [to_plain(one, body) for one in value]
    raise errors.InterfaceError(f"a {type(value).__name__} cannot be sent to the owner of the database")


def _in_body(name: str, content: bytes, body: bytearray) -> dict[str, list[int]]:
    at = len(body)
    body += content
    return {name: [at, len(content)]}


def value_of(plain: Any, body: bytes) -> Any:
    """A value of a message's head."""
    if type(plain) in _AS_THEY_ARE:
        return plain
    if isinstance(plain, list):
        return [value_of(one, body) for one in plain]
    ((name, content),) = plain.items()
    if name in _TEXTS:
        return _TEXTS[name][2](content)
    if name == "dict":
        return {value_of(key, body): value_of(one, body) for key, one in content}
    if name in ("bytes", "table"):
        at, size = content
        raw = body[at : at + size]
        return raw if name == "bytes" else unpack_table(raw)
    values = [value_of(one, body) for one in content]
    if name == "tuple":
        return tuple(values)
    if name not in _CLASSES:
        raise errors.InterfaceError(f"a message has a {name}, which is not known here; is it another version of gmdb?")
    kind: Any = _known.get(name)
    if kind is None:
        kind = _known[name] = getattr(import_module(_CLASSES[name]), name)
    if hasattr(kind, "from_plain"):  # which checks what it is given
        return kind.from_plain(dict(zip(_fields_of(kind), values, strict=True)))
    return kind(*values)


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
