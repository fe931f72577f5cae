"""Column types and Arrow types, and bringing a batch into a table's schema without loss."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC
from functools import cache
from typing import Any

from gmdb.errors import (
    Corruption,
    DataError,
    Error,
    InterfaceError,
    NullNotAllowed,
    SchemaMismatch,
    TypeMismatch,
    ValueOutOfRange,
)
from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.format.columns import Column, ColumnType, json_of
from gmdb.format.interval import DAY, Interval
from gmdb.process.late_imports import compute as pc
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa


@cache
def _arrow_types() -> dict[str, pa.DataType]:
    return {
        "SMALLINT": pa.int16(),
        "INT": pa.int32(),
        "BIGINT": pa.int64(),
        "REAL": pa.float32(),
        "DOUBLE": pa.float64(),
        "BOOLEAN": pa.bool_(),
        "DATE": pa.date32(),
        "TIME": pa.time64("us"),
        "TIMESTAMP": pa.timestamp("us"),
        "TIMESTAMPTZ": pa.timestamp("us", "UTC"),
        "INTERVAL": pa.month_day_nano_interval(),
        "UUID": pa.uuid(),
        "CHAR": pa.string(),
        "VARCHAR": pa.string(),
        "JSON": pa.string(),
        "JSONB": pa.string(),
        "BINARY": pa.binary(),
        "VARBINARY": pa.binary(),
        "BLOB": pa.large_binary(),
        "CLOB": pa.large_string(),
    }


def require_times(column: Column, times: pa.Array) -> None:
    """Refuse what a page has that is no time of day: of some of it readers would make another time."""
    least, most = pc.min_max(times.view(pa.int64())).as_py().values()
    if least is not None and not 0 <= least <= most < DAY:
        raise Corruption(f"column {column.name} has bytes that are no TIME; see gmdb verify")


@cache
def _kinships() -> tuple[Callable[[pa.DataType], bool], ...]:
    return (
        pa.types.is_integer,
        pa.types.is_floating,
        pa.types.is_boolean,
        pa.types.is_date,
        pa.types.is_time,
        pa.types.is_timestamp,
        pa.types.is_decimal,
        lambda t: pa.types.is_string(t) or pa.types.is_large_string(t) or pa.types.is_string_view(t),
        _is_binary,
    )


def _is_binary(type_: pa.DataType) -> bool:
    kinds = (pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view)
    return any(kind(type_) for kind in kinds)


def arrow_type(type_: ColumnType) -> pa.DataType:
    if type_.is_array:
        return pa.list_(arrow_type(type_.element))
    if type_.name == "DECIMAL":
        return pa.decimal128(type_.length, type_.scale)
    return _arrow_types()[type_.name]


def stored_type(type_: ColumnType) -> pa.DataType:
    """The type of what kernels read and write of a column: of a large object or an array, its cell."""
    return pa.binary() if type_.is_lob or type_.is_array else arrow_type(type_)


def arrow_schema(columns: Sequence[Column]) -> pa.Schema:
    return pa.schema([pa.field(c.name, arrow_type(c.type), c.nullable) for c in columns])


def batches_of(data: Any) -> Iterable[pa.RecordBatch]:
    """The record batches of anything that holds some: a Table, a reader, a batch, an Arrow stream, an iterable."""
    if isinstance(data, pa.RecordBatch):
        return [data]
    if isinstance(data, pa.Table):
        return data.to_batches()
    if isinstance(data, pa.RecordBatchReader):
        return data
    if hasattr(data, "__arrow_c_stream__"):
        return pa.RecordBatchReader.from_stream(data)
    if isinstance(data, Iterable) and not isinstance(data, str | bytes | dict):
        return _checked(data)
    raise InterfaceError(f"{type(data).__name__} holds no Arrow data: give a Table, a RecordBatch, a reader or batches")


def _checked(items: Iterable[Any]) -> Iterator[pa.RecordBatch]:
    for item in items:
        if isinstance(item, pa.Table):
            yield from item.to_batches()
        elif isinstance(item, pa.RecordBatch):
            yield item
        else:
            raise InterfaceError(f"a {type(item).__name__} among the batches: give pyarrow RecordBatches or Tables")


def fit_batch(table: str, columns: Sequence[Column], batch: pa.RecordBatch, first_row: int) -> list[pa.Array]:
    """The batch's columns in the table's order and types; an error names the column, and the row where it can."""
    names = batch.schema.names
    wanted = [column.name for column in columns]
    if len(set(names)) != len(names) or set(names) != set(wanted):
        unknown = ", ".join(name for name in names if name not in wanted)
        missing = ", ".join(name for name in wanted if name not in names)
        parts = [f"it has no {missing}"] * bool(missing) + [f"the table has no {unknown}"] * bool(unknown)
        what = "; ".join(parts) or "it has a column twice"
        raise SchemaMismatch(f"table {table}: the batch's columns do not match: {what}")
    fitted = []
    for column in columns:
        try:
            fitted.append(_fit_column(column, batch.column(names.index(column.name)), first_row))
        except Error as error:
            raise type(error)(f"table {table}, column {column.name}: {error}") from None
    return fitted


def with_generated(columns: Sequence[Column], batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch with generated columns that it may have left out, for others to compute."""
    for column in columns:
        if column.generated is not None and column.name not in batch.schema.names:
            batch = batch.append_column(column.name, pa.nulls(len(batch), arrow_type(column.type)))
    return batch


