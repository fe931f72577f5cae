"""Plans: a query translated for tables with given columns and parameters of given types."""

from __future__ import annotations

import threading
from collections import ChainMap, OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
from sqlglot import exp

from gmdb.arrow.schema import arrow_type
from gmdb.errors import InterfaceError, ValueOutOfRange
from gmdb.format.columns import Column, ColumnType
from gmdb.sql.duck.answer import Answer, Source, TableRead, Watch
from gmdb.sql.duck.query import PARAMETER_NUMBER, Statement, query
from gmdb.sql.duck.scope import TableUse
from gmdb.sql.duck.types import BIGINT, BOOLEAN, BYTES, DATE, DOUBLE, INT, TIMESTAMP, decimal

Parameters = Sequence[Any] | Mapping[str, Any]
PLANS_KEPT = 256
_CLAUSES = ("with_", "expressions", "from_", "joins", "laterals", "where", "group", "having", "windows", "order")
_LAST = ("limit", "offset", "locks")


@dataclass(frozen=True, slots=True)
class Plan:
    """A query as DuckDB's SQL, the types of its columns, and what it reads."""

    sql: str
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    reads: tuple[TableRead, ...]
    parameters: frozenset[str]
    uses_now: bool

    def run(self, tables: Mapping[str, Source], parameters: Parameters = (), watch: Watch | None = None) -> Answer:
        given = _named(parameters)
        values = {name: given[name] for name in self.parameters}
        if self.uses_now:
            values["now"] = datetime.now()
        reads = [(read, tables[read.table]) for read in self.reads]
        return Answer(self.names, self.types, self.sql, reads, values, watch)


def prepare(node: exp.Expr, tables: Mapping[str, Source], parameters: Parameters = ()) -> Plan:
    """Translate a query.  Of the tables only the columns count, of the parameters only the types."""
    types = {name: parameter_type(value) for name, value in _named(parameters).items()}
    statement = Statement(tables, types)
    for number, placeholder in enumerate(_placeholders(node)):
        statement.numbers[id(placeholder)] = f"p_{placeholder.meta.get(PARAMETER_NUMBER, number)}"
    relation = query(statement, node, None, ChainMap(), final=True)
    statement.roots.update(column.bound.sql for column in relation.columns)
    live, mentioned = statement.live(), statement.mentioned()
    return Plan(
        relation.sql,
        tuple(column.name for column in relation.columns),
        tuple(column.bound.type for column in relation.columns if column.bound.type is not None),
        tuple(_read(use, live, mentioned) for use in statement.uses),
        frozenset(statement.used_parameters),
        statement.uses_now,
    )


def _read(use: TableUse, live: set[str], mentioned: set[str]) -> TableRead:
    columns = [(name, column) for name, column in zip(use.names, use.columns, strict=True) if name in mentioned]
    wanted = [column.name for name, column in columns if name in live]
    if not wanted:  # rows are counted by a column, the cheapest
        cheapest = min(use.columns, key=lambda column: (column.type.is_lob, column.type.size_code, column.type.length))
        wanted = [cheapest.name]
        columns = columns or [(use.names[list(use.columns).index(cheapest)], cheapest)]
    positions = tuple(wanted.index(column.name) if column.name in wanted else None for _, column in columns)
    schema = pa.schema([pa.field(name, arrow_type(column.type)) for name, column in columns])
    return TableRead(use.alias, use.table, tuple(wanted), positions, schema)


def _named(parameters: Parameters) -> dict[str, Any]:
    if isinstance(parameters, Mapping):
        return {f"n_{name}": value for name, value in parameters.items()}
    return {f"p_{number}": value for number, value in enumerate(parameters)}


def _placeholders(node: exp.Expr) -> Iterator[exp.Expr]:
    """Every ``?`` of a query in the order of the text, which is not that of sqlglot's arguments."""
    if isinstance(node, exp.Placeholder):
        if node.args.get("this") is None:
            yield node
        return
    keys = list(node.args)
    if isinstance(node, exp.Query):
        keys.sort(key=lambda key: _CLAUSES.index(key) if key in _CLAUSES else 99 if key in _LAST else 50)
    for key in keys:
        value = node.args[key]
        for item in value if isinstance(value, list) else [value]:
            if isinstance(item, exp.Expr):
                yield from _placeholders(item)


def parameter_type(value: Any) -> ColumnType | None:
    """The type that a parameter has by its value; a text's is open, as that of a literal."""
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            return INT if -(1 << 31) <= value < 1 << 31 else BIGINT
        return decimal(38, 0)
    if isinstance(value, float):
        return DOUBLE
    if isinstance(value, Decimal):
        return _decimal_type(value)
    if isinstance(value, datetime):
        if value.tzinfo is not None:
            raise InterfaceError(f"{value!r} has a time zone; gmdb's timestamps have none")
        return TIMESTAMP
    if isinstance(value, date):
        return DATE
    if isinstance(value, bytes | bytearray | memoryview):
        return BYTES
    raise InterfaceError(f"a {type(value).__name__} cannot be a parameter")


def _decimal_type(value: Decimal) -> ColumnType:
    _, digits, exponent = value.as_tuple()
    if not isinstance(exponent, int):
        raise ValueOutOfRange(f"{value} is no DECIMAL")
    scale = max(-exponent, 0)
    precision = max(len(digits) + max(exponent, 0), scale)
    if precision > 38:
        raise ValueOutOfRange(f"{value} has more than 38 digits")
    return decimal(18 if precision <= 18 else 38, scale)


_Key = tuple[Any, ...]
_plans: OrderedDict[_Key, Plan] = OrderedDict()
_guard = threading.Lock()


def run(
    node: exp.Expr,
    tables: Mapping[str, Source],
    parameters: Parameters = (),
    text: str | None = None,
    watch: Watch | None = None,
) -> Answer:
    """Run a query.  With its text, the plan is remembered for the next time; ``watch`` gets what can interrupt it."""
    if text is None:
        return prepare(node, tables, parameters).run(tables, parameters, watch)
    types = tuple((name, parameter_type(value)) for name, value in _named(parameters).items())
    schemas = tuple((name, _signature(source)) for name, source in tables.items())
    key = (text, types, schemas)
    with _guard:
        plan = _plans.get(key)
        if plan is not None:
            _plans.move_to_end(key)
    if plan is None:
        plan = prepare(node, tables, parameters)
        with _guard:
            _plans[key] = plan
            while len(_plans) > PLANS_KEPT:
                _plans.popitem(last=False)
    return plan.run(tables, parameters, watch)


def _signature(source: Source) -> tuple[Column, ...]:
    return (*source.columns, *getattr(source, "hidden", ()))
