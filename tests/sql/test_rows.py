"""Plans that run row by row give what the tree says, by a snapshot and at once."""

from __future__ import annotations

import gc
import math
import threading
from collections.abc import Iterator, Sequence
from datetime import date, datetime
from decimal import Decimal
from itertools import product
from operator import itemgetter
from pathlib import Path as FilePath
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    DivisionByZero,
    InterfaceError,
    StatementInterrupted,
    SubqueryTooManyRows,
    UnsupportedExpression,
    ValueOutOfRange,
)
from gmdb.format.address import RowId
from gmdb.format.codec import LEARNED_AFTER, RowCodec
from gmdb.format.columns import Column as StoredColumn
from gmdb.format.columns import ColumnType
from gmdb.sql import operations, rows, tree
from gmdb.sql.plan.paths import Access, Bound, Path, Span
from gmdb.sql.rows.expressions import compile_expression, compile_row
from gmdb.sql.run import Run
from gmdb.sql.tree import Call, Column, Constant, Expression, Parameter, Reference, Relation, SortKey
from gmdb.sql.types import BIGINT, BOOLEAN, BYTEA, DATE, DOUBLE, INT, TEXT, within
from gmdb.tables.arrow.scan import Reading

NOW = datetime(2024, 2, 29, 12, 30)
Row = tuple[Any, ...]


def call(name: str, *arguments: Expression) -> Call:
    types = [one.type for one in arguments]
    operation = operations.operator(name, types[0], types[1]) if not name.isidentifier() else None
    operation = operation or operations.resolve(name, types)
    assert operation is not None
    return Call(operation.gives, operation, arguments)


def constant(value: Any, type_: ColumnType = INT) -> Constant:
    return Constant(type_, value)


def ref(column: Column) -> Reference:
    return Reference(column.type, column)


def both(*parts: Expression) -> tree.Junction:
    return tree.Junction(BOOLEAN, False, parts)


def either(*parts: Expression) -> tree.Junction:
    return tree.Junction(BOOLEAN, True, parts)


def aggregate(name: str, *arguments: Expression, **more: Any) -> tuple[Column, tree.Aggregate]:
    aggregation = operations.aggregation(name, [one.type for one in arguments], False)
    assert aggregation is not None
    return Column(name, aggregation.gives), tree.Aggregate(aggregation.gives, aggregation, arguments, **more)


def values(*content: Sequence[Any], types: Sequence[ColumnType] = (INT, INT)) -> tree.Values:
    columns = tuple(Column(f"v{n}", type_) for n, type_ in enumerate(types))
    return tree.Values(tuple(tuple(map(Constant, types, row)) for row in content), columns)


def project(source: Relation, *expressions: Expression) -> tree.Project:
    return tree.Project(source, tuple((Column("x", one.type), one) for one in expressions))


def series(start: int | None, stop: int | None, step: int | None) -> tree.Series:
    first, last, by = (constant(one, BIGINT) for one in (start, stop, step))
    return tree.Series(first, last, by, Column("n", BIGINT))


class Tables:
    """Tables ``t`` (i, g, s, d), with i unique and g and (g, d) indexed, and ``empty`` (i)."""

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        connection.create_table("t", {"i": "INT NOT NULL", "g": "INT", "s": "VARCHAR(20)", "d": "DOUBLE"})
        connection.create_table("empty", {"i": "INT NOT NULL"})
        connection.create_index("t_i", "t", ["i"], unique=True)
        connection.create_index("t_g", "t", ["g"])
        connection.create_index("t_gd", "t", ["g", "d"])
        self.rows: list[Row] = [(n, None if n % 7 == 0 else n % 5, f"s{n % 3}", n / 4) for n in range(100)]
        heap = connection.heap("t")
        self.row_ids = [heap.insert(row) for row in self.rows]
        connection.commit()

    def table(self, name: str = "t") -> tree.Table:
        definition = self.connection.table(name)
        stored = tuple(Column(one.name, one.type, one.nullable) for one in definition.columns)
        return tree.Table(definition, stored, Column("rowid", ColumnType("VARCHAR", 40), False), name)

    def run(self, relation: Relation, parameters: Any = (), **options: Any) -> list[Row]:
        """The rows; the same at once, if that can be."""
        assert rows.supports(relation)
        program = rows.Program(relation, **options)
        quick = program.quick(self.connection)
        at_once = None if quick is None else quick.run(parameters, NOW)
        with self.connection.session.cursor() as (snapshot, form):
            result = list(program.rows(Run(self.connection, Reading(form, snapshot), parameters, NOW)))
        assert at_once is None or at_once == result
        return result


def access(table: tree.Table, index: str, *spans: Span, **more: Any) -> Access:
    definition = table.definition.index(index)
    columns = tuple(table.definition.columns[n] for n in definition.positions)
    return Access(table, Path(definition, columns, spans, **more))


def key(table: tree.Table, index: str, *equal: Expression) -> Access:
    return access(table, index, Span(equal))


