"""Plans for people: a line for each node, what is within it indented below."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from gmdb.process.late_dataclasses import dataclass
from gmdb.sql import tree
from gmdb.sql.plan.paths import Access, Materialized, Path, Span
from gmdb.sql.tree import Expression, Relation, everything
from gmdb.tables.access.indexes import HIDDEN

if TYPE_CHECKING:
    from gmdb.sql.plan.planner import Plan
    from gmdb.sql.run import Run

_TEXT_MAX = 120
_INFIX = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*", "/", "%", "||", "like", "ilike"}
_EXECUTORS = {"rows": "rows one by one", "duck": "DuckDB"}


@dataclass(slots=True)
class Measure:
    """What a node did: rows that it gave, times that it was begun, seconds with all that is within it."""

    rows: int = 0
    loops: int = 0
    seconds: float = 0.0


Measures = Mapping[int, Measure]


def lines(node: Relation, executor: str, estimates: Mapping[int, float], measures: Measures | None = None) -> list[str]:
    """The tree, a line a node."""
    return [f"by {_EXECUTORS[executor]}", *_Lines(estimates, measures or {}).of(node, 1)]


class _Lines:
    def __init__(self, estimates: Mapping[int, float], measures: Measures) -> None:
        self._estimates, self._measures = estimates, measures

    def of(self, node: Relation, depth: int) -> Iterator[str]:
        if isinstance(node, tree.Project):  # says nothing about the way
            yield from self._queries(node, depth)
            yield from self.of(node.source, depth)
            return
        yield "  " * depth + describe(node) + self._numbers(node)
        if isinstance(node, tree.With):
            for shared in node.shared:
                yield "  " * (depth + 1) + f"with {shared.name}"
                for query in (shared.query, shared.again):
                    if query is not None:
                        yield from self.of(query, depth + 2)
        yield from self._queries(node, depth + 1)
        for source in node.sources():
            yield from self.of(source, depth + 1)

    def _queries(self, node: Relation, depth: int) -> Iterator[str]:
        for expression in node.expressions():
            for part in expression.walk():
                for query in part.relations():
                    yield "  " * depth + "subquery"
                    yield from self.of(query, depth + 1)

    def _numbers(self, node: Relation) -> str:
        estimate, measure = self._estimates.get(id(node)), self._measures.get(id(node))
        about = "" if estimate is None else f" (about {max(round(estimate), 1)} rows)"
        if measure is None:
            return about
        took = f", {measure.seconds * 1000:.3f} ms" if measure.seconds else ""
        loops = f", {measure.loops} times" if measure.loops > 1 else ""
        return f"{about}: {measure.rows} rows{took}{loops}"


def describe(node: Relation) -> str:
    """A node in words, without what is within it."""
    if isinstance(node, tree.Table):
        return f"scan of {_named(node)}"
    if isinstance(node, Access):
        return _access(node)
    if isinstance(node, Materialized):
        return "found by rows one by one"
    if isinstance(node, tree.Filter):
        return f"filter {written(node.condition)}"
    if isinstance(node, tree.Join):
        way = "by lookups" if node.lateral else "by hashing" if _has_equality(node.condition) else "of all pairs"
        on = "" if node.condition is None else f" on {written(node.condition)}"
        return f"{node.kind} join {way}{on}"
    if isinstance(node, tree.Group):
        keys = ", ".join(written(value) for _, value in node.keys)
        return f"group by {keys}" if keys else "aggregate"
    if isinstance(node, tree.Sort):
        keys = ", ".join(written(key.value) + (" desc" if key.descending else "") for key in node.keys)
        return f"sort by {keys}"
    if isinstance(node, tree.Limit):
        count = "" if node.count is None else f" {written(node.count)}"
        return f"limit{count}" + ("" if node.offset is None else f" offset {written(node.offset)}")
    if isinstance(node, tree.SetOperation):
        return node.kind + (" all" if node.every else "")
    if isinstance(node, tree.Listing):
        arguments = ", ".join([*map(_constant, node.arguments), *(f"{k} => {_constant(v)}" for k, v in node.options)])
        return f"listing {node.name}" if node.is_view else f"listing {node.name}({arguments})"
    if isinstance(node, tree.Input):
        return f"rows of {node.name}"
    if isinstance(node, tree.FunctionRows):
        return f"{node.function.name}({', '.join(map(written, node.arguments))})"
    if isinstance(node, tree.Reading):
        return f"read {node.cell[0].name}"
    if isinstance(node, tree.Values):
        return f"values, {len(node.rows)} rows"
    names = {tree.Distinct: "distinct", tree.Window: "window", tree.With: "with"}
    return names.get(type(node), type(node).__name__.lower())


def _named(table: tree.Table) -> str:
    name = table.definition.name
    return f"{name} {table.alias}" if table.alias not in ("", table.definition.own_name) else name


def _access(node: Access) -> str:
    path, name = node.path, _named(node.table)
    if path.row_ids is not None:
        return f"rows of {name} by row id"
    if path.index is None:
        return f"scan of {name}"
    parts = _spans(path)
    if path.ordered:
        parts.append("in order, backwards" if path.backwards else "in order")
    if path.index.condition is not None:
        parts.append(f"where {path.index.condition}")
    what = "one row" if path.is_single else "rows"
    return f"{what} of {name} by index {path.index.name} ({', '.join(parts)})"


def _called(path: Path) -> list[str]:
    """The columns of an index, or the expressions that it is on."""
    return [column.name.removeprefix(HIDDEN) for column in path.columns]


def _spans(path: Path) -> list[str]:
    if len(path.spans) > 1:
        return [f"{len(path.spans)} ranges of {', '.join(_called(path))}"]
    span = path.spans[0] if path.spans else Span()
    names = _called(path)
    parts = [f"{name} = {written(value)}" for name, value in zip(names, span.equal, strict=False)]
    for bound, signs in ((span.low, (">=", ">")), (span.high, ("<=", "<"))):
        if bound is not None:
            parts.append(f"{names[len(span.equal)]} {signs[bound.open]} {written(bound.value)}")
    return parts


def _has_equality(condition: Expression | None) -> bool:
    if isinstance(condition, tree.Junction):
        return not condition.absorbing and any(map(_has_equality, condition.parts))
    return isinstance(condition, tree.Call) and condition.operation.name == "="


def written(expression: Expression) -> str:
    """An expression about as SQL would have it."""
    text = _written(expression)
    return text if len(text) <= _TEXT_MAX else text[: _TEXT_MAX - 1] + "…"


def _written(expression: Expression) -> str:
    if isinstance(expression, tree.Constant):
        return _constant(expression.value)
    if isinstance(expression, tree.Parameter):
        return f":{expression.key}" if isinstance(expression.key, str) else f"?{expression.key + 1}"
    if isinstance(expression, tree.Reference):
        return expression.column.name
    if isinstance(expression, tree.Junction):
        return "(" + (" or " if expression.absorbing else " and ").join(map(_written, expression.parts)) + ")"
    if isinstance(expression, tree.Call):
        name, arguments = expression.operation.name, [_written(argument) for argument in expression.arguments]
        if name == "cast":
            return f"{arguments[0]}::{expression.type}".lower() if arguments else name
        if name in _INFIX and len(arguments) == 2:
            return f"{arguments[0]} {name} {arguments[1]}"
        if name == "is_null":
            return f"{arguments[0]} is null"
        return f"{name}({', '.join(arguments)})"
    if isinstance(expression, tree.Aggregate):
        return f"{expression.aggregation.name}({', '.join(map(_written, expression.arguments))})"
    if isinstance(expression, tree.Coalesce):
        return f"coalesce({', '.join(map(_written, expression.parts))})"
    names = {
        tree.Case: "case",
        tree.Now: "now()",
        tree.ScalarQuery: "(query)",
        tree.Exists: "exists (query)",
        tree.QueryComparison: "in (query)",
    }
    return names.get(type(expression), type(expression).__name__.lower())


def _constant(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else str(value).lower()
    return str(value) if isinstance(value, int | float | Decimal) else "'" + str(value).replace("'", "''") + "'"


def analyzed(plan: Plan, run: Run, watch: Callable[[Any], None] | None) -> list[str]:
    """Run a plan to its end; its lines with what each node did, and how long it took."""
    from gmdb.sql import rows

    begin = time.perf_counter()
    if plan.executor == "rows":
        measures = {id(one): Measure() for one in everything(plan.tree)}
        count, operators = sum(1 for _ in rows.Program(plan.tree, measures=measures).rows(run)), []
    else:
        from gmdb.sql.duck.text import profile  # it takes a while to import

        done = profile(plan.written, run, watch)
        measures = {id(relation): Measure(rows=read) for relation, read in done.read}
        count, operators = done.rows, ["in DuckDB:", *(f"  {line}" for line in done.lines)]
    seconds = time.perf_counter() - begin
    plan_lines = lines(plan.tree, plan.executor, plan.estimates, measures)
    return [*plan_lines, *operators, f"{count} rows in {seconds * 1000:.3f} ms"]
