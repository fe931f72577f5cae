"""Creating indexes: within a transaction, or while transactions go on."""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

from gmdb.errors import DatabaseClosed, Deadlock, LockTimeout, SchemaError, StorageError
from gmdb.format.columns import ColumnType
from gmdb.kernel.change.index_upkeep import INDEXES_MAX
from gmdb.process.late_dataclasses import replace
from gmdb.process.late_imports import numpy as np
from gmdb.storage.memory import numbers
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.index_build import Filling
from gmdb.tables.access.index_entries import INDEX_KINDS, Index
from gmdb.tables.access.indexes import HIDDEN, IndexDefinition, NewIndex, require_parts
from gmdb.tables.catalog.names import full_name
from gmdb.tables.catalog.schema import TableDefinition, free_name, require_name
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.gc import Ended
from gmdb.transaction.session import Session
from gmdb.transaction.table_locks import Name

# ---- Building an index while transactions go on.
#
# The table is held alone for two moments only.  In the first the index is made known as being built: from then on
# writers record what they would have done to it (SHADOW operations, in their undo), and a snapshot is taken, by
# which it is filled.  What they left is caught up with in rounds, until little is left; in the second moment the last
# of it is done, and the index is everyone's.  Between the two it is filled here, or gets leaves that others have made
# by the same snapshot, for which the table's pages are pinned meanwhile.
#
# Invariants
#  1. A transaction that changes the table either ended before the snapshot, or leaves shadow operations for all it
#      does.
#  2. Shadow operations are applied in the order of commits, and none is purged before: the snapshot is held until then.

FEW_RECORDS = 1000  # undo records that are left for the moment in which the table is held alone
ROUNDS_MAX = 20
MOMENT = 0.2  # seconds that a build which was given up waits for the table at a time


def _instead(type_: ColumnType) -> str:
    """What can be a key where values of a type cannot."""
    if type_.is_array:
        return "the elements, in rows of a table of their own"
    return "such as a hash of it, in a column of its own"


class IndexBuild:
    """An index that is being built.  Its ``session`` has the table alone."""

    def __init__(self, session: Session, heap: Heap, tree: Index, index: IndexDefinition) -> None:
        self.session = session
        self.index = index
        self._hub = session.hub
        self._table, self._table_id, self._name = heap.number, heap.obj_id, f"table {heap.name}"
        self._filling = Filling(tree, heap, index)
        with self._hub.guard:
            self._snapshot = self._hub.snapshots.take()

    @property
    def scn(self) -> int:
        """The newest commit that the snapshot sees by which the index is filled."""
        return self._snapshot.scn

    def let_others_in(self) -> None:
        """Let others use the table again."""
        self.session.share_instead(self._table)

    def fill(self) -> None:
        """Fill the index from the table, which others use again, and catch up with most of what they do."""
        self.let_others_in()
        self._filling.fill(numbers((self._snapshot.scn, -1, 0)))
        self._catch_up_with_most()

    def attach(self, leaves: Iterable[tuple[np.ndarray, int]]) -> int:
        """Let the index have leaves that were made by the snapshot, and catch up; returns their number of entries."""
        entries = self._filling.attach(leaves)
        self._catch_up_with_most()
        return entries

    def _catch_up_with_most(self) -> None:
        for _ in range(ROUNDS_MAX):
            if self._catch_up() < FEW_RECORDS:
                break

    def finish(self) -> None:
        """Catch up with the rest; the table is held alone from here to the end of the session's transaction."""
        self.session.take_alone(self._table, self._name)
        self._catch_up(is_alone=True)

    def _catch_up(self, is_alone: bool = False) -> int:
        """Apply shadow operations of transactions that have ended by now; returns how many undo records they had."""
        with self._hub.guard:
            self._snapshot.check()
            limit = self._hub.memory.scn if is_alone else self._known_limit()
            ended = self._ended(limit)
            following = self._hub.snapshots.take(limit)
        places = [place for one in sorted(ended, key=lambda one: one.scn) for place in one.undo[one.done :].tolist()]
        self._filling.catch_up(np.array(places, np.int64))
        with self._hub.guard:
            self._snapshot.check()
            self._snapshot.release()
            self._snapshot = following
        return len(places)

    def _known_limit(self) -> int:
        """Up to which commit all are known as ended: others see a commit a moment before.

        A session that has the table alone need not check: all that used it have ended and released it.
        """
        limit = self._hub.memory.scn
        for slot in self._hub.active:
            scn = int(self._hub.memory.transactions[slot]["scn"])
            if scn > 0:
                limit = min(limit, scn - 1)
        return max(limit, self._snapshot.scn)

    def _ended(self, limit: int) -> list[Ended]:
        """Transactions that used the table and committed after the snapshot, up to a commit."""
        history = self._hub.collector.history
        return [one for one in history if self._snapshot.scn < one.scn <= limit and self._table_id in one.tables]

    def give_up(self, hurry: threading.Event | None = None) -> None:
        """Remove an unfinished index that is not published any more, once its last writers have ended.

        If ``hurry`` is set, those are ended next.
        """
        if hurry is not None:
            self.session.lock_timeout = MOMENT
        with suppress(DatabaseClosed, StorageError):  # else recovery does it
            while self.session.in_transaction and not (hurry is not None and hurry.is_set()):
                try:
                    self.session.take_alone(self._table, self._name)
                except (LockTimeout, Deadlock):  # a session that waits for this one goes first as well
                    if hurry is not None:
                        hurry.wait(MOMENT)  # sessions behind in the queue go first
                    continue
                self.session.rollback()
        self.end()

    def end(self) -> None:
        with self._hub.guard:
            self._snapshot.release()
        self.session.close()


