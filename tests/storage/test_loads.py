"""Folders of bulk loads: kept while their driver lives, removed by the next owner when it is gone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace

import gmdb
from gmdb.storage.holder import Holder
from gmdb.storage.loads import LOADS_NAME, NOTE_NAME, PATIENCE, load_path, new_load, remove_load


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
