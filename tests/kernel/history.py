"""One random history of a seed, in which nothing differs from run to run: ``python -m tests.kernel.history``.

Two sessions change tables, indexes and large objects in every way there is, with rollbacks, garbage collection and
checkpoints; the database is closed, opened and used again.  Then power is cut at some moment of that, and what is
left is recovered.  All that was asked of the disk on the way is the history's journal: log, pages, control file.
"""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import time
from itertools import count
from pathlib import Path
from random import Random

from gmdb.storage import disk
from tests.crash.faults import Journal
from tests.crash.harness import QuickRecordingDisk, connect, create, points_of, small_log
from tests.crash.power_cut import PowerCut
from tests.crash.test_crashes import record
from tests.crash.workload import found


def stop_chance(seed: int) -> None:
    """Have the clock that commits are dated by, and the ids of databases, go by a seed in this process."""
    moments = count(1_700_000_000_000_000_000, 1_000_000)
    time.time_ns = lambda: next(moments)
    os.urandom = Random(seed).randbytes  # type: ignore[assignment]


def play(place: Path, seed: int, steps: int) -> list[Journal]:
    """The journal of a history, and that of the recovery from a power cut in its second half."""
    stop_chance(seed)
    with small_log():
        create(place / "db")
        shutil.copytree(place / "db", place / "base")
        journal = record(place / "db", seed, steps, "full", large=False)
        points = points_of(journal)
        cut = PowerCut(journal, place / "base")
        cut.advance(points[Random(seed).randrange(len(points) // 2, len(points))])
        cut.build(place / "left", Random(seed))
        recovering = QuickRecordingDisk(place / "left")
        with disk.use(recovering), connect(place / "left") as db:
            db._database.transactions.stop()
            recovering.mark(("recovered", found(db)))
    return [journal, recovering.journal]


if __name__ == "__main__":
    directory, number, length = sys.argv[1:]
    Path(directory).mkdir()
    Path(directory, "journals").write_bytes(pickle.dumps(play(Path(directory), int(number), int(length))))
