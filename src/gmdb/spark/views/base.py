"""What all views of storage have in common: columns with their meanings, which of them are wanted, of which instant.

A view is planned without compiled kernels and read in tasks, as a table's rows are.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from gmdb.arrow.schema import arrow_type
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import NoSuchColumn, SchemaMismatch
from gmdb.inspect.listing import ListColumn
from gmdb.storage.pins import Pin

_SPARK_TYPES: dict[pa.DataType, DataType] = {
    pa.int32(): IntegerType(),
    pa.int64(): LongType(),
    pa.float64(): DoubleType(),
    pa.bool_(): BooleanType(),
    pa.string(): StringType(),
    pa.binary(): BinaryType(),
    pa.timestamp("us"): TimestampNTZType(),
}
INT, BIGINT, DOUBLE, BOOLEAN, STRING, BINARY, TIMESTAMP = _SPARK_TYPES
Values = Mapping[str, Any]  # the columns of a batch, those that nobody wants left out


@dataclass(frozen=True)
class ViewColumn:
    """A column of a view; ``meaning`` is what the documentation says of it."""

    name: str
    type: pa.DataType
    meaning: str

    @property
    def spark_type(self) -> DataType:
        return _SPARK_TYPES[self.type]


def view_columns(listed: Iterable[ListColumn]) -> tuple[ViewColumn, ...]:
    """The columns of a listing that the inspector makes, too."""
    return tuple(ViewColumn(column.name, arrow_type(column.type), column.meaning) for column in listed)


@dataclass(frozen=True)
class ViewRead:
    """What tasks read: some columns of a view, of a table's part of it or of all, at an instant."""

    path: Path
    pin: Pin | None
    table: TableDefinition | None
    wanted: tuple[str, ...]
    max_partition_bytes: int | None
    skips_damage: bool

    @property
    def instant(self) -> Pin:
        assert self.pin is not None, "the view is of no instant"
        return self.pin

    def wants(self, *names: str) -> bool:
        return not set(names).isdisjoint(self.wanted)


class View(ABC):
    """One way to look at a database's storage."""

    name: str
    columns: tuple[ViewColumn, ...]
    is_of_instant = True  # else it is of what the files have when they are read, and of no table

    @abstractmethod
    def partitions(self, read: ViewRead) -> Sequence[InputPartition]:
        """How to divide the work among tasks."""

    @abstractmethod
    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        """In a task: a partition's rows, some at a time, as the values of each column."""

    def choose(self, names: Sequence[str]) -> list[ViewColumn]:
        """Columns by their names, in any case, each once."""
        known = {column.name: column for column in self.columns}
        chosen: list[ViewColumn] = []
        for name in names:
            column = known.get(name.lower())
            if column is None:
                raise NoSuchColumn(f"view {self.name} has no column {name}; its columns are {', '.join(known)}")
            if column in chosen:
                raise SchemaMismatch(f"view {self.name}: column {column.name} is asked for twice")
            chosen.append(column)
        return chosen

    def spark_schema(self, names: Sequence[str]) -> StructType:
        columns = self.choose(names) if names else self.columns
        return StructType([StructField(column.name, column.spark_type) for column in columns])

    def columns_of_schema(self, schema: StructType) -> list[ViewColumn]:
        """The columns that a schema asks for; each must be of the view's type."""
        if not schema.fields:
            raise SchemaMismatch(f"view {self.name}: a schema without columns; name at least one of the view's")
        chosen = self.choose(schema.fieldNames())
        for field, column in zip(schema.fields, chosen, strict=True):
            if field.dataType != column.spark_type or not field.nullable:
                said = f"view {self.name}, column {column.name}: it is {column.spark_type.simpleString()}, may be NULL"
                raise SchemaMismatch(f"{said}, and the DataFrame's schema must say so; leave .schema() out")
        return chosen

    def table_of_columns(self) -> str:
        """The columns as a table of Markdown, for the documentation."""
        rows = [f"| `{c.name}` | {c.spark_type.simpleString()} | {c.meaning} |" for c in self.columns]
        return "\n".join(["| column | type | |", "|---|---|---|", *rows])


def record_batch(columns: Sequence[ViewColumn], names: Sequence[str], values: Values) -> pa.RecordBatch:
    """A batch of some columns, under the names that Spark has for them."""
    arrays = [_array(values[column.name], column.type) for column in columns]
    fields = [(name, column.type) for name, column in zip(names, columns, strict=True)]
    return pa.record_batch(arrays, schema=pa.schema(fields))


def _array(values: Any, type_: pa.DataType) -> pa.Array:
    if isinstance(values, pa.Array):
        return values
    return pa.array(values, type_)
