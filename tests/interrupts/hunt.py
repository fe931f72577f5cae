"""Random operations, hit by signals at random moments: ``python -m tests.interrupts.hunt --interrupts 100000``.

What is broken is told with its seed, the operation and where it was hit, and the hunt goes on with a new database.
When it was hit is not repeatable; ``tests.interrupts.points`` finds the same place again.
"""

from __future__ import annotations

import argparse
import gc
import logging
import os
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections import Counter, defaultdict
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, SystemRandom

from tests.interrupts import definitions, lives, operations, upkeep
from tests.interrupts.plays import OPERATIONS, Play, judge, sequence
from tests.interrupts.striking import Attempt, ByThread, ByTimer, Deadline, Strikes, Watchdog
from tests.interrupts.world import Broken, World
from tests.server.peer import Peer
from tests.speed import in_memory

CHECK_EVERY, FILES_EVERY = 25, 1500
NOTHING = Attempt(0, False, None, None, 0.0)
MODULES = (definitions, lives, operations, upkeep)  # which have made themselves known


@dataclass
class Figures:
    operations: Counter[str] = field(default_factory=Counter)
    interrupts: Counter[str] = field(default_factory=Counter)
    failures: Counter[tuple[str, str]] = field(default_factory=Counter)
    checks: Counter[str] = field(default_factory=Counter)
    seconds: defaultdict[str, float] = field(
        default_factory=lambda: defaultdict(float)
    )  # of wall-clock time, with what was checked

    def tell(self, seconds: float) -> None:
        total = sum(self.interrupts.values())
        print(f"{total:,} interrupts in {sum(self.operations.values()):,} operations, {seconds:.0f} s")
        for name, count in sorted(self.operations.items()):
            print(f"  {name:<28} {count:>9,} {self.interrupts[name]:>9,} interrupts {self.seconds[name]:>9.1f} s")
        for name, count in sorted(self.checks.items()):
            print(f"  {name:<28} {count:>9,}")
        for (kind, name), count in self.failures.most_common():
            print(f"! {count} x {kind}: {name}")
        print(f"{sum(self.failures.values())} failures")


