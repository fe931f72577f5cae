"""Arrow's values as Python has them."""

from __future__ import annotations

from typing import Any

from gmdb.errors import DataError
from gmdb.late import pyarrow as pa


def python_columns(batch: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """The values of each column; DataError if one is none that Python knows.

    A text that is no UTF-8, or a date before the year 1, can only come out of files that others have written.
    """
    made = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            made.append(column.to_pylist())
        except (ValueError, OverflowError) as error:
            raise DataError(f"column {name} has a value that Python cannot have: {error}") from error
    return made
