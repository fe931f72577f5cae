"""Power is cut at every operation of a workload: what was acknowledged is there, nothing else is."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gmdb.storage import disk
from tests.crash import writers
from tests.crash.faults import Journal, Truncate
from tests.crash.harness import (
    Cuts,
    MayFind,
    QuickDisk,
    QuickRecordingDisk,
    connect,
    create,
    may_find_any_of,
    may_find_one_of,
    points_of,
    scratch,
    small_log,
    spread,
)
from tests.crash.workload import Workload
from tests.searches import extent

SEEDS, POINTS = range(1, 1 + extent(2, 5)), 130  # power cuts of each seed's workload
RECOVERIES, AGAIN = 6, 6  # recoveries that are cut short, of each seed, and at how many points each
THREADS_POINTS, OFF_POINTS, LARGE_POINTS = extent(60, 150), extent(40, 80), extent(40, 80)
pytestmark = pytest.mark.search


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_log():
        yield


def record(path: Path, seed: int, steps: int, sync: str, large: bool) -> Journal:
    """Run the workload of a seed on a disk that keeps a journal; half-way the database is closed and opened again."""
    recording = QuickRecordingDisk(path)
    recording.mark(("done", {}))
    with disk.use(recording):
        workload = None
        for _ in range(2):
            with connect(path, sync=sync) as db, connect(path) as other:
                db._database.transactions.stop()  # garbage is collected when the workload says so
                if workload is None:
                    workload = Workload(recording, db, other, seed, large=large)
                else:
                    workload.go_on(db, other)
                for _ in range(steps // 2):
                    workload.step()
                workload.commit()
                other.rollback()
    return recording.journal


def record_writers(path: Path, seed: int, commits: int) -> Journal:
    """Four threads at work, the database's own threads among them."""
    with disk.use(QuickDisk()), connect(path) as db:
        writers.prepare(db)
    recording = QuickRecordingDisk(path)
    shutil.copytree(path, path.with_name("base"), dirs_exist_ok=True)
    with disk.use(recording), connect(path) as db:
        background = db._database.transactions._background
        assert background is not None
        background.threshold = 4
        writers.Writers(recording, path, 4, seed).run(db, commits, checkpoints=6)
        time.sleep(0.01)
    return recording.journal


def cut(journal: Journal, place: Path, seed: int, points: int, recoveries: int, again: int, may_find: MayFind) -> int:
    """Cut the power of what was recorded; answers how many states were checked."""
    every = points_of(journal)
    cuts = Cuts(journal, place / "base", place / "states", Random(seed), may_find)
    cuts.check_at(spread(every, points or len(every)))
    if not recoveries:
        return cuts.checked
    cuts_again = Cuts(journal, place / "base", place / "again", Random(seed), may_find)
    cuts_again.check_recovery_at(spread(every, recoveries), again)
    return cuts.checked + cuts_again.checked


def cut_sessions(seed: int, steps: int, points: int, recoveries: int, again: int, sync: str = "full") -> int:
    """Power cuts of two sessions that take turns."""
    return _cut_sessions(seed, steps, points, recoveries, again, sync, False)


def cut_large(seed: int, steps: int, points: int, recoveries: int, again: int) -> int:
    """Power cuts of sessions that fill tables, drop them and make the files shorter."""
    with small_log(640 << 10):
        return _cut_sessions(seed, steps, points, recoveries, again, "full", True)


def _cut_sessions(seed: int, steps: int, points: int, recoveries: int, again: int, sync: str, large: bool) -> int:
    with scratch() as place:
        create(place / "db")
        shutil.copytree(place / "db", place / "base")
        journal = record(place / "db", seed, steps, sync, large)
        assert not large or any(isinstance(one, Truncate) for one in journal), "no file got shorter"
        may_find = may_find_any_of if sync == "off" else may_find_one_of
        return cut(journal, place, seed, points, recoveries, again, may_find)


def cut_writers(seed: int, commits: int, points: int, recoveries: int, again: int) -> int:
    """Power cuts of threads."""
    with scratch() as place:
        create(place / "db")
        journal = record_writers(place / "db", seed, commits)
        return cut(journal, place, seed, points, recoveries, again, writers.may_find)


def test_power_is_cut_at_hundreds_of_points_and_in_a_full_search_at_a_thousand() -> None:
    seeds = len(SEEDS) * (POINTS + RECOVERIES * AGAIN)
    assert seeds + THREADS_POINTS + RECOVERIES * AGAIN + OFF_POINTS + LARGE_POINTS >= extent(500, 1000)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_any_operation_loses_nothing_and_invents_nothing(seed: int) -> None:
    assert cut_sessions(seed, 120, POINTS, RECOVERIES, AGAIN) == POINTS + RECOVERIES * AGAIN


def test_a_power_cut_while_threads_write_loses_nothing_of_any_of_them() -> None:
    assert cut_writers(1, 12, THREADS_POINTS, RECOVERIES, AGAIN) == THREADS_POINTS + RECOVERIES * AGAIN


def test_without_syncs_a_power_cut_takes_the_last_commits_and_leaves_a_sound_database() -> None:
    assert cut_sessions(11, 120, OFF_POINTS, 0, 0, sync="off") == OFF_POINTS


def test_a_power_cut_while_files_get_shorter_loses_nothing() -> None:
    assert cut_large(2, 40, LARGE_POINTS, 0, 0) == LARGE_POINTS
