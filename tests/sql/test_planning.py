"""Plans: which way a query takes, and that it finds the same rows whichever it takes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from datetime import date, datetime
from decimal import Decimal
from typing import Any

import pytest

from gmdb import errors
from gmdb.database.connection import Connection
from gmdb.format.columns import ColumnType
from gmdb.sql.plan.paths import Bound, Path, Span, equal_key, high_end, low_end
from gmdb.sql.tree import Constant

INT = ColumnType("INT")
ORDERS, CUSTOMERS = 300, 30


@pytest.fixture
def shop(db: Connection) -> Connection:
    """Orders of customers, with items."""
    db.execute("create table customers (id int primary key, name varchar(20), region int)")
    db.execute(
        "create table orders (id int primary key, customer int, day date, total decimal(10, 2), note varchar(9))"
    )
    db.execute("create table items (id int primary key, order_id int not null, quantity int)")
    db.execute("create index items_order on items (order_id)")
    db.execute("create index orders_customer on orders (customer, day)")
    db.executemany("insert into customers values (?, ?, ?)", [(n, f"c{n}", n % 5) for n in range(CUSTOMERS)])
    rows = [(n, n % CUSTOMERS if n % 7 else None, date(2024, 1, 1 + n % 28), n, f"n{n}") for n in range(ORDERS)]
    db.executemany("insert into orders values (?, ?, ?, ?, ?)", rows)
    db.executemany("insert into items values (?, ?, ?)", [(n, n // 3, n % 7) for n in range(3 * ORDERS)])
    return db


def plan(db: Connection, query: str, *parameters: Any) -> str:
    return "\n".join(line for (line,) in db.execute("explain " + query, parameters))


def every_way(db: Connection, query: str, *parameters: Any) -> list[tuple[Any, ...]]:
    """The rows, which must be the same in each executor."""
    statements: Any = db._statements
    found = []
    for executor in (None, "rows", "duck"):
        statements.executor = executor
        found.append(sorted(db.execute(query, parameters).fetchall(), key=repr))
    statements.executor = None
    assert found[0] == found[1] == found[2]
    return found[0]


# ---- the values of keys

COLUMNS: dict[ColumnType, list[Any]] = {
    INT: [-(2**31), -3, -1, 0, 1, 2, 5, 2**31 - 1],
    ColumnType("BIGINT"): [-(2**63), -(2**53) - 1, 0, 2**53 - 1, 2**53, 2**53 + 1, 2**53 + 2, 2**63 - 1024, 2**63 - 1],
    ColumnType("DECIMAL", 5, 2): [Decimal(n) / 100 for n in (-99999, -151, -150, -149, 0, 1, 100, 150, 99999)],
    ColumnType("DATE"): [date(1, 1, 1), date(2020, 1, 1), date(2020, 1, 2), date(2020, 1, 3), date(9999, 12, 31)],
    ColumnType("CHAR", 4): ["", "a", "a\x01", "ab", "ab\x01", "abc", "abcd", "b"],
    ColumnType("VARCHAR", 4): ["", "a", "a ", "a\x01", "ab", "abcd", "b", "ä"],
}
NUMBERS = [
    0, -1, 1.5, -1.5, -0.0, 1.0, Decimal("1.500"), Decimal("1.501"), 2**31, -(2**31) - 1, float(2**53), 2.0**63,
    -(2.0**63), 1e300, math.inf, -math.inf, math.nan, 2**63, Decimal(10) ** 37, 1.51, 1000.0, Decimal("999.991"),
]  # fmt: skip
TIMES = [datetime(2020, 1, 2), datetime(2020, 1, 2, 1), datetime(2020, 1, 1, 23, 59), datetime(9999, 12, 31, 1)]
TEXTS = ["a ", "abcde", "ab\x01", "abc", "zzzzz", "ab  "]
SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "=": operator.eq,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_true(type_: ColumnType, sign: str, own: Any, value: Any) -> bool:
    if type_.name == "DATE":
        value = value if isinstance(value, datetime) else datetime(value.year, value.month, value.day)
        own = datetime(own.year, own.month, own.day)
    if type_.name == "CHAR":
        value = value.rstrip(" ")
    if isinstance(value, float):
        own = float(own)
        if math.isnan(value):
            return sign in ("<", "<=")
    return SIGNS[sign](own, value)


def keys_in_range(type_: ColumnType, sign: str, value: Any) -> set[Any]:
    """Which of the column's values an index would be read for."""
    own = COLUMNS[type_]
    stored = (lambda key: key.ljust(4)) if type_.name == "CHAR" else (lambda key: key)
    if sign == "=":
        key = equal_key(type_, value)
        return {one for one in own if key is not None and stored(one) == stored(key)}
    end = (low_end if sign[0] == ">" else high_end)(type_, value, len(sign) == 1)
    if end is None or end[0] is None:
        return set() if end is None else set(own)
    type_.encode(end[0])  # it can be a key
    key, is_open = stored(end[0]), end[1]
    beside = SIGNS[sign[0]]
    return {one for one in own if beside(stored(one), key) or (stored(one) == key and not is_open)}


