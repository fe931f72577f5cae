"""A signal at every point of every operation: ``python -m tests.interrupts.points --operation commit --mode later``.

Each operation is done again and again from the same kind of state, and hit at one opcode later each time; with
``--second N`` again N opcodes after the first was handled, in the middle of cleaning up.  What is broken is told with
the number of the opcode: ``--point`` does that one alone.
"""

from __future__ import annotations

import argparse
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter
from pathlib import Path
from random import Random
from zlib import crc32

from tests.interrupts import definitions, lives, operations, upkeep
from tests.interrupts.plays import OPERATIONS, Operation, Play, judge
from tests.interrupts.striking import AtOpcode, Attempt, Deadline, Strikes, Watchdog
from tests.interrupts.world import Broken, World
from tests.server.peer import Peer
from tests.speed import in_memory

MODES = ("first", "later", "alone", "repeatable")
RICH_EVERY = 8  # points before which many rows are changed, so that they stay as many
BEFORE = {  # what makes an operation possible again
    "create index": "drop index",
    "drop index": "create index",
    "create table": "drop table",
    "drop table": "create table",
    "truncate": "create table",
    "add column": "create table",
    "rename column": "add column",
    "lob read": "lob change",
}
TRIES = 40  # until an operation finds what it needs
MODULES = (definitions, lives, operations, upkeep)  # which have made themselves known


class Points:
    """``figures``: how many points were tried, and how many different places were hit."""

    def __init__(self, place: Path, seed: int = 0, remote: Peer | None = None) -> None:
        self._place, self._seed, self._remote = place, seed, remote
        self.strikes = Strikes()
        self._at = AtOpcode(self.strikes)
        self._watchdog = Watchdog()
        self._worlds = 0
        self._outsider = Peer()
        self._broken: list[World] = []
        self.points: Counter[str] = Counter()
        self.interrupts: Counter[str] = Counter()
        self.places: set[str] = set()
        self.failures: Counter[tuple[str, str]] = Counter()
        self.told: set[tuple[str, str, str]] = set()
        self.world = self._new_world()

    def _new_world(self) -> World:
        self._worlds += 1
        return World(self._place, f"world-{self._worlds}", self._remote, self._outsider)

    # ---- the state in which an operation begins

    def _calm(self, name: str, chance: Random) -> None:
        """Do an operation in peace, if it is possible."""
        play = OPERATIONS.known[name].build(self.world, self.world.model, chance)
        if play is not None:
            judge(self.world, play, self.strikes.run(play.run, _nothing, _nothing), self.strikes)

    def _prepare(self, mode: str, chance: Random, is_rich: bool) -> None:
        world = self.world
        world.end_transaction(commit=False)
        if world.model.autocommit != (mode == "alone"):
            self._calm("set autocommit", chance)
        if (world.model.isolation == "repeatable read") != (mode == "repeatable"):
            self._calm("set isolation", chance)
        for name in ("executemany", "lob change", "append") if is_rich else ():
            self._calm(name, chance)
        world.end_transaction(commit=True)
        if mode in ("later", "repeatable"):
            for name in ("heap insert", "update", "savepoint", "heap update", "delete", "lob change", "savepoint"):
                self._calm(name, chance)

    def _build(self, operation: Operation, chance: Random) -> Play | None:
        for number in range(TRIES):
            if number and operation.name in BEFORE:
                self._calm(BEFORE[operation.name], chance)
            play = operation.build(self.world, self.world.model, chance)
            if play is not None:
                return play
        return None

    # ---- one operation, point by point

    def run(self, operation: Operation, mode: str, points: range, second: int | None, failures_max: int) -> None:
        name = f"{operation.name}, {mode}"
        failed = sum(self.failures.values())
        for point in points:
            if sum(self.failures.values()) >= failed + failures_max:
                return
            self._watchdog.step(f"{name}, point {point}")
            chance = Random(self._seed * 1000 + crc32(name.encode()) % 1000)
            attempt = Attempt(0, False, None, None, 0.0)
            try:
                self._prepare(mode, chance, is_rich=point % RICH_EVERY == 0)
                play = self._build(operation, chance)
                if play is None:
                    return
                attempt = self._at.run(play.run, point, second)
                self.points[name] += 1
                self.interrupts[name] += attempt.delivered
                self.places.update(attempt.places[:1])
                judge(self.world, play, attempt, self.strikes)
                self.world.check_all(commit=point % 2 == 0)
            except Exception as error:
                self._tell(name, point, attempt, error)
            if not self._at.is_sent:
                return  # the operation has no more points

    def _tell(self, name: str, point: int, attempt: Attempt, error: Exception) -> None:
        kind = error.args[0] if isinstance(error, Broken) else type(error).__name__
        what = error.args[1] if isinstance(error, Broken) else str(error)
        self.failures[kind, name] += 1
        key = (kind, name, attempt.places[0] if attempt.places else "")
        if key not in self.told:  # opcodes that come before the same point are told once
            self.told.add(key)
            print(f"! {name}, point {point}, seed {self._seed}: {kind}: {what[:300]}")
            print(f"    hit at {attempt.place}", flush=True)
            if not isinstance(error, Broken):
                print("    " + "    ".join(traceback.format_exception(error)[-4:]), flush=True)
        self.strikes.take_noise()
        for number, handler in self.strikes.handlers.items():
            signal.signal(number, handler)
        self._broken.append(self.world)  # to close it could hang
        self.world = self._new_world()

    def warm_up(self, operations: list[Operation]) -> None:
        """Do everything some times in peace, so that kernels and libraries are loaded."""
        chance = Random(self._seed)
        for mode in MODES:
            self._prepare(mode, chance, is_rich=True)
            for operation in operations:
                self._watchdog.step(f"warming up: {operation.name}")
                for _ in range(3):
                    self._calm(operation.name, chance)

    def tell(self, seconds: float) -> None:
        for name, count in self.points.items():
            print(f"  {name:<40} {count:>7,} points {self.interrupts[name]:>7,} interrupts")
        for (kind, name), count in sorted(self.failures.items()):
            print(f"! {count} x {kind}: {name}")
        points, interrupts = sum(self.points.values()), sum(self.interrupts.values())
        print(f"{points:,} points, {interrupts:,} interrupts at {len(self.places):,} places, {seconds:.0f} s")
        print(f"{sum(self.failures.values())} failures")


