"""The system tables of an open database: definitions as rows, read and changed by a session.

Not here: which definition counts for whom (tables.py), what a change of one takes (changes.py).
"""

from __future__ import annotations

import json
import threading
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any

from gmdb.errors import (
    Corruption,
    InterfaceError,
    LockTimeout,
    NoSuchRow,
    NoSuchStream,
    SchemaError,
    StreamConflict,
)
from gmdb.format.address import SYSTEM_DEVICE, RowId
from gmdb.format.columns import EPOCH, EPOCH_DATE, Column, ColumnType, is_uuid, microseconds_of
from gmdb.format.interval import Interval
from gmdb.format.options import options_text, with_options
from gmdb.format.page import SegmentType
from gmdb.process.late_dataclasses import dataclass, field, replace
from gmdb.storage.documents import parse
from gmdb.storage.store import PageStore
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.definition_documents import require_place
from gmdb.tables.catalog.schema import (
    SYS_TABLES_COLUMNS,
    SYS_TABLES_ENTRY,
    SYS_TABLES_ID,
    SYSTEM_TABLES,
    Constraint,
    SchemaDefinition,
    TableDefinition,
    table_of_row,
)
from gmdb.tables.catalog.view_definitions import VIEWS, ViewDefinition, view_rows, views_of_rows
from gmdb.transaction.session import Session

Values = tuple[Any, ...]
SYS_TABLES = TableDefinition("sys_tables", SYS_TABLES_ID, SYSTEM_DEVICE, SYS_TABLES_ENTRY, SYS_TABLES_COLUMNS)


