"""A statement means one thing: by rows and in DuckDB, with and without an index, and no part of it is passed over."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection

TABLES = (
    "create table t (i int primary key, a int, w int, d int, s varchar(20), c char(4), b int,"
    " amount decimal(9,2), x double precision, ts timestamp, day date)",
    "create table u (i int primary key, t_i int, n numeric(5,1))",
    "create table other (k bigint, a int)",
)
ROWS = [
    (1, 10, 7, 2, "one", "ab", 0, Decimal("10.00"), 2.0, datetime(2024, 5, 17, 13, 14, 15), date(2024, 5, 17)),
    (2, 20, -7, 2, "two", "abcd", 4, Decimal("0.05"), -0.5, datetime(2023, 12, 31, 23, 59, 59), date(2023, 12, 31)),
    (3, None, None, 0, None, None, None, None, None, None, None),
    (4, 20, 7, -2, "four", "", 5, Decimal("-1.25"), 1e10, datetime(2024, 2, 29), date(2024, 2, 29)),
]
WAYS = [f"{executor}{index}" for executor in ("rows", "duck", "chosen") for index in ("", ", indexed")]
INDEXES = ("t (a)", "t (amount)", "t (c)", "t (day)", "t (x)", "t (w, d)", "u (t_i)", "other (k)")


def fill(db: Connection) -> None:
    for text in TABLES:
        db.execute(text)
    db.executemany(f"insert into t values ({', '.join('?' * 11)})", ROWS)
    db.execute("insert into u values (1, 1, 0.5), (2, 1, 1.5), (3, 4, 2.5), (4, null, 3.5)")
    db.execute("insert into other values (1, 1), (1099511627776, 2)")


@pytest.fixture(scope="module", params=WAYS)
def filled(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    """The tables, and statements that one executor runs; or the one that the planner chooses."""
    executor, _, indexed = request.param.partition(", ")
    with gmdb.connect(tmp_path_factory.mktemp("meaning") / "d.gmdb") as connection:
        fill(connection)
        for number, index in enumerate(INDEXES if indexed else ()):
            connection.execute(f"create index by_{number} on {index}")
        connection.commit()
        if executor != "chosen":
            connection._statements.executor = executor  # type: ignore[attr-defined]
        yield connection


@pytest.fixture
def db(filled: Connection) -> Iterator[Connection]:
    yield filled
    filled.rollback()


def rows(db: Connection, text: str, parameters: Any = ()) -> list[tuple[Any, ...]]:
    return db.execute(text, parameters).fetchall()


# ---- the same values everywhere


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("select 1 where false", []),
        ("select 1 where true", [(1,)]),
        ("select 1 where 2 < 1 or 1 = 1", [(1,)]),
        ("select count(*) where false", [(0,)]),
        ("select concat(s, c) from t where i = 1", [("oneab  ",)]),
        ("select s || c from t where i = 1", [("oneab",)]),
        ("select concat_ws('-', s, c) from t where i = 1", [("one-ab  ",)]),
        ("select length(c), octet_length(c) from t where i = 1", [(2, 4)]),
        ("select w % d from t where i in (1, 2) order by i", [(1,), (-1,)]),
        ("select w % d from t where i = 4", [(1,)]),
        ("select i from t where w % d = 1 order by i", [(1,), (4,)]),
        ("select sqrt(amount * 0 + 2.25) from t where i = 1", [(Decimal("1.5000000000000000"),)]),
        ("select sum(a / b) filter (where b <> 0) from t", [(9,)]),
        ("select i, case when b <> 0 then a / b end from t order by i", [(1, None), (2, 5), (3, None), (4, 4)]),
        ("select i from t where b <> 0 and a / b > 4 order by i", [(2,)]),
        ("select -5, count(*) from t group by 1", [(-5, 4)]),
        ("select 'x', count(*) from t where a = 20 group by 1", [("x", 2)]),
        ("select a, count(*) from t group by 1 order by 1", [(10, 1), (20, 2), (None, 1)]),
        ("select coalesce(a, 0) from t where i = 3 or a is null", [(0,)]),
        ("select max(i), min(i) from t", [(4, 1)]),
        ("select i from t order by a desc, i desc limit 2", [(3,), (4,)]),
        ("select case when false then 1 / 0 else 2 end", [(2,)]),
        ("select i from t where false and 1 / b = 1", []),
        ("select (select max(n) from u where u.t_i = t.i) from t order by t.i",
         [(Decimal("1.5"),), (None,), (None,), (Decimal("2.5"),)]),
        ("select t.i, u.n from t join u on u.t_i = t.i order by 1, 2",
         [(1, Decimal("0.5")), (1, Decimal("1.5")), (4, Decimal("2.5"))]),
        ("select i from t where exists (select 1 from u where u.t_i = t.i) order by i", [(1,), (4,)]),
        ("select i from t where not exists (select 1 from u where u.t_i = t.i) order by i", [(2,), (3,)]),
        ("select i from t where i not in (select t_i from u) order by i", []),
        ("select i from t where i in (select t_i from u where n > 1) order by i", [(1,), (4,)]),
        ("select i from t where i = 2 or a = 10 order by i", [(1,), (2,)]),
        ("select i, rownum from t where rownum <= 2 and a is not null", [(1, 1), (2, 2)]),
        ("select count(*) from t where rownum < 2.5", [(2,)]),
        ("select o.k from other o join (t full join u on t.i = u.t_i) on o.a + 2 = u.i"
         " where t.i < 1.5 or o.k = u.t_i", []),
    ],
)  # fmt: skip
def test_a_query_has_one_answer(db: Connection, text: str, expected: list[tuple[Any, ...]]) -> None:
    assert rows(db, text) == expected


def test_a_root_of_an_integer_is_a_double_with_and_without_an_index(db: Connection) -> None:
    ((root,),) = rows(db, "select sqrt(a) from t where a = 10")
    assert isinstance(root, float)
    assert root == pytest.approx(10**0.5)
    assert rows(db, "select i from t where sqrt(abs(a)) > 4 order by i") == [(2,), (4,)]


@pytest.mark.parametrize(
    ("condition", "parameter", "expected"),
    [
        ("a = ?", 20, [2, 4]),
        ("a = ?", 20.0, [2, 4]),
        ("a = ?", Decimal("20"), [2, 4]),
        ("a = ?", Decimal("20.0"), [2, 4]),
        ("a = ?", 20.5, []),
        ("a = ?", 2**40, []),
        ("a = ?", 2**70, []),
        ("a = ?", -(2**40), []),
        ("a = ?", "20", [2, 4]),
        ("a = ?", None, []),
        ("a < ?", 2**40, [1, 2, 4]),
        ("a < ?", 10.5, [1]),
        ("a >= ?", Decimal("19.99"), [2, 4]),
        ("a > ?", -1e300, [1, 2, 4]),
        ("a > ?", float("nan"), []),
        ("a < ?", float("nan"), [1, 2, 4]),
        ("a < ?", float("inf"), [1, 2, 4]),
        ("a in (?, 11)", 10.0, [1]),
        ("a between ? and 15", 9.5, [1]),
        ("i = ?", 1.0, [1]),
        ("i = ?", Decimal("1"), [1]),
        ("i = ?", 2**40, []),
        ("amount = ?", 10, [1]),
        ("amount = ?", Decimal("10.000"), [1]),
        ("amount = ?", Decimal("10.001"), []),
        ("amount = ?", 10.0, [1]),
        ("amount > ?", Decimal("1e30"), []),
        ("x = ?", 2, [1]),
        ("x = ?", Decimal("-0.5"), [2]),
        ("c = ?", "ab", [1]),
        ("c = ?", "ab    ", [1]),
        ("c = ?", "abcde", []),
        ("day = ?", date(2024, 2, 29), [4]),
        ("day = ?", datetime(2024, 2, 29), [4]),
        ("day = ?", datetime(2024, 2, 29, 12), []),
        ("day < ?", datetime(2024, 2, 29, 12), [2, 4]),
        ("day = ?", "2024-02-29", [4]),
    ],
)
def test_a_parameter_means_what_its_value_means_written_out(
    db: Connection, condition: str, parameter: Any, expected: list[int]
) -> None:
    assert [i for (i,) in rows(db, f"select i from t where {condition} order by i", (parameter,))] == expected


@pytest.mark.parametrize("value", ["1", "1.0", "1e0::double precision", "1::bigint", "'1'"])
def test_a_key_is_found_by_any_number_that_equals_it(db: Connection, value: str) -> None:
    assert rows(db, f"select a from t where i = {value}") == [(10,)]
    assert rows(db, f"select a from other where k = {value}") == [(1,)]


@pytest.mark.parametrize(
    ("text", "parameters", "expected"),
    [
        ("select date_trunc(?, ts) from t where i = 1", ("month",), datetime(2024, 5, 1)),
        ("select ?::int", ("7",), 7),
        ("select ?::int", (7.5,), 8),
        ("select ?::numeric(5,1)", ("7.25",), Decimal("7.3")),
        ("select - ?", (5,), -5),
        ("select abs(?)", (Decimal("-1.5"),), Decimal("1.5")),
        ("select ? + 1", (2**40,), 2**40 + 1),
        ("select ? || s from t where i = 1", ("a ",), "a one"),
        ("select ?", ("text",), "text"),
        ("select ?", (None,), None),
        ("select ? || 'x'", (5,), "5x"),
        ("select 7 / ?", (2,), 3),
        ("select 7 / ?", (2.0,), 3.5),
        ("select round(?, 1)", (Decimal("2.25"),), Decimal("2.3")),
        ("select coalesce(?, 5)", (None,), 5),
        ("select extract(year from ?)", (date(2024, 1, 1),), Decimal(2024)),
    ],
)
def test_parameters_may_stand_wherever_values_may(
    db: Connection, text: str, parameters: tuple[Any, ...], expected: Any
) -> None:
    ((value,),) = rows(db, text, parameters)
    assert (value, type(value)) == (expected, type(expected))


def test_a_quotient_of_decimals_is_the_same_as_rows_and_as_arrow(db: Connection) -> None:
    text = "select amount / 3 from t where i = 1"
    assert rows(db, text) == [(Decimal("3.3333333333333333"),)]
    table = db.execute(text).arrow()
    assert table.column(0).to_pylist() == [Decimal("3.3333333333333333")]
    assert str(table.schema.field(0).type) == "decimal128(38, 16)"


@pytest.mark.parametrize(
    ("text", "digits"),
    [
        ("amount + 1", 2), ("amount * amount", 4), ("amount * 2", 2), ("amount / 4", 16), ("avg(amount)", 16),
        ("sum(amount)", 2), ("sqrt(amount + 100)", 16), ("round(amount, 1)", 1), ("round(amount)", 0),
        ("a::numeric", 0), ("x::numeric", 16), ("coalesce(amount, 1.555)", 3), ("extract(year from ts)", 0),
        ("extract(second from ts)", 6), ("1.50 + amount", 2), ("sum(amount * 1.000)", 5),
    ],
)  # fmt: skip
def test_a_decimal_has_the_digits_that_its_type_says(db: Connection, text: str, digits: int) -> None:
    for (value,) in rows(db, f"select {text} from t where i = 2"):
        assert value.as_tuple().exponent == -digits


@pytest.mark.parametrize(
    "text",
    [
        "select cast(? as bytea)", "select cast(? as char(3))", "select md5(?)", "select octet_length(?)",
        "update t set s = upper(?)",
    ],
)  # fmt: skip
def test_a_parameter_that_is_no_text_is_refused(db: Connection, text: str) -> None:
    with pytest.raises(errors.DataError, match="UTF-8"):
        db.execute(text, ("\ud800",))


def test_changes_take_the_same_rows_as_queries(db: Connection) -> None:
    assert db.execute("update t set a = a + 1 where exists (select 1 from u where u.t_i = t.i and n > 1)").rowcount == 2
    assert rows(db, "select i from t where a in (11, 21) order by i") == [(1,), (4,)]
    assert db.execute("update t set a = u.n from u where u.t_i = t.i and u.n > 2").rowcount == 1
    assert rows(db, "select a from t where i = 4") == [(3,)]
    assert db.execute("delete from t using u where u.t_i = t.i and u.n < 1 returning t.i").fetchall() == [(1,)]
    assert db.execute("delete from t where i in (select t_i from u)").rowcount == 1
    assert rows(db, "select i from t order by i") == [(2,), (3,)]


def test_a_char_comes_back_padded_from_returning_as_from_the_table(db: Connection) -> None:
    assert rows(db, "insert into t (i, c) values (9, 'ab') returning c") == [("ab  ",)]
    assert rows(db, "update t set c = 'x' where i = 9 returning c") == [("x   ",)]
    assert rows(db, "select c from t where i = 9") == [("x   ",)]


# ---- the same errors everywhere


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("select a / b from t", errors.DivisionByZero),
        ("select i from t where a / b > 1", errors.DivisionByZero),
        ("select w % (d - 2) from t where i = 1", errors.DivisionByZero),
        ("select i + 2147483647 from t", errors.ValueOutOfRange),
        ("select sqrt(x) from t where i = 2", errors.UndefinedResult),
        ("select x * 1e300 * 1e300 from t where i = 4", errors.ValueOutOfRange),
        ("select s::int from t where i = 1", errors.InvalidText),
        ("select (select n from u) from t", errors.SubqueryTooManyRows),
        ("select day + 10000000 from t where i = 1", errors.ValueOutOfRange),
        ("select (1e37::numeric(38,0)) * 100", errors.ValueOutOfRange),
        ("select nosuch(i) from t", errors.NoSuchFunction),
        ("select s + 1 from t", errors.DatabaseError),
        ("select '\ud800'", errors.TypeMismatch),
    ],
)
def test_an_error_is_the_same_in_every_way(db: Connection, text: str, error: type[errors.Error]) -> None:
    with pytest.raises(error):
        rows(db, text)


# ---- nothing is passed over


REFUSED = (
    "select i from t not indexed",
    "update t as x not indexed set a = 1",
    "delete from t as 1",
    "select a from t as 1",
    "alter table t add column z int constraint order by default 3",
    "create table n (i int, j int unique (i))",
    "select a from t window w",
    "(select a from t window w as x) except select 1",
    "select * from t as a left cross join u",
    "select * from t as a left inner join u on true",
    "select * from t as a outer join u on true",
    "select * from t fetch",
    "create table n (check int)",
    "create table unique (i int)",
    "create table n (i int constraint unique generated by default as identity)",
    "create index both on t (a)",
    "alter table t add constraint null check (i > 0)",
    "alter table t rename a to primary",
    "select count(*) over only from t window only as (order by i)",
    "delete from t limit 1",
    "delete from t join u on u.t_i = t.i",
    "delete from t order by i",
    "update t set a = 1 limit 1",
    "update t set a = 1 order by i limit 1",
    "update t join u on u.t_i = t.i set a = 1",
    "alter table t rename a to",
    "alter table t rename constraint a to b",
    "begin deferrable",
    "insert or replace into t (i) values (1)",
    "insert or ignore into t (i) values (1)",
    "replace into t (i) values (1)",
    "insert ignore into t (i) values (1)",
    "insert into t (i) values (9) on duplicate key update a = 1",
    "create index n on t (i) nulls not distinct",
    "create table n (i int unique deferrable initially deferred)",
    "create table n (i int primary key not deferrable initially deferred)",
    "create table n (i int) on commit drop",
    "create unlogged table n (i int)",
    "create table n (i int) partition by range (i)",
    "create table n (i int collate nocase)",
    "create table n (like t)",
    "create table n (i numeric)",
    "create table n (i int) with (fillfactor = 70)",
    "create table n (i int auto_increment)",
    "create table n (i int comment 'x')",
    "create table n (s varchar(5) character set latin1)",
    "create index n on t using gin (a)",
    "select a, count(*) from t group by a with rollup",
    "select a, count(*) from t group by a with totals",
    "select * from t pivot (sum(a) for s in ('one'))",
    "select * from t for system_time as of now()",
    "select * from t limit 10 percent",
    "select * from t fetch first 10 percent rows only",
    "select * from t order by a fetch first 1 row with ties",
    "select top 1 * from t",
    "select * from t for update of nosuch",
    "select * from t tablesample bernoulli (10)",
    "select * from t use index (by_0)",
    "select * from t qualify row_number() over (order by i) = 1",
    "select sql_calc_found_rows * from t",
    "select straight_join * from t",
    "select i into n from t",
    "select * from t sort by i",
    "select * from t cluster by i",
    "select * from t distribute by i",
    "select * from t limit 1 by i",
    "select * from t limit 1 settings max_threads = 1",
    "select * from t connect by prior i = a",
    "select count(a ignore nulls) from t",
    "select first_value(a) ignore nulls over (order by i) from t",
    "select * from t asof join u on t.i = u.i",
    "select * from t global join u on t.i = u.i",
    "select * from t lateral view explode(a) x as y",
    "with recursive r (n) as (select 1 union all select n + 1 from r where n < 3) cycle n set is_cycle using path"
    " select n from r",
    "with recursive r (n) as (select 1 union all select n + 1 from r where n < 3) search depth first by n set o"
    " select n from r",
    "select listagg(s, ',' on overflow truncate) within group (order by s) from t",
    "select * exclude (a) from t",
    "select * replace (1 as a) from t",
    "select cast(s as int format 'x') from t",
    "select try_cast(s as int) from t",
    "explain (format json) select 1",
    "commit and chain",
    "rollback and no chain",
    "analyze verbose t",
    "select * from t where i = 1 for update nowait skip locked",
)  # fmt: skip


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    with gmdb.connect(tmp_path_factory.mktemp("refused") / "d.gmdb") as connection:
        fill(connection)
        connection.commit()
        yield connection


def run_whole(db: Connection, text: str) -> None:
    """Without fetchall where there are no rows: that is an error, too."""
    cursor = db.execute(text)
    if cursor.description:
        cursor.fetchall()


@pytest.mark.parametrize("text", REFUSED)
def test_a_part_that_gmdb_does_not_know_is_refused(shared: Connection, text: str) -> None:
    before = shared.tables(), shared.execute("select * from t order by i").fetchall()
    try:
        with pytest.raises((errors.ProgrammingError, errors.NotSupportedError)):
            run_whole(shared, text)
        assert (shared.tables(), shared.execute("select * from t order by i").fetchall()) == before
    finally:
        shared.rollback()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("delete from t limit 1", "LIMIT"),
        ("select * from t for update of nosuch", "nosuch"),
        ("create table n (i numeric)", r"numeric\(p, s\)"),
    ],
)
def test_a_refusal_names_what_it_refuses_and_its_place(shared: Connection, text: str, word: str) -> None:
    with pytest.raises(errors.Error, match=f"(?i){word}") as caught:
        shared.execute(text)
    assert "line 1" in str(caught.value)


def test_a_column_is_renamed_and_its_table_keeps_its_name(shared: Connection) -> None:
    shared.execute("alter table u rename t_i to renamed")
    assert shared.execute("select renamed from u where i = 3").fetchall() == [(4,)]
    shared.rollback()
    assert shared.execute("select t_i from u where i = 3").fetchall() == [(4,)]


def test_what_stands_behind_a_value_in_coalesce_is_not_evaluated(db: Connection) -> None:
    """DuckDB takes what a macro repeats out of the coalesce around it."""
    text = "select coalesce('a', split_part('x', substring('xyz' from 8 for -?), 2)) from generate_series(1, 2)"
    assert rows(db, text, (2,)) == [("a",), ("a",)]
