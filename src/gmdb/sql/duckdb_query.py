"""Queries that DuckDB answers, over Arrow batches from gmdb's cursors, all on the statement's snapshot."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from gmdb.arrow.scan import Reading
from gmdb.arrow.schema import arrow_schema
from gmdb.cursor import Cursor
from gmdb.dbapi import Result
from gmdb.errors import Error, NoSuchFunction, NoSuchTable, UnsupportedExpression
from gmdb.format.address import OFFSET_BITS
from gmdb.format.columns import VARCHAR_MAX, Column, ColumnType
from gmdb.sql import duck
from gmdb.sql.duck.answer import Answer
from gmdb.sql.duck.names import is_listing, listing_name
from gmdb.sql.listings import ListingCall
from gmdb.sql.parser import Parsed
from gmdb.sql.paths import Path, Unusable
from gmdb.sql.scope import folded
from gmdb.sql.statement import (
    ROWID_TYPE,
    Given,
    Parameters,
    RowFinder,
    Statement,
    is_for_rows,
    no_such_table,
)

if TYPE_CHECKING:
    from gmdb.connection import Connection

ROWID = Column("rowid", ROWID_TYPE)


class TableSource:
    """A table as DuckDB reads it: by a cursor, on the statement's snapshot."""

    def __init__(self, connection: Connection, name: str, columns: Sequence[Column], path: Path) -> None:
        self.columns = columns
        self.hidden = [] if any(column.name == ROWID.name for column in columns) else [ROWID]
        self.path = path
        self.name = name
        self._connection = connection
        self._keys: Any = None
        self._reading: Reading | None = None

    def begin(self, reading: Reading, given: Given) -> TableSource:
        """The source for one run of the statement."""
        begun = TableSource(self._connection, self.name, self.columns, self.path)
        begun._reading = reading
        self._connection.heap(self.name).share()
        if self.path.index is not None:
            try:
                begun._keys = self.path.keys(given) or ()
            except Unusable:
                begun._keys = None
        return begun

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader:
        assert self._reading is not None
        if self._keys == ():  # compared with NULL: no row
            chosen = self.columns if columns is None else [c for n in columns for c in self.columns if c.name == n]
            return pa.RecordBatchReader.from_batches(arrow_schema(chosen), [])
        by = self.path.index.name if self.path.index is not None and self._keys is not None else None
        stored = None if columns is None else [name for name in columns if name not in {c.name for c in self.hidden}]
        cursor: Cursor = self._connection.select(self.name, stored, by=by, keys=self._keys if by else None)
        if columns is None or len(columns) == len(stored or ()):
            return cursor.read_by(self._reading)
        return _with_row_ids(cursor.read_by(self._reading, places=True), columns)


