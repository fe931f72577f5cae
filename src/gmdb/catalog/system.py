"""The system tables of an open database: definitions as rows, read and changed by a session.

Not here: which definition counts for whom (tables.py), what a change of one takes (changes.py).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from gmdb.access.heap import Heap
from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.schema import (
    SYS_TABLES_COLUMNS,
    SYS_TABLES_ENTRY,
    SYS_TABLES_ID,
    SYSTEM_TABLES,
    Constraint,
    TableDefinition,
    feed_of,
    lob_segment,
)
from gmdb.catalog.sense import require_place
from gmdb.errors import Corruption
from gmdb.format.address import SYSTEM_DEVICE, RowId
from gmdb.format.columns import Column, ColumnType
from gmdb.format.page import SegmentType
from gmdb.storage.store import PageStore
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
        found = []
        for _, (obj_id, name, space_id, entry_page, *more) in self.rows("sys_tables"):
            of_table = tuple(columns.get(obj_id, ())), tuple(indexes.get(obj_id, ()))
            made = TableDefinition(name, obj_id, space_id, entry_page, *of_table, lobs=lob_segment(*more[:2]))
            found.append(replace(made, feed=feed_of(*more[2:])))
        constraints = self._constraints(columns)
        return [replace(table, constraints=tuple(constraints.get(table.obj_id, ()))) for table in found]

    def _columns(self) -> dict[int, list[Column]]:
        found: dict[int, list[tuple[int, Column]]] = {}
        for _, (obj_id, position, name, type_, length, scale, nullable, *more) in self.rows("sys_columns"):
            default, identity, identity_id = more
            column = Column(name, ColumnType(type_, length, scale), nullable, default, identity, identity_id or 0)
            found.setdefault(obj_id, []).append((position, column))
        return {obj_id: [column for _, column in sorted(pairs, key=lambda p: p[0])] for obj_id, pairs in found.items()}

    def _indexes(self) -> dict[int, list[IndexDefinition]]:
        found: dict[int, list[IndexDefinition]] = {}
        for _, (obj_id, table_id, name, entry_page, unique, positions, kind) in self.rows("sys_indexes"):
            index = IndexDefinition(
                name, obj_id, table_id, entry_page, unique, _numbers(positions), using=kind or "btree"
            )
            found.setdefault(table_id, []).append(index)
        return found

    def _constraints(self, columns: Mapping[int, list[Column]]) -> dict[int, list[Constraint]]:
        found: dict[int, list[Constraint]] = {}
        for _, (table_id, name, kind, positions, text) in self.rows("sys_constraints"):
            names = tuple(columns[table_id][n].name for n in _numbers(positions))
            found.setdefault(table_id, []).append(Constraint(kind, names, text or "", name))
        return found

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

    def strike(self, table: TableDefinition) -> None:
        """Take a table, and all that belongs to it, out of the catalog."""
        for name, column in (("sys_tables", 0), ("sys_columns", 0), ("sys_indexes", 1), ("sys_constraints", 0)):
            self._delete(name, lambda values, column=column: values[column] == table.obj_id)  # type: ignore[misc]

    def strike_index(self, index: IndexDefinition) -> None:
        self._delete("sys_indexes", lambda values: values[0] == index.obj_id)

    def strike_constraint(self, table: TableDefinition, name: str) -> None:
        self._delete("sys_constraints", lambda values: values[:2] == (table.obj_id, name))

    def change_table(self, table: TableDefinition) -> None:
        self._update("sys_tables", lambda values: values[0] == table.obj_id, table_row(table))

    def change_column(self, table: TableDefinition, position: int) -> None:
        row = column_row(table.obj_id, position, table.columns[position])
        self._update("sys_columns", lambda values: values[:2] == row[:2], row)

    def change_constraint(self, table: TableDefinition, constraint: Constraint) -> None:
        row = constraint_row(table, constraint)
        self._update("sys_constraints", lambda values: values[:2] == row[:2], row)

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
        raise Corruption(f"{store.directory} says that it is new, but has pages", SYS_TABLES_ENTRY)
    system = SystemTables(store, session, known)
    for table in known.values():
        system.enter(table)
    session.commit()


def open_system_tables(store: PageStore, session: Session) -> dict[str, TableDefinition]:
    """What system tables there are.  Opened for writing, an older database gets those and the columns that it lacks."""
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
    place = (table.obj_id, table.name, table.space_id, table.entry_page)
    return *place, *(table.lobs or (None, None)), *(table.feed or (None, None))


def column_row(obj_id: int, position: int, column: Column) -> Values:
    type_ = column.type
    shape = (column.name, type_.name, type_.length, type_.scale, column.nullable)
    return obj_id, position, *shape, column.default, column.identity, column.identity_id or None


def index_row(index: IndexDefinition) -> Values:
    place = (index.obj_id, index.table_id, index.name, index.entry_page)
    return *place, index.unique, ",".join(map(str, index.positions)), index.using


def constraint_row(table: TableDefinition, constraint: Constraint) -> Values:
    positions = ",".join(str(table.position(name)) for name in constraint.columns)
    return table.obj_id, constraint.name, constraint.kind, positions, constraint.text or None


def _numbers(positions: str) -> tuple[int, ...]:
    return tuple(map(int, positions.split(","))) if positions else ()
