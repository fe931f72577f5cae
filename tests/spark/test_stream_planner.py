"""Which changes make a batch: asked of the planner itself, without Spark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import TableChanged
from gmdb.spark.change_planner import Offset, StreamPlanner
from gmdb.spark.change_reader import ChangeReader, change_schema
from gmdb.spark.options import parse_change_options
from gmdb.storage.feeds import LogPosition


@pytest.fixture
def db(path: Path) -> Iterator[Connection]:
    with gmdb.connect(path, sync="off") as made:
        made.execute("create table t (i int primary key, s varchar(2000)) with (change_feed = true)")
        made.execute("create table other (i int, s varchar(2000)) with (change_feed = true)")
        made.commit()
        yield made


def planner(db: Connection, **options: str) -> StreamPlanner:
    given = {"path": str(db.path), "table": "t", "since": "now", **options}
    return StreamPlanner(parse_change_options(given), db.table("t"))


def rows(db: Connection, start: Offset, end: Offset, **options: str) -> list[tuple[Any, ...]]:
    """What the tasks of a batch read, as a process finds it that has planned nothing before."""
    given = parse_change_options({"path": str(db.path), "table": "t", "since": "now", **options})
    reader = ChangeReader(given, change_schema(given, db.table("t")))
    found = []
    for part in reader.partitions(start.to_plain(), end.to_plain()):
        for batch in reader.read(part):
            found += list(zip(*(batch.column(n).to_pylist() for n in ("_scn", "_sequence", "i")), strict=True))
    return found


def fill_log(db: Connection, size: int) -> None:
    for n in range(size // 4000):
        db.insert("other", (n, "x" * 2000))
        if n % 100 == 0:
            db.commit()
    db.commit()


def test_a_batch_that_is_planned_again_is_the_same(db: Connection) -> None:
    plan = planner(db)
    start = plan.latest(Offset(), None)
    with gmdb.connect(db.path) as late:
        late.insert("t", (-1, "began first, commits last"))
        for n in range(50):
            db.insert("t", (n, "x"))
            db.commit()
        ends, offset = [], start
        for _ in range(5):
            offset = plan.latest(offset, 10)
            ends.append(offset)
        late.commit()
    fifth = rows(db, ends[2], ends[3])
    assert [i for _, _, i in fifth] == list(range(30, 40))
    assert rows(db, ends[2], ends[3]) == fifth
    last = plan.latest(offset, None)
    assert [i for _, _, i in rows(db, offset, last)] == [-1]
    assert [i for _, _, i in rows(db, start, last)] == [*range(50), -1]
    assert plan.latest(last, None) == last


@pytest.mark.parametrize("ends_now", [False, True])
def test_a_stream_of_an_idle_table_moves_on(db: Connection, ends_now: bool) -> None:
    offset = planner(db, keep="4m").latest(Offset(), None)
    for _ in range(4):
        fill_log(db, 2 << 20)
        plan = planner(db, keep="4m", reader=offset.reader)
        if ends_now:
            plan.end_at(db._feed_position().scn)
        moved = plan.latest(offset, None)
        assert needs(moved, db) > needs(offset, db)
        assert rows(db, offset, moved) == []
        plan.commit(moved)
        offset = moved
        db.checkpoint()


def needs(offset: Offset, db: Connection) -> int:
    return LogPosition.from_text(offset.position, db.changes().position.split("-")[0]).needs


def test_columns_that_nobody_asked_for_may_come(db: Connection) -> None:
    chosen, everything = planner(db, columns="i"), planner(db)
    start, other = chosen.latest(Offset(), None), everything.latest(Offset(), None)
    db.execute("alter table t add column d int")
    db.execute("insert into t values (1, 'x', 2)")
    db.commit()
    assert chosen.latest(start, None) != start
    with pytest.raises(TableChanged, match="has other columns"):
        everything.latest(other, None)


def test_what_comes_later_than_a_stream_wants_is_not_told_yet(db: Connection) -> None:
    plan = planner(db)
    start = plan.latest(Offset(), None)
    target = db._feed_position().scn
    db.execute("drop table t")
    db.commit()
    plan.end_at(target)
    assert plan.latest(start, None) == start
    plan.end_at(db._feed_position().scn)
    with pytest.raises(TableChanged, match="was dropped"):
        plan.latest(start, None)