class SystemTables:
    """The rows of the system tables, for one session."""

    def __init__(self, store: PageStore, session: Session, known: Mapping[str, TableDefinition]) -> None:
        self._store = store
        self._session = session
        self._known = known  # an older database that is open for reading only lacks some
        self._heaps: dict[str, Heap] = {}

    def heap(self, name: str) -> Heap:
        if name not in self._heaps:
            self._heaps[name] = Heap(self._store, self._session, lambda _: self._known[name])
        return self._heaps[name]

    def rows(self, name: str) -> list[tuple[RowId, Values]]:
        return list(self.heap(name).rows()) if name in self._known else []

    # ---- reading definitions

    def definitions(self) -> list[TableDefinition]:
        """All tables."""
        columns, indexes = self._columns(), self._indexes()
        tables = []
        for _, row in self.rows("sys_tables"):
            table = table_of_row(row, tuple(columns.get(row[0], ())))
            tables.append(replace(table, indexes=tuple(indexes.get(row[0], ()))))
        constraints = self._constraints(columns)
        return [replace(table, constraints=tuple(constraints.get(table.obj_id, ()))) for table in tables]

    def _columns(self) -> dict[int, list[Column]]:
        by_table: dict[int, list[tuple[int, Column]]] = {}
        for _, (obj_id, position, name, type_, length, scale, nullable, *more) in self.rows("sys_columns"):
            default, identity, identity_id, options = more
            column = Column(name, ColumnType(type_, length, scale), nullable, default, identity, identity_id or 0)
            by_table.setdefault(obj_id, []).append((position, with_options(column, options)))
        return {
            obj_id: [column for _, column in sorted(pairs, key=lambda p: p[0])] for obj_id, pairs in by_table.items()
        }

    def _indexes(self) -> dict[int, list[IndexDefinition]]:
        by_table: dict[int, list[IndexDefinition]] = {}
        for _, (obj_id, table_id, name, entry_page, unique, positions, kind, options) in self.rows("sys_indexes"):
            index = IndexDefinition(
                name, obj_id, table_id, entry_page, unique, _numbers(positions), using=kind or "btree"
            )
            by_table.setdefault(table_id, []).append(with_options(index, options))
        return by_table

    def _constraints(self, columns: Mapping[int, list[Column]]) -> dict[int, list[Constraint]]:
        by_table: dict[int, list[Constraint]] = {}
        for _, (table_id, name, kind, positions, text, options) in self.rows("sys_constraints"):
            names = tuple(columns[table_id][n].name for n in _numbers(positions))
            by_table.setdefault(table_id, []).append(with_options(Constraint(kind, names, text or "", name), options))
        return by_table

    def views(self) -> list[ViewDefinition]:
        return views_of_rows(values for _, values in self.rows(VIEWS))

    def schemas(self) -> list[SchemaDefinition]:
        """Those that were created."""
        rows = (values for _, values in self.rows("sys_schemas"))
        return [with_options(SchemaDefinition(name, number), options) for number, name, options in rows]

    # ---- changing them

    def enter(self, table: TableDefinition) -> None:
        """List a table and all that belongs to it."""
        self.heap("sys_tables").insert(table_row(table))
        for position in range(len(table.columns)):
            self.enter_column(table, position)
        for index in table.indexes:
            self.enter_index(index)
        for constraint in table.constraints:
            self.enter_constraint(table, constraint)

    def enter_column(self, table: TableDefinition, position: int) -> None:
        self.heap("sys_columns").insert(column_row(table.obj_id, position, table.columns[position]))

    def enter_index(self, index: IndexDefinition) -> None:
        self.heap("sys_indexes").insert(index_row(index))

    def enter_constraint(self, table: TableDefinition, constraint: Constraint) -> None:
        self.heap("sys_constraints").insert(constraint_row(table, constraint))

    def enter_view(self, view: ViewDefinition) -> None:
        for row in view_rows(view):
            self.heap(VIEWS).insert(row)

    def enter_schema(self, schema: SchemaDefinition) -> None:
        self.heap("sys_schemas").insert(schema_row(schema))

    def change_schema(self, schema: SchemaDefinition) -> None:
        self._update("sys_schemas", lambda values: values[0] == schema.number, schema_row(schema))

    def remove_schema(self, number: int) -> None:
        self._delete("sys_schemas", lambda values: values[0] == number)

    def remove_view(self, number: int) -> None:
        self._delete(VIEWS, lambda values: values[0] == number)

    def remove(self, table: TableDefinition) -> None:
        """Take a table, and all that belongs to it, out of the catalog."""
        for name, column in (("sys_tables", 0), ("sys_columns", 0), ("sys_indexes", 1), ("sys_constraints", 0)):
            self._delete(name, lambda values, column=column: values[column] == table.obj_id)  # type: ignore[misc]

    def remove_index(self, index: IndexDefinition) -> None:
        self._delete("sys_indexes", lambda values: values[0] == index.obj_id)

    def remove_constraint(self, table: TableDefinition, name: str) -> None:
        self._delete("sys_constraints", lambda values: values[:2] == (table.obj_id, name))

    def change_table(self, table: TableDefinition) -> None:
        self._update("sys_tables", lambda values: values[0] == table.obj_id, table_row(table))

    def change_column(self, table: TableDefinition, position: int) -> None:
        row = column_row(table.obj_id, position, table.columns[position])
        self._update("sys_columns", lambda values: values[:2] == row[:2], row)

    def change_index(self, index: IndexDefinition) -> None:
        self._update("sys_indexes", lambda values: values[0] == index.obj_id, index_row(index))

    def change_constraint(self, table: TableDefinition, constraint: Constraint, old_name: str = "") -> None:
        """``old_name``: if it had another one."""
        row = constraint_row(table, constraint)
        known = table.obj_id, old_name or constraint.name
        self._update("sys_constraints", lambda values: values[:2] == known, row)

    def _delete(self, name: str, wanted: Callable[[Values], bool]) -> None:
        for row_id, values in self.rows(name):
            if wanted(values):
                self.heap(name).delete(row_id)

    def _update(self, name: str, wanted: Callable[[Values], bool], row: Values) -> None:
        for row_id, values in self.rows(name):
            if wanted(values):
                self.heap(name).update(row_id, row)


# ---- making them, and bringing older ones up to date


def create_system_tables(store: PageStore, session: Session) -> None:
    """Make the system tables of a new database; they list themselves."""
    known = {name: _make(store, session, name) for name in SYSTEM_TABLES}
    if known["sys_tables"].entry_page != SYS_TABLES_ENTRY:
        raise Corruption(f"{store.directory} is new by its control file, but has pages", SYS_TABLES_ENTRY)
    system = SystemTables(store, session, known)
    for table in known.values():
        system.enter(table)
    session.commit()


def open_system_tables(store: PageStore, session: Session) -> dict[str, TableDefinition]:
    """The system tables that exist.  An older database gets what it lacks when it is opened for writing."""
    system = SystemTables(store, session, {"sys_tables": SYS_TABLES})
    entries = {name: entry for _, (_, name, _, entry, *_) in system.rows("sys_tables")}
    if "sys_columns" not in entries:
        raise Corruption("sys_tables does not list sys_columns", SYS_TABLES_ENTRY)
    known = {}
    for name, (obj_id, columns) in SYSTEM_TABLES.items():
        if name in entries:
            require_place(store, name, entries[name], SYSTEM_DEVICE)
            known[name] = TableDefinition(name, obj_id, SYSTEM_DEVICE, entries[name], columns)
    if not store.read_only:
        _bring_up_to_date(store, session, known)
    return known


