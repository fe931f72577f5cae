"""Which DataFrames a table takes, and the columns of a table that is made for one.

A column takes its own Spark type, and those whose every value it can store as it is.  That a string is not too long,
or a value not NULL, is asked row by row.
"""

from __future__ import annotations

from pyspark.sql.types import BinaryType as BytesType
from pyspark.sql.types import (
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
)

from gmdb.catalog.schema import TableDefinition, make_columns
from gmdb.errors import NoSuchColumn, SchemaMismatch
from gmdb.format.columns import Column, ColumnType
from gmdb.spark.types import spark_type

_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}
_TAKEN: dict[str, tuple[type[DataType], ...]] = {
    "INT": (ByteType, ShortType, IntegerType),
    "BIGINT": (ByteType, ShortType, IntegerType, LongType),
    "DOUBLE": (ByteType, ShortType, IntegerType, FloatType, DoubleType),
    "BOOLEAN": (BooleanType,),
    "DATE": (DateType,),
    "TIMESTAMP": (TimestampNTZType, TimestampType),
    "CHAR": (StringType,),
    "VARCHAR": (StringType,),
    "CLOB": (StringType,),
    "BINARY": (BytesType,),
    "VARBINARY": (BytesType,),
    "BLOB": (BytesType,),
}
_MADE: dict[type[DataType], str] = {
    ByteType: "INT",
    ShortType: "INT",
    IntegerType: "INT",
    LongType: "BIGINT",
    FloatType: "DOUBLE",
    DoubleType: "DOUBLE",
    BooleanType: "BOOLEAN",
    DateType: "DATE",
    TimestampType: "TIMESTAMP",
    TimestampNTZType: "TIMESTAMP",
}


def targets(table: TableDefinition, schema: StructType) -> tuple[int, ...]:
    """Which of the table's columns each of a DataFrame's goes to, by its name in any letters; all must fit."""
    by_name = {column.name.lower(): n for n, column in enumerate(table.columns)}
    found: list[int] = []
    for field in schema.fields:
        n = by_name.get(field.name.lower())
        if n is None:
            known = ", ".join(column.name for column in table.columns)
            raise NoSuchColumn(f"table {table.name} has no column {field.name}; its columns are {known}")
        if n in found:
            raise SchemaMismatch(f"table {table.name}: the DataFrame has column {field.name} twice")
        _require_fit(table, table.columns[n], field)
        found.append(n)
    for n, column in enumerate(table.columns):
        if n not in found and not column.nullable and column.default is None and column.identity is None:
            said = f"table {table.name}: the DataFrame has no column {column.name}, which is NOT NULL without a default"
            raise SchemaMismatch(said)
    return tuple(found)


def _require_fit(table: TableDefinition, column: Column, field: StructField) -> None:
    where = f"table {table.name}, column {column.name}"
    if column.identity == "always":
        raise SchemaMismatch(f"{where}: it is generated always; leave it out of the DataFrame")
    if isinstance(field.dataType, NullType) and column.nullable:
        return
    if not _takes(column.type, field.dataType):
        is_, given = spark_type(column.type).simpleString(), field.dataType.simpleString()
        raise SchemaMismatch(f"{where}: it is {column.type}, which does not take every {given}; cast it to {is_}")


def _takes(type_: ColumnType, given: DataType) -> bool:
    """Whether a column of a type can store every value of a Spark type as it is."""
    if type_.name != "DECIMAL":
        return isinstance(given, _TAKEN[type_.name])
    before_point = type_.length - type_.scale
    if isinstance(given, DecimalType):
        return given.scale <= type_.scale and given.precision - given.scale <= before_point
    return _DIGITS.get(type(given), before_point + 1) <= before_point


def columns_for(table: str, schema: StructType, string_length: int | None) -> tuple[Column, ...]:
    """The columns of a new table for a DataFrame; without a length, strings and binaries are large objects."""
    return make_columns(table, [_column_for(table, field, string_length) for field in schema.fields])


def _column_for(table: str, field: StructField, string_length: int | None) -> Column:
    return Column(field.name, _type_for(table, field, string_length), field.nullable)


def _type_for(table: str, field: StructField, string_length: int | None) -> ColumnType:
    given = field.dataType
    if isinstance(given, DecimalType):
        return ColumnType("DECIMAL", given.precision, given.scale)
    if isinstance(given, StringType):
        return ColumnType("CLOB") if string_length is None else ColumnType("VARCHAR", string_length)
    if isinstance(given, BytesType):
        return ColumnType("BLOB") if string_length is None else ColumnType("VARBINARY", string_length)
    if type(given) not in _MADE:
        advice = "cast it, take it apart, or leave it out"
        raise SchemaMismatch(f"table {table}: column {field.name}: gmdb stores no {given.simpleString()}; {advice}")
    return ColumnType(_MADE[type(given)])
