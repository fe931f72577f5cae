"""Running a translated query: tables as streams into DuckDB, the result as a stream out of it.

Invariants
 1. A table is opened when its first batch is asked for, not before; each time that DuckDB scans it, anew.
 2. Whatever ends a statement (its last row, close, an error, the garbage collector), its readers are closed after
    DuckDB has let go of them.
 3. An exception of a table's reader is the one that the caller sees.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from gmdb.arrow.schema import arrow_type
from gmdb.errors import StatementInterrupted, ValueOutOfRange
from gmdb.format.columns import EPOCH, EPOCH_DATE, MICROSECOND, Column, ColumnType
from gmdb.sql.duck.engine import cursor, failure
from gmdb.sql.duck.failures import translated

BATCH_ROWS = 1 << 17
_MICROSECONDS = pa.timestamp("us")
_LIMITS = {  # as numbers, and how those are stored; (a pa.scalar here would bring pandas, where that is installed)
    pa.date32(): (pa.int32(), *((end - EPOCH_DATE).days for end in (date.min, date.max))),
    _MICROSECONDS: (pa.int64(), *((end - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))),
}


class Source(Protocol):
    """A table as a query reads it.

    It may have ``hidden``, columns that can be named but are not part of ``*``.
    ``read`` is called from threads of DuckDB's, one at a time for each reader.
    """

    @property
    def columns(self) -> Sequence[Column]: ...

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader: ...


@dataclass(frozen=True, slots=True)
class TableRead:
    """What a plan wants of a table: its columns by name, and for each column of DuckDB's which of them it is.

    A column that DuckDB's text names but no answer depends on is in the stream as NULLs (position None).
    """

    alias: str
    table: str
    wanted: tuple[str, ...]
    positions: tuple[int | None, ...]
    schema: pa.Schema


class Stream:
    """A table for DuckDB: an object that gives a new Arrow stream each time that it is asked."""

    def __init__(self, read: TableRead, source: Source, scans: Scans) -> None:
        self._read = read
        self._source = source
        self._scans = scans

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        batches = self._scans.watch(self._batches())
        return pa.RecordBatchReader.from_batches(self._read.schema, batches).__arrow_c_stream__(requested_schema)

    def _batches(self) -> Iterator[pa.RecordBatch]:
        read = self._read
        reader = self._source.read(list(read.wanted))
        try:
            for batch in reader:
                arrays = [
                    batch.column(position) if position is not None else pa.nulls(batch.num_rows, field.type)
                    for position, field in zip(read.positions, read.schema, strict=True)
                ]
                yield pa.RecordBatch.from_arrays(arrays, schema=read.schema)
        finally:
            reader.close()


class Scan:
    """The batches of one stream.  DuckDB's threads take them, and whoever ends the statement waits for the last one."""

    def __init__(self, batches: Iterator[pa.RecordBatch], scans: Scans) -> None:
        self._batches = batches
        self._scans = scans
        self._guard = threading.Lock()
        self._closed = False

    def __iter__(self) -> Scan:
        return self

    def __next__(self) -> pa.RecordBatch:
        with self._guard:
            if self._closed:
                raise StopIteration
            try:
                return next(self._batches)
            except StopIteration:
                raise
            except Exception as error:
                self._scans.error = self._scans.error or error
                raise

    def close(self) -> None:
        with self._guard:
            self._closed = True
            self._batches.close()  # type: ignore[attr-defined]


class Scans:
    """The streams that a statement has opened, and the first exception of one."""

    def __init__(self) -> None:
        self._open: list[Scan] = []
        self._guard = threading.Lock()
        self.error: BaseException | None = None

    def watch(self, batches: Iterator[pa.RecordBatch]) -> Scan:
        scan = Scan(batches, self)
        with self._guard:
            self._open.append(scan)
        return scan

    def close(self) -> None:
        with self._guard:
            waiting, self._open = self._open, []
        for scan in waiting:
            scan.close()


