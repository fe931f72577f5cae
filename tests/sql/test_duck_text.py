"""Trees of every kind as DuckDB's SQL, run over tables: what they give, and how they fail."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path as PathOfFile
from typing import Any

import pytest

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection
from gmdb.format.columns import ColumnType
from gmdb.sql import operations, tree
from gmdb.sql.duck.text import profile, run_written, write
from gmdb.sql.operations.registry import Operation
from gmdb.sql.plan.paths import Access, Materialized, Path, Span
from gmdb.sql.plan.paths import Bound as KeyBound
from gmdb.sql.run import Run
from gmdb.sql.statements.table_functions import listing_columns
from gmdb.sql.types import BIGINT, BOOLEAN, DATE, DOUBLE, INT, INTERVAL, TEXT, TIMESTAMP, within
from tests.sql.test_exit import outcomes_of

NOW = datetime(2024, 2, 29, 12, 30)


class Bench:
    """A database with some tables, and trees over them."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection

    def table(self, name: str, alias: str = "") -> tree.Table:
        definition = self.connection.table(name)
        stored = tuple(tree.Column(c.name, within(c.type), c.nullable) for c in definition.columns)
        return tree.Table(definition, stored, tree.Column("rowid", ColumnType("VARCHAR", 40)), alias)

    def run(self, relation: tree.Relation, *parameters: Any, sort: bool = True, **named: Any) -> list[tuple[Any, ...]]:
        with self.connection.one_snapshot(None) as reading:
            run = Run(self.connection, reading, named or parameters, NOW)
            with run_written(write(relation), run) as answer:
                rows = [row for batch in answer.reader for row in _rows(batch)]
        return sorted(rows, key=repr) if sort else rows


def _rows(batch: Any) -> list[tuple[Any, ...]]:
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    path = tmp_path_factory.mktemp("duck_text") / "t.gmdb"
    with gmdb.connect(path) as connection:
        connection.execute("create table t (a int, b int, s varchar(20), c char(5), d decimal(10, 2), primary key (a))")
        connection.execute("create table u (k int, v varchar(20), w double, day date)")
        for n in range(6):
            values = (n, n % 3, f"s{n}", "x" * (n % 3), Decimal(n) / 4)
            connection.execute("insert into t values (?, ?, ?, ?, ?)", values)
        for k, v in ((1, "one"), (2, "two"), (2, "zwei"), (9, None), (None, "none")):
            day = None if k is None else date(2024, 1, k)
            connection.execute("insert into u values (?, ?, ?, ?)", (k, v, None if k is None else k / 2, day))
        connection.commit()
        yield Bench(connection)


def column(relation: tree.Relation, name: str) -> tree.Reference:
    (one,) = (c for c in relation.columns if c.name == name)
    return tree.Reference(one.type, one)


def constant(value: Any, type_: ColumnType = INT) -> tree.Constant:
    return tree.Constant(type_, value)


def call(name: str, *arguments: tree.Expression) -> tree.Call:
    constants = {n: one.value for n, one in enumerate(arguments) if isinstance(one, tree.Constant)}
    types = [one.type for one in arguments]
    operation: Operation | None = None
    if len(types) == 2:
        operation = operations.operator(name, types[0], types[1], constants)
    operation = operation or operations.resolve(name, types, constants)
    assert operation is not None, f"{name}({types})"
    values = [coerced(one, type_) for one, type_ in zip(arguments, operation.takes, strict=True)]
    return tree.Call(operation.gives, operation, tuple(values))


def coerced(one: tree.Expression, type_: ColumnType) -> tree.Expression:
    widening = operations.widen(one.type, type_) if one.type != type_ else None
    return one if widening is None else tree.Call(type_, widening, (one,))


def every(*parts: tree.Expression) -> tree.Junction:
    return tree.Junction(BOOLEAN, False, parts)


def some(*parts: tree.Expression) -> tree.Junction:
    return tree.Junction(BOOLEAN, True, parts)


def project(source: tree.Relation, **values: tree.Expression) -> tree.Project:
    return tree.Project(source, tuple((tree.Column(name, one.type), one) for name, one in values.items()))


def pick(source: tree.Relation, *names: str) -> tree.Project:
    return project(source, **{name: column(source, name) for name in names})


def aggregate(name: str, *arguments: tree.Expression, **more: Any) -> tree.Aggregate:
    aggregation = operations.aggregation(name, [one.type for one in arguments])
    assert aggregation is not None
    return tree.Aggregate(aggregation.gives, aggregation, arguments, **more)


def group(
    source: tree.Relation,
    keys: dict[str, tree.Expression],
    aggregates: dict[str, tree.Aggregate],
    sets: Sequence[Sequence[int]] | None = None,
) -> tree.Group:
    return tree.Group(
        source,
        tuple((tree.Column(name, one.type), one) for name, one in keys.items()),
        tuple((tree.Column(name, one.type), one) for name, one in aggregates.items()),
        None if sets is None else tuple(map(tuple, sets)),
    )


def ascending(*values: tree.Expression) -> tuple[tree.SortKey, ...]:
    return tuple(tree.SortKey(value) for value in values)


def ratio(a: tree.Expression, b: tree.Expression) -> tree.Call:
    return call("/", a, b)


# ---- tables and what is made of their rows


