"""A large object as a file: read from any place on, without being in memory as a whole."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any, NamedTuple

from gmdb.errors import InterfaceError
from gmdb.signals import held

BUFFER_SIZE = 256 << 10
ReadAt = Callable[[int, int], bytes]  # from a place and a number of bytes to the bytes


class OpenLob(NamedTuple):
    """A large object that can be read from until it is let go."""

    read_at: ReadAt
    length: int
    let_go: Callable[[], None]
    is_text: bool


class LobFile(io.RawIOBase):
    """The bytes of a large object, as they are for one snapshot, until it is closed or its transaction ends."""

    def __init__(self, opened: OpenLob) -> None:
        self._read_at, self._length, self._let_go, _ = opened
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
            raise ValueError(f"whence {whence} is none of 0, 1 and 2")
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
                self._let_go()
            super().close()


File = io.BufferedReader | io.TextIOWrapper


def open_file(opened: OpenLob) -> File:
    """A large object as a file of bytes, or of text if it is a CLOB."""
    raw: io.BufferedReader = io.BufferedReader(LobFile(opened), BUFFER_SIZE)
    return io.TextIOWrapper(raw, "utf-8", newline="") if opened.is_text else raw