@pytest.mark.parametrize("type_", COLUMNS, ids=str)
def test_a_range_of_keys_has_all_that_a_comparison_is_true_of(type_: ColumnType) -> None:
    values = TIMES if type_.name == "DATE" else TEXTS if type_.name in ("CHAR", "VARCHAR") else NUMBERS
    for value in [*values, *COLUMNS[type_]]:
        for sign in SIGNS:
            if sign == "=" and isinstance(value, float) and type_ != INT:
                continue  # several keys may be equal to it: it is taken as a range
            wanted = {own for own in COLUMNS[type_] if is_true(type_, sign, own, value)}
            got = keys_in_range(type_, sign, value)
            assert wanted <= got, (sign, value)
            if type_.name not in ("CHAR", "VARCHAR") and not isinstance(value, float):
                assert wanted == got, (sign, value)


def ranges(db: Connection, spans: list[Span]) -> list[tuple[Any, ...]]:
    table = db.table("items")
    path = Path(table.indexes[0], (table.columns[0],), tuple(spans))
    values = [[one.value for one in span.expressions()] for span in spans]  # type: ignore[attr-defined]
    return [(keys.low, keys.high, keys.low_open, keys.high_open) for keys in path.ranges(values)]


def test_ranges_of_a_path_are_in_order_and_do_not_overlap(shop: Connection) -> None:
    def between(low: int | None, high: int | None, is_open: bool = False) -> Span:
        ends = [None if end is None else Bound(Constant(INT, end), is_open) for end in (low, high)]
        return Span((), *ends)

    def same(value: int | None) -> Span:
        return Span((Constant(INT, value),))

    assert ranges(shop, [same(3), same(1), same(3), same(None)]) == [
        ((1,),) * 2 + (False,) * 2,
        ((3,),) * 2 + (False,) * 2,
    ]
    assert ranges(shop, [between(5, 9), between(1, 3), between(2, 4)]) == [
        ((1,), (4,), False, False),
        ((5,), (9,), False, False),
    ]
    assert ranges(shop, [between(None, 4), between(4, None, True), same(4)]) == [((), (), False, False)]
    assert ranges(shop, [between(1, 3, True), between(3, 5, True)]) == [
        ((1,), (3,), True, True),
        ((3,), (5,), True, True),
    ]
    assert ranges(shop, [between(7, 3)]) == []


# ---- paths


