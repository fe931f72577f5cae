"""The catalog of an open database: its tables, kept in the system tables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from gmdb.access.heap import Heap
from gmdb.access.index_entries import INDEX_KINDS
from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.building import IndexBuild
from gmdb.catalog.schema import (
    FIRST_USER_ID,
    SYS_COLUMNS_COLUMNS,
    SYS_COLUMNS_ID,
    SYS_INDEXES_COLUMNS,
    SYS_INDEXES_ID,
    SYS_TABLES_COLUMNS,
    SYS_TABLES_ENTRY,
    SYS_TABLES_ID,
    TableDefinition,
)
from gmdb.errors import Corruption, NoSuchIndex, NoSuchTable, SchemaError, TableExists
from gmdb.format.address import SYSTEM_DEVICE, RowId, device_of, page_name
from gmdb.format.columns import Column, ColumnType
from gmdb.format.page import SegmentType
from gmdb.kernel.indexing import INDEXES_MAX
from gmdb.storage.segment import Segment
from gmdb.storage.store import PageStore
from gmdb.storage.tablespace import Tablespace
from gmdb.transaction.session import Session


class Catalog:
    """Table definitions, in memory as they are in the system tables."""

    def __init__(self, store: PageStore, session: Session) -> None:
        self._store = store
        self._session = session
        system = store.spaces[SYSTEM_DEVICE]
        tables_segment = Segment(store, system, SYS_TABLES_ENTRY)
        self._tables = Heap("sys_tables", SYS_TABLES_ID, tables_segment, SYS_TABLES_COLUMNS, session)
        rows = {name: (obj_id, space, entry) for _, (obj_id, name, space, entry) in self._tables.rows()}
        if "sys_columns" not in rows:
            raise Corruption("sys_tables does not list sys_columns", SYS_TABLES_ENTRY)
        columns_segment = Segment(store, system, rows["sys_columns"][2])
        self._columns = Heap("sys_columns", SYS_COLUMNS_ID, columns_segment, SYS_COLUMNS_COLUMNS, session)
        self._indexes = self._index_heap(rows)
        self._add_column_of_kinds()
        columns, indexes = self._read_columns(), self._read_indexes()
        self.tables: dict[str, TableDefinition] = {}
        for name, (obj_id, space_id, entry) in rows.items():
            of_table = tuple(columns.get(obj_id, ())), tuple(indexes.get(obj_id, ()))
            self.tables[name] = TableDefinition(name, obj_id, space_id, entry, *of_table)

    def _index_heap(self, rows: dict[str, tuple[int, int, int]]) -> Heap | None:
        """sys_indexes; a database from before there were indexes gets it when it is first opened for writing."""
        system = self._store.spaces[SYSTEM_DEVICE]
        if "sys_indexes" in rows:
            segment = Segment(self._store, system, rows["sys_indexes"][2])
        elif self._store.read_only:
            return None
        else:
            segment = self._session.create_segment(
                system, SYS_INDEXES_ID, "sys_indexes", SegmentType.SYSTEM, pct_free=10
            )
            _enter(self._tables, self._columns, "sys_indexes", SYS_INDEXES_ID, segment, SYS_INDEXES_COLUMNS)
            self._session.commit()
            rows["sys_indexes"] = (SYS_INDEXES_ID, SYSTEM_DEVICE, segment.entry_page)
        return Heap("sys_indexes", SYS_INDEXES_ID, segment, SYS_INDEXES_COLUMNS, self._session)

    def _add_column_of_kinds(self) -> None:
        """List the columns that sys_indexes did not have when the database was made."""
        known = len(self._read_columns().get(SYS_INDEXES_ID, ()))
        if known and not self._store.read_only:
            for position in range(known, len(SYS_INDEXES_COLUMNS)):
                self._columns.insert(_column_row(SYS_INDEXES_ID, position, SYS_INDEXES_COLUMNS[position]))
            self._session.commit()

    def _read_indexes(self) -> dict[int, list[IndexDefinition]]:
        found: dict[int, list[IndexDefinition]] = {}
        if self._indexes is not None:
            for _, (obj_id, table_id, name, entry_page, unique, positions, kind) in self._indexes.rows():
                numbers = tuple(map(int, positions.split(",")))
                index = IndexDefinition(name, obj_id, table_id, entry_page, unique, numbers, using=kind or "btree")
                found.setdefault(table_id, []).append(index)
        return found

    @staticmethod
    def create(store: PageStore, session: Session) -> None:
        """Make the system tables of a new database; they list themselves."""
        system = store.spaces[SYSTEM_DEVICE]
        definitions = [
            ("sys_tables", SYS_TABLES_ID, SYS_TABLES_COLUMNS),
            ("sys_columns", SYS_COLUMNS_ID, SYS_COLUMNS_COLUMNS),
        ]
        heaps = []
        for name, obj_id, columns in definitions:
            segment = session.create_segment(system, obj_id, name, SegmentType.SYSTEM, pct_free=10)
            heaps.append(Heap(name, obj_id, segment, columns, session))
        assert heaps[0].segment.entry_page == SYS_TABLES_ENTRY
        for heap in heaps:
            _enter(heaps[0], heaps[1], heap.name, heap.obj_id, heap.segment, heap.columns)
        session.commit()

    def _read_columns(self) -> dict[int, list[Column]]:
        found: dict[int, list[tuple[int, Column]]] = {}
        for _, (obj_id, position, name, type_, length, scale, nullable) in self._columns.rows():
            column = Column(name, ColumnType(type_, length, scale), nullable)
            found.setdefault(obj_id, []).append((position, column))
        return {obj_id: [column for _, column in sorted(pairs, key=lambda p: p[0])] for obj_id, pairs in found.items()}

    def table(self, name: str) -> TableDefinition:
        for spelling in (name, name.lower()):
            if spelling in self.tables:
                return self.tables[spelling]
        known = ", ".join(self.user_tables()) or "none yet"
        raise NoSuchTable(f"there is no table {name}; the tables are: {known}")

    def user_tables(self) -> list[str]:
        return sorted(name for name, table in self.tables.items() if table.obj_id >= FIRST_USER_ID)

    def heap(self, name: str, session: Session) -> Heap:
        """A table's rows, for a session."""
        table = self.table(name)
        space = self._store.spaces.get(table.space_id)
        if space is None:
            raise Corruption(f"table {table.name} lies in tablespace {table.space_id}, which has no device")
        segment = Segment(self._store, space, table.entry_page)
        return Heap(table.name, table.obj_id, segment, table.columns, session, lambda: self._indexes_of(table))

    def _indexes_of(self, table: TableDefinition) -> tuple[IndexDefinition, ...]:
        """The indexes that a table has now."""
        current = self.tables.get(table.name)
        if current is None or current.obj_id != table.obj_id:
            raise NoSuchTable(f"table {table.name} was dropped")
        return current.indexes

    def create_table(self, name: str, columns: Sequence[Column], space: Tablespace, pct_free: int) -> TableDefinition:
        """Add a table, as a transaction of its own: if it fails, what was made of it is taken back."""
        self._require_new_name(name)
        if not 0 <= pct_free <= 90:
            raise SchemaError(f"table {name}: pct_free {pct_free} is not between 0 and 90")
        obj_id = self._store.control["next_obj_id"]
        self._store.write_control(next_obj_id=obj_id + 1)  # a number is not used again, also if this fails
        try:
            segment = self._session.create_segment(space, obj_id, name, SegmentType.HEAP, pct_free)
            _enter(self._tables, self._columns, name, obj_id, segment, columns)
        except BaseException:
            self._session.rollback()
            raise
        table = TableDefinition(name, obj_id, space.space_id, segment.entry_page, tuple(columns))
        self._commit(lambda: self.tables.update({name: table}))
        return table

    def drop_table(self, table: TableDefinition) -> None:
        """Remove a table; its pages are free again when no reader needs them.  The caller holds it alone."""
        if table.obj_id < FIRST_USER_ID:
            raise SchemaError(f"{table.name} is a system table and cannot be dropped")
        segment = self.heap(table.name, self._session).segment
        try:
            for heap in (self._columns, self._tables):
                for row_id, values in list(heap.rows()):
                    if values[0] == table.obj_id:
                        heap.delete(row_id)
            for index in table.indexes:
                self._strike_index(index)
            self._session.drop_segment(table.obj_id, segment)
        except BaseException:
            self._session.rollback()
            raise
        self._commit(lambda: self.tables.pop(table.name))

    def _commit(self, note: Callable[[], object]) -> None:
        """Commit a definition, and note it in memory; one that was refused leaves nothing for the next to commit."""
        try:
            self._session.commit()
        except BaseException:
            if self._session.in_transaction:
                self._session.rollback()
            elif self._store.failure is None:
                note()  # an interrupt came after it was logged
            raise
        note()

    # ---- indexes

    def begin_index(
        self, name: str, table: TableDefinition, columns: Sequence[str], unique: bool, using: str, session: Session
    ) -> IndexBuild:
        """Make an index that is to be filled; ``session``, whose transaction it belongs to, has the table alone."""
        self._require_new_index(name, table)
        positions = [table.position(column) for column in columns]
        if len(set(positions)) < len(positions):
            raise SchemaError(f"index {name}: a column is named twice in {', '.join(columns)}")
        if using not in INDEX_KINDS:
            raise SchemaError(f"index {name}: there is no kind {using!r} of index, only {' and '.join(INDEX_KINDS)}")
        heap, kind = self.heap(table.name, session), INDEX_KINDS[using]
        obj_id = self._store.control["next_obj_id"]
        self._store.write_control(next_obj_id=obj_id + 1)
        segment = session.create_segment(heap.segment.space, obj_id, name, kind.segment_type, 0)
        tree = kind.create(segment, [table.columns[n] for n in positions], positions, unique)
        place = (obj_id, table.obj_id, segment.entry_page)
        index = IndexDefinition(name, *place, unique, tuple(positions), using=using, building=True)
        build = IndexBuild(session, heap, tree, index)
        self._set_indexes(table.obj_id, (*table.indexes, index))
        return build

    def finish_index(self, build: IndexBuild) -> None:
        """The index is filled, and its table held alone: make it everyone's."""
        assert self._indexes is not None
        index, positions = build.index, ",".join(map(str, build.index.positions))
        rows = Heap("sys_indexes", SYS_INDEXES_ID, self._indexes.segment, SYS_INDEXES_COLUMNS, build.session)
        rows.insert((index.obj_id, index.table_id, index.name, index.entry_page, index.unique, positions, index.using))
        before = self._indexes_with(index)
        made = replace(index, building=False, since=build.session.hub.memory.scn)
        self._set_indexes(index.table_id, [made if other is index else other for other in before])
        try:
            build.session.commit()
        except BaseException:
            if build.session.in_transaction:
                self._set_indexes(index.table_id, before)
            raise

    def abandon_index(self, build: IndexBuild) -> None:
        """The build has failed: the index is nobody's."""
        left = [other for other in self._indexes_with(build.index) if other is not build.index]
        self._set_indexes(build.index.table_id, left)

    def _indexes_with(self, index: IndexDefinition) -> tuple[IndexDefinition, ...]:
        """All indexes of an index's table."""
        return next((t.indexes for t in self.tables.values() if t.obj_id == index.table_id), ())

    def _set_indexes(self, table_id: int, indexes: Sequence[IndexDefinition]) -> None:
        for name, table in self.tables.items():
            if table.obj_id == table_id:
                self.tables[name] = replace(table, indexes=tuple(indexes))

    def drop_index(self, name: str) -> None:
        """Remove an index.  The caller has its table alone."""
        table, index = self.index(name)
        try:
            self._strike_index(index)
        except BaseException:
            self._session.rollback()
            raise
        rest = tuple(other for other in table.indexes if other is not index)
        self._commit(lambda: self.tables.update({table.name: replace(table, indexes=rest)}))

    def index(self, name: str) -> tuple[TableDefinition, IndexDefinition]:
        """An index and its table."""
        for table in self.tables.values():
            for index in table.indexes:
                if index.name == name:
                    return table, index
        raise NoSuchIndex(f"there is no index {name}")

    def _strike_index(self, index: IndexDefinition) -> None:
        """Take an index out of the catalog, and have its pages given back."""
        assert self._indexes is not None
        for row_id, values in list(self._indexes.rows()):
            if values[0] == index.obj_id:
                self._indexes.delete(row_id)
        space = self._store.spaces[self._store.devices[device_of(index.entry_page)].space_id]
        self._session.drop_segment(index.obj_id, Segment(self._store, space, index.entry_page))

    def _require_new_index(self, name: str, table: TableDefinition) -> None:
        if not 1 <= len(name.encode()) <= 63 or "\0" in name:
            raise SchemaError(f"{name!r} is no index name: it must have 1 to 63 bytes")
        if any(index.name.lower() == name.lower() for t in self.tables.values() for index in t.indexes):
            raise SchemaError(f"there is an index {name} already")
        if len(table.indexes) >= INDEXES_MAX:
            raise SchemaError(f"table {table.name} has {INDEXES_MAX} indexes already; it cannot have more")

    def _require_new_name(self, name: str) -> None:
        if not 1 <= len(name.encode()) <= 63 or "\0" in name:
            raise SchemaError(f"{name!r} is no table name: it must have 1 to 63 bytes")
        for taken in self.tables:
            if taken.lower() == name.lower():
                raise TableExists(
                    f"there is a table {taken} already; its entry page is {page_name(self.tables[taken].entry_page)}"
                )


def _enter(
    tables: Heap, columns_heap: Heap, name: str, obj_id: int, segment: Segment, columns: Sequence[Column]
) -> list[RowId]:
    row_ids = [tables.insert((obj_id, name, segment.space.space_id, segment.entry_page))]
    for position, column in enumerate(columns):
        row_ids.append(columns_heap.insert(_column_row(obj_id, position, column)))
    return row_ids


def _column_row(obj_id: int, position: int, column: Column) -> tuple[Any, ...]:
    type_ = column.type
    return obj_id, position, column.name, type_.name, type_.length, type_.scale, column.nullable
