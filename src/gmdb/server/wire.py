"""What goes over the wire: messages, values, rows and errors, as bytes.

A message is a head, which is a JSON object, and a body of bytes.  Arguments and results are in the head, each by its
type: what JSON has stands for itself, everything else is an object with one key, the type's name.  Bytes and Arrow
tables are in the body, and the head says where.  Rows travel as gmdb's own row bytes, so that both sides check them as
they check any row.  Only types that are listed here exist; nothing that is received is ever evaluated.
"""

from __future__ import annotations

import builtins
import io
import json
import operator
import struct
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from gmdb import errors
from gmdb.errors import InterfaceError, TypeMismatch
from gmdb.format.address import RowId
from gmdb.format.arrays import decode_array, encode_array
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column, ColumnType, is_uuid, numbers_of
from gmdb.format.interval import Interval
from gmdb.format.lob import TEXT_IN_ROW_MAX, TEXT_LOCATOR
from gmdb.format.row import COL_COUNT_AT, ROW_HEAD, SIZE_AT
from gmdb.process.late_dataclasses import fields, is_dataclass, replace
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.access.lob_files import PIECE_SIZE, Rereadable, is_file
from gmdb.tables.access.patches import Patches
from gmdb.tables.access.statements import RowChanged

# ---- Rows with large objects on the wire, and how files get to the owner.
#
# A row travels with its large objects behind it.  What is long, or is read from a file, is sent ahead, a piece at a
# time, into a file without a name beside the owner's others; the message then names it by its number.

SENT_AHEAD = 64 << 10  # bytes from which on a value goes by itself
SHORT_MAX = TEXT_IN_ROW_MAX // 4  # letters of a TEXT that a row surely takes
IN_MEMORY = 1 << 20  # of what a client has sent ahead
_NULL, _VALUE_AHEAD = -1, -2
_VALUE_LENGTH = struct.Struct("<q")
_COUNT = struct.Struct("<H")
KINDS = ("bytes", "text", "file of bytes", "file of text")


class Ahead(NamedTuple):
    """A value that was sent ahead: its number, and what it is."""

    number: int
    kind: str


class Asks(Protocol):
    """A client's link to the owner."""

    def ask(self, op: str, *arguments: Any, **options: Any) -> Any: ...


# ---- on the client's side


def send_ahead(link: Asks, value: Any) -> Any:
    """A value, or what stands for it once it was sent ahead."""
    if isinstance(value, Rereadable):
        value = value.start()
    if is_file(value):
        return _send(link, "file", iter(lambda: value.read(PIECE_SIZE), None))
    if isinstance(value, str) and len(value) > SENT_AHEAD:
        return _send(link, "", (value[at : at + PIECE_SIZE] for at in range(0, len(value) + 1, PIECE_SIZE)))
    if isinstance(value, bytes | bytearray | memoryview) and memoryview(value).nbytes > SENT_AHEAD:
        view = memoryview(value).cast("B")
        return _send(link, "", (bytes(view[at : at + PIECE_SIZE]) for at in range(0, len(view) + 1, PIECE_SIZE)))
    return value


def _send(link: Asks, kind: str, pieces: Iterator[Any]) -> Ahead:
    number, is_text = link.ask("send_ahead"), False
    for piece in pieces:
        if not piece:
            is_text = is_text or isinstance(piece, str)
            break
        is_text = isinstance(piece, str)
        if not isinstance(piece, str | bytes | bytearray | memoryview):
            raise TypeMismatch(f"a file gives {type(piece).__name__}, neither bytes nor str")
        link.ask("send_piece", number, piece.encode() if isinstance(piece, str) else bytes(piece))
    what = "text" if is_text else "bytes"
    return Ahead(number, f"file of {what}" if kind else what)


def all_sent_ahead(link: Asks, values: Any) -> Any:
    """Values of a row, or a statement's parameters, of which long ones and files are with the owner already."""
    if isinstance(values, Mapping):
        return {name: send_ahead(link, value) for name, value in values.items()}
    return [send_ahead(link, value) for value in values]


# ---- on the owner's side


class Received:
    """What clients have sent ahead, by number."""

    def __init__(self) -> None:
        self._files: dict[int, Any] = {}
        self.is_used = False

    @property
    def is_waiting(self) -> bool:
        """Whether a value was sent ahead that no message has named yet."""
        return bool(self._files)

    def begin(self, number: int) -> None:
        import tempfile

        self._files[number] = tempfile.SpooledTemporaryFile(IN_MEMORY)  # noqa: SIM115

    def add(self, number: int, piece: bytes) -> None:
        self._files[number].write(piece)

    def value(self, ahead: Ahead) -> Any:
        self.is_used = True
        file = self._files.get(ahead.number)
        if file is None or ahead.kind not in KINDS:
            raise InterfaceError("a value that should have been sent ahead was not")
        file.seek(0)
        if ahead.kind == "bytes":
            return file.read()
        if ahead.kind == "text":
            return file.read().decode()
        return file if ahead.kind == "file of bytes" else io.TextIOWrapper(file, "utf-8", newline="")

    def values(self, packed: Any) -> Any:
        """Values of a row or of a statement's parameters, with those that were sent ahead."""
        if isinstance(packed, Mapping):
            return {name: self.value(v) if isinstance(v, Ahead) else v for name, v in packed.items()}
        return [self.value(v) if isinstance(v, Ahead) else v for v in packed]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.is_used = False