def test_rows_of_a_table_with_their_row_ids(bench: Bench) -> None:
    t = bench.table("t")
    rows = bench.run(
        tree.Filter(project(t, a=column(t, "a"), r=tree.Reference(TEXT, t.row_id)), constant(True, BOOLEAN))
    )
    assert [a for a, _ in rows] == list(range(6))
    assert all(r.count(":") == 2 for _, r in rows)


def test_rows_without_columns_are_counted(bench: Bench) -> None:
    t = bench.table("t")
    assert bench.run(group(t, {}, {"n": aggregate("count")})) == [(6,)]
    assert bench.run(project(t, one=constant(1))) == [(1,)] * 6


def test_a_select_without_from_gives_a_row_unless_its_condition_is_false(bench: Bench) -> None:
    assert bench.run(project(tree.One(), x=constant(1))) == [(1,)]
    assert bench.run(project(tree.Filter(tree.One(), constant(False, BOOLEAN)), x=constant(1))) == []


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (None, INT),
        (-(2**31), INT),
        (2**63 - 1, BIGINT),
        (-(2**63), BIGINT),
        (Decimal("-1.50"), ColumnType("DECIMAL", 38, 2)),
        (float("inf"), DOUBLE),
        (-0.0, DOUBLE),
        (1e-300, DOUBLE),
        ("it's \\ \x00 é", TEXT),
        (b"\x00\xff", ColumnType("VARBINARY", 32000)),
        (date(1, 1, 1), DATE),
        (datetime(9999, 12, 31, 23, 59, 59, 999999), TIMESTAMP),
        (True, BOOLEAN),
    ],
)
def test_constants_and_parameters_of_every_type(bench: Bench, value: Any, type_: ColumnType) -> None:
    given = tree.Parameter(type_, 0, type_ if value is not None and type_ != TEXT else None)
    assert bench.run(project(tree.One(), a=constant(value, type_), b=given), value) == [(value, value)]


def test_open_parameters_are_read_as_their_types(bench: Bench) -> None:
    read = project(tree.One(), a=tree.Parameter(DATE, "d"), b=tree.Parameter(INT, "n"), c=tree.Parameter(TEXT, "t"))
    assert bench.run(read, d="2024-01-02", n="7", t="7") == [(date(2024, 1, 2), 7, "7")]
    with pytest.raises(errors.InvalidText):
        bench.run(read, d="no", n="7", t="7")
    with pytest.raises(errors.InterfaceError):
        bench.run(read, d="2024-01-02")


def test_the_time_is_that_of_the_statement(bench: Bench) -> None:
    assert bench.run(project(tree.One(), a=tree.Now(TIMESTAMP), b=tree.Now(TIMESTAMP))) == [(NOW, NOW)]


def test_values_series_and_set_operations(bench: Bench) -> None:
    listed = tree.Values(((constant(1), constant("a", TEXT)), (constant(None), constant("b", TEXT))), (
        tree.Column("x", INT), tree.Column("y", TEXT)))  # fmt: skip
    assert bench.run(listed, sort=False) == [(1, "a"), (None, "b")]
    series = tree.Series(constant(1), constant(7), constant(3), tree.Column("g", INT))
    assert bench.run(series) == [(1,), (4,), (7,)]
    assert bench.run(tree.Series(constant(1), constant(None), constant(3), tree.Column("g", INT))) == []
    with pytest.raises(errors.ValueOutOfRange):
        bench.run(tree.Series(constant(1), constant(7), constant(0), tree.Column("g", INT)))
    numbers = pick(bench.table("t"), "b")
    for kind, every_, rows in (
        ("union", False, [(0,), (1,), (2,), (4,), (7,)]),
        ("union", True, [(0,), (0,), (1,), (1,), (1,), (2,), (2,), (4,), (7,)]),
        ("intersect", False, [(1,)]),
        ("except", False, [(0,), (2,)]),
        ("except", True, [(0,), (0,), (1,), (2,), (2,)]),
    ):
        out = (tree.Column("n", INT),)
        assert bench.run(tree.SetOperation(kind, every_, numbers, series, out)) == rows


def test_only_columns_that_matter_are_written_and_read(bench: Bench) -> None:
    t = bench.table("t")
    inner = project(t, x=column(t, "s"), y=call("+", column(t, "a"), constant(1)), z=column(t, "b"))
    written = write(pick(tree.SetOperation("union", True, inner, inner_again(bench), inner.columns), "y"))
    assert [[c.name for c in read.columns] for read in written.reads] == [["a"], ["k"]]
    (count,) = write(group(t, {}, {"n": aggregate("count")})).reads
    assert len(count.columns) == 1


def inner_again(bench: Bench) -> tree.Relation:
    u = bench.table("u")
    return project(u, x=column(u, "v"), y=column(u, "k"), z=column(u, "k"))


# ---- joins


def joined(bench: Bench, kind: str, *more: tree.Expression) -> list[tuple[Any, ...]]:
    t, u = bench.table("t"), bench.table("u")
    parts = (call("=", column(t, "b"), column(u, "k")), *more)
    condition = parts[0] if len(parts) == 1 else every(*parts)
    names = ("a",) if kind in ("semi", "anti") else ("a", "v")
    source = tree.Join(kind, t, u, condition)
    return bench.run(pick(source, *names))


