"""A DataFrame's batches as rows of a table, in a task: types, defaults, checks, then a staging file.

What only the database's owner can finish stays with it: large objects, and numbers of identity columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import datetime
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import (
    BinaryType,
    DataType,
    DateType,
    DecimalType,
    FractionalType,
    IntegralType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from gmdb.errors import DataError, NoSuchColumn, NotSupportedError, SchemaMismatch
from gmdb.format.columns import Column, has_cells
from gmdb.format.heap import row_size_max
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark.options import CHANGES, WriteOptions
from gmdb.spark.spark_types import IN_KEY, as_column_takes
from gmdb.tables.arrow.arrow_types import arrow_schema, arrow_type, fit_batch
from gmdb.tables.arrow.load_kinds import Apply, Operation, require_key
from gmdb.tables.catalog.schema import CHECK, TableDefinition

if TYPE_CHECKING:
    from gmdb.sql.statements.executemany import BulkRows
    from gmdb.tables.arrow.staging import PageFormat, StagedBatches, StagedPages


def _no_numbers_yet(column: Column, count: int) -> list[int]:
    """What stands for numbers that the owner will give to rows."""
    del column
    return [0] * count


def long_name(name: str) -> str:
    """Of the file with rows whose values leave them, beside a staging file."""
    return f"{name}-long"


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of one table; the same for all tasks of a load."""

    table: TableDefinition
    form: PageFormat
    targets: tuple[int, ...]  # for each of the DataFrame's columns, which of the table's it is
    now: datetime  # for defaults and checks that ask for the time
    keeps_rest: bool = False  # rows that are there keep what they have in columns that the DataFrame does not have

    @cached_property
    def left_to_owner(self) -> tuple[int, ...]:
        """Columns that the DataFrame has not, and that only the owner knows: numbers, and what is made of them."""
        columns = list(enumerate(self.table.columns))
        numbered = [n for n, column in columns if column.is_numbered and n not in self.targets]
        if not self._has_generated:
            return tuple(numbered)
        known = set(self.targets) if self.keeps_rest else {n for n, _ in columns} - set(numbered)
        from gmdb.sql.statements.generated import Generated

        generated = Generated(self.table)
        unknown = set(generated.positions) - set(generated.within(known).positions) - set(self.targets)
        return tuple(sorted({*numbered, *unknown}))

    @property
    def _has_generated(self) -> bool:
        return any(column.generated is not None for column in self.table.columns)

    @property
    def _has_checks(self) -> bool:
        return any(constraint.kind == CHECK for constraint in self.table.constraints)

    def require_checkable(self) -> None:
        """Refuse checks that ask for a value which a row gets only from the owner."""
        if not self._has_checks or not self.left_to_owner:
            return
        from gmdb.sql.statements.assignment import Checks  # brings the parser, which most loads can do without

        checks = Checks(self.table)
        for n in self.left_to_owner:
            if checks.use(n):
                message = f"a check asks for column {self.table.columns[n].name}, whose values come only later"
                raise NotSupportedError(f"table {self.table.name}: {message}; give them in the DataFrame")

    def require_checked_columns(self) -> None:
        """Refuse checks that ask for a column which a row that is there may have, and the DataFrame has not."""
        if not self._has_checks or len(self.targets) == len(self.table.columns):
            return
        from gmdb.sql.statements.assignment import Checks

        checks = Checks(self.table)
        for n, column in enumerate(self.table.columns):
            if n not in self.targets and checks.use(n) and (column.generated is None or n in self.left_to_owner):
                message = (
                    f"a check asks for column {column.name}, which rows that are there have and the DataFrame has not"
                )
                raise NotSupportedError(f"table {self.table.name}: {message}; give it in the DataFrame")

    def stage(self, path: Path, batches: Iterable[pa.RecordBatch]) -> int:
        """Write a staging file; returns how many rows were staged.

        Batches of a table with TEXT or BYTEA columns that have values which leave their rows go to a second file.
        """
        from gmdb.tables.arrow.staging import StagedPages

        staged, long = self._staging_file(path), None
        try:
            rows = 0
            for batch in batches:
                whole = self.complete(batch, rows)
                if isinstance(staged, StagedPages) and self._has_long_texts(whole, rows):
                    long = long or self._staged_batches(path.with_name(long_name(path.name)))
                    long.add(whole)
                else:
                    staged.add(whole)
                rows += len(batch)
            staged.finish()
            if long is not None:
                long.finish()
            return rows
        finally:
            staged.close()
            if long is not None:
                long.close()

    def _staging_file(self, path: Path) -> StagedPages | StagedBatches:
        from gmdb.tables.arrow.staging import StagedPages, definition_digest

        table = self.table
        if self.left_to_owner or table.expressions or has_cells(table.columns):
            return self._staged_batches(path)
        digest = definition_digest(table.columns, table.constraints)
        return StagedPages(path, table.name, table.columns, self.form, digest)

    def _staged_batches(self, path: Path) -> StagedBatches:
        from gmdb.tables.arrow.staging import StagedBatches, definition_digest

        table = self.table
        columns = [column for n, column in enumerate(table.columns) if n not in self.left_to_owner]
        digest = definition_digest(table.columns, table.constraints)
        return StagedBatches(path, table.name, columns, arrow_schema(columns), digest)

    def _has_long_texts(self, batch: pa.RecordBatch, first_row: int) -> bool:
        """Whether a batch has values that only the owner of the database can put on pages."""
        columns = self.table.columns
        if not any(column.type.may_be_long for column in columns):
            return False
        from gmdb.tables.arrow.array_columns import as_cells
        from gmdb.tables.arrow.lob_columns import long_texts

        arrays = as_cells(columns, fit_batch(self.table.name, columns, batch, first_row))
        return bool(long_texts(columns, arrays, row_size_max(self.form.page_size)))

    def complete(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The batch under the table's names, with all columns but those left to the owner, once checks hold."""
        columns = [self.table.columns[n] for n in self.targets]
        arrays = [as_column_takes(column, values) for column, values in zip(columns, batch.columns, strict=True)]
        named = pa.RecordBatch.from_arrays(arrays, names=[column.name for column in columns])
        if self._bulk is None:
            return named
        fitted = fit_batch(self.table.name, columns, named, first_row)
        whole = self._bulk.whole(dict(zip(self.targets, fitted, strict=True)), len(batch), _no_numbers_yet)
        return whole.drop_columns([self.table.columns[n].name for n in self.left_to_owner])

    @cached_property
    def _bulk(self) -> BulkRows | None:
        """What fills in defaults and checks rows; None if there is nothing to do."""
        if not self._has_checks and not self._has_generated and len(self.targets) == len(self.table.columns):
            return None
        from gmdb.sql.statements.assignment import Checks, Defaults
        from gmdb.sql.statements.executemany import BulkRows

        checks = Checks(self.table)
        if self._has_generated:
            left = {*self.left_to_owner}
            if self.keeps_rest:
                left |= set(range(len(self.table.columns))) - {*self.targets}
            checks.generated = checks.generated.within(set(range(len(self.table.columns))) - left)
        return BulkRows(self.table, {}, Defaults(self.table), checks, self.now)


# ---- A DataFrame's batches as changes of a table's rows by its primary key, in a task: into a staging file.
#
# Rows are either to be there as they are (upsert), or say in ``_op`` what happened to them (changes), as the rows of a
# change feed do: ``_scn`` and ``_sequence`` then say in which order.

OP, SCN, SEQUENCE = "_op", "_scn", "_sequence"
ALSO_FEEDS = ("_commit_time", "_rowid")  # a feed's columns that say nothing about a row's new values
BEFORE = "_before_"
_ORDERED = (
    IntegralType,
    FractionalType,
    DecimalType,
    DateType,
    TimestampType,
    TimestampNTZType,
    StringType,
    BinaryType,
)
_OPERATIONS = {
    "insert": Operation.PUT,
    "update": Operation.PUT,
    "delete": Operation.DELETE,
    "truncate": Operation.TRUNCATE,
    "snapshot": Operation.SNAPSHOT,
}


@dataclass(frozen=True)
class FeedColumns:
    """Where a DataFrame has what a change feed says of a row beside its values."""

    op: int
    scn: int
    sequence: int
    key_before: tuple[int, ...]  # of the key's columns, in their order; none if the feed brings no rows as they were


@dataclass(frozen=True)
class Layout:
    """The roles of the columns of a DataFrame of changes."""

    rows: tuple[int, ...]  # those that go to the table
    key: tuple[int, ...]  # those of them that go to its primary key, in its order
    order: tuple[int, ...] = ()  # the one by which the last of several rows is found
    feed: FeedColumns | None = None


def layout_of(table: TableDefinition, schema: StructType, options: WriteOptions) -> Layout:
    """Find out what the columns are for; errors name those that are missing."""
    key = [table.columns[n].name for n in require_key(table)]
    places = {field.name.lower(): n for n, field in enumerate(schema.fields)}
    own = {column.name.lower() for column in table.columns}
    for name in key:
        if name.lower() not in places:
            raise SchemaMismatch(f"table {table.name}: the DataFrame has no column {name}, of the primary key")
    key_places = tuple(places[name.lower()] for name in key)
    if options.apply != CHANGES:
        order = _order_of(table, schema, places, options.order_by)
        only_order = set(order) if options.order_by.lower() not in own else set()
        return Layout(tuple(n for n in range(len(schema.fields)) if n not in only_order), key_places, order)
    for name, type_ in ((OP, StringType), (SCN, IntegralType), (SEQUENCE, IntegralType)):
        _require_feed(table, schema, places, name, type_)
    before = [places.get(BEFORE + name.lower()) for name in key]
    feeds = {OP, SCN, SEQUENCE, *ALSO_FEEDS} | {name for name in places if name.startswith(BEFORE)}
    rows = tuple(n for name, n in places.items() if name not in feeds or name in own)
    key_before = tuple(n for n in before if n is not None) if None not in before else ()
    if not key_before:
        _require_key_of_source(table, [schema.fields[n] for n in key_places], schema)
    return Layout(rows, key_places, (), FeedColumns(places[OP], places[SCN], places[SEQUENCE], key_before))


def _require_key_of_source(table: TableDefinition, key: Sequence[StructField], schema: StructType) -> None:
    """Refuse a feed that would not show when a row gets another key: it shows that for its own table's key alone.

    Nothing is known of rows that do not come straight from a feed.
    """
    if not any(IN_KEY in field.metadata for field in schema.fields):
        return
    for field in key:
        if IN_KEY not in field.metadata:
            what = f"column {field.name} is of its primary key, but not of the key of the table that the changes are of"
            advice = 'read them with .option("beforeImages", "true")'
            raise SchemaMismatch(f"table {table.name}: {what}: a row under an old key would stay; {advice}")


def _order_of(table: TableDefinition, schema: StructType, places: dict[str, int], order_by: str) -> tuple[int, ...]:
    if not order_by:
        return ()
    if order_by.lower() not in places:
        raise NoSuchColumn(f"table {table.name}: orderBy names column {order_by}, which the DataFrame has not")
    field = schema.fields[places[order_by.lower()]]
    if not isinstance(field.dataType, _ORDERED):
        raise SchemaMismatch(f"orderBy: values of column {order_by}, {field.dataType.simpleString()}, have no order")
    return (places[order_by.lower()],)


def _require_feed(
    table: TableDefinition, schema: StructType, places: dict[str, int], name: str, type_: type[DataType]
) -> None:
    field: StructField | None = schema.fields[places[name]] if name in places else None
    if field is None or not isinstance(field.dataType, type_):
        actual = "none" if field is None else f"one of {field.dataType.simpleString()}"
        wanted = "string" if type_ is StringType else "bigint"
        message = f"apply=changes needs the columns of a change feed: {name} of {wanted}, but there is {actual}"
        raise SchemaMismatch(f"table {table.name}: {message}")


@dataclass(frozen=True)
class ChangeMaker:
    """Makes changes of one table's rows; the same for all tasks of a load."""

    rows: RowMaker
    layout: Layout
    apply: Apply

    @property
    def table(self) -> TableDefinition:
        return self.rows.table

    @property
    def form(self) -> PageFormat:
        return self.rows.form

    def stage(self, path: Path, batches: Iterable[pa.RecordBatch]) -> int:
        """Write a staging file, if there are rows; returns how many."""
        from gmdb.tables.arrow.staging import StagedBatches

        file, count = None, 0
        try:
            for batch in batches:
                for part in self._parts(batch, count):
                    if file is None:
                        digest = self.apply.digest(self.table)
                        file = StagedBatches(path, self.table.name, self._columns, part.schema, digest)
                    file.put(part)
                count += len(batch)
            if file is not None:
                file.finish()
            return count
        finally:
            if file is not None:
                file.close()

    @property
    def _columns(self) -> list[Column]:
        """Those of the table that tasks fill."""
        return [column for n, column in enumerate(self.table.columns) if n not in self.rows.left_to_owner]

    def _parts(self, batch: pa.RecordBatch, first_row: int) -> Iterator[pa.RecordBatch]:
        """The batch as a staging file has it; of a feed, changes of each kind by themselves."""
        if self.layout.feed is None:
            order = {f"order{n}": batch.column(place) for n, place in enumerate(self.layout.order)}
            yield self._part(self._complete(first_row, batch), order)
            return
        feed = self.layout.feed
        changes = self._changes(batch, first_row)
        operations = changes.column("operation")
        puts = pc.is_in(operations, value_set=pa.array([Operation.PUT, Operation.SNAPSHOT], pa.int8()))
        yield from self._chosen(batch, changes, puts, partial(self._complete, first_row))
        for operation, places in ((Operation.DELETE, self.layout.key), (Operation.TRUNCATE, ())):
            chosen = pc.equal(operations, pa.scalar(operation, pa.int8()))
            yield from self._chosen(batch, changes, chosen, partial(self._keys_only, places, first_row))
        if feed.key_before:
            yield from self._moved(batch, changes, puts, first_row)

    def _chosen(
        self,
        batch: pa.RecordBatch,
        changes: pa.RecordBatch,
        chosen: pa.Array,
        make: Callable[[pa.RecordBatch], list[pa.Array]],
    ) -> Iterator[pa.RecordBatch]:
        """Some of the changes, of whose rows ``make`` makes what is staged."""
        if pc.any(chosen).as_py():
            some = changes.filter(chosen)
            yield self._part(make(batch.filter(chosen)), dict(zip(some.schema.names, some.columns, strict=True)))

    def _part(self, rows: list[pa.Array], changes: dict[str, pa.Array]) -> pa.RecordBatch:
        fields = [(column.name, arrow_type(column.type)) for column in self._columns]
        fields += [(f"#{name}", values.type) for name, values in changes.items()]
        return pa.RecordBatch.from_arrays([*rows, *changes.values()], schema=pa.schema(fields))

    # ---- rows

    def _complete(self, first_row: int, batch: pa.RecordBatch) -> list[pa.Array]:
        """Rows that are to be there, as the table stores them, once checks hold."""
        rows = self.rows.complete(batch.select(list(self.layout.rows)), first_row)
        return fit_batch(self.table.name, self._columns, rows, first_row)

    def _keys_only(self, places: Sequence[int], first_row: int, batch: pa.RecordBatch) -> list[pa.Array]:
        """Rows of which the key alone counts: it is in the columns at some places; or nothing does."""
        keys: dict[str, pa.Array] = {}
        if places:
            columns = [self.table.columns[n] for n in require_key(self.table)]
            arrays = [as_column_takes(c, batch.column(n)) for c, n in zip(columns, places, strict=True)]
            named = pa.RecordBatch.from_arrays(arrays, names=[c.name for c in columns])
            fitted = fit_batch(self.table.name, columns, named, first_row)
            keys = {column.name: values for column, values in zip(columns, fitted, strict=True)}
        nothing = (pa.nulls(len(batch), arrow_type(column.type)) for column in self._columns)
        return [keys.get(c.name, empty) for c, empty in zip(self._columns, nothing, strict=True)]

    # ---- what a feed says

    def _changes(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """Operation and order of a batch's changes.  Of two numbers for each place one is for what comes before it."""
        feed = self.layout.feed
        assert feed is not None
        names = batch.column(feed.op)
        which = pc.index_in(names, value_set=pa.array(list(_OPERATIONS), names.type))
        if which.null_count:
            row = pc.index(pc.is_null(which), True).as_py()
            known = ", ".join(_OPERATIONS)
            raise DataError(f"row {first_row + row}: {OP} is {names[row].as_py()!r}, which is not one of {known}")
        operations = pa.array(list(_OPERATIONS.values()), pa.int8()).take(which)
        order = [batch.column(feed.scn).cast(pa.int64()), batch.column(feed.sequence).cast(pa.int64())]
        in_snapshot = pc.equal(operations, pa.scalar(Operation.SNAPSHOT, pa.int8()))
        for name, values in zip((SCN, SEQUENCE), order, strict=True):
            unknown = pc.and_(pc.is_null(values), pc.invert(in_snapshot))
            if pc.any(unknown).as_py():
                raise DataError(f"row {first_row + pc.index(unknown, True).as_py()}: {name} is NULL, so has no place")
        major, minor = (pc.fill_null(values, 0) for values in order)
        minor = pc.add(pc.multiply(minor, 2), 1)
        return pa.RecordBatch.from_arrays([operations, major, minor], names=["operation", "major", "minor"])

    def _moved(
        self, batch: pa.RecordBatch, changes: pa.RecordBatch, puts: pa.Array, first_row: int
    ) -> Iterator[pa.RecordBatch]:
        """Rows that had another key before: the row under that key is deleted just before the new one comes."""
        feed = self.layout.feed
        assert feed is not None
        moved = pa.array([False] * len(batch))
        for old, new in zip(feed.key_before, self.layout.key, strict=True):
            differs = pc.not_equal(batch.column(old), batch.column(new))
            moved = pc.or_(moved, pc.fill_null(differs, False))
        moved = pc.and_(moved, puts)
        if pc.any(moved).as_py():
            rows, places = batch.filter(moved), changes.filter(moved)
            operations = pa.array([Operation.DELETE] * len(rows), pa.int8())
            before = {"operation": operations, "major": places.column(1), "minor": pc.subtract(places.column(2), 1)}
            yield self._part(self._keys_only(feed.key_before, first_row, rows), before)
