"""Runs a translated query: tables as streams into DuckDB, the result as a stream out of it.

Invariants
 1. A table is opened when its first batch is needed, not before; and again each time that DuckDB scans it.
 2. Whatever ends a statement (its last row, close, an error, the garbage collector), its readers are closed after
    DuckDB has let go of them.
 3. An exception of a table's reader is the one that the caller sees.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from _thread import start_new_thread
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import date, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from gmdb.errors import ForkedProcess, InternalError, StatementInterrupted, ValueOutOfRange
from gmdb.format.columns import EPOCH, EPOCH_DATE, MICROSECOND, ColumnType
from gmdb.process.forked import ADVICE
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql.duck.instance import cursor, failure, has_stopped, register, renew, translated, watch
from gmdb.sql.operations.registry import Operation, RowFunction
from gmdb.tables.arrow.arrow_types import arrow_type

BATCH_ROWS = 1 << 17
PATIENCE = 5.0  # seconds, at the process's end, for a thread that is reading to notice the interrupt
INTERRUPT_INTERVAL = 0.02  # seconds
_MICROSECONDS = pa.timestamp("us")
_LIMITS = {  # as numbers, and how those are stored; (a pa.scalar here would bring pandas, where that is installed)
    pa.date32(): (pa.int32(), *((end - EPOCH_DATE).days for end in (date.min, date.max))),
    _MICROSECONDS: (pa.int64(), *((end - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))),
}


@dataclass(frozen=True, slots=True)
class Source:
    """A table of a statement as DuckDB reads it.

    ``count``: about how many rows it has; None if that is unknown.  ``batches`` reads the rows anew, with some of the
    columns; it is called from threads of DuckDB's, by one at a time for each reader.
    """

    alias: str
    schema: pa.Schema
    count: int | None
    batches: Callable[[Sequence[int]], Iterator[pa.RecordBatch]]


class Stream:
    """A table for DuckDB: an object that gives a new Arrow stream at each call."""

    def __init__(self, source: Source, scans: Scans) -> None:
        self.schema = pa.schema([_without_zone(field) for field in source.schema])
        self._source = source
        self._scans = scans

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        del requested_schema  # the consumer's wish, which it fulfils itself
        return self.opened(None)

    def opened(self, columns: Sequence[int] | None) -> object:
        """A stream of some of the columns."""
        columns = range(len(self.schema)) if columns is None else columns
        schema = pa.schema([self.schema.field(n) for n in columns])
        batches = self._scans.watch(self._batches(columns, schema))
        return pa.RecordBatchReader.from_batches(schema, batches).__arrow_c_stream__()

    def _batches(self, columns: Sequence[int], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
        batches = self._source.batches(columns)
        try:
            for batch in batches:
                self._scans.rows[self._source.alias] += batch.num_rows
                arrays = [_viewed(one, field.type) for one, field in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, schema=schema)
        finally:
            batches.close()  # type: ignore[attr-defined]


class SourceScan:
    """The batches of one stream.  DuckDB's threads take them; ``close`` waits for the last one."""

    def __init__(self, batches: Iterator[pa.RecordBatch], scans: Scans) -> None:
        self._batches = batches
        self._scans = scans
        self._guard = threading.Lock()
        self._closed = False

    def __iter__(self) -> SourceScan:
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
        self._open: list[SourceScan] = []
        self._guard = threading.Lock()
        self.error: BaseException | None = None
        self.rows: Counter[str] = Counter()  # that were read of each source, by its alias

    def watch(self, batches: Iterator[pa.RecordBatch]) -> SourceScan:
        scan = SourceScan(batches, self)
        with self._guard:
            self._open.append(scan)
        return scan

    def close(self) -> None:
        with self._guard:
            waiting, self._open = self._open, []
        for scan in waiting:
            scan.close()


