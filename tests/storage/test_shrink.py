"""Free pages at the end of a device go back to the operating system, whatever else happens."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import gmdb
from gmdb.cli import main
from gmdb.database.connection import Connection
from gmdb.format.address import FIRST_USER_DEVICE, UNDO_DEVICE
from gmdb.kernel.runtime.compiler import COMPILED
from gmdb.storage.device import GROWTH_MIN
from gmdb.storage.directory import device_path
from gmdb.storage.log import durability
from gmdb.storage.log.shrink import SIZE_MIN, Cut
from gmdb.transaction import gc
from tests.integrity import assert_sound
from tests.sessions import until

TEXT = "a text of some length" if COMPILED else "a text of some length" * 90
ROWS = 60_000 if COMPILED else 1600  # about 3 MiB
FEW = 1000 if COMPILED else 25
MANY = ROWS // 3


def rows(count: int, start: int = 0) -> pa.Table:
    return pa.table({"i": pa.array(np.arange(start, start + count, dtype=np.int32)), "s": [TEXT] * count})


def fill(db: Connection, name: str = "t", count: int = ROWS, start: int = 0) -> None:
    if name not in db.tables():
        db.create_table(name, {"i": "INT", "s": "VARCHAR(2000)"})
        db.commit()
    db.append(name, rows(count, start))
    db.commit()


def keys(db: Connection, name: str = "t") -> list[int]:
    return sorted(db.arrow(name, ["i"]).read_all()["i"].to_pylist())


def keep_few(db: Connection) -> None:
    """Delete all rows but the first ones."""
    db.delete("t", lambda row: row["i"] >= FEW)
    db.commit()


def file_size(db: Connection, device: int = FIRST_USER_DEVICE) -> int:
    return device_path(db.path, device).stat().st_size


def shrinking(db: Connection) -> Any:
    assert db._database.durability is not None
    return db._database.durability.shrinking


def test_after_rows_were_deleted_the_file_is_shorter(db: Connection) -> None:
    fill(db)
    before = file_size(db)
    keep_few(db)
    assert db.shrink() >= before - file_size(db) > before // 2
    assert keys(db) == list(range(FEW))
    assert db.shrink() == 0


def test_after_a_table_was_dropped_the_file_is_as_short_as_a_new_one(db: Connection) -> None:
    fill(db)
    db.drop_table("t")
    db.commit()
    db.shrink()
    assert file_size(db) == GROWTH_MIN
    fill(db, count=FEW)
    assert keys(db) == list(range(FEW))


def test_pages_before_one_in_use_stay(db: Connection) -> None:
    fill(db)
    fill(db, "last", FEW)
    db.delete("t")
    db.commit()
    size = file_size(db)
    db.shrink()
    assert file_size(db) > size // 2
    fill(db)  # into the free pages, or behind them
    assert keys(db) == list(range(ROWS))
    assert keys(db, "last") == list(range(FEW))


def test_undo_space_of_a_large_transaction_is_given_back(db: Connection) -> None:
    fill(db, count=MANY)
    db.update("t", {"s": "another"})
    db.commit()
    before = file_size(db, UNDO_DEVICE)
    db.shrink()
    assert file_size(db, UNDO_DEVICE) < before
    db.update("t", {"s": "a third"})
    db.rollback()


def test_a_device_grows_again_by_loads_and_row_by_row(db: Connection) -> None:
    fill(db)
    keep_few(db)
    db.shrink()
    short = file_size(db)
    fill(db, count=ROWS, start=ROWS)
    db.drop_table("t")
    db.commit()
    db.shrink()
    db.create_table("t", {"i": "INT", "s": "VARCHAR(2000)"})
    db.commit()
    heap = db.heap("t")
    for i in range(MANY):
        heap.insert((i, TEXT))
    db.commit()
    db.checkpoint()
    assert file_size(db) > short
    assert keys(db) == list(range(MANY))


def test_shrinking_and_growing_in_turns_keeps_every_row(db: Connection) -> None:
    for turn in range(4):
        first = turn * ROWS
        fill(db, count=ROWS // 2, start=first)
        db.delete("t", lambda row, first=first: row["i"] >= first + FEW)
        db.commit()
        assert db.shrink() > 0
        assert keys(db) == [start + i for start in range(0, first + 1, ROWS) for i in range(FEW)]


def test_what_a_reader_still_needs_is_not_given_back(db: Connection, path: Path) -> None:
    fill(db)
    with gmdb.connect(path, isolation="repeatable read") as reader:
        assert len(keys(reader)) == ROWS
        keep_few(db)
        db.shrink()
        assert len(keys(reader)) == ROWS
        reader.commit()
    db.shrink()
    assert file_size(db) < 600_000


@pytest.mark.parametrize("then", ["load", "rows", "nothing"] if COMPILED else ["rows"])
@pytest.mark.parametrize("step", range(6) if COMPILED else [3])
def test_a_crash_after_any_step_leaves_a_sound_database(path: Path, tmp_path: Path, step: int, then: str) -> None:
    db = gmdb.connect(path)
    fill(db)
    keep_few(db)
    db.gc()
    expected = [*range(FEW)]
    work, device = shrinking(db), db._database.store.devices[FIRST_USER_DEVICE]
    cuts: list[Cut] = []
    steps: list[Callable[[], Any]] = [
        lambda: cuts.extend(work._plan(device)),
        lambda: work.gather(cuts[0]),
        db.checkpoint,
        lambda: work.lower(cuts[0]),
        db.checkpoint,
        device.cut,
    ]
    assert all(action() is not False for action in steps[: step + 1])
    if then == "load":
        fill(db, count=ROWS // 4, start=ROWS)
        expected += range(ROWS, ROWS + ROWS // 4)
    elif then == "rows":
        heap = db.heap("t")
        for i in range(ROWS // 20):
            heap.insert((ROWS + i, TEXT))
        db.commit()
        expected += range(ROWS, ROWS + ROWS // 20)
    copy = tmp_path / "copy"
    shutil.copytree(path, copy)
    for action in steps[step + 1 :]:
        action()
    assert keys(db) == expected
    db.close()
    assert_sound(path)
    with gmdb.connect(copy, read_only=True) as crashed:
        assert keys(crashed) == expected
    with gmdb.connect(copy) as crashed:
        assert keys(crashed) == expected
        fill(crashed, count=ROWS // 2, start=2 * ROWS)
        assert len(keys(crashed)) == len(expected) + ROWS // 2
    assert_sound(copy)


def test_pages_that_were_used_meanwhile_are_not_cut_off(db: Connection) -> None:
    fill(db)
    db.drop_table("t")
    db.commit()
    work, device = shrinking(db), db._database.store.devices[FIRST_USER_DEVICE]
    (cut,) = work._plan(device)
    assert work.gather(cut)
    db.checkpoint()
    fill(db, count=ROWS // 2)
    db.drop_table("t")
    db.commit()
    assert not work.lower(cut)
    db.shrink()
    assert file_size(db) == GROWTH_MIN


def test_pages_whose_redo_somebody_needs_are_not_cut_off(db: Connection) -> None:
    fill(db)
    files = shrinking(db)._redo.files
    lsn = db._database.store.control["redo_lsn"]
    files.hold(lsn)
    db.drop_table("t")
    db.commit()
    size = file_size(db)
    assert db.shrink() == 0
    assert file_size(db) == size
    files.release(lsn)
    assert db.shrink() > 0


def test_a_list_of_free_pages_in_any_order_is_gathered_at_its_end(db: Connection) -> None:
    """Rows are deleted at random, so that the list of free pages goes back and forth."""
    fill(db, count=FEW)
    db.create_table("wide", {"i": "INT", "s": "VARCHAR(4000)"})
    db.commit()
    heap = db.heap("wide")
    row_ids = [heap.insert((i, "x" * 3500)) for i in range(1200)]
    db.commit()
    order = np.random.default_rng(5).permutation(len(row_ids)).tolist()
    for number in order:
        heap.delete(row_ids[number])
        if number % 7 == 0:
            db.commit()
            db.gc()
    db.commit()
    assert db.shrink() > 2 << 20
    assert keys(db) == list(range(FEW))


def test_a_scan_goes_on_while_the_pages_that_it_read_are_cut_off(db: Connection, path: Path) -> None:
    fill(db)
    stop, found = threading.Event(), []

    def read() -> None:
        with gmdb.connect(path) as reader:
            while not stop.is_set():
                found.append(reader.arrow("t").read_all().num_rows)
                reader.commit()

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(3):
        keep_few(db)
        db.shrink()
        fill(db, count=ROWS - FEW, start=FEW)
    stop.set()
    for thread in threads:
        thread.join()
    assert set(found) <= {FEW, ROWS}


def test_writers_go_on_while_devices_are_made_shorter(db: Connection, path: Path) -> None:
    fill(db, count=FEW)
    stop, written = threading.Event(), []

    def write(number: int) -> None:
        with gmdb.connect(path) as writer:
            heap = writer.heap("t")
            i = 0
            while not stop.is_set():
                heap.insert((1_000_000 * number + i, TEXT))
                writer.commit()
                i += 1
            written.append((number, i))

    threads = [threading.Thread(target=write, args=(number,)) for number in (1, 2)]
    for thread in threads:
        thread.start()
    for _ in range(5):
        fill(db, "other")
        db.drop_table("other")
        db.commit()
        db.shrink()
    stop.set()
    for thread in threads:
        thread.join()
    db.rollback()
    assert len(keys(db)) == FEW + sum(count for _, count in written)


@pytest.fixture
def large(path: Path) -> Iterator[Connection]:
    """A database with a table so large that its pages are given back without being asked once it is dropped."""
    with gmdb.connect(path) as db:
        fill(db, count=4 * ROWS)
        assert file_size(db) > 2 * SIZE_MIN
        yield db
    assert_sound(path)


@pytest.mark.skipif(not COMPILED, reason="plain kernels make a table that is too small")
def test_much_free_space_is_given_back_after_a_checkpoint(large: Connection, monkeypatch: pytest.MonkeyPatch) -> None:
    large.drop_table("t")
    large.commit()
    large._database.transactions.collector.collect()  # all of it is free before the background looks for the first time
    monkeypatch.setattr(durability, "INTERVAL", 0.0)
    until(lambda: file_size(large) == GROWTH_MIN)


@pytest.mark.skipif(not COMPILED, reason="plain kernels make a table that is too small")
def test_of_space_that_becomes_free_meanwhile_not_much_is_left(
    large: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dropped table gives its pages back in steps; after each of them the background may make the file shorter."""
    sizes, note_purged = [], gc._note_purged

    def note_and_shrink(*arguments: Any) -> None:
        note_purged(*arguments)
        large.checkpoint()
        shrinking(large).run(only_if_worth_it=True)
        sizes.append(file_size(large))

    monkeypatch.setattr(gc, "_note_purged", note_and_shrink)
    large.drop_table("t")
    large.commit()
    large._database.transactions.collector.collect()
    assert len(set(sizes)) > 2
    assert file_size(large) - GROWTH_MIN < SIZE_MIN
    large.shrink()
    assert file_size(large) == GROWTH_MIN


