"""Large objects of one table, for one session: putting values on pages, reading them from there.

A short value stays in its row.  A longer one, and what is read from a file, goes to pages piece by piece; the row keeps
a locator.  TEXT and BYTEA values stay in the row if they are what rows took before they could leave it, unless the row
has no room for them.

Invariants
 1. A value is put on pages within the statement that puts it into a row: if that fails, its pages are given back.
 2. What is read by a snapshot is handed out only after the snapshot was found to be held still: while it is, nobody
    gives the value's pages back.
 3. A piece of a value at a time is in memory, and so many changed pages as ``DIRTY_MAX``.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from typing import Any

from gmdb.errors import Corruption, ValueTooLong
from gmdb.format.address import page_name
from gmdb.format.arrays import EncodedArray, encode_array
from gmdb.format.codec import Unfinished
from gmdb.format.columns import Column, ColumnType, encode_text, require_length
from gmdb.format.lob import (
    INLINE_MAX,
    INLINE_TOTAL,
    LOB_MAX,
    TEXT_IN_ROW_MAX,
    LobSegment,
    Locator,
    is_text_locator,
)
from gmdb.kernel.lob import append_lob, create_lob, read_lob
from gmdb.kernel.runtime.status import DAMAGED
from gmdb.storage.memory import address_of, numbers, zeros
from gmdb.storage.store import PageStore
from gmdb.tables.access.lob_files import PIECE_SIZE, OpenLob, is_file, pieces_of
from gmdb.transaction.session import Session

DIRTY_MAX = 32 << 20  # bytes of changed pages, from which on they are written before more are
SPILLED_FROM = 256  # bytes of a TEXT or BYTEA that may leave a row which has no room for it
Check = Callable[[], None]
Values = Sequence[Any] | Mapping[str, Any]  # of a row, or of some of its columns by name
Finish = Callable[[tuple[Any, ...]], tuple[Any, ...]]  # of a row's values


class Lobs:
    """The large objects of one table."""

    def __init__(
        self,
        store: PageStore,
        session: Session,
        table: str,
        columns: Sequence[Column],
        segment: LobSegment,
        has_feed: bool,
    ) -> None:
        """``has_feed``: the table's changes are logged."""
        self._has_feed = has_feed
        self._store, self._session, self._table = store, session, table
        self.segment = segment
        self.positions = [n for n, column in enumerate(columns) if column.type.may_be_apart]
        self.columns = {columns[n].name: columns[n] for n in self.positions}
        self._all = tuple(columns)
        self._documents = {column.name for column in columns if column.type.is_json}
        self._space_id = store.space_of(segment.entry_page).space_id
        self._inline_max = min(INLINE_MAX, INLINE_TOTAL // max(sum(column.type.is_lob for column in columns), 1))
        texts = [columns[n].type.may_be_long for n in self.positions]
        self.numbers = numbers([*self.positions, *texts])

    # ---- putting values on pages

    def checked(self, values: Any) -> Any:
        """The values of a row, or of some of its columns by name, with those of JSON as texts that were checked."""
        if not self._documents:
            return values
        if isinstance(values, Mapping):
            changed = {name: self.columns[name].document(values[name]) for name in self._documents & values.keys()}
            return {**values, **changed}
        if len(values) != len(self._all):
            return values  # encoding it raises what is wrong
        pairs = zip(self._all, values, strict=True)
        return [column.document(value) if column.type.is_json else value for column, value in pairs]

    def _in_row_max(self, type_: ColumnType) -> int:
        return TEXT_IN_ROW_MAX if type_.may_be_long else self._inline_max

    def is_long(self, column: Column, value: Any) -> bool:
        """Whether a value does not stay in its row, or may not."""
        size = self._in_row_max(column.type)
        value = _as_bytes(column, value)
        if isinstance(value, str):
            return len(value) > size or (not value.isascii() and len(encode_text(value)) > size)
        if isinstance(value, bytes | bytearray | memoryview):
            count = memoryview(value).nbytes
            return count > size or (column.type.may_be_long and is_text_locator(bytes(value)))
        return is_file(value)

    def has_long(self, values: Sequence[Any] | Mapping[str, Any]) -> bool:
        """Whether one of the values of a row, or of some of its columns by name, is long."""
        if isinstance(values, Mapping):
            return any(name in values and self.is_long(column, values[name]) for name, column in self.columns.items())
        if len(values) != len(self._all):
            return False  # encoding it raises what is wrong
        return any(self.is_long(self._all[n], values[n]) for n in self.positions)

    def keep(self, column: Column, value: Any, anyway: bool = False) -> Any:
        """A value as a row has it: itself, or where it is on pages from now on; ``anyway``: even if it is short."""
        value = column.document(value) if column.type.is_json else _as_bytes(column, value)
        if not self.is_long(column, value) and not anyway:
            return value
        if column.type.is_array and not isinstance(value, EncodedArray):
            return value  # encoding it raises what is wrong
        if column.type.may_be_long and not is_file(value):
            if column.type.is_text != isinstance(value, str):
                return value  # encoding it raises what is wrong
            value = encode_text(value) if isinstance(value, str) else bytes(value)
            require_length(column.type, len(value))
            if self._has_feed:
                where = f"table {self._table}, column {column.name}: a value of {len(value)} bytes leaves its row"
                why = "the table's changes are logged, which would say only where it was"
                raise ValueTooLong(f"{where}, but {why}; a row keeps up to {TEXT_IN_ROW_MAX} bytes of a {column.type}")
            return self._keep_pieces(column, iter([value]), True)
        return self._keep_pieces(column, pieces_of(column, value), False)

    def _keep_pieces(self, column: Column, pieces: Iterator[bytes], anyway: bool) -> Any:
        where = f"{self._table}.{column.name}"
        writer = LobWriter(self._store, self._session, self.segment, self._space_id, where, column.type)
        inline, inline_max = bytearray(), self._in_row_max(column.type)
        for piece in pieces:
            if writer.is_begun:
                writer.write(piece)
                continue
            inline += piece
            if anyway or len(inline) > inline_max:
                writer.write(bytes(inline))
        if writer.is_begun:
            return writer.locator
        return inline.decode() if column.type.is_text else bytes(inline)

    def spilled(self, values: Mapping[str, Any], kept: Container[str]) -> dict[str, Any]:
        """Some columns' values, with TEXT and BYTEA on pages as far as that saves room, ``kept`` left out."""
        return {
            name: self.keep(self.columns[name], value, True) if self.may_spill(name, value, kept) else value
            for name, value in values.items()
        }

    def may_spill(self, name: str, value: Any, kept: Container[str]) -> bool:
        """Whether a value goes to pages where its row has no room for it."""
        column = self.columns.get(name)
        if column is None or name in kept or not column.type.may_be_long:
            return False
        return isinstance(value, str | bytes | bytearray | memoryview) and len(value) >= SPILLED_FROM

    # ---- reading them

    def finisher(self, check: Check, wanted: Container[int] | None = None) -> Finish:
        """A function that gives a row with the large objects of the wanted columns instead of their locators."""
        positions = [n for n in self.positions if wanted is None or n in wanted]

        def finish(values: tuple[Any, ...]) -> tuple[Any, ...]:
            whole = list(values)
            for n in positions:
                if whole[n].__class__ is Locator:
                    whole[n] = self.read(self._all[n], whole[n], check)
            return tuple(whole)

        return finish

    def read(self, column: Column, locator: Locator, check: Check) -> Any:
        """A whole value."""
        data = read_bytes(self._store, self.segment.obj_id, locator, 0, locator.length, check)
        if column.type.is_array:
            return column.type.decode(data)
        if not column.type.is_text:
            return data
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise Corruption(f"column {column.name}: a text is damaged: {error}", locator.first_page) from None

    def open(self, column: Column, value: Any, check: Check, release: Check) -> OpenLob:
        """A row's value, to be read from; the snapshot that ``check`` asks for is held until ``release``."""
        is_text = column.type.is_text
        if not isinstance(value, Locator):
            data = value.encode() if is_text else value
            return OpenLob(lambda at, size: data[at : at + size], len(data), release, is_text)

        def read_at(at: int, size: int) -> bytes:
            return read_bytes(self._store, self.segment.obj_id, value, at, size, check)

        return OpenLob(read_at, value.length, release, is_text)


def _as_bytes(column: Column, value: Any) -> Any:
    """The bytes of an array; any other value itself."""
    is_array = column.type.is_array and isinstance(value, list | tuple)
    return encode_array(column.type.element, value) if is_array else value


Decode = Callable[[bytes], tuple[Any, ...]]


def finished(decode: Decode, finish: Finish | None) -> Decode:
    """``decode``, and ``finish`` where a row is Unfinished."""
    if finish is None:
        return decode

    def decode_whole(row: bytes) -> tuple[Any, ...]:
        values = decode(row)
        return finish(values) if values.__class__ is Unfinished else values

    return decode_whole


def in_pieces(
    rows: Iterable[tuple[Any, tuple[Any, ...]]], finish: Finish | None
) -> Iterator[Iterable[tuple[Any, tuple[Any, ...]]]]:
    """Rows behind their row ids, all at once; but if some are Unfinished, one at a time, for they may be large."""
    if finish is None or not any(values.__class__ is Unfinished for _, values in rows):
        yield rows
        return
    for row_id, values in rows:
        yield ((row_id, finish(values) if values.__class__ is Unfinished else values),)


class LobWriter:
    """Puts a value on pages, piece by piece, within a statement."""

    def __init__(
        self, store: PageStore, session: Session, segment: LobSegment, space_id: int, where: str, type_: ColumnType
    ) -> None:
        self._type = type_
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
        if not self._type.is_lob:
            require_length(self._type, self._length + len(piece))
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
