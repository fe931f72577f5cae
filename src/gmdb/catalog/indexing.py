"""Indexes that come into being: within a transaction, or while others go on (building.py)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from gmdb.access.heap import Heap
from gmdb.access.index_build import Filling
from gmdb.access.index_entries import INDEX_KINDS, Index
from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.building import IndexBuild
from gmdb.catalog.schema import TableDefinition, require_name
from gmdb.catalog.tables import Catalog
from gmdb.errors import SchemaError
from gmdb.kernel.indexing import INDEXES_MAX
from gmdb.transaction.session import Session


class Name(NamedTuple):
    """A name that is given to something, or taken away: sessions lock it."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"the name {self.name} of a {self.kind}"


class IndexMaking:
    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog = catalog
        self._session = session

    def names(self) -> set[str]:
        """The names of all indexes, in small letters."""
        tables = self._catalog.tables_of(self._session).values()
        return {index.name.lower() for table in tables for index in table.indexes}

    def take(self, name: str) -> TableDefinition:
        """Have a table alone; answers what it is then."""
        while True:
            table = self._catalog.user_table(name, self._session)
            self._session.take_alone(table.number, f"table {table.name}")
            self._session.see_newest()
            now = self._catalog.current(table, self._session)
            self._catalog.require_seen(now, self._session)
            if now.name == table.name:
                return now

    def create(
        self, table: TableDefinition, name: str, columns: Sequence[str], unique: bool, using: str
    ) -> TableDefinition:
        """Make an index of a table that the session has alone, with what it sees of it."""
        positions = self._check(table, name, columns, using)
        index, tree = self.plant(table, name, positions, unique, using)
        session, heap = self._session, self._heap(table)
        with session.hub.guard:
            form = np.array([session.hub.memory.scn, session.slot, session.statement_number], np.int64)
        Filling(tree, heap, name).fill(form)
        self._catalog.system(session).enter_index(index)
        table = replace(table, indexes=(*table.indexes, index))
        session.change_definitions({table.number: table})
        return table

    def plant(
        self, table: TableDefinition, name: str, positions: Sequence[int], unique: bool, using: str
    ) -> tuple[IndexDefinition, Index]:
        """Make an index without entries.  Snapshots from before the transaction's commit will not go by it.

        Its own transaction goes by an index of a table as new as that at once: all rows are its own.
        """
        kind, obj_id = INDEX_KINDS[using], self._catalog.new_number()
        space = self._catalog.store.spaces[table.space_id]
        segment = self._session.create_segment(space, obj_id, name, kind.segment_type, 0)
        tree = kind.create(segment, [table.columns[n] for n in positions], positions, unique)
        place = (obj_id, table.obj_id, segment.entry_page)
        is_new = all(known.number != table.number for known in self._catalog.tables.values())
        since = ~(0 if is_new else self._session.hub.memory.scn)
        return IndexDefinition(name, *place, unique, tuple(positions), since=since, using=using), tree

    def _heap(self, table: TableDefinition) -> Heap:
        return Heap(self._catalog.store, self._session, lambda _: table)

    def _check(self, table: TableDefinition, name: str, columns: Sequence[str], using: str) -> list[int]:
        """The columns' numbers, once the index is known to be possible and its name is taken."""
        require_name("index", name)
        if using not in INDEX_KINDS:
            raise SchemaError(f"index {name}: there is no kind {using!r} of index, only {' and '.join(INDEX_KINDS)}")
        positions = [table.position(column) for column in columns]
        for n in positions:
            if table.columns[n].type.is_lob:
                raise SchemaError(
                    f"index {name}: column {table.columns[n].name} is a {table.columns[n].type}, which cannot be part "
                    "of a key; keep what you search by, such as a hash of it, in a column of its own"
                )
        if len(set(positions)) < len(positions):
            raise SchemaError(f"index {name}: a column is named twice in {', '.join(columns)}")
        if len(table.indexes) >= INDEXES_MAX:
            raise SchemaError(f"table {table.name} has {INDEXES_MAX} indexes already; it cannot have more")
        self._session.take_alone(Name("index", name.lower()))
        self._session.see_newest()
        if name.lower() in self.names():
            raise SchemaError(f"there is an index {name} already")
        return positions

    # ---- while others go on: the session's transaction is for the index alone

    def begin(self, name: str, table_name: str, columns: Sequence[str], unique: bool, using: str) -> IndexBuild:
        """Make an index that is to be filled, and let everybody know."""
        table = self.take(table_name)
        positions = self._check(table, name, columns, using)
        index, tree = self.plant(table, name, positions, unique, using)
        index = replace(index, since=0, building=True)
        build = IndexBuild(self._session, self._heap(table), tree, index)
        self._catalog.replace(replace(table, indexes=(*table.indexes, index)))
        return build

    def finish(self, build: IndexBuild) -> None:
        """The index is filled, and its table held alone: make it everyone's."""
        table, _ = self._catalog.index(build.index.name)
        self._catalog.system(self._session).enter_index(build.index)
        made = replace(build.index, building=False, since=self._session.hub.memory.scn)
        indexes = [made if other.obj_id == made.obj_id else other for other in table.indexes]
        self._session.change_definitions({table.number: replace(table, indexes=tuple(indexes))})
        self._session.commit()

    def abandon(self, build: IndexBuild) -> None:
        """The build has failed: the index is nobody's."""
        for table in self._catalog.tables.values():
            left = [i for i in table.indexes if not (i.building and i.obj_id == build.index.obj_id)]
            if len(left) < len(table.indexes):
                self._catalog.replace(replace(table, indexes=tuple(left)))
