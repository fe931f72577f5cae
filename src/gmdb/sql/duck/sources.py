"""Where the rows of a query in DuckDB come from: tables, by the paths of the plan, and what is in memory already.

Invariants
 1. A source's rows are those that the statement's reading sees, each time that DuckDB asks for them.
 2. What the rows executor computes is computed before DuckDB begins, in the thread of the statement.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import pyarrow as pa

from gmdb.database.cursor import RowCursor, open_cursor
from gmdb.format.address import RowId
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass
from gmdb.sql import rows
from gmdb.sql.duck.execution import Source
from gmdb.sql.plan.estimates import Estimates
from gmdb.sql.plan.paths import Access, Materialized, parse_row_id
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.run import Run
from gmdb.sql.statements.table_functions import read_listing
from gmdb.sql.tree import Column, Input, Listing, Table
from gmdb.tables.access.indexes import KeyRange
from gmdb.tables.arrow.arrow_types import arrow_type
from gmdb.tables.arrow.scan import place_field, row_id_texts

Rows = Table | Access | Listing | Input | Materialized
BATCH_ROWS = 1 << 14  # of rows that Python computes
_NOTHING = pa.field("c0", pa.bool_())  # what a stream has whose rows are all that matters


@dataclass(frozen=True, slots=True)
class Read:
    """What a query reads of a relation: these columns of it, under the names that the query has for them."""

    alias: str
    relation: Rows
    columns: tuple[Column, ...]
    schema: pa.Schema
    prepared: Any  # a program or the values of keys, ready to run

    @classmethod
    def of(cls, alias: str, relation: Rows, columns: Sequence[Column], names: Sequence[str]) -> Read:
        if not columns and not isinstance(relation, Input | Materialized):
            columns, names = (_cheapest(relation),), ("c0",)
        fields = [pa.field(name, arrow_type(_stored_type(relation, c))) for name, c in zip(names, columns, strict=True)]
        prepared: Any = None
        if isinstance(relation, Materialized):
            prepared = rows.Program(relation.source)
        elif isinstance(relation, Access) and not relation.is_lateral:
            prepared = compile_row(tuple(relation.path.expressions()), ())
        return cls(alias, relation, tuple(columns), pa.schema(fields or [_NOTHING]), prepared)

    def begin(self, run: Run) -> Source:
        """The source for one run of the statement."""
        relation, schema = self.relation, self.schema
        if isinstance(relation, Listing):
            table = read_listing(run.connection, relation)
            table = table.select([relation.columns.index(column) for column in self.columns])
            return _source_of(self.alias, table.rename_columns(schema.names), schema)
        if isinstance(relation, Materialized):
            lines = self.prepared.rows(run)
            return _source_of(self.alias, self._in_batches(lines, relation.source.columns), schema)
        if isinstance(relation, Input):
            return _source_of(self.alias, self._in_batches(run.inputs[relation.key], relation.columns), schema)
        table_rows = _TableRows(self, relation, run)
        return Source(self.alias, schema, table_rows.count, table_rows)

    def _in_batches(self, lines: Iterable[Sequence[Any]], columns: Sequence[Column]) -> pa.Table:
        positions, remaining = [columns.index(column) for column in self.columns], iter(lines)
        batches = []
        while some := list(islice(remaining, BATCH_ROWS)):
            batches.append(self._batch(some, positions))
        return pa.Table.from_batches(batches, self.schema)

    def _batch(self, lines: Sequence[Sequence[Any]], positions: Sequence[int]) -> pa.RecordBatch:
        if not positions:
            return pa.RecordBatch.from_arrays([pa.nulls(len(lines), _NOTHING.type)], schema=self.schema)
        arrays = [
            pa.array([line[position] for line in lines], field.type)
            for position, field in zip(positions, self.schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)


def _cheapest(relation: Table | Access | Listing | Input) -> Column:
    """The column by which rows are counted, where only their number matters."""

    def cost(column: Column) -> tuple[bool, int]:
        type_ = _stored_type(relation, column)
        return type_.is_lob or type_.name in ("VARCHAR", "VARBINARY"), type_.bytes_max

    return min(relation.columns, key=cost)


def _stored_type(relation: Rows, column: Column) -> ColumnType:
    """The type of what is read; that of a large object is not the one which it has in expressions."""
    table = relation.table if isinstance(relation, Access) else relation
    if isinstance(table, Table) and column is not table.row_id:
        return table.definition.columns[table.stored.index(column)].type
    return column.type


def _source_of(alias: str, table: pa.Table, schema: pa.Schema) -> Source:
    """Rows that are in memory already."""
    rows = table.cast(schema)
    return Source(
        alias, schema, len(rows), lambda columns: (batch for batch in rows.select(list(columns)).to_batches())
    )


class _TableRows:
    """The rows of a table that a path leads to, in one run."""

    def __init__(self, read: Read, relation: Table | Access, run: Run) -> None:
        self._table = table = relation.table if isinstance(relation, Access) else relation
        self._read = read
        self._reading = run.reading
        self._heap = run.heap(table.definition)
        self._index: str | None = None
        self._ranges: list[KeyRange] = []
        self._row_ids: list[RowId] | None = None
        self.count = int(self._estimates(run).rows(table.definition))
        if isinstance(relation, Access):
            self._take(relation, run)

    def _estimates(self, run: Run) -> Estimates:
        pages = float(self._heap.segment.head.page_count)
        return Estimates(lambda table: run.connection.statistics(table.name), lambda _: pages)

    def _take(self, access: Access, run: Run) -> None:
        """Note which rows the path leads to in this run."""
        path = access.path
        if path.estimate is not None:
            self.count = max(int(path.estimate), 1)
        if self._read.prepared is None or path.is_scan:
            return
        values = self._read.prepared((), run.parameters, run.now)
        if path.row_ids is not None:
            self._row_ids = list(dict.fromkeys(one for one in map(parse_row_id, values) if one is not None))
            return
        assert path.index is not None
        self._index = path.index.name
        rest = iter(values)
        self._ranges = path.ranges([[next(rest) for _ in span.expressions()] for span in path.spans])

    def __call__(self, columns: Sequence[int]) -> Iterator[pa.RecordBatch]:
        table = self._table
        read = [self._read.columns[n] for n in columns]
        names = [table.definition.columns[table.stored.index(c)].name for c in read if c is not table.row_id]
        with_row_ids = len(names) < len(read)
        for cursor in self._cursors(names):
            reader = cursor.read_by(self._reading, places=with_row_ids)
            try:
                for batch in reader:
                    yield pa.RecordBatch.from_arrays(self._arrays(batch, read), [f"c{n}" for n in range(len(read))])
            finally:
                reader.close()

    def _cursors(self, names: Sequence[str]) -> Iterator[RowCursor]:
        heap, definition = self._heap, self._table.definition
        if self._index is None:
            yield open_cursor(heap, definition, names, None, None, self._row_ids)
            return
        for keys in self._ranges:
            yield open_cursor(heap, definition, names, self._index, keys, None)

    def _arrays(self, batch: pa.RecordBatch, columns: Sequence[Column]) -> list[pa.Array]:
        """The columns in this order; row ids as SQL shows them, of the places of rows."""
        stored = iter(range(batch.num_columns))
        return [
            row_id_texts(batch.column(place_field().name).to_numpy())
            if column is self._table.row_id
            else batch.column(next(stored))
            for column in columns
        ]
