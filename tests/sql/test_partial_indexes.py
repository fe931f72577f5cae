"""Partial indexes: which rows they have, which queries use them, and what else goes by them."""

from __future__ import annotations

import random
from contextlib import suppress
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InvalidSyntax, SchemaError, UniqueViolation, UnsupportedExpression
from tests.access.trees import check_tree
from tests.integrity import assert_sound
from tests.searches import extent
from tests.sql.test_planning import plan

COLUMNS = {
    "k": "int not null",
    "i": "int",
    "b": "bigint",
    "n": "decimal(9,2)",
    "w": "decimal(30,4)",
    "x": "double precision",
    "s": "varchar(20)",
    "u": "varchar(12)",
    "c": "char(4)",
    "d": "date",
    "t": "timestamp",
    "f": "boolean",
    "y": "varbinary(8)",
}
VALUES: dict[str, list[Any]] = {
    "i": [-3, 0, 1, 2, 2**31 - 1],
    "b": [-(2**40), 0, 1, 2, 2**50],
    "n": [Decimal("-1.50"), Decimal("0.00"), Decimal("1.00"), Decimal("2.25")],
    "w": [Decimal("-1.5000"), Decimal("0.0000"), Decimal(10**20), Decimal("2.2500")],
    "x": [-1.5, 0.0, -0.0, 2.25, float("inf"), float("nan")],
    "s": ["", "a", "ab", "b", "ä", "open"],
    "u": ["", "a", "ab", "b", "open"],
    "c": ["a", "ab", "b"],
    "d": [date(2020, 1, 1), date(2020, 2, 29), date(1, 1, 1)],
    "t": [datetime(2020, 1, 1), datetime(2020, 2, 29, 12, 30), datetime(9999, 12, 31)],
    "f": [True, False],
    "y": [b"", b"a", b"\0", b"ab"],
}
LITERALS = {
    "i": ["1", "0", "1.5", "-3", "3000000000", "null"],
    "b": ["1", "0", "1.5", "99999999999999999999", "-1099511627776"],
    "n": ["1", "1.005", "2.25", "-1.5", "12345678901"],
    "w": ["0", "2.25", "100000000000000000000"],
    "x": ["0.0::double precision", "2.25::double precision", "'NaN'::double precision", "'inf'::double precision"],
    "s": ["'a'", "'ab'", "''", "'open'"],
    "u": ["'a'", "'b'"],
    "d": ["date '2020-01-01'", "timestamp '2020-02-29 12:00:00'", "date '2020-02-29'"],
    "t": ["date '2020-01-01'", "timestamp '2020-02-29 12:30:00'"],
    "y": ["'\\x61'::bytea", "''::bytea"],
}
SIGNS = ("=", "<>", "<", "<=", ">", ">=")


def a_row(chance: random.Random, key: int) -> list[Any]:
    return [key, *(None if chance.random() < 0.2 else chance.choice(values) for values in VALUES.values())]


def a_condition(chance: random.Random, depth: int = 0) -> str:
    kind = chance.random()
    if depth < 3 and kind < 0.35:
        parts = [a_condition(chance, depth + 1) for _ in range(chance.randrange(2, 4))]
        return "(" + chance.choice((" and ", " or ")).join(parts) + ")"
    if depth < 3 and kind < 0.45:
        asked = chance.choice(("not {}", "{} is true", "{} is not true", "{} is false", "{} is unknown"))
        return "(" + asked.format(a_condition(chance, depth + 1)) + ")"
    if kind < 0.6:
        return f"{chance.choice(list(VALUES))} is {chance.choice(('', 'not '))}null"
    if kind < 0.65:
        return chance.choice(("f", "not f", "s < u", "u = s", "c = 'ab'", "c <> 'a'", "true", "f = true"))
    column = chance.choice(list(LITERALS))
    if kind < 0.75:
        some = chance.sample(LITERALS[column], 2)
        return chance.choice((f"{column} in ({', '.join(some)})", f"{column} between {some[0]} and {some[1]}"))
    sides = [column, chance.choice(LITERALS[column])]
    return chance.choice(SIGNS).join(sides if chance.random() < 0.7 else sides[::-1])


def fill(db: Connection, rows: int, chance: random.Random, table: str = "t") -> None:
    db.execute(f"create table {table} ({', '.join(f'{name} {type_}' for name, type_ in COLUMNS.items())})")
    db.executemany(
        f"insert into {table} values ({', '.join('?' * len(COLUMNS))})", [a_row(chance, n) for n in range(rows)]
    )
    db.commit()