# ---- rows


def _is_short(value: Any) -> bool:
    """Whether a message has a TEXT or BYTEA value within its row."""
    if isinstance(value, bytes | bytearray):
        return len(value) <= SHORT_MAX and len(value) != TEXT_LOCATOR.size
    return isinstance(value, str) and len(value) <= SHORT_MAX


def _in_message(column: Column) -> Column:
    """A column as a message's row has it: NULL where the value follows it; documents are texts, which others check."""
    type_ = ColumnType("VARCHAR") if column.type.is_json else column.type
    return replace(column, type=type_, nullable=True)


class LobRowCodec:
    """Rows of columns some of which are large objects, as messages have them.

    Behind the row follow large objects, NULL for those that are in it.
    """

    def __init__(self, columns: Sequence[Column]) -> None:
        self._lobs = [n for n, column in enumerate(columns) if column.type.may_be_apart]
        self._documents = [n for n, column in enumerate(columns) if column.type.is_json]
        self._columns = tuple(columns)
        self._rows = RowCodec([_in_message(c) if c.type.may_be_apart else c for c in columns])

    def encode(self, values: Sequence[Any]) -> bytes:
        inline, parts = list(values), []
        for n in self._documents if len(inline) == len(self._columns) else ():
            if isinstance(inline[n], dict | list):
                inline[n] = self._columns[n].document(inline[n])
        for n in self._lobs if len(inline) == len(self._columns) else ():
            if self._columns[n].type.may_be_long and _is_short(inline[n]):
                parts.append(_VALUE_LENGTH.pack(_NULL))
            else:
                parts += self._encoded(n, inline[n])
                inline[n] = None
        row = self._rows.encode(inline)
        return b"".join((_VALUE_LENGTH.pack(len(row)), row, *parts))

    def _encoded(self, n: int, value: Any) -> list[bytes]:
        if value is None:
            return [_VALUE_LENGTH.pack(_NULL)]
        if isinstance(value, Ahead):
            return [
                _VALUE_LENGTH.pack(_VALUE_AHEAD),
                _VALUE_LENGTH.pack(value.number),
                _VALUE_LENGTH.pack(KINDS.index(value.kind)),
            ]
        column = self._columns[n]
        if column.type.is_array:
            whole = encode_array(column.type.element, value)
            return [_VALUE_LENGTH.pack(len(whole)), whole]
        wanted = str if column.type.is_text else bytes | bytearray | memoryview
        if not isinstance(value, wanted):
            raise TypeMismatch(f"column {column.name}: a {type(value).__name__} is not a {column.type}")
        data = value.encode() if isinstance(value, str) else bytes(value)
        return [_VALUE_LENGTH.pack(len(data)), data]

    def decode(self, body: bytes) -> tuple[Any, ...]:
        end = _VALUE_LENGTH.size + _VALUE_LENGTH.unpack_from(body)[0]
        values, at = list(self._rows.decode(body[_VALUE_LENGTH.size : end])), end
        for n in self._lobs:
            (length,) = _VALUE_LENGTH.unpack_from(body, at)
            at += _VALUE_LENGTH.size
            if length == _VALUE_AHEAD:
                number, kind = struct.unpack_from("<qq", body, at)
                values[n] = Ahead(number, KINDS[kind])
                at += 2 * _VALUE_LENGTH.size
            elif length != _NULL:
                values[n] = self._decoded(n, body[at : at + length])
                at += length
        return tuple(values)

    def _decoded(self, n: int, data: bytes) -> Any:
        type_ = self._columns[n].type
        if type_.is_array:
            return decode_array(type_.element, data)
        return data.decode() if type_.is_text else data


def row_codec(columns: Sequence[Column]) -> RowCodec | LobRowCodec:
    """What makes messages of rows, and rows of messages."""
    return LobRowCodec(columns) if any(column.type.may_be_apart for column in columns) else RowCodec(columns)


class LobPatches(Patches):
    """Patches of rows that have large objects, as messages have them: columns' numbers, then their values."""

    def encode(self, values: Sequence[Any] | Mapping[str, Any]) -> bytes:
        by_name = values if isinstance(values, dict) else self._by_name(values)
        numbers = self.numbers(by_name)
        chosen = [self._columns[n] for n in numbers]
        head = struct.pack(f"<H{len(numbers)}H", len(numbers), *numbers)
        return head + row_codec(chosen).encode([by_name[column.name] for column in chosen])


