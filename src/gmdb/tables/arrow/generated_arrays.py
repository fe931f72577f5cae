"""Generated columns of record batches: computed, as those of single rows are (tables/access/generated.py)."""

from __future__ import annotations

from gmdb.errors import Error
from gmdb.format.columns import as_given
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.access.definition import Definition
from gmdb.tables.access.generated import GeneratedColumns
from gmdb.tables.arrow.arrow_types import arrow_type, fit_batch, python_columns


def completed(
    generated: GeneratedColumns, table: Definition, batch: pa.RecordBatch, first_row: int = 0
) -> pa.RecordBatch:
    """Rows with their generated columns, which they may have already, or have NULL in, or lack."""
    columns, names = table.stored, batch.schema.names
    if len(set(names)) != len(names) or any(columns[n].name not in names for n in generated.bases):
        return batch  # fitting it raises what is wrong
    bases = {columns[n].name: n for n in sorted(generated.bases)}
    fitted = pa.RecordBatch.from_arrays(
        fit_batch(table.name, [columns[n] for n in bases.values()], batch.select(list(bases)), first_row), list(bases)
    )
    values = dict(zip(bases.values(), python_columns(fitted), strict=True))
    rows: list[list[object]] = [[None] * len(columns) for _ in range(len(batch))]
    for n, column in values.items():
        for row, value in zip(rows, column, strict=True):
            row[n] = value
    computed = []
    for number, row in enumerate(rows):
        try:
            computed.append(generated.computed(row))
        except Error as error:
            raise type(error)(f"row {first_row + number}: {error}") from None
    for place, n in enumerate(generated.generation.bases):
        made = [row[place] for row in computed]
        name, type_ = columns[n].name, arrow_type(columns[n].type)
        if name in names and batch.column(name).null_count < len(batch):
            arrays = fit_batch(table.name, as_given([columns[n]]), batch.select([name]), first_row)
            (known,) = python_columns(pa.RecordBatch.from_arrays(arrays, [name]))
            for number, (value, new) in enumerate(zip(known, made, strict=True)):
                generated.require_same(n, value, new, f"row {first_row + number}: ")
        array = pa.array(made, type_)
        at = names.index(name) if name in names else None
        batch = batch.append_column(name, array) if at is None else batch.set_column(at, name, array)
    return batch


def with_unused(table: Definition, batch: pa.RecordBatch) -> pa.RecordBatch:
    """Rows with what stands for expressions that no index is on any more."""
    for column in table.stored[len(table.columns) :]:
        if column.generated is None:
            batch = batch.append_column(column.name, pa.nulls(len(batch), arrow_type(column.type)))
    return batch
