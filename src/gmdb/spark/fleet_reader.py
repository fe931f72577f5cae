"""Reading many databases as one DataFrame, with a column that says of which a row is.

Each database is pinned and looked at by itself, several at a time; tasks get small ones several together, and large
ones in shares.

Invariants
 1. If planning fails, no pin stays.
 2. A database is left out only for what is wrong with it, not for what is wrong with the request, and that is reported.
 3. With ``onError=skip``, a database is there with all of its rows or with none; or its damaged pages are left out and
    reported, if ``onCorruption=skip`` asks for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StringType, StructField, StructType

from gmdb.errors import (
    DatabaseError,
    Error,
    NoSuchColumn,
    OperationalError,
    SchemaMismatch,
    SnapshotExpired,
    StatementError,
    StorageError,
)
from gmdb.format.address import page_name
from gmdb.format.columns import Column
from gmdb.format.page import PAGE_SIZES
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.spark.fleet import Leases, LeftOut, Member, find_members, leave_out, name_member
from gmdb.spark.options import ROWS, ReadOptions
from gmdb.spark.pinned_snapshots import describe, drop_pin, pin_of, table_of
from gmdb.spark.spark_types import (
    PAGE_ID,
    as_spark_expects,
    as_spark_takes,
    columns_by_name,
    spark_field,
    spark_schema,
    spark_type,
)
from gmdb.spark.table_reader import PagePartition, TableRead, divide, pages_per_range, pages_to_read, plan_read, settle
from gmdb.spark.views.base import View, ViewRead, record_batch
from gmdb.spark.views.view_reader import chosen_view, plan_view
from gmdb.storage.directory import require_database
from gmdb.storage.pins import Pin
from gmdb.tables.catalog.schema import TableDefinition

# ---- What is read of one database of a fleet: rows of its table, or a view of its storage; whole, or in shares.


class Share(Protocol):
    """What a task reads of one database."""

    @property
    def path(self) -> Path:
        """The database."""

    @property
    def size(self) -> int:
        """Bytes of pages, about."""

    def batches(self) -> Iterator[pa.RecordBatch]:
        """In a task: the rows, without the column that says of which database they are."""


class Plan(Protocol):
    """All that is read of one database."""

    @property
    def path(self) -> Path:
        """The database."""

    @property
    def pin(self) -> Pin | None:
        """The instant that was taken for it."""

    @property
    def size(self) -> int:
        """Bytes of pages, about."""

    def shares(self, most: int | None) -> list[Share]:
        """In shares of up to so many bytes; in one, if None."""


# ---- rows


@dataclass(frozen=True)
class TableShare:
    database: str
    read: TableRead
    pages: PagePartition
    report_to: Path | None

    @property
    def path(self) -> Path:
        return self.read.path

    @property
    def size(self) -> int:
        return sum(count for _, count in self.pages.runs) * self.read.page_size

    def batches(self) -> Iterator[pa.RecordBatch]:
        from gmdb.spark.reading import read_pages  # brings compiled kernels, which planning can do without

        return read_pages(self.read, self.pages.page_ids(), partial(_note_page, self.database, self.report_to))


def _note_page(database: str, report_to: Path | None, page_id: int, what: str) -> None:
    leave_out(report_to, LeftOut(database, page_name(page_id), "Corruption", what))


@dataclass(frozen=True)
class TablePlan:
    database: str
    read: TableRead
    pages: list[int]
    report_to: Path | None

    @property
    def path(self) -> Path:
        return self.read.path

    @property
    def pin(self) -> Pin:
        return self.read.pin

    @property
    def size(self) -> int:
        return len(self.pages) * self.read.page_size

    def shares(self, most: int | None) -> list[Share]:
        pages_each = max(len(self.pages) if most is None else most // self.read.page_size, 1)
        ranges = divide(self.pages, pages_each)
        return [TableShare(self.database, self.read, pages, self.report_to) for pages in ranges]


def plan_table(options: ReadOptions, schema: StructType, member: Member) -> TablePlan:
    """Pin a database, and find the pages of its table; ``schema`` is what all of the fleet must have alike."""
    own = replace(options, path=member.path, columns=())
    with pin_of(own) as pin:
        _require_alike(table_of(pin, own.table, own.path), schema)
        read = plan_read(own, schema, pin)
        pages = pages_to_read(read)
    slim = replace(read, pin=replace(pin, tables=[]))  # it goes to tasks, which know their table
    return TablePlan(member.name, slim, pages, options.report_to)


def _require_alike(table: TableDefinition, schema: StructType) -> None:
    for field in schema.fields:
        try:
            (column,) = columns_by_name(table, [field.name])
        except NoSuchColumn:
            message = f"table {table.name} has no column {field.name}"
        else:
            is_, wants = spark_type(column.type), field.dataType
            if is_ == wants:
                continue
            message = f"table {table.name}, column {column.name} is {column.type}, in Spark {is_.simpleString()}"
            message = f"{message}, and not {wants.simpleString()}"
        advice = "name columns that all have alike with the option columns, or leave such databases out: onError=skip"
        raise SchemaMismatch(f"{message}, as in the fleet's first database; {advice}")


# ---- views


@dataclass(frozen=True)
class ViewShare:
    view: View
    read: ViewRead
    parts: tuple[Any, ...]
    size: int

    @property
    def path(self) -> Path:
        return self.read.path

    def batches(self) -> Iterator[pa.RecordBatch]:
        columns = self.view.choose(self.read.wanted)
        for part in self.parts:
            for values in self.view.batches(self.read, part):
                yield record_batch(columns, self.read.wanted, values)


@dataclass(frozen=True)
class ViewPlan:
    view: View
    read: ViewRead
    parts: tuple[Any, ...]

    @property
    def path(self) -> Path:
        return self.read.path

    @property
    def pin(self) -> Pin | None:
        return self.read.pin

    @property
    def size(self) -> int:
        return sum(self.pin.devices.values()) * PAGE_SIZES[0] if self.pin is not None else 0

    def shares(self, most: int | None) -> list[Share]:
        if most is None:
            return [ViewShare(self.view, self.read, self.parts, self.size)]
        each = self.size // max(len(self.parts), 1)
        return [ViewShare(self.view, self.read, (part,), each) for part in self.parts]


def plan_member_view(view: View, options: ReadOptions, wanted: tuple[str, ...], member: Member) -> ViewPlan:
    """Pin a database, and divide its part of the view."""
    own = replace(options, path=member.path)
    with plan_view(view, own, wanted) as read:
        return ViewPlan(view, read, tuple(view.partitions(read)))


# ---- Reading many databases as one DataFrame, with a column that says of which a row is.

# mypy: disallow-subclassing-any=False


DATABASE = StructField("_database", StringType(), nullable=False)
THREADS = 16  # most of what a plan waits for is the disk, which makes pins last
OPENING = 1 << 20  # bytes of pages that are read in the time that it takes to open a database
HELD_MAX = 32 << 20  # bytes of rows that wait for their database to be found sound; if there are more, it is read twice


# ---- the schema


def fleet_schema(options: ReadOptions) -> StructType:
    """The columns of the first database that can be read, any of which may be NULL, and which database it is."""
    names = [name for name in options.columns if not _is_database(name)]
    if options.view != ROWS:
        view = chosen_view(options)
        find_members(options.fleet)
        fields = view.spark_schema(names).fields if names or not options.columns else []
    else:
        fields = _first_fields(options, names)
    at = [n for n, name in enumerate(options.columns) if _is_database(name)]
    if len(at) > 1:
        raise SchemaMismatch(f"column {DATABASE.name} is asked for twice")
    fields.insert(at[0] if at else len(fields), DATABASE)
    return StructType(fields)


def _is_database(name: str) -> bool:
    return name.lower() == DATABASE.name


def _first_fields(options: ReadOptions, names: Sequence[str]) -> list[StructField]:
    wanted = names if options.columns else None
    _, columns = first_table(options.fleet, options.table, wanted, options.skips_databases)
    return [spark_field(column) for column in columns]


def first_table(
    fleet: Sequence[str], name: str, wanted: Sequence[str] | None, skips_databases: bool
) -> tuple[TableDefinition, Sequence[Column]]:
    """The table of the first database that can be read and has the wanted columns, and these; None: all columns."""
    members = find_members(fleet)
    first: Error | None = None
    for member in members:
        try:
            table = describe(member.path, name, "")
            columns = table.columns if wanted is None else columns_by_name(table, wanted)
        except DatabaseError as error:
            first = first or name_member(error, member)
            if not skips_databases:
                raise first from error
            continue
        if any(_is_database(column.name) for column in columns):
            message = f"{member.name}: table {table.name} has a column {DATABASE.name} of its own"
            raise SchemaMismatch(f"{message}; name the others with the option columns")
        return table, columns
    raise _no_database_left(fleet, first)


def _no_database_left(fleet: Sequence[str], first: Error | None) -> OperationalError:
    return OperationalError(f"{', '.join(fleet)}: none of these databases can be read; the first: {first}")


# ---- planning


@dataclass(frozen=True)
class Part:
    """What a task reads of one database, under the name that it has in the DataFrame."""

    database: str
    share: Share


@dataclass(frozen=True)
class FleetRange(InputPartition):
    """What a task reads: shares of one database or several, one after the other."""

    parts: tuple[Part, ...]


class FleetReader(DataSourceReader):
    """Some columns of a table or view of each database, each in the state that it has when this is made."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        _require_columns(options.columns, schema)
        self._schema = schema
        self._own = _without_database(options, schema)
        self._report_to = options.report_to
        self._all_or_nothing = options.skips_databases and not options.skips_damage
        planned = _plan(options, find_members(options.fleet), self._planner(options))
        pins = [(plan.path, plan.pin.name) for _, plan in planned if plan.pin is not None and plan.pin.is_kept]
        self._leases = Leases(pins, options.lease)
        self._ranges = _pack(_divide(planned, options, self._all_or_nothing), options)

    def __getstate__(self) -> dict[str, Any]:
        """What tasks need: each has its range."""
        return {**self.__dict__, "_ranges": []}

    def _planner(self, options: ReadOptions) -> Callable[[Member], Plan]:
        if options.view == ROWS:
            return partial(plan_table, options, self._own)
        view = chosen_view(options)
        wanted = tuple(column.name for column in view.columns_of_schema(self._own))
        return partial(plan_member_view, view, options, wanted)

    def partitions(self) -> list[InputPartition]:
        return list(self._ranges)

    # ---- in a task

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, FleetRange)
        settle()
        for part in partition.parts:
            self._leases.keep()
            batches = self._whole_or_none(part) if self._all_or_nothing else part.share.batches()
            for batch in batches:
                yield self._with_database(batch, part.database)

    def _whole_or_none(self, part: Part) -> Iterator[pa.RecordBatch]:
        """The share, which is all that is read of its database; nothing if the database turns out to be damaged."""
        held: list[pa.RecordBatch] | None = []
        size = 0
        try:
            for batch in part.share.batches():
                size += batch.nbytes
                if held is not None:
                    held.append(batch)
                if size > HELD_MAX:
                    held = None
        except StorageError as error:
            cause = _cause(error, part)
            leave_out(self._report_to, LeftOut(part.database, None, type(cause).__name__, str(cause)))
            return
        yield from part.share.batches() if held is None else held

    def _with_database(self, batch: pa.RecordBatch, database: str) -> pa.RecordBatch:
        own = as_spark_expects(batch.schema, self._own)
        arrays = dict(zip(own.names, as_spark_takes(batch, self._own), strict=True))
        columns, fields = [], []
        for field in self._schema.fields:
            if _is_database(field.name):
                columns.append(pa.repeat(pa.scalar(database), batch.num_rows))
                fields.append(pa.field(field.name, pa.string(), field.nullable))
            else:
                columns.append(arrays[field.name])
                fields.append(own.field(field.name))
        return pa.record_batch(columns, schema=pa.schema(fields))


