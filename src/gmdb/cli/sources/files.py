"""Parquet and CSV files: one table each.

Parquet says its types.  CSV says nothing: the file is read twice, the first time to find for every column the first of
BIGINT, DOUBLE and text, or BOOLEAN and text, or DATE, TIMESTAMP and text, that takes all its values without loss.  A
field without quotes and characters is NULL, ``""`` an empty text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv, parquet

from gmdb.cli.sources.plan import BYTES, TEXT, Account, TablePlan, table_name
from gmdb.errors import DataError, InvalidText, SchemaError, TypeMismatch
from gmdb.format.columns import DECIMAL_DIGITS_MAX, Column, ColumnType, array_of
from gmdb.sql.types import unlimited

PARQUET_MAGIC = b"PAR1"
BATCH_ROWS = 65536
BLOCK_SIZE = 4 << 20
DIGITS_MAX = 15  # that a double keeps, whichever they are
_LADDERS = ((pa.int64(), pa.float64()), (pa.bool_(),), (pa.date32(), pa.timestamp("us")))
_ZONE = r"^.{11,}([zZ]|[+-]\d\d:?(\d\d)?)$"  # behind a time: gmdb has none
_COLUMN_TYPES = {
    pa.int64(): ColumnType("BIGINT"),
    pa.float64(): ColumnType("DOUBLE"),
    pa.bool_(): ColumnType("BOOLEAN"),
    pa.date32(): ColumnType("DATE"),
    pa.timestamp("us"): ColumnType("TIMESTAMP"),
}


class _File:
    """What both kinds share: a path, and the name of the table."""

    def __init__(self, path: Path, name: str | None) -> None:
        self.account = Account()
        self._path = path
        self._name = table_name(path, name)

    def _count(self, columns: list[Column]) -> None:
        self.account.has("tables")
        self.account.has("columns", len(columns))

    def __enter__(self) -> Any:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


class ParquetSource(_File):
    def plans(self) -> list[TablePlan]:
        try:
            file = parquet.ParquetFile(self._path)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._path} is not a Parquet file: {error}") from None
        names = _names(self._path, file.schema_arrow.names)
        fields = list(zip(names, file.schema_arrow, strict=True))
        columns = [Column(name, self._type(field), field.nullable) for name, field in fields]
        batches = partial(self._batches, file, names)
        self._count(columns)
        return [TablePlan(self._name, columns, file.metadata.num_rows, batches)]

    def _type(self, field: pa.Field) -> ColumnType:
        type_ = column_type(field.type)
        if type_ is None:
            raise TypeMismatch(f"{self._path}, column {field.name}: gmdb has no type for {field.type}")
        if isinstance(field.type, pa.BaseExtensionType):
            self.account.remark(f"column {field.name}: {field.type} is kept as {type_}")
        return type_

    @staticmethod
    def _batches(file: parquet.ParquetFile, names: list[str]) -> Iterator[pa.RecordBatch]:
        for batch in file.iter_batches(BATCH_ROWS):
            yield pa.RecordBatch.from_arrays([_widened(column) for column in batch.columns], names)


def column_type(type_: pa.DataType) -> ColumnType | None:
    """The column type for values of an Arrow type; None if there is none."""
    kinds = pa.types
    if kinds.is_dictionary(type_):
        return column_type(type_.value_type)
    if isinstance(type_, pa.BaseExtensionType):
        return column_type(type_.storage_type)
    if kinds.is_list(type_) or kinds.is_large_list(type_):
        return _array_type(type_.value_type)
    if kinds.is_uint64(type_):
        return ColumnType("DECIMAL", 20)
    if kinds.is_integer(type_):
        bits = type_.bit_width + pa.types.is_unsigned_integer(type_)
        return ColumnType("SMALLINT" if bits <= 16 else "INT" if bits <= 32 else "BIGINT")
    if kinds.is_decimal(type_):
        is_one_here = 0 <= type_.scale <= type_.precision <= DECIMAL_DIGITS_MAX
        return ColumnType("DECIMAL", type_.precision, type_.scale) if is_one_here else None
    return next((column for test, column in _TESTS if test(type_)), None)


def _array_type(element: pa.DataType) -> ColumnType | None:
    """The type of arrays of an Arrow type; None if there is none, or values would have to be changed for it."""
    kinds = pa.types
    if kinds.is_nested(element) or kinds.is_uint64(element) or kinds.is_dictionary(element):
        return None
    if isinstance(element, pa.BaseExtensionType) or (kinds.is_timestamp(element) and element.tz is not None):
        return None
    type_ = column_type(element)
    return None if type_ is None else array_of(unlimited(type_))


_TESTS: tuple[tuple[Callable[[pa.DataType], bool], ColumnType], ...] = (
    (pa.types.is_float64, ColumnType("DOUBLE")),
    (pa.types.is_floating, ColumnType("REAL")),
    (pa.types.is_boolean, ColumnType("BOOLEAN")),
    (pa.types.is_date, ColumnType("DATE")),
    (pa.types.is_time, ColumnType("TIME")),
    (lambda type_: pa.types.is_timestamp(type_) and type_.tz is not None, ColumnType("TIMESTAMPTZ")),
    (pa.types.is_timestamp, ColumnType("TIMESTAMP")),
    (lambda type_: type_ == pa.uuid(), ColumnType("UUID")),
    (pa.types.is_string, TEXT),
    (pa.types.is_large_string, TEXT),
    (pa.types.is_string_view, TEXT),
    (pa.types.is_null, TEXT),
    (pa.types.is_binary, BYTES),
    (pa.types.is_large_binary, BYTES),
    (pa.types.is_binary_view, BYTES),
    (pa.types.is_fixed_size_binary, BYTES),
)


def _widened(column: pa.Array) -> pa.Array:
    """What Arrow brings into no column's type by itself: unsigned numbers of 64 bits, and types that wrap others."""
    if isinstance(column.type, pa.BaseExtensionType):
        return _widened(column.storage)
    if pa.types.is_dictionary(column.type):
        return _widened(column.dictionary_decode())
    if pa.types.is_uint64(column.type):
        return column.cast(pa.decimal128(20))
    if pa.types.is_decimal(column.type) and not pa.types.is_decimal128(column.type):
        return column.cast(pa.decimal128(column.type.precision, column.type.scale))
    return column


