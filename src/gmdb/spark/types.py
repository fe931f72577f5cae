"""Column types and Spark types: the same values, by other names.

A read gives Spark the columns that its schema names.  Each must be the table's column of that name, of the same
type: nothing is converted, so that a schema that is out of date fails and does not turn values into others.

A CHAR column is told to Spark as what it is, in the words that Spark has for its own: it then fills up what the column
is compared with, so that ``ch = 'a'`` finds the same rows in Spark and in gmdb.  gmdb counts the bytes of a CHAR and
Spark its characters; so values are filled up to as many characters as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
)

from gmdb.catalog.schema import TableDefinition
from gmdb.errors import SchemaMismatch, ValueTooLong
from gmdb.format.columns import Column, ColumnType

ROWID = Column("_rowid", ColumnType("VARCHAR", 32), nullable=False)  # as SQL's rowid
PAGE_ID = Column("_page_id", ColumnType("BIGINT"), nullable=False)
SPARK_VALUE_MAX = (1 << 31) - 1024
_SPARK_TYPES: dict[str, DataType] = {
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "DOUBLE": DoubleType(),
    "BOOLEAN": BooleanType(),
    "DATE": DateType(),
    "TIMESTAMP": TimestampNTZType(),
    "CHAR": StringType(),
    "VARCHAR": StringType(),
    "BINARY": BinaryType(),
    "VARBINARY": BinaryType(),
    "BLOB": BinaryType(),
    "CLOB": StringType(),
}
IN_KEY = "gmdb.key"  # marks the columns of a feed by which its rows are known: none keeps its row and changes them
CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"  # under which Spark keeps what its own CHAR columns are
_CHAR = re.compile(r"char\((\d+)\)")
_NARROW = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}  # Spark's own take 2 GiB


def spark_type(type_: ColumnType) -> DataType:
    if type_.name == "DECIMAL":
        return DecimalType(type_.length, type_.scale)
    return _SPARK_TYPES[type_.name]


def spark_schema(columns: Sequence[Column]) -> StructType:
    return StructType([spark_field(column, column.nullable) for column in columns])


def spark_field(column: Column, nullable: bool = True) -> StructField:
    """A column as a schema of Spark has it."""
    metadata = {CHAR_METADATA: f"char({column.type.length})"} if column.type.name == "CHAR" else {}
    return StructField(column.name, spark_type(column.type), nullable, metadata)


def _char_length(field: StructField) -> int:
    """How many characters the values of a CHAR column have in Spark; 0 if it is none, or was not told so."""
    match = _CHAR.fullmatch(field.metadata.get(CHAR_METADATA, ""))
    return int(match.group(1)) if match else 0


def readable_columns(table: TableDefinition) -> list[Column]:
    """A table's columns, and behind them where a row is, unless it has columns that are called so."""
    names = {column.name for column in table.columns}
    return [*table.columns, *(column for column in (ROWID, PAGE_ID) if column.name not in names)]


def columns_of_schema(table: TableDefinition, schema: StructType) -> list[Column]:
    """The columns that a schema asks for, in its order."""
    if not schema.fields:
        raise SchemaMismatch(f"table {table.name}: a schema without columns; name at least one of the table's")
    wanted = columns_by_name(table, schema.fieldNames())
    for field, column in zip(schema.fields, wanted, strict=True):
        _require_same_type(table, column, field)
    return wanted


def columns_by_name(table: TableDefinition, names: Sequence[str]) -> list[Column]:
    """Columns by their names, each once; those of where a row is are there for who asks."""
    more = {column.name: column for column in readable_columns(table)[len(table.columns) :]}
    wanted = [more.get(name.lower()) or table.columns[table.position(name)] for name in names]
    for n, column in enumerate(wanted):
        if column in wanted[:n]:
            raise SchemaMismatch(f"table {table.name}: column {column.name} is asked for twice")
    return wanted


def _require_same_type(table: TableDefinition, column: Column, field: StructField) -> None:
    if field.dataType != spark_type(column.type):
        is_, wants = spark_type(column.type).simpleString(), field.dataType.simpleString()
        said = f"table {table.name}, column {column.name}: it is {column.type}, in Spark {is_}"
        raise SchemaMismatch(f"{said}, but the DataFrame's schema says {wants}; read it as it is and cast it in Spark")
    if column.nullable and not field.nullable:
        said = f"table {table.name}, column {column.name} may be NULL, but the DataFrame's schema says NOT NULL"
        raise SchemaMismatch(f"{said}; leave NOT NULL out of the schema")


def as_spark_expects(scanned: pa.Schema, schema: StructType) -> pa.Schema:
    """A scan's Arrow schema under Spark's names, which may be spelled with other letters, and nullability."""
    pairs = zip(scanned, schema.fields, strict=True)
    return pa.schema([pa.field(to.name, _NARROW.get(of.type, of.type), to.nullable) for of, to in pairs])


def as_spark_takes(batch: pa.RecordBatch, schema: StructType) -> list[pa.Array]:
    """A batch's columns in the types that Spark has for them, CHAR filled up as Spark does."""
    made = []
    for column, of, to in zip(batch.columns, batch.schema, schema.fields, strict=True):
        if of.type in _NARROW and column.nbytes > SPARK_VALUE_MAX:
            raise ValueTooLong(f"column {of.name}: a value of {column.nbytes} bytes is too long for Spark")
        length = _char_length(to)
        if length:
            column = pc.utf8_rpad(column, width=length, padding=" ")
        made.append(column.cast(_NARROW[of.type]) if of.type in _NARROW else column)
    return made