@pytest.mark.search
def test_kernels_decide_as_sql_does_which_rows_have_entries(db: Connection) -> None:
    chance = random.Random(4)
    fill(db, 200, chance)
    for n in range(extent(40, 600)):
        condition = a_condition(chance)
        expected = sorted(k for (k,) in db.execute(f"select k from t where {condition}"))
        try:
            db.execute(f"create index by_k on t (k) where {condition}")
        except UnsupportedExpression:
            assert "0.0::" in condition or "date '" in condition or "bytea" in condition or "'" in condition, condition
            continue
        found = [row[0] for _, row in db.heap("t").by("by_k").range()]
        assert found == expected, f"{n}: {condition}"
        db.rollback()


# ---- which queries use them


@pytest.fixture
def orders(db: Connection) -> Connection:
    db.execute(
        "create table orders (id int primary key, status varchar(10), amount decimal(9,2), due date, a int, b int)"
    )
    chance = random.Random(2)
    rows = [
        (n, chance.choice(("open", "done", None)), chance.randrange(500), date(2024, 1, 1 + n % 28), n % 10, n % 4)
        for n in range(600)
    ]
    db.executemany("insert into orders values (?, ?, ?, ?, ?, ?)", rows)
    db.commit()
    return db


USED = {
    "status = 'open'": [
        "status = 'open'",
        "'open' = status and id > 3",
        "status in ('open')",
    ],
    "amount > 100": [
        "amount > 100",
        "amount >= 100.01",
        "amount = 300",
        "amount in (200, 300)",
        "amount between 150 and 170",
    ],
    "due is not null": [
        "due = date '2024-01-03'",
        "due > date '2024-01-20'",
        "due is not null",
        "due in ('2024-01-01')",
    ],
    "status in ('open', 'done')": [
        "status = 'done'",
        "status in ('done', 'open')",
        "status = 'open' or status = 'done'",
    ],
    "a < b": ["a < b", "b > a and id < 100"],
    "amount > 100 and status = 'open' or a = 3": ["a = 3", "status = 'open' and amount > 200", "a = 3 and b = 1"],
    "status is null": ["status is null"],
    "a <> 3": ["a = 4", "a > 3", "a <> 3", "a < 3"],
    "due >= date '2024-01-20'": ["due > timestamp '2024-01-20 12:00:00'", "due = date '2024-01-21'"],
}
NOT_USED = {
    "status = 'open'": ["status = 'done'", "status = 'open' or a = 1", "status is not null", "upper(status) = 'OPEN'"],
    "amount > 100": ["amount >= 100", "amount < 300", "amount in (50, 300)", "amount <> 3", "amount > 99.99"],
    "due is not null": ["due is null", "due > date '2024-01-20' or id = 3", "id > 3"],
    "status in ('open', 'done')": ["status <> 'x'", "status in ('open', 'x')"],
    "a < b": ["a <= b", "b < a", "a < 3"],
    "amount > 100 and status = 'open' or a = 3": ["amount > 200", "status = 'open' and amount > 50"],
    "a <> 3": ["a >= 3", "a is null", "a in (3, 4)"],
    "due >= date '2024-01-20'": ["due > timestamp '2024-01-19 12:00:00' and id < 0", "due > date '2024-01-18'"],
}


@pytest.mark.parametrize("condition", USED)
def test_a_query_uses_an_index_whose_condition_its_own_imply(orders: Connection, condition: str) -> None:
    queries = [f"select id from orders where {asked}" for asked in (*USED[condition], *NOT_USED.get(condition, ()))]
    before = [sorted(orders.execute(query)) for query in queries]
    orders.execute(f"create index partly on orders (b) where {condition}")
    orders.commit()
    for query, rows in zip(queries, before, strict=True):
        asked = query.removeprefix("select id from orders where ")
        first = f"select id from orders where ({asked}) order by b limit 1"
        assert ("index partly" in plan(orders, first)) == (asked in USED[condition]), query
        assert sorted(orders.execute(query)) == rows


def test_a_parameter_implies_nothing(orders: Connection) -> None:
    orders.execute("create index partly on orders (due) where status = 'open'")
    orders.commit()
    assert "index partly" not in plan(
        orders, "select id from orders where status = ? and due < ?", "open", date(2024, 1, 2)
    )
    query = "select id from orders where status = 'open' and due < ?"
    assert "index partly (due < ?1, where status = 'open')" in plan(orders, query, date(2024, 1, 2))


def test_joins_and_ends_go_by_a_partial_index(orders: Connection) -> None:
    queries = (
        "select o.id, p.id from orders o join orders p on p.a = o.id and p.status = 'open' where o.id in (3, 5)",
        "select min(a), max(a) from orders where status = 'open'",
        "select id from orders o where exists (select 1 from orders p where p.a = o.id and status = 'open') and id < 5",
    )
    before = [sorted(orders.execute(query)) for query in queries]
    orders.execute("create index partly on orders (a) where status = 'open'")
    orders.commit()
    for query, rows in zip(queries, before, strict=True):
        assert "index partly" in plan(orders, query), query
        assert sorted(orders.execute(query)) == rows