class CsvSource(_File):
    def __init__(self, path: Path, name: str | None, delimiter: str | None) -> None:
        super().__init__(path, name)
        self._delimiter = delimiter or ("\t" if path.suffix.lower() == ".tsv" else ",")

    def plans(self) -> list[TablePlan]:
        names = self._header()
        guesses = [_Guess() for _ in names]
        rows = 0
        for batch in self._texts(names):
            rows += batch.num_rows
            for guess, column in zip(guesses, batch.columns, strict=True):
                guess.look_at(column)
        columns = [Column(name, guess.column_type) for name, guess in zip(names, guesses, strict=True)]
        types = [guess.type for guess in guesses]
        self._count(columns)
        return [TablePlan(self._name, columns, rows, partial(self._batches, names, types))]

    def _parsing(self) -> csv.ParseOptions:
        return csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=True)

    def _header(self) -> list[str]:
        try:
            with csv.open_csv(self._path, parse_options=self._parsing()) as reader:
                return _names(self._path, reader.schema.names)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{self._path} cannot be read as CSV: {error}") from None

    def _texts(self, names: list[str]) -> Iterator[pa.RecordBatch]:
        convert = csv.ConvertOptions(
            column_types=dict.fromkeys(names, pa.string()),
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        read = csv.ReadOptions(block_size=BLOCK_SIZE, column_names=names, skip_rows=1)
        try:
            with csv.open_csv(self._path, read, self._parsing(), convert) as reader:
                yield from reader
        except (pa.ArrowException, OSError) as error:
            raise InvalidText(f"{self._path} cannot be read as CSV: {error}") from None

    def _batches(self, names: list[str], types: list[pa.DataType]) -> Iterator[pa.RecordBatch]:
        for batch in self._texts(names):
            arrays = [column.cast(type_) for column, type_ in zip(batch.columns, types, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, names)


class _Guess:
    """The type of a column of texts, as inferred so far."""

    def __init__(self) -> None:
        self._ladder: list[pa.DataType] | None = None

    @property
    def type(self) -> pa.DataType:
        return self._ladder[0] if self._ladder else pa.string()

    @property
    def column_type(self) -> ColumnType:
        return _COLUMN_TYPES.get(self.type, TEXT)

    def look_at(self, column: pa.Array) -> None:
        values = column.drop_null()
        if not len(values):
            return
        if self._ladder is None:
            ladder_of_column = next((ladder for ladder in _LADDERS if _fits(values[:1], ladder[-1])), ())
            self._ladder = list(ladder_of_column)
        while self._ladder and not _fits(values, self._ladder[0]):
            self._ladder.pop(0)


def _fits(texts: pa.Array, type_: pa.DataType) -> bool:
    """Whether values of the type keep all of the texts' information, except their spelling."""
    if pa.types.is_integer(type_) or pa.types.is_floating(type_):
        if pc.any(pc.match_substring_regex(texts, r"^\s*[+-]?0[0-9]|^\s*\+|\s|[xXnN]")).as_py():
            return False  # leading zeros and the like: a house or telephone number, not a quantity
        digits = pc.replace_substring_regex(pc.replace_substring_regex(texts, r"[eE].*", ""), r"[^0-9]", "")
        if pa.types.is_floating(type_) and pc.max(pc.utf8_length(digits)).as_py() > DIGITS_MAX:
            return False
    if pa.types.is_boolean(type_):
        return bool(pc.all(pc.match_substring_regex(texts, r"^(true|false|TRUE|FALSE|True|False)$")).as_py())
    if pa.types.is_timestamp(type_) and pc.any(pc.match_substring_regex(texts, _ZONE)).as_py():
        return False
    try:
        texts.cast(type_)
    except pa.ArrowInvalid:
        return False
    return True


def _names(path: Path, header: list[str]) -> list[str]:
    """Columns' names in small letters, which must differ."""
    names = [name.strip().lower() for name in header]
    for name in names:
        if not name or names.count(name) > 1:
            raise SchemaError(f"{path}: {f'two columns are called {name}' if name else 'a column has no name'}")
    return names
