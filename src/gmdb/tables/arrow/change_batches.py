"""Changes out of the log as record batches: the rows' columns, and what became of them, when and by whom.

Invariant: without the values before, an update leaves the columns alone by which its row is known.  One that changes
them comes as the deletion of the row as it was and the insertion of the row as it is, so that a reader with rows by
their keys loses none and keeps none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache

from gmdb.errors import Corruption, TableChanged
from gmdb.format.columns import Column
from gmdb.format.redo import ChangeOperation
from gmdb.format.row import MAX_COLUMNS
from gmdb.kernel.read.log_changes import DECODING, SIZE_BITS, decode_rows, find_updates, rows_before
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import compute as pc
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.log.committed_changes import ChangeLog, Committed
from gmdb.tables.arrow.array_columns import as_lists
from gmdb.tables.arrow.arrow_types import arrow_type
from gmdb.tables.arrow.scan import ColumnBuffers, plan_columns, row_id_texts
from gmdb.tables.catalog.schema import TableDefinition

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20  # of rows in the log
SNAPSHOT = "snapshot"  # a row that was there when the feed began
OPERATIONS = {int(operation): operation.name.lower() for operation in ChangeOperation}
BEFORE = "_before_"
_ROWS = (ChangeOperation.INSERT, ChangeOperation.UPDATE, ChangeOperation.DELETE)


@cache
def meta_fields() -> tuple[pa.Field, ...]:
    """The columns about a change beside the row's."""
    return (
        pa.field("_op", pa.string(), nullable=False),
        pa.field("_scn", pa.int64(), nullable=False),
        pa.field("_sequence", pa.int64(), nullable=False),
        pa.field("_commit_time", pa.timestamp("us", tz="UTC"), nullable=False),
        pa.field("_rowid", pa.string()),
    )


def feed_columns(columns: Sequence[Column]) -> list[Column]:
    """The columns that changes have: a large object's pages may be gone by the time that the log is read."""
    return [column for column in columns if not column.type.is_lob]


def change_schema(columns: Sequence[Column], before: bool) -> pa.Schema:
    """The schema of a table's changes; rows may be of an older definition, or missing: every column may be NULL."""
    fields = [pa.field(column.name, arrow_type(column.type)) for column in feed_columns(columns)]
    old = [field.with_name(BEFORE + field.name) for field in fields] if before else []
    return pa.schema([*fields, *meta_fields(), *old])


def change_batches(
    log: ChangeLog,
    committed: Committed,
    table: TableDefinition,
    before: bool,
    wanted: Sequence[Column] | None = None,
    numbers: Sequence[int] | None = None,
) -> Iterator[tuple[pa.RecordBatch, np.ndarray]]:
    """Changes of rows that are all of one definition; and of which of the changes each row of a batch is.

    ``wanted``: their columns as another definition has them, by the ``numbers`` there; a column keeps its number,
    whatever it is called, and is NULL in rows from before it was there or after it was dropped.
    """
    definition = table.columns
    if wanted is None or numbers is None:
        wanted = feed_columns(definition)
        numbers = [number for number, column in zip(table.numbers, definition, strict=True) if not column.type.is_lob]
    known = {number: n for n, number in enumerate(table.numbers)}
    positions = [known.get(number) for number in numbers]
    schema, done = change_schema(wanted, before), 0
    for part in divided(committed, BATCH_ROWS):
        rows = _Rows.of(log, part)
        places = np.arange(len(part))
        if not before:
            part, rows, places = _divide_updates(part, rows, rows.that_change(table))
        yield _batch(part, rows, definition, positions, schema, before), done + places
        done += int(places[-1]) + 1


def divided(committed: Committed, rows: int) -> Iterator[Committed]:
    """Changes in parts of some rows at most, and not too many bytes."""
    sizes = np.cumsum(committed.changes["size"].astype(np.int64) + np.abs(committed.changes["before_size"]))
    start = 0
    while start < len(committed):
        before = int(sizes[start - 1]) if start else 0
        fitting = int(np.searchsorted(sizes, before + BATCH_BYTES, "right"))
        end = min(max(fitting, start + 1), start + rows)
        yield committed.part(slice(start, end))
        start = end


