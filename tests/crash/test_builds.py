"""Power is cut while indexes are built on a table with rows that others go on changing: each is whole, or not there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.kernel.change.index_calls import add_some
from gmdb.kernel.change.index_fill import fill_tree, finish_tree
from gmdb.storage import disk
from gmdb.tables.access import index_build
from tests.crash.faults import marks
from tests.crash.harness import QuickDisk, QuickRecordingDisk, connect, create, points_of, scratch, small_log, spread
from tests.crash.power_cut import crash_states
from tests.integrity import problems
from tests.model.checks import check_indexes
from tests.searches import extent

POINTS, ROWS = 50, 4000
SCHEMA = pa.schema([("k", pa.int32()), ("s", pa.string())])


@pytest.fixture(autouse=True)
def small() -> Iterator[None]:
    with small_log(640 << 10):
        yield


def text(n: int) -> str:
    return f"{n * 7919 % 5000:04d}" * (5 + n % 20)


def prepare(path: Path) -> None:
    with connect(path) as db:
        db.create_table("t", {"k": "INT", "s": "VARCHAR(200)"})
        db.append("t", pa.table([list(range(ROWS)), [text(n) for n in range(ROWS)]], schema=SCHEMA))
        db.commit()


class Work:
    """Builds indexes, with commits of another session in between; tells the disk what is there at each moment."""

    def __init__(self, recording: QuickRecordingDisk, db: Connection, other: Connection, seed: int) -> None:
        self._recording, self._db, self._other = recording, db, other
        self._random = Random(seed)
        self._rows = {n: text(n) for n in range(ROWS)}
        self._indexes: list[str] = []
        self._building = ""
        self.changes = 0
        self._tell("done")

    def _tell(self, kind: str) -> None:
        self._recording.mark((kind, dict(self._rows), list(self._indexes), self._building))

    def build(self, name: str, columns: list[str], unique: bool, using: str) -> None:
        self._building = name
        self._tell("done")
        self._db.create_index(name, "t", columns, unique=unique, using=using)
        self._indexes.append(name)
        self._building = ""
        self._tell("done")

    def change(self) -> None:
        """Some rows change, come and go, and all of it is committed."""
        heap = self._other.heap("t")
        ids = {k: row_id for row_id, (k, _) in heap.rows()}
        for key in self._random.sample(sorted(self._rows), 12):
            if self._random.random() < 0.4:
                heap.delete(ids[key])
                del self._rows[key]
            else:
                self._rows[key] = text(self._random.randrange(10_000))
                heap.update(ids[key], {"s": self._rows[key]})
        for _ in range(6):
            key = max(self._rows) + 1
            self._rows[key] = text(key)
            heap.insert((key, self._rows[key]))
        self._tell("trying")
        self._other.commit()
        self._tell("done")
        self.changes += 1
        if self._random.random() < 0.3:
            self._db.checkpoint()


def record(path: Path, recording: QuickRecordingDisk, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    with connect(path) as db, connect(path) as other:
        db._database.transactions.stop()
        db.autocommit = True  # then others go on while an index is built
        work, call = Work(recording, db, other, seed), index_build.Filling._call

        def interrupted(self: index_build.Filling, kernel: Any, *arguments: int) -> int:
            if kernel in (fill_tree, finish_tree, add_some):
                work.change()
            return call(self, kernel, *arguments)

        monkeypatch.setattr(index_build.Filling, "_call", interrupted)
        work.build("t_k", ["k"], True, "btree")
        work.build("t_hk", ["k"], True, "hash")
        work.build("t_s", ["s"], False, "btree")
        work.build("t_hs", ["s", "k"], False, "hash")
        monkeypatch.undo()
        assert work.changes > 10


@pytest.mark.search
@pytest.mark.parametrize("seed", range(extent(1, 2)))
def test_an_index_is_whole_or_not_there_after_a_power_cut_at_any_operation(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with scratch() as place:
        create(place / "db")
        with disk.use(QuickDisk()):
            prepare(place / "db")
        shutil.copytree(place / "db", place / "base")
        recording = QuickRecordingDisk(place / "db")
        with disk.use(recording):
            record(place / "db", recording, seed, monkeypatch)
        journal, half_built = recording.journal, 0
        points = spread(points_of(journal), POINTS)
        for upto, directory in crash_states(journal, place / "base", place / "states", Random(seed), points):
            told = marks(journal, upto)
            last = max((n for n, (kind, *_) in enumerate(told) if kind == "done"), default=0)
            with disk.use(QuickDisk()), connect(directory) as db:
                assert {k: s for _, (k, s) in db.heap("t").rows()} in [state[1] for state in told[last:]] or not told
                _, _, known, building = told[-1] if told else ("", {}, [], "")
                found = {index.name for index in db.table("t").indexes}
                assert found in ({*known}, {*known, building})
                half_built += bool(building) and building not in found
                if upto % 5 == 0:
                    check_indexes(db, "t")
            assert problems(directory) == []
        assert half_built > POINTS // 2