@pytest.mark.parametrize(
    ("condition", "said"),
    [
        ("id = 5", "one row of orders by index orders_pkey (id = 5)"),
        ("5.0 = id", "one row of orders by index orders_pkey (id = 5.0)"),
        ("id in (3, 1, 3)", "3 ranges of id"),
        ("id between 3 and 7", "(id >= 3, id <= 7)"),
        ("customer = 3 and day > date '2024-01-09'", "(customer = 3, day > '2024-01-09')"),
        ("customer = 3 and (day = date '2024-01-04' or day > date '2024-01-20')", "2 ranges of customer, day"),
        ("(customer = 1 and total > 3) or customer = 2", "2 ranges of customer, day"),
        ("id = (select max(id) from items where id < 100)", "one row of orders by index orders_pkey (id = (query))"),
        ("note = 'n3' or id = 3", "scan of orders"),
        ("id + 0 = 3", "scan of orders"),
    ],
)
def test_a_condition_becomes_ranges_of_an_index(shop: Connection, condition: str, said: str) -> None:
    query = f"select id from orders where {condition}"
    assert said in plan(shop, query)
    bare = f"select id from (select id, customer, day, total, note from orders limit 10000) as bare where {condition}"
    assert every_way(shop, query) == every_way(shop, bare)


@pytest.mark.parametrize("value", [5, 5.0, Decimal(5), Decimal("5.00"), "5"])
def test_a_key_is_found_by_any_type_of_number(shop: Connection, value: Any) -> None:
    query = "select note from orders where id = ?"
    assert "by index orders_pkey" in plan(shop, query, value)
    assert every_way(shop, query, value) == [("n5",)]


@pytest.mark.parametrize("value", [2**40, 5.5, Decimal("5.001"), None, 1e300, math.nan])
def test_no_row_has_a_key_that_its_column_cannot_hold(shop: Connection, value: Any) -> None:
    assert every_way(shop, "select note from orders where id = ?", value) == []


def test_a_limit_far_out_of_a_columns_range_lets_no_null_through(shop: Connection) -> None:
    found = every_way(shop, "select id from orders where customer <= ?", Decimal(2**40))
    assert len(found) == len(every_way(shop, "select id from orders where customer is not null"))


def test_rows_are_found_by_their_ids(shop: Connection) -> None:
    ((row_id,),) = shop.execute("select rowid from orders where id = 7").fetchall()
    assert "by row id" in plan(shop, "select id from orders where rowid = ?", row_id)
    assert every_way(shop, "select id from orders where rowid in (?, ?, '1:2')", row_id, row_id) == [(7,)]


def test_an_index_gives_rows_in_order(shop: Connection) -> None:
    backwards = "select id from orders order by id desc limit 3"
    assert "in order, backwards" in plan(shop, backwards)
    assert "sort" not in plan(shop, backwards)
    assert shop.execute(backwards).fetchall() == [(299,), (298,), (297,)]
    of_customer = "select day from orders where customer = 3 order by customer, day desc limit 2"
    assert "customer = 3, in order, backwards" in plan(shop, of_customer)
    every_way(shop, of_customer)
    assert "sort" in plan(shop, "select id from orders order by customer desc nulls last limit 2")


def test_joins_keep_the_order_of_an_index(shop: Connection) -> None:
    query = "select o.id, i.id from orders o join items i on i.order_id = o.id order by o.id desc limit 4"
    assert "sort" not in plan(shop, query)
    assert [row[0] for row in shop.execute(query)] == [299, 299, 299, 298]


def test_min_and_max_are_the_ends_of_an_index(shop: Connection) -> None:
    query = "select min(id), max(id) from orders"
    assert plan(shop, query).count("limit 1") == 2
    assert every_way(shop, query) == [(0, 299)]
    newest = "select max(day) from orders where customer = 4"
    assert "customer = 4, in order, backwards" in plan(shop, newest)
    assert every_way(shop, newest) == every_way(shop, "select max(day) from orders where customer + 0 = 4")
    assert every_way(shop, "select max(id) from orders where id < 0") == [(None,)]
    assert every_way(shop, "select max(customer), min(customer) from orders") == [(29, 0)]


# ---- joins and subqueries


def test_a_few_rows_are_joined_by_lookups(shop: Connection) -> None:
    query = (
        "select c.name, i.id from items i join orders o on o.id = i.order_id "
        "left join customers c on c.id = o.customer where i.id = 31"
    )
    said = plan(shop, query)
    assert said.count("join by lookups") == 2
    assert "scan" not in said
    assert every_way(shop, query) == [("c10", 31)]


