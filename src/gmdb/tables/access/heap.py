"""A heap: the rows of one table, by row id, for one session.

The row id that ``insert`` gives out leads to the row for as long as it lives, however often it grows and moves.
Not here: many rows at once (tables/arrow/), rows by what is in them (statements.py).
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from gmdb.errors import (
    Corruption,
    DataError,
    Error,
    NoSuchRow,
    SnapshotTooOld,
    UniqueViolation,
    ValueTooLong,
)
from gmdb.format.address import SYSTEM_DEVICE, RowId, place_of
from gmdb.format.codec import RowCodec, Unfinished
from gmdb.format.heap import row_too_large
from gmdb.format.page import PAGE_SIZES
from gmdb.kernel.change.dml import (
    delete_as_read,
    fetch_row,
    fetch_values,
    insert_row,
    insert_values,
    list_rows,
    lock_row,
    update_row,
    update_values,
)
from gmdb.kernel.change.index_upkeep import BUILDING
from gmdb.kernel.runtime.call import BLOCKED, HELD, INDEX, SEEN, STAMP
from gmdb.kernel.runtime.status import (
    DAMAGED,
    DUPLICATE,
    HASHES_CLASH,
    KEY_TOO_LONG,
    LOCKED,
    NOT_FOUND,
    NOT_NOW,
    ROW_TOO_LARGE,
)
from gmdb.process.signals import Flattened
from gmdb.storage.memory import address_of, numbers, zeros
from gmdb.storage.store import PageStore, Segment
from gmdb.tables.access.definition import Checked, Definition, View
from gmdb.tables.access.generated import GeneratedColumns
from gmdb.tables.access.indexes import HIDDEN, IndexDefinition, KeyRange, key_limit, no_such_index
from gmdb.tables.access.keyed import KeyedRows
from gmdb.tables.access.lob_changes import all_or_nothing, insert_with_lobs, kept_values
from gmdb.tables.access.lob_files import OpenLob
from gmdb.tables.access.lob_opening import LobOpening
from gmdb.tables.access.lobs import Finish, Lobs, finished, in_pieces
from gmdb.tables.access.patches import Patches
from gmdb.tables.access.row_changes import BUFFER_SIZE, RowChanges, Watch
from gmdb.tables.access.shapes import row_shape
from gmdb.tables.access.statements import Steps
from gmdb.tables.access.tracked_rows import (
    RowKeys,
    change_tracked,
    note_all_read,
    note_row_read,
    require_seen_duplicate,
)
from gmdb.transaction.interrupts import operation
from gmdb.transaction.session import Session

if TYPE_CHECKING:
    from gmdb.transaction.serializable import Tracked

# Where single rows are changed and read, places are put together and taken apart in place: ``place_of`` and
# ``RowId.from_place`` cost up to a twentieth of a statement.
_new = tuple.__new__  # a RowId without the wrapper that a NamedTuple has


def _not_now(*_: Any) -> int:
    """A fast path that there is none of."""
    return NOT_NOW


def _nobody(_: Definition) -> None:
    """Who watches the rows of a table that concerns no other, or computes columns of rows that are whole."""


class Heap(RowChanges):
    def __init__(
        self,
        store: PageStore,
        session: Session,
        current: Callable[[int | None], Definition],
        watch_of: Callable[[Any], Watch | None] = _nobody,
        generated_of: Callable[[Any], GeneratedColumns | None] = _nobody,
    ) -> None:
        """``current`` returns the table's definition as a snapshot sees it, or, for None, as it is now.

        It is called with None whenever a transaction begins to change the table, which it holds by then.
        ``watch_of`` returns who is told of changes of a table that is so defined, ``generated_of`` what computes its
        generated columns; without it, all rows and patches that come have them.
        """
        self.session = session
        self._watch_of, self._generated_of = watch_of, generated_of
        self._current = current
        self._bytes = zeros(BUFFER_SIZE)
        self._lobs_wanted: Container[int] | None = None
        self._area = store.area
        self._store = store
        self._queues = session.hub.waits.queues
        self.gate = store.gate(session.busy)
        self._follow(current(session.definitions_scn))

    def _follow(self, definition: Definition) -> None:
        """Use a definition from now on: the table has other columns, indexes, or a new segment."""
        space = self._store.spaces.get(definition.space_id)
        if space is None:
            raise Corruption(f"table {definition.name} lies in tablespace {definition.space_id}, which has no device")
        self.definition = definition
        self.name, self.obj_id, self.number = definition.name, definition.obj_id, definition.number
        self.feed = definition.feed.version if definition.feed is not None else 0
        self.segment = Segment(self._store, space, definition.entry_page)
        self.columns, self.stored = definition.columns, definition.stored
        codec = RowCodec(self.columns)
        self.encode, self.plain_decode = codec.encode, codec.decode
        if self.stored is not self.columns:
            self.encode = RowCodec(self.stored).encode
        self.watch = watch = self._watch_of(definition)
        self.generated = self._generated_of(definition)
        self._patches = Patches(self.name, self.stored, () if watch is None else watch.columns)
        self.encode_patch = self._patches.encode
        self.lobs: Lobs | None = None
        if definition.lobs is not None:
            of_table = self._store, self.session, self.name
            self.lobs = Lobs(*of_table, self.stored, definition.lobs, definition.feed is not None)
        self._space_id = space.space_id
        self._is_users = space.space_id != SYSTEM_DEVICE
        self.indexes = definition.indexes
        self._row_keys: RowKeys | None = None
        self._by_index: dict[str, KeyedRows] = {}
        pages = [index.entry_page | (BUILDING if index.building else 0) for index in self.indexes]
        self._index_pages = numbers(pages)
        place = (self.session.call_address, self.obj_id, self.segment.entry_page, address_of(self._bytes))
        lobs = (0, 0, 0, 0)
        if self.lobs is not None:
            lobs = (address_of(self.lobs.numbers), len(self.lobs.positions), *self.lobs.segment)
        indexes = (address_of(self._index_pages) if pages else 0, len(pages))
        self._fields = fields = numbers((*place, *indexes, *lobs, 0, 0, self.feed))
        self._target = address_of(fields)
        self.shape = row_shape(self.columns)
        self.view = View(self.obj_id, self._target, (fields, self._index_pages, self.lobs, self.shape))
        self.insert_at_once = self._make_insert()
        self._fetch_at_once = self._make_fetch()
        shapes = self._patches.shapes if self.generated is None else {}
        self._update_at_once = self._bound(update_values, self.gate), shapes

    def insert(self, values: Sequence[Any]) -> RowId:
        """Add a row, values in column order; returns the row id that it keeps for life."""
        place = self.insert_at_once(values)
        if place < 0:
            place = self.insert_encoded(values)
            if place < 0:
                return self._insert_slowly(values)
        elif self._store.scans:
            self._store.give_way()
        return _new(RowId, (place >> 16, place & 0xFFFF))

    def insert_encoded(self, values: Sequence[Any]) -> int:
        """``insert`` of a row of any types, without waiting or making room.

        Returns its place, or less than 0: nothing was done.
        """
        if not self.session.plain or (self.watch is not None and self.watch.inserts):
            return NOT_NOW
        try:
            row = self.encode(values if self.generated is None else self.generated.row(values))
        except DataError:  # it may be longer than a row takes, or a file
            if self.lobs is None:
                raise
            return NOT_NOW
        return self._change_at_once(insert_row, row, len(row))

    def _make_insert(self) -> Callable[[Sequence[Any]], int]:
        """``insert`` in one call of a kernel, which makes the row itself: its place, or less than 0."""
        if self.shape is None or (self.watch is not None and self.watch.inserts):
            return _not_now
        if self.generated is None:
            return self._bound(insert_values, self.gate, self.shape.address)
        shape = row_shape(self.stored)
        if shape is None:
            return _not_now
        insert, complete = self._bound(insert_values, self.gate, shape.address), self.generated.row
        insert.memory = *insert.memory, shape  # type: ignore[attr-defined]
        return lambda values: insert(complete(values))

    def _bound(self, kernel: Callable[..., Any], *arguments: Any) -> Callable[..., Any]:
        """A kernel with its first arguments, and the memory that they lead to, whatever definition the heap gets."""
        call = partial(kernel, self._area, self._target, *arguments)
        call.memory = self.view, self._patches  # type: ignore[attr-defined]
        return call

    @operation
    def _insert_slowly(self, values: Sequence[Any]) -> RowId:
        self.share()
        if self.generated is not None:
            values = self.generated.row(values)
        insert = self.insert_row if self.lobs is None else partial(insert_with_lobs, self)
        if self.watch is not None and self.watch.inserts and not self.session.depth:
            with self.session.statement():
                return insert(values)
        return insert(values)

    def _change_at_once(self, kernel: Any, data: bytes, argument: int) -> int:
        """Run a kernel that changes a row, with ``data`` in the buffer, on the fast path.

        Returns less than 0 if nothing was done, since it would have to wait or make room.
        """
        result = self._store.under_guard(self.session.busy, self.try_at_once, kernel, data, len(data), argument)
        if self._store.scans:
            self._store.give_way()
        return result

    def try_at_once(self, kernel: Any, data: bytes, size: int, argument: int) -> int:
        """``_change_at_once``, while the guard is held and the session is busy with this."""
        session = self.session
        if self._queues or not session.plain or session.tables_held.get(self.number) is not self.definition:
            return LOCKED
        self._fields[HELD] = session.call[STAMP]
        self._bytes[:size] = data  # no call before the kernel's: no signal handler runs between the two
        return kernel(self._area, self._target, argument)

    def insert_row(self, values: Sequence[Any]) -> RowId:
        """``insert``, once the table is shared, of values as the row has them."""
        row = self.encode(values)
        place = self._change(insert_row, None, row, len(row))
        if place < 0:
            self._refuse(place, size=len(row))
        if self.watch is not None and self.watch.inserts:
            self.watch.inserted(self.plain_decode(row))
        return RowId.from_place(place)

    def _change(
        self, kernel: Any, row_id: RowId | None, data: bytes, argument: int, nowait: bool = False, noted: bool = False
    ) -> int:
        """Run a kernel that changes a row, with ``data`` in the buffer; waits as ``Session.change`` does."""
        session = self.session
        if noted or not session.notes_changes or not self._is_users:
            self._bytes[: len(data)] = data
            return session.change(kernel, self._space_id, row_id, (self._target, argument), nowait)
        change = partial(self._change, kernel, row_id, data, argument, nowait, True)
        with all_or_nothing(session):
            return change_tracked(self, change, kernel, row_id, self._refuse)

    # ---- serializable transactions

    @property
    def tracked(self) -> Tracked | None:
        """Where reads and changes of the table are noted; None if they are not."""
        return self.session.tracked if self._is_users else None

    @property
    def row_keys(self) -> RowKeys:
        if self._row_keys is None:
            self._row_keys = RowKeys(self.stored, self.indexes)
        return self._row_keys

    def fetched(self, size: int) -> bytes:
        """What a kernel has put into the buffer.  The guard is held."""
        return bytes(self._bytes[:size])

    # ---- single rows

    def fetch(self, row_id: RowId) -> tuple[Any, ...]:
        """The row's values; NoSuchRow if it is deleted or never was."""
        values = self._fetch_at_once(row_id[0] << 16 | row_id[1])
        return self._fetch_slowly(row_id) if values.__class__ is int else values

    def _make_fetch(self) -> Callable[[int], Any]:
        """``fetch`` on the fast path, by a place; a status if that does not apply."""
        if self.shape is None:
            return _not_now
        session, area, target, gate, shape = self.session, self._area, self._target, self.gate, self.shape.address

        def fetch(place: int, _memory: object = self.view) -> Any:
            session.has_read = True
            return fetch_values(area, target, gate, place, shape)

        return fetch

    @operation
    def _fetch_slowly(self, row_id: RowId) -> tuple[Any, ...]:
        try:
            with self._store.guard:
                self._store.require_open()
                self.session.prepare()
                self.look()
                place = row_id[0] << 16 | row_id[1]
                size = fetch_row(self._area, self._target, 0, place)
                row = bytes(self._bytes[:size]) if size > 0 else b""
                note_row_read(self, place)
        finally:
            self.session.finish_read()
        if size < 0:
            self._refuse(size, row_id)
        values = self.plain_decode(row)
        if values.__class__ is not Unfinished:
            return values
        whole = next((one for _, one in self.rows_at([row_id])), None)
        return whole if whole is not None else self._refuse(NOT_FOUND, row_id)

    def update(self, row_id: RowId, values: Sequence[Any] | Mapping[str, Any]) -> None:
        """Give the row new values, all of them in column order or some by column name."""
        place, (update, shapes) = row_id[0] << 16 | row_id[1], self._update_at_once
        shape = shapes.get((*values,)) if values.__class__ is dict else 0
        if shape and update(0, place, shape, (*values.values(),)) >= 0:  # type: ignore[union-attr]
            if self._store.scans:
                self._store.give_way()
        elif self._update_encoded(place, values) < 0:
            self._update_slowly(row_id, values)

    def _update_encoded(self, place: int, values: Sequence[Any] | Mapping[str, Any]) -> int:
        """``update`` by values of any types, without waiting or making room; less than 0: nothing was done."""
        if not self.session.plain or (self.generated is not None and self.generated.concern(values)):
            return NOT_NOW
        if isinstance(values, Mapping):
            self._patches.shape(tuple(values))  # for the next time
        try:
            patch = self.encode_patch(values)
        except DataError:
            if self.lobs is None:
                raise
            return NOT_NOW
        return NOT_NOW if self._watches(patch) else self._change_at_once(update_row, patch, place)

    def changer_as_read(self, names: Sequence[str]) -> Callable[[int, Sequence[Any]], int]:
        """A function that changes the row at a place if everything still is as a finder has just read it.

        It takes new values of some columns, in their order; without names, the row is deleted.  What it returns is a
        status; less than 0: nothing was done.
        """
        shape = self._patches.shape(tuple(names)) if names else 0
        if (names and not shape) or (not names and self._watches(b"")):
            return _not_now
        if not names:
            delete = self._bound(delete_as_read, self.gate)
            return lambda place, _: delete(place)
        update = self._bound(update_values, self.gate, 1)
        return lambda place, values: update(place, shape, values)

    def patch_encoder(self, names: Sequence[str], first: int = 0) -> Callable[[Sequence[Any]], bytes]:
        """A function that encodes patches of some columns' values, which stand behind ``first`` others."""
        return self._patches.encoder(names, first)

    def patch_keeper(self, names: Sequence[str]) -> Callable[[Sequence[Any]], bytes]:
        """``patch_encoder`` for a statement of several rows, within which long values go to pages."""
        encode = self._patches.encoder(names)
        if self.lobs is None:
            return encode

        def keep(values: Sequence[Any]) -> bytes:
            try:
                return encode(values)
            except ValueTooLong:
                return self.encode_patch(kept_values(self, dict(zip(names, values, strict=True))))

        return keep

    # ---- large objects

    def wanting(self, positions: Container[int] | None) -> Heap:
        """The heap for a reader of large objects of these columns only: others are not read.

        Rows have something in their place that is to be passed over.  None stands for all columns.
        """
        if self.lobs is None or positions is None or all(n in positions for n in self.lobs.positions):
            return self
        other = Heap(self._store, self.session, self._current, self._watch_of, self._generated_of)
        other._lobs_wanted = positions
        return other

    def decoder(self, snapshot: Checked) -> Callable[[bytes], tuple[Any, ...]]:
        """A function that decodes rows' bytes, which were read by a snapshot that is held meanwhile."""
        return finished(self.plain_decode, self.finisher(snapshot))

    def finisher(self, snapshot: Checked, wanted: Container[int] | None = None) -> Finish | None:
        """A function that puts large objects into rows that were decoded as Unfinished; None: there are none such."""
        wanted = self._lobs_wanted if wanted is None else wanted
        return None if self.lobs is None else self.lobs.finisher(snapshot.check, wanted)

    def open_lob(self, column: str, row_id: RowId) -> OpenLob:
        """A value of a BLOB or CLOB column, opened for reading; the snapshot is held until it is closed."""
        return LobOpening(self).open(column, row_id)

    # ---- rows

    @operation
    def lock(self, row_id: RowId, nowait: bool = False) -> None:
        """Lock the row against other writers until the transaction ends."""
        self.refuse_if_failed(self.try_lock(row_id, nowait), row_id)

    def try_lock(self, row_id: RowId, nowait: bool = False) -> int:
        self.share()
        place = place_of(row_id[0], row_id[1])
        status = self.session.change(lock_row, self._space_id, row_id, (self._target, place), nowait)
        note_row_read(self, place)
        return status

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """Every row with its row id, in page order, on one snapshot."""
        return Flattened.of(self.pieces())

    @operation
    def pieces(self) -> Iterator[Iterable[tuple[RowId, tuple[Any, ...]]]]:
        """``rows``, those of a page at a time; but large objects are in memory one at a time."""
        with self.session.cursor() as (snapshot, form):
            self.see(snapshot.scn)
            decode, finish, view = self.plain_decode, self.finisher(snapshot), self.view
            for page_id in self.page_ids(snapshot.check).tolist():
                rows = self.encoded_rows_of_page(page_id, form, view)
                snapshot.check()
                yield from in_pieces([(row_id, decode(row)) for row_id, row in rows], finish)

    def encoded_rows(self) -> Iterator[tuple[RowId, bytes]]:
        """``rows``, as their bytes; of a table without large objects."""
        return Flattened.of(self._encoded_pages())

    @operation
    def _encoded_pages(self) -> Iterator[list[tuple[RowId, bytes]]]:
        with self.session.cursor() as (snapshot, form):
            self.see(snapshot.scn)
            view = self.view
            for page_id in self.page_ids(snapshot.check).tolist():
                rows = self.encoded_rows_of_page(page_id, form, view)
                snapshot.check()
                yield rows

    def page_ids(self, check: Callable[[], None]) -> memoryview:
        """The table's pages, for a read of all its rows.

        ``check`` raises if the snapshot was given up: then they may be another table's.
        """
        note_all_read(self)
        with self._store.guard:
            check()
            return self.segment.page_ids()

    def encoded_rows_of_page(
        self, page_id: int, form: memoryview, view: View | None = None
    ) -> list[tuple[RowId, bytes]]:
        """The rows of a page that a snapshot sees; ``view``: of a read that began by it."""
        store = self.segment.store
        obj_id, target, _ = view or self.view
        slots = zeros(PAGE_SIZES[-1] // 2, "H")
        rows = []
        with store.guard:
            store.require_open()
            count = store.call(list_rows, 0, address_of(form), obj_id, page_id, address_of(slots))
            for slot in slots[: max(count, 0)].tolist():
                size = store.call(fetch_row, 0, target, address_of(form), place_of(page_id, slot))
                rows.append((RowId(page_id, slot), bytes(self._bytes[:size])))
        return rows

    def encoded_row(self, row_id: RowId, form: memoryview, view: View | None = None) -> bytes | None:
        """The bytes of the version of a row that a snapshot sees; None if it sees none."""
        store = self.segment.store
        target = (view or self.view).target
        with store.guard:
            store.require_open()
            place = place_of(row_id[0], row_id[1])
            size = store.call(fetch_row, 0, target, address_of(form), place)
            row = bytes(self._bytes[:size]) if size > 0 else None
            note_row_read(self, place)
            return row

    def rows_by(self, index: str, keys: KeyRange) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows of a range of an index's keys, on one snapshot."""
        return self.by(index).walk(keys)

    @operation
    def rows_at(self, row_ids: Sequence[RowId]) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows with some row ids, if they are there, on one snapshot."""
        with self.session.cursor() as (snapshot, form):
            self.see(snapshot.scn)
            decode, view = self.decoder(snapshot), self.view
            for row_id in row_ids:
                row = self.encoded_row(row_id, form, view)
                snapshot.check()
                if row is not None:
                    yield row_id, decode(row)

    @contextmanager
    def statement(self) -> Iterator[Steps]:
        """A statement over many rows, all or nothing."""
        self.share()
        with self.session.statement() as snapshot:
            yield Steps(self, snapshot)

    @property
    def target(self) -> int:
        """The address of the heap's description for kernels."""
        return self._target

    @operation
    def by(self, index: str) -> KeyedRows:
        """The rows by one of the table's indexes."""
        self.session.require_open()
        with self._store.guard:
            self.look()
        keyed = self.by_seen(index)
        self.session.finish_read()
        return keyed

    def by_seen(self, index: str) -> KeyedRows:
        """``by``, without looking at the definition again."""
        if index not in self._by_index:
            known = {definition.name: definition for definition in self.indexes if not definition.building}
            if index not in known:
                raise self._unknown_index(index, list(known.values()))
            self._by_index[index] = KeyedRows(self, known[index])
        return self._by_index[index]

    def _unknown_index(self, name: str, known: list[IndexDefinition]) -> Error:
        """The error for an index that the reader does not see: perhaps it came after the transaction's snapshot."""
        if self.session.held_scn is not None:
            with suppress(Error):  # the table itself may be gone
                if any(index.name == name and not index.building for index in self._current(None).indexes):
                    return SnapshotTooOld(f"index {name} is newer than this transaction's snapshot; start over")
        return no_such_index(self.name, name, known)

    def look(self) -> None:
        """Use the definition that a read of now sees.  The guard is held for that."""
        session = self.session
        if session.tables_seen.get(self.number) is not self.definition:
            self.see(session.reading_scn)
            if session.held_scn is None:
                session.tables_seen[self.number] = self.definition
        if session.held_scn is None:
            self.note_seen()

    def note_seen(self) -> None:
        """Reads go by this definition, as the session knows: kernels may rely on that.  The guard is held."""
        self._fields[SEEN] = self.session.call[STAMP]

    def see(self, scn: int) -> None:
        """Use the definition that a snapshot sees, which is held: no waiting."""
        definition = self._current(scn)
        if definition is not self.definition:
            self._follow(definition)
        self.session.has_read = True
        if self.session.tracked is not None and self._is_users:
            self.session.tracked.seen.add(self.number)

    @operation
    def share(self) -> None:
        """Lock the table against changes of its definition until the transaction ends: before rows are changed."""
        session = self.session
        if session.tables_held.get(self.number) is not self.definition:
            session.share_table(self.number, self.name)
            definition = self._current(None)
            if definition is not self.definition:
                self._follow(definition)
            session.use_table(self.number, definition, self.obj_id, self.segment.entry_page, self._space_id)
        session.tables_seen[self.number] = self.definition
        self._fields[HELD] = self._fields[SEEN] = session.call[STAMP]

    def refuse_if_failed(self, status: int, row_id: RowId) -> None:
        """Raise the exception that a status stands for."""
        if status < 0:
            self._refuse(status, row_id, self.session.refused_size)

    def _refuse(self, status: int, row_id: RowId | None = None, size: int = 0) -> NoReturn:
        if status == ROW_TOO_LARGE:
            raise row_too_large(self.name, size, self.segment.space.page_size)
        if status == DAMAGED:
            self.segment.store.raise_damage()
            raise Corruption(f"table {self.name}: a page is damaged")
        if status in (DUPLICATE, KEY_TOO_LONG, HASHES_CLASH):
            raise self._key_error(status)
        raise NoSuchRow(f"table {self.name} has no row {row_id}: it was deleted, or the row id is wrong")

    def refuse_key(self, number: int) -> NoReturn:
        """A row's key is too long for the table's index of that number."""
        self.session.call[INDEX] = number
        raise self._key_error(KEY_TOO_LONG)

    def _key_error(self, status: int) -> Error:
        """The error for a row whose key an index does not take."""
        index = self.indexes[self.session.call[INDEX]]
        names = ", ".join(self.stored[n].name.removeprefix(HIDDEN) for n in index.key)
        where = f"table {self.name}, index {index.name} ({names})"
        if status == KEY_TOO_LONG:
            return ValueTooLong(f"{where}: {key_limit(index)}")
        if status == HASHES_CLASH:
            clash = "several long keys of the row's versions have the same hash"
            return ValueTooLong(f"{where}: {clash}; commit, and change the row again when no reader needs the old ones")
        require_seen_duplicate(self, index)
        place = self.session.call[BLOCKED]
        row_id = RowId.from_place(place)
        violation = UniqueViolation(f"{where}: row {row_id} has the same key already")
        violation.index, violation.row_id = index.name, row_id
        return violation
