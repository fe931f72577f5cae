"""Rows that have large objects, inserted and updated: values that do not stay in the row go to pages first.

BLOB and CLOB values do if they are long.  So do TEXT and BYTEA values, and shorter ones if the row has no room for
them, but for those that an index needs in the row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from gmdb.format.address import RowId
from gmdb.format.heap import row_size_max
from gmdb.format.key_program import columns_compared
from gmdb.kernel.runtime.status import CHANGED, ROW_TOO_LARGE

if TYPE_CHECKING:
    from gmdb.tables.access.heap import Heap
    from gmdb.tables.access.lobs import Lobs
    from gmdb.transaction.session import Session

Values = Sequence[Any] | Mapping[str, Any]


@contextmanager
def all_or_nothing(session: Session) -> Iterator[None]:
    """Roll back what is done within, in a statement or as one of its own, if it fails."""
    if not session.depth:
        with session.statement():
            yield
        return
    mark = session.mark()
    try:
        yield
    except BaseException:
        session.take_back_to(mark)
        raise


def insert_with_lobs(heap: Heap, values: Sequence[Any]) -> RowId:
    """Insert a row of a table that has large objects, some of which may be long."""
    lobs = _lobs(heap)
    if len(values) != len(heap.stored):
        return heap.insert_row(values)  # which raises what is wrong
    values = lobs.checked(values)
    if not lobs.has_long(values) and not _is_too_large(heap, values):
        return heap.insert_row(values)
    with all_or_nothing(heap.session):
        return heap.insert_row(_kept_row(heap, values))


def _lobs(heap: Heap) -> Lobs:
    assert heap.lobs is not None
    return heap.lobs


def _is_too_large(heap: Heap, values: Sequence[Any]) -> bool:
    return len(heap.encode(values)) > row_size_max(heap.segment.space.page_size)


def _kept_row(heap: Heap, values: Sequence[Any]) -> list[Any]:
    """A row's values, with long ones on pages, and with as many others as it takes to have room for the rest."""
    lobs, stored = _lobs(heap), list(values)
    for n in lobs.positions:
        stored[n] = lobs.keep(heap.columns[n], stored[n])
    kept = indexed(heap)
    others = [n for n in lobs.positions if heap.columns[n].name not in kept and isinstance(stored[n], str | bytes)]
    others.sort(key=lambda n: len(stored[n]))
    while others and _is_too_large(heap, stored):
        n = others.pop()
        name = heap.columns[n].name
        stored[n] = lobs.spilled({name: stored[n]}, ())[name]
    return stored


def indexed(heap: Heap) -> set[str]:
    """The columns that are needed in the row: those of an index's key, or of its condition, and of foreign keys."""
    needed = {n for index in heap.indexes for n in index.positions}
    for index in heap.indexes:
        if index.program is not None:
            needed |= columns_compared(index.program_bytes)
    if heap.watch is not None:
        needed.update(heap.watch.columns)
        needed.update(n for foreign_key in heap.watch.foreign_keys for n in foreign_key.positions)
    return {heap.stored[n].name for n in needed}


def kept_values(heap: Heap, values: Values, spill: bool = False) -> Values:
    """New values of a row, all or some by name, with long ones on pages, within a statement; with ``spill``, also
    others, since the row has no room for them."""
    lobs = _lobs(heap)
    if not isinstance(values, Mapping):
        if len(values) != len(heap.stored):
            return values  # encoding them raises what is wrong
        values = dict(zip((column.name for column in heap.stored), values, strict=True))
    known = lobs.columns
    kept = {name: lobs.keep(known[name], value) if name in known else value for name, value in values.items()}
    return lobs.spilled(kept, indexed(heap)) if spill else kept


def try_update_with_lobs(heap: Heap, row_id: RowId, values: Values) -> int:
    """``Heap.try_update`` of a table that has large objects."""
    values = _lobs(heap).checked(values)
    if not _lobs(heap).has_long(values):
        status = heap.try_patch((row_id, heap.encode_patch(values)))
        if status != ROW_TOO_LARGE:
            return status
    return try_update_apart(heap, row_id, values)


def try_update_apart(heap: Heap, row_id: RowId, values: Values) -> int:
    """Update a row, with values on pages as far as need be; those that were stored in vain are removed."""
    session = heap.session
    is_own, mark = not session.depth, session.mark()
    with all_or_nothing(session):
        stored = kept_values(heap, values)
        while (status := _try(heap, row_id, stored)) == CHANGED and is_own:
            session.see_newest()
        if is_own:
            heap.refuse_if_failed(status, row_id)
    if status < 0:
        session.take_back_to(mark)
    return status


def _try(heap: Heap, row_id: RowId, stored: Values) -> int:
    status = heap.try_patch((row_id, heap.encode_patch(stored)))
    if status != ROW_TOO_LARGE:
        return status
    new = dict(cast("Mapping[str, Any]", kept_values(heap, stored, spill=True)))
    status = heap.try_patch((row_id, heap.encode_patch(new)))
    others = _others(heap, row_id, new) if status == ROW_TOO_LARGE else []
    while others and status == ROW_TOO_LARGE:
        new |= others.pop(0)()
        status = heap.try_patch((row_id, heap.encode_patch(new)))
    return status


def _others(heap: Heap, row_id: RowId, new: Mapping[str, Any]) -> list[Callable[[], Mapping[str, Any]]]:
    """What puts values that a row keeps, but for those of the columns ``new``, to pages; the longest first."""
    lobs, row, kept = _lobs(heap), heap.as_it_is(row_id), {*new, *indexed(heap)}
    values = [] if row is None else [(heap.columns[n].name, row[n]) for n in lobs.positions]
    texts = [(name, value) for name, value in values if lobs.may_spill(name, value, kept)]
    texts.sort(key=lambda one: len(one[1]), reverse=True)
    return [partial(lobs.spilled, {name: value}, ()) for name, value in texts]
