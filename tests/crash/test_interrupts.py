"""Threads that are interrupted or end in the middle of a commit leave others able to go on, and nothing half done."""

from __future__ import annotations

import errno
import gc
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, ReadOnly, StorageError
from gmdb.storage import disk
from gmdb.storage.disk import Disk, DiskFile
from tests.integrity import assert_sound
from tests.model.checks import check_indexes
from tests.sessions import answer, in_thread, until


class StoppingDisk(Disk):
    """A disk that calls something before, or after, the next request of a kind for a file."""

    def __init__(self) -> None:
        super().__init__()
        self._plans: list[tuple[str, str, bool, Callable[[], None]]] = []

    def at_next(self, request: str, files: str, what: Callable[[], None], after: bool = False) -> None:
        self._plans.append((request, files, after, what))

    def _meet(self, request: str, file: DiskFile, after: bool) -> None:
        for plan in self._plans:
            if plan[0] == request and file.path.name.startswith(plan[1]) and plan[2] == after:
                self._plans.remove(plan)
                plan[3]()

    def raw_write(self, file: DiskFile, data: memoryview, offset: int) -> int:
        self._meet("write", file, after=False)
        count = super().raw_write(file, data, offset)
        self._meet("write", file, after=True)
        return count

    def raw_write_pieces(self, *_: Any) -> int:
        return 0

    def raw_sync(self, file: DiskFile, everything: bool) -> None:
        self._meet("sync", file, after=False)
        super().raw_sync(file, everything)
        self._meet("sync", file, after=True)


def interrupt() -> None:
    raise KeyboardInterrupt


@pytest.fixture
def stopping() -> Iterator[StoppingDisk]:
    with disk.use(StoppingDisk()) as used:
        assert isinstance(used, StoppingDisk)
        yield used


@pytest.fixture
def db(path: Path, stopping: StoppingDisk) -> Iterator[Connection]:
    assert disk.current is stopping
    with gmdb.connect(path) as opened:
        opened.create_table("t", {"i": "INT"})
        opened.commit()
        yield opened
    assert_sound(path)


def numbers(db: Connection) -> list[int]:
    return sorted(i for _, (i,) in db.heap("t").rows())


def hold_up_a_commit(db: Connection, stopping: StoppingDisk) -> tuple[threading.Event, Any]:
    """Have another session's commit stand in the middle of its sync; answers how to let it go on, and its future."""
    arrived, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        assert go_on.wait(60)

    def work() -> None:
        with gmdb.connect(db.path) as other:
            other.insert("t", (1,))

    stopping.at_next("sync", "redo-", wait)
    future = in_thread(work)
    assert arrived.wait(60)
    return go_on, future


@pytest.mark.parametrize("request_", ["write", "sync"])
@pytest.mark.parametrize("after", [False, True])
def test_whoever_is_interrupted_while_it_commits_has_committed_and_others_go_on(
    db: Connection, path: Path, stopping: StoppingDisk, request_: str, after: bool
) -> None:
    db.insert("t", (7,))
    stopping.at_next(request_, "redo-", interrupt, after)
    with pytest.raises(KeyboardInterrupt):
        db.commit()
    assert not db.in_transaction
    db.rollback()  # as a program does that cleans up; there is nothing left to roll back
    with gmdb.connect(path) as other:
        other.insert("t", (8,))
        answer(in_thread(other.commit))
        assert numbers(other) == [7, 8]


@pytest.mark.parametrize("change", ["create_index", "drop_index"])
@pytest.mark.parametrize("request_", ["write", "sync"])
def test_an_index_whose_commit_is_interrupted_is_there_or_gone_for_everybody(
    db: Connection, path: Path, stopping: StoppingDisk, change: str, request_: str
) -> None:
    """What memory says is what the catalog says: else rows would be missing in an index, or go to a freed page."""
    for number in range(300):
        db.insert("t", (number,))
    db.commit()
    if change == "drop_index":
        db.create_index("t_i", "t", ["i"])
        db.commit()
    db.autocommit = True
    stopping.at_next(request_, "redo-", interrupt)
    with pytest.raises(KeyboardInterrupt):
        db.create_index("t_i", "t", ["i"]) if change == "create_index" else db.drop_index("t_i")
    with gmdb.connect(path) as other:
        other.insert("t", (1000,))
        other.commit()
        other.gc()
    known = [index.name for index in db.table("t").indexes]
    db.close()
    with gmdb.connect(path) as again:
        assert [index.name for index in again.table("t").indexes] == known
        assert known == (["t_i"] if change == "create_index" else [])
        if known:
            check_indexes(again, "t")


def test_the_rows_of_an_interrupted_commit_are_others_soon_though_nobody_commits(
    db: Connection, path: Path, stopping: StoppingDisk
) -> None:
    row_id = db.insert("t", (1,))
    db.commit()
    db.heap("t").update(row_id, (2,))
    stopping.at_next("sync", "redo-", interrupt)
    with pytest.raises(KeyboardInterrupt):
        db.commit()
    with gmdb.connect(path, lock_timeout=30) as other:
        other.heap("t").update(row_id, (3,))
        other.commit()
        assert numbers(other) == [3]


def test_an_index_that_is_built_right_after_an_interrupted_commit_has_its_rows(
    db: Connection, path: Path, stopping: StoppingDisk
) -> None:
    for number in range(300):
        db.insert("t", (number,))
    db.commit()
    db._database.transactions.stop()  # which would have the commit on disk in a moment
    db.insert("t", (1000,))
    stopping.at_next("sync", "redo-", interrupt)
    with pytest.raises(KeyboardInterrupt):
        db.commit()
    with gmdb.connect(path, autocommit=True) as other:
        other.create_index("t_i", "t", ["i"])
        check_indexes(other, "t")
        assert len(other.heap("t").by("t_i").find((1000,))) == 1


