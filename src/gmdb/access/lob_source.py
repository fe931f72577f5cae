"""Where the bytes of a large object come from: a value at hand, or a file, piece by piece."""

from __future__ import annotations

import codecs
from collections.abc import Iterator, Mapping
from typing import Any

from gmdb.errors import DataError, InterfaceError, TypeMismatch
from gmdb.format.columns import Column, encode_text

PIECE_SIZE = 256 << 10


class Rereadable:
    """A file that may be needed for several rows, or again for one: it is read from where it was at first."""

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
    """Parameters of a statement, with files that can be read as often as it needs them."""
    if isinstance(parameters, Mapping):
        return {name: Rereadable(value) if is_file(value) else value for name, value in parameters.items()}
    return [Rereadable(value) if is_file(value) else value for value in parameters]


def is_file(value: Any) -> bool:
    """Whether a value is to be read from somewhere."""
    return isinstance(value, Rereadable) or callable(getattr(value, "read", None))


def pieces_of(column: Column, value: Any) -> Iterator[bytes]:
    """A value's bytes, some at a time."""
    is_text = column.type.name == "CLOB"
    if isinstance(value, Rereadable):
        value = value.start()
    if is_file(value):
        yield from _read_pieces(column, value, is_text)
    elif is_text:
        if not isinstance(value, str):
            raise TypeMismatch(f"column {column.name}: a {type(value).__name__} is no str, nor a file to read one from")
        for at in range(0, len(value), PIECE_SIZE):
            yield encode_text(value[at : at + PIECE_SIZE])
    else:
        if not isinstance(value, bytes | bytearray | memoryview):
            said = f"column {column.name}: a {type(value).__name__} is no bytes, nor a file to read them from"
            raise TypeMismatch(said)
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
                raise TypeMismatch(f"column {column.name}: the file gives {type(piece).__name__}, no {column.type}")
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise DataError(f"column {column.name}: what the file gives is no UTF-8: {error.reason}") from None
