"""What the log did to a page, of a database that is open: the file's page is where it begins, memory's is the end."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError
from gmdb.format.address import page_name


@pytest.fixture
def page(db: Connection) -> str:
    """A page that a checkpoint has written, and three commits have changed since."""
    db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"})
    row_id = db.heap("t").insert((1, "first"))
    db.commit()
    db.checkpoint()
    for text in ("second", "third", "fourth"):
        db.heap("t").update(row_id, {"s": text})
        db.commit()
    return page_name(row_id.page_id)


def test_every_step_since_the_checkpoint_is_rebuilt_though_memory_is_newer(db: Connection, page: str):
    steps = [step for step in db.inspect("history", page).to_pylist() if step["lsn"] >= _redo_begin(db)]
    assert len(steps) >= 3
    assert all(step["fields"] and step["before"] is not None for step in steps)
    assert b"fourth".hex() in "".join(step["after"] for step in steps)


def test_the_newest_steps_alone(db: Connection, page: str):
    steps = db.inspect("history", page).to_pylist()
    assert db.inspect("history", page, 2).to_pylist() == steps[-2:]
    with pytest.raises(InterfaceError, match="not a number of steps"):
        db.inspect("history", page, "many")


def _redo_begin(db: Connection) -> int:
    return max(one["redo_lsn"] for one in db.inspect("checkpoints").to_pylist() if one["redo_lsn"] is not None)
