"""Column types and Spark types: the same values, by other names.

A read gives Spark the columns that its schema names.  Each must be the table's column of that name, of the same
type: nothing is converted, so that a schema that is out of date fails and does not turn values into others.

A CHAR column is declared to Spark as one of Spark's own: Spark then fills up what the column
is compared with, so that ``ch = 'a'`` finds the same rows in Spark and in gmdb.  gmdb counts the bytes of a CHAR and
Spark its characters; so values are filled up to as many characters as well.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    TimeType,
)
from pyspark.sql.types import BinaryType as BytesType

from gmdb.errors import NoSuchColumn, SchemaMismatch, ValueTooLong
from gmdb.format.columns import Column, ColumnType, array_of
from gmdb.sql.times import read_interval
from gmdb.tables.arrow.arrow_types import python_values
from gmdb.tables.catalog.schema import TableDefinition, make_columns

ROWID = Column("_rowid", ColumnType("VARCHAR", 32), nullable=False)  # as SQL's rowid
PAGE_ID = Column("_page_id", ColumnType("BIGINT"), nullable=False)
SPARK_VALUE_MAX = (1 << 31) - 1024
_SPARK_TYPES: dict[str, DataType] = {
    "SMALLINT": ShortType(),
    "INT": IntegerType(),
    "BIGINT": LongType(),
    "REAL": FloatType(),
    "DOUBLE": DoubleType(),
    "BOOLEAN": BooleanType(),
    "DATE": DateType(),
    "TIME": TimeType(),
    "TIMESTAMP": TimestampNTZType(),
    "TIMESTAMPTZ": TimestampType(),
    "INTERVAL": StringType(),
    "UUID": StringType(),
    "CHAR": StringType(),
    "VARCHAR": StringType(),
    "JSON": StringType(),
    "JSONB": StringType(),
    "BINARY": BinaryType(),
    "VARBINARY": BinaryType(),
    "BLOB": BinaryType(),
    "CLOB": StringType(),
}
IN_KEY = "gmdb.key"  # marks the columns of a feed by which its rows are known: none keeps its row and changes them
CHAR_METADATA = "__CHAR_VARCHAR_TYPE_STRING"  # under which Spark keeps what its own CHAR columns are
_CHAR = re.compile(r"char\((\d+)\)")
_NARROW = {pa.large_binary(): pa.binary(), pa.large_string(): pa.string()}  # Spark's own take 2 GiB
_THERE = {  # what Spark has instead of other Arrow types
    **_NARROW,
    pa.uuid(): pa.string(),
    pa.month_day_nano_interval(): pa.string(),
    pa.time64("us"): pa.time64("ns"),
}


def spark_type(type_: ColumnType) -> DataType:
    if type_.is_array:
        return ArrayType(spark_type(type_.element))
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
    """How many characters the values of a CHAR column have in Spark; 0 if it is not one, or not declared so."""
    match = _CHAR.fullmatch(field.metadata.get(CHAR_METADATA, ""))
    return int(match.group(1)) if match else 0


def readable_columns(table: TableDefinition) -> list[Column]:
    """A table's columns, and behind them where a row is, unless it has columns of these names."""
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
    """Columns by their names, each once; those of where a row is only if they are named."""
    more = {column.name: column for column in readable_columns(table)[len(table.columns) :]}
    wanted = [more.get(name.lower()) or table.columns[table.position(name)] for name in names]
    for n, column in enumerate(wanted):
        if column in wanted[:n]:
            raise SchemaMismatch(f"table {table.name}: column {column.name} is asked for twice")
    return wanted


def _require_same_type(table: TableDefinition, column: Column, field: StructField) -> None:
    if field.dataType != spark_type(column.type):
        is_, wants = spark_type(column.type).simpleString(), field.dataType.simpleString()
        message = f"table {table.name}, column {column.name}: it is {column.type}, in Spark {is_}"
        raise SchemaMismatch(
            f"{message}, but the DataFrame's schema says {wants}; read it as it is and cast it in Spark"
        )
    if column.nullable and not field.nullable:
        message = f"table {table.name}, column {column.name} may be NULL, but the DataFrame's schema says NOT NULL"
        raise SchemaMismatch(f"{message}; leave NOT NULL out of the schema")


