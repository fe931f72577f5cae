"""Databases that gmdb 0.1.0 wrote are read as they are, and changed, with all that has come since."""

from __future__ import annotations

import tarfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import CheckViolation, UniqueViolation
from tests.crash.harness import small_log
from tests.integrity import assert_sound
from tests.log import written_by_0_1_0

NAMES = ("closed", "killed")
TABLES = ("kinds", '"Odd.Name"')
QUERIES = (
    "select i from kinds where r = -1 or d between 1 and 1.5 order by i",
    "select i from kinds order by r",
    "select i from kinds order by n16 desc nulls last",
    "select i from kinds where c = 'c3' or v = 'name 5' order by i",
    "select count(*), sum(length(cl)), sum(length(bl)), max(t) from kinds",
    "select id, amount, note from orders where who = 'who 3' order by id",
    "select id, who, amount, note, at is null from orders order by id",
    "select column_name, is_nullable, is_identity from information_schema.columns order by table_name, 1",
    "select name, kind, positions, text from sys_constraints order by 1",
    "select name, is_unique, positions, kind from sys_indexes order by 1",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("old")
    with tarfile.open(Path(__file__).with_name("written_by_0_1_0.tar.xz")) as archive:
        archive.extractall(folder, filter="data")
    return folder


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """What the same statements leave today."""
    with gmdb.connect(tmp_path_factory.mktemp("new") / "db") as db:
        written_by_0_1_0.fill(db)
        return contents(db)


def contents(db: Connection) -> list[Any]:
    whole = [db.arrow(table.strip('"')).read_all().to_pylist() for table in TABLES]
    return whole + [db.execute(query).fetchall() for query in QUERIES]


@pytest.mark.parametrize("name", NAMES)
def test_what_0_1_0_wrote_is_read_and_changed(folder: Path, expected: list[Any], name: str) -> None:
    path = folder / name
    with small_log():  # which they were written with
        with gmdb.connect(path, read_only=True) as db:
            assert contents(db) == expected
        with gmdb.connect(path) as db:
            assert contents(db) == expected
            keep_rules(db)
            change(db)
        assert_sound(path)
        with gmdb.connect(path) as db:
            assert_changed(db)
            db.gc()
            db.shrink()
            assert_changed(db)
        assert_sound(path)


def keep_rules(db: Connection) -> None:
    with pytest.raises(CheckViolation, match="small"):
        db.execute("insert into kinds (i, si) values (9, 100)")
    with pytest.raises(UniqueViolation, match="named"):
        db.execute("insert into kinds (i, v) values (9, 'name 4')")
    new = "insert into orders (who) values ('new') returning id > 21, amount, at is null, note"
    assert db.execute(new).fetchall() == [(True, Decimal("0.50"), False, "none")]


def change(db: Connection) -> None:
    """Change rows and definitions, as columns and indexes of today have them."""
    for statement in (
        "alter table kinds alter column t type text",
        "update kinds set t = repeat('long ', 20000), cl = 'short', v = 'Changed' where i = 3",
        "update kinds set bl = cast(repeat('b', 50000) as bytea), c = 'c9' where i = 2",
        "delete from kinds where i = 1",
        "create index on kinds (lower(v))",
        "alter table kinds alter column r type real",
        "alter table kinds alter column si type smallint",
        "alter table orders add column upper_who text generated always as (upper(who)) stored",
        "create schema shop",
        "alter table orders set schema shop",
    ):
        db.execute(statement)
    db.commit()


def assert_changed(db: Connection) -> None:
    with db.changes(tables=["shop.orders"]) as feed:
        db.execute("update shop.orders set amount = amount + 1 where id = 12")
        db.commit()
        assert [(change.operation, change.row["who"]) for change in feed] == [("update", "who 5")]
    assert db.execute("select i, length(t), cl, si, r from kinds where lower(v) = 'changed'").fetchall() == [
        (3, 100_000, "short", 30, -1.5)
    ]
    assert db.execute("select i, length(bl) from kinds where c = 'c9'").fetchall() == [(2, 50_000)]
    assert db.execute("select i from kinds where r <= -1 order by r").fetchall() == [(7,), (6,), (5,), (4,), (3,), (2,)]
    upper = "select upper_who, count(*) from shop.orders where who > 'who 5' group by 1"
    assert db.execute(upper).fetchall() == [("WHO 6", 3)]
