"""Changes out of the log as record batches: the rows' columns, and what became of them, when and by whom."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gmdb.arrow.buffers import ColumnBuffers, plan_columns
from gmdb.arrow.scan import row_id_texts
from gmdb.arrow.schema import stored_type
from gmdb.errors import Corruption
from gmdb.format.columns import Column
from gmdb.format.redo import ChangeOperation
from gmdb.kernel.feed import DECODING, SIZE_BITS, decode_rows, rows_before
from gmdb.log.changes import ChangeLog, Committed

BATCH_ROWS = 1 << 16
BATCH_BYTES = 16 << 20  # of rows in the log
SNAPSHOT = "snapshot"  # a row that was there when the feed began
OPERATIONS = {int(operation): operation.name.lower() for operation in ChangeOperation}
META_FIELDS = (
    pa.field("_op", pa.string(), nullable=False),
    pa.field("_scn", pa.int64(), nullable=False),
    pa.field("_sequence", pa.int64(), nullable=False),
    pa.field("_commit_time", pa.timestamp("us", tz="UTC"), nullable=False),
    pa.field("_rowid", pa.string()),
)
BEFORE = "_before_"
_ROWS = (ChangeOperation.INSERT, ChangeOperation.UPDATE, ChangeOperation.DELETE)


def feed_columns(columns: Sequence[Column]) -> list[Column]:
    """The columns that changes have: a large object's pages may be gone by the time that the log is read."""
    return [column for column in columns if not column.type.is_lob]


def change_schema(columns: Sequence[Column], before: bool) -> pa.Schema:
    """What a table's changes look like; rows may have been of an older definition, or none: all may be NULL."""
    fields = [pa.field(column.name, stored_type(column.type)) for column in feed_columns(columns)]
    old = [field.with_name(BEFORE + field.name) for field in fields] if before else []
    return pa.schema([*fields, *META_FIELDS, *old])


def change_batches(
    log: ChangeLog,
    committed: Committed,
    definition: Sequence[Column],
    before: bool,
    wanted: Sequence[Column] | None = None,
    positions: Sequence[int] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Changes of rows that are all of one definition.

    ``wanted``: their columns as another definition has them, at ``positions`` there; a column keeps its place, whatever
    it is called, and is NULL in rows from before it was there.
    """
    if wanted is None or positions is None:
        wanted = feed_columns(definition)
        positions = [n for n, column in enumerate(definition) if not column.type.is_lob]
    numbers = [n if n < len(definition) else None for n in positions]
    schema = change_schema(wanted, before)
    for part in divided(committed, BATCH_ROWS):
        yield _batch(log, part, definition, numbers, schema, before)


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


def _batch(
    log: ChangeLog,
    part: Committed,
    definition: Sequence[Column],
    numbers: Sequence[int | None],
    schema: pa.Schema,
    before: bool,
) -> pa.RecordBatch:
    count = len(part)
    rows = np.flatnonzero(np.isin(part.changes["operation"], _ROWS))
    changes = np.ascontiguousarray(part.changes[rows])
    data, offsets = log.rows(changes)
    columns = _spread(_decode(definition, numbers, data, offsets, schema), rows, count)
    old: list[pa.Array] = []
    if before:
        updated = np.flatnonzero(changes["operation"] == ChangeOperation.UPDATE)
        some = np.ascontiguousarray(changes[updated])
        earlier, places = _rows_before(some, data, offsets[updated])
        arrays = _decode(definition, numbers, earlier, places, schema)
        old = _spread(arrays, rows[updated], count)
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
    definition: Sequence[Column],
    numbers: Sequence[int | None],
    data: np.ndarray,
    offsets: np.ndarray,
    schema: pa.Schema,
) -> list[pa.Array]:
    """Columns of rows by their numbers; those without a number are NULL."""
    count, known = len(offsets), [n for n in numbers if n is not None]
    offsets = np.ascontiguousarray(offsets, np.int64)
    columns = definition[: max(known, default=-1) + 1]
    plan, form = plan_columns(columns), np.zeros(1, DECODING)
    buffers = {n: ColumnBuffers(plan[n], columns[n], count, len(data)) for n in known}
    form["columns"], form["column_count"] = plan.ctypes.data, len(plan)
    if known and decode_rows(form.ctypes.data, data.ctypes.data, offsets.ctypes.data, count) < 0:
        raise Corruption("a row in the log does not fit its table's definition")
    made = {n: buffer.array(count) for n, buffer in buffers.items()}
    return [pa.nulls(count, schema.field(k).type) if n is None else made[n] for k, n in enumerate(numbers)]


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
