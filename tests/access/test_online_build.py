"""Building an index beside transactions: what they do is in it, they hardly wait, failures leave nothing."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import LockTimeout, NoSuchIndex, UniqueViolation, ValueTooLong
from gmdb.format.undo import UNDO_ENTRY, UNDO_RECORD, UndoOperation, record_extents
from gmdb.tables.access import index_build
from gmdb.tables.catalog.index_creation import IndexBuild
from gmdb.tables.files.database_files import DatabaseFiles
from tests.integrity import problems
from tests.sessions import answer, in_thread

ROWS = 3000
KINDS = ["btree", "hash"]


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "d.gmdb"
    with gmdb.connect(path, autocommit=True) as connection:
        connection.create_table("t", {"i": "INT", "s": "VARCHAR(40)"})
        rows = {"i": pa.array(range(ROWS), pa.int32()), "s": [f"row {n % 700}" for n in range(ROWS)]}
        connection.append("t", pa.table(rows))
        connection.commit()
        yield connection
    assert problems(path) == []


def meanwhile(monkeypatch: pytest.MonkeyPatch, before_filling: Callable[[], Any], after: Callable[[], Any]) -> None:
    """Do something after an index was made known and before it is filled, and something once it is filled."""
    fill = index_build.Filling.fill

    def wrapped(self: index_build.Filling, form: Any) -> None:
        before_filling()
        fill(self, form)
        after()

    monkeypatch.setattr(index_build.Filling, "fill", wrapped)


def by_key(db: Connection, index: str) -> list[Any]:
    """What the index leads to for every key that there is, against what a scan finds."""
    db.commit()
    db.gc()  # entries of rows that are gone for everyone go as well
    heap = db.heap("t")
    rows = sorted(heap.rows(), key=lambda row: row[0])
    keyed = heap.by(index)
    position = keyed.index.positions[0]
    found = sorted({row for key in {values[position] for _, values in rows} for row in keyed.find((key,))})
    assert found == rows
    assert len(list(keyed.tree.walk())) == len(rows)
    return rows


@pytest.mark.parametrize("using", KINDS)
def test_what_others_commit_while_it_is_built_is_in_it(
    db: Connection, monkeypatch: pytest.MonkeyPatch, using: str
) -> None:
    other = gmdb.connect(db.path)

    def change(offset: int) -> None:
        ids = [row_id for row_id, _ in other.heap("t").rows()]
        for n, row_id in enumerate(ids[offset : offset + 60]):
            if n % 3 == 0:
                other.heap("t").update(row_id, {"s": f"changed {n}"})
            elif n % 3 == 1:
                other.heap("t").delete(row_id)
            else:
                other.insert("t", (10_000 + offset + n, f"new {n}"))
        other.savepoint("here")
        other.heap("t").update(ids[offset + 62], {"s": "never"})
        other.rollback_to("here")
        other.commit()
        other.insert("t", (-1, "rolled back"))
        other.rollback()

    meanwhile(monkeypatch, lambda: change(0), lambda: change(600))
    db.create_index("t_s", "t", ["s"], using=using)
    rows = by_key(db, "t_s")
    assert sum(values[1].startswith("changed") for _, values in rows) == 40
    other.close()


def test_a_commit_is_in_it_though_an_earlier_one_of_another_table_has_not_quite_ended(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    db.create_table("u", {"i": "INT"})
    writer, slow = gmdb.connect(db.path), gmdb.connect(db.path)
    is_shown, may_end = threading.Event(), threading.Event()
    finish = slow.session._finish_commit

    def finish_slowly() -> None:
        is_shown.set()
        assert may_end.wait(60)
        finish()

    def change() -> None:
        slow.insert("u", (1,))
        monkeypatch.setattr(slow.session, "_finish_commit", finish_slowly)
        ending.append(in_thread(slow.commit))
        assert is_shown.wait(60)
        writer.insert("t", (10_000, "late"))
        writer.commit()

    ending: list[Any] = []
    meanwhile(monkeypatch, lambda: None, change)
    try:
        db.create_index("t_s", "t", ["s"])
        assert len(db.heap("t").by("t_s").find(("late",))) == 1
    finally:
        may_end.set()
        answer(ending[0])
        for one in (writer, slow):
            one.close()


def test_a_change_leaves_a_shadow_operation(db: Connection, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    other, seen = gmdb.connect(db.path), []

    def change() -> None:
        other.insert("t", (7, "x"))
        other.dump(tmp_path / "dump")
        other.commit()
        with DatabaseFiles(tmp_path / "dump") as files:
            for page in map(files.page, files.segment_pages(UNDO_ENTRY)):
                seen.extend(UNDO_RECORD.at(page, offset).op_type for offset, _, _ in record_extents(page))

    meanwhile(monkeypatch, change, lambda: None)
    db.create_index("t_s", "t", ["s"])
    assert UndoOperation.BTREE_INSERT_SHADOW in seen
    other.close()


def test_writers_and_readers_go_on_while_it_is_filled(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    """The build stands still in the middle; meanwhile others read, write and commit, but do not see the index."""
    other, done = gmdb.connect(db.path, lock_timeout=1.0), []

    def work() -> None:
        other.insert("t", (1, "meanwhile"))
        other.commit()
        assert len(list(other.heap("t").rows())) == ROWS + 1
        with pytest.raises(NoSuchIndex):
            other.heap("t").by("t_s")
        other.commit()
        with pytest.raises(LockTimeout):
            other.drop_table("t")
        other.rollback()
        done.append(True)

    meanwhile(monkeypatch, work, lambda: None)
    db.create_index("t_s", "t", ["s"])
    assert done
    assert len(db.heap("t").by("t_s").find(("meanwhile",))) == 1
    other.close()


@pytest.mark.parametrize("using", KINDS)
@pytest.mark.parametrize("when", ["before", "during", "after"])
def test_a_duplicate_is_found_whenever_it_came(
    db: Connection, monkeypatch: pytest.MonkeyPatch, using: str, when: str
) -> None:
    other = gmdb.connect(db.path)

    def add() -> None:
        other.insert("t", (5, "twice"))
        other.commit()

    if when == "before":
        add()
    meanwhile(monkeypatch, add if when == "during" else lambda: None, add if when == "after" else lambda: None)
    with pytest.raises(UniqueViolation, match=r"two rows have the same key \(i\)"):
        db.create_index("t_i", "t", ["i"], unique=True, using=using)
    assert db.table("t").indexes == ()
    add()  # nobody minds
    monkeypatch.undo()
    db.create_index("t_i", "t", ["i"], using=using)
    by_key(db, "t_i")
    other.close()


def test_keys_that_change_places_are_no_duplicates(db: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    other = gmdb.connect(db.path)

    def swap() -> None:
        (a, _), (b, _) = list(other.heap("t").rows())[:2]
        other.heap("t").update(a, {"i": 1})
        other.heap("t").update(b, {"i": 0})
        other.commit()

    meanwhile(monkeypatch, swap, swap)
    db.create_index("t_i", "t", ["i"], unique=True)
    by_key(db, "t_i")
    other.close()


def test_a_key_that_is_too_long_is_refused(tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "d.gmdb") as db:
        db.create_table("t", {"s": "VARCHAR(3000)"})
        db.insert("t", ("x" * 2500,))
        db.commit()
        with pytest.raises(ValueTooLong, match="2000 bytes"):
            db.create_index("t_s", "t", ["s"])
        assert db.table("t").indexes == ()
    assert problems(tmp_path / "d.gmdb") == []


def test_a_failed_build_waits_for_its_writers_and_gives_all_pages_back(
    db: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A writer that is open when the build fails must not meet an index that is gone."""
    other, started, failed = gmdb.connect(db.path), threading.Event(), threading.Event()

    def write() -> None:
        other.insert("t", (1, "first"))
        started.set()
        assert failed.wait(20)
        time.sleep(0.2)
        other.insert("t", (2, "second"))
        other.commit()

    thread = threading.Thread(target=write)

    def fail(_: IndexBuild) -> None:
        thread.start()
        assert started.wait(20)
        failed.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(IndexBuild, "finish", fail)
    with pytest.raises(KeyboardInterrupt):
        db.create_index("t_s", "t", ["s"])
    thread.join()
    assert db.table("t").indexes == ()
    monkeypatch.undo()
    db.create_index("t_s", "t", ["s"])
    by_key(db, "t_s")
    other.close()


