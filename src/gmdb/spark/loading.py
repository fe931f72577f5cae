"""A load of one table: tasks make staging files, and the database's owner takes them in at once.

A load is planned on the driver, and pickled into every task, and into the process on the driver's host where Spark
commits or aborts.  The messages of the tasks that Spark chose say which files count; what other attempts at the same
partition left is removed with the folder.

Of a streaming query, Spark makes the writer anew where it commits or aborts.  So a task's message says which load it
was for, and which query; and the folders of a query's loads can be told by how their names begin.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import gmdb
from gmdb.errors import DatabaseInUse, Error, InterfaceError, NoSuchTable, OperationalError, OutcomeUnknown, OwnerGone
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark.options import APPEND, Owner, WriteOptions
from gmdb.spark.rows import RowMaker, long_name
from gmdb.spark.spark_types import columns_for, targets
from gmdb.spark.table_reader import settle
from gmdb.storage.directory import require_database
from gmdb.storage.documents import Holder
from gmdb.storage.loads import load_path, new_load, remove_kin, remove_load, staged_path
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.spark.rows import ChangeMaker
    from gmdb.tables.arrow.attach import Load
    from gmdb.tables.arrow.staging import PageFormat


LOCK_TIMEOUT = 60.0  # seconds that a load waits for others who use its table, or hold one of its keys
INTERVAL = 0.2
ATTEMPTS = 5  # to have it taken in, if owners keep going away meanwhile
QUERY_ID = "sql.streaming.queryId"  # as Spark calls what its checkpoint names a streaming query


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """The result of a task: a staging file, or nothing if there were no rows.

    ``has_long``: another file, of rows with values that leave them, goes with it.
    """

    partition: int
    name: str
    rows: int
    load_id: str
    query_id: str | None
    has_long: bool = False

    @property
    def names(self) -> tuple[str, ...]:
        """Of the files."""
        return (self.name, *[long_name(self.name)] * self.has_long) if self.rows else ()


class TableLoad:
    """A load of one table, from its planning to its end."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._options, self._overwrite = options, overwrite
        self._path = options.path
        if overwrite and options.apply != APPEND:
            message = f"apply={options.apply} changes some rows, and an overwriting write has the table lose all others"
            raise InterfaceError(f"{message}; write in append mode")
        if not options.create_table:
            require_database(options.path)
        table, form, self._creates = _with_owner(options, lambda connection: _target(connection, options, schema))
        self._maker = _maker(table, form, schema, options)
        self._load_id = new_load(options.path, Holder.driver(), self._folder_prefix)

    @property
    def _folder_prefix(self) -> str:
        """How the folders of the same query's loads begin; empty if the query has no name of its own."""
        options = self._options
        if not options.checkpoint and (not options.stream or options.batch_id is not None):
            return ""
        named = repr((options.table, options.stream, options.checkpoint))
        return f"stream-{hashlib.sha256(named.encode()).hexdigest()[:12]}-"

    # ---- in a task

    def stage(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Make the rows of one partition ready, in a file of this attempt's own."""
        context = TaskContext.get()
        assert context is not None
        partition, name = context.partitionId(), f"part-{context.partitionId():05d}-{context.taskAttemptId()}"
        if not load_path(self._path, self._load_id).is_dir():
            advice = "every worker must reach the database's directory under the same path"
            raise OperationalError(f"{self._path}: the load is over, or its folder is not here; {advice}")
        path, long_path = (staged_path(self._path, self._load_id, one) for one in (name, long_name(name)))
        try:
            rows = self._maker.stage(path, iterator)
            settle()
        except BaseException as error:
            path.unlink(missing_ok=True)
            long_path.unlink(missing_ok=True)
            if isinstance(error, Error):
                error.args = (f"partition {partition}: {error}",)
            raise
        query_id = context.getLocalProperty(QUERY_ID)
        return StagedRows(partition, name, rows, self._load_id, query_id, long_path.exists())

    # ---- where Spark commits

    def take_in(self, messages: Sequence[WriterCommitMessage | None], batch_id: int | None) -> None:
        """Have all rows taken in, in one transaction; ``batch_id``: as that batch of the stream, once."""
        staged = sorted((m for m in messages if isinstance(m, StagedRows)), key=lambda message: message.partition)
        load = self._load(staged)
        try:
            if batch_id is None:
                self._attach(load)
            else:
                self._take_batch(load, staged, batch_id)
        finally:
            self.drop(messages)

    def _load(self, staged: Sequence[StagedRows]) -> Load:
        from gmdb.tables.arrow.attach import Load, NewTable

        table, create = self._maker.table, None
        if self._creates:
            create = NewTable(table.columns, self._options.tablespace, self._maker.form.pct_free)
        load_id = staged[0].load_id if staged else self._load_id
        names = tuple(name for message in staged for name in message.names)
        apply = None if isinstance(self._maker, RowMaker) else self._maker.apply
        return Load(table.name, load_id, names, self._overwrite, create, apply)

    def _attach(self, load: Load) -> None:
        def attach(connection: Connection) -> None:
            connection._attach_load(load)
            _commit(connection, self._path)

        _with_owner(self._options, attach)

    def _take_batch(self, load: Load, staged: Sequence[StagedRows], batch_id: int) -> None:
        """The owner may go away at any moment: whether the batch is there, the next one tells."""
        from gmdb.tables.catalog.system import StreamBatch

        query_id = next((message.query_id for message in staged), None)
        name = self._options.stream or query_id
        if name is None:
            if not staged and not self._overwrite:
                return  # Spark had no task to run, and so no rows
            if staged:
                what = "Spark does not say which query this is, so which batches are there could not be told"
                raise InterfaceError(f'{what}; give the stream a name of its own: .option("stream", "...")')
            self._attach(load)  # all rows go, once or twice
            return
        rows, in_sequence = sum(message.rows for message in staged), self._options.batch_id is None
        batch = StreamBatch(name, query_id, batch_id, rows, in_sequence)
        _with_owner(self._options, lambda connection: connection._take_batch(load, batch))

    def drop(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Remove what is left in the database's directory."""
        for load_id in {self._load_id, *(m.load_id for m in messages if isinstance(m, StagedRows))}:
            remove_load(self._path, load_id)
        if self._folder_prefix:
            remove_kin(self._path, Holder.driver(), self._folder_prefix)


def _target(
    connection: Connection, options: WriteOptions, schema: StructType
) -> tuple[TableDefinition, PageFormat, bool]:
    """The table that gets the rows, what its pages are like, and whether it is to be made."""
    try:
        table = connection.table(options.table)
        return table, connection._page_format(table.name), False
    except NoSuchTable as error:
        if not options.create_table:
            advice = '.option("createTable", "true") makes one' if options.apply == APPEND else "create it"
            raise NoSuchTable(f"{error}; {advice}") from None
    table = TableDefinition(options.table, 0, 0, 0, columns_for(options.table, schema, options.string_length))
    return table, connection._page_format(None, options.tablespace), True


def _maker(
    table: TableDefinition, form: PageFormat, schema: StructType, options: WriteOptions
) -> RowMaker | ChangeMaker:
    """The maker of rows, or of changes, from a DataFrame's batches."""
    if options.apply == APPEND:
        rows = RowMaker(table, form, targets(table, schema), datetime.now(UTC))
        rows.require_checkable()
        return rows
    from gmdb.spark.rows import ChangeMaker, layout_of
    from gmdb.tables.arrow.load_kinds import Apply

    layout = layout_of(table, schema, options)
    positions = targets(table, StructType([schema.fields[n] for n in layout.rows]))
    rows = RowMaker(table, form, positions, datetime.now(UTC), keeps_rest=True)
    rows.require_checkable()
    rows.require_checked_columns()
    names, has_operations = tuple(table.columns[n].name for n in positions), layout.feed is not None
    order_count = 2 if has_operations else len(layout.order)
    return ChangeMaker(rows, layout, Apply(names, has_operations, order_count, options.on_existing))


def _with_owner(options: WriteOptions, action: Callable[[Connection], Any]) -> Any:
    """Have the database's owner do something, and the next one if it goes away before that is done."""
    for left in reversed(range(ATTEMPTS)):
        try:
            connection = _connect(options.path, options.owner)
            try:
                return action(connection)
            finally:
                connection.close()
        except OwnerGone:
            if not left:
                raise
    raise AssertionError


def _connect(path: Path, owner: Owner | None) -> Connection:
    """A connection; processes that only read the database are waited for."""
    if owner is not None:
        return gmdb.connect(owner.url, token=owner.token, tls_ca=owner.tls_ca, lock_timeout=LOCK_TIMEOUT)
    until = time.monotonic() + LOCK_TIMEOUT
    while True:
        try:
            return gmdb.connect(path, lock_timeout=LOCK_TIMEOUT)
        except DatabaseInUse:
            if time.monotonic() > until:
                raise
        time.sleep(INTERVAL)


def _commit(connection: Connection, path: Path) -> None:
    try:
        connection.commit()
    except OutcomeUnknown as error:
        message = f"{path}: the process that had it open went away while the load was committed"
        raise OperationalError(f"{message}; look whether its rows are there before you load again") from error


# ---- What Spark calls to write a DataFrame, or a batch of a streaming query: a load of one table.

# mypy: disallow-subclassing-any=False


Messages = Sequence[WriterCommitMessage | None]


class TableWriter(DataSourceArrowWriter):
    """A write of one table."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._load, self._batch_id = TableLoad(options, schema, overwrite), options.batch_id

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self._load.stage(iterator)

    def commit(self, messages: Messages) -> None:
        self._load.take_in(messages, self._batch_id)

    def abort(self, messages: Messages) -> None:
        self._load.drop(messages)


class TableStreamWriter(DataSourceStreamArrowWriter):
    """A batch of a streaming query into one table; ``overwrite``: the query's output mode is complete."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._load = TableLoad(options, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        return self._load.stage(iterator)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803  (Spark's name)
        self._load.take_in(messages, batchId)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        del batchId
        self._load.drop(messages)