class Execution:
    """A statement at work in DuckDB.  Whoever still wants its rows holds it; when nobody does, it ends."""

    def __init__(self) -> None:
        self.scans = Scans()
        self.connection, self._failure = cursor(), failure()
        self._guard = threading.Lock()
        self._ended = False
        self._interrupted = False  # DuckDB itself forgets it if the statement has not begun to run

    def start(
        self, sql: str, reads: Sequence[tuple[TableRead, Source]], parameters: Mapping[str, Any], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Run the statement up to its first batch, so that most errors come at once."""
        try:
            for read, source in reads:
                self.connection.register(read.alias, Stream(read, source, self.scans))
            relation = self.connection.sql(sql, params=dict(parameters))
            if self._interrupted:
                raise StatementInterrupted("the statement was interrupted")
            result = relation.to_arrow_reader(BATCH_ROWS)
            first = _next(result)
        except BaseException as error:
            raise self._failed(error) from None
        return self._batches(result, schema, first)

    def _batches(
        self, result: pa.RecordBatchReader, schema: pa.Schema, batch: pa.RecordBatch | None
    ) -> Iterator[pa.RecordBatch]:
        try:
            while batch is not None:
                _require_moments(batch)
                yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
                batch = _next(result)
                if batch is None and self._ended:
                    raise StatementInterrupted("the statement was closed while its rows were read")
        except GeneratorExit:
            raise
        except BaseException as error:
            raise self._failed(error) from None
        finally:
            del result
            self.end()

    def _failed(self, error: BaseException) -> BaseException:
        """The exception to raise for one that came out of DuckDB; everything is closed by then."""
        self.end()
        if self.scans.error is not None:
            return self.scans.error
        if isinstance(error, self._failure | pa.ArrowException | OSError | RuntimeError):
            return translated(error)
        return error

    def interrupt(self) -> None:
        self._interrupted = True
        with self._guard:
            if not self._ended:
                self.connection.interrupt()

    def end(self) -> None:
        with self._guard:
            if self._ended:
                return
            self.connection.interrupt()
            try:
                self.connection.close()
            except self._failure:  # another thread is reading: it is interrupted now, and ends the statement itself
                return
            self._ended = True
        self.scans.close()

    def __del__(self) -> None:
        if hasattr(self, "_ended"):
            self.end()


def _require_moments(batch: pa.RecordBatch) -> None:
    """Refuse dates and timestamps that DuckDB has and gmdb has not."""
    for column in batch.columns:
        limits = _LIMITS.get(column.type)
        if limits is None or not len(column):
            continue
        found, (stored, first, last) = pc.min_max(column), limits
        low, high = (found[end].cast(stored).as_py() for end in ("min", "max"))
        if low is not None and not first <= low <= high <= last:
            raise ValueOutOfRange(f"{'date' if pa.types.is_date(column.type) else 'timestamp'} out of range")


def _next(result: pa.RecordBatchReader) -> pa.RecordBatch | None:
    try:
        return result.read_next_batch()
    except StopIteration:
        return None


Watch = Callable[[Execution], None]


class Answer:
    """A query's result: ``names``, ``types`` and the rows as ``reader``, whose schema is that of the types."""

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[ColumnType],
        sql: str,
        reads: Sequence[tuple[TableRead, Source]],
        parameters: Mapping[str, Any],
        watch: Watch | None = None,
    ) -> None:
        """``watch`` is given what can interrupt the statement, before it runs."""
        self.names = list(names)
        self.types = list(types)
        fields = [pa.field(name, arrow_type(type_)) for name, type_ in zip(self.names, self.types, strict=True)]
        schema = pa.schema(fields)
        self._execution = Execution()
        if watch is not None:
            watch(self._execution)
        batches = self._execution.start(sql, reads, parameters, schema)
        self.reader = pa.RecordBatchReader.from_batches(schema, batches)

    def interrupt(self) -> None:
        """Stop the statement from another thread; whoever reads gets StatementInterrupted."""
        self._execution.interrupt()

    def close(self) -> None:
        """End the statement, whether or not all rows were read."""
        self._execution.end()

    def __enter__(self) -> Answer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
