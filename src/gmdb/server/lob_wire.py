"""Rows with large objects on the wire, and how files get to the owner.

A row travels with its large objects behind it.  What is long, or is read from a file, is sent ahead, a piece at a time,
into a file without a name beside the owner's others; the message then names it by its number.
"""

from __future__ import annotations

import io
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, Protocol

from gmdb.access.lob_source import PIECE_SIZE, Rereadable, is_file
from gmdb.access.patches import Patches
from gmdb.errors import InterfaceError, TypeMismatch
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column

SENT_AHEAD = 64 << 10  # bytes from which on a value goes by itself
IN_MEMORY = 1 << 20  # of what a client has sent ahead
_NULL, _AHEAD = -1, -2
_LENGTH = struct.Struct("<q")
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

    def begin(self, number: int) -> None:
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

    def values(self, given: Any) -> Any:
        """Values of a row or of a statement's parameters, with those that were sent ahead."""
        if isinstance(given, Mapping):
            return {name: self.value(v) if isinstance(v, Ahead) else v for name, v in given.items()}
        return [self.value(v) if isinstance(v, Ahead) else v for v in given]

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()
        self.is_used = False


# ---- rows


class LobRowCodec:
    """Rows of columns some of which are large objects, as messages have them."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._lobs = [n for n, column in enumerate(columns) if column.type.is_lob]
        self._columns = tuple(columns)
        self._rows = RowCodec([replace(c, nullable=True) if c.type.is_lob else c for c in columns])

    def encode(self, values: Sequence[Any]) -> bytes:
        kept, parts = list(values), []
        for n in self._lobs if len(kept) == len(self._columns) else ():
            parts += self._encoded(n, values[n])
            kept[n] = None
        row = self._rows.encode(kept)
        return b"".join((_LENGTH.pack(len(row)), row, *parts))

    def _encoded(self, n: int, value: Any) -> list[bytes]:
        if value is None:
            return [_LENGTH.pack(_NULL)]
        if isinstance(value, Ahead):
            return [_LENGTH.pack(_AHEAD), _LENGTH.pack(value.number), _LENGTH.pack(KINDS.index(value.kind))]
        column = self._columns[n]
        wanted = str if column.type.name == "CLOB" else bytes | bytearray | memoryview
        if not isinstance(value, wanted):
            raise TypeMismatch(f"column {column.name}: a {type(value).__name__} is no {column.type}")
        data = value.encode() if isinstance(value, str) else bytes(value)
        return [_LENGTH.pack(len(data)), data]

    def decode(self, body: bytes) -> tuple[Any, ...]:
        end = _LENGTH.size + _LENGTH.unpack_from(body)[0]
        values, at = list(self._rows.decode(body[_LENGTH.size : end])), end
        for n in self._lobs:
            (length,) = _LENGTH.unpack_from(body, at)
            at += _LENGTH.size
            if length == _AHEAD:
                number, kind = struct.unpack_from("<qq", body, at)
                values[n] = Ahead(number, KINDS[kind])
                at += 2 * _LENGTH.size
            elif length != _NULL:
                data = body[at : at + length]
                values[n] = data.decode() if self._columns[n].type.name == "CLOB" else data
                at += length
        return tuple(values)


def row_codec(columns: Sequence[Column]) -> RowCodec | LobRowCodec:
    """What makes messages of rows, and rows of messages."""
    return LobRowCodec(columns) if any(column.type.is_lob for column in columns) else RowCodec(columns)


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
