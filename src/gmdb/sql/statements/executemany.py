"""Rows out of many sets of parameters, as Arrow data: a column at a time, in pages of their own.

Only values that are just what their columns store go this way.  Others are assigned one by one, as SQL has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from itertools import islice
from operator import itemgetter
from typing import TYPE_CHECKING, Any

from gmdb.database.dbapi import parameters_of
from gmdb.errors import ProgrammingError
from gmdb.format.columns import Column
from gmdb.process.late_imports import pyarrow as pa
from gmdb.sql.rows.expressions import compile_expression
from gmdb.sql.statements.assignment import Checks, Defaults
from gmdb.tables.access.generated import GeneratedColumns
from gmdb.tables.arrow.arrow_types import arrow_schema, python_columns
from gmdb.tables.arrow.generated_arrays import completed
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

ROWS_MIN = 1000  # fewer rows are not worth pages of their own
BATCH_ROWS = 1 << 16
_NOTHING = type(None)
Numbers = Callable[[Column, int], list[int]]  # for a column that gets numbers
STORED: dict[str, set[type]] = {  # none: values of the type are assigned one by one
    **{name: {int} for name in ("SMALLINT", "INT", "BIGINT")},
    **{name: {str} for name in ("CHAR", "VARCHAR", "CLOB")},
    **{name: set() for name in ("JSON", "JSONB")},  # which are checked first
    **{name: {bytes} for name in ("BINARY", "VARBINARY", "BLOB")},
    **{"TIME": {time}, "TIMESTAMPTZ": set(), "INTERVAL": set(), "REAL": set(), "UUID": set()},
    **{"DOUBLE": {float, int}, "BOOLEAN": {bool}, "DATE": {date}, "TIMESTAMP": {datetime}, "DECIMAL": {Decimal}},
}


class BulkRows:
    """Makes rows of one table out of sets of parameters, each of which goes into one column."""

    def __init__(
        self, table: TableDefinition, targets: Mapping[int, Any], defaults: Defaults, checks: Checks, now: datetime
    ) -> None:
        """``targets``: the number or name of the parameter for each column that gets one.

        ``now`` is the time for defaults and checks that ask for it.
        """
        self._now = now
        self.table = table
        self._targets = dict(targets)
        self._defaults, self._checks = defaults, checks
        self._schema = arrow_schema(table.columns)

    def from_sets(self, sets: Sequence[Any], connection: Connection) -> pa.RecordBatch | None:
        """The rows of some sets; None if a value does not go into its column just so."""
        arrays: dict[int, pa.Array] = {}
        for n, name in self._targets.items():
            type_ = self.table.columns[n].type
            values = list(map(itemgetter(name), sets))
            if not set(map(type, values)) <= STORED.get(type_.name, set()) | {_NOTHING}:
                return None
            if type_.name == "TIMESTAMP" and any(value is not None and value.tzinfo is not None for value in values):
                return None  # what clocks show then, the session's time zone says
            try:
                arrays[n] = pa.array(values, self._schema.field(n).type)
            except (pa.ArrowException, TypeError, ValueError, OverflowError):
                return None
        return self.whole(arrays, len(sets), self._numbers(connection))

    def from_arrow(self, batch: pa.RecordBatch, connection: Connection) -> pa.RecordBatch | None:
        """The rows of a batch whose columns are the parameters in their order; None if they may not go in just so."""
        if not all(_is_alike(batch.column(name).type, self._schema.field(n).type) for n, name in self._targets.items()):
            return None
        try:
            arrays = {n: batch.column(name).cast(self._schema.field(n).type) for n, name in self._targets.items()}
        except pa.ArrowException:
            return None
        return self.whole(arrays, len(batch), self._numbers(connection))

    def _numbers(self, connection: Connection) -> Numbers:
        return lambda column, count: connection._next_numbers(self.table.name, column.name, count)

    def whole(self, columns: Mapping[int, pa.Array], count: int, numbers: Numbers) -> pa.RecordBatch:
        """Whole rows: the values as columns store them, and defaults for the rest.  NOT NULL is checked later."""
        arrays = [
            columns[n] if n in columns else pa.array(self._rest(n, count, numbers), field.type)
            for n, field in enumerate(self._schema)
        ]
        batch = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
        if self._checks.generated:
            generated = GeneratedColumns(self.table, lambda _: self._checks.generated.generation)
            batch = completed(generated, self.table, batch)
        if self._checks:
            for row in zip(*python_columns(batch), strict=True):
                self._checks.check(row, self._now)
        return batch

    def _rest(self, n: int, count: int, numbers: Numbers) -> list[Any]:
        """Values of a column that gets none."""
        column = self.table.columns[n]
        if column.is_numbered:
            return numbers(column, count)
        default = compile_expression(self._defaults.of(n), ())
        return [default((), (), self._now) for _ in range(count)]


def _is_alike(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether Arrow makes of a value what an assignment would; what a time without a zone is, the session says."""
    of = pa.types
    if source == target or of.is_null(source):
        return True
    if of.is_dictionary(source):
        return _is_alike(source.value_type, target)
    if of.is_list(target):
        return bool(of.is_list(source) or of.is_large_list(source)) and _is_alike(source.value_type, target.value_type)
    if of.is_timestamp(target):
        return of.is_timestamp(source) and (source.tz is None) == (target.tz is None)
    if of.is_floating(target) or of.is_decimal(target):
        return of.is_integer(source) or of.is_decimal(source) or (of.is_floating(source) and of.is_floating(target))
    texts = (of.is_string, of.is_large_string, of.is_string_view)
    raw = (of.is_binary, of.is_large_binary, of.is_binary_view, of.is_fixed_size_binary)
    kinds = ((of.is_integer,), (of.is_date,), (of.is_time,), texts, raw)
    return any(any(one(source) for one in kind) for kind in kinds if any(one(target) for one in kind))


def in_batches(sets: Any, count: int) -> Iterator[list[Any]]:
    """Sets of ``count`` parameters, some at a time."""
    rows = iter(sets)
    while batch := list(islice(rows, BATCH_ROWS)):
        kinds = set(map(type, batch))
        if not kinds <= {tuple, list, dict}:
            batch = [parameters_of(one) for one in batch]
        if kinds <= {tuple, list}:
            wrong = set(map(len, batch)) - {count}
            if wrong:
                raise ProgrammingError(f"the statement has {count} parameters, but {min(wrong)} were given")
        yield batch