@pytest.fixture
def tables(tmp_path: FilePath) -> Iterator[Tables]:
    with gmdb.connect(tmp_path / "a.gmdb") as connection:
        yield Tables(connection)


# ---- expressions

A, B = Column("a", INT), Column("b", INT, False)
a, b = ref(A), ref(B)


def test_null_makes_an_operation_null_and_three_valued_logic_holds() -> None:
    truths = {False: constant(False, BOOLEAN), True: constant(True, BOOLEAN), None: constant(None, BOOLEAN)}
    column = Column("c", BOOLEAN)
    assert compile_expression(call("+", a, b), [A, B])((None, 2)) is None
    for left, right in product(truths, repeat=2):
        conjunction = left is not False and right is not False and (None if None in (left, right) else True)
        disjunction = left is True or right is True or (None if None in (left, right) else False)
        assert compile_expression(both(ref(column), truths[right]), [column])((left,)) is conjunction
        assert compile_expression(either(ref(column), truths[right]), [column])((left,)) is disjunction


def test_what_is_excluded_is_not_evaluated() -> None:
    quotient = call("/", b, a)
    is_large = call(">", quotient, constant(1))
    is_zero = call("=", a, constant(0))
    some = compile_row(
        [
            tree.Case(INT, ((is_zero, a), (is_large, b)), quotient),
            tree.Coalesce(INT, (a, quotient)),
            both(call("<>", a, constant(0)), is_large),
            either(is_zero, is_large),
        ],
        [A, B],
    )
    assert some((0, 8)) == (0, 0, False, True)
    assert some((2, 8)) == (8, 2, True, True)
    assert some((8, 8)) == (1, 8, False, False)
    assert some((None, 8)) == (None, None, None, None)
    with pytest.raises(DivisionByZero):
        compile_expression(quotient, [A, B])((0, 8))


def test_parameters_are_read_once_as_the_type_that_they_have_here() -> None:
    when = Parameter(DATE, "day")
    number = Parameter(INT, "number", INT)
    some = compile_row([when, call("+", number, number), tree.Now(ColumnType("TIMESTAMP"))], [])
    assert some((), {"day": "2024-02-29", "number": 4}, NOW) == (date(2024, 2, 29), 8, NOW)
    assert some((), {"day": None, "number": None}, NOW) == (None, None, NOW)
    with pytest.raises(InterfaceError, match="needs the parameters :day, :number"):
        some((), {"day": None}, NOW)
    with pytest.raises(InterfaceError, match="current time"):
        some((), {"day": None, "number": 1})


def test_expressions_may_be_long_and_are_refused_if_they_are_too_deep() -> None:
    total: Expression = a
    for _ in range(200):
        total = call("+", total, constant(1))
    assert compile_expression(total, [A])((5,)) == 205
    nested: Expression = b
    for _ in range(150):
        nested = tree.Case(INT, ((call("=", b, constant(1)), a),), nested)
    with pytest.raises(UnsupportedExpression, match="too deeply"):
        compile_expression(nested, [A, B])


# ---- tables and keys


def test_rows_by_a_key_are_found_whatever_the_type_of_the_value(tables: Tables) -> None:
    table = tables.table()
    for value, type_, expected in (
        (5, INT, [5]),
        (5, BIGINT, [5]),
        (2**40, BIGINT, []),
        (5.0, DOUBLE, [5]),
        (5.5, DOUBLE, []),
        (None, INT, []),
    ):
        relation = project(key(table, "t_i", constant(value, type_)), ref(table.stored[0]))
        assert tables.run(relation) == [(n,) for n in expected]
    relation = project(key(table, "t_i", Parameter(INT, 0, INT)), *map(ref, table.stored))
    assert tables.run(relation, (17,)) == [tables.rows[17]]
    assert tables.run(relation, (170,)) == tables.run(relation, (None,)) == []


def test_ranges_go_both_ways_and_leave_their_ends_out(tables: Tables) -> None:
    table = tables.table()
    low, high = Parameter(INT, 0, INT), Parameter(INT, 1, INT)
    for low_open, high_open, backwards in product((False, True), repeat=3):
        span = Span((), Bound(low, low_open), Bound(high, high_open))
        relation = project(access(table, "t_i", span, ordered=True, backwards=backwards), ref(table.stored[0]))
        expected = list(range(20 + low_open, 51 - high_open))
        assert tables.run(relation, (20, 50)) == [(n,) for n in (expected[::-1] if backwards else expected)]
        assert tables.run(relation, (50, 20)) == tables.run(relation, (None, 50)) == []
    for bounds, expected in (
        (Span(), list(range(100))),
        (Span((), Bound(constant(95))), list(range(95, 100))),
        (Span((), None, Bound(constant(3.5, DOUBLE))), [0, 1, 2, 3]),
    ):
        assert tables.run(project(access(table, "t_i", bounds), ref(table.stored[0]))) == [(n,) for n in expected]


