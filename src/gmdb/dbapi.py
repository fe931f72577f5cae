"""PEP 249: cursors, type objects and constructors.

A cursor asks its connection to run a statement and hands out what came of it, as tuples or as Arrow.
Not here: what statements mean (sql/), or where they run (a connection of this process, or one through an owner).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date, datetime
from itertools import islice
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from gmdb.arrow.schema import arrow_type
from gmdb.errors import InterfaceError, ProgrammingError
from gmdb.format.columns import ColumnType

Parameters = Sequence[Any] | Mapping[str, Any]
Row = tuple[Any, ...]


class Runs(Protocol):
    """A connection, as far as its cursors need it."""

    def run(self, statement: str, parameters: Parameters) -> Result: ...

    def run_many(self, statement: str, parameters: Any) -> Result: ...

    def split(self, script: str) -> list[str]: ...


class TypeObject:
    """Equal to the codes of some types, as PEP 249 has it."""

    def __init__(self, *names: str) -> None:
        self._names = frozenset(names)

    def __eq__(self, other: object) -> bool:
        return other is self or (isinstance(other, str) and other in self._names)

    def __hash__(self) -> int:
        return hash(self._names)

    def __repr__(self) -> str:
        return f"TypeObject({', '.join(sorted(self._names))})"


STRING = TypeObject("CHAR", "VARCHAR", "CLOB")
BINARY = TypeObject("BINARY", "VARBINARY", "BLOB")
NUMBER = TypeObject("INT", "BIGINT", "DOUBLE", "DECIMAL", "BOOLEAN")
DATETIME = TypeObject("DATE", "TIMESTAMP")
ROWID = TypeObject("ROWID")
Date, Timestamp, Binary = date, datetime, bytes


def DateFromTicks(ticks: float) -> date:  # noqa: N802
    return date(*time.localtime(ticks)[:3])


def TimestampFromTicks(ticks: float) -> datetime:  # noqa: N802
    return datetime(*time.localtime(ticks)[:6])


@dataclass(slots=True)
class Result:
    """What came of a statement: a number of rows that it changed, or rows, one by one or as batches."""

    names: tuple[str, ...] = ()
    types: tuple[ColumnType | None, ...] = ()
    rowcount: int = -1
    rows: Iterator[Row] | None = None
    reader: pa.RecordBatchReader | None = field(default=None, repr=False)

    @property
    def has_rows(self) -> bool:
        return self.rows is not None or self.reader is not None

    def as_reader(self) -> pa.RecordBatchReader:
        """What was found, as batches."""
        if self.reader is not None:
            return self.reader
        return _batched(self.schema, self.rows if self.rows is not None else iter(()))

    @property
    def schema(self) -> pa.Schema:
        types = [pa.null() if type_ is None else arrow_type(type_) for type_ in self.types]
        return pa.schema(list(zip(self.names, types, strict=True)))


_NOTHING = Result()


def rows_of(reader: pa.RecordBatchReader) -> Iterator[Row]:
    """Batches, row by row."""
    for batch in reader:
        columns = [column.to_pylist() for column in batch.columns]
        yield from zip(*columns, strict=True) if columns else iter([()] * len(batch))


class Cursor:
    """One statement at a time, and what it found."""

    arraysize = 1

    def __init__(self, connection: Runs) -> None:
        self.connection = connection
        self._run = connection.run
        self._closed = False
        self._forget()

    def _forget(self) -> None:
        self._result = _NOTHING
        self._rows: Iterator[Row] | None = None

    def _require_open(self) -> None:
        if self._closed:
            raise InterfaceError("the cursor is closed")

    # ---- statements

    def execute(self, statement: str, parameters: Parameters = ()) -> Cursor:
        """Run a statement; ``?`` stands for the parameters in order, ``:name`` for those of a mapping."""
        if self._closed:
            self._require_open()
        self._result, self._rows = _NOTHING, None
        self._result = result = self._run(statement, parameters)
        self._rows = result.rows
        return self

    def executemany(self, statement: str, parameters: Iterable[Parameters] | Any) -> Cursor:
        """Run a statement for each of many sets of parameters, which may be the rows of Arrow data."""
        self._require_open()
        self._forget()
        self._result = self.connection.run_many(statement, parameters)
        return self

    def executescript(self, script: str) -> Cursor:
        """Run several statements, one after the other."""
        self._require_open()
        self._forget()
        for statement in self.connection.split(script):
            self._result = self.connection.run(statement, ())
        return self

    # ---- what was found

    @property
    def description(self) -> list[tuple[Any, ...]] | None:
        if not self._result.has_rows:
            return None
        return [_described(name, type_) for name, type_ in zip(self._result.names, self._result.types, strict=True)]

    @property
    def rowcount(self) -> int:
        return self._result.rowcount

    @property
    def types(self) -> tuple[ColumnType | None, ...]:
        """The types of the columns that were found."""
        return self._result.types

    def _found(self) -> Iterator[Row]:
        self._require_open()
        if self._rows is None:
            if self._result.rows is not None:
                self._rows = self._result.rows
            elif self._result.reader is not None:
                self._rows = rows_of(self._result.reader)
            else:
                raise ProgrammingError("the last statement found no rows: there is nothing to fetch")
        return self._rows

    def fetchone(self) -> Row | None:
        return next(self._rows if self._rows is not None and not self._closed else self._found(), None)

    def fetchmany(self, size: int | None = None) -> list[Row]:
        return list(islice(self._found(), self.arraysize if size is None else size))

    def fetchall(self) -> list[Row]:
        return list(self._found())

    def __iter__(self) -> Iterator[Row]:
        return self._found()

    def fetch_record_batch(self) -> pa.RecordBatchReader:
        """What was found as a stream of Arrow record batches."""
        self._require_open()
        if self._result.reader is not None and self._rows is None:
            return self._result.reader
        return _batched(self._result.schema, self._found())

    def arrow(self) -> pa.Table:
        """What was found as an Arrow table."""
        return self.fetch_record_batch().read_all()

    def close(self) -> None:
        """Let go of what was found.  Closing twice does nothing."""
        self._forget()
        self._closed = True

    def setinputsizes(self, sizes: Sequence[Any]) -> None:
        """PEP 249 asks for it; there is nothing to prepare."""

    def setoutputsize(self, size: int, column: int | None = None) -> None:
        """PEP 249 asks for it; there is nothing to prepare."""

    def __enter__(self) -> Cursor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def sets_of(parameters: Any) -> list[Any]:
    """Sets of parameters as they were given, or the rows of Arrow data."""
    if hasattr(parameters, "__arrow_c_stream__"):
        return list(zip(*(column.to_pylist() for column in pa.table(parameters).columns), strict=True))
    return list(parameters)


def _described(name: str, type_: ColumnType | None) -> tuple[Any, ...]:
    if type_ is None:
        return (name, None, None, None, None, None, None)
    is_decimal = type_.name == "DECIMAL"
    size = None if is_decimal else type_.length or None
    precision, scale = (type_.length, type_.scale) if is_decimal else (None, None)
    return (name, type_.name, size, size, precision, scale, None)


def _batched(schema: pa.Schema, rows: Iterator[Row]) -> pa.RecordBatchReader:
    def batches() -> Iterator[pa.RecordBatch]:
        while some := list(islice(rows, 4096)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())