def _bring_up_to_date(store: PageStore, session: Session, known: dict[str, TableDefinition]) -> None:
    system = SystemTables(store, session, known)
    listed = {(values[0], values[1]) for _, values in system.rows("sys_columns")}
    for table in list(known.values()):
        for position in range(len(table.columns)):
            if (table.obj_id, position) not in listed:
                system.enter_column(table, position)
    for name in SYSTEM_TABLES:
        if name not in known:
            known[name] = _make(store, session, name)
            system.enter(known[name])
    session.commit()


def _make(store: PageStore, session: Session, name: str) -> TableDefinition:
    obj_id, columns = SYSTEM_TABLES[name]
    space = store.spaces[SYSTEM_DEVICE]
    segment = session.create_segment(space, obj_id, name, SegmentType.SYSTEM, pct_free=10)
    return TableDefinition(name, obj_id, SYSTEM_DEVICE, segment.entry_page, columns)


# ---- rows


def table_row(table: TableDefinition) -> Values:
    place = (table.obj_id, table.own_name, table.space_id, table.entry_page)
    return *place, *(table.lobs or (None, None)), *(table.feed or (None, None)), options_text(table)


def column_row(obj_id: int, position: int, column: Column) -> Values:
    type_ = column.type
    shape = (column.name, type_.name, type_.length, type_.scale, column.nullable)
    identity = (column.identity, column.identity_id or None)
    return obj_id, position, *shape, column.default, *identity, options_text(column)


def index_row(index: IndexDefinition) -> Values:
    place = (index.obj_id, index.table_id, index.name, index.entry_page)
    return *place, index.unique, ",".join(map(str, index.positions)), index.using, options_text(index)


def schema_row(schema: SchemaDefinition) -> Values:
    return schema.number, schema.name, options_text(schema)


def constraint_row(table: TableDefinition, constraint: Constraint) -> Values:
    positions = ",".join(str(table.position(name)) for name in constraint.columns)
    return table.obj_id, constraint.name, constraint.kind, positions, constraint.text or None, options_text(constraint)


def _numbers(positions: str) -> tuple[int, ...]:
    return tuple(map(int, positions.split(","))) if positions else ()


# ---- Which batches of streams the database has: each stream's last one, in ``sys_streams``.
#
# Invariants
#  1. A batch's rows and the note that they are there are one transaction's, so that there are both or neither.
#  2. A stream has one row, which a session that takes a batch in locks: two with the same batch take turns.

NAME_MAX = 200  # bytes of a stream's name
TABLE = "sys_streams"


@dataclass(frozen=True)
class StreamBatch:
    """A batch of a stream."""

    stream: str
    query_id: str | None  # of the query that writes the stream, which numbers its batches
    batch_id: int
    rows: int
    in_sequence: bool = False  # every batch of the query comes here, so that none may be missing before it

    def __post_init__(self) -> None:
        if not 1 <= len(self.stream.encode()) <= NAME_MAX:
            raise InterfaceError(f"{self.stream!r} is not a name of a stream: it must have 1 to {NAME_MAX} bytes")


@dataclass(frozen=True)
class StreamRecord:
    """The state of a stream, as its row has it."""

    name: str
    query_id: str | None
    table: str | None
    batch_id: int | None
    row_count: int
    batch_time: datetime | None

    def has(self, batch: StreamBatch) -> bool:
        """Whether a batch is a repetition of the last that was taken in; StreamConflict if that is not known."""
        if None not in (self.query_id, batch.query_id) and self.query_id != batch.query_id:
            state = f"stream {self.name} is query {self.query_id}'s, whose batches up to {self.batch_id} are here"
            why = f"this is batch {batch.batch_id} of query {batch.query_id}, whose checkpoint is another"
            raise StreamConflict(f"{state}; {why}: give its stream another name, or forget the old one")
        if self.batch_id is None or batch.batch_id == self.batch_id:
            return self.batch_id is not None
        state = f"stream {self.name}: batch {batch.batch_id} comes, but the last one here is {self.batch_id}"
        if batch.batch_id < self.batch_id:
            why = "the checkpoint is an older copy, and its batches may have other rows than they had"
            raise StreamConflict(f"{state}; {why}: start with a new checkpoint")
        if batch.in_sequence and batch.batch_id > self.batch_id + 1:
            why = "those between are missing, as if the database was put back to an earlier time"
            raise StreamConflict(f"{state}; {why}: bring their rows, forget the stream, and start again")
        return False

    def with_batch(self, batch: StreamBatch, table: str) -> StreamRecord:
        now, query_id = datetime.now(UTC).replace(tzinfo=None), batch.query_id or self.query_id
        return StreamRecord(self.name, query_id, table, batch.batch_id, self.row_count + batch.rows, now)

    @property
    def values(self) -> tuple[Any, ...]:
        return self.name, self.query_id, self.table, self.batch_id, self.row_count, self.batch_time


