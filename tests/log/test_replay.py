"""Replaying the log gives the very bytes that kernels wrote."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Corruption
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE
from gmdb.format.redo import HEAD_SPACE
from gmdb.storage.log.durability import open_store
from gmdb.storage.log.log_files import redo_numbers, redo_path
from gmdb.storage.store import PageStore
from tests.crash.faults import RecordingDisk
from tests.crash.workload import Workload
from tests.searches import extent

# What only memory needs, or only a page that was written: it need not be the same.
VOLATILE = [
    *range(8),
    *range(PAGE_HEAD.offset("ckpt_id"), PAGE_HEAD.offset("dirty_flag") + 1),
]


def pages(store: PageStore) -> dict[tuple[int, int], bytes]:
    found = {}
    for number, device in store.devices.items():
        for offset in range(device.head.hwm):
            page = np.frombuffer(bytearray(device.memory(offset)), np.uint8)[:-TAIL_SIZE]
            page[VOLATILE] = 0
            found[number, offset] = page.tobytes()
    return found


def flush(db: Connection) -> None:
    durability = db._database.durability
    assert durability is not None
    with db._database.store.guard:
        end = durability.redo.end
    durability.redo.make_durable(end)


@pytest.mark.search
@pytest.mark.parametrize("seed", range(extent(4, 12)))
def test_replayed_pages_are_the_pages_in_memory_byte_for_byte(tmp_path: Path, seed: int) -> None:
    path, copy = tmp_path / "db", tmp_path / "copy"
    db, other = gmdb.connect(path), gmdb.connect(path)
    workload = Workload(RecordingDisk(tmp_path), db, other, seed, checkpoints=seed % 2 == 1)
    for _ in range(400):
        workload.step()
    db.create_table("last", {"i": "INT"})  # so that there is something to replay
    db.commit()
    with db._database.store.guard:
        flush(db)
        shutil.copytree(path, copy)
        expected = pages(db._database.store)
    other.close()
    db.close()
    store, recovery = open_store(copy, read_only=True)
    try:
        assert recovery is not None
        assert recovery.groups > 0
        assert pages(store) == expected
    finally:
        store.close()


def test_a_hole_in_the_log_is_damage_and_not_its_end(tmp_path: Path) -> None:
    path, copy = tmp_path / "db", tmp_path / "copy"
    db = gmdb.connect(path)
    db.create_table("t", {"i": "INT"})
    db.commit()
    for n in range(50):
        db.insert("t", (n,))
        db.commit()
    shutil.copytree(path, copy)
    db.close()
    log = redo_path(copy, redo_numbers(copy)[0])
    data = bytearray(log.read_bytes())
    data[HEAD_SPACE + 3000] ^= 4
    log.write_bytes(data)
    with pytest.raises(Corruption, match=r"the redo log is damaged at redo-\d+, offset \d+"):
        gmdb.connect(copy)


def test_a_log_that_is_gone_is_named(tmp_path: Path) -> None:
    path, copy = tmp_path / "db", tmp_path / "copy"
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.commit()
        shutil.copytree(path, copy)
    for number in redo_numbers(copy):
        redo_path(copy, number).unlink()
    with pytest.raises(Corruption, match=r"redo-\d+ is missing or damaged, and the database was not closed"):
        gmdb.connect(copy)