class Execution:
    """A statement at work in DuckDB.  It ends when its result is no longer referenced, if not before."""

    def __init__(self, operations: Iterable[Operation | RowFunction] = ()) -> None:
        self.scans = Scans()
        self._pid = os.getpid()
        self._connection: Any = cursor(operations)
        self._failure = failure()
        self._result: pa.RecordBatchReader | None = None
        self._guard = threading.Lock()
        self._inside = threading.Lock()  # held by the thread that is in DuckDB
        self._user = threading.get_ident()  # the thread that used it last
        self._interrupted = False  # DuckDB itself forgets it if the statement has not begun to run
        watch(self)

    def start(
        self, sql: str, sources: Sequence[Source], parameters: Mapping[str, Any], schema: pa.Schema
    ) -> Iterator[pa.RecordBatch]:
        """Run the statement up to its first batch, so that most errors come at once."""

        def begin() -> pa.RecordBatch | None:
            self._result = self._run(sql, sources, dict(parameters))
            return self._read()

        try:
            first = self._in_duckdb(begin)
        except BaseException as error:
            raise self._failed(error) from None
        return self._batches(schema, first)

    def _in_duckdb(self, work: Callable[[], pa.RecordBatch | None]) -> pa.RecordBatch | None:
        """Call DuckDB, which may take long and handles no signals: on the main thread, another thread does it."""
        with self._inside:
            if threading.current_thread() is not threading.main_thread():
                return work()
            return _OtherThread(work).outcome(self)

    def _run(self, sql: str, sources: Sequence[Source], parameters: dict[str, Any]) -> pa.RecordBatchReader:
        connection, relation = self._connection, None
        try:
            if connection is None:
                raise StatementInterrupted("the statement was closed before it ran")
            for source in sources:
                register(connection, source.alias, Stream(source, self.scans), source.count)
            relation = connection.sql(sql, params=parameters)
            if self._interrupted:
                raise StatementInterrupted("the statement was interrupted")
            return relation.to_arrow_reader(BATCH_ROWS)
        finally:
            del connection, relation  # no traceback must hold them

    def _batches(self, schema: pa.Schema, batch: pa.RecordBatch | None) -> Iterator[pa.RecordBatch]:
        try:
            while batch is not None:
                _require_moments(batch)
                columns = [_as_ours(column, field.type) for column, field in zip(batch.columns, schema, strict=True)]
                yield pa.RecordBatch.from_arrays(columns, schema=schema)
                batch = self._next()
                if batch is None and self._connection is None:
                    raise StatementInterrupted("the statement was closed while its rows were read")
        except GeneratorExit:
            raise
        except BaseException as error:
            raise self._failed(error) from None
        finally:
            self.end()

    def _next(self) -> pa.RecordBatch | None:
        if self._pid != os.getpid():
            message = f"the query was begun by process {self._pid}, which forked this one"
            raise ForkedProcess(f"{message}; begin it here, or {ADVICE}")
        self._user = threading.get_ident()
        return self._in_duckdb(self._read)

    def _read(self) -> pa.RecordBatch | None:
        result = self._result
        try:
            return result.read_next_batch() if result is not None else None
        except StopIteration:
            return None

    def _failed(self, error: BaseException) -> BaseException:
        """Close everything; returns the exception to raise for one that came out of DuckDB."""
        self.end()
        if has_stopped() and threading.current_thread() is not threading.main_thread():
            return SystemExit()  # the process is ending, and this thread with it: it must not report an error
        if self.scans.error is not None:
            return self.scans.error
        if isinstance(error, self._failure | pa.ArrowException | OSError | RuntimeError):
            own = translated(error)
            if isinstance(own, InternalError):
                renew()
            return own
        return error

    @property
    def is_interrupted(self) -> bool:
        return self._interrupted

    def interrupt(self) -> None:
        self._interrupted = True
        with self._guard:
            if self._connection is not None:
                self._connection.interrupt()

    def end(self) -> None:
        with self._guard:
            if self._connection is None:
                return
            self._connection.interrupt()
            try:
                self._connection.close()
            except self._failure:  # another thread is reading: it is interrupted now, and ends the statement itself
                return
            self._connection = self._result = None
        self.scans.close()

    def stop(self) -> bool:
        self._interrupted = True
        frozen = self._user != threading.get_ident() and self._user in sys._current_frames()
        until = time.monotonic() + PATIENCE
        self.end()
        while not self._inside.acquire(timeout=INTERRUPT_INTERVAL):
            if time.monotonic() > until:
                return True
            self.end()  # again: DuckDB forgets an interrupt that comes before it runs
        self.end()
        self._inside.release()  # a thread that enters now finds no statement
        return frozen

    def leave_to_parent(self) -> list[Any]:
        inherited = [self._connection, self._result]
        self._guard, self._inside = threading.Lock(), threading.Lock()
        self._connection = self._result = None
        return inherited

    def __del__(self) -> None:
        if hasattr(self, "_interrupted"):
            self.end()