def test_a_range_behind_equal_columns_and_several_ranges(tables: Tables) -> None:
    table = tables.table()
    i, g, _, d = table.stored
    span = Span((constant(2),), Bound(constant(5.0, DOUBLE)), Bound(constant(10.0, DOUBLE), True))
    expected = [row[0] for row in tables.rows if row[1] == 2 and 5 <= row[3] < 10]
    assert [row[0] for row in tables.run(project(access(table, "t_gd", span), ref(i), ref(d)))] == expected
    several = [Span((constant(value),)) for value in (3, 1, 3)]
    expected = [row[0] for wanted in (3, 1) for row in tables.rows if row[1] == wanted]
    assert [row[0] for row in tables.run(project(access(table, "t_g", *several), ref(i), ref(g)))] == expected


def test_all_rows_of_a_table_and_row_ids(tables: Tables) -> None:
    table = tables.table()
    i, _, s, _ = table.stored
    assert tables.run(project(table, ref(s), ref(i))) == [(row[2], row[0]) for row in tables.rows]
    assert tables.run(project(tables.table("empty"), constant(1))) == []
    relation = project(table, ref(table.row_id), call("||", ref(table.row_id), ref(s)))
    text = str(tables.row_ids[0])
    assert tables.run(relation)[0] == (text, text + "s0")
    assert tables.run(relation, row_ids=True)[0] == (tables.row_ids[0], text + "s0")
    given = tuple(constant(str(tables.row_ids[n]), TEXT) for n in (8, 3, 8))
    some = Access(table, Path(row_ids=(*given, constant("nothing", TEXT), constant(str(RowId(1, 1)), TEXT))))
    assert tables.run(project(some, ref(i))) == [(8,), (3,)]
    by_key = project(key(table, "t_i", constant(4)), ref(table.row_id), ref(i))
    assert tables.run(by_key) == [(str(tables.row_ids[4]), 4)]
    assert tables.run(by_key, row_ids=True) == [(tables.row_ids[4], 4)]


def test_of_a_row_only_the_wanted_columns_are_decoded() -> None:
    types = [INT, ColumnType("VARCHAR", 9), DOUBLE, ColumnType("DECIMAL", 20, 2), BYTEA, DATE, ColumnType("CHAR", 3)]
    columns = [StoredColumn(f"c{n}", type_) for n, type_ in enumerate(types)]
    row = (7, "äö", 1.5, Decimal("12.50"), b"\0\1", date(2024, 2, 29), "a  ")
    for null in (None, 1, 4):
        content = tuple(None if n == null else value for n, value in enumerate(row))
        encoded = RowCodec(columns).encode(content)
        for wanted in product((False, True), repeat=len(types)):
            decode = RowCodec(columns, wanted=[n for n, is_wanted in enumerate(wanted) if is_wanted]).decode
            for _ in range(LEARNED_AFTER):  # in general, to learn what rows are like
                decode(encoded)
            expected = tuple(value if is_wanted else None for value, is_wanted in zip(content, wanted, strict=True))
            assert decode(encoded) == expected


def test_large_objects_and_hash_indexes_are_read(tmp_path: FilePath) -> None:
    with gmdb.connect(tmp_path / "b.gmdb") as connection:
        connection.create_table("docs", {"i": "INT NOT NULL", "body": "CLOB", "raw": "BLOB"})
        connection.create_index("docs_i", "docs", ["i"], unique=True, using="hash")
        contents = [(n, "long" * 10_000 * n, b"x" * n) for n in range(4)]
        for content in contents:
            connection.heap("docs").insert(content)
        definition = connection.table("docs")
        stored = tuple(Column(one.name, within(one.type), one.nullable) for one in definition.columns)
        table = tree.Table(definition, stored, Column("rowid", ColumnType("VARCHAR", 40), False))
        index = definition.index("docs_i")
        by_key = Access(table, Path(index, definition.columns[:1], (Span((constant(2),)),)))
        relations = (project(table, *map(ref, stored)), project(by_key, *map(ref, stored)))
        programs = [rows.Program(relation) for relation in relations]
        whole, at_once = (program.quick(connection) for program in programs)
        assert whole is None
        assert at_once is not None
        assert at_once.run(()) is None  # what is on pages is read by a snapshot that is held meanwhile
        with connection.session.cursor() as (snapshot, form):
            run = Run(connection, Reading(form, snapshot), (), NOW)
            assert [list(program.rows(run)) for program in programs] == [contents, contents[2:3]]


# ---- joins


def brute_join(kind: str, left: list[Row], right: list[Row], test: Any) -> list[Row]:
    found, matched = [], set()
    for one in left:
        matches = [n for n, other in enumerate(right) if test(one, other) is True]
        matched.update(matches)
        if kind in ("semi", "anti"):
            found += [one] if bool(matches) == (kind == "semi") else []
            continue
        found += [(*one, *right[n]) for n in matches]
        if not matches and kind in ("left", "full"):
            found.append((*one, *[None] * 2))
    if kind in ("right", "full"):
        found += [(*[None] * 2, *other) for n, other in enumerate(right) if n not in matched]
    return found


