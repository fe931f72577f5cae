"""Running benchmarks: contenders take turns, only the work is timed, and every result is checked.

Invariants
 1. Contenders take turns round by round (A, B, C, A, B, C, …), so that a slow moment of the machine hits all.
 2. The first round is not counted: it loads machine code and warms caches.
 3. What a contender did is compared with what it should have done, outside of the timing.
"""

from __future__ import annotations

import gc
import statistics
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Summary:
    """What every contender has to agree on."""

    rows: int
    total: int  # of the column ``i``


@dataclass(frozen=True)
class Attempt:
    """The work of one round, made ready."""

    run: Callable[[], Any]  # timed
    summarize: Callable[[Any], Summary]  # given what ``run`` answered; not timed


@dataclass(frozen=True)
class Contender:
    """One way to do a benchmark's work.  ``prepare`` gets a directory that is the contender's own in all rounds."""

    name: str
    expected: Summary
    prepare: Callable[[Path], AbstractContextManager[Attempt]]


@dataclass(frozen=True)
class Benchmark:
    """The first contender is compared with each of the others."""

    name: str
    title: str
    contenders: Sequence[Contender]
    targets: Mapping[str, float] = field(default_factory=dict)  # how many times as fast as a peer it should be
    rounds_min: int = 0
    seconds_max: float | None = None  # that the first contender may take, whatever its peers do

    @property
    def rows(self) -> int:
        return self.contenders[0].expected.rows


@dataclass(frozen=True)
class Measurement:
    """A contender's seconds, scaled to the benchmark's number of rows."""

    contender: str
    rows: int
    seconds: tuple[float, ...]

    @property
    def median(self) -> float:
        return statistics.median(self.seconds)


@dataclass(frozen=True)
class Result:
    benchmark: Benchmark
    measurements: tuple[Measurement, ...]

    def ratio(self, peer: Measurement) -> float:
        """How many times as fast as the peer the first contender is."""
        return peer.median / self.measurements[0].median

    @property
    def is_in_time(self) -> bool | None:
        """Whether the first contender took no longer than it may; None if there is no limit."""
        limit = self.benchmark.seconds_max
        return None if limit is None else self.measurements[0].median <= limit

    def met(self, peer: Measurement) -> bool | None:
        """Whether the target is met; None without a target."""
        target = self.benchmark.targets.get(peer.contender)
        return None if target is None else self.ratio(peer) >= target


class WrongResultError(Exception):
    """A contender did something else than the benchmark's work, so that its time means nothing."""


def run_benchmark(benchmark: Benchmark, directory: Path, rounds: int) -> Result:
    """Measure a benchmark's contenders in ``directory``."""
    seconds: dict[str, list[float]] = {contender.name: [] for contender in benchmark.contenders}
    for number in range(rounds + 1):
        for contender in benchmark.contenders:
            _show_progress(benchmark, contender, number, rounds)
            place = directory / benchmark.name / contender.name
            place.mkdir(parents=True, exist_ok=True)
            elapsed = _run_once(benchmark, contender, place)
            if number > 0:
                seconds[contender.name].append(elapsed * benchmark.rows / contender.expected.rows)
    show_progress("")
    measured = [Measurement(c.name, c.expected.rows, tuple(seconds[c.name])) for c in benchmark.contenders]
    return Result(benchmark, tuple(measured))


def _run_once(benchmark: Benchmark, contender: Contender, place: Path) -> float:
    with contender.prepare(place) as attempt:
        gc.collect()
        gc.disable()  # what others left behind is not this contender's burden
        try:
            start = time.perf_counter()
            answer = attempt.run()
            elapsed = time.perf_counter() - start
        finally:
            gc.enable()
        found = attempt.summarize(answer)
    if found != contender.expected:
        raise WrongResultError(f"{benchmark.name}, {contender.name}: {found} instead of {contender.expected}")
    return elapsed


def _show_progress(benchmark: Benchmark, contender: Contender, number: int, rounds: int) -> None:
    stage = f"round {number} of {rounds}" if number else "warming up"
    show_progress(f"{benchmark.name}: {stage}, {contender.name}")


def show_progress(doing: str) -> None:
    """Say on a terminal what is being done, instead of what was said before; nothing if it is done."""
    if sys.stderr.isatty():
        print(f"\r\033[K{doing}", end="", file=sys.stderr, flush=True)