class _OtherThread:
    """Work in another thread, for which the main thread waits: signals are handled meanwhile."""

    def __init__(self, work: Callable[[], pa.RecordBatch | None]) -> None:
        self._work: Callable[[], pa.RecordBatch | None] | None = work
        self._batch: pa.RecordBatch | None = None
        self._error: BaseException | None = None
        self._done = threading.Lock()

    def outcome(self, execution: Execution) -> pa.RecordBatch | None:
        self._done.acquire()
        start_new_thread(self._run, ())
        try:
            while not self._done.acquire(timeout=INTERRUPT_INTERVAL):
                if execution.is_interrupted:
                    execution.interrupt()  # again: DuckDB forgets an interrupt that comes before it runs
        except BaseException:  # of a signal's handler
            execution.interrupt()
            while not self._done.acquire(timeout=INTERRUPT_INTERVAL):
                execution.interrupt()
            raise
        error, self._error = self._error, None
        if error is None:
            return self._batch
        try:
            raise error
        finally:
            del error  # no circle: what its traceback holds goes with it

    def _run(self) -> None:
        try:
            assert self._work is not None
            self._batch = self._work()
        except BaseException as error:
            self._error = error
        finally:
            self._work = None
            self._done.release()


def _require_moments(batch: pa.RecordBatch) -> None:
    """Refuse dates and timestamps that DuckDB can have and gmdb cannot."""
    for column in batch.columns:
        limits = _LIMITS.get(column.type)
        if limits is None or not len(column):
            continue
        extent, (stored, first, last) = pc.min_max(column), limits
        low, high = (extent[end].cast(stored).as_py() for end in ("min", "max"))
        if low is not None and not first <= low <= high <= last:
            raise ValueOutOfRange(f"{'date' if pa.types.is_date(column.type) else 'timestamp'} out of range")


def _without_zone(field: pa.Field) -> pa.Field:
    """Instants are times of UTC to DuckDB."""
    return field.with_type(_MICROSECONDS) if pa.types.is_timestamp(field.type) else field


def _viewed(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """Instants as times of UTC, and the other way round."""
    return column.view(type_) if column.type != type_ and pa.types.is_timestamp(type_) else column


def _as_ours(column: pa.Array, type_: pa.DataType) -> pa.Array:
    """A column of DuckDB's, which gives UUIDs out as texts."""
    if type_ != pa.uuid():
        return _viewed(column, type_)
    texts = pc.fill_null(pc.replace_substring(column, "-", ""), "0" * 32)
    raw = pa.py_buffer(bytes.fromhex("".join(texts.to_pylist())))
    mask = pc.is_valid(column)
    validity = pa.array(mask.to_pylist(), pa.bool_()).buffers()[1] if column.null_count else None
    return pa.Array.from_buffers(type_, len(column), [validity, raw], column.null_count)


Watch = Callable[[Execution], None]


class DuckResult:
    """A query's result: ``names``, ``types`` and the rows as ``reader``, whose schema is that of the types."""

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[ColumnType],
        sql: str,
        sources: Sequence[Source],
        parameters: Mapping[str, Any],
        watch: Watch | None = None,
        operations: Iterable[Operation | RowFunction] = (),
    ) -> None:
        """``watch`` is called with the execution before it runs.  ``operations``: those that Python does."""
        self.names = list(names)
        self.types = list(types)
        fields = [pa.field(name, arrow_type(type_)) for name, type_ in zip(self.names, self.types, strict=True)]
        schema = pa.schema(fields)
        self._execution = Execution(operations)
        if watch is not None:
            watch(self._execution)
        batches = self._execution.start(sql, sources, parameters, schema)
        self.reader = pa.RecordBatchReader.from_batches(schema, batches)

    def rows_read(self) -> Mapping[str, int]:
        """How many rows DuckDB has taken of each source so far, by its alias."""
        return self._execution.scans.rows

    def interrupt(self) -> None:
        """Stop the statement from another thread; its reader gets StatementInterrupted."""
        self._execution.interrupt()

    def close(self) -> None:
        """End the statement, whether or not all rows were read."""
        self._execution.end()

    def __enter__(self) -> DuckResult:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
