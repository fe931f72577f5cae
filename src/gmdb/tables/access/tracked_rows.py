"""What serializable transactions read and change of a table, as marks that can be compared (transaction/marks.py).

A row is known by its place and by its keys in the table's indexes, a read by its row ids or the keys that it looks for:
so a row that comes into a range, or leaves it, is found though nobody has read it.  An index whose order may not be
that of its columns' values, since it or a column has options, has no keys here: reading by it is reading the table.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.errors import ValueTooLong
from gmdb.format.address import RowId, place_of
from gmdb.format.columns import Column
from gmdb.format.key_program import columns_compared
from gmdb.format.options import options_of
from gmdb.format.row import decode_row
from gmdb.kernel.change.dml import delete_row, fetch_row
from gmdb.kernel.runtime.call import BLOCKED
from gmdb.kernel.runtime.status import CHANGED, DUPLICATE
from gmdb.storage.memory import address_of, numbers
from gmdb.tables.access.indexes import IndexDefinition, KeyCodec, KeyRange
from gmdb.transaction.marks import Key, Positions, Span

if TYPE_CHECKING:
    from gmdb.tables.access.heap import Heap

_SAME_KEYS = {
    "comment",
    "included",
    "condition",
    "program",
    "nulls_distinct",
}  # options of indexes that change no key, nor its place
_SAME_VALUES = {"comment", "number", "generated"}  # of columns
_NAN, _NULL = (1,), (2,)  # above all other values, in this order; these have a 0 before them
_ALREADY_THERE = (
    "the key in index {} belongs to a row that another transaction has brought since this one's snapshot; "
    "roll back and start over"
)
Values = Sequence[Any]
UniqueKeys = set[tuple[Positions, Key]]


def sortable(values: Values) -> Key:
    """Values of key columns, which sort as in an index, and are equal as there."""
    return tuple(_NULL if value is None else _NAN if value != value else (0, value) for value in values)


def has_keys(index: IndexDefinition, columns: Sequence[Column]) -> bool:
    """Whether the index's keys are its columns' values, in their order; perhaps of some of the rows only."""
    is_usual = options_of(index).keys() <= _SAME_KEYS
    return is_usual and all(options_of(columns[n]).keys() <= _SAME_VALUES for n in index.key)


# ---- Keys of rows, and of reads.


class RowKeys:
    """The keys of a table's rows, by one definition of it."""

    def __init__(self, columns: Sequence[Column], indexes: Sequence[IndexDefinition]) -> None:
        known = [index for index in indexes if has_keys(index, columns)]
        self._positions = {index.key for index in known}
        self._unique = {(index.key, _entry_columns(index), index.nulls_distinct) for index in indexes if index.unique}

    def of(self, *rows: Values | None) -> dict[Positions, set[Key]]:
        """The keys of a row's versions; None is a version without a row."""
        there = [row for row in rows if row is not None]
        return {positions: {_key(row, positions) for row in there} for positions in self._positions}

    def unique(self, before: Values | None, after: Values | None) -> tuple[UniqueKeys, UniqueKeys]:
        """The keys that no other row may have: those that a row gives up, and those that it takes."""
        freed, taken = UniqueKeys(), UniqueKeys()
        for positions, columns, nulls_distinct in self._unique:
            if before is not None and after is not None and _key(before, columns) == _key(after, columns):
                continue
            for row, keys in ((before, freed), (after, taken)):
                if row is not None and not (nulls_distinct and any(row[n] is None for n in positions)):
                    keys.add((positions, _key(row, positions)))
        return freed, taken


def _entry_columns(index: IndexDefinition) -> Positions:
    """The columns that say whether a row has an entry in the index, and by which key."""
    if index.program is None:
        return index.key
    return tuple(dict.fromkeys((*index.key, *sorted(columns_compared(index.program_bytes)))))


def _key(row: Values, positions: Positions) -> Key:
    return sortable([row[n] for n in positions])