LEFT: list[Row] = [(1, 1), (2, None), (3, 3), (1, 5), (None, 7), (4, 4)]
RIGHT: list[Row] = [(1, 2), (1, 9), (3, 1), (None, 6), (8, 8)]


@pytest.mark.parametrize("kind", ["inner", "left", "right", "full", "semi", "anti"])
@pytest.mark.parametrize("condition", ["equal", "equal and less", "less", "none"])
def test_joins_are_what_their_conditions_say(tables: Tables, kind: str, condition: str) -> None:
    left, right = values(*LEFT), values(*RIGHT)
    keys = [ref(left.columns[0]), ref(right.columns[0])]
    numbers = [ref(left.columns[1]), ref(right.columns[1])]
    parts = {
        "equal": [call("=", *keys)],
        "equal and less": [call("<", *numbers), call("=", *reversed(keys))],
        "less": [call("<", *numbers)],
        "none": [],
    }[condition]

    def test(one: Row, other: Row) -> bool:
        equal = one[0] is not None and one[0] == other[0]
        less = None not in (one[1], other[1]) and one[1] < other[1]
        return ("equal" not in condition or equal) and ("less" not in condition or less)

    expected = brute_join(kind, LEFT, RIGHT, test)
    join = tree.Join(kind, left, right, tree.conjunction(parts))
    given = tables.run(project(join, *map(ref, join.columns)))
    assert sorted(given, key=str) == sorted(expected, key=str)
    if kind in ("right", "full"):
        return
    assert given == expected  # the left side's order
    whole = tree.conjunction(parts)
    lateral = tree.Join(kind, left, right if whole is None else tree.Filter(right, whole), None, True)
    assert tables.run(project(lateral, *map(ref, lateral.columns))) == expected
    lateral = tree.Join(kind, left, right, whole, True)
    assert tables.run(project(lateral, *map(ref, lateral.columns))) == expected


def test_tables_are_joined_by_keys_of_the_row_at_hand(tables: Tables) -> None:
    first, second, third = tables.table(), tables.table(), tables.table()
    start = key(first, "t_i", Parameter(INT, 0, INT))
    to_second = tree.Join("inner", start, key(second, "t_g", ref(first.stored[1])), None, True)
    to_third = tree.Join(
        "left", to_second, key(third, "t_i", call("+", ref(second.stored[0]), constant(5))), None, True
    )
    relation = project(to_third, ref(first.stored[0]), ref(second.stored[0]), ref(third.stored[2]))
    expected = [(17, row[0], f"s{(row[0] + 5) % 3}" if row[0] < 95 else None) for row in tables.rows if row[1] == 2]
    assert tables.run(relation, (17,)) == expected
    assert tables.run(relation, (7,)) == []


def test_keys_are_equal_as_their_types_are_compared(tables: Tables) -> None:
    nan = float("nan")
    numbers = values((nan,), (0.0,), (1.5,), (None,), types=[DOUBLE])
    others = values((math.nan,), (-0.0,), (None,), types=[DOUBLE])
    join = tree.Join("inner", numbers, others, call("=", ref(numbers.columns[0]), ref(others.columns[0])))
    assert str(tables.run(project(join, ref(numbers.columns[0])))) == "[(nan,), (0.0,)]"
    short, long = ColumnType("CHAR", 2), ColumnType("CHAR", 4)
    some, more = values(("a ",), ("bb",), types=[short]), values(("a   ",), ("bbb ",), types=[long])
    join = tree.Join("inner", some, more, call("=", ref(some.columns[0]), ref(more.columns[0])))
    assert tables.run(project(join, ref(some.columns[0]))) == [("a ",)]
    distinct = tree.Distinct(values((nan,), (math.nan,), (-0.0,), (0.0,), (None,), (None,), types=[DOUBLE]))
    assert str(tables.run(distinct)) == "[(nan,), (-0.0,), (None,)]"


def test_many_tables_are_joined_although_loops_nest_only_so_deep(tables: Tables) -> None:
    relation: Relation = values((1, 1), (2, 2))
    first = relation.columns[0]
    for _ in range(40):
        other = values((1, 1), (2, 2))
        last = relation.columns[-1]
        equal = tree.Filter(other, call("=", ref(last), ref(other.columns[0])))
        relation = tree.Join("inner", relation, equal, None, True)
    assert tables.run(project(relation, ref(first), ref(relation.columns[-1]))) == [(1, 1), (2, 2)]


# ---- groups, order, limits


def test_groups_keep_what_their_aggregates_need(tables: Tables) -> None:
    table = tables.table()
    i, g, s, _ = map(ref, table.stored)
    is_odd = call("=", call("%", i, constant(2)), constant(1))
    group = tree.Group(
        table,
        ((Column("g", INT), g),),
        (
            aggregate("count"),
            aggregate("count", i, condition=is_odd),
            aggregate("sum", i),
            aggregate("count", s, distinct=True),
            aggregate("max", s),
            aggregate("string_agg", s, constant(",", TEXT), distinct=True, order=(SortKey(s, True),)),
        ),
    )
    expected = []
    for value in dict.fromkeys(row[1] for row in tables.rows):
        own = [row for row in tables.rows if row[1] == value]
        total, texts = sum(row[0] for row in own), {row[2] for row in own}
        odd = sum(row[0] % 2 for row in own)
        expected.append((value, len(own), odd, total, len(texts), max(texts), ",".join(sorted(texts, reverse=True))))
    assert tables.run(group) == expected


