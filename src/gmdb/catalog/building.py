"""Building an index while transactions go on.

The table is held alone for two moments only.  In the first the index is made known as being built: from then on writers
leave word of what they would have done to it (SHADOW operations, in their undo), and a snapshot is taken, by which it
is filled.  What they left is caught up with in rounds, until little is left; in the second moment the last of it is
done, and the index is everyone's.  Between the two it is filled here, or gets leaves that others have made by the same
snapshot, for which the table's pages are pinned meanwhile.

Invariants
 1. A transaction that changes the table either ended before the snapshot, or leaves shadow operations for all it does.
 2. Shadow operations are applied in the order of commits, and none is purged before: the snapshot is held until then.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from contextlib import suppress

import numpy as np

from gmdb.access.heap import Heap
from gmdb.access.index_build import Filling
from gmdb.access.index_entries import Index
from gmdb.access.indexes import IndexDefinition
from gmdb.errors import DatabaseClosed, Deadlock, LockTimeout, StorageError
from gmdb.transaction.gc import Ended
from gmdb.transaction.session import Session

FEW_RECORDS = 1000  # undo records that are left for the moment in which nobody else may use the table
ROUNDS_MAX = 20
MOMENT = 0.2  # seconds that a build which was given up waits for the table at a time


class IndexBuild:
    """An index on its way.  Whoever makes it has the table alone, in ``session``."""

    def __init__(self, session: Session, heap: Heap, tree: Index, index: IndexDefinition) -> None:
        self.session = session
        self.index = index
        self._hub = session.hub
        self._table, self._table_id, self._name = heap.number, heap.obj_id, f"table {heap.name}"
        self._filling = Filling(tree, heap, index.name)
        with self._hub.guard:
            self._snapshot = self._hub.snapshots.take()

    @property
    def scn(self) -> int:
        """The newest commit that the snapshot sees by which the index is filled."""
        return self._snapshot.scn

    def let_others_in(self) -> None:
        """From now on others use the table again."""
        self.session.share_instead(self._table)

    def fill(self) -> None:
        """Fill the index from the table, which others use again, and catch up with most of what they do."""
        self.let_others_in()
        self._filling.fill(np.array([self._snapshot.scn, -1, 0], np.int64))
        self._catch_up_with_most()

    def attach(self, leaves: Iterable[tuple[np.ndarray, int]]) -> int:
        """Let the index have leaves that were made by the snapshot, and catch up; answers their number of entries."""
        entries = self._filling.attach(leaves)
        self._catch_up_with_most()
        return entries

    def _catch_up_with_most(self) -> None:
        for _ in range(ROUNDS_MAX):
            if self._catch_up() < FEW_RECORDS:
                break

    def finish(self) -> None:
        """Catch up with the rest; nobody else uses the table from here to the end of the session's transaction."""
        self.session.take_alone(self._table, self._name)
        self._catch_up(is_alone=True)

    def _catch_up(self, is_alone: bool = False) -> int:
        """Do what transactions left that have ended by now; answers how many undo records those had."""
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

        Whoever has the table alone need not ask: who used it has ended, and let it go; others may take their time.
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
        """Take back what was made of an index that nobody is told of any more, once its last writers have ended.

        Whoever sets ``hurry`` ends them next.
        """
        if hurry is not None:
            self.session.lock_timeout = MOMENT
        with suppress(DatabaseClosed, StorageError):  # else recovery does it
            while self.session.in_transaction and not (hurry is not None and hurry.is_set()):
                try:
                    self.session.take_alone(self._table, self._name)
                except (LockTimeout, Deadlock):  # whoever waits for this one in turn goes first as well
                    if hurry is not None:
                        hurry.wait(MOMENT)  # whoever stands in line behind goes first
                    continue
                self.session.rollback()
        self.end()

    def end(self) -> None:
        with self._hub.guard:
            self._snapshot.release()
        self.session.close()
