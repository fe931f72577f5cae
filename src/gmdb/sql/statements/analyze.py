"""ANALYZE: count a table's rows and keys, and sample the distribution of the keys."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from gmdb.database.dbapi import Result
from gmdb.errors import NoSuchTable
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql.duck.instance import cursor, failure, translated
from gmdb.sql.parser import Parsed
from gmdb.sql.prepared import ParameterTypes, Statement
from gmdb.sql.run import Parameters
from gmdb.sql.statements.definitions import existing
from gmdb.sql.syntax import reading
from gmdb.tables.arrow.arrow_types import python_columns
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.catalog.system import KeyStatistics, TableStatistics, bounds_of, key_columns

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

SAMPLE_ROWS = 10_000


class Analyze(Statement):
    """``analyze``, ``analyze TABLE, …``.  The statistics are visible to all at once, whatever becomes of the
    transaction."""

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        super().__init__(connection, parsed, types)
        node: Any = parsed.statement
        with reading(node) as syntax:
            tables = [existing(connection, table) for table in syntax.list("tables")]
        self._names = [table.name for table in tables]
        self.tables.update({table.name: table for table in tables})

    def run(self, parameters: Parameters) -> Result:
        del parameters
        for name in self._names or self.connection.tables():
            with nullcontext() if self._names else suppress(NoSuchTable):  # others may drop one meanwhile
                self._analyze(self.connection.table(name))
        self.session.finish_read()
        return Result()

    def explain(self) -> list[str]:
        return [f"analyze {', '.join(self._names) or 'all tables'}"]

    def _analyze(self, table: TableDefinition) -> None:
        whole = [index.key for index in table.indexes if not index.building and max(index.key) < len(table.columns)]
        groups = key_columns(whole)
        positions = sorted({n for group in groups for n in group})
        names = [table.columns[n].name for n in positions] or [table.columns[0].name]
        aliases = {n: f"c{at}" for at, n in enumerate(positions)}
        counted = self._ask(table.name, names, _counting([[aliases[n] for n in group] for group in groups]))
        total, *distinct = (column[0].as_py() for column in counted.columns)
        keys = {group: KeyStatistics(min(count, total)) for group, count in zip(groups, distinct, strict=True)}
        firsts = [n for n in positions if (n,) in keys]
        if firsts:
            chosen = ", ".join(aliases[n] for n in firsts)
            sample = self._ask(table.name, names, f"select {chosen} from t using sample {SAMPLE_ROWS} rows")
            for n, values in zip(firsts, python_columns(sample), strict=True):
                keys[(n,)] = KeyStatistics(keys[(n,)].distinct, bounds_of(values))
        self.connection._keep_statistics(table.name, TableStatistics(total, keys))

    def _ask(self, name: str, columns: list[str], query: str) -> pa.Table:
        """The result of a query in DuckDB over some columns, which it knows as c0, c1, …"""
        reader = self.connection.arrow(name, columns)
        schema = pa.schema([pa.field(f"c{n}", field.type) for n, field in enumerate(reader.schema)])
        errors: list[BaseException] = []  # of the scan, which DuckDB would wrap in its own

        def batches() -> Iterator[pa.RecordBatch]:
            try:
                for batch in reader:
                    yield pa.RecordBatch.from_arrays(batch.columns, schema=schema)
            except BaseException as error:
                errors.append(error)
                raise

        duck = cursor()
        try:
            duck.register("t", pa.RecordBatchReader.from_batches(schema, batches()))
            return duck.sql(query).to_arrow_table()
        except failure() as error:
            raise (errors[0] if errors else translated(error)) from None
        finally:
            duck.close()


def _counting(groups: list[list[str]]) -> str:
    """The query for the number of rows, and of different values of some columns, which may be about right."""
    together = [group[0] if len(group) == 1 else f"row({', '.join(group)})" for group in groups]
    counts = [f"approx_count_distinct({columns})" for columns in together]
    return f"select {', '.join(['count(*)', *counts])} from t"
