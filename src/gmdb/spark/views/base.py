"""What all views of storage have in common: columns with their meanings, which of them are wanted, of which instant.

A view is planned without compiled kernels and read in tasks, as a table's rows are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
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

from gmdb.errors import Corruption, NoSuchColumn, SchemaMismatch
from gmdb.format.address import NO_PAGE
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import TRANSACTIONS_ID, UNDO_ENTRY, UNDO_ID
from gmdb.inspect.listing import ListColumn
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.storage.pins import Pin
from gmdb.tables.arrow.arrow_types import arrow_type
from gmdb.tables.catalog.definition_documents import table_from_plain
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.pinned_files import PinnedFiles

# mypy: disallow-subclassing-any=False


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
Values = Mapping[str, Any]  # the columns of a batch, without those that are not wanted


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
                message = (
                    f"view {self.name}, column {column.name}: it is {column.spark_type.simpleString()}, may be NULL"
                )
                raise SchemaMismatch(f"{message}, and the DataFrame's schema must say so; leave .schema() out")
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


# ---- What pages belong to: tables, their indexes and large objects, and the undo log, as a pin has them.


@dataclass(frozen=True)
class StoredObject:
    """Something that has a segment."""

    obj_id: int
    name: str
    kind: str
    table: str | None
    entry_page: int


def tables_of(pin: Pin) -> list[TableDefinition]:
    return [table_from_plain(plain) for plain in pin.tables]


def objects_of(table: TableDefinition) -> Iterator[StoredObject]:
    """A table's segments."""
    yield StoredObject(table.obj_id, table.name, "table", table.name, table.entry_page)
    if table.lobs is not None:
        yield StoredObject(table.lobs.obj_id, table.name, "lobs", table.name, table.lobs.entry_page)
    for index in table.indexes:
        yield StoredObject(index.obj_id, index.name, f"{index.using} index", table.name, index.entry_page)


def object_names(pin: Pin) -> dict[int, StoredObject]:
    """The names of what there is at an instant, by number.  Tables of transactions under way are not known."""
    undo = StoredObject(UNDO_ID, "undo", "undo", None, UNDO_ENTRY)
    transactions = StoredObject(TRANSACTIONS_ID, "transactions", "transactions", None, NO_PAGE)
    of_tables = [stored for table in tables_of(pin) for stored in objects_of(table)]
    return {stored.obj_id: stored for stored in (undo, transactions, *of_tables)}


def transactions_entry(files: PinnedFiles) -> int:
    """The entry page of the table of committed transactions; NO_PAGE if there is none yet."""
    return int(SEGMENT_HEAD.at(files.sound_page(UNDO_ENTRY), SEGMENT_HEAD_AT).child_seg)


def objects_with_segments(files: PinnedFiles, table: TableDefinition | None) -> list[StoredObject]:
    """All objects, by the places of their segments; of one table, only what is its own."""
    if table is not None:
        return list(objects_of(table))
    known = object_names(files.pin)
    try:
        entry = transactions_entry(files)
    except Corruption:  # of the undo log's own segment, which says so itself
        entry = NO_PAGE
    known[TRANSACTIONS_ID] = replace(known[TRANSACTIONS_ID], entry_page=entry)
    listed = [stored for stored in known.values() if stored.entry_page != NO_PAGE]
    return sorted(listed, key=lambda stored: stored.entry_page)
