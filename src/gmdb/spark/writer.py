"""Writing a DataFrame with Spark: tasks make staging files, and the database's owner takes them in at once.

A writer is made where the write is planned, and pickled into every task, and into the process on the driver's host
where Spark commits or aborts.  Which files count is what the tasks that Spark chose have said: what other attempts
at the same partition left is removed with the folder.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

import gmdb
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import DatabaseInUse, Error, NoSuchTable, OperationalError, OwnerGone
from gmdb.spark.options import Owner
from gmdb.spark.rows import RowMaker
from gmdb.spark.worker import settle
from gmdb.spark.write_options import WriteOptions
from gmdb.spark.write_types import columns_for, targets
from gmdb.storage.directory import require_database
from gmdb.storage.holder import Holder
from gmdb.storage.loads import load_path, new_load, remove_load, staged_path

if TYPE_CHECKING:
    from gmdb.connection import Connection

LOCK_TIMEOUT = 60.0  # seconds that a load waits for others who use its table, or hold one of its keys
INTERVAL = 0.2
ATTEMPTS = 5  # to have it taken in, if owners keep going away meanwhile


@dataclass(frozen=True)
class StagedRows(WriterCommitMessage):
    """What a task has made: a staging file, or nothing if there were no rows."""

    partition: int
    name: str
    rows: int


class TableWriter(DataSourceArrowWriter):
    """A load of one table."""

    def __init__(self, options: WriteOptions, schema: StructType, overwrite: bool) -> None:
        self._path, self._owner, self._overwrite = options.path, options.owner, overwrite
        self._tablespace = options.tablespace
        self._creates = False
        if not options.create_table:
            require_database(options.path)
        with _connect(options.path, options.owner) as connection:
            try:
                table = connection.table(options.table)
                form = connection.page_format(table.name)
            except NoSuchTable as error:
                if not options.create_table:
                    raise NoSuchTable(f'{error}; .option("createTable", "true") makes one') from None
                columns = columns_for(options.table, schema, options.string_length)
                table = TableDefinition(options.table, 0, 0, 0, columns)
                form = connection.page_format(None, options.tablespace)
                self._creates = True
        self._rows = RowMaker(table, form, targets(table, schema), datetime.now())
        self._rows.require_checkable()
        self._load_id = new_load(options.path, Holder.driver())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> StagedRows:
        """Make the rows of one partition ready, in a file of this attempt's own."""
        context = TaskContext.get()
        assert context is not None
        partition, name = context.partitionId(), f"part-{context.partitionId():05d}-{context.taskAttemptId()}"
        if not load_path(self._path, self._load_id).is_dir():
            advice = "every worker must reach the database's directory under the same path"
            raise OperationalError(f"{self._path}: the load is over, or its folder is not here; {advice}")
        path = staged_path(self._path, self._load_id, name)
        try:
            rows = self._rows.stage(path, iterator)
            settle()
        except Error as error:
            path.unlink(missing_ok=True)
            error.args = (f"partition {partition}: {error}",)
            raise
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        return StagedRows(partition, name, rows)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Have all rows taken in, in one transaction."""
        staged = [message for message in messages if isinstance(message, StagedRows)]
        self._attach([message.name for message in sorted(staged, key=lambda one: one.partition) if message.rows])
        remove_load(self._path, self._load_id)

    def _attach(self, names: Sequence[str]) -> None:
        from gmdb.arrow.attach import Load, NewTable

        table, create = self._rows.table, None
        if self._creates:
            create = NewTable(table.columns, self._tablespace, self._rows.form.pct_free)
        load = Load(table.name, self._load_id, tuple(names), self._overwrite, create)
        for left in reversed(range(ATTEMPTS)):
            connection = _connect(self._path, self._owner)
            try:
                connection.attach_load(load)
                _commit(connection, self._path)
                return
            except OwnerGone:
                if not left:
                    raise
            finally:
                connection.close()

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        del messages
        remove_load(self._path, self._load_id)


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
    except OwnerGone as error:
        said = f"{path}: the process that had it open went away while the load was committed"
        raise OperationalError(f"{said}; look whether its rows are there before you load again") from error