def test_many_rows_are_joined_by_duckdb(shop: Connection) -> None:
    query = "select c.region, count(*) from orders o join customers c on c.id = o.customer group by c.region"
    assert plan(shop, query).startswith("by DuckDB")
    assert len(every_way(shop, query)) == 5


def test_what_is_quickly_found_is_handed_to_duckdb(shop: Connection) -> None:
    query = (
        "select o.id, row_number() over (order by i.id) from orders o join items i on i.order_id = o.id where o.id = 4"
    )
    said = plan(shop, query)
    assert said.startswith("by DuckDB")
    assert "found by rows one by one" in said
    assert every_way(shop, query) == [(4, 1), (4, 2), (4, 3)]


def test_in_begins_with_the_smaller_side(shop: Connection) -> None:
    query = (
        "select id from items where order_id in (select id from orders where customer = 3 and day < date '2024-02-02')"
    )
    said = plan(shop, query)
    assert "distinct" in said
    assert "items_order (order_id =" in said
    assert every_way(shop, query) == every_way(
        shop, "select i.id from items i, orders o where o.id = i.order_id and customer = 3"
    )


@pytest.mark.parametrize(
    ("condition", "way"),
    [
        ("exists (select 1 from items i where i.order_id = o.id and i.quantity = 3)", "join"),
        ("not exists (select 1 from items i where i.order_id = o.id and i.quantity = 3)", "anti join"),
        ("not exists (select 1 from items i where i.order_id = o.id and i.quantity = o.customer)", "anti join"),
        ("o.id in (select order_id from items where quantity = 2)", "join"),
        ("o.id not in (select order_id from items where quantity > 4)", "anti join"),
        ("o.customer not in (select quantity from items)", "filter"),  # with NULLs it is neither true nor false
        ("o.id not in (select customer from orders)", "filter"),
        ("o.id <> all (select order_id from items where id < 600)", "filter"),
        ("exists (select 1 from items i where i.order_id = o.id + 1) or o.id = 299", "filter"),
        ("(select count(*) from items i where i.order_id = o.id and i.quantity > 4) = 0", "filter"),
    ],
)
def test_a_subquery_finds_the_same_rows_as_a_join(shop: Connection, condition: str, way: str) -> None:
    query = f"select o.id from orders o where {condition}"
    assert way in plan(shop, query)
    rows = every_way(shop, query)
    one_by_one = []
    for key in range(0, ORDERS, 41):
        one_by_one += shop.execute(f"select o.id from orders o where o.id = ? and ({condition})", (key,)).fetchall()
    assert one_by_one == [row for row in sorted(rows) if row[0] % 41 == 0]


@pytest.mark.parametrize(
    ("condition", "kind"),
    [
        ("o.id = 8", "inner"),
        ("o.id is null", "left"),
        ("coalesce(o.id, 1) = 1", "left"),
        ("not (o.id is null)", "inner"),
        ("o.id = 8 or c.id = 1", "left"),
    ],
)
def test_an_outer_join_becomes_an_inner_one_if_no_missing_row_gets_through(
    shop: Connection, condition: str, kind: str
) -> None:
    query = (
        f"select c.id, o.id from customers c left join orders o on o.customer = c.id and o.id < 10 where {condition}"
    )
    assert f"{kind} join" in plan(shop, query)
    whole = every_way(shop, f"select * from ({query.replace(condition, 'true')} limit 9999) as s(c, o)")
    checks: dict[str, Callable[[int, int | None], bool]] = {
        "o.id = 8": lambda _, o: o == 8,
        "o.id is null": lambda _, o: o is None,
        "coalesce(o.id, 1) = 1": lambda _, o: o in (1, None),
        "not (o.id is null)": lambda _, o: o is not None,
        "o.id = 8 or c.id = 1": lambda c, o: o == 8 or c == 1,
    }
    assert every_way(shop, query) == [row for row in whole if checks[condition](*row)]


