"""Changes of definitions, as part of a session's transaction.

Invariants
 1. A session that changes a table's definition has the table alone until the transaction ends, and each name that comes
    or goes.
 2. A definition changes when its rows in the system tables and its segments have: whatever is taken back later, undo
    records lead to all of it.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gmdb.errors import NotSupportedError, NullNotAllowed, SchemaError, SchemaMismatch, TableExists
from gmdb.format.address import MAIN_SPACE, page_name
from gmdb.format.columns import Column, parse_column
from gmdb.format.lob import TEXT_IN_ROW_MAX, LobSegment, Locator
from gmdb.format.page import SegmentType
from gmdb.format.redo import ChangeOperation
from gmdb.format.row import MAX_COLUMNS
from gmdb.process.late_dataclasses import replace
from gmdb.storage.feeds import Feed, write_definition
from gmdb.storage.store import Segment
from gmdb.tables.access.indexes import IndexDefinition, NewIndex, require_parts
from gmdb.tables.catalog.comments import CommentChanges
from gmdb.tables.catalog.counters import counting_of
from gmdb.tables.catalog.definition_documents import table_to_plain
from gmdb.tables.catalog.key_changes import KeyChanges
from gmdb.tables.catalog.names import full_name, is_temporary
from gmdb.tables.catalog.schema import (
    CHECK,
    FOREIGN_KEY,
    PRIMARY_KEY,
    UNIQUE,
    Constraint,
    TableDefinition,
    check_column,
    make_columns,
    named,
    require_expressions,
    require_name,
    require_room,
)
from gmdb.tables.catalog.schemas import SchemaChanges
from gmdb.tables.catalog.sequences import SequenceChanges
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
        self.session = session
        self._views = ViewChanges(catalog, session)

    @cached_property
    def _indexes(self) -> IndexMaking:
        from gmdb.tables.catalog.index_creation import IndexMaking  # who only reads need not load it

        return IndexMaking(self._catalog, self._session)

    @cached_property
    def _keys(self) -> KeyChanges:
        return KeyChanges(self._catalog, self._session, self._take, self._change)

    @cached_property
    def sequences(self) -> SequenceChanges:
        return SequenceChanges(self._catalog, self._session, self)

    @cached_property
    def comments(self) -> CommentChanges:
        return CommentChanges(self._catalog.system(self._session), self)

    @cached_property
    def schemas(self) -> SchemaChanges:
        return SchemaChanges(self._catalog, self._session, self)

    # ---- tables

    def create_table(
        self,
        name: str,
        columns: Sequence[Column],
        constraints: Sequence[Constraint],
        tablespace: str,
        pct_free: int,
        sequence: tuple[Any, ...] = (),
        on_commit: str = "",
    ) -> None:
        space = self._store.space(tablespace)
        if space.name in ("system", "undo"):
            raise SchemaError(f"table {name}: tablespace {space.name} is gmdb's own; use {MAIN_SPACE} or your own")
        if not 0 <= pct_free <= 90:
            raise SchemaError(f"table {name}: pct_free {pct_free} is not between 0 and 90")
        require_room(name, columns, space.page_size)
        schema, name = self._take_new_name(name)
        obj_id = self._catalog.new_number()
        segment = self._session.create_segment(space, obj_id, name, SegmentType.HEAP, pct_free)
        numbered = tuple(replace(self._with_counter(column), number=None) for column in columns)
        place = (obj_id, space.space_id, segment.entry_page)
        table = TableDefinition(name, *place, numbered, sequence=sequence, schema=schema, on_commit=on_commit)
        if on_commit:
            self.schemas.end_with_transactions(table)
        table = self._with_lobs(table)
        if self._catalog.generated_of(table) is not None:
            self._catalog.generation_of(table)  # refuses what means nothing
        self._system.enter(table)
        self._change(table)
        for constraint in sorted(constraints, key=lambda one: one.kind == FOREIGN_KEY):  # keys come before them
            table = self._add_constraint(table, constraint)

    def drop_tables(self, names: Sequence[str], cascade: bool = False) -> None:
        """Remove tables; views that use them and others' foreign keys to them go as well, or are in the way."""
        names = [self._take(name).name for name in names]
        self._keys.release(names, cascade)
        for name in dict.fromkeys(names):
            self._views.release(name, f"table {name}", cascade)
            self._drop_table(self._take(name))
            self.sequences.drop_owned(name)

    def _drop_table(self, table: TableDefinition) -> None:
        """Remove a table; its pages are free again when no reader needs them."""
        self._take_names(table, table.indexes, is_own=True)
        self._system.remove(table)
        self._tell_readers(table, ChangeOperation.DROP)
        self._drop_segments(table)
        self._session.change_definitions({table.number: None})

    def truncate_tables(self, names: Sequence[str], restart: bool = False, cascade: bool = False) -> None:
        """Remove all rows at once: tables and their indexes get new segments.  ``restart``: their counters, too.

        Tables that refer to them are emptied as well, or are in the way.
        """
        names = [self._take(name).name for name in names]
        for name in self._keys.with_referring(names, cascade):
            self._truncate_table(name, restart)

    def _truncate_table(self, name: str, restart: bool) -> None:
        table = self._replace_rows(self._take(name).name, self.remake(name))
        for column in table.columns if restart else ():
            if column.identity_id:
                self._catalog.counters.restart(column.identity_id, counting_of(column).start)
        if restart:
            self.sequences.restart_owned(table.name)

    def remake(self, name: str) -> TableDefinition:
        """An empty table with the definition that another has now.  It is not visible until it replaces that one."""
        old = self._catalog.user_table(name, self._session)
        return self._emptied(old, old)

    def _emptied(self, old: TableDefinition, new: TableDefinition) -> TableDefinition:
        """A table without rows, with segments of its own where ``old`` has its rows; else it is as ``new`` is."""
        before = self._segment(old.entry_page)
        obj_id, pct_free = self._catalog.new_number(), int(before.head.pct_free)
        segment = self._session.create_segment(before.space, obj_id, old.name, SegmentType.HEAP, pct_free)
        self._tell_readers(old, ChangeOperation.TRUNCATE)  # before new rows may take the old ones' places
        empty = replace(new, obj_id=obj_id, entry_page=segment.entry_page, number=obj_id, indexes=(), lobs=None)
        table = self._with_lobs(empty)
        indexes = [index for index in new.indexes if not index.building]
        planted = (self._indexes.plant(table, index)[0] for index in indexes)
        return replace(table, indexes=tuple(planted))

    def put_in_place(self, name: str, remade: TableDefinition) -> TableDefinition:
        """Replace a table's rows by those of one that was remade from it, and have its foreign keys checked."""
        table = self._replace_rows(name, remade)
        self._keys.check_all_of(table.name)
        return table

    def _replace_rows(self, name: str, remade: TableDefinition) -> TableDefinition:
        old = self._take(name)
        if old.shape != remade.shape:
            raise SchemaMismatch(f"table {name}: its definition was changed meanwhile; try again")
        return self._replace(old, remade)

    def _replace(self, old: TableDefinition, remade: TableDefinition) -> TableDefinition:
        table = replace(remade, name=old.name, number=old.number)
        self._system.remove(old)
        self._drop_segments(old)
        self._system.enter(table)
        self._session.change_definitions({table.number: table})
        return table

    # ---- rows in another form
    #
    # What a table's rows look like changes by making them anew, in segments of their own that take the place of the
    # old ones, as those of a truncated table do.  Older snapshots go on with the old ones.

    def hold(self, name: str) -> TableDefinition:
        """Take a table alone: what is found out about its rows stays true until the transaction ends."""
        return self._take(name)

    def begin_rewrite(
        self,
        name: str,
        columns: Sequence[tuple[int | None, Column]],
        without: Container[str],
        programs: Mapping[str, str],
        expressions: Sequence[tuple[int | None, tuple[str, str, int, int]]],
    ) -> tuple[TableDefinition, TableDefinition]:
        """The table, and an empty one with other columns that can take its place.

        ``columns``, and ``expressions`` of indexes: each with its position of now, None for those that are new.  What
        needs columns that go, goes with them: indexes, keys, the constraints ``without``, and partial indexes that have
        none of the ``programs``.
        """
        old = self._take(name)
        if not columns:
            raise SchemaError(f"table {old.name}: its last column cannot be dropped; drop the table instead")
        columns = [(n, self._with_counter(column) if n is None else column) for n, column in columns]
        make_columns(old.name, [column for _, column in columns])
        require_room(old.name, [column for _, column in columns], self._store.spaces[old.space_id].page_size)
        names = {column.name for _, column in columns}
        constraints = [one for one in old.constraints if one.name not in without and names.issuperset(one.columns)]
        gone = {one.name for one in old.constraints if one not in constraints and one.kind in (PRIMARY_KEY, UNIQUE)}
        hidden = [(None if n is None else n + len(old.columns), None) for n, _ in expressions]
        positions = {origin: n for n, (origin, _) in enumerate([*columns, *hidden]) if origin is not None}
        indexes = [
            replace(index, positions=tuple(positions[n] for n in index.positions), program=programs.get(index.name))
            for index in old.indexes
            if index.name not in gone
            and positions.keys() >= set(index.positions)
            and (index.condition is None or index.name in programs)
        ]
        kept = {index.name for index in indexes}
        self._take_names(old, [index for index in old.indexes if index.name not in kept])
        new = replace(old.with_columns(columns), constraints=tuple(constraints), indexes=tuple(indexes))
        new = replace(new, expressions=tuple(one for _, one in expressions))
        require_expressions(new)
        self._require_keys(new)
        self._views.require_unaffected(old, new)
        if old.feed is not None:
            new = self._with_version(new)
        return old, self._emptied(old, new)

    def release_columns(self, name: str, columns: Sequence[str], cascade: bool) -> None:
        """Columns are about to go: so do the table's foreign keys with them, and their sequences.

        Foreign keys that refer to them go as well, or are in the way.
        """
        table = self._take(name)
        gone = {table.column(column).name for column in columns}
        for constraint in table.constraints:
            if gone.isdisjoint(constraint.columns):
                continue
            if constraint.kind == FOREIGN_KEY:
                self._keys.drop(self._take(table.name), constraint)
            self._keys.release_key(self._take(table.name), constraint, cascade)
        for column in gone:
            self.sequences.drop_owned(table.name, column)

    def finish_rewrite(self, old: TableDefinition, remade: TableDefinition) -> None:
        """Let a table that has been filled take the place of the one that it was made from."""
        table = self._replace(old, remade)
        self._keys.check_all_of(table.name)
        self._catalog.statistics.forget(old.number)  # they name columns by their positions

    def _require_keys(self, table: TableDefinition) -> None:
        for index in table.indexes:
            for column in (table.stored[n] for n in index.positions):
                if not column.type.may_be_key:
                    raise SchemaError(f"index {index.name}: column {column.name} cannot be a {column.type} in a key")

    def rename_table(self, name: str, new_name: str) -> None:
        """Give a table another name, perhaps in another schema."""
        table = self._take(name)
        self._views.require_unused(table.name, f"table {table.name}")
        schema, new_name = self._take_new_name(new_name)
        self._keys.rename_table(table.name, new_name)
        self.sequences.rename_owner(table.name, new_name)
        self.rename_definition(self._take(table.name), new_name)
        if schema != table.schema:
            self.sequences.move_owned(new_name, schema)

    def rename_definition(self, table: TableDefinition, new_name: str) -> str:
        """Give a table or a sequence that the session has alone another name; returns its full name."""
        schema, new_name = self._take_new_name(new_name)
        self._session.take_alone(Name("table", table.name.lower()))
        if schema != table.schema:
            if is_temporary(schema) or is_temporary(table.schema):
                raise NotSupportedError(f"{table.name} cannot move into the schema of temporary tables, or out of it")
            self._take_names(table, table.indexes)
            for index in table.indexes:
                self._indexes.take_new_name(schema, index.name)
        table = replace(table, name=new_name, schema=schema)
        self._system.change_table(table)
        self._change(table)
        return new_name

    # ---- views

    def create_view(self, view: ViewDefinition, replace: bool = False) -> None:
        """Add a view.  ``replace``: instead of the one of that name, if there is one."""
        schema, name = self.schemas.place_for(view.name)
        view = view.in_schema(schema, name)
        self._session.take_alone(Name("table", view.name.lower()))
        self._session.see_newest()
        if replace and view.name in self._catalog.views_of(self._session):
            self._views.replace(view)
            return
        self._take_new_name(view.name)
        self._views.create(view)

    def drop_view(self, name: str, cascade: bool = False) -> None:
        """Remove a view.  ``cascade``: and views that use it."""
        self._take_names(self._catalog.view(name, self._session), (), is_own=True)
        self._views.drop(name, cascade)

    def rename_view(self, name: str, new_name: str) -> None:
        schema, new_name = self._take_new_name(new_name)
        view = self._catalog.view(name, self._session)
        if schema != view.schema and (is_temporary(schema) or is_temporary(view.schema)):
            raise NotSupportedError(f"{view.name} cannot move into the schema of temporary tables, or out of it")
        self._take_names(view, (), is_own=True)
        self._views.rename(name, new_name)

    # ---- change feeds

    def set_change_feed(self, name: str, on: bool) -> None:
        """Log the table's changes for readers from now on, or stop that."""
        table = self._take(name)
        if on == (table.feed is not None):
            return
        if on:
            if is_temporary(table.schema):
                raise SchemaError(f"table {table.name} is temporary: nobody else can read its changes")
            self._require_short_texts(table)
            feed_id = self._catalog.new_number()
            table = self._with_version(replace(table, feed=Feed(feed_id, 0)))
            self._system.change_table(table)
            self._tell_readers(table, ChangeOperation.START)
        else:
            stopped, table = table, replace(table, feed=None)
            self._system.change_table(table)
            self._tell_readers(stopped, ChangeOperation.STOP)
        self._session.change_definitions({table.number: table})

    def _require_short_texts(self, table: TableDefinition) -> None:
        """Refuse to log the changes of rows that have TEXT or BYTEA values on pages: the log would not have them."""
        texts = [n for n, column in enumerate(table.columns) if column.type.may_be_long]
        if table.lobs is None or not texts or not len(self._segment(table.lobs.entry_page).page_ids()):
            return
        heap = self._catalog.heap(table.name, self._session).wanting(())
        for row_id, values in heap.rows():
            for n in texts:
                if isinstance(values[n], Locator):
                    column = table.columns[n]
                    where = f"table {table.name}, row {row_id}: column {column.name} has {values[n].length} bytes"
                    why = "a change feed keeps what rows keep"
                    raise SchemaError(f"{where}, but {why}: up to {TEXT_IN_ROW_MAX} bytes of a {column.type}")

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
        if column.generated is not None:
            raise SchemaError(f"table {table.name}, column {column.name}: use ALTER TABLE to add a generated column")
        self._require_new_column(table, column.name)
        if table.expressions:
            raise SchemaError(f"table {table.name} has indexes on expressions: use ALTER TABLE to add a column")
        if len(table.columns) >= MAX_COLUMNS:
            raise SchemaError(f"table {table.name} has {MAX_COLUMNS} columns already; it cannot have more")
        require_room(table.name, (*table.columns, column), self._store.spaces[table.space_id].page_size)
        column = self._with_counter(column)
        before, table = table, self._with_lobs(table.with_new_column(column))
        column = table.columns[-1]
        self._system.enter_column(table, len(table.columns) - 1)
        if table.lobs is not before.lobs or table.columns_ever != before.columns_ever:
            self._system.change_table(table)
        self._change(table)
        if value is not None or not column.nullable or column.sequence:
            self._fill_column(table, column, value)

    def _fill_column(self, table: TableDefinition, column: Column, value: Any) -> None:
        heap = self._catalog.heap(table.name, self._session)
        row_ids = [row_id for row_id, _ in heap.wanting(()).rows()]
        if row_ids and value is None and not column.is_numbered:
            raise NullNotAllowed(
                f"table {table.name}: column {column.name} is NOT NULL, but the table has rows; give a value for them"
            )
        values = [value] * len(row_ids)
        if column.is_numbered:
            values = self._catalog.next_numbers(column, len(row_ids), self._session)
        for row_id, one in zip(row_ids, values, strict=True):
            heap.update(row_id, {column.name: one})

    def rename_column(
        self,
        name: str,
        column: str,
        new_name: str,
        checks: Mapping[str, str],
        conditions: Mapping[str, str],
        generated: Mapping[str, str],
        expressions: Sequence[str],
    ) -> None:
        """``checks``, ``conditions``, ``generated``: new expressions of the table's checks, partial indexes and
        generated columns, by their names."""
        self._keys.rename_column(self._take(name), column, new_name)
        self.sequences.rename_owner(self._take(name).name, self._take(name).name, column, new_name)
        table = self._take(name)
        position = table.position(column)
        old = table.columns[position].name
        if old.lower() != new_name.lower():
            self._require_new_column(table, new_name)
        require_name("column", new_name)
        columns = [replace(c, generated=generated.get(c.name, c.generated)) for c in table.columns]
        columns[position] = replace(columns[position], name=new_name)
        constraints = [
            replace(
                one,
                columns=tuple(new_name if c == old else c for c in one.columns),
                text=checks.get(one.name, one.text),
            )
            for one in table.constraints
        ]
        indexes = [replace(one, condition=conditions.get(one.name, one.condition)) for one in table.indexes]
        for index, before in zip(indexes, table.indexes, strict=True):
            require_parts(index)
            if index != before:
                self._system.change_index(index)
        table = replace(table, columns=tuple(columns), constraints=tuple(constraints), indexes=tuple(indexes))
        if expressions:
            texts = zip(expressions, table.expressions, strict=True)
            table = replace(table, expressions=tuple((text, *one[1:]) for text, one in texts))
            self._system.change_table(table)
        for n, now in enumerate(table.columns):
            if n == position or now.generated is not None:
                self._system.change_column(table, n)
        for constraint in table.constraints:
            if constraint.name in checks:
                self._system.change_constraint(table, constraint)
        self._change(table)

    def alter_column(self, name: str, column: str, changes: Mapping[str, Any]) -> None:
        """Change a column's ``default`` (None: it has none), ``nullable``, or its ``type`` to a wider one; or let a
        generated one keep its values, and be one as any other (``generated``: None)."""
        unknown = set(changes) - {"default", "nullable", "sequence", "type"}
        if changes.get("generated", "") is None:
            unknown.discard("generated")
        if unknown:
            raise SchemaError(f"table {name}, column {column}: {unknown.pop()} cannot be changed")
        table = self._take(name)
        position = table.position(column)
        if isinstance(changes.get("type"), str):
            changes = {**changes, "type": parse_column(column, changes["type"]).type}
        given = {"sequence": "", **changes} if "default" in changes else changes
        changed = replace(table.columns[position], **given)
        check_column(table.name, changed)
        if table.expressions and changed.type != table.columns[position].type:
            raise SchemaError(f"table {table.name} has indexes on expressions: use ALTER TABLE to change a type")
        if not table.columns[position].type.widens_to(changed.type):
            message = f"table {table.name}: column {column} {table.columns[position].type} cannot be {changed.type}"
            raise SchemaError(f"{message} without new rows; use ALTER TABLE … ALTER COLUMN … TYPE")
        if changed.nullable and changed.name in table.primary_key:
            raise SchemaError(f"table {table.name}: column {column} is part of the primary key, and so NOT NULL")
        if not changed.nullable:
            self._require_values(table, [position])
        self._replace_column(table, position, changed)

    def _replace_column(self, table: TableDefinition, position: int, column: Column) -> TableDefinition:
        columns = [column if n == position else other for n, other in enumerate(table.columns)]
        if table.columns[position].nullable and not column.nullable:
            require_room(table.name, columns, self._store.spaces[table.space_id].page_size)
        before, table = table, self._with_lobs(replace(table, columns=tuple(columns)))
        self._system.change_column(table, position)
        if table.lobs is not before.lobs:
            self._system.change_table(table)
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
        constraint = named(table, constraint, self._indexes.names(table.schema))
        if constraint.kind == FOREIGN_KEY:
            return self._keys.add(table, constraint)
        if constraint.kind == PRIMARY_KEY:
            positions = [table.position(column) for column in constraint.columns]
            self._require_values(table, positions)
            for position in positions:
                if table.columns[position].nullable:
                    table = self._replace_column(table, position, replace(table.columns[position], nullable=False))
        if constraint.kind != CHECK:
            nulls_distinct = constraint.nulls_distinct
            new = NewIndex(constraint.name, constraint.columns, unique=True, nulls_distinct=nulls_distinct)
            table = self._indexes.create(table, new)
        table = replace(table, constraints=(*table.constraints, constraint))
        self._system.enter_constraint(table, constraint)
        self._change(table)
        return table

    def drop_constraint(self, name: str, constraint: str, cascade: bool = False) -> None:
        """Remove a constraint; foreign keys that need it go as well, or are in the way."""
        table = self._take(name)
        gone = table.constraint(constraint)
        if gone.kind == FOREIGN_KEY:
            self._keys.drop(table, gone)
            return
        self._keys.release_key(table, gone, cascade)
        table = self._take(name)
        table = replace(table, constraints=tuple(one for one in table.constraints if one.name != gone.name))
        self._system.remove_constraint(table, gone.name)
        if gone.kind != CHECK:
            table = self._drop_index(table, table.index(gone.name))
        self._change(table)

    def validate_constraint(self, name: str, constraint: str) -> None:
        """Have rows from before a constraint fulfil it, too; those of a check, the caller has looked at."""
        table = self._take(name)
        found = table.constraint(constraint)
        if found.kind not in (CHECK, FOREIGN_KEY):
            raise SchemaError(f"table {table.name}: {found.name} is a {found.kind}, which is valid anyhow")
        if found.valid:
            return
        valid = replace(found, valid=True)
        table = self._keys.replace_constraint(table, found, valid)
        if valid.kind == FOREIGN_KEY:
            self._keys.check_whole(table, valid)

    def create_index(self, table: str, new: NewIndex) -> None:
        """Add an index, filled with the rows that the session sees."""
        self._indexes.create(self._take(table), new)

    def drop_index(self, name: str) -> None:
        table, index = self._take_index(name)
        if any(one.name == index.name and one.kind in (PRIMARY_KEY, UNIQUE) for one in table.constraints):
            raise SchemaError(f"index {name} keeps a constraint of table {table.name}; drop the constraint instead")
        self._change(self._drop_index(table, index))

    def _drop_index(self, table: TableDefinition, index: IndexDefinition) -> TableDefinition:
        self._take_names(table, [index])
        self._system.remove_index(index)
        self._session.drop_segment(index.obj_id, self._segment(index.entry_page))
        indexes = tuple(other for other in table.indexes if other is not index)
        if any(n >= len(table.columns) for n in index.positions):
            table = replace(table, expressions=table.used_expressions(indexes))
            self._system.change_table(table)
        return replace(table, indexes=indexes)

    def rename_index(self, name: str, new_name: str) -> None:
        """A constraint that the index keeps is renamed with it, for they have one name.

        ``new_name``: within the schema, in which the index stays.
        """
        self._rename_index(*self._take_index(name), new_name)

    def _take_index(self, name: str) -> tuple[TableDefinition, IndexDefinition]:
        """Take the table of an index alone; returns both as they are then."""
        found, _ = self._catalog.index(name, self._session)
        self._take(found.name)
        return self._catalog.index(name, self._session)

    def rename_constraint(self, name: str, constraint: str, new_name: str) -> None:
        table = self._take(name)
        old = table.constraint(constraint)
        if old.kind in (PRIMARY_KEY, UNIQUE):
            self._rename_index(table, table.index(old.name), new_name)
            return
        self._require_new_constraint(table, new_name)
        renamed = replace(old, name=new_name)
        table = replace(table, constraints=tuple(renamed if one is old else one for one in table.constraints))
        self._system.change_constraint(table, renamed, old.name)
        self._change(table)

    def _rename_index(self, table: TableDefinition, index: IndexDefinition, new_name: str) -> None:
        if index.building:
            raise SchemaError(f"index {index.name} is being built; rename it when it is there")
        self._indexes.take_new_name(table.schema, new_name)
        self._take_names(table, [index])
        new = replace(index, name=new_name)
        table = replace(table, indexes=tuple(new if one is index else one for one in table.indexes))
        self._system.change_index(new)
        for one in table.constraints:
            if one.name == index.name and one.kind in (PRIMARY_KEY, UNIQUE):
                self._require_new_constraint(table, new_name)
                kept = replace(one, name=new_name)
                table = replace(
                    table, constraints=tuple(kept if other is one else other for other in table.constraints)
                )
                self._system.change_constraint(table, kept, one.name)
        self._change(table)

    def _require_new_constraint(self, table: TableDefinition, name: str) -> None:
        require_name("constraint", name)
        if any(other.name.lower() == name.lower() for other in table.constraints):
            raise SchemaError(f"table {table.name} has a constraint {name} already")

    # ---- shared parts

    def _take(self, name: str, is_sequence: bool = False) -> TableDefinition:
        table = self._indexes.take(name, is_sequence)
        self._catalog.require_checked(table, self._session)
        return table

    def _change(self, table: TableDefinition) -> None:
        before = self._catalog.tables_of(self._session).get(table.name)
        self._views.require_unaffected(before, table)
        if table.feed is not None and (before is None or before.row_shape != table.row_shape):
            table = self._with_version(table)
            self._system.change_table(table)
        elif before is not None and table.feed is not None:
            table = replace(table, feed=before.feed)  # the caller may not know of a version that a step before made
        self._session.change_definitions({table.number: table})

    def _take_new_name(self, name: str) -> tuple[str, str]:
        """Lock a name that something is to have; returns its schema, and the full name."""
        schema, name = self.schemas.place_for(name)
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
        return schema, name

    def _take_names(
        self, table: TableDefinition | ViewDefinition, indexes: Sequence[IndexDefinition], is_own: bool = False
    ) -> None:
        """Lock names of indexes of a table: no other session can give them to anything before the transaction has
        ended.  ``is_own``: and the table's own name."""
        if is_own:
            self._session.take_alone(Name("table", table.name.lower()))
        for index in indexes:
            self._session.take_alone(Name("index", full_name(table.schema, index.name).lower()))

    def _with_counter(self, column: Column) -> Column:
        if not column.identity:
            return replace(column, identity_id=0)
        number = self._catalog.new_number()
        self._catalog.counters.create(number, counting_of(column).start)
        return replace(column, identity_id=number)

    def _with_lobs(self, table: TableDefinition) -> TableDefinition:
        """The table with a segment for its large objects, if it has columns for those and none yet."""
        if table.lobs is not None or not any(column.type.may_be_apart for column in table.columns):
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
