"""Queries by either executor: what they answer, in which types, with which names, and how they are refused."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.dbapi import Cursor
from gmdb.errors import (
    AmbiguousColumn,
    DatabaseError,
    DivisionByZero,
    IllTyped,
    InvalidText,
    NoSuchColumn,
    NoSuchFunction,
    NoSuchTable,
    ProgrammingError,
    StatementError,
    SubqueryTooManyRows,
    UndefinedResult,
    UnsupportedExpression,
    ValueOutOfRange,
)
from gmdb.format.columns import parse_column
from gmdb.tables.arrow.arrow_types import arrow_type
from tests.sql.tables import COLUMNS

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


@pytest.fixture(scope="module", params=["rows", "duck"])
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """Tables t and u, and statements that one executor runs."""
    with gmdb.connect(tmp_path_factory.mktemp("queries") / "d.gmdb") as connection:
        fill(connection, "t", ALL_TYPES, ROWS)
        fill(connection, "u", {"a": "int", "z": "varchar(5)"}, [(2, "p"), (5, "q")])
        connection.commit()
        connection._statements.executor = request.param  # type: ignore[attr-defined]
        yield connection


@pytest.fixture
def db(opened: Connection) -> Iterator[Connection]:
    yield opened
    opened.rollback()


def fill(db: Connection, name: str, columns: dict[str, str], data: list[tuple[Any, ...]]) -> None:
    listed = ", ".join(f'"{column}" {spelling}' for column, spelling in columns.items())
    db.execute(f"create table {name} ({listed})")
    db.executemany(f"insert into {name} values ({', '.join('?' * len(columns))})", data)


def rows(db: Connection, text: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    return db.execute(text, parameters).fetchall()


def types(cursor: Cursor) -> list[str]:
    return [str(type_) for type_ in cursor._result.types]


def names(cursor: Cursor) -> list[str]:
    return [column[0] for column in cursor.description or ()]


def test_every_type_goes_through_and_comes_out_as_it_was(db):
    cursor = db.execute("SELECT * FROM t")
    declared = [parse_column("x", spelling).type for spelling in ALL_TYPES.values()]
    assert types(cursor) == list(map(str, declared))
    found = cursor.fetchall()
    assert found == [(*row[:6], row[6] and row[6].ljust(4), *row[7:]) for row in ROWS]
    assert db.execute("SELECT * FROM t").arrow().schema.types == [arrow_type(type_) for type_ in declared]


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
        ("string_agg(c, '-' ORDER BY b DESC)", "TEXT", "x-y-x"),
        ("count(DISTINCT c)", "BIGINT", 2),
        ("sum(a) FILTER (WHERE a > 1)", "BIGINT", 5),
        ("stddev(a)", "DECIMAL(38,16)", Decimal(1)),
        ("percentile_cont(0.5) WITHIN GROUP (ORDER BY a)", "DOUBLE", 2.0),
        ("sum(w)", "DECIMAL(38,6)", Decimal("999999999999999999999999999993.000001")),
    ],
)
def test_aggregates_have_postgresqls_types(db, call, type_, result):
    answer = db.execute(f"SELECT {call} FROM t")
    assert types(answer)[0] == type_
    assert answer.fetchall() == [(result,)]


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
def test_expressions_have_postgresqls_values(db, expression, result):
    ((found,),) = rows(db, f"SELECT {expression}")
    assert found == result
    assert isinstance(found, type(result) | Decimal | float)


def test_division_of_wide_numbers_is_exact_or_out_of_range(db):
    assert rows(db, "SELECT round(w / 3, 10) FROM t WHERE a = 2") == [(Decimal("-2.3333333333"),)]
    expected = [(Decimal("0.1428571428571429"), Decimal("123456789012345678.0000000000000000"))]
    assert rows(db, "SELECT 1234567890123456789 / 8641975230864197523.0, 864197523086419746.0 / 7") == expected
    with pytest.raises(ValueOutOfRange):
        rows(db, "SELECT w / 3 FROM t")


def test_nulls_come_last_going_up_and_first_going_down(db):
    assert [row[0] for row in rows(db, "SELECT a FROM t ORDER BY a")] == [1, 2, 3, None]
    assert [row[0] for row in rows(db, "SELECT a FROM t ORDER BY a DESC")] == [None, 3, 2, 1]
    assert [row[0] for row in rows(db, "SELECT a FROM t ORDER BY a DESC NULLS LAST LIMIT 2 OFFSET 1")] == [2, 1]


def test_texts_are_ordered_by_code_points(db):
    words = "SELECT * FROM (VALUES ('b'), ('B'), ('ä'), ('a'), ('_')) AS v(w) ORDER BY w"
    assert [row[0] for row in rows(db, words)] == ["B", "_", "a", "b", "ä"]


def test_groups_can_be_named_by_alias_and_by_number(db):
    expected = [("x", 2), ("y", 1), (None, 1)]
    for key in ("1", "k", "c", "t.c"):
        assert rows(db, f"SELECT c AS k, count(*) FROM t GROUP BY {key} ORDER BY k") == expected


def test_a_constant_is_no_number_of_a_column_when_it_is_grouped_by_its_name(db):
    assert rows(db, "SELECT 7 AS k, count(*) FROM t GROUP BY k ORDER BY k") == [(7, 4)]


def test_rollup_adds_totals(db):
    found = rows(db, "SELECT c, count(*) FROM t WHERE c IS NOT NULL GROUP BY ROLLUP (c) ORDER BY 1")
    assert found == [("x", 2), ("y", 1), (None, 3)]


def test_using_merges_columns(db):
    answer = db.execute("SELECT * FROM u LEFT JOIN t USING (a)")
    assert names(answer) == ["a", "z", *[name for name in ALL_TYPES if name != "a"]]
    assert rows(db, "SELECT a FROM u FULL JOIN t USING (a) ORDER BY a") == [(1,), (2,), (3,), (5,), (None,)]
    assert rows(db, "SELECT a, z FROM t NATURAL JOIN u") == [(2, "p")]


def test_lateral_sees_the_tables_to_its_left(db):
    found = rows(db, "SELECT u.a, q.n FROM u, LATERAL (SELECT count(*) AS n FROM t WHERE t.a < u.a) AS q ORDER BY 1")
    assert found == [(2, 1), (5, 3)]


def test_distinct_on_keeps_the_first_row_of_each(db):
    assert rows(db, "SELECT DISTINCT ON (c) c, b FROM t ORDER BY c, b DESC") == [("x", 40), ("y", 20), (None, 30)]


def test_windows(db):
    calls = "row_number() OVER w, sum(b) OVER (w ROWS 1 PRECEDING), lag(b, 1, 0) OVER w"
    text = f"SELECT b, {calls} FROM t WINDOW w AS (ORDER BY b DESC)"
    expected = [(40, 1, 40, 0), (30, 2, 70, 40), (20, 3, 50, 30), (10, 4, 30, 20)]
    assert rows(db, text + " ORDER BY b DESC") == expected


def test_recursion_counts(db):
    text = "WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r WHERE n < 4) SELECT sum(n) FROM r"
    assert rows(db, text) == [(10,)]


def test_names_fold_to_lower_case_unless_quoted(db):
    fill(db, "s", {"lower": "int", "Mixed": "int"}, [(1, 2)])
    assert rows(db, 'SELECT LOWER, "Mixed" FROM S') == [(1, 2)]
    with pytest.raises(NoSuchColumn):
        db.execute("SELECT mixed FROM s")


def test_columns_without_an_alias_have_postgresqls_names(db):
    text = "SELECT a, a + 1, count(*), a::text, CASE WHEN true THEN 1 END, sum(b) OVER () FROM t GROUP BY a, b"
    assert names(db.execute(text)) == ["a", "?column?", "count", "a", "case", "sum"]


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
def test_rownum_counts_the_rows_that_meet_the_other_conditions(db, where, expected):
    assert [row[0] for row in rows(db, f"SELECT b FROM t WHERE {where}")] == expected


def test_rownum_is_given_before_rows_are_ordered(db):
    assert rows(db, "SELECT rownum, b FROM t WHERE rownum < 3 ORDER BY b DESC") == [(2, 20), (1, 10)]


def test_a_column_called_rownum_is_a_column(db):
    fill(db, "s", {"rownum": "int"}, [(7,), (8,)])
    assert rows(db, "SELECT rownum FROM s WHERE rownum > 7") == [(8,)]


def test_a_row_id_can_be_named_but_is_not_part_of_the_star(db):
    assert names(db.execute("SELECT * FROM u")) == ["a", "z"]
    ((row_id, z),) = rows(db, "SELECT rowid, z FROM u WHERE a = 5")
    assert rows(db, "SELECT a, u.rowid FROM u WHERE rowid = ?", (row_id,)) == [(5, row_id)]
    assert z == "q"


# ---- parameters


def test_parameters_by_position_count_in_the_order_of_the_text(db):
    text = "SELECT ? AS x, b FROM t WHERE c = ? AND d > ? ORDER BY b LIMIT ?"
    assert rows(db, text, ["one", "x", Decimal("-4.125"), 1]) == [("one", 10)]


def test_parameters_by_name(db):
    assert rows(db, "SELECT b FROM t WHERE a = :n OR b = :n + 38", {"n": 2}) == [(20,), (40,)]


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
        ("text", "TEXT"),
        (b"\x00\xff", "BYTEA"),
        (Decimal("1.230"), "DECIMAL(38,3)"),
        (None, "TEXT"),
    ],
)
def test_a_parameters_type_is_that_of_its_value(db, given, type_):
    answer = db.execute("SELECT ?", [given])
    assert types(answer)[0] == type_
    assert answer.fetchall() == [(given,)]


def test_a_text_parameter_takes_the_type_of_its_surroundings(db):
    assert rows(db, "SELECT a FROM t WHERE f = ? AND a = ? AND g = ?", ["2020-02-01", "2", "cd"]) == [(2,)]
    with pytest.raises(InvalidText):
        rows(db, "SELECT a FROM t WHERE f = ?", ["no date"])


def test_a_missing_parameter_is_named(db):
    with pytest.raises(ProgrammingError, match="has 2 parameters, but 1 were given"):
        db.execute("SELECT a FROM t WHERE a = ? AND b = ?", [1])
    with pytest.raises(ProgrammingError, match=":who"):
        db.execute("SELECT :who", {"when": 1})


# ---- errors


@pytest.mark.parametrize(
    ("text", "kind", "message"),
    [
        ("SELECT a,\n  bb FROM t", NoSuchColumn, "line 2, column 3: there is no column bb; did you mean b?"),
        ("SELECT t.zz FROM t", NoSuchColumn, "line 1, column 8: there is no column zz of t"),
        ("SELECT q.a FROM t", NoSuchTable, "line 1, column 8: there is no table q in this statement"),
        ("SELECT 1 FROM tt", NoSuchTable, "line 1, column 15: there is no table tt; did you mean t?"),
        ("SELECT a FROM t, u", AmbiguousColumn, "line 1, column 8: column a is ambiguous. Write one of t.a, u.a"),
        ("SELECT a, count(*) FROM t", StatementError, "a is neither in GROUP BY nor within an aggregate"),
        ("SELECT a FROM t WHERE count(*) > 1", IllTyped, "an aggregate cannot stand here"),
        ("SELECT a FROM t WHERE c", IllTyped, "line 1, column 23: a condition must be boolean, not character varying"),
        ("SELECT a + c FROM t", IllTyped, "line 1, column 8: there is no integer + character varying"),
        ("SELECT a = c FROM t", IllTyped, "line 1, column 8: there is no integer = character varying"),
        ("SELECT uper(c) FROM t", NoSuchFunction, "line 1, column 8: there is no function uper. Did you mean upper?"),
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
        ("SELECT sqrt(a - 2) FROM t", UndefinedResult, "square root of a negative number"),
        ("SELECT c::int FROM t", InvalidText, "invalid input syntax for type integer: 'x'"),
        ("SELECT c::date FROM t", InvalidText, "invalid input syntax for type date"),
        ("SELECT a + 2147483647 FROM t", ValueOutOfRange, ""),
        ("SELECT (b * 1000000000)::int FROM t", ValueOutOfRange, "out of range"),
        ("SELECT d::decimal(3,2) * 10 FROM t WHERE d > 2", None, ""),
        ("SELECT (d * 100)::decimal(3,2) FROM t", ValueOutOfRange, ""),
        ("SELECT a FROM t WHERE a IN ()", StatementError, "IN needs at least one value"),
        ("SELECT a FROM t LIMIT -1", ValueOutOfRange, "be negative"),
        ("SELECT sum(b) FROM t WHERE rownum + 1 < 5", UnsupportedExpression, "rownum can be compared"),
    ],
)
def test_errors_say_what_and_where(db, text, kind, message):
    if kind is None:
        assert rows(db, text)
        return
    with pytest.raises(kind) as raised:
        rows(db, text)
    assert message in str(raised.value)


def test_a_plan_that_is_kept_is_run_over_other_rows_and_with_other_parameters(db):
    fill(db, "s", {"a": "int"}, [(1,)])
    text = "SELECT sum(a) FROM s WHERE a > ?"
    assert rows(db, text, (0,)) == [(1,)]
    db.execute("INSERT INTO s VALUES (2), (3)")
    assert rows(db, text, (1,)) == [(5,)]
    assert rows(db, text, (Decimal("2.5"),)) == [(3,)]


def test_a_plan_that_is_kept_is_not_used_for_a_table_that_was_defined_anew(db):
    text = "SELECT a + 1 FROM s"
    fill(db, "s", {"a": "int"}, [(1,)])
    first = db.execute(text)
    assert (types(first), first.fetchall()) == (["INT"], [(2,)])
    db.execute("DROP TABLE s")
    fill(db, "s", {"a": "decimal(5,2)"}, [(Decimal("1.5"),)])
    second = db.execute(text)
    assert (types(second), second.fetchall()) == (["DECIMAL(38,2)"], [(Decimal("2.50"),)])


def test_an_empty_table_gives_no_rows_and_all_types(db):
    fill(db, "s", COLUMNS, [])
    cursor = db.execute("SELECT * FROM s")
    assert (len(types(cursor)), cursor.fetchall()) == (len(COLUMNS), [])
