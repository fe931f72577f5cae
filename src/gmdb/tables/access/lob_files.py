"""Large objects as files: where the bytes of one that is stored come from, and reading one without having it whole."""

from __future__ import annotations

import codecs
import io
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from gmdb.errors import DataError, InterfaceError, TypeMismatch
from gmdb.format.columns import Column, encode_text
from gmdb.process.signals import held

# ---- Where the bytes of a large object come from: a value at hand, or a file, piece by piece.

PIECE_SIZE = 256 << 10


class Rereadable:
    """A file that may be read several times, each time from where it stood at first."""

    def __init__(self, source: Any) -> None:
        self._source = source
        self._used = False
        try:
            self._start: Any = source.tell() if source.seekable() else None
        except (AttributeError, OSError):
            self._start = None

    def start(self) -> Any:
        if self._used:
            if self._start is None:
                raise InterfaceError("a file that cannot be read twice is given for several rows, or for a second try")
            self._source.seek(self._start)
        self._used = True
        return self._source


def rereadable(parameters: Any) -> Any:
    """Parameters of a statement, or values of a row, with files that can be read several times."""
    if isinstance(parameters, Mapping):
        return {name: _rereadable(value) for name, value in parameters.items()}
    return [_rereadable(value) for value in parameters]


def _rereadable(value: Any) -> Any:
    is_to_be = is_file(value) and not isinstance(value, Rereadable)  # a statement's values are those of a row, later
    return Rereadable(value) if is_to_be else value


def is_file(value: Any) -> bool:
    """Whether a value is to be read from somewhere."""
    return isinstance(value, Rereadable) or callable(getattr(value, "read", None))


def pieces_of(column: Column, value: Any) -> Iterator[bytes]:
    """A value's bytes, some at a time."""
    is_text = column.type.is_text
    if isinstance(value, Rereadable):
        value = value.start()
    if is_file(value):
        yield from _read_pieces(column, value, is_text)
    elif is_text:
        if not isinstance(value, str):
            raise TypeMismatch(
                f"column {column.name}: a {type(value).__name__} is not a str, nor a file to read one from"
            )
        for at in range(0, len(value), PIECE_SIZE):
            yield encode_text(value[at : at + PIECE_SIZE])
    else:
        if not isinstance(value, bytes | bytearray | memoryview):
            message = f"column {column.name}: a {type(value).__name__} is not bytes, nor a file to read them from"
            raise TypeMismatch(message)
        view = memoryview(value).cast("B")
        for at in range(0, len(view), PIECE_SIZE):
            yield bytes(view[at : at + PIECE_SIZE])


def _read_pieces(column: Column, file: Any, is_text: bool) -> Iterator[bytes]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        while piece := file.read(PIECE_SIZE):
            if isinstance(piece, str) and is_text:
                yield encode_text(piece)
            elif isinstance(piece, bytes | bytearray | memoryview):
                if is_text:
                    decoder.decode(bytes(piece))
                yield bytes(piece)
            else:
                raise TypeMismatch(f"column {column.name}: the file gives {type(piece).__name__}, not {column.type}")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise DataError(f"column {column.name}: what the file gives is not UTF-8: {error.reason}") from None


# ---- A large object as a file: read from any place on, without being in memory as a whole.

BUFFER_SIZE = 256 << 10
ReadAt = Callable[[int, int], bytes]  # from a place and a number of bytes to the bytes


class OpenLob(NamedTuple):
    """A large object that can be read until it is released."""

    read_at: ReadAt
    length: int
    release: Callable[[], None]
    is_text: bool


class LobFile(io.RawIOBase):
    """The bytes of a large object, as they are for one snapshot, until it is closed or its transaction ends."""

    def __init__(self, opened: OpenLob) -> None:
        self._read_at, self._length, self._release, _ = opened
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        self._require_open()
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._require_open()
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._length}.get(whence)
        if start is None:
            raise ValueError(f"whence {whence} is not 0, 1 or 2")
        if start + offset < 0:
            raise ValueError(f"byte {start + offset} lies before the beginning")
        self._at = start + offset
        return self._at

    def readinto(self, buffer: Any) -> int:
        self._require_open()
        view = memoryview(buffer).cast("B")
        size = max(min(len(view), self._length - self._at, BUFFER_SIZE), 0)
        if size:
            with held:
                piece = self._read_at(self._at, size)
            view[:size] = piece  # nothing is called from here on: no signal comes between the bytes and their place
            self._at += size
        return size

    def _require_open(self) -> None:
        if self.closed:
            raise InterfaceError("the large object is closed")

    def close(self) -> None:
        with held:
            if not self.closed:
                self._release()
            super().close()


File = io.BufferedReader | io.TextIOWrapper


def open_file(opened: OpenLob) -> File:
    """A large object as a file of bytes, or of text if it is a CLOB."""
    raw: io.BufferedReader = io.BufferedReader(LobFile(opened), BUFFER_SIZE)
    return io.TextIOWrapper(raw, "utf-8", newline="") if opened.is_text else raw