# ---- unique ones, and what goes by them


def test_a_key_is_unique_among_the_rows_of_the_condition(orders: Connection) -> None:
    orders.execute("create unique index one on orders (a, id) where status = 'open'")
    orders.execute("drop index one")
    orders.execute("update orders set status = 'done'")
    orders.execute("create unique index one on orders (a) where status = 'open'")
    orders.execute("update orders set status = 'open' where id = 13")
    with pytest.raises(UniqueViolation, match=r"index one \(a\)"):
        orders.execute("update orders set status = 'open' where id = 23")
    with pytest.raises(UniqueViolation):
        orders.execute("insert into orders (id, status, a) values (1000, 'open', 3)")
    with pytest.raises(UniqueViolation):
        orders.heap("orders").insert((1000, "open", None, None, 3, 0))
    orders.execute(
        "insert into orders (id, status, a) values (1000, 'done', 3), (1001, 'open', null), (1002, 'open', null)"
    )
    orders.execute("update orders set status = 'done' where id = 13")
    orders.execute("update orders set status = 'open' where id = 1000")
    orders.commit()
    with pytest.raises(UniqueViolation, match="two rows have the same key"):
        orders.execute("create unique index two on orders (b) where status = 'done'")


def test_on_conflict_names_the_index_by_its_columns_and_a_condition(orders: Connection) -> None:
    orders.execute("update orders set status = 'done'")
    orders.execute("update orders set status = 'open' where id = 13")
    orders.execute("create unique index one on orders (a) where status = 'open'")
    insert = "insert into orders (id, status, a) values (2000, 'open', 3) on conflict (a)"
    orders.execute(f"{insert} where status = 'open' do update set b = 99")
    assert orders.execute("select id from orders where b = 99").fetchall() == [(13,)]
    assert orders.execute(f"{insert} where status = 'open' and id > 0 do nothing").rowcount == 0
    for wrong in ("do nothing", "where status = 'done' do nothing", "where id = 3 do nothing"):
        with pytest.raises(SchemaError, match="no unique index"):
            orders.execute(f"{insert} {wrong}")
    with pytest.raises(InvalidSyntax, match="no constraint"):
        orders.execute("insert into orders (id) values (1) on conflict on constraint one do nothing")
    assert (
        orders.execute("insert into orders (id, status, a) values (2000, 'open', 3) on conflict do nothing").rowcount
        == 0
    )


# ---- definitions


@pytest.mark.parametrize(
    "condition",
    [
        "lower(status) = 'x'", "a + 1 > 2", "a > 1.5::double precision", "due < now()", "a = (select 1)", "a = ?",
        "id in (select 1)", "status like 'o%'", "random() < 0.5::double precision", "nothing = 1", "count(*) > 1", "a",
        "id::text = '1'", " or ".join(f"status = 'status {n}'" for n in range(80)),
    ],
)  # fmt: skip
def test_a_condition_that_kernels_cannot_evaluate_is_refused(orders: Connection, condition: str) -> None:
    with pytest.raises(gmdb.ProgrammingError):
        orders.execute(f"create index partly on orders (a) where {condition}")
    assert [index.name for index in orders.table("orders").indexes] == ["orders_pkey"]
    with pytest.raises(gmdb.ProgrammingError):
        orders.execute("create index partly on orders (a) where nothing = 1")


def test_a_condition_follows_a_column_that_is_renamed(orders: Connection) -> None:
    orders.execute("create index partly on orders (due) where status = 'open' and a is not null")
    orders.execute('alter table orders rename column status to "State"')
    orders.commit()
    (_, index) = orders.table("orders").indexes
    assert index.condition == "\"State\" = 'open' AND a IS NOT NULL"
    assert "index partly" in plan(
        orders, "select id from orders where \"State\" = 'open' and a = 3 and due < '2024-01-02'"
    )
    orders.rename_column("orders", "State", "status")  # without a word about the condition: it is not used any more
    orders.commit()
    assert "index partly" not in plan(
        orders, "select id from orders where status = 'open' and a = 3 and due < '2024-01-02'"
    )
    orders.execute("insert into orders (id, status, a) values (5000, 'open', 1)")
    orders.execute('alter table orders rename column status to "State"')