class SpanMaker:
    """Makes marks out of what is looked up in one index."""

    def __init__(self, index: IndexDefinition, columns: Sequence[Column]) -> None:
        """``columns``: the table's."""
        self._positions = index.key if has_keys(index, columns) else None
        self._codec = KeyCodec([columns[n] for n in index.key])

    def span(self, keys: KeyRange) -> Span | None:
        """None: it cannot be told which keys these are."""
        if self._positions is None:
            return None
        try:
            low, high = self._stored(keys.low), self._stored(keys.high)
        except ValueTooLong:  # no row has such a key, but rows may be above or below it
            return None
        return Span(self._positions, low, high, keys.low_open, keys.high_open)

    def _stored(self, key: Values) -> Key:
        """A key as rows would have it: a value is told in several ways."""
        return sortable(self._codec.decode(self._codec.encode(key), len(key))) if len(key) else ()


# ---- Reads and changes of a heap, in a transaction that is tracked.


def note_row_read(heap: Heap, place: int) -> None:
    """The row at a place was read, or is about to be, whether it is there or not."""
    tracked = heap.tracked
    if tracked is not None:
        tracked.read_row(heap.number, place)


def note_range_read(heap: Heap, spans: SpanMaker, keys: KeyRange) -> None:
    """``keys`` of an index were looked up, or are about to be."""
    tracked = heap.tracked
    if tracked is None:
        return
    span = spans.span(keys)
    if span is None:
        tracked.read_all(heap.number)
    else:
        tracked.read_span(heap.number, span)


def note_all_read(heap: Heap) -> None:
    tracked = heap.tracked
    if tracked is not None:
        tracked.read_all(heap.number)


def change_tracked(
    heap: Heap,
    change: Callable[[], int],
    kernel: Callable[..., int],
    row_id: RowId | None,
    refuse: Callable[[int], None],
) -> int:
    """Change a row by ``change``, which runs the kernel, within a statement, and note what that did.

    ``refuse`` raises the error of a row whose key is there already.
    """
    session = heap.session
    before = None if row_id is None else _own_version(heap, place_of(*row_id))
    result = change()
    if result == DUPLICATE:
        refuse(result)
    if result < 0:
        if row_id is not None and result != CHANGED:
            note_row_read(heap, place_of(*row_id))
        return result
    place = result if row_id is None else place_of(*row_id)
    after = None if kernel is delete_row else _own_version(heap, place)
    keys = heap.row_keys
    freed, taken = keys.unique(before, after)
    with session.hub.guard:
        session.track().write_row(heap.number, place, keys.of(before, after), freed, taken)
    return result


def _own_version(heap: Heap, place: int) -> tuple[Any, ...] | None:
    """A row as the statement sees it, with all that it has done so far."""
    store = heap.segment.store
    with store.guard:
        store.require_open()
        size = store.call(fetch_row, 0, heap.target, 0, place)
        return _decoded(heap, heap.fetched(size)) if size > 0 else None


def _decoded(heap: Heap, row: bytes) -> tuple[Any, ...]:
    """All that a row has, expressions that indexes are on as well."""
    return heap.plain_decode(row) if heap.stored is heap.columns else decode_row(heap.stored, row)


def require_seen_duplicate(heap: Heap, index: IndexDefinition) -> None:
    """A row's key was refused since another row has it: that may be told only if the snapshot knows that row by it."""
    tracked = heap.tracked
    if tracked is None:
        return
    place, store, session = heap.session.call[BLOCKED], heap.segment.store, heap.session
    seen = _own_version(heap, place)
    newest = numbers((session.hub.memory.scn, session.slot, session.statement_number))
    with store.guard:
        size = store.call(fetch_row, 0, heap.target, address_of(newest), place)
        now = _decoded(heap, heap.fetched(size)) if size > 0 else None
    tracked.read_row(heap.number, place)
    columns = _entry_columns(index)
    if seen is None or now is None or _key(seen, columns) != _key(now, columns):
        tracked.fail(_ALREADY_THERE.format(index.name))
