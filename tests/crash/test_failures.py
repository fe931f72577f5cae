"""The disk fails at each request in turn: no failure is taken for a success, and nothing acknowledged is lost.

A disk that is full is another matter: it refuses a statement, and the database lives.
"""

from __future__ import annotations

import errno
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from unittest.mock import patch

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import Corruption, DiskFull, Error, ReadOnly, StorageError
from gmdb.format.address import RowId
from gmdb.storage import disk
from tests.crash.faults import FaultyDisk
from tests.crash.harness import QuickDisk, connect, create, scratch, small_log
from tests.integrity import problems
from tests.model.checks import check_indexes

FILES = ("redo-*", "gmdb.mirror", "device-*", "gmdb.control")
TEXT = "x" * 900


class QuickFaultyDisk(FaultyDisk, QuickDisk):
    """Fails when it should; syncs that do not fail cost nothing."""


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_log():
        yield


@pytest.fixture(scope="module")
def base() -> Iterator[Path]:
    """A closed database with a table of 20 rows."""
    with small_log(), scratch() as place:
        with disk.use(QuickDisk()), connect(place / "db") as db:
            db.create_table("t", {"k": "INT NOT NULL", "s": "VARCHAR(1000)"})
            db.commit()
            for k in range(20):
                db.insert("t", (k, "old"))
        yield place / "db"


class Run:
    """A short workload that keeps book of what was acknowledged, and of the first error."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.acknowledged: dict[int, str] = dict.fromkeys(range(20), "old")
        self.tried = dict(self.acknowledged)
        self.error: Error | None = None
        self.db: Connection | None = None

    def go(self) -> None:
        try:
            self.db = connect(self.path)
            self.db._database.transactions.stop()
            for round_ in range(3):
                self._change(self.db, round_)
                self.db.checkpoint()
        except StorageError as error:
            self.error = error

    def _change(self, db: Connection, round_: int) -> None:
        heap = db.heap("t")
        ids = {k: row_id for row_id, (k, _) in heap.rows()}
        self.tried = dict(self.acknowledged)
        for k in range(round_, 20, 3):
            heap.update(ids[k], {"s": TEXT})
            self.tried[k] = TEXT
        for k in range(100 * round_ + 100, 100 * round_ + 140):
            heap.insert((k, TEXT))
            self.tried[k] = TEXT
        db.commit()
        self.acknowledged = dict(self.tried)


def contents(db: Connection) -> dict[int, str]:
    return {k: s for _, (k, s) in db.heap("t").rows()}


def requests(base: Path) -> dict[tuple[str, str], int]:
    """How many requests of each kind the workload makes, by the files' names."""
    counts: dict[tuple[str, str], int] = {}
    with scratch() as place, disk.use(QuickFaultyDisk()) as faulty:
        assert isinstance(faulty, FaultyDisk)
        ask = faulty._ask

        def count(request: str, path: Path, *rest: object) -> object:
            for files in FILES:
                if path.match(files):
                    counts[request, files] = counts.get((request, files), 0) + 1
            return ask(request, path, *rest)  # type: ignore[arg-type]

        faulty._ask = count  # type: ignore[assignment,method-assign]
        shutil.copytree(base, place / "db")
        run = Run(place / "db")
        run.go()
        assert run.error is None
        assert run.db is not None
        run.db.close()
    return counts


