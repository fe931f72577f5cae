"""Dropping tablespaces: only empty ones go, with their files, and what is left is sound, also after a crash."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import gmdb
from gmdb.cli import main
from gmdb.errors import NoSuchTablespace, SchemaError
from tests.integrity import assert_sound


def device_files(path: Path) -> set[str]:
    return {file.name for file in path.glob("device-*")}


@pytest.fixture
def db(path: Path) -> gmdb.Connection:
    return gmdb.connect(path)


def test_an_empty_tablespace_goes_with_its_files(db: gmdb.Connection, path: Path) -> None:
    before = device_files(path)
    db.execute("create tablespace fast page_size 16384 devices 2")
    db.execute("create table t (i int primary key, s varchar(100)) tablespace fast")
    db.executemany("insert into t values (?, ?)", [(n, "x" * 90) for n in range(5000)])
    db.commit()
    assert len(device_files(path)) == len(before) + 2
    with pytest.raises(SchemaError, match="tablespace fast has 2 segments: drop its tables first"):
        db.execute("drop tablespace fast")
    db.execute("drop table t")
    db.commit()
    db.execute("drop tablespace fast")
    assert device_files(path) == before
    with pytest.raises(NoSuchTablespace):
        db.execute("create table t (i int) tablespace fast")
    db.execute("create table t (i int)")
    db.execute("insert into t values (1)")
    db.commit()
    shutil.copytree(path, path.with_name("killed.gmdb"))  # as a crash would leave it
    db.close()
    for left in (path, path.with_name("killed.gmdb")):
        with gmdb.connect(left) as again:
            assert again.execute("select * from t").fetchall() == [(1,)]
            again.execute("create tablespace fast")  # the name is free, the numbers of its devices were not used again
            again.execute("create table u (i int) tablespace fast")
            again.execute("insert into u values (2)")
        assert_sound(left)


def test_tables_that_somebody_may_still_read_keep_it(db: gmdb.Connection, path: Path) -> None:
    db.execute("create tablespace fast")
    db.execute("create table t (i int) tablespace fast")
    db.execute("create table other (i int)")
    db.commit()
    with gmdb.connect(path, isolation="repeatable read") as reader:
        reader.execute("select * from other").fetchall()
        db.execute("drop table t")
        db.commit()
        with pytest.raises(SchemaError, match="stay for as long as a reader may need them"):
            db.drop_tablespace("fast")
    db.drop_tablespace("fast")
    db.close()
    assert_sound(path)


def test_one_that_is_used_again_meanwhile_stays(
    db: gmdb.Connection, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.execute("create tablespace fast")
    checkpoints = db._database.durability.checkpoints  # type: ignore[union-attr]
    run: Callable[..., object] = checkpoints.run

    def use_it_meanwhile() -> object:
        done = run()
        with gmdb.connect(path) as other:
            other.execute("create table t (i int) tablespace fast")
            other.commit()
            other.execute("drop table t")
            other.commit()
            other.gc()
        return done

    monkeypatch.setattr(checkpoints, "run", use_it_meanwhile)
    with pytest.raises(SchemaError, match="in use"):
        db.drop_tablespace("fast")
    monkeypatch.undo()
    db.drop_tablespace("fast")
    db.close()
    assert_sound(path)


@pytest.mark.parametrize("name", ["main", "system", "undo"])
def test_the_databases_own_cannot_be_dropped(db: gmdb.Connection, name: str) -> None:
    with pytest.raises(SchemaError, match="cannot be dropped"):
        db.drop_tablespace(name)


def test_one_that_is_not_there(db: gmdb.Connection) -> None:
    with pytest.raises(NoSuchTablespace):
        db.execute("drop tablespace nosuch")
    db.execute("drop tablespace if exists nosuch")


def test_a_backup_that_is_being_made_keeps_it(db: gmdb.Connection, path: Path) -> None:
    db.execute("create tablespace fast")
    steps = db._database.backup(path.with_name("copy"))
    next(steps)
    with pytest.raises(SchemaError, match="a backup is being made"):
        db.drop_tablespace("fast")
    for _ in steps:
        pass
    db.drop_tablespace("fast")
    db.backup(path.with_name("later"))
    db.close()
    assert_sound(path)
    assert main(["restore", str(path.with_name("later")), str(path.with_name("restored"))]) == 0
    assert_sound(path.with_name("restored"))