def as_spark_expects(scanned: pa.Schema, schema: StructType) -> pa.Schema:
    """A scan's Arrow schema under Spark's names, which may be spelled with other letters, and nullability."""
    pairs = zip(scanned, schema.fields, strict=True)
    return pa.schema([pa.field(to.name, _there(of.type), to.nullable) for of, to in pairs])


def _there(type_: pa.DataType) -> pa.DataType:
    """The Arrow type that Spark has for one."""
    return pa.list_(_there(type_.value_type)) if pa.types.is_list(type_) else _THERE.get(type_, type_)


def as_spark_takes(batch: pa.RecordBatch, schema: StructType) -> list[pa.Array]:
    """A batch's columns in the types that Spark has for them, CHAR filled up as Spark does."""
    columns = []
    for column, of, to in zip(batch.columns, batch.schema, schema.fields, strict=True):
        if of.type in _NARROW and column.nbytes > SPARK_VALUE_MAX:
            raise ValueTooLong(f"column {of.name}: a value of {column.nbytes} bytes is too long for Spark")
        length = _char_length(to)
        if length:
            column = pc.utf8_rpad(column, width=length, padding=" ")
        columns.append(_as_spark_has(column))
    return columns


def _as_spark_has(column: pa.Array) -> pa.Array:
    """Values in the type that Spark has for them: UUIDs and intervals are texts there."""
    if column.type == pa.uuid():
        return pa.array([value and str(value) for value in column.to_pylist()], pa.string())
    if column.type == pa.month_day_nano_interval():
        return pa.array([value and str(value) for value in python_values(column)], pa.string())
    there = _there(column.type)
    return column if there == column.type else column.cast(there)


def as_column_takes(column: Column, values: pa.Array) -> pa.Array:
    """Values of a DataFrame for a column; intervals come as texts."""
    if column.type.name != "INTERVAL" or not (pa.types.is_string(values.type) or pa.types.is_large_string(values.type)):
        return values
    intervals = [None if text is None else read_interval(text) for text in values.to_pylist()]
    return pa.array(intervals, pa.month_day_nano_interval())


# ---- Which DataFrames a table takes, and the columns of a table that is made for one.
#
# A column takes its own Spark type, and those whose every value it can store as it is.  That a string is not too long,
# or a value not NULL, is asked row by row.

_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_TAKEN: dict[str, tuple[type[DataType], ...]] = {
    "SMALLINT": (ByteType, ShortType),
    "INT": (ByteType, ShortType, IntegerType),
    "BIGINT": (ByteType, ShortType, IntegerType, LongType),
    "REAL": (ByteType, ShortType, FloatType),
    "DOUBLE": (ByteType, ShortType, IntegerType, FloatType, DoubleType),
    "BOOLEAN": (BooleanType,),
    "DATE": (DateType,),
    "TIMESTAMP": (TimestampNTZType, TimestampType),
    "TIME": (TimeType,),
    "TIMESTAMPTZ": (TimestampType,),
    "INTERVAL": (StringType,),
    "UUID": (StringType, BytesType),
    "CHAR": (StringType,),
    "VARCHAR": (StringType,),
    "CLOB": (StringType,),
    "JSON": (StringType,),
    "JSONB": (StringType,),
    "BINARY": (BytesType,),
    "VARBINARY": (BytesType,),
    "BLOB": (BytesType,),
}
_MADE: dict[type[DataType], str] = {
    ByteType: "SMALLINT",
    ShortType: "SMALLINT",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "REAL",
    DoubleType: "DOUBLE",
    BooleanType: "BOOLEAN",
    DateType: "DATE",
    TimeType: "TIME",
    TimestampType: "TIMESTAMPTZ",
    TimestampNTZType: "TIMESTAMP",
}


