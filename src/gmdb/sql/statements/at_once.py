"""Changing rows that are found by keys *at once*.

While the guard is held nothing can come between finding rows and changing them, so no snapshot is needed.  Where that
does not do, nothing is changed and the slow path follows: a wait or more room is needed, there are many rows, or an
error must be reported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gmdb.errors import DataError, Error
from gmdb.sql import tree
from gmdb.sql.plan.paths import Access
from gmdb.sql.rows.point import point_of
from gmdb.sql.rows.row_program import FAILURES_MAX
from gmdb.tables.access.keyed import Unread

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.rows import Quick
    from gmdb.sql.run import Parameters
    from gmdb.tables.access.heap import Heap

FoundRow = tuple[Any, ...]  # a row's id, and the values that the statement needs of it
_row_id = itemgetter(0)
NOT_DONE = -1  # instead of a number of rows


class _Partly(Exception):
    """Some rows were changed, and the next one cannot be: take back to the mark what was done."""

    def __init__(self, mark: int) -> None:
        super().__init__()
        self.mark = mark


def change_at_once(
    heap: Heap, program: Quick, patch_of: Callable[[FoundRow], bytes], is_single: bool, uses_time: bool
) -> Callable[[Parameters], int]:
    """A function that returns how many rows it has changed, or NOT_DONE; for a transaction that is open already.

    ``program`` finds rows, each with its id and what ``patch_of`` asks for; empty patches delete.  ``is_single``: it
    finds one row at most.
    """
    session, store, find, change = heap.session, heap.segment.store, program.work, heap.try_change_at_once
    busy, under_guard = session.busy, store.under_guard

    def work(parameters: Parameters, now: datetime | None) -> int | None:
        """None: ``program.prepare`` must be called first."""
        if not session.plain:
            return NOT_DONE
        rows = find(parameters, now)
        if not rows:
            return None if rows is None else 0
        if len(rows) > 1:
            return change_all(rows)
        row = rows[0]
        return 1 if change(row[0], patch_of(row)) >= 0 else NOT_DONE

    def change_all(rows: list[FoundRow]) -> int:
        if len(set(map(_row_id, rows))) < len(rows):
            rows = each_once(rows)
        mark = session.mark()
        done = heap.try_changes_at_once(zip(map(_row_id, rows), map(patch_of, rows), strict=False))
        if done < len(rows):
            raise _Partly(mark)
        return done

    def change_one(parameters: Parameters, now: datetime | None) -> int | None:
        """A single call of a kernel, which signals cannot break."""
        return under_guard(busy, work, parameters, now)

    def change_several(parameters: Parameters, now: datetime | None) -> int | None:
        with busy, session.held:
            try:
                return under_guard(busy, work, parameters, now)
            except _Partly as partly:
                session.take_back_to(partly.mark)
                return NOT_DONE

    try_change, failures = change_one if is_single else change_several, 0

    def run(parameters: Parameters) -> int:
        nonlocal failures
        if failures > FAILURES_MAX:
            return NOT_DONE
        now = datetime.now(UTC) if uses_time else None
        try:
            count = try_change(parameters, now)
            if count is None and program.prepare():
                count = try_change(parameters, now)
        except DataError:  # the slow path reports it, if it is one
            return NOT_DONE
        except Unread:
            failures += 1
            return NOT_DONE
        failures = 0
        if store.scans:
            store.give_way()
        return NOT_DONE if count is None else count

    return run


def change_point(
    connection: Connection,
    relation: tree.Relation,
    names: Sequence[str],
    new_values: Callable[[Sequence[Any], Parameters], Sequence[Any]],
) -> Callable[[Parameters], int] | None:
    """``change_at_once`` of the row of a key, in two calls of kernels; None if there is no such way.

    Nobody holds the guard between the two: the second refuses if anything has changed since the first.
    ``relation`` has the row's id and then what ``new_values`` are made of; without ``names`` the row is deleted.
    """
    change: Callable[[int, Sequence[Any]], int]

    def follow(heap: Heap) -> None:
        nonlocal change
        change = heap.changer_as_read(names)

    point = point_of(connection, relation, follow)
    if point is None:
        return None
    read, store = point.read, point.session.hub.store

    def run(parameters: Parameters) -> int:
        try:
            row = read(parameters)
            if not row:
                return NOT_DONE if row is None else 0
            if change(row[0], new_values(row[1], parameters)) < 0:
                return NOT_DONE
            if store.scans:
                store.give_way()
            return 1
        except Error:  # by the definition that the point goes by, which may not be that of now
            return NOT_DONE

    return run


def each_once(several: Iterable[FoundRow]) -> list[FoundRow]:
    """Rows without those that were joined with several others, but for the first."""
    rows: dict[Any, FoundRow] = {}
    for row in several:
        rows.setdefault(row[0], row)
    return list(rows.values())


def finds_one(relation: tree.Relation) -> bool:
    """Whether there is at most one row, by its key."""
    if isinstance(relation, tree.Project | tree.Filter):
        return finds_one(relation.source)
    if isinstance(relation, tree.Join):
        return relation.kind in ("semi", "anti") and finds_one(relation.left)
    return isinstance(relation, Access) and relation.path.is_single
