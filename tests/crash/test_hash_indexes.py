"""Power is cut while hash indexes split and merge: afterwards they have an entry for each row, and no other."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gmdb.storage import disk
from tests.crash.faults import marks
from tests.crash.harness import QuickDisk, QuickRecordingDisk, connect, create, points_of, scratch, small_log, spread
from tests.crash.power_cut import crash_states
from tests.integrity import problems
from tests.model.histories import check_indexes
from tests.searches import extent

POINTS = 60


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_log(640 << 10):
        yield


def work(path: Path, recording: QuickRecordingDisk, seed: int) -> None:
    """Rows come, change their keys and go, in transactions that commit or roll back."""
    r, row_ids = Random(seed), []
    with connect(path) as db:
        db._database.transactions.stop()
        db.create_table("t", {"k": "INT", "s": "VARCHAR(400)"})
        db.create_index("t_k", "t", ["k"], using="hash")
        db.create_index("t_s", "t", ["s", "k"], unique=True, using="hash")
        db.commit()
        recording.mark(("rows", 0))
        heap = db.heap("t")
        for n in range(40):
            grows = n < 15 or r.random() < 0.3
            before = list(row_ids)
            for m in range(r.choice([5, 40])):
                if grows:
                    key = r.choice([1, None, r.randint(0, 1000)])
                    row_ids.append(heap.insert((key, f"{n}-{m}-" + "x" * r.randint(0, 300))))
                elif row_ids and r.random() < 0.3:
                    heap.update(r.choice(row_ids), {"k": r.randint(0, 5), "s": f"{n}-{m}-y"})
                elif row_ids:
                    heap.delete(row_ids.pop(r.randrange(len(row_ids))))
            if r.random() < 0.2:
                db.rollback()
                row_ids = before
            else:
                db.commit()
                recording.mark(("rows", len(row_ids)))
            if n % 7 == 3:
                db.gc()
            if n % 13 == 5:
                db.checkpoint()


@pytest.mark.search
@pytest.mark.parametrize("seed", range(extent(1, 3)))
def test_a_hash_index_is_whole_after_a_power_cut_at_any_operation(seed: int) -> None:
    with scratch() as place:
        create(place / "db")
        shutil.copytree(place / "db", place / "base")
        recording = QuickRecordingDisk(place / "db")
        with disk.use(recording):
            work(place / "db", recording, seed)
        journal = recording.journal
        points = spread(points_of(journal), POINTS)
        for upto, directory in crash_states(journal, place / "base", place / "states", Random(seed), points):
            with disk.use(QuickDisk()), connect(directory) as db:
                check_indexes(db, "t")
                told = [count for _, count in marks(journal, upto)]
                later = [count for _, count in marks(journal, len(journal))][len(told) :]
                assert len(list(db.heap("t").rows())) in (told[-1], *later[:1])
            assert problems(directory) == []