@pytest.mark.parametrize("using", KINDS)
@pytest.mark.parametrize("unique", [False, True])
def test_it_is_right_beside_busy_writers(db: Connection, using: str, unique: bool) -> None:
    """Threads insert, update, delete, commit and roll back while indexes are built again and again."""
    stop, errors = threading.Event(), []

    def work(seed: int) -> None:
        r = random.Random(seed)
        try:
            with gmdb.connect(db.path, lock_timeout=30) as own:
                number = 0
                while not stop.is_set():
                    heap = own.heap("t")
                    for _ in range(r.randrange(1, 6)):
                        number += 1
                        row_id = heap.insert((seed * 1_000_000 + number, f"row {r.randrange(900)}"))
                        if r.random() < 0.5:
                            heap.update(row_id, {"s": f"row {r.randrange(900)}", "i": -seed * 1_000_000 - number})
                        if r.random() < 0.3:
                            heap.delete(row_id)
                    own.commit() if r.random() < 0.8 else own.rollback()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 2)]
    for thread in threads:
        thread.start()
    try:
        for n in range(4):
            time.sleep(0.05)
            db.create_index(f"x{n}", "t", ["i"] if unique else ["s"], unique=unique, using=using)
            db.drop_index(f"x{n - 1}") if n else None
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert not errors
    db.gc()
    by_key(db, "x3")
