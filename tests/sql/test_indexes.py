"""Indexes as SQL makes them: their names, the order of their keys, what they only keep, and what uses them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InvalidSyntax, SchemaError, UniqueViolation, UnsupportedExpression
from gmdb.tables.access.indexes import Direction, KeyRange
from tests.access.trees import check_tree
from tests.integrity import assert_sound
from tests.sql.test_planning import plan


@pytest.fixture
def things(db: Connection) -> Connection:
    db.execute("create table things (a int, b int, name varchar(20), price decimal(9,2), k int not null)")
    chance = random.Random(1)
    rows = [(_some(chance, 9), _some(chance, 5), chance.choice("abcdef") if n % 9 else None, n, n) for n in range(400)]
    db.executemany("insert into things values (?, ?, ?, ?, ?)", rows)
    db.commit()
    return db


def _some(chance: random.Random, count: int) -> int | None:
    return chance.randrange(count) if chance.random() < 0.8 else None


def names(db: Connection, table: str = "things") -> list[str]:
    return [index.name for index in db.table(table).indexes]


# ---- names


def test_an_index_without_a_name_gets_that_of_postgresql(things: Connection) -> None:
    for text in ("(a)", "(a)", "(a, b desc)", "(a) include (k)"):
        things.execute(f"create index on things {text}")
    assert names(things) == ["things_a_idx", "things_a_idx1", "things_a_b_idx", "things_a_k_idx"]
    things.rollback()
    assert names(things) == []


def test_if_not_exists_goes_by_the_name_alone(things: Connection) -> None:
    things.execute("create table other (x int)")
    things.execute("create index by_x on other (x)")
    things.execute("create index if not exists by_x on things (a)")
    assert names(things) == []
    with pytest.raises(SchemaError, match="there is an index by_x already"):
        things.execute("create index by_x on things (a)")
    with pytest.raises(InvalidSyntax, match="needs the name"):
        things.execute("create index if not exists on things (a)")
    things.execute("drop index if exists by_x")
    things.execute("drop index if exists by_x")
    things.execute("create index if not exists by_x on things (a)")
    assert names(things) == ["by_x"]


@pytest.mark.parametrize(
    "text",
    [
        "using hash (a desc)",
        "using hash (a nulls first)",
        "using hash (a) include (b)",
        "(a int4_ops)",
        "using gin (a)",
    ],
)
def test_what_an_index_cannot_have_is_refused(things: Connection, text: str) -> None:
    with pytest.raises((UnsupportedExpression, InvalidSyntax)):
        things.execute(f"create index on things {text}")
    assert names(things) == []


# ---- order

ORDERS = ("a", "a desc", "a nulls first", "a desc nulls last")


@pytest.mark.parametrize("first", ORDERS)
@pytest.mark.parametrize("second", ["b", "b desc", "b nulls first"])
def test_an_order_by_goes_by_an_index_of_its_directions_or_of_the_reverse(
    things: Connection, first: str, second: str
) -> None:
    things.execute(f"create index by_both on things ({first}, {second})")
    things.commit()
    for query in (f"order by {first}, {second}", f"order by {_reversed(first)}, {_reversed(second)}"):
        text = f"select a, b, k from things {query} limit 400"
        assert "in order" in plan(things, text)
        things._statements.executor = "duckdb"  # type: ignore[attr-defined]
        expected = things.execute(f"select a, b from things {query}").fetchall()
        things._statements.executor = None  # type: ignore[attr-defined]
        assert [row[:2] for row in things.execute(text)] == expected
    assert "in order" not in plan(things, f"select a from things order by {first}, {_reversed(second)} limit 5")


def _reversed(key: str) -> str:
    return {
        "a": "a desc",
        "a desc": "a",
        "a nulls first": "a desc nulls last",
        "a desc nulls last": "a nulls first",
        "b": "b desc",
        "b desc": "b",
        "b nulls first": "b desc nulls last",
    }[key]


@pytest.mark.parametrize("order", ORDERS)
def test_ranges_go_by_an_index_of_any_order(things: Connection, order: str) -> None:
    conditions = [
        "a > 5",
        "a >= 5",
        "a < 3",
        "a <= 3",
        "a > 2 and a < 6",
        "a in (7, 1, 3) or a > 6",
        "a between 6 and 2",
    ]
    before = [sorted(things.execute(f"select k from things where {condition}")) for condition in conditions]
    things.execute(f"create index by_a on things ({order})")
    things.commit()
    for condition, rows in zip(conditions, before, strict=True):
        query = f"select k from things where {condition}"
        assert "by_a" in plan(things, query)
        assert sorted(things.execute(query)) == rows


def test_min_and_max_are_the_ends_of_an_index_of_any_order(things: Connection) -> None:
    expected = things.execute("select min(a), max(a), min(k), max(k) from things").fetchall()
    things.execute("create index on things (a desc)")
    things.execute("create index on things (k desc)")
    things.commit()
    assert "things_k_idx" in plan(things, "select max(k) from things")
    assert things.execute("select min(a), max(a), min(k), max(k) from things").fetchall() == expected


def test_keys_of_every_type_and_direction_lie_as_sorted(path: Path) -> None:
    """A model: rows that come, change and go, an index whose columns have directions by chance."""
    values: dict[str, Any] = {
        "int": lambda chance: chance.randrange(-5, 6),
        "bigint": lambda chance: chance.choice((-(2**40), -1, 0, 7, 2**50)),
        "double": lambda chance: chance.choice((-1.5, 0.0, 2.5, float("inf"))),
        "varchar(10)": lambda chance: chance.choice(("", "a", "ab", "abcdefghij", "ä", "b")),
        "decimal(38,2)": lambda chance: chance.randrange(-(10**20), 10**20, 10**19),
    }
    for seed in range(6):
        chance = random.Random(seed)
        types = chance.choices(sorted(values), k=3)
        directions = [chance.choice(list(Direction)) for _ in types]
        db = gmdb.connect(path)
        db.execute(f"create table t{seed} ({', '.join(f'c{n} {type_}' for n, type_ in enumerate(types))})")
        keys = ", ".join(f"c{n} {one.value}" for n, one in enumerate(directions))
        db.execute(f"create index i{seed} on t{seed} ({keys})")
        heap = db.heap(f"t{seed}")
        row_ids = []
        for _ in range(250):
            row = [None if chance.random() < 0.2 else values[type_](chance) for type_ in types]
            if row_ids and chance.random() < 0.2:
                heap.update(row_ids[chance.randrange(len(row_ids))], row)
            elif row_ids and chance.random() < 0.1:
                heap.delete(row_ids.pop(chance.randrange(len(row_ids))))
            else:
                row_ids.append(heap.insert(row))
        db.commit()
        rows = [row for _, row in heap.rows()]
        for n, one in reversed(list(enumerate(directions))):
            nulls, others = ([row for row in rows if (row[n] is None) == is_null] for is_null in (True, False))
            others.sort(key=lambda row, n=n: row[n], reverse=one.descending)  # type: ignore[misc]
            rows = [*nulls, *others] if one.nulls_first else [*others, *nulls]
        index = heap.by(f"i{seed}")
        assert [row for _, row in index.range()] == rows
        assert [row for _, row in index.walk(KeyRange(backwards=True))] == rows[::-1]
        low, high = sorted(chance.sample(range(len(rows)), 2))
        end = len(rows) - rows[::-1].index(rows[high])
        assert [row for _, row in index.range(rows[low], rows[high])] == rows[rows.index(rows[low]) : end]
        check_tree(index.tree)  # type: ignore[arg-type]
        db.close()
    assert_sound(path)


# ---- columns that are only kept


def test_a_unique_index_knows_rows_by_its_key_alone(things: Connection) -> None:
    things.execute("create unique index by_k on things (k) include (a, name)")
    things.commit()
    with pytest.raises(UniqueViolation, match=r"index by_k \(k\): .*: 7$"):
        things.execute("insert into things values (99, 1, 'new', 1, 7)")
    things.execute("update things set a = 50 where k = 7")
    things.execute("insert into things values (99, 1, 'new', 1, 7) on conflict (k) do update set name = excluded.name")
    assert things.execute("select a, name from things where k = 7").fetchall() == [(50, "new")]
    with pytest.raises(SchemaError, match=r"column 61: table things has no unique index on \(k, a, name\)"):
        things.execute("insert into things values (99, 1, 'new', 1, 7) on conflict (k, a, name) do nothing")
    things.commit()
    for how in ("insert into things values (1, 1, null, 1, -1)", "update things set k = k - 1 where k = 0"):
        things.execute(how)
        things.rollback()
    with pytest.raises(UniqueViolation):
        things.execute("create unique index on things (a) include (k)")


def test_an_index_with_all_columns_of_a_query_is_read_alone(things: Connection) -> None:
    things.execute("create unique index by_k on things (k) include (a, name)")
    things.commit()
    assert "one row of things by index by_k (k = ?1)" in plan(things, "select a from things where k = ?", 3)
    for query in ("select a, name from things where k = 3", "select sum(a) from things where k > 350"):
        expected = things.execute(query.replace("things", "(select * from things offset 0) as q")).fetchall()
        assert things.execute(query).fetchall() == expected


# ---- what there is


def test_definitions_are_there_again_and_are_listed(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table things (a int, b int, name varchar(20), price decimal(9,2), k int not null)")
        db.execute("create unique index first on things (a desc nulls last, k) include (b)")
        db.execute("truncate table things")
    with gmdb.connect(path) as db:
        (index,) = db.table("things").indexes
        assert (index.directions, index.included, index.key) == (("desc nulls last", ""), 1, (0, 4))
        listed = db.execute("select positions, options from sys_indexes where name = 'first'").fetchall()
        assert listed == [("0,4,1", '{"directions":["desc nulls last",""],"included":1}')]
        db.execute("insert into things values (1, 2, 'x', 1, 1), (null, 2, 'x', 1, 2), (3, 2, 'x', 1, 3)")
        assert [row for (row,) in db.execute("select k from things order by a desc nulls last")] == [3, 1, 2]