def test_a_device_that_had_grown_before_a_crash_has_its_pages_afterwards(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    with gmdb.connect(path) as db:
        fill(db, count=FEW)
        db.checkpoint()
        device = db._database.store.devices[FIRST_USER_DEVICE]
        before = file_size(db)
        with db._database.store.guard:
            device.grow(100)
        db.insert("t", (FEW, TEXT))
        db.commit()
        shutil.copytree(path, copy)
    with device_path(copy, FIRST_USER_DEVICE).open("r+b") as file:
        file.truncate(before)  # as a power cut may leave it
    with gmdb.connect(copy) as db:
        heap = db.heap("t")
        for i in range(FEW + 1, MANY):
            heap.insert((i, TEXT))
        db.commit()
        assert keys(db) == list(range(MANY))
    assert_sound(copy)


def test_the_command_says_how_much_it_gave_back(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with gmdb.connect(path) as db:
        fill(db)
        db.drop_table("t")
    assert main(["shrink", str(path)]) == 0
    assert "MiB given back" in capsys.readouterr().out
    assert main(["shrink", str(path), "--json"]) == 0
    assert capsys.readouterr().out.replace(" ", "").replace("\n", "") == '{"bytes":0}'
    assert_sound(path)


def test_the_command_makes_no_database(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shrink", str(tmp_path / "none")]) == 2
    assert "does not exist" in capsys.readouterr().err
    assert not (tmp_path / "none").exists()
