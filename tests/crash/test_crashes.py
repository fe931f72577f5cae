"""Power is cut at every operation of a workload: what was acknowledged is there, nothing else is."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

import gmdb
from gmdb.log import durability, redo
from gmdb.storage import disk
from tests.crash.faults import Journal, Mark, RecordingDisk
from tests.crash.power_cut import crash_states
from tests.crash.workload import Workload, allowed, found
from tests.integrity import problems

SEEDS = [int(seed) for seed in os.environ.get("GMDB_CRASH_SEEDS", "1,2,3").split(",")]
STEPS = int(os.environ.get("GMDB_CRASH_STEPS", "150"))


@pytest.fixture(autouse=True)
def small_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a short workload fills buffers and files."""
    monkeypatch.setattr(durability, "REDO_FILE_SIZE", 2 << 20)
    monkeypatch.setattr(redo, "BUFFER_SIZE", 64 << 10)


def record(path: Path, seed: int, steps: int) -> Journal:
    """Run the workload of a seed on a disk that keeps a journal."""
    with disk.use(RecordingDisk(path)) as recording:
        assert isinstance(recording, RecordingDisk)
        with gmdb.connect(path) as db, gmdb.connect(path) as other:
            db._database.transactions.stop()  # garbage is collected when the workload says so
            workload = Workload(recording, db, other, seed)
            for _ in range(steps):
                workload.step()
            workload.commit()
            other.rollback()
    return recording.journal


@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_at_any_operation_loses_nothing_and_invents_nothing(tmp_path: Path, seed: int) -> None:
    path = tmp_path / "db"
    gmdb.connect(path).close()
    base = tmp_path / "base"
    shutil.copytree(path, base)
    journal = record(path, seed, STEPS)
    points = points_of(journal)
    for upto, directory in crash_states(journal, base, tmp_path / "states", Random(seed), points):
        check(journal, upto, directory)


def points_of(journal: Journal) -> list[int]:
    """After each operation from the workload's first word on; a mark is none."""
    told = [n for n, operation in enumerate(journal) if isinstance(operation, Mark)]
    return [n for n in range(told[0] + 1, len(journal) + 1) if not isinstance(journal[n - 1], Mark)]


def check(journal: Journal, upto: int, directory: Path) -> None:
    with gmdb.connect(directory) as db:
        state = found(db)
    assert state in allowed(journal, upto), f"after {upto} of {len(journal)} operations"
    wrong = problems(directory)
    assert not wrong, wrong[:10]
