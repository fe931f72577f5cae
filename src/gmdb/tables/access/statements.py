"""Statements over the rows that meet a condition: update, delete, select for update.

The rows are collected first, then changed: a statement never meets its own changes.  Under read committed a
statement that had to wait for a row which then changed starts over on a new snapshot; from the second time on it
locks its rows before it changes them and keeps the locks, so that it comes to an end.

The condition and the changes are functions of the program, and run where it runs; the steps are the heap's, which
may be in another process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from gmdb.errors import InterfaceError, RowLocked
from gmdb.format.address import RowId
from gmdb.kernel.runtime.status import CHANGED, DELETED, NOT_FOUND
from gmdb.tables.access.lob_files import rereadable

if TYPE_CHECKING:
    from gmdb.tables.access.batches import Change
    from gmdb.tables.access.heap import Heap
    from gmdb.tables.access.indexes import KeyRange
    from gmdb.transaction.snapshots import Snapshot


# ---- The steps of a statement over many rows: find them, lock or change them, start over.
#
# Which rows, and what becomes of them, is the caller's to say; the caller may be in another process
# (server/), so nothing here calls its functions.
#
# Invariants
#  1. All rows of a round are found by one snapshot, before the first of them is changed.
#  2. A row that is not as the snapshot shows it raises RowChanged; after ``start_over`` the statement has changed
#     nothing, but keeps the rows that it locked.

Changes = Sequence[Any] | Mapping[str, Any]
ROWS_A_CALL = 256  # that a kernel changes: a millisecond of work


class RowChanged(Exception):
    """A row is not as the statement's snapshot shows it: start over."""


