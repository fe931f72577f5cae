"""Crash workloads, and ask random statements, with new seeds until the time is up: ``make soak MINUTES=60``.

Each run prints its kind and seed first.  The first failure ends it, says what was wrong, and how to see it again:
``python -m tests.crash.soak KIND SEED``.
"""

from __future__ import annotations

import argparse
import logging
import os
import re
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import SystemRandom

from tests import searches
from tests.crash.harness import scratch, small_log
from tests.crash.test_crashes import cut_large, cut_sessions, cut_writers
from tests.crash.test_splits import cut_step, first_of_each_kind
from tests.model import unique_keys
from tests.model.members import World


def cut_every_operation(seed: int) -> str:
    return f"{cut_sessions(seed, 160, 0, 12, 12)} power cuts"


def cut_without_syncs(seed: int) -> str:
    return f"{cut_sessions(seed, 160, 200, 0, 0, sync='off')} power cuts"


def cut_shrinking(seed: int) -> str:
    return f"{cut_large(seed, 60, 150, 6, 6)} power cuts"


def cut_threads(seed: int) -> str:
    return f"{cut_writers(seed, 25, 200, 12, 12)} power cuts"


def cut_splits(seed: int) -> str:
    cuts = [cut_step(seed, number, kind) for kind, number in first_of_each_kind(seed).items()]
    torn, mixed = sum(one.torn_groups for one in cuts), sum(one.mixed_pages for one in cuts)
    return f"{sum(one.checked for one in cuts)} power cuts, {torn} within groups, {mixed} between pages"


def want_keys(seed: int) -> str:
    with scratch() as place:
        world = World(place / "db")
        for number in range(300):
            unique_keys.run(world, seed + number, 200)
        world.close()
    return "300 histories"


def kill(seed: int) -> str:
    return _in_pytest("test_kills.py", GMDB_KILLS="40", GMDB_KILLS_SEED=str(seed)) or "40 kills"


def flip_bits(seed: int) -> str:
    counts = {"GMDB_FLIPS": "50000", "GMDB_FLIPS_VERIFIED": "400", "GMDB_FLIPS_SEED": str(seed)}
    return _in_pytest("test_bit_flips.py", **counts) or "50,400 flipped bits"


def ask_anything(seed: int) -> str:
    settings = {"GMDB_FUZZ": "10000", "GMDB_FUZZ_SEED": str(seed)}
    return _in_pytest("../sql/test_fuzz.py", **settings) or "10,000 statements"


def ask_in_three_ways(seed: int) -> str:
    """Of gmdb by rows and by DuckDB, and of PostgreSQL."""
    _in_process("tests.sql.three_ways", "--count", "4000", "--seed", str(seed))
    return "4,000 questions"


def add_clauses(seed: int) -> str:
    _in_process("tests.sql.clauses", "--count", "4000", "--seed", str(seed))
    return "4,000 clauses"


def damage_pages(seed: int) -> str:
    return _in_pytest("test_damage.py", GMDB_DAMAGE="500", GMDB_DAMAGE_SEED=str(seed)) or "500 damaged pages"


def attack_files(seed: int) -> str:
    settings = {"GMDB_HOSTILE": "1000", "GMDB_HOSTILE_SEED": str(seed)}
    return _in_pytest("../security/test_hostile_files.py", **settings) or "1,000 attacks"


def search_fully(_seed: int) -> str:
    return _in_pytest("..", "-m", "search", **searches.SETTING) or "1 full search of the suite"


def interrupt(seed: int) -> str:
    told = _in_process("tests.interrupts.hunt", "--interrupts", "5000", "--seed", str(seed))
    return f"{_count(told)} interrupts"


def interrupt_clients(seed: int) -> str:
    told = _in_process("tests.interrupts.hunt", "--interrupts", "2000", "--seed", str(seed), "--remote")
    return f"{_count(told)} interrupts"


def interrupt_points(seed: int) -> str:
    """Every eleventh point of every operation, others with each seed; now and then again while it cleans up."""
    given = ["--stride", "11", "--offset", str(seed % 11), "--seed", str(seed % 1000), "--seconds", "600"]
    given += ["--handler", ("own", "default", "deadline")[seed % 3]]
    if seed % 2 and seed % 3 != 1:  # the default handler sends no second signal
        given += ["--second", str(seed % 40)]
    return f"{_count(_in_process('tests.interrupts.points', *given))} interrupts at points"


def _in_process(module: str, *arguments: str) -> str:
    """Run a module that is told of by its exit status; returns what it printed."""
    command = [sys.executable, "-m", module, *arguments]
    ended = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ended.returncode, ended.stderr) == (0, ""), ended.stdout[-5000:] + ended.stderr[-5000:]
    return ended.stdout


def _count(told: str) -> str:
    """How many interrupts a line speaks of."""
    found = re.search(r"([\d,]+) interrupts (?:in|at) ", told)
    assert found is not None, told[-1000:]
    return found[1]


def _in_pytest(file: str, *arguments: str, **settings: str) -> str:
    """Run a file of tests in a process of its own."""
    with tempfile.TemporaryDirectory() as place:
        command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", f"--basetemp={place}/tests"]
        ended = subprocess.run(
            [*command, *arguments, str(Path(__file__).parent / file)],
            env={**os.environ, **settings},
            capture_output=True,
            text=True,
            check=False,
        )
    assert ended.returncode == 0, ended.stdout[-5000:] + ended.stderr[-1000:]
    return ""


KINDS: dict[str, Callable[[int], str]] = {
    "sessions": cut_every_operation,
    "threads": cut_threads,
    "large": cut_shrinking,
    "off": cut_without_syncs,
    "splits": cut_splits,
    "keys": want_keys,
    "kills": kill,
    "flips": flip_bits,
    "statements": ask_anything,
    "ways": ask_in_three_ways,
    "clauses": add_clauses,
    "damage": damage_pages,
    "attacks": attack_files,
    "searches": search_fully,
    "interrupts": interrupt,
    "clients": interrupt_clients,
    "points": interrupt_points,
}


def run(kind: str, seed: int) -> bool:
    """One run; whether all was well."""
    print(f"{time.strftime('%H:%M:%S')} {kind} {seed}: ", end="", flush=True)
    started = time.monotonic()
    try:
        with small_log():
            done = KINDS[kind](seed)
    except Exception:
        print("FAILED")
        traceback.print_exc()
        print(f"\nsee it again: {Path(sys.executable).name} -m tests.crash.soak {kind} {seed}", flush=True)
        return False
    print(f"{done}, {time.monotonic() - started:.1f} s", flush=True)
    return True


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("kind", nargs="?", choices=KINDS)
    parser.add_argument("seed", nargs="?", type=int)
    options = parser.parse_args()
    logging.disable(logging.ERROR)  # every state was not closed: no need to say so each time
    kinds = [options.kind] if options.kind else list(KINDS)
    if options.seed is not None:
        return 0 if run(options.kind, options.seed) else 1
    ends = time.monotonic() + 60 * options.minutes
    number = 0
    while time.monotonic() < ends:
        if not run(kinds[number % len(kinds)], SystemRandom().randrange(1, 1 << 31)):
            return 1
        number += 1
    print(f"all was well in {number} runs")
    return 0


if __name__ == "__main__":
    sys.exit(main())
