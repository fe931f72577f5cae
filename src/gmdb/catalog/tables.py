"""The catalog of an open database: which tables there are, for everybody and for a session.

Invariants
 1. ``tables`` are the committed definitions.  What a transaction changes is in its session until it commits, and comes
    here in the moment in which it lets its tables go.
 2. ``tables`` is replaced, never changed: whoever goes through it needs no lock.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import replace

from gmdb.access.heap import Heap
from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.identities import Identities
from gmdb.catalog.schema import FIRST_USER_ID, TableDefinition
from gmdb.catalog.sense import reading_catalog, require_sense
from gmdb.catalog.statistics import Statistics
from gmdb.catalog.streams import Streams
from gmdb.catalog.system import SystemTables, open_system_tables
from gmdb.errors import NoSuchIndex, NoSuchTable, SchemaError
from gmdb.storage.store import PageStore
from gmdb.transaction.definitions import Changes
from gmdb.transaction.session import Session


class Catalog:
    """Table definitions, in memory as they are in the system tables."""

    def __init__(self, store: PageStore, session: Session) -> None:
        """``session`` is the catalog's own, for what is no transaction's."""
        self.store = store
        self._numbering = threading.Lock()
        with reading_catalog():
            self._system_tables = open_system_tables(store, session)
            system = self.system(session)
            tables = system.definitions()
            require_sense(store, tables)
        self._use(tables)
        lock = threading.Lock()
        self.identities = Identities(system, session, lock)
        self.statistics = Statistics(system, session, lock)
        self.streams = Streams(system, session, lock)
        if not store.read_only:
            self.statistics.forget_all_but(self._by_number)
            self.identities.forget_all_but(c.identity_id for t in self.tables.values() for c in t.columns)
        session.hub.publish_definitions = self.publish

    def _use(self, tables: Iterable[TableDefinition]) -> None:
        self._by_number = {table.number: table for table in tables}
        self.tables: Mapping[str, TableDefinition] = {table.name: table for table in self._by_number.values()}

    def publish(self, changes: Changes, scn: int) -> None:
        """A transaction has committed: what it changed is everybody's.  The guard is held."""
        made = {number: table and _as_of(table, scn) for number, table in changes.items()}
        self._use(table for table in {**self._by_number, **made}.values() if table is not None)

    def committed(self, sessions: Iterable[Session]) -> list[TableDefinition]:
        """The definitions as of the newest commit.  The guard is held.

        A transaction's commit counts from when it is on disk; its definitions come here when its session goes on.
        """
        now = dict(self._by_number)
        for session in sessions:
            if session.slot >= 0 and session.hub.memory.transactions[session.slot]["scn"] > 0:
                now |= {number: table for number, table in session.definitions.now.items() if table is not None}
                for number in [number for number, table in session.definitions.now.items() if table is None]:
                    now.pop(number, None)
        return list(now.values())

    def replace(self, table: TableDefinition) -> None:
        """Let everybody go by another definition at once; the caller has the table alone."""
        with self.store.guard:
            self._use({**self._by_number, table.number: table}.values())

    def new_number(self) -> int:
        """A number for a table, an index or a counter.  It is not used again, whatever comes of it."""
        with self._numbering:
            number = int(self.store.control["next_obj_id"])
            self.store.write_control(next_obj_id=number + 1)
            return number

    def numbers_used(self) -> int:
        """The largest number that something has."""
        tables = self.tables.values()
        indexes = [index.obj_id for table in tables for index in table.indexes]
        lobs = [table.lobs.obj_id for table in tables if table.lobs is not None]
        feeds = [max(table.feed) for table in tables if table.feed is not None]
        return max([table.obj_id for table in tables] + indexes + lobs + feeds + self.identities.numbers())

    def system(self, session: Session) -> SystemTables:
        return SystemTables(self.store, session, self._system_tables)

    # ---- what there is, as a session sees it

    def tables_of(self, session: Session | None) -> Mapping[str, TableDefinition]:
        """All tables by name; without a session, those that are committed."""
        changed = session.definitions.now if session is not None else None
        if not changed:
            return self.tables
        with self.store.guard:
            now = {**self._by_number, **changed}
        return {table.name: table for table in now.values() if table is not None}

    def table(self, name: str, session: Session | None = None) -> TableDefinition:
        tables = self.tables_of(session)
        for spelling in (name, name.lower()):
            if spelling in tables:
                return tables[spelling]
        known = ", ".join(self.user_tables(session)) or "none yet"
        raise NoSuchTable(f"there is no table {name}; the tables are: {known}")

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

    def current(self, table: TableDefinition, session: Session) -> TableDefinition:
        """A table's definition as it is now, whatever its name is now."""
        changed = session.definitions.now
        found: TableDefinition | None
        if table.number in changed:
            found = changed[table.number]
        else:
            found = self._by_number.get(table.number)
        if found is None:
            raise NoSuchTable(f"table {table.name} was dropped")
        return found

    def heap(self, name: str, session: Session) -> Heap:
        """A table's rows, for a session."""
        table = self.table(name, session)
        return Heap(self.store, session, lambda: self.current(table, session))


def _as_of(table: TableDefinition, scn: int) -> TableDefinition:
    """A definition whose new indexes are as old as the commit."""
    if all(index.since >= 0 for index in table.indexes):
        return table
    return replace(table, indexes=tuple(replace(i, since=scn) if i.since < 0 else i for i in table.indexes))
