"""Where a pipeline's rows come from: tables by their paths, listings; by a snapshot, or by the newest commit."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain, repeat
from typing import TYPE_CHECKING, Any, NoReturn

from gmdb.errors import SubqueryTooManyRows, ValueOutOfRange
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql.numbers import SERIES_MAX
from gmdb.sql.plan.paths import Access, parse_row_id
from gmdb.sql.statements.table_functions import read_listing
from gmdb.sql.tree import Input, Listing, Relation, Table
from gmdb.tables.access.fixed_rows import Split, fixed_split
from gmdb.tables.access.keyed import Probe
from gmdb.tables.access.lobs import Finish, finished
from gmdb.tables.arrow.arrow_types import python_columns
from gmdb.tables.arrow.scan import Scan

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.run import Run
    from gmdb.tables.access.heap import Heap
    from gmdb.tables.arrow.scan import Reading


# ---- What generated functions call while they run.

MISSING = object()  # the value of a scalar subquery before its first row


class Once:
    """A value that is computed when it is first needed, and cached."""

    __slots__ = ("_value", "_work")

    def __init__(self, work: Callable[[], Any]) -> None:
        self._work = work
        self._value: Any = MISSING

    def __call__(self) -> Any:
        if self._value is MISSING:
            self._value = self._work()
        return self._value


def limits(limit: int | None, offset: int | None) -> tuple[int, int]:
    """How many rows are returned, less than 0 for all, and how many are skipped before."""
    for name, value in (("LIMIT", limit), ("OFFSET", offset)):
        if value is not None and value < 0:
            raise ValueOutOfRange(f"{name} must not be negative, and is {value}")
    return -1 if limit is None else limit, offset or 0


def series(start: int | None, stop: int | None, step: int | None) -> Iterable[int]:
    if start is None or stop is None or step is None:
        return ()
    if step == 0:
        raise ValueOutOfRange("step size cannot equal zero")
    numbers = range(start, stop + (1 if step > 0 else -1), step)
    if (stop - start) // step >= SERIES_MAX:
        raise ValueOutOfRange(f"a series has at most {SERIES_MAX} numbers")
    return numbers


def points(*keys: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    """Each key once, without those of which a part is NULL or no value of its column."""
    return [key for key in dict.fromkeys(keys) if None not in key]


def too_many_rows() -> NoReturn:
    raise SubqueryTooManyRows("more than one row returned by a subquery used as an expression")


def is_in(key: Any, keys: set[Any]) -> bool | None:
    """``key IN (…)``; None is NULL."""
    if not keys:
        return False
    if key is None:
        return None
    return True if key in keys else None if None in keys else False


# ---- Where a pipeline's rows come from.

Read = Callable[..., Any]
_FIRST_PAGES, _MORE_PAGES = 2, 8  # of a scan's first step, and the factor to the next: the first rows come soon


@dataclass(frozen=True, eq=False)
class Source:
    """One place where a pipeline reads.

    ``kind``: one (the row of a whole key, or None), first (of a range, or None), some (the rows of a key), keys (of
    several), range, ranges, row_ids, scan, listing.  ``row_ids``: rows come with theirs, in pairs.  ``wanted``: the
    columns that are decoded.  ``shape``: how many columns the keys have (some, keys), or what the ranges have in
    common (first, range).
    """

    relation: Relation
    kind: str
    row_ids: bool
    wanted: list[int] | None
    shape: Any = None

    @property
    def table(self) -> Table:
        assert isinstance(self.relation, Access | Table)
        return self.relation.table if isinstance(self.relation, Access) else self.relation

    @property
    def is_by_key(self) -> bool:
        return self.kind in _BY_KEY

    @property
    def index_name(self) -> str:
        assert isinstance(self.relation, Access)
        assert self.relation.path.index is not None
        return self.relation.path.index.name

    @cached_property
    def decode(self) -> Callable[[bytes], tuple[Any, ...]]:
        """A function that decodes a row, the wanted columns only."""
        columns, wanted = self.table.definition.columns, self.wanted or ()
        if not wanted:
            nothing = (None,) * len(columns)
            return lambda _: nothing
        return RowCodec(columns, wanted=wanted).decode

    @cached_property
    def split(self) -> Split | None:
        """A function that decodes many rows at once, if the columns of the table allow it."""
        return fixed_split(self.table.definition.columns, self.wanted or (), self.row_ids)

    def _finish(self, heap: Heap, reading: Reading) -> Finish | None:
        """What puts large objects into rows that are decoded as Unfinished."""
        return heap.finisher(reading, self.wanted or ())

    def begin(self, run: Run, ending: list[Callable[[], None]]) -> Read:
        """A function that reads rows in a run; adds to ``ending`` what must be called when the run ends."""
        if isinstance(self.relation, Listing):
            rows: Sequence[tuple[Any, ...]] = _listed(run.connection, self.relation)
            return lambda: rows
        if isinstance(self.relation, Input):
            rows = run.inputs[self.relation.key]
            return lambda: rows
        heap = run.heap(self.table.definition)
        if self.kind in _BY_KEY:
            keyed = heap.by_seen(self.index_name)
            reading, finish = run.reading, self._finish(heap, run.reading)
            probe = keyed.probe(reading.scn, reading.form, reading.check, self.decode, self.row_ids, self.split, finish)
            ending.append(probe.close)
            return _BY_KEY[self.kind](probe, self.shape)
        if self.kind == "row_ids":
            return lambda values: self._at(heap, run.reading, values)
        return lambda: self._scan(heap, run.reading)

    def _at(self, heap: Heap, reading: Reading, values: Iterable[Any]) -> Iterator[Any]:
        decode, view = finished(self.decode, self._finish(heap, reading)), heap.view
        for row_id in dict.fromkeys(map(parse_row_id, values)):
            row = None if row_id is None else heap.encoded_row(row_id, reading.form, view)
            reading.check()
            if row is not None:
                yield (row_id, decode(row)) if self.row_ids else decode(row)

    def _scan(self, heap: Heap, reading: Reading) -> Iterator[Any]:
        """All rows, with None for columns other than those wanted."""
        wanted, segment, lobs = self.wanted or [], heap.segment, heap.definition.lobs
        pages, count = heap.page_ids(reading.check), _FIRST_PAGES
        while len(pages):
            some, pages = pages[:count], pages[count:]
            table = segment.store, heap.obj_id, heap.columns, wanted, some, segment.space.page_size
            for batch in Scan(*table, places=True, lobs=lobs).batches(reading):
                yield from self._rows_in(batch, wanted, len(heap.columns))
            heap.session.check_interrupted()
            count *= _MORE_PAGES

    def _rows_in(self, batch: pa.RecordBatch, wanted: Sequence[int], width: int) -> Iterable[Any]:
        columns = python_columns(batch)
        places = columns.pop()
        values: list[Iterable[Any]] = [repeat(None)] * width
        for n, column in zip(wanted, columns, strict=True):
            values[n] = column
        rows: Iterable[Any] = zip(*values, strict=False) if wanted else repeat((), len(places))
        if not self.row_ids:
            return rows
        return zip(map(RowId.from_place, places), rows, strict=False)


_BY_KEY: dict[str, Callable[[Probe, Any], Read]] = {
    "one": lambda probe, _: probe.one(),
    "first": lambda probe, shape: probe.first(shape),
    "some": lambda probe, columns: probe.some(columns),
    "range": lambda probe, shape: probe.between(shape),
    "ranges": lambda probe, _: probe.of_ranges(),
    "keys": lambda probe, columns: _of_keys(probe.some(columns)),
}


def _of_keys(some: Read) -> Read:
    return lambda keys: chain.from_iterable(map(some, keys))


def newest(connection: Connection, source: Source) -> Read:
    """A function that reads a table by the newest commit, while the guard is held."""
    keyed = connection.heap(source.table.definition.name).by(source.index_name)
    return _BY_KEY[source.kind](keyed.newest_probe(source.decode, source.row_ids, source.split), source.shape)


def _listed(connection: Connection, listing: Listing) -> list[tuple[Any, ...]]:
    batches = read_listing(connection, listing).to_batches()
    return [row for batch in batches for row in zip(*python_columns(batch), strict=True)]