def test_without_keys_there_is_one_group_also_of_nothing(tables: Tables) -> None:
    table = tables.table("empty")
    i = ref(table.stored[0])
    alone = tree.Group(table, (), (aggregate("count"), aggregate("max", i), aggregate("sum", i)))
    assert tables.run(alone) == [(0, None, None)]
    assert tables.run(tree.Group(table, ((Column("i", INT), i),), (aggregate("count"),))) == []
    large = tables.table()
    last = access(large, "t_i", Span(), ordered=True, backwards=True)
    first_row = tree.Limit(last, constant(1, BIGINT))
    assert tables.run(tree.Group(first_row, (), (aggregate("max", ref(large.stored[0])),))) == [(99,)]


def test_rows_are_sorted_by_several_keys_with_nulls_where_they_are_wanted(tables: Tables) -> None:
    content = [(2, 1), (None, 3), (1, None), (2, None), (None, 1), (1, 5)]
    for directions in product((False, True), repeat=4):
        source = values(*content)
        keys = tuple(SortKey(ref(column), *directions[2 * n : 2 * n + 2]) for n, column in enumerate(source.columns))
        expected = list(content)
        for n in (1, 0):
            descending, first = directions[2 * n : 2 * n + 2]
            known = sorted((row for row in expected if row[n] is not None), key=itemgetter(n), reverse=descending)
            nulls = [row for row in expected if row[n] is None]
            expected = nulls + known if first else known + nulls
        assert tables.run(tree.Sort(source, keys)) == expected
    numbers = values((math.nan,), (1.0,), (math.inf,), (None,), types=[DOUBLE])
    assert (
        str(tables.run(tree.Sort(numbers, (SortKey(ref(numbers.columns[0])),)))) == "[(1.0,), (inf,), (nan,), (None,)]"
    )


def test_limits_end_what_they_read_from(tables: Tables) -> None:
    table = tables.table()
    i = ref(table.stored[0])

    def limited(source: Relation, count: int | None, offset: int | None = None) -> tree.Limit:
        return tree.Limit(source, constant(count, BIGINT), None if offset is None else constant(offset, BIGINT))

    all_rows = project(access(table, "t_i", Span()), i)
    assert tables.run(limited(all_rows, 3)) == [(0,), (1,), (2,)]
    assert tables.run(limited(all_rows, 2, 97)) == [(97,), (98,)]
    assert tables.run(limited(all_rows, None, 98)) == [(98,), (99,)]
    assert tables.run(limited(all_rows, 0)) == []
    assert tables.run(limited(project(key(table, "t_i", constant(3)), i), 1)) == [(3,)]
    failing = project(table, call("/", constant(1), call("-", constant(2), i)))
    assert tables.run(limited(failing, 2)) == [(0,), (1,)]
    with pytest.raises(ValueOutOfRange, match="LIMIT must not be negative"):
        tables.run(limited(all_rows, -1))
    for few in (limited(all_rows, 2), limited(project(key(table, "t_i", constant(3)), i), 2), limited(all_rows, 3, 1)):
        other = values((1, 1), (2, 2))
        for join in (tree.Join("inner", few, other), tree.Join("inner", other, few, None, True)):
            count = len(tables.run(few)) * 2
            assert len(tables.run(project(join, ref(join.columns[0])))) == count


def test_rows_are_numbered_as_they_come(tables: Tables) -> None:
    number = Column("rownum", BIGINT)
    source = values((5, 0), (6, 0), (7, 0))
    numbered = tree.Number(source, number)
    assert tables.run(tree.Filter(numbered, call(">", ref(source.columns[0]), constant(5)))) == [(6, 0, 2), (7, 0, 3)]


@pytest.mark.parametrize("every", [False, True])
def test_set_operations_count_rows_as_they_should(tables: Tables, every: bool) -> None:
    left: list[Row] = [(1, None), (1, None), (1, None), (2, 2), (3, 3), (2, 2)]
    right: list[Row] = [(1, None), (1, None), (3, 3), (3, 3), (4, 4)]
    expected: dict[tuple[str, bool], list[Row]] = {
        ("union", True): left + right,
        ("union", False): [(1, None), (2, 2), (3, 3), (4, 4)],
        ("intersect", True): [(1, None), (1, None), (3, 3)],
        ("intersect", False): [(1, None), (3, 3)],
        ("except", True): [(1, None), (2, 2), (2, 2)],
        ("except", False): [(2, 2)],
    }
    for kind in ("union", "intersect", "except"):
        sides, outputs = (values(*left), values(*right)), (Column("x", INT), Column("y", INT))
        operation = tree.SetOperation(kind, every, *sides, outputs)
        assert tables.run(operation) == expected[kind, every]
        assert tables.run(project(operation, ref(outputs[1]))) == [row[1:] for row in expected[kind, every]]