@dataclass(frozen=True)
class _Rows:
    """The bytes of the rows that some changes are about."""

    places: np.ndarray  # which of the changes they are of: some have no row
    changes: np.ndarray  # these
    data: np.ndarray
    offsets: np.ndarray  # of each row in the data

    @classmethod
    def of(cls, log: ChangeLog, part: Committed) -> _Rows:
        places = np.flatnonzero(np.isin(part.changes["operation"], _ROWS))
        changes = np.ascontiguousarray(part.changes[places])
        return cls(places, changes, *log.rows(changes))

    def before(self, which: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Some of the rows as they were before: their bytes, and where each begins."""
        return _rows_before(np.ascontiguousarray(self.changes[which]), self.data, self.offsets[which])

    def that_change(self, table: TableDefinition) -> np.ndarray:
        """Which of the rows are updated ones that others know by something else from now on."""
        key, wanted = table.known_by, np.zeros(MAX_COLUMNS, np.uint8)
        wanted[list(key)] = 1
        is_found, offsets = np.zeros(len(self.changes), np.uint8), np.ascontiguousarray(self.offsets, np.int64)
        places = (self.data.ctypes.data, offsets.ctypes.data, wanted.ctypes.data, is_found.ctypes.data)
        find_updates(self.changes.ctypes.data, len(self.changes), *places)
        named = np.flatnonzero(is_found)  # they assign to it; what was there may be the same
        if not len(named):
            return named
        old = _decode(table.columns, key, *self.before(named))
        new = _decode(table.columns, key, self.data, self.offsets[named])
        differs = np.zeros(len(named), bool)
        for one, other in zip(old, new, strict=True):
            is_same = pc.fill_null(pc.equal(one, other), False)
            is_same = pc.or_(is_same, pc.and_(pc.is_null(one), pc.is_null(other)))
            differs |= ~is_same.to_numpy(zero_copy_only=False)
        return named[differs]


def _divide_updates(part: Committed, rows: _Rows, which: np.ndarray) -> tuple[Committed, _Rows, np.ndarray]:
    """Make a deletion and an insertion of some of the updated rows; and say which change each was."""
    places = np.arange(len(part))
    if not len(which):
        return part, rows, places
    old, old_offsets = rows.before(which)
    twice = np.ones(len(part), np.int64)
    twice[rows.places[which]] = 2
    places = np.repeat(places, twice)
    divided_part = part.part(places)
    deleted = np.cumsum(twice)[rows.places[which]] - 2
    divided_part.changes["operation"][deleted] = ChangeOperation.DELETE
    divided_part.changes["operation"][deleted + 1] = ChangeOperation.INSERT
    divided_part.sequence[deleted + 1] += 1  # an update has two numbers
    offsets = np.zeros(len(part), np.int64)
    offsets[rows.places] = rows.offsets
    offsets = offsets[places]
    offsets[deleted] = len(rows.data) + old_offsets
    is_row = np.flatnonzero(np.isin(divided_part.changes["operation"], _ROWS))
    divided_rows = _Rows(is_row, divided_part.changes[is_row], np.concatenate([rows.data, old]), offsets[is_row])
    return divided_part, divided_rows, places


def _batch(
    part: Committed,
    rows: _Rows,
    definition: Sequence[Column],
    positions: Sequence[int | None],
    schema: pa.Schema,
    before: bool,
) -> pa.RecordBatch:
    columns = _of_types(_values(definition, positions, rows.data, rows.offsets), schema)
    columns = _spread(columns, rows.places, len(part))
    old: list[pa.Array] = []
    if before:
        updated = np.flatnonzero(rows.changes["operation"] == ChangeOperation.UPDATE)
        arrays = _of_types(_values(definition, positions, *rows.before(updated)), schema)
        old = _spread(arrays, rows.places[updated], len(part))
    return pa.RecordBatch.from_arrays([*columns, *_meta(part), *old], schema=schema)


def _meta(part: Committed) -> list[pa.Array]:
    names = np.array([OPERATIONS.get(n, "") for n in range(max(OPERATIONS) + 1)], object)
    operations = pa.array(names[part.changes["operation"]], pa.string())
    is_row = np.isin(part.changes["operation"], _ROWS)
    return [
        operations,
        pa.array(np.ascontiguousarray(part.scn)),
        pa.array(part.sequence.astype(np.int64)),
        pa.array(np.ascontiguousarray(part.commits["time"]), pa.timestamp("us", tz="UTC")),
        pc.if_else(pa.array(is_row), row_id_texts(part.changes["place"]), pa.scalar(None, pa.string())),
    ]


def _decode(
    definition: Sequence[Column], positions: Sequence[int | None], data: np.ndarray, offsets: np.ndarray
) -> list[pa.Array]:
    """Columns of rows by their positions; those without a position are NULL, of no type."""
    count, known = len(offsets), [n for n in positions if n is not None]
    offsets = np.ascontiguousarray(offsets, np.int64)
    columns = definition[: max(known, default=-1) + 1]
    plan, form = plan_columns(columns), np.zeros(1, DECODING)
    buffers = {n: ColumnBuffers(plan[n], columns[n], count, len(data)) for n in known}
    form["columns"], form["column_count"] = plan.ctypes.data, len(plan)
    if known and decode_rows(form.ctypes.data, data.ctypes.data, offsets.ctypes.data, count) < 0:
        raise Corruption("a row in the log does not fit its table's definition")
    arrays = {n: buffer.array(count) for n, buffer in buffers.items()}
    return [pa.nulls(count) if n is None else arrays[n] for n in positions]


def _values(
    definition: Sequence[Column], positions: Sequence[int | None], data: np.ndarray, offsets: np.ndarray
) -> list[pa.Array]:
    """``_decode``, with lists instead of the cells of arrays."""
    return [
        array if n is None else as_lists([definition[n]], [array])[0]
        for n, array in zip(positions, _decode(definition, positions, data, offsets), strict=True)
    ]


def _of_types(arrays: list[pa.Array], schema: pa.Schema) -> list[pa.Array]:
    """Columns as they are wanted: NULLs where rows have none, other types where a column had another type."""
    return [_of_type(one, schema.field(n)) for n, one in enumerate(arrays)]


def _of_type(array: pa.Array, field: pa.Field) -> pa.Array:
    if array.type == field.type:
        return array
    if pa.types.is_null(array.type):
        return pa.nulls(len(array), field.type)
    try:
        return array.cast(field.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {field.name} has another type since: {array.type} instead of {field.type}"
        raise TableChanged(f"{message} ({error}); start the stream again to go on with it") from None


def _rows_before(changes: np.ndarray, data: np.ndarray, offsets: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    room = int(changes["size"].sum() + np.abs(changes["before_size"]).sum()) + (SIZE_BITS + 8) * len(changes)
    target, places = np.empty(max(room, 1), np.uint8), np.zeros(len(changes), np.int64)
    offsets = np.ascontiguousarray(offsets, np.int64)
    arguments = (changes.ctypes.data, len(changes), data.ctypes.data, offsets.ctypes.data)
    if rows_before(*arguments, target.ctypes.data, places.ctypes.data) < 0:
        raise Corruption("a row in the log was longer than a row can be")
    return target, places


def _spread(arrays: list[pa.Array], rows: np.ndarray, count: int) -> list[pa.Array]:
    """Put the rows' values in their places among changes of which some have no row."""
    if len(rows) == count:
        return arrays
    places = np.full(count, -1)
    places[rows] = np.arange(len(rows))
    chosen = pa.array(places, pa.int64(), mask=places < 0)
    return [array.take(chosen) for array in arrays]
