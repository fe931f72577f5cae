"""Large objects of one table, for one session: putting values on pages, reading them from there.

A short value stays in its row.  A longer one, and what is read from a file, goes to pages piece by piece; the row keeps
a locator.

Invariants
 1. A value is put on pages within the statement that puts it into a row: if that fails, its pages are given back.
 2. What is read by a snapshot is handed out only after the snapshot was found to be held still: while it is, nobody
    gives the value's pages back.
 3. A piece of a value at a time is in memory, and so many changed pages as ``DIRTY_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Sequence
from typing import Any

from gmdb.errors import Corruption, ValueTooLong
from gmdb.format.address import page_name
from gmdb.format.columns import Column, encode_text
from gmdb.format.lob import INLINE_MAX, INLINE_TOTAL, LOB_MAX, LobSegment, Locator
from gmdb.kernel.lob import append_lob, create_lob, read_lob
from gmdb.kernel.runtime.status import DAMAGED
from gmdb.storage.memory import address_of, numbers, zeros
from gmdb.storage.store import PageStore
from gmdb.tables.access.lob_files import PIECE_SIZE, OpenLob, is_file, pieces_of
from gmdb.transaction.session import Session

DIRTY_MAX = 32 << 20  # bytes of changed pages, from which on they are written before more are
Check = Callable[[], None]


class Lobs:
    """The large objects of one table."""

    def __init__(
        self, store: PageStore, session: Session, table: str, columns: Sequence[Column], segment: LobSegment
    ) -> None:
        self._store, self._session, self._table = store, session, table
        self.segment = segment
        self.positions = [n for n, column in enumerate(columns) if column.type.is_lob]
        self.columns = {columns[n].name: columns[n] for n in self.positions}
        self._all = tuple(columns)
        self._space_id = store.space_of(segment.entry_page).space_id
        self._inline_max = min(INLINE_MAX, INLINE_TOTAL // len(self.positions))
        self.numbers = numbers(self.positions)

    # ---- putting values on pages

    def is_long(self, value: Any) -> bool:
        """Whether a value does not stay in its row, or may not."""
        if isinstance(value, str):
            return len(value) > self._inline_max or (not value.isascii() and len(encode_text(value)) > self._inline_max)
        if isinstance(value, bytes | bytearray):
            return len(value) > self._inline_max
        if isinstance(value, memoryview):
            return value.nbytes > self._inline_max
        return is_file(value)

    def keep(self, column: Column, value: Any) -> Any:
        """A value as a row has it: itself, or where it is on pages from now on."""
        return self.keep_pieces(column, pieces_of(column, value)) if self.is_long(value) else value

    def keep_pieces(self, column: Column, pieces: Iterator[bytes]) -> Any:
        writer = LobWriter(self._store, self._session, self.segment, self._space_id, f"{self._table}.{column.name}")
        inline = bytearray()
        for piece in pieces:
            if writer.is_begun:
                writer.write(piece)
                continue
            inline += piece
            if len(inline) > self._inline_max:
                writer.write(bytes(inline))
        if writer.is_begun:
            return writer.locator
        return inline.decode() if column.type.name == "CLOB" else bytes(inline)

    # ---- reading them

    def decoder(
        self, decode: Callable[[bytes], tuple[Any, ...]], check: Check, wanted: Container[int] | None
    ) -> Callable[[bytes], tuple[Any, ...]]:
        """A function that decodes rows' bytes, and reads the large objects of the wanted columns."""
        positions = [n for n in self.positions if wanted is None or n in wanted]

        def decode_whole(row: bytes) -> tuple[Any, ...]:
            values = decode(row)
            for n in positions:
                if isinstance(values[n], Locator):
                    whole = list(values)
                    for m in positions:
                        if isinstance(values[m], Locator):
                            whole[m] = self.read(self._all[m], values[m], check)
                    return tuple(whole)
            return values

        return decode_whole

    def read(self, column: Column, locator: Locator, check: Check) -> Any:
        """A whole value."""
        data = read_bytes(self._store, self.segment.obj_id, locator, 0, locator.length, check)
        if column.type.name != "CLOB":
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"column {column.name}: a text is damaged: {error}", locator.first_page) from None

    def open(self, column: Column, value: Any, check: Check, release: Check) -> OpenLob:
        """A row's value, to be read from; the snapshot that ``check`` asks for is held until ``release``."""
        is_text = column.type.name == "CLOB"
        if not isinstance(value, Locator):
            data = value.encode() if is_text else value
            return OpenLob(lambda at, size: data[at : at + size], len(data), release, is_text)

        def read_at(at: int, size: int) -> bytes:
            return read_bytes(self._store, self.segment.obj_id, value, at, size, check)

        return OpenLob(read_at, value.length, release, is_text)


class LobWriter:
    """Puts a value on pages, piece by piece, within a statement."""

    def __init__(self, store: PageStore, session: Session, segment: LobSegment, space_id: int, where: str) -> None:
        self._store, self._session, self._segment = store, session, segment
        self._space_id, self._where = space_id, where
        self._first_page, self._length = -1, 0

    @property
    def is_begun(self) -> bool:
        return self._first_page >= 0

    @property
    def locator(self) -> Locator:
        return Locator(self._first_page, self._length)

    def write(self, piece: bytes) -> None:
        if not self.is_begun:
            self._first_page = self._change(create_lob, self._segment.obj_id, self._segment.entry_page)
        if self._length + len(piece) > LOB_MAX:
            raise ValueTooLong(f"{self._where}: a large object has at most {LOB_MAX} bytes")
        data, done = bytearray(piece), 0
        at = address_of(data) if data else 0
        while done < len(piece):
            place = (self._segment.entry_page, self._first_page)
            done += self._change(append_lob, *place, at + done, len(piece) - done)
        self._length += len(piece)
        self._store.limit_dirty(DIRTY_MAX)

    def _change(self, kernel: Any, *arguments: int) -> int:
        session = self._session
        result = session.change(kernel, self._space_id, None, (session.call_address, *arguments))
        if result < 0:
            raise Corruption(f"{self._where}: the segment of its large objects cannot be written to")
        return result


def read_bytes(store: PageStore, obj_id: int, locator: Locator, at: int, size: int, check: Check) -> bytes:
    """Some bytes of a value.  ``check`` raises if the snapshot by which it was found is not held any more."""
    if locator.length > store.size():
        raise damaged_lob(locator)
    target = zeros(max(size, 1))
    done = 0
    while done < size:
        store.require_open()
        piece = min(size - done, PIECE_SIZE)
        read = read_lob(store.area, obj_id, locator.first_page, at + done, address_of(target) + done, piece)
        if read < piece:
            check()
            if read == DAMAGED:
                store.raise_damage()
            raise damaged_lob(locator)
        done += read
    check()
    return target[:size].tobytes()


def damaged_lob(locator: Locator) -> Corruption:
    first = locator.first_page
    message = f"a large object of {locator.length} bytes should begin at page {page_name(first)}, but does not"
    return Corruption(f"{message}; see gmdb verify", first)
