"""Take the staging files of a bulk load into a table, as one statement.

Invariants
 1. Every file is known to be whole before the first page of any is taken in.
 2. A table that is overwritten is not locked while files are taken in: they go to pages of its remade twin, which
    is put in its place at the end.  No writer waits long behind a load that waits for the table.
 3. Memory is bounded by a buffer of some pages, or by a batch, and what indexes need.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any, NoReturn

from gmdb.errors import Corruption, DataError, LockTimeout, NoSuchRow, SchemaMismatch, TableNotEmpty, UniqueViolation
from gmdb.format.address import RowId
from gmdb.format.columns import Column, has_cells
from gmdb.format.lob import TEXT_MORE_MARK
from gmdb.format.staging import StagedKind
from gmdb.kernel.change.bulk_pages import adopt_pages
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import compute as pc
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.loads import staged_path
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import name_key
from gmdb.tables.arrow.append import BUFFER_SIZE, PagePlacer, append
from gmdb.tables.arrow.arrow_types import arrow_type, python_values
from gmdb.tables.arrow.load_kinds import REFUSE, REPLACE, Apply, Operation, key_index, require_key
from gmdb.tables.arrow.staging import StagedFile, definition_digest
from gmdb.tables.catalog.changes import DefinitionChanges
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.system import StreamBatch
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.session import Session

# ---- Changes of rows by their keys, out of staging files: which of them count, of those that are about the same key.
#
# A staging file of changes has the table's columns, as far as tasks could fill them; then, if rows say what is to be
# done, an operation; then columns that say which of several rows with the same key is the last.
#
# Invariants
#  1. A row's last change alone counts, in the order that the changes say, whatever files and batches they came in.
#  2. Memory holds keys and order of all changes, but their other columns a batch at a time.


class KeyedChanges:
    """The changes of some staging files, each with a number, and which of them count."""

    def __init__(self, table: TableDefinition, apply: Apply, files: Sequence[StagedFile]) -> None:
        self._table, self._apply, self._files = table, apply, files
        self.key = require_key(table)
        self._key_names = [table.columns[n].name for n in self.key]

    # ---- which of them count

    @cached_property
    def _all(self) -> pa.Table:
        """The key, the operation and the order of all of them."""
        parts = [self._essence(batch) for file in self._files for batch in file.batches()]
        return pa.concat_tables(parts) if parts else pa.table({})

    def _essence(self, batch: pa.RecordBatch) -> pa.Table:
        apply = self._apply
        extra = batch.num_columns - apply.order_count - int(apply.has_operations)
        columns = {
            f"k{n}": _comparable(self._table.columns[p], batch.column(self._table.columns[p].name))
            for n, p in enumerate(self.key)
        }
        if apply.has_operations:
            columns["operation"] = batch.column(extra)
        for n in range(apply.order_count):
            columns[f"o{n}"] = batch.column(batch.num_columns - apply.order_count + n)
        return pa.table(columns)

    @cached_property
    def fates(self) -> np.ndarray:
        """Of each change, what is to be done: PUT, DELETE, or 0 if it does not count."""
        every = self._all
        fates = np.zeros(len(every), np.int8)
        if not len(every):
            return fates
        counted = self._after_truncating()
        last = self._last_of_keys(every.filter(pa.array(counted)))
        numbers = np.flatnonzero(counted)[last]
        fates[numbers] = self._operations[numbers]
        fates[fates == Operation.SNAPSHOT] = Operation.PUT
        return fates

    @cached_property
    def _operations(self) -> np.ndarray:
        if not self._apply.has_operations:
            return np.full(len(self._all), Operation.PUT, np.int8)
        return self._all.column("operation").to_numpy() if len(self._all) else np.zeros(0, np.int8)

    @property
    def truncates(self) -> bool:
        return bool((self._operations == Operation.TRUNCATE).any())

    @property
    def has_snapshot(self) -> bool:
        return bool((self._operations == Operation.SNAPSHOT).any())

    def _after_truncating(self) -> np.ndarray:
        """Which changes come after the last time that all rows went."""
        counted = np.ones(len(self._all), bool)
        if self.truncates:
            major, minor = (self._all.column(name).to_numpy() for name in ("o0", "o1"))
            gone = np.flatnonzero(self._operations == Operation.TRUNCATE)
            last = gone[np.lexsort((minor[gone], major[gone]))[-1]]
            counted = (major > major[last]) | ((major == major[last]) & (minor > minor[last]))
        return counted

    def _last_of_keys(self, changes: pa.Table) -> np.ndarray:
        """The place of the last change of each key; an error if that is not the only last one."""
        keys = [name for name in changes.column_names if name[0] == "k"]
        orders = [name for name in changes.column_names if name[:2] in ("o0", "o1")]
        places = np.arange(len(changes))
        if orders:
            places = pc.sort_indices(_sortable(changes, orders), sort_keys=_ascending(orders)).to_numpy()
            changes = changes.take(pa.array(places))
        changes = changes.select([*keys, *orders]).append_column("n", pa.array(np.arange(len(changes))))
        last = changes.group_by(keys).aggregate([("n", "max")]).column("n_max").to_numpy()
        if len(last) < len(changes):
            same = changes.group_by([*keys, *orders]).aggregate([("n", "max"), ("n", "count")])
            doubtful = same.filter(pc.greater(same.column("n_count"), 1)).column("n_max").to_numpy()
            doubtful = doubtful[np.isin(doubtful, last)]
            if len(doubtful):
                self._refuse(changes.slice(int(doubtful[0]), 1).select(keys).to_pylist()[0])
        return places[last]

    def _refuse(self, key: dict[str, object]) -> NoReturn:
        values = ", ".join(str(value) for value in key.values())
        where = f"table {self._table.name}, key ({', '.join(self._key_names)}): {values}"
        if self._apply.has_operations:
            raise Corruption(f"{where}: two changes have the same _scn and _sequence; are they of several databases?")
        if self._apply.order_count:
            raise UniqueViolation(f"{where}: it comes twice in the batch, with the same value of the column of orderBy")
        advice = 'leave one of them, or say which comes last: .option("orderBy", "...")'
        raise UniqueViolation(f"{where}: it comes twice in the batch; {advice}")

    # ---- their rows

    def batches(self, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """The numbers and rows of some changes, which a mask chooses; a batch at a time, in the order of keys."""
        done = 0
        for file in self._files:
            for batch in file.batches():
                numbers = np.flatnonzero(chosen[done : done + len(batch)])
                done += len(batch)
                if len(numbers):
                    rows = self._rows(batch).take(pa.array(numbers))
                    order = self._in_order(rows)
                    yield done - len(batch) + numbers[order.to_numpy()], rows.take(order)

    def _in_order(self, rows: pa.RecordBatch) -> pa.Array:
        """The places of rows in the order of their keys."""
        columns = [self._table.column(name) for name in self._key_names]
        keys = pa.record_batch([_comparable(one, rows.column(one.name)) for one in columns], names=self._key_names)
        return pc.sort_indices(keys, sort_keys=[(name, "ascending") for name in self._key_names])

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns of a batch."""
        extra = self._apply.order_count + int(self._apply.has_operations)
        return batch.select(range(batch.num_columns - extra))

    def keys(self, rows: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
        return zip(*(python_values(rows.column(name)) for name in self._key_names), strict=True)


def _sortable(changes: pa.Table, orders: Sequence[str]) -> pa.Table:
    """With a column before each of the order that lets NULL come before all values."""
    for name in orders:
        changes = changes.append_column(f"has {name}", pc.cast(pc.is_valid(changes.column(name)), pa.int8()))
    return changes


def _ascending(orders: Sequence[str]) -> list[tuple[str, str]]:
    return [(key, "ascending") for name in orders for key in (f"has {name}", name)]


def _comparable(column: Column, values: pa.Array) -> pa.Array:
    """Key values that are the same if, and only if, the index takes them for the same."""
    if column.type.name == "CHAR":
        return pc.utf8_rtrim(values, characters=" ")
    if column.type.name == "BINARY":
        return pa.array([value and value.rstrip(b"\0") for value in values.to_pylist()], pa.binary())
    if column.type.name in ("DOUBLE", "REAL"):
        return pc.add(values, pa.scalar(0.0, values.type))  # of which there are two zeros
    if column.type.name == "UUID":
        return values.storage
    return values


# ---- Put the changes of staging files into a table by its primary key: update rows that are there, add others,
# delete.
#
# Invariants
#  1. All of it happens in the session's transaction, or nothing.
#  2. A row that is there is updated where it is, unless a unique index stands in the way of the others' new values:
#     then all rows that change go first, and come back as they are to be.
#  3. A session that changes a row meanwhile is waited for; this load's change of it comes after that.

ATTEMPTS = 5  # if others keep adding rows with the same keys
CHECKED_EVERY = 1024  # rows between two checks for an interrupt


def with_numbers(catalog: Catalog, session: Session, table: TableDefinition, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of new rows, with numbers in columns for which they were left to the owner."""
    for column in table.columns:
        if column.is_numbered and column.name not in batch.schema.names:
            numbers = np.array(catalog.next_numbers(column, max(len(batch), 1), session)[: len(batch)], np.int64)
            batch = batch.append_column(column.name, pa.array(numbers).cast(arrow_type(column.type)))
    return batch


def apply_changes(
    catalog: Catalog, session: Session, name: str, files: Sequence[StagedFile], apply: Apply, is_first: bool
) -> int:
    """Apply the changes; returns their number.  ``is_first``: rows that exist already are not from them."""
    applying = _Applying(catalog, session, name, files, apply)
    if is_first:
        applying.settle_existing()
    applying.run()
    return len(applying.changes.fates)


@contextmanager
def all_or_nothing(catalog: Catalog, session: Session) -> Iterator[None]:
    """Several statements, all or nothing, whose foreign keys are checked at the end."""
    is_own = session.autocommit
    if is_own:
        session.begin()
    checks = catalog.foreign_key_checks(session)
    mark = session.mark()
    session.begin_work()
    try:
        with checks.held():
            yield
        with session.statement():
            pass  # at whose end they are made
        if is_own:
            session.commit()
    except BaseException:
        if is_own and session.in_transaction:
            session.rollback()
        elif not is_own:
            session.take_back_to(mark)
        raise
    finally:
        session.end_work()


class _Applying:
    def __init__(
        self, catalog: Catalog, session: Session, name: str, files: Sequence[StagedFile], apply: Apply
    ) -> None:
        self._catalog, self._session, self._apply = catalog, session, apply
        self._heap = catalog.heap(name, session)
        self._heap.share()
        self._table = catalog.table(name, session)
        self.changes = KeyedChanges(self._table, apply, files)
        self._by_key = self._heap.by(key_index(self._table))
        key = {self._table.columns[n].name for n in self.changes.key}
        self._updated = [column.name for column in self._table.columns if column.name in set(apply.given) - key]
        self._empties = self.changes.truncates

    def settle_existing(self) -> None:
        """Rows that existed before: refuse a snapshot that does not know them, or let it replace them."""
        if self._apply.on_existing == REPLACE:
            self._empties = self._empties or self.changes.has_snapshot
        elif self._apply.on_existing == REFUSE and self.changes.has_snapshot and not self._is_empty():
            advice = '"upsert" keeps them, and changes those whose keys come; "replace" takes them away'
            message = f"table {self._table.name} has rows, but the changes begin with a snapshot of all rows"
            raise TableNotEmpty(f'{message}; .option("onExisting", ...) says what becomes of the others: {advice}')

    def _is_empty(self) -> bool:
        return next(self._heap.wanting(()).rows(), None) is None

    def run(self) -> None:
        """Put them in.  If another session adds rows with the same keys meanwhile, look again."""
        for left in reversed(range(ATTEMPTS)):
            mark = self._session.mark()
            try:
                self._run()
                return
            except UniqueViolation as violation:
                self._session.take_back_to(mark)
                if violation.index != self._by_key.index.name:
                    break
                if not left:
                    raise
        self._run_anew()

    # ---- where rows are

    def _run(self) -> None:
        missing = self.changes.fates == Operation.PUT
        if self._empties:
            self._truncate()
        elif not self._is_empty():
            self._delete(self.changes.fates == Operation.DELETE)
            missing = self._update(missing)
        table, catalog, session = self._table, self._catalog, self._session
        new = (with_numbers(catalog, session, table, rows) for _, rows in self.changes.batches(missing))
        append(self._heap, new)

    def _truncate(self) -> None:
        with self._session.defining():
            DefinitionChanges(self._catalog, self._session).truncate_tables([self._table.name])
        self._heap.share()

    def _delete(self, chosen: np.ndarray) -> None:
        for _, rows in self.changes.batches(chosen):
            for key in self.changes.keys(rows):
                self._delete_row(key)

    def _delete_row(self, key: Sequence[Any]) -> None:
        for row_id, _ in self._held(key):
            self._heap.delete(row_id)

    def _held(self, key: Sequence[Any]) -> list[tuple[RowId, tuple[Any, ...]]]:
        """The row of a key, if it exists, locked."""
        while True:
            rows = self._by_key.find(key)
            if not rows:
                return []
            try:
                self._heap.lock(rows[0][0])
            except NoSuchRow:
                continue
            locked = self._by_key.find(key)
            if [row_id for row_id, _ in locked] == [rows[0][0]]:
                return locked

    def _update(self, chosen: np.ndarray) -> np.ndarray:
        """Update the rows that exist; returns which do not."""
        missing = np.zeros(len(chosen), bool)
        for numbers, rows in self.changes.batches(chosen):
            columns = [python_values(rows.column(name)) for name in self._updated]
            values = zip(*columns, strict=True) if columns else iter([()] * len(rows))
            was_there = self._update_batch(zip(self.changes.keys(rows), values, strict=True))
            missing[numbers] = ~np.fromiter(was_there, bool, len(rows))
        return missing

    def _update_batch(self, changes: Iterator[tuple[Sequence[Any], Sequence[Any]]]) -> Iterator[bool]:
        """Whether each of some keys was there; if so, its row is updated."""
        names, heap, change = self._updated, self._heap, self._by_key.change_at_once
        encode = heap.patch_encoder(names) if names else None
        is_computed = heap.generated is not None and heap.generated.concern(dict.fromkeys(names))
        for n, (key, values) in enumerate(changes):
            if n % CHECKED_EVERY == 0:
                self._session.check_interrupted()
            if encode is None:
                yield bool(self._by_key.find(key))
                continue
            if is_computed:
                yield self._update_row(key, dict(zip(names, values, strict=True)))
                continue
            done = -1
            try:
                patch = encode(values)
            except DataError as error:
                if heap.lobs is None:
                    raise type(error)(f"table {heap.name}, key {', '.join(map(str, key))}: {error}") from None
            else:
                done = change(key, lambda _, patch=patch: patch)  # type: ignore[misc]
            yield bool(done) if done >= 0 else self._update_row(key, dict(zip(names, values, strict=True)))

    def _update_row(self, key: Sequence[Any], values: dict[str, Any]) -> bool:
        """Update the row of a key, waiting and making room if necessary."""
        for row_id, _ in self._held(key):
            self._heap.update(row_id, values)
            return True
        return False

    # ---- all rows that change go, and come back

    def _run_anew(self) -> None:
        """Two rows may exchange their values of a unique index: each would stand in the other's way."""
        if self._empties:
            self._truncate()
        self._delete(self.changes.fates == Operation.DELETE)
        new_rows: list[list[Any]] = []
        for _, rows in self.changes.batches(self.changes.fates == Operation.PUT):
            new_rows += self._taken_away(rows)
        for row in new_rows:
            self._insert(row)

    def _taken_away(self, rows: pa.RecordBatch) -> Iterator[list[Any]]:
        """The new rows; the old ones are deleted by then."""
        columns = self._table.columns
        new_values = {name: python_values(rows.column(name)) for name in rows.schema.names}
        for n, key in enumerate(self.changes.keys(rows)):
            held = self._held(key)
            for row_id, _ in held:
                self._heap.delete(row_id)
            if held:
                old = held[0][1]
                given = self._apply.given
                kept = [None if c.generated is not None else value for c, value in zip(columns, old, strict=True)]
                yield [new_values[c.name][n] if c.name in given else kept[p] for p, c in enumerate(columns)]
            else:
                numbered = with_numbers(self._catalog, self._session, self._table, rows.slice(n, 1))
                known = numbered.to_pylist()[0]
                yield [known.get(column.name) for column in columns]

    def _insert(self, row: Sequence[Any]) -> None:
        try:
            self._heap.insert(row)
        except UniqueViolation as violation:
            raise name_key(violation, self._table.index(violation.index), row) from None


# ---- Take the staging files of a bulk load into a table, as one statement.

MOMENT = 0.1  # seconds


@dataclass(frozen=True)
class NewTable:
    """A table that a load makes: its columns and where it lies."""

    columns: tuple[Column, ...]
    tablespace: str
    pct_free: int


@dataclass(frozen=True)
class Load:
    """A load to be taken in: its finished staging files, in the order of their rows."""

    table: str
    load_id: str
    files: tuple[str, ...]
    overwrite: bool = False  # the table has these rows and no others
    create: NewTable | None = None
    apply: Apply | None = None  # rows are put in by the primary key, instead of appended


def take_batch(catalog: Catalog, session: Session, load: Load, batch: StreamBatch) -> int | None:
    """Take a batch of a stream in, in a transaction of its own; None if it was there already."""
    catalog.store.require_writable()
    session.begin()
    try:
        own = catalog.system(session)
        row_id, record = catalog.streams.hold(own, batch.stream)
        rows = None
        if not record.has(batch):
            rows = attach(catalog, session, load, is_first=record.row_count == 0)
            catalog.streams.note(own, row_id, record.with_batch(batch, load.table))
        session.commit()
        return rows
    except BaseException:
        if session.in_transaction and not session.closed:
            session.rollback()
        raise


def attach(catalog: Catalog, session: Session, load: Load, is_first: bool = True) -> int:
    """Take a load in, all or nothing; returns how many rows.

    ``is_first``: rows that are there come from elsewhere, and not from an earlier batch of the same stream.
    """
    session.require_open()
    catalog.store.require_writable()
    paths = [staged_path(catalog.store.directory, load.load_id, name) for name in load.files]
    if load.apply is not None:
        with all_or_nothing(catalog, session):
            return _apply(catalog, session, load.table, paths, load.apply, is_first)
    with session.statement():
        if load.create is not None:
            new = load.create
            with session.defining():
                changes = DefinitionChanges(catalog, session)
                changes.create_table(load.table, new.columns, (), new.tablespace, new.pct_free)
        elif load.overwrite:
            return _Attaching(catalog, session).overwrite(load.table, paths)
        return _Attaching(catalog, session).append(load.table, paths)


def _apply(catalog: Catalog, session: Session, name: str, paths: Sequence[Path], apply: Apply, is_first: bool) -> int:
    """Take changes of rows in, by their keys."""
    table = catalog.user_table(name, session)
    catalog.heap(table.name, session).share()
    table = catalog.current(table, session)
    require_key(table)
    buffer, digest = np.zeros(BUFFER_SIZE, np.uint8), apply.digest(table)
    with ExitStack() as opened:
        files = [StagedFile(path, digest) for path in paths]
        for file in files:
            opened.callback(file.close)
        for file in files:
            session.check_interrupted()
            if not file.fits:
                raise _made_for_another(table)
            file.check(buffer)
        return apply_changes(catalog, session, table.name, files, apply, is_first)


def _made_for_another(table: TableDefinition) -> SchemaMismatch:
    what = "its columns, checks or tablespace are not those that the rows were made for"
    return SchemaMismatch(f"table {table.name}: {what}; nothing was loaded, load again")


class _Attaching:
    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog, self._session = catalog, session
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)

    def append(self, name: str, paths: Sequence[Path]) -> int:
        """Add the rows to those of the table."""
        table = self._catalog.user_table(name, self._session)
        heap = self._catalog.heap(table.name, self._session)
        heap.share()  # so that its definition stays as it is
        return self._take_in(self._catalog.current(table, self._session), heap, paths)

    def overwrite(self, name: str, paths: Sequence[Path]) -> int:
        """Replace the table's rows."""
        with self._session.defining():
            remade = DefinitionChanges(self._catalog, self._session).remake(name)
        heap = Heap(self._catalog.store, self._session, lambda _: remade, lambda _: None, self._catalog.generated_of)
        heap.share()
        rows = self._take_in(remade, heap, paths)
        self._put_in_place(name, remade)
        return rows

    def _put_in_place(self, name: str, remade: TableDefinition) -> None:
        """Take the table alone and change it, once no session is changing it.

        A writer that comes while a session waits for the table alone queues behind that session.  So the load waits
        for a moment only, again and again, and writers go on in between.
        """
        session, patience = self._session, self._session.lock_timeout
        deadline = time.monotonic() + patience
        while True:
            session.lock_timeout = min(patience, MOMENT)
            try:
                with session.defining():
                    DefinitionChanges(self._catalog, session).put_in_place(name, remade)
                return
            except LockTimeout:
                if time.monotonic() >= deadline:
                    raise LockTimeout(
                        f"table {name} was held by other transactions, which change its rows, for over {patience:g} s "
                        "(lock_timeout); nothing was loaded, try again"
                    ) from None
            finally:
                session.lock_timeout = patience
            time.sleep(min(MOMENT, max(deadline - time.monotonic(), 0)))

    def _take_in(self, table: TableDefinition, heap: Heap, paths: Sequence[Path]) -> int:
        definition = definition_digest(table.columns, table.constraints)
        with ExitStack() as opened:
            files = []
            for path in paths:
                self._session.check_interrupted()
                file = StagedFile(path, definition)
                opened.callback(file.close)
                self._require_fit(table, heap, file)
                file.check(self._buffer)
                files.append(file)
            paged = [file for file in files if file.seal["kind"] == StagedKind.PAGES]
            batched = [file for file in files if file.seal["kind"] == StagedKind.ARROW]
            rows = self._take_pages(heap, paged) if paged else 0
            for file in batched:
                numbered = (with_numbers(self._catalog, self._session, table, batch) for batch in file.batches())
                rows += append(heap, numbered)
            return rows

    def _require_fit(self, table: TableDefinition, heap: Heap, file: StagedFile) -> None:
        page_size = file.seal["page_size"]
        is_paged = file.seal["kind"] == StagedKind.PAGES
        if not file.fits or (is_paged and (page_size != heap.segment.space.page_size or has_cells(heap.columns))):
            raise _made_for_another(table)

    def _take_pages(self, heap: Heap, files: Sequence[StagedFile]) -> int:
        """Splice the pages of some files in behind the table's own."""
        buffer, rows = self._buffer, 0
        with self._session.statement():
            placer = PagePlacer(heap)
            placer.notes_keys = heap.watch is not None
            for file in files:
                done = 0
                for count in file.pages(buffer):
                    place = (buffer.ctypes.data, placer.page_size, count, placer.template.ctypes.data)
                    if heap.lobs is not None and TEXT_MORE_MARK.to_bytes(8, "little") in buffer.tobytes():
                        raise file.damage("it has a value that looks like the place of one")
                    adopted = adopt_pages(*place, len(heap.stored))
                    if adopted < 0:
                        raise file.damage(f"its page {done - adopted - 1} is unsound")
                    placer.place(buffer, count)
                    done += count
                    rows += adopted
                placer.end_run()
            placer.finish()
        return rows