def _require_columns(columns: Sequence[str], schema: StructType) -> None:
    wanted = [name.lower() for name in columns]
    wanted += [] if DATABASE.name in wanted else [DATABASE.name]
    if columns and wanted != [name.lower() for name in schema.fieldNames()]:
        message = f"option columns asks for {', '.join(columns)}, the schema for {', '.join(schema.fieldNames())}"
        raise SchemaMismatch(f"{message}; give one of them")


def _without_database(options: ReadOptions, schema: StructType) -> StructType:
    """The columns that each database is asked for; there must be one, if only to count rows by."""
    named = [field for field in schema.fields if _is_database(field.name)]
    for field in named:
        if field.dataType != DATABASE.dataType:
            message = f"{field.name}: it is string, but the DataFrame's schema says {field.dataType.simpleString()}"
            raise SchemaMismatch(f"{message}; leave .schema() out, or say so")
    if len(named) > 1:
        raise SchemaMismatch(f"column {DATABASE.name} is asked for twice")
    own = [field for field in schema.fields if field not in named]
    if own or not named:
        return StructType(own)
    if options.view != ROWS:
        return StructType(chosen_view(options).spark_schema(()).fields[:1])
    return spark_schema([PAGE_ID])


def _plan(options: ReadOptions, members: Sequence[Member], plan: Callable[[Member], Plan]) -> list[tuple[Member, Plan]]:
    """The databases that can be read; lets all pins go if that is not enough."""
    pool = ThreadPoolExecutor(min(THREADS, len(members)), "gmdb-fleet")
    plans = [pool.submit(plan, member) for member in members]
    planned: list[tuple[Member, Plan]] = []
    left_out: list[LeftOut] = []
    first: Error | None = None
    try:
        for member, future in zip(members, plans, strict=True):
            try:
                planned.append((member, future.result()))
            except DatabaseError as error:
                named = name_member(error, member)
                if isinstance(error, StatementError) or not options.skips_databases:
                    raise named from error
                first = first or named
                left_out.append(LeftOut(member.name, None, type(error).__name__, str(error)))
        if not planned:
            raise _no_database_left(options.fleet, first)
        for one in left_out:
            leave_out(options.report_to, one)
    except BaseException:
        pool.shutdown(wait=True, cancel_futures=True)
        _release(members, plans)
        raise
    pool.shutdown()
    return planned


