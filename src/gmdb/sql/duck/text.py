"""A plan as one query in DuckDB's SQL, and what it reads: ``write``.

Relations become SELECTs, whose clauses take as many of them as mean the same together; the rest are nested.

Invariants
 1. A column has one name in the whole text (``c7``), that of its identity, so that every reference is found by its
    name alone and no name of a user's reaches DuckDB.
 2. A column that the result does not depend on is neither written nor read.
Not here: expressions (values.py), where tables' rows come from (sources.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from gmdb.errors import InternalError
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, field, replace
from gmdb.sql import tree
from gmdb.sql.duck.execution import DuckResult, Source, Watch
from gmdb.sql.duck.sources import Read
from gmdb.sql.duck.values import Values, can_fail, duck_type, function_name, is_formula, parameter_value
from gmdb.sql.operations.registry import Operation, RowFunction
from gmdb.sql.plan.paths import Access, Materialized
from gmdb.sql.rows.expressions import compile_row
from gmdb.sql.run import Run
from gmdb.sql.tree import Column, Expression, Output, Relation, SortKey, columns_of, walk
from gmdb.sql.types import TEXT

_JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN", "semi": "SEMI JOIN"}


@dataclass(frozen=True, slots=True)
class Written:
    """A query for DuckDB: its text, the names and types of its columns, and what it needs in a run."""

    sql: str
    names: tuple[str, ...]
    types: tuple[ColumnType, ...]
    reads: tuple[Read, ...]
    parameters: tuple[str, ...]
    parameter_values: Callable[..., tuple[Any, ...]]  # in a run
    operations: tuple[Operation | RowFunction, ...]
    uses_now: bool

    def values(self, run: Run) -> dict[str, Any]:
        """What the text's parameters are in a run."""
        own = self.parameter_values((), run.parameters, run.now)
        values = {name: parameter_value(value) for name, value in zip(self.parameters, own, strict=True)}
        return {**values, "now": run.now.replace(tzinfo=None)} if self.uses_now else values


def run_written(written: Written, run: Run, watch: Watch | None = None) -> DuckResult:
    """Run a query; ``watch`` is called with what can interrupt it, before it runs."""
    return result_of(written, [read.begin(run) for read in written.reads], written.values(run), watch)


def result_of(
    written: Written, sources: Sequence[Source], values: Mapping[str, Any], watch: Watch | None = None
) -> DuckResult:
    """Run a query over these sources."""
    return DuckResult(written.names, written.types, written.sql, sources, values, watch, written.operations)


def write(relation: Relation, names: Sequence[str] | None = None) -> Written:
    """The query that gives a relation's columns, under these names if there are some."""
    columns = relation.columns
    writer = Writer(relation)
    query = writer.query(relation, columns, True)
    return Written(
        query,
        tuple(names) if names is not None else tuple(column.name for column in columns),
        tuple(column.type for column in columns),
        tuple(writer.reads),
        tuple(writer.parameters.values()),
        compile_row(tuple(writer.parameters), ()),
        tuple(writer.operations),
        writer.uses_now,
    )


@dataclass(slots=True)
class _Select:
    """A SELECT under construction.  ``outputs``: what its columns are; None: the source's own, as they are."""

    columns: tuple[Column, ...]
    source: str = ""
    prefix: str = ""
    where: list[Expression] = field(default_factory=list)
    outputs: dict[Column, str] | None = None
    group: str = ""
    distinct: str = ""
    order: str = ""
    limit: str = ""
    is_join: bool = False

    @property
    def is_source(self) -> bool:
        """Whether it is nothing but what stands behind FROM."""
        return bool(self.source) and not self.where and not self.prefix and self.is_open

    @property
    def is_open(self) -> bool:
        """Whether rows are neither computed, ordered nor cut yet."""
        return self.outputs is None and not (self.distinct or self.order or self.limit)