def _with_row_ids(reader: pa.RecordBatchReader, columns: list[str]) -> pa.RecordBatchReader:
    """The batches with ``rowid``, as SQL shows it, instead of the places of rows."""
    fields = [pa.field(ROWID.name, pa.string()) if n == ROWID.name else reader.schema.field(n) for n in columns]
    schema = pa.schema(fields)

    def batches() -> Iterator[pa.RecordBatch]:
        for batch in reader:
            places = batch.column(batch.num_columns - 1).to_numpy()
            parts = (places >> 16 >> OFFSET_BITS, places >> 16 & ((1 << OFFSET_BITS) - 1), places & 0xFFFF)
            texts = pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ":")
            arrays = [texts if name == ROWID.name else batch.column(batch.schema.names.index(name)) for name in columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    return pa.RecordBatchReader.from_batches(schema, batches())


def column_type(type_: pa.DataType) -> ColumnType:
    """The type of a column of a view."""
    if pa.types.is_boolean(type_):
        return ColumnType("BOOLEAN")
    if pa.types.is_integer(type_):
        return ColumnType("BIGINT" if type_.bit_width == 64 or type_ == pa.uint32() else "INT")
    if pa.types.is_floating(type_):
        return ColumnType("DOUBLE")
    return ColumnType("TIMESTAMP") if pa.types.is_timestamp(type_) else ColumnType("VARCHAR", VARCHAR_MAX)


class SystemSource:
    """A view of the catalog, or of what is going on."""

    def __init__(self, connection: Connection, name: str) -> None:
        self._table = connection.system_view(name)
        self.columns = [Column(field.name, column_type(field.type)) for field in self._table.schema]
        self._table = self._table.cast(arrow_schema(self.columns))

    def begin(self, reading: Reading, given: Given) -> SystemSource:
        del reading, given
        return self

    def read(self, columns: list[str] | None) -> pa.RecordBatchReader:
        chosen = self._table if columns is None else self._table.select(columns)
        return chosen.to_reader()


class DuckQuery(Statement):
    """A query in DuckDB."""

    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection)
        self._parsed = parsed
        node: Any = parsed.statement
        self.note_time(node)
        own = {folded(cte.args["alias"].this) for cte in node.find_all(exp.CTE)}
        self._sources: dict[str, TableSource | SystemSource] = {}
        self._system: set[str] = set()
        self._listings: dict[str, ListingCall] = {}
        for table in node.find_all(exp.Table):
            if is_listing(table.this):
                self._listings.setdefault(listing_name(table.this), ListingCall(table.this))
            if not isinstance(table.this, exp.Identifier):
                continue
            name = folded(table.this)
            if name in own or name in self._sources:
                continue
            if name.startswith("sys_"):
                self._system.add(name)
            else:
                self._sources[name] = self._table_source(node, table, name)

    def _table_source(self, query: Any, table: exp.Table, name: str) -> TableSource:
        definition = self.table(table)
        return TableSource(self.connection, name, definition.columns, self._path(query, table))

    def _path(self, query: Any, table: exp.Table) -> Path:
        """An index serves if the query is over this table alone: its condition then leaves out rows for sure."""
        where = query.args.get("where") if isinstance(query, exp.Select) else None
        source = query.args.get("from_")
        alone = source is not None and source.this is table and sum(1 for _ in query.find_all(exp.Table)) == 1
        alone = alone and not query.args.get("joins")
        if where is None or not alone or not is_for_rows(where.this):
            return Path()
        if any(isinstance(node, exp.Column) and node.name.lower() == "rownum" for node in where.walk()):
            return Path()
        alias = folded(table.args["alias"].this) if table.args.get("alias") else folded(table.this)
        definition = self.table(table)
        try:
            path = RowFinder(definition, alias, where.this, self.connection.statistics(definition.name)).path
        except (NoSuchFunction, UnsupportedExpression):  # of rows one by one: DuckDB may know it
            return Path()
        return path if path.index is not None else Path()

    def run(self, parameters: Parameters, scn: int | None = None) -> Result:
        """``scn``: the instant that it is about, if a statement which is running goes by one."""
        stack = ExitStack()
        try:
            reading = stack.enter_context(self.connection.one_snapshot(scn))
            given = self.given(parameters)
            sources: dict[str, Any] = {name: source.begin(reading, given) for name, source in self._sources.items()}
            for name in self._system:
                sources[name] = self._system_source(name)
            for name, call in self._listings.items():
                sources[name] = call.source(self.connection)
            statement: Any = self._parsed.statement
            answer = duck.run(statement, sources, parameters, self._parsed.text, self.session.watch)
            stack.callback(answer.close)
        except BaseException:
            stack.close()
            raise
        reader = pa.RecordBatchReader.from_batches(answer.reader.schema, _batches(answer, stack))
        return Result(tuple(answer.names), tuple(answer.types), -1, None, reader)

    def _system_source(self, name: str) -> SystemSource:
        try:
            return SystemSource(self.connection, name)
        except NoSuchTable:
            raise no_such_table(self.connection, name, self._parsed.statement) from None  # type: ignore[arg-type]

    def explain(self) -> list[str]:
        said = ["query in DuckDB over"]
        columns = self._columns_read()
        for source in self._sources.values():
            if isinstance(source, TableSource):
                read = columns.get(source.name)
                said.append("  " + source.path.describe(source.name) + (f", reading {read}" if read else ""))
        return [*said, *(f"  {name}" for name in sorted([*self._system, *self._listings]))]

    def _columns_read(self) -> dict[str, str]:
        """The columns of each table that are read; nothing if parameters would have to tell their types first."""
        sources: dict[str, Any] = {**self._sources, **{name: self._system_source(name) for name in self._system}}
        sources |= {name: call.source(self.connection) for name, call in self._listings.items()}
        found: dict[str, dict[str, None]] = {}
        try:
            plan = duck.prepare(self._parsed.statement, sources)  # type: ignore[arg-type]
        except Error:
            return {}
        for read in plan.reads:
            found.setdefault(read.table, {}).update(dict.fromkeys(read.wanted))
        return {table: ", ".join(names) for table, names in found.items()}


def _batches(answer: Answer, stack: ExitStack) -> Iterator[pa.RecordBatch]:
    """What was found; the snapshot is held until that was read, or nobody wants it any more."""
    with stack:
        yield from answer.reader