def _release(members: Sequence[Member], plans: Sequence[Future[Plan]]) -> None:
    """Let go the pins of a read that is not made."""
    for member, future in zip(members, plans, strict=True):
        if not future.cancelled() and future.exception() is None:
            pin = future.result().pin
            if pin is not None and pin.is_kept:
                with suppress(Error):  # there is something worse to tell
                    drop_pin(member.path, pin.name)


def _divide(planned: Sequence[tuple[Member, Plan]], options: ReadOptions, all_or_nothing: bool) -> list[Part]:
    """Shares of the databases; not more than one of each, if a task must see all of it."""
    total = sum(plan.size for _, plan in planned)
    most = None if all_or_nothing else pages_per_range(total, 1, options.max_partition_bytes)
    return [Part(member.name, share) for member, plan in planned for share in plan.shares(most)]


def _pack(parts: Sequence[Part], options: ReadOptions) -> list[FleetRange]:
    """Small shares together, in their order."""
    weights = [part.share.size + OPENING for part in parts]
    most = pages_per_range(sum(weights), 1, options.max_partition_bytes)
    ranges: list[list[Part]] = [[]]
    taken = 0
    for part, weight in zip(parts, weights, strict=True):
        if ranges[-1] and taken + weight > most:
            ranges.append([])
            taken = 0
        ranges[-1].append(part)
        taken += weight
    return [FleetRange(tuple(some)) for some in ranges]


def _cause(error: StorageError, part: Part) -> StorageError:
    """What is wrong with a database that cannot be read; raises the error if it is only that the instant is over."""
    if not isinstance(error, SnapshotExpired):
        return error
    try:
        require_database(part.share.path)
    except StorageError as gone:
        return gone
    raise error
