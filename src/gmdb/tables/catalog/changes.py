"""Changes of definitions, as part of a session's transaction.

Invariants
 1. A session that changes a table's definition has the table alone until the transaction ends, and each name that comes
    or goes.
 2. A definition changes when its rows in the system tables and its segments have: whatever is taken back later, undo
    records lead to all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gmdb.errors import NullNotAllowed, SchemaError, SchemaMismatch, TableExists
from gmdb.format.address import MAIN_SPACE, page_name
from gmdb.format.columns import Column, ColumnType
from gmdb.format.lob import LobSegment
from gmdb.format.page import SegmentType
from gmdb.format.redo import ChangeOperation
from gmdb.format.row import MAX_COLUMNS
from gmdb.process.late_dataclasses import replace
from gmdb.storage.feeds import Feed, write_definition
from gmdb.storage.store import Segment
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.definition_documents import table_to_plain
from gmdb.tables.catalog.schema import (
    CHECK,
    PRIMARY_KEY,
    Constraint,
    TableDefinition,
    check_column,
    named,
    require_name,
    require_room,
)
from gmdb.tables.catalog.tables import Catalog
from gmdb.tables.catalog.view_definitions import ViewChanges, ViewDefinition
from gmdb.transaction.session import Session
from gmdb.transaction.table_locks import Name

if TYPE_CHECKING:
    from gmdb.tables.catalog.index_creation import IndexMaking


class DefinitionChanges:
    """A session's changes of definitions, each called within ``Session.defining``."""

    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog = catalog
        self._session = session
        self._store = catalog.store
        self._system = catalog.system(session)
        self._views = ViewChanges(catalog, session)

    @cached_property
    def _indexes(self) -> IndexMaking:
        from gmdb.tables.catalog.index_creation import IndexMaking  # who only reads need not load it

        return IndexMaking(self._catalog, self._session)

    # ---- tables

    def create_table(
        self, name: str, columns: Sequence[Column], constraints: Sequence[Constraint], tablespace: str, pct_free: int
    ) -> None:
        space = self._store.space(tablespace)
        if space.name in ("system", "undo"):
            raise SchemaError(f"table {name}: tablespace {space.name} is gmdb's own; use {MAIN_SPACE} or your own")
        if not 0 <= pct_free <= 90:
            raise SchemaError(f"table {name}: pct_free {pct_free} is not between 0 and 90")
        require_room(name, columns, space.page_size)
        self._take_new_name(name)
        obj_id = self._catalog.new_number()
        segment = self._session.create_segment(space, obj_id, name, SegmentType.HEAP, pct_free)
        numbered = tuple(self._with_counter(column) for column in columns)
        table = self._with_lobs(TableDefinition(name, obj_id, space.space_id, segment.entry_page, numbered))
        self._system.enter(table)
        self._change(table)
        for constraint in constraints:
            table = self._add_constraint(table, constraint)

    def drop_table(self, name: str, cascade: bool = False) -> None:
        """Remove a table; its pages are free again when no reader needs them.  ``cascade``: and views that use it."""
        table = self._take(name)
        self._views.release(table.name, f"table {table.name}", cascade)
        self._take_names(table.name, table.indexes)
        self._system.remove(table)
        self._tell_readers(table, ChangeOperation.DROP)
        self._drop_segments(table)
        self._session.change_definitions({table.number: None})

    def truncate_table(self, name: str, restart: bool = False) -> None:
        """Remove all rows at once: the table and its indexes get new segments.  ``restart``: its counters, too."""
        table = self.put_in_place(self._take(name).name, self.remake(name))
        for column in table.columns if restart else ():
            if column.identity_id:
                self._catalog.identities.restart(column.identity_id, 1)

    def remake(self, name: str) -> TableDefinition:
        """An empty table with the definition that another has now.  It is not visible until it replaces that one."""
        old = self._catalog.user_table(name, self._session)
        before = self._segment(old.entry_page)
        obj_id, pct_free = self._catalog.new_number(), int(before.head.pct_free)
        segment = self._session.create_segment(before.space, obj_id, old.name, SegmentType.HEAP, pct_free)
        self._tell_readers(old, ChangeOperation.TRUNCATE)  # before new rows may take the old ones' places
        empty = replace(old, obj_id=obj_id, entry_page=segment.entry_page, number=obj_id, indexes=(), lobs=None)
        table = self._with_lobs(empty)
        indexes = [index for index in old.indexes if not index.building]
        planted = (self._indexes.plant(table, i.name, i.positions, i.unique, i.using)[0] for i in indexes)
        return replace(table, indexes=tuple(planted))

    def put_in_place(self, name: str, remade: TableDefinition) -> TableDefinition:
        """Replace a table's rows by those of one that was remade from it."""
        old = self._take(name)
        if _shape(old) != _shape(remade):
            raise SchemaMismatch(f"table {name}: its definition was changed meanwhile; try again")
        table = replace(remade, name=old.name, number=old.number)
        self._system.remove(old)
        self._drop_segments(old)
        self._system.enter(table)
        self._change(table)
        return table

    def rename_table(self, name: str, new_name: str) -> None:
        table = self._take(name)
        self._views.require_unused(table.name, f"table {table.name}")
        self._take_new_name(new_name)
        self._session.take_alone(Name("table", table.name.lower()))
        table = replace(table, name=new_name)
        self._system.change_table(table)
        self._change(table)

    # ---- views

    def create_view(self, view: ViewDefinition, replace: bool = False) -> None:
        """Add a view.  ``replace``: instead of the one of that name, if there is one."""
        self._session.take_alone(Name("table", view.name.lower()))
        self._session.see_newest()
        if replace and view.name in self._catalog.views_of(self._session):
            self._views.replace(view)
            return
        self._take_new_name(view.name)
        self._views.create(view)

    def drop_view(self, name: str, cascade: bool = False) -> None:
        """Remove a view.  ``cascade``: and views that use it."""
        self._take_names(self._catalog.view(name, self._session).name, ())
        self._views.drop(name, cascade)

    def rename_view(self, name: str, new_name: str) -> None:
        self._take_new_name(new_name)
        self._take_names(self._catalog.view(name, self._session).name, ())
        self._views.rename(name, new_name)

    # ---- change feeds

    def set_change_feed(self, name: str, on: bool) -> None:
        """Log the table's changes for readers from now on, or stop that."""
        table = self._take(name)
        if on == (table.feed is not None):
            return
        if on:
            feed_id = self._catalog.new_number()
            table = self._with_version(replace(table, feed=Feed(feed_id, 0)))
            self._system.change_table(table)
            self._tell_readers(table, ChangeOperation.START)
        else:
            stopped, table = table, replace(table, feed=None)
            self._system.change_table(table)
            self._tell_readers(stopped, ChangeOperation.STOP)
        self._session.change_definitions({table.number: table})

    def _with_version(self, table: TableDefinition) -> TableDefinition:
        """The table with a new number for how its rows are to be read."""
        assert table.feed is not None
        version = self._catalog.new_number()
        table = replace(table, feed=table.feed._replace(version=version))
        write_definition(self._store.directory, version, table_to_plain(table))
        return table

    def _tell_readers(self, table: TableDefinition, operation: ChangeOperation) -> None:
        """Log a change of a table, behind the newest undo record."""
        if table.feed is not None:
            self._session.log_table_change(table.feed.version, int(operation))

    # ---- columns

    def add_column(self, name: str, column: Column, value: Any = None) -> None:
        """Add a last column.  Rows that are there read NULL, at no cost, or get ``value`` or an identity's numbers."""
        table = self._take(name)
        check_column(table.name, column)
        self._require_new_column(table, column.name)
        if len(table.columns) >= MAX_COLUMNS:
            raise SchemaError(f"table {table.name} has {MAX_COLUMNS} columns already; it cannot have more")
        require_room(table.name, (*table.columns, column), self._store.spaces[table.space_id].page_size)
        column = self._with_counter(column)
        before, table = table, self._with_lobs(replace(table, columns=(*table.columns, column)))
        self._system.enter_column(table, len(table.columns) - 1)
        if table.lobs is not before.lobs:
            self._system.change_table(table)
        self._change(table)
        if value is not None or not column.nullable:
            self._fill_column(table, column, value)

    def _fill_column(self, table: TableDefinition, column: Column, value: Any) -> None:
        heap = self._catalog.heap(table.name, self._session)
        row_ids = [row_id for row_id, _ in heap.wanting(()).rows()]
        if row_ids and value is None and not column.identity:
            raise NullNotAllowed(
                f"table {table.name}: column {column.name} is NOT NULL, but the table has rows; give a value for them"
            )
        first = self._catalog.identities.take(column.identity_id, len(row_ids)) if column.identity else 0
        for n, row_id in enumerate(row_ids):
            heap.update(row_id, {column.name: first + n if column.identity else value})

    def rename_column(self, name: str, column: str, new_name: str, checks: Mapping[str, str]) -> None:
        """``checks``: new expressions of the table's checks, by their names."""
        table = self._take(name)
        position = table.position(column)
        old = table.columns[position].name
        if old.lower() != new_name.lower():
            self._require_new_column(table, new_name)
        require_name("column", new_name)
        columns = [replace(c, name=new_name) if n == position else c for n, c in enumerate(table.columns)]
        constraints = [
            replace(
                one,
                columns=tuple(new_name if c == old else c for c in one.columns),
                text=checks.get(one.name, one.text),
            )
            for one in table.constraints
        ]
        table = replace(table, columns=tuple(columns), constraints=tuple(constraints))
        self._system.change_column(table, position)
        for constraint in table.constraints:
            if constraint.name in checks:
                self._system.change_constraint(table, constraint)
        self._change(table)

    def alter_column(self, name: str, column: str, changes: Mapping[str, Any]) -> None:
        """Change a column's ``default`` (None: it has none) or whether it is ``nullable``."""
        unknown = set(changes) - {"default", "nullable"}
        if unknown:
            raise SchemaError(f"table {name}, column {column}: {unknown.pop()} cannot be changed")
        table = self._take(name)
        position = table.position(column)
        changed = replace(table.columns[position], **changes)
        check_column(table.name, changed)
        if changed.nullable and changed.name in table.primary_key:
            raise SchemaError(f"table {table.name}: column {column} is part of the primary key, and so NOT NULL")
        if not changed.nullable:
            self._require_values(table, [position])
        self._replace_column(table, position, changed)

    def _replace_column(self, table: TableDefinition, position: int, column: Column) -> TableDefinition:
        columns = [column if n == position else other for n, other in enumerate(table.columns)]
        if table.columns[position].nullable and not column.nullable:
            require_room(table.name, columns, self._store.spaces[table.space_id].page_size)
        table = replace(table, columns=tuple(columns))
        self._system.change_column(table, position)
        self._change(table)
        return table

    def _require_values(self, table: TableDefinition, positions: Sequence[int]) -> None:
        """Refuse to make columns NOT NULL of which some row has no value."""
        wanted = [n for n in positions if table.columns[n].nullable]
        heap = self._catalog.heap(table.name, self._session).wanting(())
        for row_id, values in heap.rows() if wanted else ():
            for n in wanted:
                if values[n] is None:
                    where = f"table {table.name}, column {table.columns[n].name}"
                    raise NullNotAllowed(f"{where}: row {row_id} has no value, so that it cannot be NOT NULL")

    def _require_new_column(self, table: TableDefinition, name: str) -> None:
        if any(column.name.lower() == name.lower() for column in table.columns):
            raise SchemaError(f"table {table.name} has a column {name} already")

    # ---- constraints and indexes

    def add_constraint(self, name: str, constraint: Constraint) -> None:
        self._add_constraint(self._take(name), constraint)

    def _add_constraint(self, table: TableDefinition, constraint: Constraint) -> TableDefinition:
        constraint = named(table, constraint, self._indexes.names())
        if constraint.kind == PRIMARY_KEY:
            positions = [table.position(column) for column in constraint.columns]
            self._require_values(table, positions)
            for position in positions:
                if table.columns[position].nullable:
                    table = self._replace_column(table, position, replace(table.columns[position], nullable=False))
        if constraint.kind != CHECK:
            table = self._indexes.create(table, constraint.name, constraint.columns, True, "btree")
        table = replace(table, constraints=(*table.constraints, constraint))
        self._system.enter_constraint(table, constraint)
        self._change(table)
        return table

    def drop_constraint(self, name: str, constraint: str) -> None:
        table = self._take(name)
        gone = table.constraint(constraint)
        table = replace(table, constraints=tuple(one for one in table.constraints if one is not gone))
        self._system.remove_constraint(table, gone.name)
        if gone.kind != CHECK:
            table = self._drop_index(table, table.index(gone.name))
        self._change(table)

    def create_index(self, name: str, table: str, columns: Sequence[str], unique: bool, using: str) -> None:
        """Add an index, filled with the rows that the session sees."""
        self._indexes.create(self._take(table), name, columns, unique, using)

    def drop_index(self, name: str) -> None:
        found, _ = self._catalog.index(name, self._session)
        table = self._take(found.name)
        _, index = self._catalog.index(name, self._session)
        if any(constraint.name == name and constraint.kind != CHECK for constraint in table.constraints):
            raise SchemaError(f"index {name} keeps a constraint of table {table.name}; drop the constraint instead")
        self._change(self._drop_index(table, index))

    def _drop_index(self, table: TableDefinition, index: IndexDefinition) -> TableDefinition:
        self._take_names("", [index])
        self._system.remove_index(index)
        self._session.drop_segment(index.obj_id, self._segment(index.entry_page))
        return replace(table, indexes=tuple(other for other in table.indexes if other is not index))

    # ---- shared parts

    def _take(self, name: str) -> TableDefinition:
        return self._indexes.take(name)

    def _change(self, table: TableDefinition) -> None:
        before = self._catalog.tables_of(self._session).get(table.name)
        self._views.require_unaffected(before, table)
        if table.feed is not None and (before is None or _row_shape(before) != _row_shape(table)):
            table = self._with_version(table)
            self._system.change_table(table)
        elif before is not None and table.feed is not None:
            table = replace(table, feed=before.feed)  # the caller may not know of a version that a step before made
        self._session.change_definitions({table.number: table})

    def _take_new_name(self, name: str) -> None:
        require_name("table", name)
        self._session.take_alone(Name("table", name.lower()))
        self._session.see_newest()
        for taken in self._catalog.tables_of(self._session).values():
            if taken.name.lower() == name.lower():
                raise TableExists(
                    f"there is a table {taken.name} already; its entry page is {page_name(taken.entry_page)}"
                )
        for view in self._catalog.views_of(self._session):
            if view.lower() == name.lower():
                raise TableExists(f"there is a view {view} already")

    def _take_names(self, table: str, indexes: Sequence[IndexDefinition]) -> None:
        """Lock some names: no other session can give them to anything before the transaction has ended."""
        if table:
            self._session.take_alone(Name("table", table.lower()))
        for index in indexes:
            self._session.take_alone(Name("index", index.name.lower()))

    def _with_counter(self, column: Column) -> Column:
        if not column.identity:
            return replace(column, identity_id=0)
        number = self._catalog.new_number()
        self._catalog.identities.create(number)
        return replace(column, identity_id=number)

    def _with_lobs(self, table: TableDefinition) -> TableDefinition:
        """The table with a segment for its large objects, if it has columns for those and none yet."""
        if table.lobs is not None or not any(column.type.is_lob for column in table.columns):
            return table
        obj_id, space = self._catalog.new_number(), self._store.spaces[table.space_id]
        segment = self._session.create_segment(space, obj_id, table.name, SegmentType.LOB, 0)
        return replace(table, lobs=LobSegment(obj_id, segment.entry_page))

    def _segment(self, entry_page: int) -> Segment:
        return Segment(self._store, self._store.space_of(entry_page), entry_page)

    def _drop_segments(self, table: TableDefinition) -> None:
        for index in table.indexes:
            self._session.drop_segment(index.obj_id, self._segment(index.entry_page))
        if table.lobs is not None:
            self._session.drop_segment(table.lobs.obj_id, self._segment(table.lobs.entry_page))
        self._session.drop_segment(table.obj_id, self._segment(table.entry_page))


def _shape(table: TableDefinition) -> tuple[Any, ...]:
    """The part of a table's definition that is about its rows, wherever they lie."""
    indexes = [(index.name, index.positions, index.unique, index.using) for index in table.indexes]
    return table.columns, table.constraints, indexes, table.feed


def _row_shape(table: TableDefinition) -> tuple[list[tuple[str, ColumnType]], tuple[int, ...]]:
    """What readers of the table's rows in the log need of its definition."""
    return [(column.name, column.type) for column in table.columns], table.known_by