def _fit_column(column: Column, values: pa.Array, first_row: int) -> pa.Array:
    target = arrow_type(column.type)
    if column.type.is_json:
        return _checked_documents(column, values, first_row)
    if pa.types.is_dictionary(values.type):
        values = values.dictionary_decode()
    if not column.nullable and values.null_count:
        row = first_row + pc.index(pc.is_null(values), True).as_py()
        raise NullNotAllowed(f"row {row} has no value, but the column is NOT NULL")
    if values.type == target:
        return _without_excess_blanks(column, _whole_microseconds(column, values, first_row))
    if pa.types.is_null(values.type):
        return pa.nulls(len(values), target)
    if not _akin(values.type, target):
        raise TypeMismatch(f"Arrow type {values.type} does not fit {column.type}, which is {target}")
    if pa.types.is_timestamp(target):
        values = _in_utc(column, values, target)
    try:
        return _without_excess_blanks(column, _converted(values, target))
    except pa.ArrowInvalid as error:
        raise _misfit(column, values, target, first_row, error) from None
    except pa.ArrowNotImplementedError:
        raise TypeMismatch(f"Arrow type {values.type} does not fit {column.type}, which is {target}") from None


def _checked_documents(column: Column, values: pa.Array, first_row: int) -> pa.Array:
    """Texts of JSON as the column keeps them."""
    if isinstance(values, pa.ExtensionArray):  # Arrow has a type for texts of JSON
        values = values.storage
    texts = _fit_column(Column(column.name, ColumnType("VARCHAR"), column.nullable), values, first_row).to_pylist()
    for n, text in enumerate(texts):
        if text is not None:
            try:
                texts[n] = json_of(column.type, text)
            except DataError as error:
                raise type(error)(f"row {first_row + n}: {error}") from None
    return pa.array(texts, pa.string())


def _without_excess_blanks(column: Column, values: pa.Array) -> pa.Array:
    """Values of a CHAR column without blanks at their ends, if some are too long with them: they say nothing."""
    if column.type.name != "CHAR" or (pc.max(pc.binary_length(values)).as_py() or 0) <= column.type.length:
        return values
    return pc.utf8_rtrim(values, characters=" ")


def _in_utc(column: Column, values: pa.Array, target: pa.DataType) -> pa.Array:
    """Times with a zone as UTC has them; a column that has instants takes no others."""
    if values.type.tz is None and target.tz is not None:
        raise TypeMismatch(f"times without a zone are no {column.type}: say of which zone they are, or cast them")
    if values.type.tz is None:
        return values
    values = values.cast(pa.timestamp(values.type.unit, "UTC"))
    return values if target.tz is not None else values.cast(pa.timestamp(values.type.unit))