def targets(table: TableDefinition, schema: StructType) -> tuple[int, ...]:
    """Which of the table's columns each of a DataFrame's goes to, by its name in any letters; all must fit."""
    by_name = {column.name.lower(): n for n, column in enumerate(table.columns)}
    positions: list[int] = []
    for field in schema.fields:
        n = by_name.get(field.name.lower())
        if n is None:
            known = ", ".join(column.name for column in table.columns)
            raise NoSuchColumn(f"table {table.name} has no column {field.name}; its columns are {known}")
        if n in positions:
            raise SchemaMismatch(f"table {table.name}: the DataFrame has column {field.name} twice")
        _require_fit(table, table.columns[n], field)
        positions.append(n)
    for n, column in enumerate(table.columns):
        is_made = column.default is not None or column.is_numbered or column.generated is not None
        if n not in positions and not column.nullable and not is_made:
            message = (
                f"table {table.name}: the DataFrame has no column {column.name}, which is NOT NULL without a default"
            )
            raise SchemaMismatch(message)
    return tuple(positions)


def _require_fit(table: TableDefinition, column: Column, field: StructField) -> None:
    where = f"table {table.name}, column {column.name}"
    if column.identity == "always":
        raise SchemaMismatch(f"{where}: it is generated always; leave it out of the DataFrame")
    if isinstance(field.dataType, NullType) and column.nullable:
        return
    if not takes(column.type, field.dataType):
        is_, actual = spark_type(column.type).simpleString(), field.dataType.simpleString()
        raise SchemaMismatch(f"{where}: it is {column.type}, which does not take every {actual}; cast it to {is_}")


def takes(type_: ColumnType, spark_type_: DataType) -> bool:
    """Whether a column of a type can store every value of a Spark type as it is."""
    if type_.is_array:
        return isinstance(spark_type_, ArrayType) and takes(type_.element, spark_type_.elementType)
    if type_.name != "DECIMAL":
        return isinstance(spark_type_, _TAKEN[type_.name])
    before_point = type_.length - type_.scale
    if isinstance(spark_type_, DecimalType):
        return spark_type_.scale <= type_.scale and spark_type_.precision - spark_type_.scale <= before_point
    return _DIGITS.get(type(spark_type_), before_point + 1) <= before_point


def columns_for(table: str, schema: StructType, string_length: int | None) -> tuple[Column, ...]:
    """The columns of a new table for a DataFrame; without a length, strings and binaries are large objects."""
    return make_columns(table, [_column_for(table, field, string_length) for field in schema.fields])


def _column_for(table: str, field: StructField, string_length: int | None) -> Column:
    return Column(field.name, _type_for(table, field, string_length), field.nullable)


def _type_for(table: str, field: StructField, string_length: int | None) -> ColumnType:
    data_type = field.dataType
    if isinstance(data_type, DecimalType):
        return ColumnType("DECIMAL", data_type.precision, data_type.scale)
    if isinstance(data_type, StringType):
        return ColumnType("CLOB") if string_length is None else ColumnType("VARCHAR", string_length)
    if isinstance(data_type, BytesType):
        return ColumnType("BLOB") if string_length is None else ColumnType("VARBINARY", string_length)
    if isinstance(data_type, ArrayType) and not isinstance(data_type.elementType, ArrayType):
        element = _type_for(table, StructField(field.name, data_type.elementType), string_length)
        return array_of({"CLOB": ColumnType("VARCHAR"), "BLOB": ColumnType("VARBINARY")}.get(element.name, element))
    if type(data_type) not in _MADE:
        advice = "cast it, take it apart, or leave it out"
        raise SchemaMismatch(f"table {table}: column {field.name}: gmdb stores no {data_type.simpleString()}; {advice}")
    return ColumnType(_MADE[type(data_type)])