def test_a_partial_index_outlives_truncation_rollbacks_and_its_process(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (k int, s varchar(10))")
        db.execute("create unique index partly on t (k) where s <> 'x'")
        db.commit()
        db.execute("insert into t values (1, 'x'), (1, 'x'), (2, 'a')")
        db.execute("truncate table t")
        db.execute("insert into t values (1, 'x'), (1, 'x'), (3, 'a'), (4, null)")
        db.execute("savepoint before")
        db.execute("update t set s = 'y' where k = 4")
        db.execute("rollback to before")
    with gmdb.connect(path) as db:
        assert [row for _, row in db.heap("t").by("partly").range()] == [(3, "a")]
        with pytest.raises(UniqueViolation):
            db.execute("update t set s = 'y' where k = 1")
        db.execute("create table u as select * from t")
    assert_sound(path)


def test_an_index_built_beside_writers_has_what_they_did(path: Path) -> None:
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.execute("create table t (k int, s varchar(10))")
        db.executemany("insert into t values (?, ?)", [(n, "ab"[n % 2]) for n in range(3000)])
        db.commit()
        db.autocommit = True
        db.execute("create index concurrently partly on t (k) where s = 'b'")
        other.execute("update t set s = 'b' where k < 10")
        other.commit()
        expected = [row for row in db.execute("select k from t where s = 'b' order by k")]
        assert [(row[0],) for _, row in db.heap("t").by("partly").range()] == expected
    assert_sound(path)


# ---- every way in which rows change


class Model:
    """A table with partial indexes, changed in every way there is, beside the rows that it should have."""

    INDEXES = (
        "index open_n on t (n, k) where s = 'open'",
        "index only_f on t using hash (i) where f and i is not null",
        "index late on t (d desc, t) include (s) where d > date '2020-01-15' or b < 0",
        "unique index one_u on t (u) where f = false and x is not null",
    )

    def __init__(self, db: Connection, chance: random.Random) -> None:
        self.db, self.chance = db, chance
        self.key = 1000
        fill(db, 150, chance)
        db.execute("alter table t add primary key (k)")
        db.execute("update t set u = k::text")
        for index in self.INDEXES:
            db.execute(f"create {index}")
        db.commit()

    def change(self) -> None:
        db, chance = self.db, self.chance
        heap = db.heap("t")
        row_ids = [row_id for row_id, _ in heap.rows()]
        row_id = chance.choice(row_ids)
        self.key += 1
        column = chance.choice(list(VALUES))
        value = chance.choice((None, *VALUES[column]))
        ways = (
            lambda: heap.insert(a_row(chance, self.key)),
            lambda: heap.update(row_id, {column: value}),
            lambda: heap.delete(row_id),
            lambda: db.execute(f"update t set {column} = ? where k % 5 = ?", (value, chance.randrange(5))),
            lambda: db.execute("update t set s = u, u = s where k < ?", (chance.randrange(100),)),
            lambda: db.execute("delete from t where k = ?", (chance.randrange(150),)),
            lambda: db.execute("insert into t (k, s, f, i) values (?, 'open', true, 5)", (self.key,)),
            lambda: db.append("t", self.batch(db, 20)),
            lambda: db.executemany(
                f"insert into t values ({', '.join('?' * len(COLUMNS))})",
                [a_row(chance, self.key + n) for n in range(30)],
            ),
            lambda: db.execute("insert into t select k + 5000, i, b, n, w, x, s, null, c, d, t, f, y from t limit 3"),
        )
        how = chance.randrange(len(ways) + 2)
        if how < len(ways):
            with suppress(UniqueViolation):
                ways[how]()
        elif how == len(ways):
            db.commit()
        else:
            db.rollback()
        self.key += 30

    def batch(self, db: Connection, count: int) -> pa.Table:
        schema = db.arrow("t").schema
        rows = [a_row(self.chance, self.key + n) for n in range(count)]
        pad = [(*row[:8], row[8] and row[8].ljust(4), *row[9:]) for row in rows]
        return pa.table(
            [pa.array(values, f.type) for values, f in zip(zip(*pad, strict=True), schema, strict=True)], schema
        )

    def check(self) -> None:
        heap = self.db.heap("t")
        for index in heap.indexes:
            where = f" where {index.condition}" if index.condition else ""
            self.db._statements.executor = "duckdb"  # type: ignore[attr-defined]
            expected = sorted(k for (k,) in self.db.execute(f"select k from (select * from t offset 0) as t{where}"))
            self.db._statements.executor = None  # type: ignore[attr-defined]
            keyed = heap.by(index.name)
            if index.using == "hash":
                found = sorted(row[0] for _, row in heap.rows_at([row_id for _, row_id in keyed.tree.walk()]))
            else:
                found = sorted(row[0] for _, row in keyed.range())
            assert found == expected, index.name
            if index.using == "btree":
                check_tree(heap.by(index.name).tree)  # type: ignore[arg-type]


@pytest.mark.search
@pytest.mark.parametrize("seed", range(extent(2, 20)))
def test_indexes_are_right_however_rows_change(path: Path, seed: int) -> None:
    with gmdb.connect(path) as db:
        model = Model(db, random.Random(seed))
        for _ in range(60):
            model.change()
        db.commit()
        model.check()
    assert_sound(path)