def _converted(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Values in a type that takes them without loss.  Raises ArrowInvalid if it does not."""
    if target == pa.uuid():
        return _uuids(values)
    if pa.types.is_interval(target):
        return pa.array([value and Interval.of(value) for value in values.cast(pa.duration("us")).to_pylist()], target)
    converted = values.cast(target, safe=True)
    if target == pa.float32() and pa.types.is_floating(values.type):
        overflows = pc.and_(pc.is_inf(converted), pc.invert(pc.is_inf(values)))
        if pc.any(overflows).as_py():
            raise pa.ArrowInvalid("a value is too large")
    return converted


def _uuids(values: pa.Array) -> pa.Array:
    """Of 16 bytes, or as texts."""
    from uuid import UUID

    if _is_binary(values.type):
        return values.cast(pa.binary(), safe=True).cast(pa.binary(16), safe=True).cast(pa.uuid())
    try:
        return pa.array([value and UUID(value).bytes for value in values.to_pylist()], pa.binary(16)).cast(pa.uuid())
    except ValueError as error:
        raise pa.ArrowInvalid(str(error)) from None


def _whole_microseconds(column: Column, values: pa.Array, first_row: int) -> pa.Array:
    """Values of the column's type, refused if they are intervals with parts of microseconds."""
    if column.type.name == "INTERVAL":
        for row, value in enumerate(values.to_pylist()):
            if value is not None and value.nanoseconds % 1000:
                raise ValueOutOfRange(f"row {first_row + row}: {value!r} has parts of microseconds")
    return values


def _akin(source: pa.DataType, target: pa.DataType) -> bool:
    if pa.types.is_list(target):
        kinds = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list)
        if not any(kind(source) for kind in kinds):
            return False
        inner = source.value_type
        has_zone = pa.types.is_timestamp(inner) and inner.tz is not None
        return (
            inner == target.value_type or pa.types.is_null(inner) or (not has_zone and _akin(inner, target.value_type))
        )
    if (pa.types.is_integer(source) or pa.types.is_decimal(source)) and pa.types.is_decimal(target):
        return True
    if pa.types.is_integer(source) and pa.types.is_floating(target):
        return True
    if target == pa.uuid():
        return _is_binary(source) or pa.types.is_string(source) or pa.types.is_large_string(source)
    if pa.types.is_interval(target):
        return pa.types.is_duration(source)
    return any(kin(source) and kin(target) for kin in _kinships())


def _misfit(column: Column, values: pa.Array, target: pa.DataType, first_row: int, error: Exception) -> ValueOutOfRange:
    """Find the first row that would not fit: halve the rows until one is left."""
    first, last = 0, len(values)
    while last - first > 1:
        middle = (first + last) // 2
        try:
            _converted(values[first:middle], target)
            first = middle
        except pa.ArrowInvalid:
            last = middle
    return ValueOutOfRange(f"row {first_row + first}: {values[first].as_py()!r} does not fit {column.type} ({error})")


# ---- Arrow's values as Python has them.


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """The values of a column."""
    type_ = column.type
    if pa.types.is_interval(type_):
        return [None if value is None else Interval.of(value) for value in column.to_pylist()]
    if pa.types.is_timestamp(type_) and type_.tz is not None:
        in_utc = column.cast(pa.timestamp(type_.unit, "UTC")).cast(pa.timestamp(type_.unit))
        return [None if value is None else value.replace(tzinfo=UTC) for value in in_utc.to_pylist()]
    return list(column.to_pylist())


def python_columns(batch: pa.RecordBatch | pa.Table) -> list[list[Any]]:
    """The values of each column; DataError if Python cannot represent one.

    A text that is not UTF-8, or a date before the year 1, can only come out of files that others have written.
    """
    columns = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        try:
            columns.append(python_values(column))
        except (ValueError, OverflowError) as error:
            raise DataError(f"column {name} has a value that Python cannot have: {error}") from error
    return columns


# ---- Arrow columns out of NumPy's numbers.


def numbers(values: np.ndarray, type_: pa.DataType, is_known: np.ndarray | None = None) -> pa.Array:
    """Numbers, NULL where they are negative, or where nothing is known."""
    signed = values.astype(np.float64 if pa.types.is_floating(type_) else np.int64)
    missing = signed < 0 if is_known is None else ~is_known
    return pa.array(signed, type_, mask=missing)


def labels(values: np.ndarray, label: Callable[[int], str | None]) -> pa.Array:
    """A text for each number, made once for each that occurs."""
    unique, places = np.unique(values, return_inverse=True)
    return pa.array([label(value) for value in unique.tolist()], pa.string()).take(pa.array(places))


def page_names(page_ids: np.ndarray) -> pa.Array:
    """``4:7`` for each page."""
    ids = page_ids.astype(np.int64)
    parts = (ids >> OFFSET_BITS, ids & (PAGES_PER_DEVICE - 1))
    return pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ":")
