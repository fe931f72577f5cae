"""Folders of bulk loads: kept while their driver lives, removed by the next owner when it is gone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path

import pytest

import gmdb
from gmdb.storage.documents import Holder
from gmdb.storage.loads import (
    LOADS_NAME,
    NOTE_NAME,
    PATIENCE,
    load_path,
    new_load,
    remove_litter,
    remove_load,
    staged_path,
)


def dead() -> Holder:
    """A process that lived a moment ago."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        found = Holder.of(child.pid)
        child.kill()
    return found


def left_after_opening(path, load_id: str) -> bool:
    gmdb.connect(path).close()
    return load_path(path, load_id).exists()


def make_old(path, load_id: str) -> None:
    folder = load_path(path, load_id)
    long_ago = time.time() - PATIENCE - 60
    for file in (*folder.iterdir(), folder):
        os.utime(file, (long_ago, long_ago))


def test_a_folder_goes_with_its_driver_and_not_before(path):
    gmdb.connect(path).close()
    alive, gone = new_load(path, Holder.this_process()), new_load(path, dead())
    (load_path(path, gone) / "part-00000-1").write_bytes(b"rows")
    make_old(path, alive)
    assert left_after_opening(path, alive)
    assert not load_path(path, gone).exists()
    remove_load(path, alive)
    assert not (path / LOADS_NAME).exists()


def wait_for(condition: Callable[[], bool], patience: float = 20.0) -> None:
    until = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)


def test_a_folder_goes_with_its_driver_while_the_database_is_open(path):
    """Also if it was made when the driver had ended already, which nobody had noticed."""
    with gmdb.connect(path), subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as driver:
        own = new_load(path, Holder.this_process())
        load_ids = [new_load(path, Holder.of(driver.pid))]
        (load_path(path, load_ids[0]) / "part-00000-1").write_bytes(b"rows")
        driver.kill()
        os.waitid(os.P_PID, driver.pid, os.WEXITED | os.WNOWAIT)
        load_ids.append(new_load(path, Holder.of(driver.pid)))
        wait_for(lambda: not any(load_path(path, load_id).exists() for load_id in load_ids))
        assert os.listdir(path / LOADS_NAME) == [own]


def test_a_load_may_begin_while_the_last_one_ends(path):
    """The folder of all loads goes with the last one."""
    gmdb.connect(path).close()
    stopping = threading.Event()

    def sweep() -> None:
        while not stopping.is_set():
            remove_litter(path)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for _ in range(300):
            remove_load(path, new_load(path, Holder.this_process()))
    finally:
        stopping.set()
        sweeper.join()
    assert not (path / LOADS_NAME).exists()


def test_a_task_that_is_late_finds_no_folder(path, monkeypatch):
    """Whatever it still writes while the folder is removed goes with it, now or the next time."""
    gmdb.connect(path).close()
    load_id = new_load(path, Holder.this_process())
    part = staged_path(path, load_id, "part-00000-1")
    part.write_bytes(b"rows")
    remove_whole = shutil.rmtree

    def remove_beside_a_task(folder: Path) -> None:
        with pytest.raises(FileNotFoundError):
            part.with_name("part-00000-2").write_bytes(b"rows")
        (folder / "part-00000-3").write_bytes(b"rows")  # by a task that had it open
        raise OSError

    monkeypatch.setattr(shutil, "rmtree", remove_beside_a_task)
    remove_load(path, load_id)
    monkeypatch.setattr(shutil, "rmtree", remove_whole)
    assert remove_litter(path) == [load_id]
    assert not (path / LOADS_NAME).exists()


def test_a_process_of_the_same_number_is_another(path):
    gmdb.connect(path).close()
    load_id = new_load(path, replace(Holder.this_process(), started=1))
    assert not left_after_opening(path, load_id)


def test_a_folder_of_another_machine_stays_for_a_day(path):
    gmdb.connect(path).close()
    for elsewhere in (replace(dead(), boot_id="another"), replace(dead(), pid_namespace="pid:[1]")):
        load_id = new_load(path, elsewhere)
        assert left_after_opening(path, load_id)
        make_old(path, load_id)
        assert not left_after_opening(path, load_id)


def test_a_note_that_cannot_be_read_is_no_reason_to_remove_or_to_fail(path):
    gmdb.connect(path).close()
    load_id = new_load(path, dead())
    for text in ("", "{", "[]", json.dumps({**asdict(dead()), "more": 1})):
        (load_path(path, load_id) / NOTE_NAME).write_text(text)
        assert left_after_opening(path, load_id)


def test_readers_remove_nothing(path):
    gmdb.connect(path).close()
    load_id = new_load(path, dead())
    gmdb.connect(path, read_only=True).close()
    assert load_path(path, load_id).exists()