class Streams:
    def __init__(self, system: SystemTables, session: Session, lock: threading.Lock) -> None:
        """``session``: used by nothing else while the lock is held."""
        self._system = system
        self._session = session
        self._lock = lock

    def hold(self, own: SystemTables, name: str) -> tuple[RowId, StreamRecord]:
        """A stream, new or known, locked until the transaction of ``own`` has ended."""
        heap = own.heap(TABLE)
        while True:
            row_id = self._place_of(name)
            try:
                heap.lock(row_id)
                return row_id, StreamRecord(*heap.fetch(row_id))
            except NoSuchRow:
                continue  # it was forgotten meanwhile
            except LockTimeout as error:
                raise LockTimeout(f"stream {name}: another session is bringing a batch of it; {error}") from None

    def note(self, own: SystemTables, row_id: RowId, record: StreamRecord) -> None:
        """Write the state of a stream that is held, as part of the transaction of ``own``."""
        own.heap(TABLE).update(row_id, record.values)

    def forget(self, own: SystemTables, name: str) -> None:
        """Forget a stream, once the transaction of ``own`` has committed."""
        for row_id, values in own.rows(TABLE):
            if values[0] == name:
                own.heap(TABLE).delete(row_id)
                return
        known = ", ".join(values[0] for _, values in own.rows(TABLE)) or "none yet"
        raise NoSuchStream(f"there is no stream {name}; the streams are: {known}")

    def listed(self) -> list[tuple[Any, ...]]:
        with self._lock:
            rows = sorted((values for _, values in self._system.rows(TABLE)), key=lambda values: str(values[0]))
            self._session.commit()
            return rows

    def _place_of(self, name: str) -> RowId:
        """Where a stream's row is; a new stream gets one at once, for all sessions."""
        with self._lock:
            try:
                row_id = next((row_id for row_id, values in self._system.rows(TABLE) if values[0] == name), None)
                if row_id is None:
                    row_id = self._system.heap(TABLE).insert(StreamRecord(name, None, None, None, 0, None).values)
                self._session.commit()
                return row_id
            except BaseException:
                if self._session.in_transaction:
                    self._session.rollback()
                raise


# ---- What ANALYZE found out about tables: how many rows there are, how many keys, and how they are spread.
#
# The planner chooses access paths by them.  They are as old as the last ANALYZE; no result depends on them.

BOUNDS = 33  # values of a column that part its rows into equal shares
BOUNDS_BYTES_MAX = 4000
Place = float | str


@dataclass(frozen=True)
class KeyStatistics:
    """Of the values of some columns together; ``bounds``: of a single column, in order."""

    distinct: int
    bounds: tuple[Any, ...] = ()  # numbers or texts

    def share_below(self, value: Any, inclusive: bool) -> float:
        """The share of rows whose value is less than this one, or as large."""
        at: Any = place_of(value)
        if not self.bounds or type(at) is not type(self.bounds[0]):
            return 0.5
        step = bisect_right(self.bounds, at) if inclusive else bisect_left(self.bounds, at)
        if step in (0, len(self.bounds)):
            return float(step > 0)
        low, high = self.bounds[step - 1 : step + 1]
        within = 0.5 if isinstance(at, str) else (at - low) / (high - low)
        return (step - 1 + within) / (len(self.bounds) - 1)


@dataclass(frozen=True)
class TableStatistics:
    rows: int
    keys: Mapping[tuple[int, ...], KeyStatistics] = field(default_factory=dict)  # by the columns' positions

    def rows_with(self, positions: tuple[int, ...]) -> float:
        """How many rows have the same values in some columns, on average."""
        known = self.keys.get(positions)
        return self.rows / max(known.distinct, 1) if known is not None else self.rows / 10


def place_of(value: Any) -> Place | None:
    """Where a value stands among those of its type, as a number or a text."""
    if isinstance(value, datetime):
        return (value.replace(tzinfo=None) - EPOCH).total_seconds()
    if isinstance(value, date):
        return float((value - EPOCH_DATE).days)
    if isinstance(value, int | float | Decimal):
        return float(value)
    if isinstance(value, time | Interval):
        return float(microseconds_of(value) if isinstance(value, time) else value.length())
    if isinstance(value, bytes) or is_uuid(value):
        return value.hex() if isinstance(value, bytes) else str(value.hex)
    return value if isinstance(value, str) else None


