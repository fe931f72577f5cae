"""The catalog of an open database: its tables, as committed and as a session sees them.

Invariants
 1. ``tables`` are the committed definitions.  What a transaction changes is in its session until it commits, and comes
    here in the moment in which others see the commit.
 2. Definitions of before are kept for as long as a snapshot is held that is older than what came instead of them.
 3. All of these are replaced, never changed: iterating over them needs no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from gmdb.errors import (
    NoSuchIndex,
    NoSuchSchema,
    NoSuchSequence,
    NoSuchTable,
    SchemaError,
    SnapshotTooOld,
    WriteConflict,
)
from gmdb.format.columns import Column
from gmdb.process.hooks import Hook
from gmdb.process.late_dataclasses import replace
from gmdb.storage.store import PageStore
from gmdb.tables.access.generated import GeneratedColumns, Generation
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.counters import Counters, Counting, counting_of
from gmdb.tables.catalog.definition_documents import reading_catalog, require_sense
from gmdb.tables.catalog.foreign_keys import ForeignKeyChecks, watch_of
from gmdb.tables.catalog.names import PUBLIC, TEMPORARY, full_name, is_temporary, parts_of
from gmdb.tables.catalog.schema import FIRST_USER_ID, SchemaDefinition, TableDefinition
from gmdb.tables.catalog.system import Statistics, Streams, SystemTables, open_system_tables
from gmdb.tables.catalog.view_definitions import ViewDefinition, no_table_but_a_view, require_sound_views
from gmdb.transaction.session import Session
from gmdb.transaction.table_locks import Changes

Definition = TableDefinition | ViewDefinition | SchemaDefinition
Kind = TypeVar("Kind", TableDefinition, ViewDefinition, SchemaDefinition)


class _Version(NamedTuple):
    """All definitions, as they are from a commit on."""

    since: int
    by_number: Mapping[int, Definition]


def _require_table(table: TableDefinition) -> None:
    if table.sequence:
        raise SchemaError(f"{table.name} is a sequence, not a table")


def _as_given(table: TableDefinition, values: Sequence[Any], changes: Mapping[str, Any]) -> Mapping[str, Any]:
    """Changes of a row, while nobody knows what the table asks of its rows beyond keys."""
    del table, values
    return changes


def _no_generation(table: TableDefinition) -> Generation:
    """How generated columns come about, while nobody knows what expressions mean."""
    raise SchemaError(f"table {table.name}: nobody is here who computes its generated columns")


def _no_default(table: TableDefinition, column: str) -> Any:
    """The default of a column, while nobody knows what expressions mean."""
    raise SchemaError(f"table {table.name}, column {column}: nobody is here who evaluates its default")


def _keys_of_rows(
    heap: Heap, positions: Sequence[int], pages: Any, check: Callable[[], None], form: Any
) -> Iterator[tuple[Any, ...]]:
    """The values of some columns in the rows of some pages, a row at a time."""
    for page_id in pages.tolist():
        rows = heap.encoded_rows_of_page(page_id, form)
        check()
        for _, row in rows:
            values = heap.plain_decode(row)
            yield tuple(values[n] for n in positions)


class Catalog:
    """Table definitions, in memory as they are in the system tables."""

    def __init__(self, store: PageStore, session: Session) -> None:
        """``session`` is the catalog's own, for changes outside of users' transactions."""
        self.store = store
        self._snapshots = session.hub.snapshots
        self._before: tuple[_Version, ...] = ()  # what older snapshots see, oldest first
        self.complete_change = Hook(_as_given)
        self.default_of = Hook(_no_default)
        self.generation_of = Hook(_no_generation)
        self.keys_of_rows = Hook(_keys_of_rows)
        self._numbering = threading.Lock()
        with reading_catalog():
            self._system_tables = open_system_tables(store, session)
            system = self.system(session)
            tables = system.definitions()
            schemas = system.schemas()
            require_sense(store, tables, schemas)
            views = system.views()
            require_sound_views(views, tables, schemas)
            lock = threading.Lock()
            self.counters = Counters(system, session, lock)
            self.statistics = Statistics(system, session, lock)
            self.streams = Streams(system, session, lock)
        self._use((*tables, *views, *schemas), 0)
        if not store.read_only:
            self.statistics.forget_all_but(self._now.by_number)
            columns = (column for table in self.tables.values() for column in table.columns)
            sequences = (table.counts.counter for table in self.tables.values() if table.sequence)
            self.counters.forget_all_but(chain((column.identity_id for column in columns), sequences))
        session.hub.publish_definitions.connect(self.publish)

    def _use(self, definitions: Iterable[Definition], since: int) -> None:
        by_number = {one.number: one for one in definitions}
        self.tables: Mapping[str, TableDefinition] = _by_name(TableDefinition, by_number.values())
        self.lasting = {name: one for name, one in self.tables.items() if not is_temporary(one.schema)}
        self.views: Mapping[str, ViewDefinition] = _by_name(ViewDefinition, by_number.values())
        self.lasting_views = _of_session(self.views, None)
        self.schemas: Mapping[str, SchemaDefinition] = _by_name(SchemaDefinition, by_number.values())
        self._now = _Version(since, by_number)
        self._tables_now = {table.number: table for table in self.tables.values()}

    def publish(self, changes: Changes, scn: int) -> None:
        """A transaction has committed: let new snapshots see its changes.  The guard is held."""
        committed = {number: table and _as_of(table, scn) for number, table in changes.items()}
        versions = [version for version in (*self._before, self._now) if version.since < scn]
        ends = [*(version.since for version in versions[1:]), scn]
        oldest = self._snapshots.oldest()
        self._before = tuple(version for version, end in zip(versions, ends, strict=True) if end > oldest)
        now = {**self._now.by_number, **committed}
        self._use((table for table in now.values() if table is not None), scn)

    def _as_of(self, scn: int) -> Mapping[int, Definition]:
        """The definitions by their numbers, as a snapshot sees them that is held."""
        now = self._now
        if scn >= now.since:
            return now.by_number
        for version in reversed(self._before):
            if scn >= version.since:
                return version.by_number
        raise SnapshotTooOld("the snapshot is too old: the definitions it needs were given up; start over")

    def replace(self, table: TableDefinition) -> None:
        """Replace a definition for everyone at once; the caller has the table alone."""
        with self.store.guard:
            self._use({**self._now.by_number, table.number: table}.values(), self._now.since)

    def new_number(self) -> int:
        """A new number for a table, an index or a counter.  It is never used again."""
        with self._numbering:
            number = int(self.store.control["next_obj_id"])
            self.store.write_control(next_obj_id=number + 1)
            return number

    def numbers_used(self) -> int:
        """The largest number in use."""
        tables = self.tables.values()
        indexes = [index.obj_id for table in tables for index in table.indexes]
        lobs = [table.lobs.obj_id for table in tables if table.lobs is not None]
        feeds = [max(table.feed) for table in tables if table.feed is not None]
        views = [view.number for view in self.views.values()]
        schemas = [schema.number for schema in self.schemas.values()]
        others = [*indexes, *lobs, *feeds, *views, *schemas, *self.counters.numbers()]
        return max([table.obj_id for table in tables] + others)

    def system(self, session: Session) -> SystemTables:
        return SystemTables(self.store, session, self._system_tables)

    # ---- tables and indexes, as a session sees them

    def tables_of(self, session: Session | None) -> Mapping[str, TableDefinition]:
        """All tables by name, but for other sessions' temporary ones; without a session, those that are committed."""
        others = self._seen(session)
        if session is None or (others is None and not session.temporary_schema):
            return self.lasting
        if others is None:
            if session.tables_known[0] is not self.tables:
                session.tables_known = self.tables, _of_session(self.tables, session)
            return session.tables_known[1]
        return _of_session(_by_name(TableDefinition, others), session)

    def views_of(self, session: Session | None) -> Mapping[str, ViewDefinition]:
        """All views by name, but for other sessions' temporary ones; without a session, those that are committed."""
        others = self._seen(session)
        if others is None and (session is None or not session.temporary_schema):
            return self.lasting_views
        return _of_session(self.views if others is None else _by_name(ViewDefinition, others), session)

    def schemas_of(self, session: Session | None) -> Mapping[str, SchemaDefinition]:
        """All schemas that were created."""
        others = self._seen(session)
        return self.schemas if others is None else _by_name(SchemaDefinition, others)

    def schema(self, name: str, session: Session | None) -> SchemaDefinition:
        """A schema that was created."""
        schemas = self.schemas_of(session)
        for spelling in (name, name.lower()):
            if spelling in schemas:
                return schemas[spelling]
        raise NoSuchSchema(f"there is no schema {name}; the schemas are: {', '.join([PUBLIC, *sorted(schemas)])}")

    def temporary_schemas(self) -> set[str]:
        """The schemas of sessions that have temporary tables, views or sequences."""
        schemas = {*(one.schema for one in self.tables.values()), *(one.schema for one in self.views.values())}
        return set(filter(is_temporary, schemas))

    def parts_of(self, name: str, session: Session | None) -> tuple[str, str]:
        """The schema of a full name, which need not be that of anything, and the name within it."""
        schemas = set(self.schemas_of(session))
        if session is not None and session.temporary_schema:  # else names that begin with a dot seem to be in it
            schemas.add(session.temporary_schema)
        return parts_of(_known_as(name, session), schemas)

    def _seen(self, session: Session | None) -> Iterable[Definition | None] | None:
        """The definitions that a session goes by; None: those that are committed."""
        if session is None:
            return None
        changed, scn = session.definitions.now, session.definitions_scn
        if not changed and (scn is None or scn >= self._now.since):
            return None
        with self.store.guard:
            newest = self._now.by_number
            seen = newest if scn is None else self._as_of(scn)
            held = {number: newest[number] for number in session.tables_held if number in newest}
        return {**seen, **held, **changed}.values()

    def table(self, name: str, session: Session | None = None) -> TableDefinition:
        tables, name = self.tables_of(session), _known_as(name, session)
        for spelling in (name, name.lower()):
            if spelling in tables:
                return tables[spelling]
        views = self.views_of(session)
        for spelling in (name, name.lower()):
            if spelling in views:
                raise no_table_but_a_view(spelling)
        known = ", ".join(self.user_tables(session)) or "none yet"
        raise NoSuchTable(f"there is no table {name}; the tables are: {known}")

    def view(self, name: str, session: Session | None = None) -> ViewDefinition:
        views, name = self.views_of(session), _known_as(name, session)
        for spelling in (name, name.lower()):
            if spelling in views:
                return views[spelling]
        known = ", ".join(sorted(views)) or "none yet"
        raise NoSuchTable(f"there is no view {name}; the views are: {known}")

    def user_tables(self, session: Session | None = None) -> list[str]:
        tables = self.tables_of(session).items()
        return sorted(name for name, table in tables if table.obj_id >= FIRST_USER_ID and not table.sequence)

    def sequences(self, session: Session | None = None) -> list[str]:
        return sorted(name for name, table in self.tables_of(session).items() if table.sequence)

    def sequence(self, name: str, session: Session | None = None) -> TableDefinition:
        tables, name = self.tables_of(session), _known_as(name, session)
        found = tables.get(name) or tables.get(name.lower())
        if found is None or not found.sequence:
            known = ", ".join(self.sequences(session)) or "none yet"
            raise NoSuchSequence(f"there is no sequence {name}; the sequences are: {known}")
        return found

    def next_numbers(self, column: Column, count: int, session: Session) -> list[int]:
        """Numbers for a column; others get other ones, even if these are not used."""
        if column.identity is not None:
            return self.counters.take(column.identity_id, count, counting_of(column))
        return self.next_values(column.sequence, count, session)

    def next_values(self, sequence: str, count: int, session: Session) -> list[int]:
        """The next numbers of a sequence, of which the session knows the last."""
        definition = self.sequence(sequence, session)
        taken = self.counters.take(definition.counts.counter, count, Counting(*definition.counts.numbers))
        session.last_sequence, session.last_values[definition.number] = definition.number, taken[-1]
        return taken

    def user_table(self, name: str, session: Session, is_sequence: bool = False) -> TableDefinition:
        """A table, or a sequence, whose definition may be changed."""
        if is_sequence:
            return self.sequence(name, session)
        table = self.table(name, session)
        _require_table(table)
        if table.obj_id < FIRST_USER_ID:
            raise SchemaError(f"{table.name} is a system table; its definition cannot be changed")
        return table

    def index(self, name: str, session: Session | None = None) -> tuple[TableDefinition, IndexDefinition]:
        """An index and its table, by the index's full name."""
        name = _known_as(name, session)
        for table in self.tables_of(session).values():
            for index in table.indexes:
                if full_name(table.schema, index.name) == name:
                    return table, index
        raise NoSuchIndex(f"there is no index {name}")

    def current(self, table: TableDefinition, session: Session, scn: int | None = None) -> TableDefinition:
        """A table's definition as it is now, whatever its name is now; ``scn``: as a snapshot of then sees it.

        A transaction that has changed the table's rows uses the definition that it holds.
        """
        number, changed = table.number, session.definitions.now
        definition: Definition | None
        if number in changed:
            definition = changed[number]
        elif scn is None or number in session.tables_held:
            definition = self._now.by_number.get(number)
        else:
            definition = self._as_of(scn).get(number)
        if not isinstance(definition, TableDefinition):
            raise NoSuchTable(f"table {table.name} was dropped")
        return definition

    def require_seen(self, table: TableDefinition, session: Session) -> None:
        """Refuse to change a table whose definition has changed since the transaction's snapshot.

        ``table`` is what it is now, and the session holds it.
        """
        scn = session.held_scn
        if scn is None or table.number in session.definitions.now:
            return
        seen = self._as_of(scn).get(table.number)
        if isinstance(seen, TableDefinition) and (seen.obj_id, seen.columns) != (table.obj_id, table.columns):
            raise WriteConflict(
                f"the definition of table {table.name} was changed by another transaction since this one's snapshot; "
                "roll back and try again"
            )

    def heap(self, name: str, session: Session) -> Heap:
        """A table's rows, for a session."""
        table = self.table(name, session)
        _require_table(table)

        def definition(scn: int | None) -> TableDefinition:
            now = self.current(table, session, scn)
            if scn is None:
                self.require_seen(now, session)
            return now

        return Heap(self.store, session, definition, partial(watch_of, self, session), self.generated_of)

    def generated_of(self, table: TableDefinition) -> GeneratedColumns | None:
        """What computes the generated columns of a table; None if it has none."""
        if not table.expressions and all(column.generated is None for column in table.columns):
            return None
        return GeneratedColumns(table, self.generation_of)

    # ---- the newest state, for checks

    def newest(self, session: Session) -> Mapping[int, TableDefinition]:
        """All definitions as they are now, by number, whatever the session's snapshot: the same object if unchanged."""
        now, changed = self._tables_now, session.definitions.now
        if not changed:
            return now
        if session.definitions.merged is None or session.definitions.merged[0] is not now:
            tables = {n: one for n, one in {**now, **changed}.items() if isinstance(one, TableDefinition)}
            session.definitions.merged = now, tables
        return session.definitions.merged[1]

    def newest_heap(self, number: int, session: Session) -> Heap:
        """A table's rows for a session, by the newest definition."""

        def definition(scn: int | None) -> TableDefinition:
            table = self.newest(session).get(number)
            if table is None:
                raise NoSuchTable(f"table {number} was dropped")
            if scn is None:
                self.require_seen(table, session)
            return table

        return Heap(self.store, session, definition, partial(watch_of, self, session), self.generated_of)

    def require_checked(self, table: TableDefinition, session: Session) -> None:
        """Refuse to change the definition of a table of which something is yet to be checked."""
        if session.unchecked is not None and self.foreign_key_checks(session).concern(table.number):
            advice = "commit first"
            raise SchemaError(f"table {table.name} has changes that foreign keys are yet to check; {advice}")

    def foreign_key_checks(self, session: Session) -> ForeignKeyChecks:
        """What the session's transaction has yet to check."""
        checks = session.checks
        if checks is None:
            checks = session.checks = ForeignKeyChecks(self, session)
        if session.unchecked is None:
            checks.begin()
            session.unchecked = checks
        return checks


def _by_name(kind: type[Kind], definitions: Iterable[Definition | None]) -> Mapping[str, Kind]:
    return {one.name: one for one in definitions if isinstance(one, kind)}


def _of_session(definitions: Mapping[str, Kind], session: Session | None) -> Mapping[str, Kind]:
    """Definitions without other sessions' temporary ones."""
    own = "" if session is None else session.temporary_schema

    def is_known(one: Any) -> bool:
        return one.schema == own or not is_temporary(one.schema)

    if all(map(is_known, definitions.values())):
        return definitions
    return {name: one for name, one in definitions.items() if is_known(one)}


def _known_as(name: str, session: Session | None) -> str:
    """A full name in which a session's temporary schema is called by its number."""
    is_own = session is not None and session.temporary_schema and name.startswith(f"{TEMPORARY}.")
    return f"{session.temporary_schema}{name[len(TEMPORARY) :]}" if session is not None and is_own else name


def _as_of(table: Definition, scn: int) -> Definition:
    """A definition whose new indexes are as old as the commit."""
    if not isinstance(table, TableDefinition) or all(index.since >= 0 for index in table.indexes):
        return table
    return replace(table, indexes=tuple(replace(i, since=scn) if i.since < 0 else i for i in table.indexes))