def decode_lob_patch(columns: Sequence[Column], patch: bytes) -> dict[str, Any]:
    (count,) = _COUNT.unpack_from(patch)
    numbers = struct.unpack_from(f"<{count}H", patch, _COUNT.size)
    chosen = [columns[n] for n in numbers]
    values = row_codec(chosen).decode(patch[_COUNT.size * (count + 1) :])
    return dict(zip((column.name for column in chosen), values, strict=True))


# ---- What goes over the wire.

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
        raise errors.InterfaceError("a message's head is not an object")
    return head, raw[end:]


# ---- values

_TEXTS: dict[str, tuple[type, Callable[[Any], str], Callable[[str], Any]]] = {
    "datetime": (datetime, datetime.isoformat, datetime.fromisoformat),
    "date": (date, date.isoformat, date.fromisoformat),
    "time": (time, time.isoformat, time.fromisoformat),
    "Decimal": (Decimal, str, Decimal),
    "Path": (Path, str, Path),
}
# What travels as its fields, in order; some bring compiled code, so each is looked for when one arrives.
_CLASSES = {
    "Ahead": "gmdb.server.wire",
    "Apply": "gmdb.tables.arrow.load_kinds",
    "BackupReport": "gmdb.storage.log.reports",
    "CheckpointReport": "gmdb.storage.log.reports",
    "Column": "gmdb.format.columns",
    "ColumnType": "gmdb.format.columns",
    "Constraint": "gmdb.tables.catalog.schema",
    "Feed": "gmdb.storage.feeds",
    "Finding": "gmdb.verify.findings",
    "Holder": "gmdb.storage.documents",
    "Interval": "gmdb.format.interval",
    "IndexDefinition": "gmdb.tables.access.indexes",
    "KeyRange": "gmdb.tables.access.indexes",
    "KeyStatistics": "gmdb.tables.catalog.system",
    "Load": "gmdb.tables.arrow.attach",
    "LobSegment": "gmdb.format.lob",
    "LogPosition": "gmdb.storage.feeds",
    "NewIndex": "gmdb.tables.access.indexes",
    "NewTable": "gmdb.tables.arrow.attach",
    "PageFormat": "gmdb.tables.arrow.staging",
    "Pin": "gmdb.storage.pins",
    "Recovery": "gmdb.storage.log.reports",
    "Report": "gmdb.verify.findings",
    "RowId": "gmdb.format.address",
    "StepsThere": "gmdb.server.wire",
    "StreamBatch": "gmdb.tables.catalog.system",
    "TableDefinition": "gmdb.tables.catalog.schema",
    "TableStatistics": "gmdb.tables.catalog.system",
    "ViewDefinition": "gmdb.tables.catalog.view_definitions",
}
_AS_THEY_ARE = frozenset((bool, int, float, str, type(None)))
_known: dict[str, type] = {}
_fields: dict[type, tuple[str, ...]] = {}  # of types of the list that were met


class SessionState(NamedTuple):
    """What a client knows of its session.  ``is_missed``: another one in its place would not do, as for changes;
    ``number``: a state with a higher one is newer.  The isolation, and whether only to read, are those of transactions
    for which nothing else is said."""

    number: int
    autocommit: bool
    isolation: str
    lock_timeout: float
    time_zone: str = "UTC"
    only_reads: bool = False
    was_begun: bool = False
    is_missed: bool = False


# A heap's obj_id, and name and number of its table, for an owner that comes later; how many columns the client knows,
# and their form.
TableThere = tuple[int, str, int, int, int]


def form_of(columns: Sequence[Column]) -> int:
    """What says whether rows of these columns are read by others as they were written, wherever lengths are longer."""
    types = [column.type for column in columns]
    kinds = [(type_.name, int(type_.kind), type_.scale) for type_ in types]
    return zlib.crc32(repr((numbers_of(columns), kinds)).encode())


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
    """A value whose type is not in the list, but a subclass of one that is, or like one."""
    for name, (kind, to_text, _) in _TEXTS.items():
        if isinstance(value, kind):
            return {name: to_text(value)}
    if is_uuid(value):
        return {"UUID": value.hex}
    if isinstance(value, timedelta):
        return to_plain(Interval.of(value), body)
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
    if name == "UUID":
        from uuid import UUID

        return UUID(content)
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
    if any(column.type.may_be_apart for column in columns):
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
            error = known(message)
        except TypeError:  # one of those that want more than a message
            pass
        else:
            for attribute in ("line", "column", "hint", "index"):
                if attribute in head.get("more", {}):
                    setattr(error, attribute, head["more"][attribute])
            return error
    return errors.InternalError(f"the owner of the database failed with {name}: {message}")