class Writer(Values):
    """Writes relations."""

    def __init__(self, relation: Relation) -> None:
        super().__init__()
        self.reads: list[Read] = []
        self._live = Live(relation)
        self._shared: dict[int, str] = {}
        self._count = 0
        self._kinds: dict[type[Relation], Callable[[Any], _Select]] = {
            tree.One: lambda _: _Select((), outputs=None),
            tree.Table: self._read,
            Access: self._read,
            tree.Listing: self._read,
            tree.Input: self._read,
            Materialized: self._read,
            tree.Series: self._series,
            tree.Unnest: self._unnest,
            tree.FunctionRows: self._function_rows,
            tree.Values: self._values,
            tree.Filter: self._filter,
            tree.Project: self._project,
            tree.Join: self._join,
            tree.Group: self._group,
            tree.Window: self._window,
            tree.Number: self._number,
            tree.Distinct: self._distinct,
            tree.Sort: self._sort,
            tree.Limit: self._limit,
            tree.SetOperation: self._set_operation,
            tree.With: self._with,
            tree.Reading: self._reading,
        }

    # ---- SELECTs

    def query(self, relation: Relation, columns: Sequence[Column], typed: bool = False) -> str:
        select = self._select(relation)
        return self._text(select, columns, typed)

    def _select(self, relation: Relation) -> _Select:
        kind = self._kinds.get(type(relation))
        if kind is None:
            raise InternalError(f"{type(relation).__name__} cannot stand in a query")
        return kind(relation)

    def _lives(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        return tuple(column for column in columns if column in self._live)

    def _text(self, select: _Select, columns: Sequence[Column], typed: bool = False) -> str:
        """The SELECT, giving these of its columns; ``typed``: in just the types that they have."""
        if select.distinct == "DISTINCT " and set(columns) != set(select.columns):
            select = self._nested(select)
        parts = []
        for column in columns:
            name = self.name(column)
            value = name if select.outputs is None else select.outputs[column]
            if typed:
                value = f"CAST({value} AS {duck_type(column.type)})"
            parts.append(value if value == name else f"{value} AS {name}")
        text = f"{select.prefix}SELECT {select.distinct}{', '.join(parts) or '1 AS c0'}"
        if select.source:
            text += f" FROM {select.source}"
        if select.where:
            text += f" WHERE {self.conditions(select.where)}"
        return text + select.group + select.order + select.limit

    def _nested(self, select: _Select) -> _Select:
        """A SELECT as what another one reads."""
        return _Select(select.columns, f"({self._text(select, select.columns)}) AS {self._fresh()}")

    def _fresh(self) -> str:
        self._count += 1
        return f"q{self._count}"

    def _as_source(self, relation: Relation, is_right: bool = False) -> str:
        select = self._select(relation)
        if not select.is_source:
            return self._nested(select).source
        return f"({select.source})" if is_right and select.is_join else select.source

    def _open(self, relation: Relation) -> _Select:
        """A relation whose rows the next clause may compute, order or cut."""
        select = self._select(relation)
        return select if select.is_open else self._nested(select)

    # ---- where rows come from

    def _read(self, relation: tree.Table | Access | tree.Listing | tree.Input | Materialized) -> _Select:
        columns = self._lives(relation.columns)
        alias = f"t{len(self.reads) + 1}"
        self.reads.append(Read.of(alias, relation, columns, [self.name(column) for column in columns]))
        return _Select(columns, alias)

    def _series(self, relation: tree.Series) -> _Select:
        own, type_ = self._fresh(), relation.column.type
        start, stop, step = (
            f"CAST({self.value(one)} AS BIGINT)" for one in (relation.start, relation.stop, relation.step)
        )
        numbers = f"generate_series({start}, gm_last({start}, {stop}, gm_step({step})), gm_step({step}))"
        is_for_each = any(columns_of(one) for one in relation.expressions())  # as a list, for each row around it
        rows = f"SELECT unnest({numbers}) AS g" if is_for_each else f"SELECT g FROM {numbers} AS s(g)"
        name = self.name(relation.column)
        return _Select((relation.column,), f"(SELECT CAST(g AS {duck_type(type_)}) AS {name} FROM ({rows})) AS {own}")

    def _unnest(self, relation: tree.Unnest) -> _Select:
        arrays = [self.value(one) for one in relation.arrays]
        outputs = [f"unnest({array}) AS {self.name(c)}" for array, c in zip(arrays, relation.elements, strict=True)]
        if relation.number is not None:
            lengths = ", ".join(f"coalesce(len({array}), 0)" for array in arrays)
            longest = f"greatest({lengths})" if len(arrays) > 1 else lengths
            outputs.append(f"unnest(range(1, CAST({longest} + 1 AS BIGINT))) AS {self.name(relation.number)}")
        return _Select(relation.columns, f"(SELECT {', '.join(outputs)}) AS {self._fresh()}")

    def _function_rows(self, relation: tree.FunctionRows) -> _Select:
        own, function = self._fresh(), relation.function
        self.operations[function] = None
        rows = f"SELECT unnest({function_name(function)}({self.listed(relation.arguments)})) AS r"
        columns = ", ".join(f"r.c{n} AS {self.name(column)}" for n, column in enumerate(relation.columns))
        return _Select(relation.columns, f"(SELECT {columns} FROM ({rows})) AS {own}")

    def _values(self, relation: tree.Values) -> _Select:
        types = [column.type for column in relation.columns]
        rows = ", ".join(f"({', '.join(map(self.typed, row, types))})" for row in relation.rows)
        names = ", ".join(self.name(column) for column in relation.columns)
        return _Select(relation.columns, f"(VALUES {rows}) AS {self._fresh()}({names})")

    def _join(self, relation: tree.Join) -> _Select:
        left = self._as_source(relation.left)
        kind, condition = relation.kind, relation.condition
        columns = self._lives(relation.columns)
        if relation.lateral:
            return self._lateral_join(relation, left, columns)
        right = self._as_source(relation.right, True)
        if condition is None and kind == "inner":
            return _Select(columns, f"{left} CROSS JOIN {right}", is_join=True)
        test = self.conditions([condition]) if condition is not None else "TRUE"
        word = "ANTI JOIN" if kind == "anti" else _JOINS[kind]
        return _Select(columns, f"{left} {word} {right} ON {test}", is_join=True)

    def _lateral_join(self, relation: tree.Join, left: str, columns: tuple[Column, ...]) -> _Select:
        """Each row of the left side with those of the right one that are made for it.

        DuckDB takes few conditions of such joins, so that the right side itself has them.
        """
        right = relation.right if relation.condition is None else tree.Filter(relation.right, relation.condition)
        if relation.kind in ("semi", "anti"):
            word = "NOT EXISTS" if relation.kind == "anti" else "EXISTS"
            source = f"(SELECT * FROM {left} WHERE {word} ({self.query(right, ())}))"
            return _Select(columns, f"{source} AS {self._fresh()}")
        text = self.query(right, self._lives(right.columns))
        word, test = ("LEFT JOIN", " ON TRUE") if relation.kind == "left" else ("CROSS JOIN", "")
        return _Select(columns, f"{left} {word} LATERAL ({text}) AS {self._fresh()}{test}", is_join=True)

    # ---- what becomes of them

    def _filter(self, relation: tree.Filter) -> _Select:
        select = self._open(relation.source)
        select.where.append(relation.condition)
        return select

    def _project(self, relation: tree.Project) -> _Select:
        select = self._select(relation.source)
        if select.outputs is not None or select.distinct or select.limit:
            select = self._nested(select)
        select.columns = self._lives(relation.columns)
        outputs = [(column, value) for column, value in relation.outputs if column in self._live]
        select.outputs = {column: self.typed(value, column.type) for column, value in outputs}
        return select

    def _widened(self, select: _Select, outputs: Sequence[Output]) -> _Select:
        """A SELECT nested, its columns and others that are made of them."""
        own = {column: self.name(column) for column in select.columns}
        own.update((column, self.typed(value, column.type)) for column, value in outputs)
        return self._nested(replace(select, columns=tuple(own), outputs=own))

    def _group(self, relation: tree.Group) -> _Select:
        select = self._open(relation.source)
        keys, aggregates = relation.keys, [one for one in relation.aggregates if one[0] in self._live]
        own = set(relation.source.columns)
        outer = {
            argument: Column("outer", argument.type)
            for _, one in aggregates
            for argument in one.arguments
            if _is_outer(argument, own)
        }
        if outer:  # DuckDB takes an aggregate of outer columns alone for one of the outer query
            select = self._widened(select, [(column, argument) for argument, column in outer.items()])
            aggregates = [(column, _with_arguments(one, outer)) for column, one in aggregates]
        if relation.sets is None and all(isinstance(value, tree.Reference) for _, value in keys):
            names = [self.value(value) for _, value in keys]
        else:  # as columns: constants would be positions, and equal keys of several sets one
            select = self._widened(select, keys)
            names = [self.name(column) for column, _ in keys]
        terms = ", ".join(names) or "()"
        if relation.sets is not None:
            terms = ", ".join(f"({', '.join(names[n] for n in one)})" for one in relation.sets)
            terms = f"GROUPING SETS ({terms})"
        select.group = f" GROUP BY {terms}"
        return self._called(select, {column: name for (column, _), name in zip(keys, names, strict=True)}, aggregates)

    def _called(
        self,
        select: _Select,
        plain: dict[Column, str],
        calls: Sequence[tuple[Column, tree.Aggregate | tree.WindowCall]],
    ) -> _Select:
        """A SELECT with some columns and aggregates; those of several calls are computed around it."""
        parts: dict[str, Column] = {}
        texts = {column: self.aggregate(one, parts) for column, one in calls}
        formulas = {column: texts[column] for column, one in calls if is_formula(one)}
        outputs = {**plain, **{column: text for column, text in texts.items() if column not in formulas}}
        select.outputs = {**outputs, **{column: text for text, column in parts.items()}}
        select.columns = tuple(select.outputs)
        if formulas:
            select = self._nested(select)
            select.outputs = {column: self.name(column) for column in outputs} | formulas
            select.columns = tuple(select.outputs)
        return select

    def _window(self, relation: tree.Window) -> _Select:
        calls = [(column, one) for column, one in relation.calls if column in self._live]
        if not calls:
            return self._select(relation.source)
        select = self._open(relation.source)
        return self._called(select, {column: self.name(column) for column in select.columns}, calls)

    def _number(self, relation: tree.Number) -> _Select:
        if relation.number not in self._live:
            return self._select(relation.source)
        select = self._open(relation.source)
        select.outputs = {column: self.name(column) for column in select.columns}
        select.outputs[relation.number] = "row_number() OVER ()"
        select.columns = tuple(select.outputs)
        return select

    def _distinct(self, relation: tree.Distinct) -> _Select:
        select = self._select(relation.source)
        if relation.on is None:
            select = self._nested(select) if select.distinct or select.order or select.limit else select
            select.distinct = "DISTINCT "
            return select
        is_plain = select.outputs is None or all(isinstance(one, tree.Reference) for one in relation.on)
        if select.distinct or select.limit or not is_plain:
            select = self._nested(select)
        select.distinct = f"DISTINCT ON ({self.listed(relation.on)}) "
        return select

    def _sort(self, relation: tree.Sort) -> _Select:
        select = self._select(relation.source)
        is_plain = select.outputs is None or all(_is_name(key) for key in relation.keys)
        if select.order or select.limit or select.distinct or not is_plain:
            select = self._nested(select)
        select.order = f" {self.order(relation.keys)}"
        return select

    def _limit(self, relation: tree.Limit) -> _Select:
        source = relation.source
        if isinstance(source, tree.Project) and any(can_fail(value) for _, value in source.outputs):
            # DuckDB computes more rows than it gives: only those within the limit are to fail
            return self._project(replace(source, source=replace(relation, source=source.source)))
        select = self._select(source)
        if select.limit:
            select = self._nested(select)
        for word, amount in (("LIMIT", relation.count), ("OFFSET", relation.offset)):
            if amount is not None:
                select.limit += f" {word} ({self.value(amount)})"
        return select

    # ---- several queries

    def _set_operation(self, relation: tree.SetOperation) -> _Select:
        positions = [n for n, column in enumerate(relation.columns) if column in self._live]
        sides = [
            f"({self.query(side, [side.columns[n] for n in positions], True)})"
            for side in (relation.left, relation.right)
        ]
        word = relation.kind.upper() + (" ALL" if relation.every else "")
        columns = tuple(relation.columns[n] for n in positions)
        return _Select(columns, f"({f' {word} '.join(sides)}) AS {self._fresh()}{self._names(columns)}")

    def _names(self, columns: Sequence[Column]) -> str:
        return f"({', '.join(self.name(column) for column in columns)})" if columns else ""

    def _with(self, relation: tree.With) -> _Select:
        parts = [self._shared_query(shared) for shared in relation.shared if id(shared) in self._live.shared]
        select = self._select(relation.body)
        if not parts:
            return select
        if select.prefix:
            select = self._nested(select)
        word = "RECURSIVE " if any(shared.again is not None for shared in relation.shared) else ""
        select.prefix = f"WITH {word}{', '.join(parts)} "
        return select

    def _shared_query(self, shared: tree.Shared) -> str:
        name = self._shared[id(shared)] = f"w{len(self._shared) + 1}"
        columns = [shared.columns[n] for n in self._positions(shared)]
        text = self.query(shared.query, columns, True)
        if shared.again is not None:
            word = "UNION ALL" if shared.every else "UNION"
            text = f"({text}) {word} ({self.query(shared.again, shared.again.columns, True)})"
        is_volatile = any(tree.is_volatile(one) for part in walk(shared.query) for one in part.expressions())
        return f"{name}{self._names(columns)} AS {'MATERIALIZED ' if is_volatile else ''}({text})"

    def _positions(self, shared: tree.Shared) -> list[int]:
        """The columns of a shared query that are written."""
        return [n for n, column in enumerate(shared.columns) if shared.again is not None or column in self._live]

    def _reading(self, relation: tree.Reading) -> _Select:
        (shared,) = relation.cell
        columns = tuple(relation.columns[n] for n in self._positions(shared))
        return _Select(columns, f"{self._shared[id(shared)]} AS {self._fresh()}{self._names(columns)}")


def _is_name(key: SortKey) -> bool:
    return isinstance(key.value, tree.Reference) and key.value.type.name not in ("CHAR", "JSONB")


def _is_outer(argument: Expression, own: set[Column]) -> bool:
    columns = columns_of(argument)
    return bool(columns) and own.isdisjoint(columns)


def _with_arguments(one: tree.Aggregate, columns: dict[Expression, Column]) -> tree.Aggregate:
    arguments = (tree.Reference(a.type, columns[a]) if a in columns else a for a in one.arguments)
    return replace(one, arguments=tuple(arguments))


class Live:
    """The columns that the rows of a query depend on, and the shared queries that are read."""

    def __init__(self, relation: Relation) -> None:
        self.columns: set[Column] = set(relation.columns)
        self.shared: set[int] = set()
        self._made_of: dict[Column, set[Column]] = {}
        for one in _everything(relation):
            self._note(one)
        pending = list(self.columns)
        while pending:
            for column in self._made_of.get(pending.pop(), ()):
                if column not in self.columns:
                    self.columns.add(column)
                    pending.append(column)

    def __contains__(self, column: Column) -> bool:
        return column in self.columns

    def _note(self, one: Relation) -> None:
        for expression in one.expressions():
            for part in expression.walk():
                if isinstance(part, tree.ScalarQuery):
                    self.columns.update(part.query.columns)
        if isinstance(one, tree.Project):
            self._note_outputs(one.outputs)
        elif isinstance(one, tree.Group):
            self._note_outputs(one.aggregates)
            self.columns.update(column for _, value in one.keys for column in _references(value))
        elif isinstance(one, tree.Window):
            self._note_outputs(one.calls)
        else:
            self.columns.update(column for expression in one.expressions() for column in _references(expression))
        if isinstance(one, tree.Distinct) and one.on is None:
            self.columns.update(one.columns)
        elif isinstance(one, tree.SetOperation):
            self._note_sides(one)
        elif isinstance(one, tree.Reading):
            (shared,) = one.cell
            self.shared.add(id(shared))
            for own, column in zip(one.columns, shared.columns, strict=True):
                self._made_of.setdefault(own, set()).add(column)
        elif isinstance(one, tree.With):
            for shared in one.shared:
                if shared.again is not None:
                    self.columns.update((*shared.query.columns, *shared.again.columns, *shared.columns))

    def _note_outputs(self, outputs: Sequence[tuple[Column, Expression]]) -> None:
        for column, value in outputs:
            self._made_of.setdefault(column, set()).update(_references(value))

    def _note_sides(self, one: tree.SetOperation) -> None:
        for n, column in enumerate(one.columns):
            sides = {one.left.columns[n], one.right.columns[n]}
            if one.kind == "union" and one.every:
                self._made_of.setdefault(column, set()).update(sides)
            else:
                self.columns |= {column, *sides}


def _references(expression: Expression) -> Iterator[Column]:
    return (part.column for part in expression.walk() if isinstance(part, tree.Reference))


def _everything(relation: Relation) -> Iterator[Relation]:
    """All relations of a query that DuckDB is to run, those within expressions and shared ones included."""
    pending = [relation]
    while pending:
        one = pending.pop()
        yield one
        if isinstance(one, Materialized | Access):
            continue
        pending.extend(one.sources())
        if isinstance(one, tree.With):
            pending.extend(
                query for shared in one.shared for query in (shared.query, shared.again) if query is not None
            )
        for expression in one.expressions():
            pending.extend(query for part in expression.walk() for query in part.relations())


# ---- What DuckDB did for a query: EXPLAIN ANALYZE, a line for each of its operators.

_EXPLAIN = "EXPLAIN (ANALYZE, FORMAT json) "


@dataclass(frozen=True, slots=True)
class Profile:
    """``rows``: of the result.  ``read``: how many were read of each relation that DuckDB is handed."""

    rows: int
    lines: tuple[str, ...]
    read: tuple[tuple[Relation, int], ...]


def profile(written: Written, run: Run, watch: Watch | None = None) -> Profile:
    """Run a query to its end, without its rows."""
    explained = replace(written, sql=_EXPLAIN + written.sql, names=("key", "value"), types=(TEXT, TEXT))
    with run_written(explained, run, watch) as result:
        text = result.reader.read_all().column("value")[0].as_py()
        read = result.rows_read()
    (top,) = _operators(json.loads(text)["operator"])
    return Profile(
        _rows(top), tuple(_lines(top, 0)), tuple((one.relation, read.get(one.alias, 0)) for one in written.reads)
    )


def _operators(nodes: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Those of the query itself."""
    (node,) = nodes
    return _operators(node["children"]) if node["type"] in ("RESULT_COLLECTOR", "EXPLAIN_ANALYZE") else nodes


def _rows(node: dict[str, Any]) -> int:
    return int(node.get("intermediate_rows", 0))


def _lines(node: dict[str, Any], depth: int) -> Iterator[str]:
    name = node["type"].lower().replace("_", " ")
    kind = node["extra_info"].get("Join Type", "").lower()
    yield f"{'  ' * depth}{f'{kind} ' if kind else ''}{name}: {_rows(node)} rows, {node['timing'] * 1000:.3f} ms"
    for child in node.get("children", ()):
        yield from _lines(child, depth + 1)