class Steps:
    """A statement that is running, on a heap of this process."""

    done = 0  # rows that the last ``update`` or ``change_all`` has changed: the next one is that which it failed at

    def __init__(self, heap: Heap, snapshot: Snapshot, first: Steps | None = None) -> None:
        """``first``: those of the same statement with which it began, on another heap."""
        self._heap = heap
        self._session = heap.session
        self._snapshot = snapshot
        self._first = self if first is None else first
        self._mark = heap.session.mark()

    def on(self, heap: Heap) -> Steps:
        """The steps of the same statement on another heap of its session."""
        return Steps(heap, self._snapshot, self._first)

    @property
    def scn(self) -> int:
        """The instant of the statement's snapshot."""
        return self._snapshot.scn

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """Every row that the snapshot sees."""
        decode = self._heap.decoder(self._snapshot)
        return ((row_id, decode(row)) for page in self.encoded_pages() for row_id, row in page)

    def encoded_pages(self) -> Iterator[list[tuple[RowId, bytes]]]:
        """Every row that the snapshot sees, as its bytes, a page at a time."""
        form = self._session.form_of(self._snapshot)
        for page_id in self._heap.page_ids(self._snapshot.check).tolist():
            yield self._heap.encoded_rows_of_page(page_id, form)
            self._snapshot.check()
            self._session.check_interrupted()

    def rows_by(self, index: str, keys: KeyRange) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows of a range of an index's keys that the snapshot sees."""
        return self._heap.by(index).walk_by(keys, self._snapshot, self._session.form_of(self._snapshot))

    def rows_at(self, row_ids: Iterable[RowId]) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows with some row ids, if the snapshot sees them."""
        form, decode = self._session.form_of(self._snapshot), self._heap.decoder(self._snapshot)
        for row_id in row_ids:
            row = self._heap.encoded_row(row_id, form)
            self._snapshot.check()
            self._session.check_interrupted()
            if row is not None:
                yield row_id, decode(row)

    def update(self, changes: Iterable[tuple[RowId, Changes]]) -> None:
        self.done = 0
        for row_id, values in changes:
            self._require(self._heap.try_update(row_id, values), row_id)
            self.done += 1

    def delete(self, row_ids: Iterable[RowId]) -> None:
        self.change_all((row_id, b"") for row_id in row_ids)

    def change_all(self, changes: Iterable[Change]) -> None:
        """Change rows, many in one call; of a table without large objects, unless they are all deleted."""
        self.done, remaining = 0, iter(changes)
        while some := list(islice(remaining, ROWS_A_CALL)):
            while some:
                count = self._heap.change_some(some)
                if not count:
                    self._require(self._heap.try_change(some[0]), some[0][0])
                    count = 1
                self.done += count
                del some[:count]

    def lock(self, row_ids: Iterable[RowId], nowait: bool = False, skip_locked: bool = False) -> set[RowId]:
        """Lock the rows against other writers; returns those that were skipped because others hold them."""
        skipped = set()
        for row_id in row_ids:
            try:
                self._require(self._heap.try_lock(row_id, nowait or skip_locked), row_id)
                self._first._mark = self._session.mark()  # from here on the lock stays if the statement starts over
            except RowLocked:
                if not skip_locked:
                    raise
                skipped.add(row_id)
        return skipped

    def lock_until_restart(self, row_ids: Iterable[RowId]) -> None:
        """``lock``, behind changes that are taken back if the statement starts over, and the locks with them."""
        mark = self._first._mark
        self.lock(row_ids)
        self._first._mark = mark

    def _require(self, status: int, row_id: RowId) -> None:
        if status in (CHANGED, DELETED, NOT_FOUND):
            raise RowChanged(f"row {row_id} of table {self._heap.name} was changed while the statement ran")
        self._heap.refuse_if_failed(status, row_id)

    def start_over(self, changed: RowChanged) -> None:
        """Take back what was done, and see what was committed meanwhile."""
        if self._session.hub.memory.scn == self._snapshot.scn:  # nothing was committed meanwhile: it would fail again
            store = self._session.hub.store
            if store.damaged_page():  # an earlier change may be there still, which could not be taken back
                raise store.damage_of(store.damaged_page()) from None
            raise InterfaceError(f"{changed}, by the statement's own function") from None
        self._session.take_back_to(self._first._mark)
        self._session.start_over(self._snapshot)


# ---- Statements over the rows that meet a condition.

Row = dict[str, Any]
Found = list[tuple[RowId, Row]]
Condition = Callable[[Row], bool] | None
LOCK_FIRST_FROM = 2


def update_where(heap: Heap, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]], where: Condition) -> int:
    """Change the rows that meet the condition; ``changes`` may be computed from a row.  Returns their number."""

    new_values = changes if callable(changes) else rereadable(changes)

    def act(steps: Steps, rows: Found) -> None:
        steps.update((row_id, new_values(row) if callable(new_values) else new_values) for row_id, row in rows)

    return len(_run(heap, where, act))


def delete_where(heap: Heap, where: Condition) -> int:
    """Delete the rows that meet the condition; returns their number."""
    if where is None:
        heap = heap.wanting(())
    return len(_run(heap, where, lambda steps, rows: steps.delete(row_id for row_id, _ in rows)))


def select_for_update(
    heap: Heap, where: Condition, nowait: bool = False, skip_locked: bool = False
) -> list[tuple[RowId, Row]]:
    """Lock the rows that meet the condition until the transaction ends; returns them."""
    skipped: set[RowId] = set()

    def act(steps: Steps, rows: Found) -> None:
        skipped.update(steps.lock((row_id for row_id, _ in rows), nowait, skip_locked))

    rows = _run(heap, where, act)
    return [(row_id, row) for row_id, row in rows if row_id not in skipped]


def run_statement(heap: Heap, find: Callable[[Steps], list[Any]], act: Callable[[Steps, list[Any]], None]) -> list[Any]:
    """Find rows, each of which begins with its row id, and act on them, all or nothing; returns the rows."""
    with heap.statement() as steps:
        restarts = 0
        while True:
            rows = find(steps)
            try:
                if restarts >= LOCK_FIRST_FROM:
                    steps.lock(row[0] for row in rows)
                act(steps, rows)
                return rows
            except RowChanged as changed:
                steps.start_over(changed)
                restarts += 1


def _run(heap: Heap, where: Condition, act: Callable[[Steps, Found], None]) -> Found:
    return run_statement(heap, lambda steps: _matching(heap, steps, where), act)


def _matching(heap: Heap, steps: Steps, where: Condition) -> Found:
    names: Sequence[str] = [column.name for column in heap.columns]
    rows = []
    for row_id, values in steps.rows():
        row = dict(zip(names, values, strict=True))
        if where is None or where(row):
            rows.append((row_id, row))
    return rows
