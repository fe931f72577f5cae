"""Queries in DuckDB: what they answer, in which types, and what they read for it."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest
import sqlglot

from gmdb.arrow.schema import arrow_type
from gmdb.errors import (
    AmbiguousColumn,
    DatabaseError,
    DivisionByZero,
    IllTyped,
    InterfaceError,
    InvalidText,
    NoSuchColumn,
    NoSuchFunction,
    NoSuchTable,
    StatementError,
    SubqueryTooManyRows,
    UndefinedResult,
    UnsupportedExpression,
    ValueOutOfRange,
)
from gmdb.format.columns import parse_column
from gmdb.sql.duck import Answer, prepare, run
from tests.sql.tables import COLUMNS, ArrowSource, rows_of

ALL_TYPES = {
    "a": "int",
    "b": "bigint",
    "c": "varchar(10)",
    "d": "decimal(15,2)",
    "e": "double",
    "f": "date",
    "g": "char(4)",
    "h": "boolean",
    "t": "timestamp",
    "v": "varbinary(10)",
    "w": "decimal(38,6)",
}
ROWS = [
    (1, 10, "x", Decimal("1.50"), 1.5, date(2020, 1, 31), "ab", True, datetime(2020, 1, 1, 12), b"a", Decimal("1E-6")),
    (2, 20, "y", Decimal("2.25"), 2.5, date(2020, 2, 1), "cd", False, datetime(2020, 1, 2, 12), b"", Decimal(-7)),
    (3, 30, None, None, None, None, None, None, None, None, None),
    (
        None,
        40,
        "x",
        Decimal("-3.10"),
        0.1,
        date(1970, 1, 1),
        "ab",
        True,
        datetime(1970, 1, 1),
        b"\xff",
        Decimal(10**30),
    ),
]


@pytest.fixture
def tables() -> dict[str, ArrowSource]:
    return {"t": ArrowSource(ALL_TYPES, ROWS), "u": ArrowSource({"a": "int", "z": "varchar(5)"}, [(2, "p"), (5, "q")])}


def ask(text: str, tables: dict[str, Any], parameters: Any = ()) -> Answer:
    return run(sqlglot.parse_one(text, read="postgres"), tables, parameters)


def rows(text: str, tables: dict[str, Any], parameters: Any = ()) -> list[tuple[Any, ...]]:
    return rows_of(ask(text, tables, parameters).reader.read_all())


def value(text: str) -> Any:
    return rows(f"SELECT {text}", {})[0][0]


def test_every_type_goes_through_and_comes_out_as_it_was(tables):
    answer = ask("SELECT * FROM t", tables)
    assert [str(type_) for type_ in answer.types] == [
        str(parse_column("x", spelling).type) for spelling in ALL_TYPES.values()
    ]
    assert answer.reader.schema.types == [arrow_type(type_) for type_ in answer.types]
    assert answer.reader.read_all() == tables["t"].table


def test_a_query_reads_the_columns_that_its_answer_depends_on_and_no_others(tables):
    rows("SELECT x FROM (SELECT a AS x, b + 1 AS y, c FROM t WHERE e > 0) AS q WHERE x > 1 ORDER BY x", tables)
    assert tables["t"].asked == [["a", "e"]]


def test_counting_rows_reads_one_narrow_column(tables):
    assert rows("SELECT count(*) FROM t", tables) == [(4,)]
    assert tables["t"].asked == [["a"]]


def test_a_with_query_that_is_used_twice_reads_only_what_either_use_needs(tables):
    rows("WITH w AS (SELECT * FROM t) SELECT p.a FROM w AS p JOIN w AS q ON p.b = q.b", tables)
    assert {tuple(asked) for asked in tables["t"].asked} == {("a", "b")}


def test_both_sides_of_a_self_join_read_the_table(tables):
    assert rows("SELECT p.a, q.b FROM t AS p JOIN t AS q ON p.a = q.a + 1 ORDER BY 1", tables) == [(2, 10), (3, 20)]
    assert sorted(tables["t"].asked) == [["a"], ["a", "b"]]


@pytest.mark.parametrize(
    ("call", "type_", "result"),
    [
        ("count(*)", "BIGINT", 4),
        ("sum(a)", "BIGINT", 6),
        ("sum(b)", "DECIMAL(38,0)", Decimal(100)),
        ("sum(d)", "DECIMAL(38,2)", Decimal("0.65")),
        ("sum(e)", "DOUBLE", 4.1),
        ("avg(a)", "DECIMAL(38,16)", Decimal(2)),
        ("avg(d)", "DECIMAL(38,16)", Decimal("0.2166666666666667")),
        ("avg(e)", "DOUBLE", pytest.approx(4.1 / 3)),
        ("min(g)", "CHAR(4)", "ab  "),
        ("max(f)", "DATE", date(2020, 2, 1)),
        ("bool_and(h)", "BOOLEAN", False),
        ("every(h)", "BOOLEAN", False),
        ("string_agg(c, '-' ORDER BY b DESC)", "VARCHAR(4000)", "x-y-x"),
        ("count(DISTINCT c)", "BIGINT", 2),
        ("sum(a) FILTER (WHERE a > 1)", "BIGINT", 5),
        ("stddev(a)", "DECIMAL(38,16)", Decimal(1)),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", "DOUBLE", 2.0),
        ("sum(w)", "DECIMAL(38,6)", Decimal("999999999999999999999999999993.000001")),
    ],
)
def test_aggregates_have_postgresqls_types(tables, call, type_, result):
    answer = ask(f"SELECT {call} FROM t", tables)
    assert str(answer.types[0]) == type_
    assert rows_of(answer.reader.read_all()) == [(result,)]


@pytest.mark.parametrize(
    ("expression", "result"),
    [
        ("-7 / 2", -3),
        ("7 / -2", -3),
        ("-7 % 3", -1),
        ("7 / 2.0", Decimal("3.5")),
        ("1 / 3.0", Decimal("0.3333333333333333")),
        ("-2 / 3.0", Decimal("-0.6666666666666667")),
        ("99999999999999999.99 * 99999999999999999.99", Decimal("9999999999999999998000000000000000.0001")),
        ("0.1 + 0.2", Decimal("0.3")),
        ("round(2.5)", 3),
        ("round(2.5::double precision)", 2.0),
        ("round(-2.345, 2)", Decimal("-2.35")),
        ("round(1250, -2)", 1300),
        ("trunc(-2.789, 1)", Decimal("-2.7")),
        ("2.5::int", 3),
        ("2.5::double precision::int", 2),
        ("1 || 'a' || NULL", None),
        ("concat('a', NULL, true)", "at"),
        ("substring('hello' FROM -1 FOR 3)", "h"),
        ("left('hello', -2)", "hel"),
        ("'abc'::varchar(2)", "ab"),
        ("'ab'::char(4)", "ab  "),
        ("'ab'::char(4) = 'ab'", True),
        ("'ab'::char(4) || 'c'", "abc"),
        ("length('ab'::char(4))", 2),
        ("'ab'::char(4) LIKE 'ab'", False),
        (r"'50%' LIKE '50\%'", True),
        ("'50x' LIKE '50!%' ESCAPE '!'", False),
        ("date '2020-03-01' - date '2020-02-01'", 29),
        ("date '2020-01-31' + 1", date(2020, 2, 1)),
        ("date '2020-01-31' + interval '1 month'", datetime(2020, 2, 29)),
        ("extract(epoch FROM timestamp '1970-01-02 00:00:00.5')", Decimal("86400.5")),
        ("date_part('year', date '2020-01-31')", 2020),
        ("to_char(timestamp '2020-01-31 04:05:06', 'YYYY/MM/DD HH24:MI')", "2020/01/31 04:05"),
        ("1.0::double precision::text", "1"),
        ("'\\xff00'::bytea::text", "\\xff00"),
        ("NULL AND false", False),
        ("NULL IS NOT DISTINCT FROM NULL", True),
        ("(1, NULL) = (2, 3)", False),
        ("1 IN (2, NULL)", None),
        ("'yes'::boolean", True),
        ("greatest(1, NULL, 2.5)", Decimal("2.5")),
        ("CASE WHEN false THEN 1 / 0 ELSE 7 END", 7),
        ("'a' < 'B'", False),
        ("12345678901234567890", Decimal(12345678901234567890)),
        ("-9223372036854775808", -(2**63)),
    ],
)
def test_expressions_have_postgresqls_values(expression, result):
    found = value(expression)
    assert found == result
    assert isinstance(found, type(result) | Decimal | float)


def test_division_of_wide_numbers_is_exact_or_out_of_range(tables):
    assert rows("SELECT round(w / 3, 10) FROM t WHERE a = 2", tables) == [(Decimal("-2.3333333333"),)]
    expected = [(Decimal("0.1428571428571429"), Decimal("123456789012345678.0000000000000000"))]
    assert rows("SELECT 1234567890123456789 / 8641975230864197523.0, 864197523086419746.0 / 7", {}) == expected
    with pytest.raises(ValueOutOfRange):
        rows("SELECT w / 3 FROM t", tables)


def test_nulls_come_last_going_up_and_first_going_down(tables):
    assert [row[0] for row in rows("SELECT a FROM t ORDER BY a", tables)] == [1, 2, 3, None]
    assert [row[0] for row in rows("SELECT a FROM t ORDER BY a DESC", tables)] == [None, 3, 2, 1]
    assert [row[0] for row in rows("SELECT a FROM t ORDER BY a DESC NULLS LAST LIMIT 2 OFFSET 1", tables)] == [2, 1]


def test_texts_are_ordered_by_code_points():
    words = "SELECT * FROM (VALUES ('b'), ('B'), ('ä'), ('a'), ('_')) AS v(w) ORDER BY w"
    assert [row[0] for row in rows(words, {})] == ["B", "_", "a", "b", "ä"]


def test_groups_can_be_named_by_alias_and_by_number(tables):
    expected = [("x", 2), ("y", 1), (None, 1)]
    for key in ("1", "k", "c", "t.c"):
        assert rows(f"SELECT c AS k, count(*) FROM t GROUP BY {key} ORDER BY k", tables) == expected


def test_a_constant_is_no_number_of_a_column_when_it_is_grouped_by_its_name(tables):
    assert rows("SELECT 7 AS k, count(*) FROM t GROUP BY k ORDER BY k", tables) == [(7, 4)]


def test_rollup_adds_totals(tables):
    found = rows("SELECT c, count(*) FROM t WHERE c IS NOT NULL GROUP BY ROLLUP (c) ORDER BY 1", tables)
    assert found == [("x", 2), ("y", 1), (None, 3)]


def test_using_merges_columns(tables):
    answer = ask("SELECT * FROM u LEFT JOIN t USING (a)", tables)
    assert answer.names == ["a", "z", *[name for name in ALL_TYPES if name != "a"]]
    answer.close()
    assert rows("SELECT a FROM u FULL JOIN t USING (a) ORDER BY a", tables) == [(1,), (2,), (3,), (5,), (None,)]
    assert rows("SELECT a, z FROM t NATURAL JOIN u", tables) == [(2, "p")]


def test_lateral_sees_the_tables_to_its_left(tables):
    found = rows(
        "SELECT u.a, q.n FROM u, LATERAL (SELECT count(*) AS n FROM t WHERE t.a < u.a) AS q ORDER BY 1", tables
    )
    assert found == [(2, 1), (5, 3)]


def test_distinct_on_keeps_the_first_row_of_each(tables):
    assert rows("SELECT DISTINCT ON (c) c, b FROM t ORDER BY c, b DESC", tables) == [("x", 40), ("y", 20), (None, 30)]


def test_windows(tables):
    calls = "row_number() OVER w, sum(b) OVER (w ROWS 1 PRECEDING), lag(b, 1, 0) OVER w"
    text = f"SELECT b, {calls} FROM t WINDOW w AS (ORDER BY b DESC)"
    expected = [(40, 1, 40, 0), (30, 2, 70, 40), (20, 3, 50, 30), (10, 4, 30, 20)]
    assert rows(text + " ORDER BY b DESC", tables) == expected


def test_recursion_counts():
    text = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT sum(n) FROM r"
    assert rows(text, {}) == [(10,)]


def test_names_fold_to_lower_case_unless_quoted():
    source = ArrowSource({"lower": "int", "Mixed": "int", "mixed": "int"}, [(1, 2, 3)])
    assert rows('SELECT LOWER, "Mixed", MIXED FROM S', {"s": source}) == [(1, 2, 3)]


def test_columns_without_an_alias_have_postgresqls_names(tables):
    answer = ask(
        "SELECT a, a + 1, count(*), a::text, CASE WHEN true THEN 1 END, sum(b) OVER () FROM t GROUP BY a, b", tables
    )
    assert answer.names == ["a", "?column?", "count", "a", "case", "sum"]
    answer.close()


# ---- rownum


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("rownum < 3", [10, 20]),
        ("rownum <= 1", [10]),
        ("2 >= rownum", [10, 20]),
        ("rownum = 1", [10]),
        ("rownum = 2", []),
        ("rownum > 1", []),
        ("rownum >= 1", [10, 20, 30, 40]),
        ("rownum BETWEEN 1 AND 3", [10, 20, 30]),
        ("rownum < 3 AND b > 10", [20, 30]),
        ("rownum < 0", []),
        ("rownum < 2.5", [10, 20]),
    ],
)
def test_rownum_counts_the_rows_that_meet_the_other_conditions(tables, where, expected):
    assert [row[0] for row in rows(f"SELECT b FROM t WHERE {where}", tables)] == expected


def test_rownum_is_given_before_rows_are_ordered(tables):
    assert rows("SELECT rownum, b FROM t WHERE rownum < 3 ORDER BY b DESC", tables) == [(2, 20), (1, 10)]


def test_a_column_called_rownum_is_a_column():
    source = ArrowSource({"rownum": "int"}, [(7,), (8,)])
    assert rows("SELECT rownum FROM s WHERE rownum > 7", {"s": source}) == [(8,)]


def test_hidden_columns_can_be_named_but_are_not_part_of_the_star(tables):
    source = tables["u"]
    source.hidden = [source.columns.pop()]
    assert rows("SELECT * FROM u", tables) == [(2,), (5,)]
    assert rows("SELECT z, u.z FROM u WHERE a = 5", tables) == [("q", "q")]


# ---- parameters


def test_parameters_by_position_count_in_the_order_of_the_text(tables):
    text = "SELECT ? AS x, b FROM t WHERE c = ? AND d > ? ORDER BY b LIMIT ?"
    assert rows(text, tables, ["one", "x", Decimal("-4.125"), 1]) == [("one", 10)]


def test_parameters_by_name(tables):
    assert rows("SELECT b FROM t WHERE a = :n OR b = :n + 38", tables, {"n": 2}) == [(20,), (40,)]


@pytest.mark.parametrize(
    ("given", "type_"),
    [
        (1, "INT"),
        (2**40, "BIGINT"),
        (2**70, "DECIMAL(38,0)"),
        (1.5, "DOUBLE"),
        (True, "BOOLEAN"),
        (date(2020, 1, 1), "DATE"),
        (datetime(2020, 1, 1, 2, 3, 4, 5), "TIMESTAMP"),
        ("text", "VARCHAR(4000)"),
        (b"\x00\xff", "VARBINARY(32000)"),
        (Decimal("1.230"), "DECIMAL(38,3)"),
        (None, "VARCHAR(4000)"),
    ],
)
def test_a_parameters_type_is_that_of_its_value(given, type_):
    answer = ask("SELECT ?", {}, [given])
    assert str(answer.types[0]) == type_
    assert rows_of(answer.reader.read_all()) == [(given,)]


def test_a_text_parameter_takes_the_type_of_its_surroundings(tables):
    assert rows("SELECT a FROM t WHERE f = ? AND a = ? AND g = ?", tables, ["2020-02-01", "2", "cd"]) == [(2,)]
    with pytest.raises(InvalidText):
        rows("SELECT a FROM t WHERE f = ?", tables, ["no date"])


def test_a_missing_parameter_is_named(tables):
    with pytest.raises(InterfaceError, match="number 2"):
        ask("SELECT a FROM t WHERE a = ? AND b = ?", tables, [1])
    with pytest.raises(InterfaceError, match=":who"):
        ask("SELECT :who", tables, {"when": 1})


# ---- errors


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("SELECT a,\n  bb FROM t", NoSuchColumn, "line 2, column 3: there is no column bb; did you mean b?"),
        ("SELECT t.zz FROM t", NoSuchColumn, "line 1, column 8: table t has no column zz"),
        ("SELECT q.a FROM t", NoSuchTable, "line 1, column 8: no table q in FROM"),
        ("SELECT 1 FROM tt", NoSuchTable, "line 1, column 15: there is no table tt; did you mean t?"),
        ("SELECT a FROM t, u", AmbiguousColumn, "line 1, column 8: column a could be that of t or u; write table.a"),
        ("SELECT a, count(*) FROM t", StatementError, "a is neither in GROUP BY nor within an aggregate"),
        ("SELECT a FROM t WHERE count(*) > 1", IllTyped, "an aggregate cannot stand here"),
        ("SELECT a FROM t WHERE c", IllTyped, "a condition must be BOOLEAN, not VARCHAR"),
        ("SELECT a + c FROM t", IllTyped, "there is no INT + VARCHAR"),
        ("SELECT a = c FROM t", IllTyped, "= cannot mix INT and VARCHAR"),
        ("SELECT uper(c) FROM t", NoSuchFunction, "there is no function uper; did you mean upper?"),
        ("SELECT t - t FROM t", UnsupportedExpression, "no column of type interval"),
        ("SELECT a FROM t ORDER BY 3", StatementError, "there is no column 3 in the list"),
        ("SELECT DISTINCT a FROM t ORDER BY b", StatementError, "ORDER BY takes columns of the list only"),
        ("SELECT a FROM t UNION SELECT a, z FROM u", IllTyped, "equally many columns, not 1 and 2"),
        ("SELECT a FROM t AS p, u AS p", DatabaseError, "the name p stands for two tables"),
        ("SELECT 'x'::int", InvalidText, "line 1, column 8: invalid input syntax for type integer: 'x'"),
        ("SELECT (SELECT a FROM t)", SubqueryTooManyRows, "more than one row"),
        ("SELECT a / 0 FROM t", DivisionByZero, "division by zero"),
        ("SELECT e / 0 FROM t", DivisionByZero, "division by zero"),
        ("SELECT d / (a - a) FROM t", DivisionByZero, "division by zero"),
        ("SELECT b % 0 FROM t", DivisionByZero, "division by zero"),
        ("SELECT sqrt(a - 2) FROM t", UndefinedResult, "the square root of a negative number"),
        ("SELECT c::int FROM t", InvalidText, "'x' is no integer"),
        ("SELECT c::date FROM t", InvalidText, "invalid date"),
        ("SELECT a + 2147483647 FROM t", ValueOutOfRange, "Overflow in addition"),
        ("SELECT (b * 1000000000)::int FROM t", ValueOutOfRange, "out of range"),
        ("SELECT d::decimal(3,2) * 10 FROM t WHERE d > 2", None, ""),
        ("SELECT (d * 100)::decimal(3,2) FROM t", ValueOutOfRange, ""),
        ("SELECT a FROM t WHERE a IN ()", StatementError, "IN needs at least one value"),
        ("SELECT a FROM t FOR UPDATE", UnsupportedExpression, "FOR UPDATE is not supported"),
        ("SELECT a FROM t LIMIT -1", ValueOutOfRange, "cannot be negative"),
        ("SELECT sum(b) FROM t WHERE rownum + 1 < 5", UnsupportedExpression, "rownum can be compared"),
    ],
)
def test_errors_say_what_and_where(tables, text, kind, message):
    if kind is None:
        assert rows(text, tables)
        return
    with pytest.raises(kind) as raised:
        rows(text, tables)
    assert message in str(raised.value)
    assert "r1_c" not in str(raised.value)


def test_a_plan_can_be_run_over_other_rows():
    one, other = ArrowSource({"a": "int"}, [(1,)]), ArrowSource({"a": "int"}, [(2,), (3,)])
    plan = prepare(sqlglot.parse_one("SELECT sum(a) FROM s WHERE a > ?", read="postgres"), {"s": one}, [0])
    assert rows_of(plan.run({"s": other}, [2]).reader.read_all()) == [(3,)]


def test_a_remembered_plan_is_not_used_for_a_table_that_was_defined_anew():
    text = "SELECT a + 1 FROM remembered"
    node = sqlglot.parse_one(text, read="postgres")
    first = run(node, {"remembered": ArrowSource({"a": "int"}, [(1,)])}, text=text)
    second = run(node, {"remembered": ArrowSource({"a": "decimal(5,2)"}, [(Decimal("1.5"),)])}, text=text)
    assert [str(answer.types[0]) for answer in (first, second)] == ["INT", "DECIMAL(38,2)"]
    assert rows_of(second.reader.read_all()) == [(Decimal("2.50"),)]
    first.close()


def test_an_empty_table_gives_no_rows_and_all_types():
    answer = ask("SELECT * FROM s", {"s": ArrowSource(COLUMNS, [])})
    assert answer.reader.read_all().num_rows == 0
    assert len(answer.types) == len(COLUMNS)
