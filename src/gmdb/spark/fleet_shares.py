"""What is read of one database of a fleet: rows of its table, or a view of its storage; whole, or in shares."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from gmdb.catalog.schema import TableDefinition
from gmdb.errors import NoSuchColumn, SchemaMismatch
from gmdb.format.address import page_name
from gmdb.format.page import PAGE_SIZES
from gmdb.spark.fleet import LeftOut, Member, leave_out
from gmdb.spark.options import ReadOptions
from gmdb.spark.plan import PageRange, TableRead, divide
from gmdb.spark.reader import pages_to_read, plan_read
from gmdb.spark.snapshots import pin_of, table_of
from gmdb.spark.types import columns_by_name, spark_type
from gmdb.spark.views.base import View, ViewRead, record_batch
from gmdb.spark.views.reader import plan_view
from gmdb.storage.pins import Pin


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
    pages: PageRange
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
            said = f"table {table.name} has no column {field.name}"
        else:
            is_, wants = spark_type(column.type), field.dataType
            if is_ == wants:
                continue
            said = f"table {table.name}, column {column.name} is {column.type}, in Spark {is_.simpleString()}"
            said = f"{said}, and not {wants.simpleString()}"
        advice = "name columns that all have alike with the option columns, or leave such databases out: onError=skip"
        raise SchemaMismatch(f"{said}, as in the fleet's first database; {advice}")


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