def test_a_correlated_in_by_two_columns_is_handed_to_duckdb_whole(shop: Connection) -> None:
    query = (
        "select c.id from customers c where c.region in "
        "(select i.quantity from items i where i.order_id = c.id and i.id in (0, 4, 40)) and {}"
    )
    assert every_way(shop, query.format("true")) == [(0,)]
    assert every_way(shop, query.format("c.id >= (select min(id) from orders)")) == [(0,)]


def test_a_change_finds_its_row_by_a_key_out_of_a_subquery(shop: Connection) -> None:
    shop.execute("update orders set note = 'last' where id = (select max(id) from orders)")
    assert shop.execute("select id from orders where note = 'last'").fetchall() == [(ORDERS - 1,)]


def test_conditions_go_below_groups_and_unions(shop: Connection) -> None:
    groups = "select * from (select customer, count(*) as n from orders group by customer) s where customer = 4"
    assert "orders_customer (customer = 4)" in plan(shop, groups)
    assert len(every_way(shop, groups)) == 1
    union = "select * from (select id from orders union all select id from items) s where id = 4"
    assert plan(shop, union).count("one row of") == 2
    assert every_way(shop, union) == [(4,), (4,)]
    counted = (
        "select * from (select id, row_number() over (partition by customer order by id) as n from orders) s where {}"
    )
    assert len(every_way(shop, counted.format("n = 1"))) == CUSTOMERS + 1
    limited = "select id from (select id from orders order by id limit 3) s where id > 1"
    assert every_way(shop, limited) == [(2,)]


def test_a_query_that_is_read_once_is_part_of_its_reader(shop: Connection) -> None:
    query = "with w as (select * from orders) select note from w where id = 4"
    assert "one row of orders" in plan(shop, query)
    assert "with" not in plan(shop, query)
    twice = "with w as (select id from orders where id < 3) select count(*) from w a, w b"
    assert "with w" in plan(shop, twice)
    assert every_way(shop, twice) == [(9,)]


def test_columns_that_nobody_asks_for_are_not_worked_out(shop: Connection) -> None:
    assert "window" not in plan(
        shop, "select id from (select id, rank() over (order by total) from orders) s where id = 3"
    )
    assert every_way(shop, "select count(*) from (select id, 1 / (id - id) as x from orders) s") == [(ORDERS,)]


# ---- errors


def test_a_condition_that_can_fail_is_asked_only_of_rows_that_meet_the_others(shop: Connection) -> None:
    safe = "select o.id from orders o join items i on i.order_id = o.id where 6 / o.customer = 3 and o.customer = 2"
    assert {row[0] % CUSTOMERS for row in every_way(shop, safe)} == {2}
    statements: Any = shop._statements
    for executor in ("rows", "duck"):
        statements.executor = executor
        with pytest.raises(errors.DivisionByZero):
            shop.execute("select id from orders where 6 / customer = 3").fetchall()


def test_a_constant_that_fails_within_a_join_fails_in_both_executors(shop: Connection) -> None:
    query = "select a.id, b.id from orders a join orders b on a.id = b.id + 1 where b.id < 3"
    assert "of all pairs" not in plan(shop, query)
    assert every_way(shop, query) == [(1, 0), (2, 1), (3, 2)]


# ---- what plans are kept for


def test_a_plan_is_for_the_types_of_its_parameters(shop: Connection) -> None:
    query = "select ? + 1"
    assert shop.execute(query, (1,)).fetchall() == [(2,)]
    assert shop.execute(query, (Decimal("1.5"),)).fetchall() == [(Decimal("2.5"),)]
    assert shop.execute(query, (2**40,)).fetchall() == [(2**40 + 1,)]
    with pytest.raises(errors.ValueOutOfRange):
        shop.execute(query, (2**31 - 1,)).fetchall()


def test_a_plan_is_made_again_when_an_index_comes_or_goes(shop: Connection) -> None:
    query = "select id from orders where note = 'n7'"
    assert "scan" in plan(shop, query)
    assert shop.execute(query).fetchall() == [(7,)]
    shop.execute("create index orders_note on orders (note)")
    assert "orders_note" in plan(shop, query)
    assert shop.execute(query).fetchall() == [(7,)]
    shop.execute("drop index orders_note")
    assert "scan" in plan(shop, query)
    assert shop.execute(query).fetchall() == [(7,)]


