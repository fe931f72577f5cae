"""The reader that Spark runs a stream of changes with, and what a task of it reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import DataType, LongType, StringType, StructField, StructType, TimestampType

from gmdb.errors import InterfaceError, SchemaError, SchemaMismatch
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark.options import ChangeOptions
from gmdb.spark.pinned_snapshots import describe, position_now
from gmdb.spark.spark_types import IN_KEY, columns_by_name, spark_field
from gmdb.spark.table_reader import PagePartition, settle
from gmdb.storage.feeds import LogPosition
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.spark.change_planner import Offset, StreamPlanner


# ---- What a task of a stream reads.

# mypy: disallow-subclassing-any=False


@dataclass(frozen=True)
class SnapshotRange(InputPartition):
    """Some pages of the table as a stream begins with it."""

    snapshot: str
    pages: PagePartition


@dataclass(frozen=True)
class ChangeRange(InputPartition):
    """The commits behind a position, up to one; ``table``: as the stream's schema has it."""

    start: LogPosition
    until: int
    table: TableDefinition


# ---- The reader that Spark runs a stream of changes with.
#
# One is made on the driver's host, where it plans batch after batch; others where a query is planned, to be pickled
# into tasks.  So making one costs nothing and changes nothing.

# mypy: disallow-subclassing-any=False


META = (
    StructField("_op", StringType()),
    StructField("_scn", LongType()),
    StructField("_sequence", LongType()),
    StructField("_commit_time", TimestampType()),
    StructField("_rowid", StringType()),
)
BEFORE = "_before_"


def stream_columns(options: ChangeOptions, table: TableDefinition) -> Sequence[Column]:
    """The table's columns that a stream has: those that were named, or all; it can have no large objects."""
    wanted = columns_by_name(table, options.columns) if options.columns else table.columns
    for column in wanted:
        if column.type.is_lob:
            others = ",".join(other.name for other in table.columns if not other.type.is_lob)
            message = f"table {table.name}: its changes cannot have column {column.name}, {column.type}"
            why = "the log says only where a large object was, and what was there may be gone"
            raise InterfaceError(f'{message}: {why}; name the columns that you want: .option("columns", "{others}")')
        if column not in table.columns:
            raise InterfaceError(
                f"columns: {column.name} is in a stream anyway, or not at all; name the table's columns"
            )
    return wanted


def change_schema(options: ChangeOptions, table: TableDefinition) -> StructType:
    """A row that is gone, or a table that was emptied, has no values: all may be NULL."""
    columns = [spark_field(column) for column in stream_columns(options, table)]
    before = [StructField(BEFORE + one.name, one.dataType, True, dict(one.metadata)) for one in columns]
    key = {table.columns[n].name for n in table.known_by}
    for field in columns:
        field.metadata |= {IN_KEY: True} if field.name in key else {}
    fields = [*columns, *META, *(before if options.before_images else ())]
    for n, field in enumerate(fields):
        if any(field.name == other.name for other in fields[:n]):
            message = f"table {table.name}: its stream of changes would have two columns {field.name}"
            raise InterfaceError(f'{message}; name the columns that you want: .option("columns", "i,s")')
    return StructType(fields)


class ChangeReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The changes of one table."""

    def __init__(self, options: ChangeOptions, schema: StructType) -> None:
        self._options, self._schema = options, schema
        self._planner_made: StreamPlanner | None = None
        self._ends_at: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_planner_made": None}

    def _planner(self, start: Offset) -> StreamPlanner:
        """Reads the log, which brings compiled kernels; tasks of a snapshot do without it."""
        if self._planner_made is None:
            from gmdb.spark.change_planner import StreamPlanner

            self._planner_made = StreamPlanner(self._options, self._table(start.feed))
            if self._ends_at is not None:
                self._planner_made.end_at(self._ends_at)
        return self._planner_made

    def _table(self, feed: int) -> TableDefinition:
        """The table as it was when the DataFrame was made, whose schema it has; it may have changed since.

        ``feed``: the one that the stream goes on with, if it has begun; its table may be gone.
        """
        from gmdb.database.feed import Definitions, require_feed

        definitions = Definitions(self._options.path)
        if feed:
            known = list(definitions.of_feed(feed))
        else:
            now = describe(self._options.path, self._options.table, "", self._options.owner)
            known = [now, *definitions.of_feed(require_feed(now))]
        for table in known:
            try:
                if _shape(change_schema(self._options, table)) == _shape(self._schema):
                    return table
            except (InterfaceError, SchemaError):
                continue  # an older one may lack a column that was asked for
        names = ", ".join(self._schema.fieldNames())
        raise SchemaMismatch(
            f"table {self._options.table}: its stream of changes has not the columns {names}, of these types"
        )

    # ---- on the driver's host

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 (Spark calls it so)
        return _offset({}).to_plain()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 (Spark calls it so)
        most = self._options.max_rows
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 (Spark calls it so)
        self._ends_at = position_now(self._options.path, self._options.owner).scn
        if self._planner_made is not None:
            self._planner_made.end_at(self._ends_at)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 (Spark calls it so)
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        offset = _offset(start)
        return self._planner(offset).latest(offset, most).to_plain()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._planner(_offset(end)).partitions(_offset(start), _offset(end))

    def commit(self, end: dict[str, Any]) -> None:
        self._planner(_offset(end)).commit(_offset(end))

    # ---- in tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        from gmdb.spark.change_reading import read_changes, read_snapshot  # bring compiled kernels

        settle()
        if isinstance(partition, SnapshotRange):
            return read_snapshot(self._options, self._schema, partition)
        assert isinstance(partition, ChangeRange)
        return read_changes(self._options, self._schema, partition)


def _shape(schema: StructType) -> list[tuple[str, DataType]]:
    return [(field.name, field.dataType) for field in schema.fields]


def _offset(plain: Mapping[str, Any]) -> Offset:
    from gmdb.spark.change_planner import Offset

    return Offset(**plain)
