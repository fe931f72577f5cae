"""Random histories of interleaved sessions: every read is what the model says.

To see one again: ``run(World(path), seed, steps)`` with the seed and steps that a failure names.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import NoSuchRow
from tests.integrity import assert_sound
from tests.model.checks import undo_is_empty
from tests.model.histories import run
from tests.model.members import World
from tests.searches import extent

BATCHES = extent(2, 8)
HISTORIES = 250


@pytest.mark.search
@pytest.mark.parametrize("batch", range(BATCHES))
def test_every_read_of_interleaved_sessions_is_what_their_snapshots_say(path: Path, batch: int) -> None:
    world = World(path)
    try:
        for seed in range(batch * HISTORIES, (batch + 1) * HISTORIES):
            steps = 200 if seed % 5 == 0 else random.Random(seed).randint(30, 60)
            run(world, seed, steps)
        world.pool[0].gc()
        assert world.pool[0].locks().num_rows == 0
        assert undo_is_empty(world.pool[0])
    finally:
        world.close()
    assert_sound(path)


# ---- histories that went wrong once, without what has nothing to do with it


@pytest.fixture
def other(db: Connection) -> Iterator[Connection]:
    """A second session; GC runs when the test says so."""
    db._database.transactions.stop()
    db.create_table("t", {"id": "INT", "text": "VARCHAR(2000)"})
    db.commit()
    session = gmdb.connect(db.path, lock_timeout=0)
    yield session
    session.close()


def data(first: int, count: int = 20) -> pa.Table:
    return pa.table({"id": pa.array(range(first, first + count), pa.int32()), "text": ["x" * 1500] * count})


def test_a_row_locked_under_autocommit_is_free_afterwards(db: Connection, other: Connection) -> None:
    db.autocommit = True
    row_id = db.insert("t", (1, None))
    db.heap("t").lock(row_id)
    other.heap("t").update(row_id, {"id": 2})
    other.commit()
    db.gc()
    assert db.locks().num_rows == 0
    db.autocommit = False


def test_a_cursor_that_saw_committed_changes_outlives_a_later_rollback(db: Connection, other: Connection) -> None:
    for number in range(20):
        db.insert("t", (number, "x" * 1500))
    cursor = db.heap("t").rows()
    found = [next(cursor)]
    db.commit()
    other.insert("t", (20, None))
    db.insert("t", (21, None))
    db.rollback()
    found += cursor
    assert [values[0] for _, values in found] == list(range(20))


def test_a_changed_row_of_anothers_bulk_append_is_not_there_for_writers(db: Connection, other: Connection) -> None:
    db.append("t", data(0))
    row_id = next(iter(db.heap("t").rows()))[0]
    db.heap("t").update(row_id, {"text": "y"})
    with pytest.raises(NoSuchRow):
        other.heap("t").update(row_id, {"text": "z"})


def test_a_cursor_sees_the_bulk_append_before_it_and_not_the_one_after_it(db: Connection, other: Connection) -> None:
    other.append("t", data(0))
    db.append("t", data(100))
    other.commit()
    other.gc()
    cursor = db.heap("t").rows()
    found = [next(cursor)]
    db.append("t", data(200))
    found += cursor
    assert sorted(values[0] for _, values in found) == [*range(20), *range(100, 120)]


def test_a_scan_builds_many_old_versions_without_harm(db: Connection, other: Connection) -> None:
    rows = [db.insert("t", (number, "x" * 1500)) for number in range(2000)]
    db.commit()
    for _ in range(3):
        for row_id in rows:
            other.heap("t").update(row_id, {"text": "y" * 1500})
        table = db.arrow("t").read_all()
        assert table["text"].unique().to_pylist() == ["x" * 1500]
        assert table["id"].to_pylist() == list(range(2000))
    other.rollback()