@pytest.mark.parametrize("files", FILES)
@pytest.mark.parametrize("request_", ["write", "sync", "allocate"])
def test_a_request_that_fails_is_never_taken_for_a_success(base: Path, request_: str, files: str) -> None:
    count = requests(base).get((request_, files), 0)
    errors = [errno.EIO] if request_ == "sync" else [errno.EIO, errno.ENOSPC]
    for error in errors:
        step = max(count // 40, 1)  # some hundred pages are written: a part of them will do
        for nth in range(1, count + 1, step):
            with scratch() as place:
                shutil.copytree(base, place / "db")
                fail_once(place / "db", request_, files, nth, error)


def fail_once(path: Path, request: str, files: str, nth: int, error: int) -> None:
    """One run with one fault: who was refused, what is left, and whether it opens again."""
    where = f"{request} {nth} of {files} with {errno.errorcode[error]}"
    run = Run(path)
    with disk.use(QuickFaultyDisk()) as faulty:
        assert isinstance(faulty, FaultyDisk)
        faulty.fail(request, nth, error, files=files)
        run.go()
        if run.db is not None:
            after_failure(run.db, run, where)
        faulty.heal()
        with connect(path) as db:
            found = contents(db)
        assert found in (run.acknowledged, run.tried), where
    assert not problems(path), where


def after_failure(db: Connection, run: Run, where: str) -> None:
    failure = db._database.store.failure
    if run.error is not None and db.in_transaction:
        db.rollback()
    seen = contents(db)
    assert seen == run.acknowledged, f"{where}: reads go on, on what was committed"
    db.commit()
    if failure is not None:
        assert run.error is not None, where
        with pytest.raises(ReadOnly, match="takes no more changes"):
            db.insert("t", (-1, "never"))
        db.rollback()
    elif run.error is not None:
        assert isinstance(run.error, DiskFull) or "gmdb.control" in where or "device" in where, f"{where}: {run.error}"
        db.insert("t", (50, "later"))
        run.tried = {**run.acknowledged, 50: "later"}
        db.commit()
        run.acknowledged = dict(run.tried)
    if failure is not None:
        db.close()
        return
    with suppress(StorageError):  # it may fail while closing, and say so
        db.close()


# ---- a full disk


def fill(db: Connection, done: list[int] | None) -> None:
    """Insert rows without an end; with a list, commit at times and note what was committed."""
    for k in range(100_000):
        db.insert("t", (k, TEXT))
        if done is not None and k % 50 == 49:
            db.commit()
            done[:] = range(k + 1)


@pytest.mark.parametrize("files", ["redo-*", "device-*", "*"])
def test_a_full_disk_refuses_statements_and_the_database_lives(tmp_path: Path, files: str) -> None:
    path = tmp_path / "db"
    create(path)
    with disk.use(QuickFaultyDisk()) as faulty:
        assert isinstance(faulty, FaultyDisk)
        with connect(path) as db:
            db.create_table("t", {"k": "INT NOT NULL", "s": "VARCHAR(1000)"})
            db.commit()
            faulty.fail("allocate", 1, errno.ENOSPC, forever=True, files=files)
            done: list[int] = []
            with pytest.raises(DiskFull):
                fill(db, done)
            assert len(contents(db)) > len(done), "what the transaction did before stays its own"
            db.rollback()
            assert sorted(contents(db)) == done
            with pytest.raises(DiskFull):
                fill(db, None)
            db.commit()
            kept = len(contents(db))
            assert db._database.store.failure is None
            faulty.heal()
            for k in range(500):
                db.insert("t", (-k - 1, TEXT))
            db.commit()
            assert len(contents(db)) == kept + 500
    with connect(path) as db:
        assert len(contents(db)) == kept + 500
    assert not problems(path)


def shorten(db: Connection, ids: list[RowId]) -> None:
    for row_id in ids:
        db.heap("t").update(row_id, {"s": "short"})


def end_transactions(db: Connection, row_id: RowId) -> None:
    """Commit and clean up, for which the last of the log's space is kept, until there is none of that either."""
    while True:
        db.commit()
        db.gc()
        db.heap("t").update(row_id, {"s": "short"})


def test_garbage_is_collected_again_after_the_disk_was_full(tmp_path: Path) -> None:
    path = tmp_path / "db"
    create(path)
    with disk.use(QuickFaultyDisk()) as faulty, connect(path) as db:
        assert isinstance(faulty, FaultyDisk)
        db.create_table("t", {"k": "INT NOT NULL", "s": "VARCHAR(1000)"})
        db.commit()
        ids = [db.insert("t", (k, TEXT)) for k in range(2000)]
        db.commit()
        db.gc()
        db._database.transactions.stop()
        faulty.fail("allocate", 1, errno.ENOSPC, forever=True, files="redo-*")
        with pytest.raises(DiskFull):
            shorten(db, ids)
        with pytest.raises(DiskFull):
            end_transactions(db, ids[0])
        db.rollback()
        faulty.heal()
        db.gc()
        assert db.locks().num_rows == 0
    assert not problems(path)


def test_a_tablespace_that_the_disk_has_no_space_for_can_be_made_later(tmp_path: Path) -> None:
    path = tmp_path / "db"
    create(path)
    with disk.use(QuickFaultyDisk()) as faulty, connect(path) as db:
        assert isinstance(faulty, FaultyDisk)
        faulty.fail("allocate", 2, errno.ENOSPC, files="device-*")
        with pytest.raises(DiskFull):
            db.create_tablespace("wide", devices=3)
        db.create_tablespace("wide", devices=3)
        db.create_table("t", {"k": "INT"}, tablespace="wide")
        db.commit()
        db.insert("t", (1,))
    with connect(path) as db:
        assert [values for _, values in db.heap("t").rows()] == [(1,)]
    assert not problems(path)


def test_a_table_whose_commit_the_full_disk_refused_is_not_made_by_the_next_one(tmp_path: Path) -> None:
    path = tmp_path / "db"
    create(path)
    with connect(path) as db:
        log_commit = db._database.transactions.log_commit

        def refuse(*_: object) -> int:
            raise DiskFull("no space for the commit")

        db._database.transactions.log_commit = refuse  # type: ignore[method-assign]
        db.create_table("t", {"k": "INT"})
        with pytest.raises(DiskFull):
            db.commit()
        db.rollback()
        db._database.transactions.log_commit = log_commit  # type: ignore[method-assign]
        db.create_table("u", {"k": "INT"})
    with connect(path) as db:
        assert db.tables() == ["u"]
    assert not problems(path)


@pytest.mark.parametrize("change", ["create_index", "drop_index"])
def test_an_index_whose_change_the_full_disk_refused_is_as_it_was(tmp_path: Path, change: str) -> None:
    path = tmp_path / "db"
    create(path)
    with connect(path) as db, connect(path, lock_timeout=0) as other:
        db.create_table("t", {"k": "INT"})
        db.create_index("t_k", "t", ["k"])
        db.commit()
        db.insert("t", (1,))
        db.commit()
        db.autocommit = True
        refusing = patch.object(db._database.transactions, "log_commit", side_effect=DiskFull("no space for it"))
        with refusing, pytest.raises(DiskFull):
            db.create_index("more", "t", ["k"]) if change == "create_index" else db.drop_index("t_k")
        other.insert("t", (2,))  # the table is nobody's alone any more
        other.commit()
        assert [values[0] for _, values in db.heap("t").by("t_k").range()] == [1, 2]
    with connect(path) as db:
        assert [index.name for index in db.table("t").indexes] == ["t_k"]
        check_indexes(db, "t")
    assert not problems(path)


# ---- writes that go wrong in silence


def damage_a_checkpoint(path: Path, nth: int, flip: int | None) -> None:
    """Have the nth write of a page in a checkpoint go wrong, and read all there is, then and after opening again."""
    before = dict.fromkeys(range(300), TEXT)
    found: list[BaseException] = []
    with disk.use(QuickFaultyDisk()) as faulty:
        assert isinstance(faulty, FaultyDisk)
        db = connect(path)
        db._database.transactions.stop()
        db.create_table("t", {"k": "INT NOT NULL", "s": "VARCHAR(1000)"})
        db.commit()
        db.checkpoint()
        for k in before:
            db.insert("t", (k, TEXT))
        db.commit()
        if flip is not None:
            faulty.flip(nth, flip, files="device-*")
        else:
            faulty.misdirect(nth, 40 * 8192, files="device-0004")
        for step in (db.checkpoint, lambda: check_contents(db, before), db.close):
            try:
                step()
            except Corruption as error:
                found.append(error)
    try:
        with connect(path, read_only=True) as db:
            check_contents(db, before)
    except Corruption as error:
        found.append(error)
    assert found or problems(path), f"page {nth}"


def check_contents(db: Connection, before: dict[int, str]) -> None:
    """Rows may be missing behind a damaged page, which is then told of; but none may be wrong."""
    for k, s in contents(db).items():
        assert before[k] == s


@pytest.mark.parametrize("nth", range(1, 46, 2))
def test_a_bit_that_a_checkpoint_wrote_wrong_is_found(nth: int) -> None:
    with scratch() as place:
        create(place / "db")
        damage_a_checkpoint(place / "db", nth, flip=nth * 7919)


@pytest.mark.parametrize("nth", range(1, 36, 2))
def test_a_page_that_a_checkpoint_wrote_to_another_place_is_found(nth: int) -> None:
    with scratch() as place:
        create(place / "db")
        damage_a_checkpoint(place / "db", nth, flip=None)