def test_joins_of_every_kind(bench: Bench) -> None:
    inner: list[tuple[Any, Any]] = [(1, "one"), (2, "two"), (2, "zwei"), (4, "one"), (5, "two"), (5, "zwei")]
    left: list[tuple[Any, Any]] = [(0, None), (3, None)]
    right: list[tuple[Any, Any]] = [(None, None), (None, "none")]
    assert joined(bench, "inner") == sorted(inner, key=repr)
    assert joined(bench, "left") == sorted(inner + left, key=repr)
    assert joined(bench, "right") == sorted(inner + right, key=repr)
    assert joined(bench, "full") == sorted(inner + left + right, key=repr)
    assert joined(bench, "semi") == [(1,), (2,), (4,), (5,)]
    assert joined(bench, "anti") == [(0,), (3,)]


def test_joins_without_equalities(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    condition = call("<", column(t, "a"), column(u, "k"))
    counts = {}
    for kind in ("inner", "left", "right", "full", "semi", "anti"):
        counts[kind] = len(bench.run(pick(tree.Join(kind, t, u, condition), "a")))
    assert counts == {"inner": 11, "left": 11, "right": 12, "full": 12, "semi": 6, "anti": 0}
    assert len(bench.run(pick(tree.Join("inner", t, u), "a", "k"))) == 30
    assert len(bench.run(pick(tree.Join("left", t, tree.Filter(u, constant(False, BOOLEAN))), "a", "k"))) == 6


def test_joins_within_joins(bench: Bench) -> None:
    t, u, v = bench.table("t"), bench.table("u"), bench.table("u")
    right = tree.Join("left", u, v, call("=", column(u, "k"), column(v, "k")))
    outer = tree.Join("left", t, right, call("=", column(t, "a"), tree.Reference(INT, u.stored[0])))
    rows = bench.run(
        project(outer, a=column(t, "a"), x=tree.Reference(TEXT, u.stored[1]), y=tree.Reference(TEXT, v.stored[1]))
    )
    assert rows[:3] == [(0, None, None), (1, "one", "one"), (2, "two", "two")]
    assert len(rows) == 9


@pytest.mark.parametrize("kind", ["inner", "left", "semi", "anti"])
def test_lateral_joins(bench: Bench, kind: str) -> None:
    t = bench.table("t")
    series = tree.Series(constant(2), column(t, "a"), constant(2), tree.Column("g", INT))
    condition = call("<>", column(series, "g"), constant(4))
    rows = bench.run(
        pick(tree.Join(kind, t, series, condition, True), *(("a",) if kind in ("semi", "anti") else ("a", "g")))
    )
    inner = [(2, 2), (3, 2), (4, 2), (5, 2)]
    assert (
        rows
        == {
            "inner": inner,
            "left": [(0, None), (1, None), *inner],
            "semi": [(a,) for a, _ in inner],
            "anti": [(0,), (1,)],
        }[kind]
    )


def test_a_lateral_join_that_finds_its_rows_by_an_outer_value(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    newest = tree.Limit(
        tree.Sort(
            tree.Filter(u, call("=", column(u, "k"), column(t, "a"))), (tree.SortKey(column(u, "v"), True, True),)
        ),
        constant(1, BIGINT),
    )
    rows = bench.run(pick(tree.Join("left", t, newest, None, True), "a", "v"))
    assert rows == [(0, None), (1, "one"), (2, "zwei"), (3, None), (4, None), (5, None)]


# ---- queries within expressions


def test_scalar_queries(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    own = tree.Filter(u, call("=", column(u, "k"), column(t, "a")))
    highest = group(own, {}, {"m": aggregate("max", column(u, "v"))})
    rows = bench.run(project(t, a=column(t, "a"), m=tree.ScalarQuery(TEXT, highest)))
    assert rows == [(0, None), (1, "one"), (2, "zwei"), (3, None), (4, None), (5, None)]
    with pytest.raises(errors.SubqueryTooManyRows):
        bench.run(project(t, m=tree.ScalarQuery(TEXT, pick(own, "v"))))


def test_an_aggregate_of_outer_columns_alone_counts_the_inner_rows(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    total = group(u, {}, {"n": aggregate("sum", column(t, "a"))})
    rows = bench.run(project(t, a=column(t, "a"), n=tree.ScalarQuery(BIGINT, total)))
    assert rows == [(a, 5 * a) for a in range(6)]


def test_exists_and_comparisons_with_queries(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    k, a, b = column(u, "k"), column(t, "a"), column(t, "b")
    one = tree.Exists(BOOLEAN, tree.Filter(u, call("=", k, a)))
    assert bench.run(pick(tree.Filter(t, one), "a")) == [(1,), (2,)]
    keys = pick(u, "k")
    key = column(keys, "k")
    within_keys = tree.QueryComparison(BOOLEAN, keys, call("=", a, key))
    assert bench.run(project(t, a=a, x=within_keys)) == [
        (0, None),
        (1, True),
        (2, True),
        (3, None),
        (4, None),
        (5, None),
    ]
    below = tree.QueryComparison(BOOLEAN, keys, call(">", key, a))  # the query's column on the left
    assert bench.run(project(t, a=a, x=below)) == [(n, True) for n in range(6)]
    known = pick(tree.Filter(u, call("not", call("is_null", k))), "k")
    above_all = tree.QueryComparison(BOOLEAN, known, call(">=", a, column(known, "k")), True)
    assert bench.run(project(t, a=a, x=above_all)) == [(n, False) for n in range(6)]
    none = pick(tree.Filter(u, constant(False, BOOLEAN)), "k")
    test = call("=", a, column(none, "k"))
    assert bench.run(
        project(tree.Limit(t, constant(1, BIGINT)), x=tree.QueryComparison(BOOLEAN, none, test, True))
    ) == [(True,)]
    pairs = pick(u, "k", "v")
    both = every(
        call("=", b, column(pairs, "k")),
        call("=", call("||", constant("o", TEXT), constant("ne", TEXT)), column(pairs, "v")),
    )
    rows = bench.run(project(t, a=a, x=tree.QueryComparison(BOOLEAN, pairs, both)))
    assert rows == [(0, False), (1, True), (2, False), (3, False), (4, True), (5, False)]


# ---- groups


def test_groups_and_their_aggregates(bench: Bench) -> None:
    t = bench.table("t")
    d = column(t, "d")
    rows = bench.run(
        group(t, {"b": column(t, "b")}, {"n": aggregate("count"), "x": aggregate("sum", d), "y": aggregate("avg", d)})
    )
    assert rows == [
        (0, 2, Decimal("0.75"), Decimal("0.3750000000000000")),
        (1, 2, Decimal("1.25"), Decimal("0.6250000000000000")),
        (2, 2, Decimal("1.75"), Decimal("0.8750000000000000")),
    ]
    nothing = tree.Filter(t, constant(False, BOOLEAN))
    assert bench.run(group(nothing, {"b": column(t, "b")}, {"n": aggregate("count")})) == []
    assert bench.run(group(nothing, {}, {"n": aggregate("count"), "m": aggregate("max", d)})) == [(0, None)]


def test_constants_as_keys_are_no_positions(bench: Bench) -> None:
    t = bench.table("t")
    assert bench.run(group(t, {"k": constant(-5), "l": constant(2)}, {"n": aggregate("count")})) == [(-5, 2, 6)]


def test_a_group_of_which_nobody_asks_anything_is_one_row(bench: Bench) -> None:
    t = bench.table("t")
    nothing = tree.Filter(t, constant(False, BOOLEAN))
    assert bench.run(project(group(nothing, {}, {"n": aggregate("count")}), x=constant(7))) == [(7,)]


def test_grouping_sets(bench: Bench) -> None:
    t = bench.table("t")
    a, b = column(t, "a"), column(t, "b")
    keys = {"b": b, "h": call("/", a, constant(3)), "again": b}
    rows = bench.run(group(t, keys, {"n": aggregate("count"), "m": aggregate("max", b)}, [(0,), (1,), (2,), (), ()]))
    assert rows == sorted(
        [
            *((n, None, None, 2, n) for n in range(3)),
            *((None, n, None, 3, 2) for n in range(2)),
            *((None, None, n, 2, n) for n in range(3)),
            *((None, None, None, 6, 2) for _ in range(2)),
        ],
        key=repr,
    )


def test_filter_distinct_and_order_of_aggregates(bench: Bench) -> None:
    t = bench.table("t")
    a, b, s = column(t, "a"), column(t, "b"), column(t, "s")
    quotient = aggregate("sum", ratio(a, b), condition=call("<>", b, constant(0)))
    texts = aggregate("string_agg", s, constant("-", TEXT), order=(tree.SortKey(b, True, True), tree.SortKey(a)))
    assert bench.run(group(t, {}, {"q": quotient, "n": aggregate("count", b, distinct=True), "s": texts})) == [
        (8, 3, "s2-s5-s1-s4-s0-s3")
    ]
    with pytest.raises(errors.DivisionByZero):
        bench.run(group(t, {}, {"q": aggregate("sum", ratio(a, b))}))


# ---- windows, order, limits


def window(name: str, *arguments: tree.Expression, **more: Any) -> tree.WindowCall:
    aggregation = operations.aggregation(name, [one.type for one in arguments], True)
    assert aggregation is not None
    return tree.WindowCall(aggregation.gives, aggregation, arguments, **more)


def test_windows(bench: Bench) -> None:
    t = bench.table("t")
    a, b = column(t, "a"), column(t, "b")
    frame = tree.Frame("ROWS", (constant(1, BIGINT), "PRECEDING"), (None, ""))
    calls = {
        "n": window("row_number", order=(tree.SortKey(a, True, True),)),
        "x": window("sum", a, partition=(b,), order=ascending(a)),
        "y": window("sum", a, order=ascending(a), frame=frame),
        "z": window("sum", ratio(a, b), condition=call("<>", b, constant(0))),
        "unused": window("sum", ratio(a, b)),
    }
    named = tree.Window(t, tuple((tree.Column(name, one.type), one) for name, one in calls.items()))
    assert bench.run(pick(named, "a", "n", "x", "y", "z")) == [
        (0, 6, 0, 0, 8),
        (1, 5, 1, 1, 8),
        (2, 4, 2, 3, 8),
        (3, 3, 3, 5, 8),
        (4, 2, 5, 7, 8),
        (5, 1, 7, 9, 8),
    ]


def test_a_frame_that_begins_behind_its_end_is_refused(bench: Bench) -> None:
    t = bench.table("t")
    frame = tree.Frame("ROWS", (tree.Parameter(BIGINT, 0, BIGINT), "PRECEDING"), (None, ""))
    named = tree.Window(
        t, ((tree.Column("x", BIGINT), window("sum", column(t, "a"), order=ascending(column(t, "a")), frame=frame)),)
    )
    with pytest.raises(errors.UndefinedResult):
        bench.run(pick(named, "x"), -1)


def test_order_limit_and_offset(bench: Bench) -> None:
    t = bench.table("t")
    a, b = column(t, "a"), column(t, "b")
    ordered = tree.Sort(t, (tree.SortKey(b, True, True), tree.SortKey(call("-", constant(0), a))))
    assert bench.run(pick(ordered, "a"), sort=False) == [(5,), (2,), (4,), (1,), (3,), (0,)]
    limited = tree.Limit(ordered, tree.Parameter(BIGINT, 0, BIGINT), constant(1, BIGINT))
    assert bench.run(pick(limited, "a"), 2, sort=False) == [(2,), (4,)]
    assert bench.run(pick(limited, "a"), None, sort=False) == [(2,), (4,), (1,), (3,), (0,)]
    assert bench.run(pick(tree.Filter(limited, call(">", a, constant(2))), "a"), 2) == [(4,)]
    assert bench.run(pick(tree.Limit(limited, constant(1, BIGINT)), "a"), 2) == [(2,)]
    with pytest.raises(errors.ValueOutOfRange):
        bench.run(pick(limited, "a"), -1)


def test_blanks_at_the_end_of_a_char_do_not_count_in_an_order(bench: Bench) -> None:
    values = [("a\x01",), ("a",), (None,)]
    listed = tree.Values(
        tuple((constant(v and v.ljust(5), ColumnType("CHAR", 5)),) for (v,) in values),
        (tree.Column("c", ColumnType("CHAR", 5)),),
    )
    rows = bench.run(tree.Sort(listed, (tree.SortKey(column(listed, "c"), nulls_first=True),)), sort=False)
    assert [row[0] and row[0].strip() for row in rows] == [None, "a", "a\x01"]


def test_distinct_and_distinct_on(bench: Bench) -> None:
    t = bench.table("t")
    assert bench.run(tree.Distinct(pick(t, "b"))) == [(0,), (1,), (2,)]
    assert bench.run(project(tree.Distinct(pick(t, "b")), one=constant(1))) == [(1,)] * 3
    listed = project(t, a=column(t, "a"), b=column(t, "b"))
    ordered = tree.Sort(listed, (tree.SortKey(column(listed, "b")), tree.SortKey(column(listed, "a"), True, True)))
    first = tree.Distinct(ordered, (column(listed, "b"),))
    assert bench.run(pick(first, "a"), sort=False) == [(3,), (4,), (5,)]
    half = call("/", column(t, "a"), constant(3))
    by_half = tree.Distinct(tree.Sort(t, (*ascending(half), tree.SortKey(column(t, "a"), True, True))), (half,))
    assert bench.run(pick(by_half, "a"), sort=False) == [(2,), (5,)]


def test_rownum_numbers_rows_as_they_come(bench: Bench) -> None:
    t = bench.table("t")
    some_rows = tree.Number(
        tree.Limit(tree.Filter(t, call(">", column(t, "a"), constant(2))), constant(2, BIGINT)),
        tree.Column("rownum", BIGINT),
    )
    assert bench.run(pick(some_rows, "a", "rownum"), sort=False) == [(3, 1), (4, 2)]
    ordered = tree.Number(tree.Sort(t, (tree.SortKey(column(t, "a"), True, True),)), tree.Column("rownum", BIGINT))
    rows = bench.run(pick(tree.Sort(ordered, ascending(column(ordered, "rownum"))), "rownum", "a"), sort=False)
    assert rows == [(n + 1, 5 - n) for n in range(6)]


# ---- shared queries


def test_shared_queries_are_read_where_they_are_named(bench: Bench) -> None:
    t = bench.table("t")
    listed = project(t, b=column(t, "b"), s=column(t, "s"), unused=column(t, "d"))
    shared = tree.Shared("w", listed, columns=listed.columns)
    one, two = (tree.Reading([shared], tuple(tree.Column(c.name, c.type) for c in listed.columns)) for _ in range(2))
    join = tree.Join("inner", one, two, call("=", column(one, "b"), column(two, "b")))
    body = group(join, {}, {"n": aggregate("count")})
    nobody = tree.Shared("x", pick(t, "a"), columns=())
    assert bench.run(tree.With((shared, nobody), body)) == [(12,)]
    written = write(tree.With((shared, nobody), body))
    assert [[c.name for c in read.columns] for read in written.reads] == [["b"]]


@pytest.mark.parametrize(("every_", "rows"), [(True, [1, 2, 3, 4]), (False, [1, 2, 3, 4])])
def test_recursive_queries(bench: Bench, every_: bool, rows: list[int]) -> None:
    first = project(tree.One(), n=constant(1), m=constant(0))
    cell: list[tree.Shared] = []
    step = tree.Reading(cell, (tree.Column("n", INT), tree.Column("m", INT)))
    n = column(step, "n")
    again = project(tree.Filter(step, call("<", n, constant(4))), n=call("+", n, constant(1)), m=constant(0))
    cell.append(tree.Shared("r", first, again, every_, first.columns))
    body = tree.Reading(cell, (tree.Column("n", INT), tree.Column("m", INT)))
    assert bench.run(tree.With((cell[0],), pick(body, "n"))) == [(row,) for row in rows]
    inner = tree.ScalarQuery(BIGINT, tree.With((cell[0],), group(body, {}, {"n": aggregate("count")})))
    assert bench.run(project(tree.One(), n=inner)) == [(4,)]


def test_volatile_shared_queries_are_computed_once(bench: Bench) -> None:
    random = project(tree.One(), r=call("random"))
    shared = tree.Shared("w", random, columns=random.columns)
    one, two = (tree.Reading([shared], (tree.Column("r", DOUBLE),)) for _ in range(2))
    body = project(
        tree.Join("inner", one, two), x=tree.Reference(DOUBLE, one.columns[0]), y=tree.Reference(DOUBLE, two.columns[0])
    )
    ((x, y),) = bench.run(tree.With((shared,), body))
    assert x == y


# ---- what may fail


def test_parts_that_fail_are_not_evaluated_where_others_exclude_them(bench: Bench) -> None:
    t = bench.table("t")
    a, b = column(t, "a"), column(t, "b")
    safe = call("<>", b, constant(0))
    fails = call(">", ratio(a, b), constant(0))
    assert len(bench.run(pick(tree.Filter(t, every(safe, fails)), "a"))) == 4
    assert len(bench.run(pick(tree.Filter(tree.Filter(t, safe), fails), "a"))) == 4
    inner = project(tree.Filter(t, safe), q=ratio(a, b))
    assert len(bench.run(tree.Filter(inner, call(">", column(inner, "q"), constant(0))))) == 4
    zero = call("=", b, constant(0))
    assert bench.run(project(t, a=a, x=some(zero, fails), y=every(safe, fails))) == [
        (n, True if n % 3 == 0 else n // (n % 3) > 0, n % 3 != 0) for n in range(6)
    ]
    cases = tree.Case(INT, ((zero, constant(-1)), (call("=", ratio(a, b), constant(1)), ratio(a, b))), constant(7))
    assert bench.run(project(t, a=a, x=cases)) == [(0, -1), (1, 1), (2, 1), (3, -1), (4, 7), (5, 7)]
    first = tree.Coalesce(INT, (b, ratio(constant(1), b)))
    assert bench.run(project(t, x=first)) == [(0,), (0,), (1,), (1,), (2,), (2,)]
    for condition in (fails, every(fails, safe), some(fails, safe)):
        with pytest.raises(errors.DivisionByZero):
            bench.run(pick(tree.Filter(t, condition), "a"))


def test_junctions_are_unknown_as_in_sql(bench: Bench) -> None:
    values = (True, False, None)
    rows = tuple((constant(x, BOOLEAN), constant(y, BOOLEAN)) for x in values for y in values)
    listed = tree.Values(rows, (tree.Column("x", BOOLEAN), tree.Column("y", BOOLEAN)))
    x, y = column(listed, "x"), column(listed, "y")
    may_fail = coerced_by_python(y)
    outcome = bench.run(
        project(listed, a=every(x, y), b=every(x, may_fail), c=some(x, y), d=some(x, may_fail)), sort=False
    )
    assert all((a, c) == (b, d) for a, b, c, d in outcome)
    assert [row[0] for row in outcome] == [True, False, None, False, False, False, None, False, None]
    assert [row[2] for row in outcome] == [True, True, True, True, False, None, True, None, None]


def test_decimals_of_a_choice_have_all_its_digits(bench: Bench) -> None:
    narrow, wide = ColumnType("DECIMAL", 18, 2), ColumnType("DECIMAL", 38, 2)
    large = constant(Decimal("9999999999999999.99"), narrow)
    unknown = tree.Parameter(BOOLEAN, 0, BOOLEAN)
    for choice in (tree.Case(wide, ((unknown, large),), large), tree.Coalesce(wide, (large, large))):
        source = project(tree.One(), x=choice)
        x = column(source, "x")
        assert bench.run(project(source, y=call("+", x, x)), True) == [(Decimal("19999999999999999.98"),)]


def test_rows_beyond_a_limit_do_not_fail(bench: Bench) -> None:
    t = bench.table("t")
    ordered = tree.Sort(t, (tree.SortKey(column(t, "b"), True, True),))
    quotients = project(ordered, q=ratio(column(t, "a"), column(t, "b")))
    assert len(bench.run(tree.Limit(quotients, constant(4, BIGINT)))) == 4
    with pytest.raises(errors.DivisionByZero):
        bench.run(tree.Limit(quotients, constant(5, BIGINT)))


# ---- operations that Python does


def coerced_by_python(one: tree.Expression) -> tree.Call:
    return tree.Call(one.type, Operation("same", (one.type,), one.type, _same), (one,))


def _same(value: Any) -> Any:
    return value


def _refuse(value: Any) -> Any:
    raise errors.UndefinedResult(f"no {value}:\n'it' is \"so\"")


def _fail(value: Any) -> Any:
    raise RuntimeError(f"a mistake: {value}")


@pytest.mark.parametrize(
    ("value", "type_"),
    [
        (5, INT),
        (-(2**63), BIGINT),
        (Decimal("12345678901234567890123456789012345.678"), ColumnType("DECIMAL", 38, 3)),
        (float("nan"), DOUBLE),
        (float("-inf"), DOUBLE),
        (-0.0, DOUBLE),
        (5e-324, DOUBLE),
        ("é \U0001f600", TEXT),
        (b"\x00\xff", ColumnType("VARBINARY", 32000)),
        (date(1, 1, 1), DATE),
        (datetime(9999, 12, 31, 23, 59, 59, 999999), TIMESTAMP),
        (False, BOOLEAN),
        (None, DATE),
        (None, DOUBLE),
        (None, INTERVAL),
    ],
)
def test_values_pass_through_python_unchanged(bench: Bench, value: Any, type_: ColumnType) -> None:
    passed = coerced_by_python(constant(value, type_))
    if type_ == INTERVAL:
        passed = call("is_null", passed)
        value = True
    assert repr(bench.run(project(tree.One(), x=passed))) == repr([(value,)])


def test_intervals_keep_their_months(bench: Bench) -> None:
    interval = operations.read_literal("1 year 2 months -3 days 04:05:06.000007", INTERVAL)
    passed = coerced_by_python(constant(interval, INTERVAL))
    same = call("=", passed, constant(interval, INTERVAL))
    moved = call("+", constant(datetime(2024, 1, 31), TIMESTAMP), passed)
    plain = call("+", constant(datetime(2024, 1, 31), TIMESTAMP), constant(interval, INTERVAL))
    ((equal, x, y),) = bench.run(project(tree.One(), e=same, x=moved, y=plain))
    assert equal
    assert x == y == datetime(2025, 3, 28, 4, 5, 6, 7)


def test_errors_of_python_are_those_that_it_raises(bench: Bench) -> None:
    t = bench.table("t")
    refused = tree.Call(INT, Operation("refuse", (INT,), INT, _refuse), (column(t, "a"),))
    with pytest.raises(errors.UndefinedResult, match="no 0:\n'it' is \"so\""):
        bench.run(project(t, x=refused))
    failed = tree.Call(INT, Operation("fail", (INT,), INT, _fail), (column(t, "a"),))
    with pytest.raises(errors.InternalError, match="a mistake"):
        bench.run(project(t, x=failed))


def test_functions_that_take_null_get_it(bench: Bench) -> None:
    u = bench.table("u")
    operation = Operation("shown", (INT, TEXT), TEXT, "f'{{{0}}} {{{1}}}'", strict=False)
    shown = tree.Call(TEXT, operation, (column(u, "k"), column(u, "v")))
    assert bench.run(project(u, x=shown)) == [("1 one",), ("2 two",), ("2 zwei",), ("9 None",), ("None none",)]


# ---- paths, and what the rows executor works out


def path_of(bench: Bench, table: tree.Table, *spans: Span, backwards: bool = False) -> Access:
    definition = bench.connection.table("t")
    (index,) = definition.indexes
    return Access(table, Path(index, (definition.columns[0],), spans, backwards=backwards))


def test_only_rows_of_the_path_are_read(bench: Bench) -> None:
    t = bench.table("t")
    number = tree.Parameter(ColumnType("DECIMAL", 38, 1), 0, ColumnType("DECIMAL", 38, 1))
    spans = (Span((number,)), Span(low=KeyBound(constant(3)), high=KeyBound(constant(5), True)), Span((constant(4),)))
    access = path_of(bench, t, *spans)
    assert bench.run(pick(access, "a"), Decimal("1.0")) == [(1,), (3,), (4,)]
    assert bench.run(pick(access, "a"), Decimal("1.5")) == [(3,), (4,)]
    shown = project(access, a=column(t, "a"), r=tree.Reference(TEXT, t.row_id))
    (one, *_) = bench.run(shown, Decimal("1.0"))
    row_ids = (constant(one[1], TEXT), constant("none", TEXT), constant(one[1], TEXT))
    assert bench.run(pick(Access(t, Path(row_ids=row_ids)), "s", "a")) == [("s1", 1)]
    assert bench.run(pick(path_of(bench, t, Span((constant(None),))), "a")) == []
    assert bench.run(group(path_of(bench, t, Span()), {}, {"n": aggregate("count")})) == [(6,)]


def test_what_the_rows_executor_works_out_is_joined(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    chosen = tree.Filter(u, call("=", column(u, "k"), constant(2)))
    found = Materialized(chosen, (u.stored[1], u.stored[0], u.stored[3]))
    join = tree.Join("inner", t, found, call("=", column(t, "a"), column(found, "k")))
    rows = bench.run(pick(join, "s", "v", "day"))
    assert rows == [("s2", "two", date(2024, 1, 2)), ("s2", "zwei", date(2024, 1, 2))]
    assert bench.run(group(found, {}, {"n": aggregate("count")})) == [(2,)]
    assert bench.run(group(Materialized(chosen, ()), {}, {"n": aggregate("count")})) == [(2,)]


def test_a_profile_tells_what_was_read_and_done(bench: Bench) -> None:
    t, u = bench.table("t"), bench.table("u")
    access = path_of(bench, t, Span(low=KeyBound(constant(2))))
    join = tree.Join("inner", access, u, call("=", column(t, "b"), column(u, "k")))
    written = write(group(join, {"b": column(t, "b")}, {"n": aggregate("count")}))
    with bench.connection.one_snapshot(None) as reading:
        outcome = profile(written, Run(bench.connection, reading, (), NOW))
    assert outcome.rows == 2
    assert outcome.read == ((access, 4), (u, 5))
    assert any("inner hash join: 5 rows" in line for line in outcome.lines), outcome.lines


def test_system_views(bench: Bench) -> None:
    listed = bench.connection.system_view("sys_tables")
    names = [str(name) for name in listed.schema.names]
    columns = listing_columns(bench.connection, "sys_tables")
    listing = tree.Listing("sys_tables", tuple(tree.Column(c.name, within(c.type)) for c in columns))
    rows = bench.run(pick(listing, *names[1::-1]))
    assert len(rows) == len(listed)


# ---- the end


def slow_sum() -> tree.Relation:
    def slow(value: int) -> int:
        time.sleep(0.001)
        return value

    series = tree.Series(constant(1), constant(10_000_000), constant(1), tree.Column("g", INT))
    slowly = tree.Call(INT, Operation("slow", (INT,), INT, slow), (column(series, "g"),))
    return group(series, {}, {"n": aggregate("sum", slowly)})


def test_a_query_is_interrupted_while_python_computes(bench: Bench) -> None:
    executions: list[Any] = []
    run = Run(bench.connection, None, (), NOW)  # type: ignore[arg-type]
    with ThreadPoolExecutor(1) as pool:
        future = pool.submit(run_written, write(slow_sum()), run, executions.append)
        time.sleep(0.3)
        assert not future.done()
        executions[0].interrupt()
        with pytest.raises(errors.StatementInterrupted):
            future.result(timeout=30)


def test_a_signal_ends_a_query_of_the_main_thread(bench: Bench) -> None:
    """DuckDB hears of none while it is at one piece of work, such as a join of all rows with all."""
    many = [tree.Series(constant(1), constant(1_000_000), constant(1), tree.Column("g", INT)) for _ in range(3)]
    pairs = tree.Join("inner", tree.Join("inner", many[0], many[1]), many[2])
    total = call("+", call("+", *(column(one, "g") for one in many[:2])), column(many[2], "g"))
    endless = group(tree.Filter(pairs, call("<", total, constant(0))), {}, {"n": aggregate("count")})
    for relation in (endless, slow_sum()):
        strike = threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT))
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            run_written(write(relation), Run(bench.connection, None, (), NOW), lambda _, strike=strike: strike.start())  # type: ignore[arg-type]
        assert time.monotonic() - began < 30
    assert bench.run(pick(bench.table("t"), "a"))


def test_threads_register_operations_at_the_same_time(bench: Bench) -> None:
    def ask(number: int) -> list[Any]:
        own = Operation(f"own{number % 5}", (INT,), INT, _same)
        value = tree.Call(INT, own, (constant(number),))
        written = write(project(tree.One(), x=value))
        with run_written(written, Run(bench.connection, None, (), NOW)) as answer:  # type: ignore[arg-type]
            return [row for batch in answer.reader for row in batch.column(0).to_pylist()]

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(ask, range(100))) == [[n] for n in range(100)]


START = """
import os, sys, threading
from datetime import UTC, datetime
from gmdb.sql import tree
from gmdb.sql.duck.text import run_written, write
from gmdb.sql.operations.registry import Operation
from gmdb.sql.run import Run
from gmdb.sql.types import INT

def same(value):
    return value

def answer(count):
    series = tree.Series(*(tree.Constant(INT, n) for n in (1, count, 1)), tree.Column("g", INT))
    value = tree.Call(INT, Operation("same", (INT,), INT, same), (tree.Reference(INT, series.column),))
    written = write(tree.Project(series, ((tree.Column("x", INT), value),)))
    return run_written(written, Run(None, None, (), datetime.now(UTC)))

"""
ENDS = {
    "an answer": "held = answer(5)",
    "an answer that was read": "held = answer(5); held.reader.read_all()",
    "an answer half read": "held = answer(10**8); held.reader.read_next_batch()",
    "a thread that is reading": (
        "threading.Thread(target=lambda: answer(10**8).reader.read_all(), daemon=True).start(); answer(5).close()"
    ),
    "a child that asks": (
        "answer(5).reader.read_all()\n"
        "pid = os.fork()\n"
        "assert answer(3).reader.read_all().num_rows == 3\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0"
    ),
    "a query when all is stopped": (
        "import atexit\natexit.register(lambda: print(answer(3).reader.read_all().num_rows))\nheld = answer(5)"
    ),
}


def test_programs_that_python_computes_for_end_without_complaints(tmp_path: PathOfFile) -> None:
    outcomes = outcomes_of(tmp_path, {name: START + program for name, program in ENDS.items()})
    printed = outcomes.pop("a query when all is stopped")
    assert printed == [0, "3\n", ""]
    assert {name: said for name, said in outcomes.items() if said != [0, "", ""]} == {}