def test_a_series_goes_to_its_end(tables: Tables) -> None:
    cases: list[tuple[tree.Series, list[int]]] = [
        (series(1, 4, 1), [1, 2, 3, 4]),
        (series(5, 0, -2), [5, 3, 1]),
        (series(1, None, 1), []),
        (series(3, 1, 1), []),
    ]
    for relation, expected in cases:
        assert tables.run(relation) == [(n,) for n in expected]
    with pytest.raises(ValueOutOfRange, match="zero"):
        tables.run(series(1, 2, 0))


def test_shared_queries_are_run_once(tables: Tables) -> None:
    source = values((1, 2), (3, 4))
    shared = tree.Shared("w", source, columns=source.columns)
    readings = [tree.Reading([shared], (Column("p", INT), Column("q", INT))) for _ in range(2)]
    join = tree.Join("inner", readings[0], readings[1])
    expected = [(p, q) for (p, _), (_, q) in product([(1, 2), (3, 4)], repeat=2)]
    body = project(join, ref(readings[0].columns[0]), ref(readings[1].columns[1]))
    assert tables.run(tree.With((shared,), body)) == expected


def test_listings_are_read(tables: Tables) -> None:
    listing = tree.Listing("sys_tables", tuple(Column(n, t) for n, t in _columns_of_sys_tables(tables.connection)))
    names = tables.run(project(listing, ref(next(c for c in listing.columns if c.name == "name"))))
    assert {("t",), ("empty",)} <= set(names)


def _columns_of_sys_tables(connection: Connection) -> list[tuple[str, ColumnType]]:
    from gmdb.sql.statements.table_functions import listing_columns

    return [(one.name, one.type) for one in listing_columns(connection, "sys_tables", (), {})]


# ---- queries within expressions


def test_scalar_queries_give_one_value_or_null(tables: Tables) -> None:
    table, outer = tables.table(), values((3, 0), (500, 0))
    by_key = project(key(table, "t_i", ref(outer.columns[0])), ref(table.stored[2]))
    assert tables.run(project(outer, tree.ScalarQuery(TEXT, by_key))) == [("s0",), (None,)]
    alone = tree.Group(table, (), (aggregate("max", ref(table.stored[0])),))
    total = call("+", tree.ScalarQuery(INT, alone), ref(outer.columns[0]))
    assert tables.run(project(outer, total)) == [(102,), (599,)]
    with pytest.raises(SubqueryTooManyRows):
        tables.run(project(outer, tree.ScalarQuery(INT, project(table, ref(table.stored[0])))))


def test_exists_and_its_negation(tables: Tables) -> None:
    table, inner = tables.table(), tables.table()
    higher = call(">", ref(inner.stored[0]), ref(table.stored[0]))
    later = tree.Filter(key(inner, "t_g", ref(table.stored[1])), higher)
    found = tables.run(project(tree.Filter(table, tree.Exists(BOOLEAN, later)), ref(table.stored[0])))
    expected = [r[0] for r in tables.rows if any(o[1] == r[1] is not None and o[0] > r[0] for o in tables.rows)]
    assert [row[0] for row in found] == expected
    missing = tree.Filter(table, call("not", tree.Exists(BOOLEAN, later)))
    assert len(tables.run(project(missing, constant(1)))) == 100 - len(expected)
    never = tree.Filter(table, tree.Exists(BOOLEAN, tables.table("empty")))
    assert tables.run(project(never, constant(1))) == []


@pytest.mark.parametrize("content", [[], [1, 3], [1, None], [None]])
def test_in_any_and_all_know_what_is_unknown(tables: Tables, content: list[int | None]) -> None:
    for value in (1, 2, None):
        outer = values((value, 0), (value, 0))
        inner = values(*[(one,) for one in content], types=[INT])
        source: Relation = inner if content else tree.Filter(values((1,), types=[INT]), constant(False, BOOLEAN))
        column = source.columns[0]
        equal = call("=", ref(outer.columns[0]), ref(column))
        less = call("<", ref(outer.columns[0]), ref(column))

        def compared(test: Any, value: Any = value) -> list[bool | None]:
            return [None if None in (value, one) else test(value, one) for one in content]

        is_equal, is_less = compared(lambda x, y: x == y), compared(lambda x, y: x < y)
        expected = (
            True if True in is_equal else None if None in is_equal else False,
            True if True in is_less else None if None in is_less else False,
            False if False in is_less else None if None in is_less else True,
        )
        relation = project(
            outer,
            tree.QueryComparison(BOOLEAN, source, equal),
            tree.QueryComparison(BOOLEAN, source, less),
            tree.QueryComparison(BOOLEAN, source, less, every=True),
        )
        assert tables.run(relation) == [expected] * 2


# ---- running