def shown(columns: Iterable[str]) -> str:
    """Columns and expressions of an index, for a message."""
    return ", ".join(column.removeprefix(HIDDEN) for column in columns)


def _in_name(column: str) -> str:
    """What stands for a column in an index's name; as in PostgreSQL, a function's name for a call of it."""
    if not column.startswith(HIDDEN):
        return column
    word = column.removeprefix(HIDDEN).partition("(")[0].lower()
    return word if word.isidentifier() else "expr"


# ---- Creating indexes: within a transaction, or while others go on.


class IndexMaking:
    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog = catalog
        self._session = session

    def names(self, schema: str) -> set[str]:
        """The names of all indexes of a schema, in small letters."""
        tables = self._catalog.tables_of(self._session).values()
        return {index.name.lower() for table in tables if table.schema == schema for index in table.indexes}

    def take(self, name: str, is_sequence: bool = False) -> TableDefinition:
        """Take a table, or a sequence, alone; returns its definition, as it is then."""
        while True:
            table = self._catalog.user_table(name, self._session, is_sequence)
            self._session.take_alone(table.number, f"table {table.name}")
            self._session.see_newest()
            now = self._catalog.current(table, self._session)
            self._catalog.require_seen(now, self._session)
            if now.name == table.name:
                return now

    def create(self, table: TableDefinition, new: NewIndex) -> TableDefinition:
        """Make an index of a table that the session has alone, with what it sees of it."""
        index, tree = self.plant(table, self._checked(table, new))
        session, heap = self._session, self._heap(table)
        with session.hub.guard:
            form = numbers((session.hub.memory.scn, session.slot, session.statement_number))
        Filling(tree, heap, index).fill(form)
        self._catalog.system(session).enter_index(index)
        table = replace(table, indexes=(*table.indexes, index))
        session.change_definitions({table.number: table})
        return table

    def plant(self, table: TableDefinition, index: IndexDefinition) -> tuple[IndexDefinition, Index]:
        """Give an index a segment without entries.  Snapshots from before the transaction's commit will not use it.

        Its own transaction may use an index of a table that it created: all rows are its own.
        """
        kind, obj_id = INDEX_KINDS[index.using], self._catalog.new_number()
        space = self._catalog.store.spaces[table.space_id]
        segment = self._session.create_segment(space, obj_id, index.name, kind.segment_type, 0)
        is_new = all(known.number != table.number for known in self._catalog.tables.values())
        since = ~(0 if is_new else self._session.hub.memory.scn)
        index = replace(index, obj_id=obj_id, table_id=table.obj_id, entry_page=segment.entry_page, since=since)
        return index, kind.create(segment, [table.stored[n] for n in index.positions], index)

    def _heap(self, table: TableDefinition) -> Heap:
        return Heap(self._catalog.store, self._session, lambda _: table)

    def _checked(self, table: TableDefinition, new: NewIndex) -> IndexDefinition:
        """The index with its columns' numbers, once it is known to be possible and its name is taken."""
        columns = (*new.columns, *new.included)
        new = new if new.name else replace(new, name=self._take_free_name(table, new))
        name = new.name
        require_name("index", name)
        if new.using not in INDEX_KINDS:
            kinds = " and ".join(INDEX_KINDS)
            raise SchemaError(f"index {name}: there is no kind {new.using!r} of index, only {kinds}")
        positions = tuple(table.position(column) for column in columns)
        index = replace(new.definition, positions=positions)
        require_parts(index)
        for n in positions:
            if not table.stored[n].type.may_be_key:
                raise SchemaError(
                    f"index {name}: column {table.stored[n].name} is a {table.stored[n].type}, which cannot be part "
                    f"of a key; keep what you search by, {_instead(table.stored[n].type)}"
                )
        if len(set(positions)) < len(positions):
            raise SchemaError(f"index {name}: a column is named twice in {shown(columns)}")
        if len(table.indexes) >= INDEXES_MAX:
            raise SchemaError(f"table {table.name} has {INDEXES_MAX} indexes already; it cannot have more")
        self.take_new_name(table.schema, name)
        return index

    def take_new_name(self, schema: str, name: str) -> None:
        """Lock a name for an index, which no other of the schema has."""
        require_name("index", name)
        self._session.take_alone(Name("index", full_name(schema, name).lower()))
        self._session.see_newest()
        if name.lower() in self.names(schema):
            raise SchemaError(f"there is an index {full_name(schema, name)} already")

    def _take_free_name(self, table: TableDefinition, new: NewIndex) -> str:
        """``t_a_b_idx``, with a number behind it if that is something else's name; no other session can take it."""
        columns = (*new.columns, *new.included)
        while True:
            name = free_name((table.own_name, *map(_in_name, columns), "idx"), self.names(table.schema))
            self._session.take_alone(Name("index", full_name(table.schema, name).lower()))
            self._session.see_newest()
            if name.lower() not in self.names(table.schema):
                return name

    # ---- while others go on: the session's transaction is for the index alone

    def begin(self, table_name: str, new: NewIndex) -> IndexBuild:
        """Create an index that is to be filled, and publish its definition."""
        table = self.take(table_name)
        index, tree = self.plant(table, self._checked(table, new))
        index = replace(index, since=0, building=True)
        build = IndexBuild(self._session, self._heap(table), tree, index)
        self._catalog.replace(replace(table, indexes=(*table.indexes, index)))
        return build

    def finish(self, build: IndexBuild) -> None:
        """The index is filled, and its table held alone: publish it."""
        table = next(one for one in self._catalog.tables.values() if build.index.obj_id in map(_number, one.indexes))
        self._catalog.system(self._session).enter_index(build.index)
        index = replace(build.index, building=False, since=self._session.hub.memory.scn)
        indexes = [index if other.obj_id == index.obj_id else other for other in table.indexes]
        self._session.change_definitions({table.number: replace(table, indexes=tuple(indexes))})
        self._session.commit()

    def abandon(self, build: IndexBuild) -> None:
        """The build has failed: remove the index's definition."""
        for table in self._catalog.tables.values():
            others = [i for i in table.indexes if not (i.building and i.obj_id == build.index.obj_id)]
            if len(others) < len(table.indexes):
                self._catalog.replace(replace(table, indexes=tuple(others)))


def _number(index: IndexDefinition) -> int:
    return index.obj_id
