"""``python -m tests.security.hostile COUNT SEED``: use databases that an attacker has changed.

It loads and compiles all that it needs once, and forks a child for each case.  A child copies a database, changes it
(attacks.py), and then does with it what users do.  Whatever the files hold, it may only work, or raise gmdb's errors.
A case ends badly if the child dies of a signal, raises anything else, takes too long or too much memory, or leaves a
file outside of the database.  It prints those, and in the end what it did, as JSON.
"""

from __future__ import annotations

import faulthandler
import gc
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
from gmdb.database.connection import Connection
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PageType, SegmentType
from gmdb.storage import disk
from gmdb.storage.log.backup import is_backup
from gmdb.storage.pins import read_pins
from gmdb.verify import verify
from tests.crash.harness import QuickDisk, connect
from tests.security.attacks import attack
from tests.security.uses import CHANGING, CLOSED, LASTING, OF_BACKUPS, READING, Use, read_pinned
from tests.security.victims import WITNESS, make_victims
from tests.speed import MEMORY

CPU_SECONDS = 20
SECONDS = 90
MEMORY_MAX = 300 << 20  # bytes that a child may need more than its parent
MEMORY_AT = 256  # where a child leaves word of what it needed
USES = 10  # of a database that a case has open
ADDRESSES = 24 << 30
FILE_MAX = 256 << 20
PROGRESS = 250
DAMAGED, BAD = 1, 3  # exit codes: it was told of damage; it saw what must not be


class Steps:
    """What a case does: an error of gmdb's ends a step, anything else the case."""

    def __init__(self, told: int) -> None:
        self.step = "start"
        self.what = ""
        self.damaged: list[str] = []  # errors that say that files are not as they should be
        self.refused: list[str] = []  # other errors
        self.spared = False  # nothing that a table called witness needs was changed
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
            else:
                self.refused.append(f"{step}: {error!r}")


def _see_witness(db: Connection, steps: Steps) -> None:
    """A table that nobody has touched is there, whatever was done to others."""
    steps.tell(f"{steps.what}: witness")
    assert db.execute("select * from witness order by k").fetchall() == WITNESS
    assert [row for _, row in db.select("witness", by="witness_pkey").rows()] == WITNESS


def _do(db: Connection, uses: dict[str, Use], count: int, random: Random, steps: Steps) -> None:
    """Some uses in any order; half of them are taken back."""
    for name in random.sample(list(uses), min(count, len(uses))):
        with steps.at(name):
            uses[name](db)
        with steps.at(f"end of {name}"):
            db.commit() if random.random() < 0.5 else db.rollback()


def _use_pins(directory: Path, steps: Steps) -> None:
    """Read by pins that were taken before, as a task of Spark's does."""
    for pin in read_pins(directory):
        with steps.at("a pin of before"):
            read_pinned(directory, pin)


def _use(directory: Path, random: Random, steps: Steps, everything: bool = False) -> None:
    """Some of what can be done with a database, or all of it."""

    def chance(share: float) -> bool:
        return everything or random.random() < share

    if is_backup(directory):
        for name in OF_BACKUPS:
            if chance(0.25):
                with steps.at(name):
                    OF_BACKUPS[name](directory, random)
    if reads := chance(0.45):
        with steps.at("open to read"), connect(directory, read_only=True) as db:
            if steps.spared:
                _see_witness(db, steps)
            _do(db, READING, len(READING) if everything else USES, random, steps)
    for name, share in (("verify", 0.12), ("listings of files", 0.06), ("salvage", 0.04)):
        if chance(share):
            with steps.at(name):
                CLOSED[name](directory, random)
    if chance(0.2):
        _use_pins(directory, steps)
    if not reads or chance(0.5):
        with steps.at("open to write"), connect(directory, lock_timeout=0.2) as db:
            uses = random.choice(({**CHANGING, **LASTING}, {**READING, **CHANGING, **LASTING}))
            _do(db, uses, len(uses) if everything else USES, random, steps)
            steps.tell(f"{steps.what}: close")
        if chance(0.12):
            with steps.at("verify at the end"):
                verify(directory)


def spares(victim: Path, directory: Path) -> bool:
    """Whether only data of user tables was changed, and none of the witness's."""
    for file in sorted(victim.rglob("*")):
        if not file.is_file():
            continue
        before, after = file.read_bytes(), (directory / file.relative_to(victim)).read_bytes()
        if before == after:
            continue
        if not file.name.startswith("device-") or len(before) != len(after):
            return False
        size = 32768 if file.name == "device-0001" else 16384 if file.name == "device-0005" else PAGE_SIZES[0]
        for at in range(0, len(before), size):
            if before[at : at + size] != after[at : at + size]:
                head = PAGE_HEAD.at(before, at)
                of_user = head.page_type == PageType.DATA and head.seg_type not in (
                    SegmentType.SYSTEM,
                    SegmentType.UNDO,
                )
                if not of_user or b"witness" in before[at : at + size]:
                    return False
    return True


def _child(victim: Path, place: Path, seed: int, told: int) -> int:
    random = Random(seed)
    start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
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
        steps.spared = steps.what.startswith("pages") and spares(victim, directory)
        _use(directory, random, steps)
        left = sorted(path.name for path in place.iterdir())
        assert left == ["db"], left
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10) - start
        os.pwrite(told, grown.to_bytes(8, "little", signed=True), MEMORY_AT)
    except BaseException:
        print(f"seed {seed}, {victim.name}, {steps.step}:\n{traceback.format_exc()}", flush=True)
        return BAD
    return DAMAGED if steps.damaged else 0


def run_case(victim: Path, place: Path, seed: int, told: int) -> tuple[int, float, int]:
    """How the child ended (negative: by a signal), its seconds of the CPU, and by how much its memory grew."""
    place.mkdir()
    os.pwrite(told, bytes(8), MEMORY_AT)
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
    grown = int.from_bytes(os.pread(told, 8, MEMORY_AT), "little", signed=True)
    return os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, grown


def run(count: int, seed: int, say: Callable[[str], None]) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="gmdb-hostile-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    told = os.memfd_create("told")
    counts: Counter[str] = Counter()
    slowest, largest = 0.0, 0
    try:
        victims = make_victims(place / "victims")
        for victim in victims.values():  # compiles all that the children need
            warm(victim, place / "warm", told)
        gc.collect()
        gc.freeze()  # children need not copy what the collector would look at
        for number in range(count):
            name = Random(seed + number).choices(list(victims), (4, 4, 1))[0]
            code, seconds, memory = run_case(victims[name], place / "case", seed + number, told)
            if number % PROGRESS == PROGRESS - 1:
                say(f"{number + 1} cases, {counts['bad']} bad")
            slowest, largest = max(slowest, seconds), max(largest, memory)
            counts["cases"] += 1
            counts["damaged"] += code == DAMAGED
            if code not in (0, DAMAGED) or memory > MEMORY_MAX:
                counts["bad"] += 1
                how = f"signal {-code}" if code < 0 else f"code {code}" if code > 1 else f"memory {memory >> 20} MiB"
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
    steps.spared = True
    _use(place / "db", Random(1), steps, everything=True)
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
