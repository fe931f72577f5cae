"""``python -m tests.security.hostile COUNT SEED``: use databases that an attacker has changed.

It loads and compiles all that it needs once, and forks a child for each case.  A child copies a database, changes it
(attacks.py), and then does with it what users do.  Whatever the files hold, it may only work, or raise gmdb's errors.
A case ends badly if the child dies of a signal, raises anything else, takes too long or too much memory, or leaves a
file outside of the database.  It prints those, and in the end what it did, as JSON.
"""

from __future__ import annotations

import faulthandler
import json
import logging
import os
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

import gmdb.errors
from gmdb.connection import Connection
from gmdb.storage import disk
from gmdb.verify import verify
from tests.crash.harness import QuickDisk, connect
from tests.frozen import read_table
from tests.security.attacks import attack
from tests.security.victims import make_victims
from tests.speed import MEMORY

CPU_SECONDS = 20
SECONDS = 90
MEMORY_MAX = 400 << 20  # bytes that a child may need more than its parent
ADDRESSES = 24 << 30
FILE_MAX = 256 << 20
PROGRESS = 500
DAMAGED, BAD = 1, 3  # exit codes: it was told of damage; it saw what must not be


class Steps:
    """What a case does: an error of gmdb's ends a step, anything else the case."""

    def __init__(self, told: int) -> None:
        self.step = "start"
        self.what = ""
        self.damaged: list[str] = []  # errors that say that files are not as they should be
        self._told = told

    def tell(self, what: str) -> None:
        """Leave word of what is being done, for whoever finds that this process has died."""
        self.step = what
        os.pwrite(self._told, what.encode()[:200].ljust(200), 0)

    @contextmanager
    def at(self, step: str) -> Iterator[None]:
        self.tell(f"{self.what}: {step}")
        try:
            yield
        except gmdb.errors.Error as error:
            str(error)
            if isinstance(error, gmdb.errors.Corruption | gmdb.errors.NotADatabase):
                self.damaged.append(f"{step}: {error}")


def _read_table(db: Connection, name: str, steps: Steps) -> None:
    with steps.at(f"scan {name}"):
        for batch in db.arrow(name):
            batch.validate()
    with steps.at(f"rows {name}"):
        for n, _ in enumerate(db.heap(name).rows()):
            if n > 3000:
                break
    with steps.at(f"count {name}"):
        db.execute(f'select count(*) from "{name}"').fetchall()


def _read_indexes(db: Connection, steps: Steps) -> None:
    for statement in (
        "select * from keyed where k = 17",
        "select k from keyed where k between 5 and 60 order by k",
        "select k from keyed where k > 90 order by k desc",
        "select k from keyed where s = '3333'",
        "select max(k), min(k) from keyed",
        "select s, w from keyed where s >= '2' and s < '5' order by s limit 50",
        "select * from told where id = 1",
    ):
        with steps.at(statement):
            db.execute(statement).fetchall()
    for index in ("keyed_k", "keyed_s", "keyed_hash", "keyed_deep"):
        with steps.at(f"index {index}"):
            db.index_pages(index)


def _read_lobs(db: Connection, steps: Steps) -> None:
    with steps.at("lobs"):
        for row_id, _ in db.heap("lobs").rows():
            for column in ("b", "c"):
                with db.open_lob("lobs", column, row_id) as file:
                    file.read(1000)
                    file.seek(max(0, file.seek(0, 2) - 10))
                    file.read()


def _read_changes(db: Connection, steps: Steps) -> None:
    for options in ({"reader": "slow"}, {"reader": "slow", "before": True}):
        with steps.at(f"changes {options}"), db.changes(tables=["keyed"], **options) as feed:
            for n, change in enumerate(feed):
                str(change)
                if n > 2000:
                    break


def _read_all(db: Connection, steps: Steps) -> None:
    tables: list[str] = []
    with steps.at("tables"):
        tables = db.tables()
    for name in tables[:12]:
        _read_table(db, name, steps)
    _read_indexes(db, steps)
    _read_lobs(db, steps)
    for view in ("sys_tables", "sys_columns", "sys_indexes", "sys_locks", "sys_transactions"):
        with steps.at(view):
            db.system_view(view)


def _read_as_spark_does(db: Connection, directory: Path, steps: Steps) -> None:
    """By a pinned snapshot, out of the files, as another process would."""
    with steps.at("pin"):
        pin = db.take_snapshot(lease=60)
        for name in ("plain", "keyed", "lobs"):
            with steps.at(f"pages of {name}"):
                read_table(directory, pin, name)
        db.drop_snapshot(pin.name)