def test_what_runs_at_once_sees_the_newest_commit_and_own_changes(tables: Tables) -> None:
    table = tables.table()
    relation = project(key(table, "t_i", Parameter(INT, 0, INT)), ref(table.stored[2]))
    quick = rows.Program(relation).quick(tables.connection)
    assert quick is not None
    assert quick.run((5,)) == [("s2",)]
    tables.connection.heap("t").update(tables.row_ids[5], {"s": "own"})
    assert quick.run((5,)) == [("own",)]
    tables.connection.rollback()
    with gmdb.connect(tables.connection.path) as other:
        other.heap("t").update(tables.row_ids[5], {"s": "new"})
        assert quick.run((5,)) == [("s2",)]
        other.commit()
        assert quick.run((5,)) == [("new",)]
        tables.connection.commit()
        other.add_column("t", ("more", "INT"))
        other.commit()
    assert quick.run((5,)) is None


def test_under_repeatable_read_what_runs_at_once_goes_by_the_transactions_snapshot(tables: Tables) -> None:
    connection, table = tables.connection, tables.table()
    connection.isolation = "repeatable read"
    relation = project(key(table, "t_i", Parameter(INT, 0, INT)), ref(table.stored[2]))
    quick = rows.Program(relation).quick(connection)
    assert quick is not None
    with gmdb.connect(connection.path) as other:
        assert quick.run((5,)) == [("s2",)]
        other.heap("t").update(tables.row_ids[5], {"s": "new"})
        other.heap("t").delete(tables.row_ids[6])
        other.commit()
        assert [quick.run((5,)), quick.run((6,)), tables.run(relation, (5,))] == [[("s2",)], [("s0",)], [("s2",)]]
        connection.heap("t").update(tables.row_ids[7], {"s": "own"})
        assert [quick.run((7,)), quick.run((6,))] == [[("own",)], [("s0",)]]
        connection.rollback()
        assert [quick.run((5,)), quick.run((6,)), quick.run((7,))] == [[("new",)], [], [("s1",)]]


def test_under_repeatable_read_others_may_change_a_table_while_it_is_read_at_once(tables: Tables) -> None:
    connection, table = tables.connection, tables.table()
    connection.isolation = "repeatable read"
    relation = project(key(table, "t_i", Parameter(INT, 0, INT)), ref(table.stored[2]))
    quick = rows.Program(relation).quick(connection)
    assert quick is not None
    with gmdb.connect(connection.path) as other:
        assert quick.run((5,)) == [("s2",)]
        other.drop_index("t_i")
        other.commit()
        assert quick.run((5,)) == [("s2",)]
        other.add_column("t", ("more", "INT"))
        other.commit()
        assert [quick.run((5,)), tables.run(relation, (5,))] == [[("s2",)], [("s2",)]]
        connection.heap("empty").insert((1,))
        assert quick.run((5,)) == [("s2",)]
        connection.rollback()
        assert quick.run((5,)) is None


def test_under_repeatable_read_own_changes_of_a_table_end_what_runs_at_once(tables: Tables) -> None:
    connection, table = tables.connection, tables.table()
    connection.isolation = "repeatable read"
    relation = project(key(table, "t_i", Parameter(INT, 0, INT)), ref(table.stored[2]))
    quick = rows.Program(relation).quick(connection)
    assert quick is not None
    assert quick.run((5,)) == [("s2",)]
    connection.add_column("t", ("more", "INT"))
    assert quick.run((5,)) is None
    connection.execute("select 1 from t")
    gc.collect()  # nobody else holds the memory through which the table was read
    others = [np.full(10, 1 << 40) for _ in range(1000)]  # which others have now
    connection.rollback()
    assert quick.run((5,)) == [("s2",)]
    del others
    with gmdb.connect(connection.path) as other:
        other.create_index("t_s", "t", ["s"])
        other.commit()
        assert quick.run((5,)) == [("s2",)]
        connection.heap("t").share()  # from here on it is the newest one
        assert quick.run((5,)) is None


def test_an_index_that_is_newer_than_the_transactions_snapshot_is_not_read_at_once(tables: Tables) -> None:
    connection = tables.connection
    connection.isolation = "repeatable read"
    with gmdb.connect(connection.path) as other:
        other.heap("t").delete(tables.row_ids[5])
        other.commit()
        assert connection.execute("select count(*) from t").fetchall() == [(99,)]
        other.create_index("t_s", "t", ["s"])
        other.commit()
        connection.heap("t").share()
        table = tables.table()
        quick = rows.Program(project(key(table, "t_s", constant("s2", TEXT)), ref(table.stored[0]))).quick(connection)
        assert quick is not None
        assert quick.run(()) is None


def test_what_finds_too_much_at_once_is_left_to_a_snapshot(tables: Tables) -> None:
    table = tables.table()
    many = values(*[(n, n) for n in range(300)])
    relation = project(tree.Join("inner", many, key(table, "t_i", ref(many.columns[0])), None, True), constant(1))
    program = rows.Program(relation)
    quick = program.quick(tables.connection)
    assert quick is not None
    assert [quick.run(()) for _ in range(6)] == [None] * 6
    assert len(tables.run(relation)) == 100
    assert rows.Program(project(table, constant(1))).quick(tables.connection) is None