def bounds_of(sample: Iterable[Any]) -> tuple[Place, ...]:
    """Values that part a sample into equal shares; none if they would not fit into the catalog."""
    places: list[Any] = sorted(place for value in sample if (place := place_of(value)) is not None)
    if not places:
        return ()
    steps = (BOUNDS - 1) or 1
    bounds = tuple(places[n * (len(places) - 1) // steps] for n in range(BOUNDS))
    return bounds if len(json.dumps(bounds).encode()) <= BOUNDS_BYTES_MAX else ()


class Statistics:
    """The statistics of all tables, by their numbers; kept in ``sys_statistics``, outside of users' transactions."""

    def __init__(self, system: SystemTables, session: Session, lock: threading.Lock) -> None:
        """``session``: used by nothing else while the lock is held."""
        self._system = system
        self._session = session
        self._lock = lock
        self._tables = _read(system)
        self.version = 0  # changes with them
        session.commit()

    def of(self, number: int) -> TableStatistics | None:
        return self._tables.get(number)

    def keep(self, number: int, statistics: TableStatistics) -> None:
        """Replace what is known of a table."""
        with self._lock:
            self._delete_rows({number})
            heap = self._system.heap("sys_statistics")
            for row in rows_of(number, statistics):
                heap.insert(row)
            self._session.commit()
            self._tables[number] = statistics
            self.version += 1

    def forget_all_but(self, used: Iterable[int]) -> None:
        """Remove what was known of tables that are gone."""
        gone = set(self._tables) - set(used)
        if gone:
            self._delete_rows(gone)
            self._session.commit()
            self._tables = {number: known for number, known in self._tables.items() if number not in gone}

    def forget(self, number: int) -> None:
        """Remove what was known of a table, which is not true of it any more."""
        with self._lock:
            if number in self._tables:
                self._delete_rows({number})
                self._session.commit()
                self._tables = {other: known for other, known in self._tables.items() if other != number}
                self.version += 1

    def listed(self) -> list[tuple[Any, ...]]:
        return [row for number, known in sorted(self._tables.items()) for row in rows_of(number, known)]

    def _delete_rows(self, numbers: set[int]) -> None:
        heap = self._system.heap("sys_statistics")
        for row_id, values in self._system.rows("sys_statistics"):
            if values[0] in numbers:
                heap.delete(row_id)


def rows_of(number: int, statistics: TableStatistics) -> list[tuple[Any, ...]]:
    """Statistics as rows of ``sys_statistics``."""
    rows: list[tuple[Any, ...]] = [(number, "", statistics.rows, statistics.rows, None)]
    for positions, key in statistics.keys.items():
        bounds = json.dumps(key.bounds) if key.bounds else None
        rows.append((number, ",".join(map(str, positions)), statistics.rows, key.distinct, bounds))
    return rows


def _read(system: SystemTables) -> dict[int, TableStatistics]:
    totals: dict[int, int] = {}
    keys: dict[int, dict[tuple[int, ...], KeyStatistics]] = {}
    for _, (number, positions, rows, distinct, bounds) in system.rows("sys_statistics"):
        totals[number] = rows
        if positions:
            of_table = keys.setdefault(number, {})
            of_table[_column_numbers(positions)] = KeyStatistics(distinct, _bounds(bounds) if bounds else ())
    return {number: TableStatistics(rows, keys.get(number, {})) for number, rows in totals.items()}


def _bounds(text: str) -> tuple[Place, ...]:
    """Bounds as the catalog has them: numbers only, or texts only."""
    bounds = parse(text)
    if not isinstance(bounds, list):
        raise SchemaError(f"the bounds of a key are not a list: {text[:40]}")
    for kinds in ((int, float), (str,)):
        if all(type(bound) in kinds for bound in bounds):
            return tuple(bounds)
    raise SchemaError(f"the bounds of a key have several types: {text[:40]}")


def _column_numbers(positions: str) -> tuple[int, ...]:
    return tuple(map(int, positions.split(",")))


def key_columns(indexes: Iterable[Sequence[int]]) -> list[tuple[int, ...]]:
    """The first columns of indexes, alone and together: those for which statistics are useful."""
    columns = {tuple(positions[: n + 1]) for positions in indexes for n in range(len(positions))}
    return sorted(columns)