def test_a_plan_is_made_again_when_statistics_change(shop: Connection) -> None:
    shop.execute("create table flags (id int primary key, flag int)")
    shop.execute("create index flags_flag on flags (flag)")
    query = "select count(id) from flags where flag = 1"
    shop.execute(query)
    assert "flags_flag" in plan(shop, query)
    shop.executemany("insert into flags values (?, ?)", [(n, int(n > 0)) for n in range(3000)])
    shop.execute("analyze flags")
    assert "scan of flags" in plan(shop, query)
    assert shop.execute(query).fetchall() == [(2999,)]


def test_a_table_that_has_grown_is_scanned_in_another_way(shop: Connection) -> None:
    shop.execute("create table log (id int, line varchar(100))")
    query = "select count(*) from log where line = 'x'"
    assert plan(shop, query).startswith("by rows")
    assert shop.execute(query).fetchall() == [(0,)]
    shop.executemany("insert into log values (?, ?)", [(n, "x" * 100) for n in range(5000)])
    assert shop.execute(query).fetchall() == [(0,)]
    assert plan(shop, query).startswith("by DuckDB")


# ---- explaining, locking


def test_explain_analyze_tells_what_each_node_did(shop: Connection) -> None:
    query = "explain analyze select i.id from orders o join items i on i.order_id = o.id where o.id in (?, ?)"
    said = [line for (line,) in shop.execute(query, (1, 2))]
    assert said[0] == "by rows one by one"
    assert any("2 ranges of id" in line and "2 rows" in line for line in said)
    assert any("items_order" in line and "6 rows" in line and "2 times" in line for line in said)
    assert said[-1].startswith("6 rows in ")
    with pytest.raises(errors.ProgrammingError, match="parameters"):
        shop.execute(query)
    assert shop.execute("explain analyze select region, count(*) from customers group by region").fetchall()
    assert shop.execute(query.replace("analyze ", "")).fetchall()  # which needs no values


def test_explain_analyze_runs_changes(shop: Connection) -> None:
    said = [line for (line,) in shop.execute("explain analyze delete from items where order_id = 4")]
    assert said[-1] == "3 rows"
    assert shop.execute("select count(*) from items where order_id = 4").fetchall() == [(0,)]


def test_limit_counts_the_rows_that_are_locked(shop: Connection) -> None:
    shop.autocommit = False
    query = "select note from orders where customer = ? order by id desc limit ? offset 1 for update"
    assert shop.execute(query, (3, 2)).fetchall() == [("n213",), ("n183",)]
    assert shop.execute(query, (3, None)).fetchall()[-1] == ("n3",)
    with pytest.raises(errors.ValueOutOfRange):
        shop.execute(query, (3, -1))
    shop.commit()
    with pytest.raises(errors.NotSupportedError):
        shop.execute("select customer, count(*) from orders group by customer for update")


# ---- every way to join


def test_joins_of_many_tables_find_the_same_rows_in_any_order(shop: Connection) -> None:
    query = (
        "select c.id, o.id, i.id, d.id from customers c join orders o on o.customer = c.id "
        "left join items i on i.order_id = o.id and i.quantity = 2 join orders d on d.id = c.region "
        "where c.id in (select customer from orders where total > 200) and (i.id is null or i.id < 300) and o.id < 60 "
        "and not exists (select 1 from customers e where e.id = o.id and e.region = 1)"
    )
    rows = every_way(shop, query)
    expected = [
        (customer, order, item, customer % 5)
        for order in range(60)
        if order % 7 and not (order < CUSTOMERS and order % 5 == 1)
        for customer in [order % CUSTOMERS]
        if any(n % 7 and n % CUSTOMERS == customer for n in range(201, ORDERS))
        for item in [n for n in range(3 * order, 3 * order + 3) if n % 7 == 2] or [None]
        if item is None or item < 300
    ]
    assert rows == sorted(expected, key=repr)
