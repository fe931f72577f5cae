"""Changes by primary key: whatever order and files they come in, the table is as the last of them says."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Corruption, SchemaError, SchemaMismatch, TableNotEmpty, UniqueViolation, ValueTooLong
from gmdb.tables.arrow.load_kinds import Operation
from tests.arrow.staged import stage_changes

PUT, DELETE, TRUNCATE, SNAPSHOT = map(int, Operation)
Change = tuple[int, int, int, int, str | None]  # scn, place, operation, key, text


@pytest.fixture
def table(db: Connection) -> Connection:
    """A database whose table tbl has ten rows and two indexes beside its key."""
    db.execute("create table tbl (i int primary key, s varchar(20) not null, n int default 7)")
    db.execute("create index tbl_s on tbl (s)")
    db.execute("create unique index tbl_n on tbl (n)")
    db.executemany("insert into tbl values (?, ?, ?)", [(n, f"text {n}", n) for n in range(10)])
    db.commit()
    return db


def content(db: Connection) -> dict[int, tuple[Any, ...]]:
    return {row[0]: row[1:] for row in db.execute("select * from tbl").fetchall()}


def rows(*given: tuple[Any, ...], names: str = "i s n") -> pa.Table:
    return pa.table(dict(zip(names.split(), map(list, zip(*given, strict=True)), strict=True)))


def as_changes(given: list[tuple[Any, ...]]) -> pa.Table:
    """Changes: scn, place, operation, and the row."""
    scn, place, operation, i, s, n = map(list, zip(*given, strict=True))
    said = {"#operation": pa.array(operation, pa.int8()), "scn": pa.array(scn, pa.int64())}
    values = {"i": pa.array(i, pa.int32()), "s": pa.array(s, pa.string()), "n": pa.array(n, pa.int32())}
    return pa.table({**values, **said, "place": pa.array(place, pa.int64())})


def apply(db: Connection, *parts: pa.Table, **how: Any) -> int:
    count = db._attach_load(stage_changes(db, "tbl", *parts, **how))
    db.commit()
    return count


# ---- upserts


def test_rows_that_are_there_are_updated_and_others_added(table):
    assert apply(table, rows((3, "new", 33), (20, "more", 44)), rows((4, "other", 55))) == 3
    expected = {n: (f"text {n}", n) for n in range(10)} | {3: ("new", 33), 4: ("other", 55), 20: ("more", 44)}
    assert content(table) == expected
    assert table.execute("select i from tbl where s = 'new'").fetchall() == [(3,)]
    assert table.execute("select i from tbl where n = 3").fetchall() == []


def test_a_row_that_is_updated_keeps_its_row_id(table):
    before = table.execute("select rowid from tbl where i = 3").fetchall()
    apply(table, rows((3, "new", 33)))
    assert table.execute("select rowid from tbl where i = 3").fetchall() == before


def test_columns_that_are_not_brought_stay_and_new_rows_get_what_tasks_gave_them(table):
    given = rows((3, "new", 100), (30, "more", 100))
    apply(table, given.slice(0, 1), given.slice(1, 1), given=("i", "s"))
    assert content(table)[3] == ("new", 3)
    assert content(table)[30] == ("more", 100)


def test_the_last_of_several_rows_with_a_key_counts(table):
    first = rows((3, "late", 31, 9), (3, "early", 32, 1), names="i s n at")
    second = rows((3, "middle", 33, 5), (50, "one", 50, None), (50, "two", 51, 0), names="i s n at")
    apply(table, first, second.cast(first.schema), order=["at"])
    assert content(table)[3] == ("late", 31)
    assert content(table)[50] == ("two", 51)


def test_a_key_that_comes_twice_is_refused_and_named(table):
    with pytest.raises(UniqueViolation, match=r"key \(i\): 3: it comes twice.*orderBy"):
        apply(table, rows((3, "a", 31)), rows((3, "b", 32)))
    same = rows((3, "a", 31, 1), (3, "b", 32, 1), names="i s n at")
    with pytest.raises(UniqueViolation, match=r"key \(i\): 3: .*same value"):
        apply(table, same, order=["at"])
    assert content(table) == {n: (f"text {n}", n) for n in range(10)}


def test_rows_may_exchange_the_values_of_a_unique_index(table):
    apply(table, rows((3, "three", 4), (4, "four", 3), (60, "new", 5), (5, "five", 60)))
    found = content(table)
    assert [found[n] for n in (3, 4, 5, 60)] == [("three", 4), ("four", 3), ("five", 60), ("new", 5)]
    assert len(found) == 11


def test_a_unique_value_that_another_row_has_is_refused_and_nothing_stays(table):
    with pytest.raises(UniqueViolation, match=r"index tbl_n \(n\).*: 9$"):
        apply(table, rows((3, "three", 300), (4, "four", 9), (70, "new", 71)))
    assert content(table) == {n: (f"text {n}", n) for n in range(10)}
    with pytest.raises(ValueTooLong, match="table tbl, key 3: column s"):
        apply(table, rows((3, "x" * 21, 300)))
    assert content(table) == {n: (f"text {n}", n) for n in range(10)}


def test_a_table_without_a_key_or_with_another_definition_is_refused(table):
    table.execute("create table plain (i int, s varchar(20))")
    with pytest.raises(SchemaError, match="no primary key"):
        table._attach_load(stage_changes(table, "plain", rows((1, "x"), names="i s")))
    load = stage_changes(table, "tbl", rows((3, "new", 33)))
    table.execute("alter table tbl add column m int")
    with pytest.raises(SchemaMismatch, match="not those that the rows were made for"):
        table._attach_load(load)


def test_keys_of_several_columns_and_kinds(db):
    db.execute(
        "create table tbl (c char(3), t timestamp, d double, b blob, id int generated always as identity, "
        "primary key (t, c, d))"
    )
    when = datetime(2024, 2, 29, 12, 30, 0, 123456)
    names = "c t d b"
    apply(db, rows(("a", when, 0.0, b"x" * 9000), ("b", when, 0.5, b"y"), names=names))
    apply(db, rows(("a  ", when, -0.0, b"z" * 20000), ("c", when, 0.5, None), names=names))
    found = db.execute("select c, t, d, b, id from tbl order by c").fetchall()
    assert [(c.strip(), t, d, b) for c, t, d, b, _ in found] == [
        ("a", when, 0.0, b"z" * 20000), ("b", when, 0.5, b"y"), ("c", when, 0.5, None)
    ]  # fmt: skip
    assert [id_ for *_, id_ in found] == [1, 2, 3]
    with pytest.raises(UniqueViolation, match="twice"):
        apply(db, rows(("a", when, 0.0, b""), ("a ", when, -0.0, b""), names=names))
    db.rollback()


def test_a_row_that_another_transaction_holds_is_waited_for(table, path):
    other = gmdb.connect(path)
    other.execute("update tbl set s = 'other', i = 100 where i = 3")
    other.execute("update tbl set s = 'other' where i = 4")
    other.execute("delete from tbl where i = 5")
    load = stage_changes(table, "tbl", rows((3, "three", 30), (4, "four", 40), (5, "five", 50)))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(table._attach_load, load)
        while not other.system_view("sys_waits").num_rows:
            assert not waiting.done()
        other.commit()
        assert waiting.result(60) == 3
    table.commit()
    other.close()
    found = content(table)
    assert [found[n] for n in (3, 4, 5, 100)] == [("three", 30), ("four", 40), ("five", 50), ("other", 3)]


def test_a_row_that_another_transaction_adds_meanwhile_is_updated(table, path):
    other = gmdb.connect(path)
    other.execute("insert into tbl values (80, 'other', 800)")
    load = stage_changes(table, "tbl", rows((80, "eighty", 80)))
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(table._attach_load, load)
        while not other.system_view("sys_waits").num_rows:
            assert not waiting.done()
        other.commit()
        waiting.result(60)
    table.commit()
    other.close()
    assert content(table)[80] == ("eighty", 80)


# ---- changes


def random_changes(chance: random.Random, model: dict[int, tuple[str, int]], count: int, scn: int) -> list[Any]:
    """Changes that happened to a table, which the model is now."""
    made: list[tuple[Any, ...]] = []
    for place in range(count):
        number, at = chance.randrange(40), (scn + place // 3, place % 3)
        kind = chance.random()
        if kind < 0.02:
            model.clear()
            made.append((*at, TRUNCATE, None, None, None))
        elif kind < 0.3 and number in model:
            made.append((*at, DELETE, number, *model.pop(number)))
        else:
            free = chance.choice(sorted(set(range(60)) - {n for i, (_, n) in model.items() if i != number}))
            model[number] = (f"text {chance.random():.9f}", free)
            made.append((*at, PUT, number, *model[number]))
    return made


@pytest.mark.parametrize("seed", range(6))
def test_random_changes_leave_what_the_source_has(table, seed):
    chance = random.Random(seed)
    model = content(table)
    for batch in range(15):
        made = random_changes(chance, model, chance.choice([1, 5, 80]), 1000 * batch)
        chance.shuffle(made)
        middle = chance.randrange(len(made))
        parts = [as_changes(part) for part in (made[:middle], made[middle:]) if part]
        assert apply(table, *parts, order=["scn", "place"]) == len(made)
        assert content(table) == model


def test_changes_after_a_truncation_count_and_those_before_do_not(table):
    made = [(1, 0, PUT, 50, "before", 50), (1, 1, TRUNCATE, None, None, None), (1, 2, PUT, 60, "after", 60)]
    apply(table, as_changes(made[::-1]), order=["scn", "place"])
    assert content(table) == {60: ("after", 60)}
    apply(table, as_changes([(2, 0, TRUNCATE, None, None, None)]), order=["scn", "place"])
    assert content(table) == {}


def test_two_changes_at_the_same_place_are_refused(table):
    made = [(1, 0, PUT, 50, "one", 50), (1, 0, PUT, 50, "two", 51)]
    with pytest.raises(Corruption, match=r"key \(i\): 50: two changes have the same _scn"):
        apply(table, as_changes(made), order=["scn", "place"])


def test_a_snapshot_into_a_table_with_rows_is_refused_unless_told_what_becomes_of_them(table):
    made = as_changes([(1, 0, SNAPSHOT, 3, "three", 30), (1, 0, SNAPSHOT, 50, "fifty", 50)])
    before = content(table)
    with pytest.raises(TableNotEmpty, match=r"table tbl has rows.*onExisting"):
        apply(table, made, order=["scn", "place"])
    assert content(table) == before
    apply(table, made, order=["scn", "place"], on_existing="upsert")
    assert content(table) == before | {3: ("three", 30), 50: ("fifty", 50)}
    apply(table, made, order=["scn", "place"], on_existing="replace")
    assert content(table) == {3: ("three", 30), 50: ("fifty", 50)}
    table.execute("delete from tbl")
    table.commit()
    apply(table, made, order=["scn", "place"])
    assert content(table) == {3: ("three", 30), 50: ("fifty", 50)}


def test_what_is_rolled_back_or_interrupted_leaves_nothing(table):
    before = content(table)
    table._attach_load(stage_changes(table, "tbl", rows((3, "new", 33), (90, "more", 91))))
    table._attach_load(stage_changes(table, "tbl", rows((90, "again", 92))))
    assert content(table)[90] == ("again", 92)
    table.rollback()
    assert content(table) == before


def test_with_autocommit_a_load_of_changes_is_a_transaction(table):
    table.autocommit = True
    table._attach_load(stage_changes(table, "tbl", rows((3, "new", 33))))
    with pytest.raises(UniqueViolation):
        table._attach_load(stage_changes(table, "tbl", rows((4, "new", 44), (5, "other", 9))))
    assert not table.in_transaction
    table.autocommit = False
    assert content(table) == {n: (f"text {n}", n) for n in range(10)} | {3: ("new", 33)}
