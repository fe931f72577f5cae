"""However a program ends, and whatever of a query it still holds, no library complains of it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

import gmdb

START = """
import gc, os, sys, threading
import gmdb
db = gmdb.connect({path!r})
MANY = "select a.i, b.i from t a join t b on a.i <> b.i"
LONG = "select count(*) from t a, t b, t c where a.i + b.i + c.i < 0"
def wait_for_query():
    from gmdb.sql.duck import instance
    while not instance._at_work:
        pass
"""

# Ways to hold something of a query, and to end.
HOLDING = {
    "a cursor": "cur = db.execute(MANY)",
    "a cursor half read": "cur = db.execute(MANY); cur.fetchmany(10)",
    "a cursor read to its end": "cur = db.execute(MANY + ' where a.i < 3'); cur.fetchall()",
    "an iterator": "rows = iter(db.execute(MANY)); next(rows)",
    "a reader": "reader = db.execute(MANY).fetch_record_batch()",
    "a reader half read": "reader = db.execute(MANY).fetch_record_batch(); reader.read_next_batch()",
    "a stream": "stream = db.execute(MANY).__arrow_c_stream__()",
    "a frame": "frame = db.execute(MANY + ' where a.i < 3').df()",
    "a circle": "class Node: pass\nnode = Node(); node.me = node; node.cur = db.execute(MANY); del node",
    "what is never let go": "import builtins\nbuiltins.kept = db.execute(MANY)",
    "a cursor of a thread": (
        "kept = []\n"
        "thread = threading.Thread(target=lambda: kept.append(db.execute(MANY).fetchone()))\n"
        "local = threading.Thread(target=lambda: kept.append(db.execute(MANY)))\n"
        "for one in (thread, local): one.start()\n"
        "for one in (thread, local): one.join()"
    ),
    "an error": (
        "try:\n    db.execute('select 1 / (a.i - a.i) from t a join t b on a.i = b.i').fetchall()\n"
        "except gmdb.Error as caught:\n    error = caught\n"
        "assert error"
    ),
    "an interrupted query": (
        "def work():\n"
        "    try: db.execute(LONG)\n"
        "    except gmdb.Error as caught: kept.append(caught)\n"
        "kept = []\nthread = threading.Thread(target=work); thread.start()\n"
        "while thread.is_alive(): db.interrupt(); thread.join(0.01)\n"
        "assert kept"
    ),
}
ENDING = {
    "as it is": "",
    "closed": "db.close()",
    "dropped": "del db; gc.collect()",
}
ALONE = {
    "a thread that is reading": (
        "threading.Thread(target=lambda: db.execute(LONG), daemon=True).start()\nwait_for_query()"
    ),
    "a thread that fetches": (
        "def work():\n"
        "    for row in db.execute('select a.i from t a, t b, t c'): pass\n"
        "threading.Thread(target=work, daemon=True).start()\nwait_for_query()"
    ),
    "closed under a thread that is reading": (
        "def work():\n"
        "    try: db.execute(LONG)\n"
        "    except gmdb.Error: pass\n"
        "thread = threading.Thread(target=work); thread.start()\n"
        "wait_for_query(); db.close(); thread.join()"
    ),
    "closed, then cursors dropped": (
        "kept = [db.execute(MANY) for _ in range(3)]\nkept[1].fetchone()\ndb.close()\ndel kept[0]\ngc.collect()"
    ),
    "closed when modules go": (
        "class Late:\n    def __del__(self, db=db): db.close()\nlate = Late()\ncur = db.execute(MANY)"
    ),
    "fetched from when all is stopped": (
        "import atexit\n"
        "def fetch():\n"
        "    try: cur.fetchall()\n"
        "    except gmdb.Error: print('refused')\n"
        "atexit.register(fetch)\n"
        "cur = db.execute(MANY)"
    ),
    "a query when all is stopped": (
        "import atexit\n"
        "def ask(): print(db.execute('select count(*) from t a join t b on a.i = b.i').fetchall())\n"
        "atexit.register(ask)\n"
        "cur = db.execute(MANY)"
    ),
    "a child": (
        "cur = db.execute(MANY); cur.fetchone()\n"
        "pid = os.fork()\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0 and len(cur.fetchmany(5)) == 5"
    ),
    "a child after a query": (
        "db.execute(MANY).fetchone()\npid = os.fork()\nif pid: assert os.waitpid(pid, 0)[1] == 0"
    ),
    "a child that asks on": (
        "cur = db.execute('select a.i from t a, t b'); cur.fetchone()\n"
        "pid = os.fork()\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0\n"
        "else:\n"
        "    try: cur.fetchall()\n"
        "    except gmdb.Error: pass\n"
        "    else: raise AssertionError('it was refused')\n"
        "    del cur; gc.collect()"
    ),
    "a child with queries of its own": (
        "cur = db.execute(MANY)\n"
        "pid = os.fork()\n"
        "if pid: assert os.waitpid(pid, 0)[1] == 0\n"
        "else:\n"
        "    db = gmdb.connect(os.path.join(os.path.dirname({path!r}), 'child.gmdb'))\n"
        "    db.execute('create table t (i int)')\n"
        "    db.execute('insert into t values (1), (2)')\n"
        "    mine = db.execute(MANY)"
    ),
}
CODES = {  # the last statement, the exit code, and what is said
    "by sys.exit": ("sys.exit(3)", 3, ""),
    "by an exception": ("raise SystemExit('enough')", 1, "enough\n"),
}
OUTPUTS = {"fetched from when all is stopped": "refused\n", "a query when all is stopped": "[(1000,)]\n"}


def programs(path: Path) -> dict[str, str]:
    every = {f"{held}, {end}": f"{HOLDING[held]}\n{ENDING[end]}" for held, end in zip(HOLDING, cycle(ENDING))}
    every |= {f"a cursor, {end}": f"{HOLDING['a cursor']}\n{ENDING[end]}" for end in ENDING}
    every |= ALONE
    every |= {name: f"cur = db.execute(MANY)\n{last}" for name, (last, _, _) in CODES.items()}
    return {
        name: START.format(path=str(path)) + text.replace("{path!r}", repr(str(path))) for name, text in every.items()
    }


def outcomes_of(folder: Path, every: dict[str, str]) -> dict[str, list[object]]:
    """What became of the programs, each in a process of its own."""
    request = json.dumps({"folder": str(folder), "programs": every})
    driver = [sys.executable, "-m", "tests.sql.exits"]
    result = subprocess.run(driver, input=request, capture_output=True, text=True, timeout=600, check=False)
    assert (result.returncode, result.stderr) == (0, "")
    found: dict[str, list[object]] = json.loads(result.stdout)
    return found


def fill(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int)")
        db.executemany("insert into t values (?)", [(i,) for i in range(1000)])
        db.commit()


EXPECTED: dict[str, list[object]] = {
    **{name: [code, "", said] for name, (_, code, said) in CODES.items()},
    **{name: [0, said, ""] for name, said in OUTPUTS.items()},
}


def test_no_library_complains_at_the_end(tmp_path: Path) -> None:
    fill(tmp_path / "shop.gmdb")
    found = outcomes_of(tmp_path, programs(tmp_path / "shop.gmdb"))
    assert {name: said for name, said in found.items() if said != EXPECTED.get(name, [0, "", ""])} == {}
    assert len(found) > 25


@pytest.fixture
def shared(tmp_path: Path) -> Iterator[Path]:
    """A database that this process has open, so that others come in through it."""
    fill(tmp_path / "shop.gmdb")
    with gmdb.connect(tmp_path / "shop.gmdb"):
        yield tmp_path / "shop.gmdb"


def test_no_library_complains_at_the_end_of_a_client(shared: Path) -> None:
    every = programs(shared)
    chosen = {name: text for name, text in every.items() if name not in ALONE}
    found = outcomes_of(shared.parent, chosen)
    assert {name: said for name, said in found.items() if said != EXPECTED.get(name, [0, "", ""])} == {}
