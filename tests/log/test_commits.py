"""Commits of several threads reach the disk together."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import gmdb
from gmdb.storage.log.log_files import RedoFiles

THREADS, COMMITS = 6, 100


@pytest.mark.parametrize("sync", ["full", "group"])
def test_threads_that_commit_at_the_same_time_share_syncs(
    path: Path, monkeypatch: pytest.MonkeyPatch, sync: str
) -> None:
    syncs = []
    original = RedoFiles.sync

    def counted(self: RedoFiles, writing: threading.Lock) -> None:
        syncs.append(1)
        time.sleep(0.001)  # as a disk would take; the test's files may lie in memory
        original(self, writing)

    with gmdb.connect(path, sync=sync) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        monkeypatch.setattr(RedoFiles, "sync", counted)

        def work(number: int) -> None:
            with gmdb.connect(path) as own:
                for n in range(COMMITS):
                    own.insert("t", (number * COMMITS + n,))
                    own.commit()

        with ThreadPoolExecutor(THREADS) as pool:
            list(pool.map(work, range(THREADS)))
        assert len(syncs) < THREADS * COMMITS * 3 // 4
        assert sorted(db.arrow("t").read_all()["i"].to_pylist()) == list(range(THREADS * COMMITS))


def test_a_thread_that_commits_alone_waits_for_nobody(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        log = db._database.durability.redo  # type: ignore[union-attr]
        for n in range(20):
            db.insert("t", (n,))
            db.commit()
            assert log._company == 0


def test_nobody_goes_on_before_others_see_the_commit(path: Path) -> None:
    """A commit that came late finds its bytes on disk, while whoever wrote them has not shown the commits yet."""
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        log = db._database.durability.redo  # type: ignore[union-attr]
        publish, is_publishing, may_publish = log.on_durable.function, threading.Event(), threading.Event()
        happened: list[str] = []

        def publish_slowly(end: int) -> None:
            is_publishing.set()
            may_publish.wait(60)
            publish(end)
            happened.append("shown")

        def come_late() -> None:
            log.make_durable(end)
            happened.append("went on")

        log.on_durable.connect(publish_slowly)
        with gmdb.connect(path) as writer:
            writer.insert("t", (1,))
            leader = threading.Thread(target=writer.commit)
            end = log.end
            leader.start()
            assert is_publishing.wait(60)
            late = threading.Thread(target=come_late)
            late.start()
            late.join(0.5)  # as long as it takes who does not wait
            may_publish.set()
            leader.join()
            late.join()
        log.on_durable.connect(publish)
        assert happened[:2] == ["shown", "went on"]