def test_a_run_ends_when_somebody_interrupts_it(tables: Tables) -> None:
    long = tree.Join("inner", series(1, 10**7, 1), series(1, 10**7, 1), None, True)
    endless = tree.Group(long, (), (aggregate("count"),))
    program, connection = rows.Program(endless), tables.connection
    with connection.session.cursor() as (snapshot, form):
        begun = program.rows(Run(connection, Reading(form, snapshot), (), NOW))
        timer = threading.Timer(0.1, connection.interrupt)
        timer.start()
        with pytest.raises(StatementInterrupted):
            list(begun)
        timer.join()


def test_measures_tell_the_rows_of_each_node(tables: Tables) -> None:
    class Measure:
        rows = loops = 0
        seconds = 0.0

    table = tables.table()
    outer = values((1, 1), (2, 2), (3, 3))
    inner = key(table, "t_g", ref(outer.columns[0]))
    join = tree.Join("inner", outer, inner, None, True)
    limit = tree.Limit(join, constant(20, BIGINT))
    measures = {id(node): Measure() for node in (outer, inner, join, limit)}
    count = len(tables.run(limit, measures=measures))
    assert count == measures[id(limit)].rows == measures[id(join)].rows == measures[id(inner)].rows == 20
    assert (measures[id(outer)].rows, measures[id(inner)].loops) == (2, 2)
    assert all(0 < one.seconds < 10 for one in measures.values())


def test_what_rows_cannot_do_is_told(tables: Tables) -> None:
    table = tables.table()
    sets = tree.Group(table, ((Column("g", INT), ref(table.stored[1])),), (), ((0,), ()))
    assert not rows.supports(sets)
    assert not rows.supports(tree.Window(table, ()))
    assert not rows.supports(tree.Filter(table, tree.Exists(BOOLEAN, sets)))


def test_the_first_row_of_a_range_is_the_first_that_is_seen(tables: Tables) -> None:
    """Behind more entries of deleted rows than a kernel looks at in a call; and for keys longer than any entry."""
    connection = tables.connection
    connection.execute("create table d (k int primary key, s varchar(4000))")
    connection.execute("create index d_s on d (s)")
    connection.append("d", pa.table({"k": pa.array(range(40_000), pa.int32()), "s": ["s"] * 40_000}))
    connection.commit()
    with gmdb.connect(connection.path, isolation="repeatable read") as other:
        assert other.execute("select max(k), min(k) from d").fetchall() == [(39_999, 0)]
        connection.execute("delete from d where k between 100 and 39997")
        for n in range(3):
            assert connection.execute("select max(k) from d where k < ?", (39_998,)).fetchall() == [(99,)]
            assert connection.execute("select min(k) from d where k >= ?", (100,)).fetchall() == [(39_998,)]
            assert connection.execute("select k from d where k > 39999 order by k limit 1").fetchall() == []
            where = "where exists (select 1 from d where d.k > t.i + ?)"
            assert connection.execute(f"select i from t {where} and i = 5", (39_990 + n,)).fetchall() == [(5,)]
            assert connection.execute(f"select i from t {where} and i = 5", (39_994,)).fetchall() == []
            assert connection.execute("select max(s) from d where s <= ?", ("s" * 3000,)).fetchall() == [("s",)]
            assert connection.execute("select min(s) from d where s >= ?", ("s" * 3000,)).fetchall() == [(None,)]
        assert other.execute("select max(k) from d where k < ?", (39_998,)).fetchall() == [(39_997,)]
        other.rollback()
    connection.rollback()


def test_of_several_limits_within_one_another_each_holds(tables: Tables) -> None:
    db = tables.connection
    inner = "(select i from t where i >= ? order by i limit 1)"
    for _ in range(3):
        limited = f"select i from t where i >= {inner} order by i limit 1"
        assert db.execute(limited, (7,)).fetchall() == [(7,)]
        assert db.execute(
            f"select count(*) from (select i from t where i > {inner} limit 1) as one", (7,)
        ).fetchall() == [(1,)]
        assert db.execute(f"select max(i), min(i) from t where i <= {inner}", (7,)).fetchall() == [(7, 0)]
        exists = f"select 1 where exists (select 1 from t where i >= {inner})"
        assert [db.execute(exists, (i,)).fetchall() for i in (7, 1000)] == [[(1,)], []]
    db.execute("create table h (k int, n int)")
    db.execute("create index h_n on h using hash (n)")
    db.executemany("insert into h values (?, ?)", [(k, k % 50) for k in range(2000)])
    db.execute("analyze h")
    for n, found in ((7, [(7,)]), (70, [])):
        for _ in range(2):
            asked = "select i from t where i = 7 and exists (select 1 from h where h.n = ?)"
            assert db.execute(asked, (n,)).fetchall() == found
            assert db.execute("select n from h where n = ? limit 1", (n,)).fetchall() == found