class Hunt:
    def __init__(
        self, seed: int, place: Path, remote: Peer | None = None, shown: int = 40, skipped: Collection[str] = ()
    ) -> None:
        self.seed, self._place, self._remote = seed, place, remote
        self._chance = Random(seed)
        self.figures = Figures()
        self._shown = shown
        self._strikes = Strikes()
        self._ways: list[ByTimer | ByThread] = [ByTimer(self._strikes, self._chance), ByThread(self._strikes)]
        self._estimates: dict[str, float] = {}
        self._watchdog = Watchdog()
        self._steps = self._worlds = 0
        self._outsider = Peer()
        known = [one for one in OPERATIONS.known.values() if one.name not in skipped]
        self._known = [one for one in known if one.remote or remote is None]
        self._weights = [one.weight for one in self._known]
        self._alive: list[World] = []
        self._last = NOTHING
        self.world = self._new_world()

    def _new_world(self) -> World:
        self._worlds += 1
        self._watchdog.step("a new database")
        return World(self._place, f"world-{self._worlds}", self._remote, self._outsider)

    def warm_up(self) -> None:
        """Do everything some times in peace, so that kernels and libraries are loaded."""
        for operation in self._known * 4:
            self._watchdog.step(f"warming up: {operation.name}")
            play = operation.build(self.world, self.world.model, self._chance)
            if play is not None:
                judge(self.world, play, self._strikes.run(play.run, lambda: None, lambda: None), self._strikes)

    def run(self, interrupts: int, seconds: float) -> None:
        start = time.monotonic()
        while sum(self.figures.interrupts.values()) < interrupts and time.monotonic() - start < seconds:
            self.step()
        self._guarded("at the end", NOTHING, self._check_files)
        self.figures.tell(time.monotonic() - start)

    def step(self) -> None:
        self._steps += 1
        start = time.monotonic()
        name, play = self._choose()
        if play is None:
            return  # not possible just now, or what makes it possible has failed
        self._watchdog.step(f"seed {self.seed}, step {self._steps}: {name}")
        attempt = self._last = self._fire(name, play)
        self.figures.operations[name] += 1
        self.figures.interrupts[name] += attempt.delivered
        before = self.world
        self._guarded(name, attempt, lambda: judge(self.world, play, attempt, self._strikes))
        self.figures.seconds[name] += time.monotonic() - start
        if self.world is not before:
            return
        if self._steps % FILES_EVERY == 0:
            self._guarded("closing and verifying", attempt, self._check_files)
        elif self._steps % CHECK_EVERY == 0:
            self.figures.checks["all rows compared"] += 1
            commit = self._chance.random() < 0.5
            self._guarded(f"{name}, all rows", attempt, lambda: self.world.check_all(commit))

    def _check_files(self) -> None:
        self.figures.checks["closed and verified"] += 1
        self.world.end_transaction(commit=False)
        self.world.check_files()

    def _choose(self) -> tuple[str, Play | None]:
        """An operation; or several short ones, which together take long enough to be hit."""
        operation = self._chance.choices(self._known, self._weights)[0]
        plays: list[Play] = []

        def build() -> None:
            model = self.world.model
            for _ in range(self._chance.choice((1, 4, 12)) if operation.is_statement else 1):
                play = operation.build(self.world, model, self._chance)
                if play is not None:
                    plays.append(play)
                    model = play.models[-1]

        before = self.world
        self._guarded(f"before {operation.name}", self._last, build)
        if not plays or self.world is not before:
            return operation.name, None
        return operation.name, plays[0] if len(plays) == 1 else sequence(plays)

    def _fire(self, name: str, play: Play) -> Attempt:
        way = self._chance.choices(self._ways, (4, 1))[0]
        kind = Deadline if self._chance.random() < 0.2 else KeyboardInterrupt
        self._strikes.use(way.number, kind)
        estimate = self._estimates.get(name, 1e-3)
        delay = self._chance.random() * 1.2 * estimate
        if self._chance.random() < 0.1:
            delay = 100.0  # nobody interrupts it, to know how long it takes
        attempt = way.run(play.run, delay, twice=self._chance.random() < 0.2)
        if not attempt.interrupted:
            self._estimates[name] = 0.8 * estimate + 0.2 * min(attempt.seconds, 0.3)
        return attempt

    def _guarded(self, name: str, attempt: Attempt, check: Callable[[], None]) -> None:
        """Do something that may find that something is broken: then tell, and go on with a new database."""
        try:
            check()
        except Exception as error:
            kind = error.args[0] if isinstance(error, Broken) else type(error).__name__
            what = error.args[1] if isinstance(error, Broken) else str(error)
            self.figures.failures[kind, name] += 1
            if sum(self.figures.failures.values()) <= self._shown:
                print(f"! seed {self.seed}, step {self._steps}: {name}: {kind}: {what[:600]}", flush=True)
                print(f"    hit at {attempt.place}, {attempt.delivered} times", flush=True)
                if not isinstance(error, Broken):
                    print("    " + "    ".join(traceback.format_exception(error)[-4:]))
            self._alive.append(self.world)  # to close it could hang
            self._strikes.take_noise()
            for number, handler in self._strikes.handlers.items():
                signal.signal(number, handler)
            self.world = self._new_world()


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.interrupts.hunt", description=__doc__)
    parser.add_argument("--interrupts", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 30))
    parser.add_argument("--remote", action="store_true", help="another process owns the database")
    parser.add_argument("--cold", action="store_true", help="also while kernels are loaded, at their first use")
    parser.add_argument("--show", type=int, default=40, help="how many failures are told one by one")
    parser.add_argument("--skip", action="append", choices=sorted(OPERATIONS.known), default=[])
    given = parser.parse_args()
    logging.getLogger("gmdb").setLevel(logging.CRITICAL)
    place = Path(tempfile.mkdtemp(prefix="gmdb-interrupts-", dir=in_memory()))
    print(f"seed {given.seed}, in {place}", flush=True)
    hunt = Hunt(given.seed, place, Peer() if given.remote else None, given.show, given.skip)
    if not given.cold:
        hunt.warm_up()
    hunt.run(given.interrupts, given.seconds)
    gc.collect()
    failed = bool(hunt.figures.failures)
    sys.stdout.flush()
    if failed:
        os._exit(1)  # databases that are broken may not let go
    hunt.world.close()
    shutil.rmtree(place, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