def test_whoever_is_interrupted_while_it_waits_for_the_writer_has_committed_and_others_go_on(
    db: Connection, stopping: StoppingDisk
) -> None:
    go_on, leader = hold_up_a_commit(db, stopping)
    db.insert("t", (2,))
    session, redo = db.session, db._database.durability.redo  # type: ignore[union-attr]

    class Interrupted:
        def acquire(self, **_: float) -> bool:
            raise KeyboardInterrupt

    def commit() -> None:
        until(lambda: redo._turns)
        redo._turns[0].call = Interrupted()  # type: ignore[assignment]

    meddler = in_thread(commit)
    with pytest.raises(KeyboardInterrupt):
        db.commit()
    answer(meddler)
    assert session.slot < 0
    go_on.set()
    answer(leader)
    db.insert("t", (3,))
    answer(in_thread(db.commit))
    assert numbers(db) == [1, 2, 3]


def test_bytes_that_an_interrupt_kept_from_the_log_reach_it_later(path: Path, stopping: StoppingDisk) -> None:
    """An insert that finds the buffer full writes it out; interrupted there, it must leave no hole in the log."""
    copy = path.with_name("copy")
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        redo = db._database.durability.redo  # type: ignore[union-attr]
        db.insert("t", (1,))
        stopping.at_next("write", "redo-", interrupt)
        with pytest.raises(KeyboardInterrupt):
            redo.make_room(False)
        db.insert("t", (2,))
        db.commit()
        shutil.copytree(path, copy)
    with gmdb.connect(copy) as again:
        assert numbers(again) == [1, 2]


def test_nothing_is_acknowledged_behind_a_hole_in_the_log(path: Path, stopping: StoppingDisk) -> None:
    """A thread whose write fails was not committing; the one that commits behind it must hear of it in time."""
    arrived, go_on = threading.Event(), threading.Event()

    def fail() -> None:
        arrived.set()
        assert go_on.wait(60)
        raise OSError(errno.EIO, "no more")

    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        store, redo = db._database.store, db._database.durability.redo  # type: ignore[union-attr]
        db.insert("t", (1,))
        stopping.at_next("write", "redo-", fail)
        writing = in_thread(lambda: redo.make_room(False))
        assert arrived.wait(60)
        db.insert("t", (2,))
        committing = in_thread(db.commit)
        until(lambda: not is_free(store.guard))  # it stands behind the one that writes
        go_on.set()
        for future in (writing, committing):
            with pytest.raises(StorageError):
                answer(future)
        with pytest.raises(ReadOnly, match="takes no more changes"):
            db.insert("t", (3,))
    with gmdb.connect(path) as db:
        assert numbers(db) == []


def is_free(guard: Any) -> bool:
    if guard.acquire(blocking=False):
        guard.release()
        return True
    return False


def test_a_number_that_a_commit_was_given_is_not_given_again_after_a_crash(path: Path) -> None:
    """Also if a checkpoint, after which its redo is not replayed, comes before others may see the commit."""
    copy = path.with_name("copy")
    arrived, go_on = threading.Event(), threading.Event()
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.create_table("t", {"i": "INT"})
        db.commit()
        hub, redo = db._database.transactions, db._database.durability.redo  # type: ignore[union-attr]

        def publish_later(durable: int) -> None:
            redo.on_durable.connect(hub.publish)
            arrived.set()
            assert go_on.wait(60)
            hub.publish(durable)

        other.insert("t", (1,))
        redo.on_durable.connect(publish_later)
        committing = in_thread(other.commit)
        assert arrived.wait(60)
        checkpointing = in_thread(db.checkpoint)
        go_on.set()
        answer(checkpointing)
        shutil.copytree(path, copy)
        answer(committing)
        given = hub.memory.scn
    with gmdb.connect(copy) as again:
        assert numbers(again) == [1]
        assert again._database.transactions.memory.scn >= given


def test_a_checkpoint_that_is_interrupted_loses_no_page(path: Path, stopping: StoppingDisk) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        db.insert("t", (1,))
        db.commit()
        stopping.at_next("write", "device-", interrupt)
        with pytest.raises(KeyboardInterrupt):
            db.checkpoint()
        with pytest.raises(ReadOnly, match="checkpoint was interrupted"):
            db.insert("t", (2,))
        db.rollback()
        assert numbers(db) == [1]
    with gmdb.connect(path) as db:
        assert numbers(db) == [1]
    assert_sound(path)


def test_closing_waits_for_a_commit_of_another_thread(path: Path, stopping: StoppingDisk) -> None:
    db = gmdb.connect(path)
    db.create_table("t", {"i": "INT"})
    db.commit()
    db.insert("t", (1,))
    arrived, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        assert go_on.wait(60)

    stopping.at_next("sync", "redo-", wait)
    committing = in_thread(db.commit)
    assert arrived.wait(60)
    rolling_back, closing = in_thread(db.rollback), in_thread(db.close)  # each waits for its turn
    assert not closing.done()
    go_on.set()
    answer(closing)
    answer(committing)
    with suppress(InterfaceError):  # the connection may have been closed first
        answer(rolling_back)
    with gmdb.connect(path) as db:
        assert numbers(db) == [1]
    assert_sound(path)


def test_a_thread_that_ends_in_the_middle_of_its_transaction_is_rolled_back_when_its_connection_goes(
    db: Connection, path: Path
) -> None:
    def work() -> None:
        other = gmdb.connect(path)
        other.insert("t", (1,))
        raise SystemExit

    with pytest.raises(SystemExit):
        answer(in_thread(work))
    gc.collect()
    db.insert("t", (2,))
    db.commit()
    assert numbers(db) == [2]
