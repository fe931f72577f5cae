"""The catalog of an open database: its tables, as committed and as a session sees them.

Invariants
 1. ``tables`` are the committed definitions.  What a transaction changes is in its session until it commits, and comes
    here in the moment in which others see the commit.
 2. Definitions of before are kept for as long as a snapshot is held that is older than what came instead of them.
 3. All of these are replaced, never changed: iterating over them needs no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from gmdb.errors import NoSuchIndex, NoSuchTable, SchemaError, SnapshotTooOld, WriteConflict
from gmdb.process.late_dataclasses import replace
from gmdb.storage.store import PageStore
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.definition_documents import reading_catalog, require_sense
from gmdb.tables.catalog.schema import FIRST_USER_ID, TableDefinition
from gmdb.tables.catalog.system import Identities, Statistics, Streams, SystemTables, open_system_tables
from gmdb.tables.catalog.view_definitions import ViewDefinition, no_table_but_a_view, require_sound_views
from gmdb.transaction.session import Session
from gmdb.transaction.table_locks import Changes

Definition = TableDefinition | ViewDefinition


class _Version(NamedTuple):
    """All definitions, as they are from a commit on."""

    since: int
    by_number: Mapping[int, Definition]


class Catalog:
    """Table definitions, in memory as they are in the system tables."""

    def __init__(self, store: PageStore, session: Session) -> None:
        """``session`` is the catalog's own, for changes outside of users' transactions."""
        self.store = store
        self._snapshots = session.hub.snapshots
        self._before: tuple[_Version, ...] = ()  # what older snapshots see, oldest first
        self._numbering = threading.Lock()
        with reading_catalog():
            self._system_tables = open_system_tables(store, session)
            system = self.system(session)
            tables = system.definitions()
            require_sense(store, tables)
            views = system.views()
            require_sound_views(views, tables)
            lock = threading.Lock()
            self.identities = Identities(system, session, lock)
            self.statistics = Statistics(system, session, lock)
            self.streams = Streams(system, session, lock)
        self._use((*tables, *views), 0)
        if not store.read_only:
            self.statistics.forget_all_but(self._now.by_number)
            self.identities.forget_all_but(c.identity_id for t in self.tables.values() for c in t.columns)
        session.hub.publish_definitions.connect(self.publish)

    def _use(self, definitions: Iterable[Definition], since: int) -> None:
        by_number = {one.number: one for one in definitions}
        self.tables: Mapping[str, TableDefinition] = _tables(by_number.values())
        self.views: Mapping[str, ViewDefinition] = _views(by_number.values())
        self._now = _Version(since, by_number)

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
        return max([table.obj_id for table in tables] + indexes + lobs + feeds + views + self.identities.numbers())

    def system(self, session: Session) -> SystemTables:
        return SystemTables(self.store, session, self._system_tables)

    # ---- tables and indexes, as a session sees them

    def tables_of(self, session: Session | None) -> Mapping[str, TableDefinition]:
        """All tables by name; without a session, those that are committed."""
        others = self._seen(session)
        return self.tables if others is None else _tables(others)

    def views_of(self, session: Session | None) -> Mapping[str, ViewDefinition]:
        """All views by name; without a session, those that are committed."""
        others = self._seen(session)
        return self.views if others is None else _views(others)

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
        tables = self.tables_of(session)
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
        views = self.views_of(session)
        for spelling in (name, name.lower()):
            if spelling in views:
                return views[spelling]
        known = ", ".join(sorted(views)) or "none yet"
        raise NoSuchTable(f"there is no view {name}; the views are: {known}")

    def user_tables(self, session: Session | None = None) -> list[str]:
        return sorted(name for name, table in self.tables_of(session).items() if table.obj_id >= FIRST_USER_ID)

    def user_table(self, name: str, session: Session) -> TableDefinition:
        """A table whose definition may be changed."""
        table = self.table(name, session)
        if table.obj_id < FIRST_USER_ID:
            raise SchemaError(f"{table.name} is a system table; its definition cannot be changed")
        return table

    def index(self, name: str, session: Session | None = None) -> tuple[TableDefinition, IndexDefinition]:
        """An index and its table."""
        for table in self.tables_of(session).values():
            for index in table.indexes:
                if index.name == name:
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

        def definition(scn: int | None) -> TableDefinition:
            now = self.current(table, session, scn)
            if scn is None:
                self.require_seen(now, session)
            return now

        return Heap(self.store, session, definition)


def _tables(definitions: Iterable[Definition | None]) -> Mapping[str, TableDefinition]:
    return {one.name: one for one in definitions if isinstance(one, TableDefinition)}


def _views(definitions: Iterable[Definition | None]) -> Mapping[str, ViewDefinition]:
    return {one.name: one for one in definitions if isinstance(one, ViewDefinition)}


def _as_of(table: Definition, scn: int) -> Definition:
    """A definition whose new indexes are as old as the commit."""
    if isinstance(table, ViewDefinition) or all(index.since >= 0 for index in table.indexes):
        return table
    return replace(table, indexes=tuple(replace(i, since=scn) if i.since < 0 else i for i in table.indexes))
