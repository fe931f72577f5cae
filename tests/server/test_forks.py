"""Forked and spawned children of processes that share a database: nobody hangs, and whoever cannot go on is told.

Each program runs in a process of its own, since a process that has used Flight once stays one that has.  Children
leave by sys.exit, with all that Python and C++ do then; those of multiprocessing by os._exit.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import gmdb
from gmdb.errors import OwnerGone
from tests.integrity import assert_sound
from tests.server.peer import SOON, Peer

TIMEOUT = 60

START = """
import multiprocessing, os, signal, subprocess, sys
import gmdb
from gmdb.errors import DatabaseClosed, ForkedProcess, OwnerGone

path = sys.argv[1]

def in_child(work, leave=os._exit):
    # What the work answers, 0 to 100, in a forked child; a child that hangs dies of SIGALRM.
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        code = work()
        leave(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

def is_refused(work, kind):
    try:
        work()
    except kind as error:
        print(error, file=sys.stderr)
        return 7
    return 1

def add_row():
    with gmdb.connect(path) as mine:
        mine.insert("t", (5, "child"))
    return 3

def visit():
    code = "import gmdb, sys; gmdb.connect(sys.argv[1]).close()"
    subprocess.run([sys.executable, "-c", code, path], check=True)

def rows(db):
    return db.arrow("t").read_all().num_rows
"""


def run(program: str, path: Path) -> str:
    """Run a program; answers what it wrote to its standard error."""
    done = subprocess.run(
        [sys.executable, "-c", START + program, str(path)], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stderr


OWN = """
db = gmdb.connect(path)
db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"})
db.commit()
"""


def test_a_child_of_an_owner_that_shared_nothing_goes_through_its_parent(path: Path) -> None:
    program = """
assert in_child(lambda: is_refused(lambda: db.heap("t"), DatabaseClosed)) == 7
assert in_child(add_row, sys.exit) == 3
assert rows(db) == 1
db.insert("t", (1, "parent"))
db.close()
"""
    assert run(OWN + program, path).count("\n") == 1
    with gmdb.connect(path) as db:
        assert db.arrow("t").read_all().num_rows == 1
    assert_sound(path)


def test_a_child_of_an_owner_with_clients_is_told_to_use_spawn(path: Path) -> None:
    program = """
visit()
assert in_child(lambda: is_refused(add_row, ForkedProcess), sys.exit) == 7
assert in_child(lambda: is_refused(lambda: db.heap("t"), DatabaseClosed), sys.exit) == 7
visit()
db.insert("t", (1, "parent"))
db.close()
"""
    noise = run(OWN + program, path)
    assert "start processes with spawn instead" in noise
    assert noise.count("\n") == 2
    assert_sound(path)


def test_a_child_of_a_client_is_told_to_use_spawn(owner: Peer, path: Path) -> None:
    program = """
db = gmdb.connect(path)
db.insert("t", (3, "three"))
heap, reader, unread, cursor = db.heap("t"), db.arrow("t"), db.arrow("t"), db.heap("t").rows()
next(cursor)
for use in (lambda: heap.insert((1, "")), lambda: db.commit(), lambda: rows(db), lambda: unread.read_all()):
    assert in_child(lambda: is_refused(use, ForkedProcess), sys.exit) == 7
assert in_child(lambda: is_refused(add_row, ForkedProcess), sys.exit) == 7
assert in_child(lambda: db.close() or 4, sys.exit) == 4
assert reader.read_all().num_rows == unread.read_all().num_rows == rows(db) == 3
db.commit()
"""
    noise = run(program, path)
    assert "belongs to process" in noise
    assert "start processes with spawn instead" in noise
    assert owner("db.arrow('t').read_all().num_rows") == 3


def test_a_child_that_lives_on_does_not_hide_that_its_parent_died(
    owner: Peer, start_peer: Callable[[], Peer], path: Path
) -> None:
    client = start_peer()
    client("db = gmdb.connect(path)", path=str(path))
    client("db.update('t', {'s': 'mine'})")
    client("import os; child = os.fork(); child or (time.sleep(100), os._exit(0))")
    child = client("child")
    try:
        client.kill()
        owner.start("gmdb.connect(path, lock_timeout=500, autocommit=True).update('t', {'s': 'yours'})", path=str(path))
        assert owner.has_answered(SOON)
        assert owner.finish() == 2
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_child_that_lives_on_does_not_hide_that_its_owner_died(start_peer: Callable[[], Peer], path: Path) -> None:
    owner, client = start_peer(), start_peer()
    owner("db = gmdb.connect(path); db.create_table('t', {'i': 'INT'}); db.commit()", path=str(path))
    client("db = gmdb.connect(path); db.insert('t', (1,))", path=str(path))
    owner("import os; child = os.fork(); child or (time.sleep(100), os._exit(0))")
    child = owner("child")
    try:
        owner.kill()
        client.start("db.commit()")
        assert client.has_answered(SOON)
        with pytest.raises(OwnerGone):
            client.finish()
        client("db = gmdb.connect(path)")
        assert client("type(db).__name__") == "Connection"
    finally:
        os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_multiprocessing_works_with_an_owner(path: Path, tmp_path: Path, method: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(f"""
import multiprocessing, sys
import gmdb

def work(number):
    with gmdb.connect(sys.argv[1]) as db:
        db.insert("t", (number, "x"))
    return number

if __name__ == "__main__":
    db = gmdb.connect(sys.argv[1])
    db.create_table("t", {{"i": "INT", "s": "VARCHAR(10)"}})
    db.commit()
    with multiprocessing.get_context("{method}").Pool(2) as pool:
        assert pool.map(work, range(6)) == list(range(6))
    assert sorted(db.arrow("t").read_all()["i"].to_pylist()) == list(range(6))
""")
    done = subprocess.run(
        [sys.executable, str(script), str(path)], capture_output=True, text=True, timeout=TIMEOUT, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert_sound(path)