def _nothing() -> None:
    pass


def modes_of(operation: Operation) -> tuple[str, ...]:
    return MODES if operation.is_statement else MODES[:3]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interrupts.points", description=__doc__)
    parser.add_argument("--operation", action="append", choices=sorted(OPERATIONS.known), help="all, if none is named")
    parser.add_argument("--mode", action="append", choices=MODES)
    parser.add_argument("--point", type=int, help="this one alone")
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--offset", type=int, default=0, help="the first point")
    parser.add_argument("--points", type=int, default=1_000_000, help="at most so many of an operation")
    parser.add_argument("--failures", type=int, default=1_000_000, help="after so many go on with the next operation")
    parser.add_argument("--second", type=int, help="hit it again, so many opcodes later")
    parser.add_argument("--handler", choices=("own", "default", "deadline"), default="own", help="what it raises")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--remote", action="store_true", help="another process owns the database")
    parser.add_argument("--cold", action="store_true", help="also while kernels are loaded, at their first use")
    parser.add_argument("--skip", action="append", choices=sorted(OPERATIONS.known), default=[])
    given = parser.parse_args()
    logging.getLogger("gmdb").setLevel(logging.CRITICAL)
    place = Path(tempfile.mkdtemp(prefix="gmdb-interrupts-", dir=in_memory()))
    remote = Peer() if given.remote else None
    points = Points(place, given.seed, remote)
    if given.handler == "deadline":
        points.strikes.use(signal.SIGINT, Deadline)
    elif given.handler == "default":
        points.strikes.use_pythons_own()
    known = [OPERATIONS.known[name] for name in given.operation or OPERATIONS.known]
    known = [one for one in known if one.name not in given.skip and (one.remote or remote is None)]
    if not given.cold:
        points.warm_up(known)
    start = time.monotonic()
    which = range(given.offset, given.points, given.stride)
    if given.point is not None:
        which = range(given.point, given.point + 1)
    for operation in known:
        for mode in given.mode or modes_of(operation):
            if time.monotonic() - start < given.seconds:
                points.run(operation, mode, which, given.second, given.failures)
    points.tell(time.monotonic() - start)
    sys.stdout.flush()
    if points.failures:
        os._exit(1)  # databases that are broken may not let go
    points.world.check_files()
    points.world.close()
    shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