def _change(db: Connection, random: Random, steps: Steps) -> None:
    for statement in (
        "insert into plain values (1, 'new', true, null, null)",
        "insert into keyed values (3001, 'a', 1, 1)",
        "insert into keyed values (17, 'a', 1, 1)",
        "update keyed set s = 'changed' where k = 20",
        "update keyed set k = 5000 where k = 21",
        "delete from keyed where k = 22",
        "update plain set s = s || 'longer longer longer longer longer longer' where i < 30",
        "delete from plain where i > 1400",
        "delete from lobs where k = 4",
        "insert into told (n) values (9)",
    ):
        with steps.at(statement):
            db.execute(statement)
        if random.random() < 0.2:
            with steps.at("rollback"):
                db.rollback()
    with steps.at("rows by id"):
        heap = db.heap("keyed")
        ids = [row_id for row_id, _ in heap.rows()][:300]
        for n, row_id in enumerate(ids):
            heap.delete(row_id) if n % 3 else heap.update(row_id, {"s": "x" * (n % 800), "k": 10_000 + n})
    with steps.at("lob"):
        db.insert("lobs", (9, b"b" * 40_000, "c" * 2000))
    with steps.at("append"):
        db.append("plain", db.execute("select * from plain limit 400").arrow())
    with steps.at("end"):
        db.commit() if random.random() < 0.7 else db.rollback()


def _use(directory: Path, random: Random, steps: Steps) -> None:
    with steps.at("open to read"), connect(directory, read_only=True) as db:
        _read_all(db, steps)
        _read_changes(db, steps)
    with steps.at("open to write"), connect(directory, lock_timeout=0.2) as db:
        if random.random() < 0.5:
            _read_all(db, steps)
        _change(db, random, steps)
        _read_as_spark_does(db, directory, steps)
        with steps.at("gc"):
            db.gc()
        with steps.at("checkpoint"):
            db.checkpoint()
        _read_changes(db, steps)
        with steps.at("drop"):
            db.drop_table(random.choice(("plain", "keyed", "lobs")))
            db.commit()
        with steps.at("gc"):
            db.gc()
        with steps.at("shrink"):
            db.shrink()
        _read_all(db, steps)
        steps.tell(f"{steps.what}: close")
    with steps.at("verify"):
        verify(directory)


def _child(victim: Path, place: Path, seed: int, told: int) -> int:
    random = Random(seed)
    soft = int(time.process_time()) + CPU_SECONDS
    resource.setrlimit(resource.RLIMIT_CPU, (soft, soft + 5))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (FILE_MAX, FILE_MAX))
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    signal.alarm(SECONDS)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    directory = place / "db"
    shutil.copytree(victim, directory)
    steps = Steps(told)
    try:
        steps.what = attack(directory, random)
        _use(directory, random, steps)
        left = sorted(path.name for path in place.iterdir())
        assert left == ["db"], left
    except BaseException:
        print(f"seed {seed}, {victim.name}, {steps.step}:\n{traceback.format_exc()}", flush=True)
        return BAD
    return DAMAGED if steps.damaged else 0


def run_case(victim: Path, place: Path, seed: int, told: int) -> tuple[int, float, int]:
    """How the child ended (negative: by a signal), its seconds of the CPU, and its memory."""
    place.mkdir()
    sys.stdout.flush()
    pid = os.fork()
    if pid == 0:
        code = BAD
        try:
            code = _child(victim, place, seed, told)
        finally:
            sys.stdout.flush()
            os._exit(code)
    _, status, used = os.wait4(pid, 0)
    shutil.rmtree(place, ignore_errors=True)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, used.ru_maxrss << 10


def run(count: int, seed: int, say: Callable[[str], None]) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="gmdb-hostile-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    told = os.memfd_create("told")
    counts: Counter[str] = Counter()
    slowest, largest = 0.0, 0
    try:
        victims = make_victims(place / "victims")
        for victim in victims.values():  # compiles all that the children need
            warm(victim, place / "warm", told)
        base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
        for number in range(count):
            name = list(victims)[(seed + number + 1) % len(victims)]
            code, seconds, memory = run_case(victims[name], place / "case", seed + number, told)
            if number % PROGRESS == PROGRESS - 1:
                say(f"{number + 1} cases, {counts['bad']} bad")
            slowest, largest = max(slowest, seconds), max(largest, memory - base)
            counts["cases"] += 1
            counts["damaged"] += code == DAMAGED
            if code not in (0, DAMAGED) or memory - base > MEMORY_MAX:
                counts["bad"] += 1
                how = (
                    f"signal {-code}"
                    if code < 0
                    else f"code {code}"
                    if code > 1
                    else f"memory {memory - base >> 20} MiB"
                )
                say(
                    f"BAD seed {seed + number} {name}: {how}, {os.pread(told, 200, 0).decode(errors='replace').strip()}"
                )
    finally:
        shutil.rmtree(place, ignore_errors=True)
    return {**counts, "slowest": round(slowest, 2), "grown": largest}


def warm(victim: Path, place: Path, told: int) -> None:
    """Use a copy of a database that nobody has changed, in this process."""
    place.mkdir()
    shutil.copytree(victim, place / "db")
    steps = Steps(told)
    _use(place / "db", Random(1), steps)
    assert not steps.damaged, f"{victim.name} does not work before it is changed: {steps.damaged}"
    shutil.rmtree(place)


def main(count: int, seed: int) -> int:
    logging.disable(logging.ERROR)
    warnings.simplefilter("ignore")
    faulthandler.enable()
    with disk.use(QuickDisk()):
        found = run(count, seed, lambda text: print(text, flush=True))
    print(json.dumps(found))
    return 1 if found.get("bad") else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
