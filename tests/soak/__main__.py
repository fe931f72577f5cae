"""Everything at once, for as long as it should be shown to hold: ``make soak MINUTES=60``.

A town is written by many threads, with definitions, checkpoints and garbage collection among them, while another
process reads it, Spark reads and loads it, a stream keeps a copy of it, and backups are taken and restored.  Its owner
is killed, its power is cut and its disk fails, again and again; the judge knows what was acknowledged.  Beside it the
laboratory of tests/crash runs with new seeds.  The first thing that is wrong ends it; all files stay then.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import SystemRandom

from gmdb.spark.jobs import local_session
from tests.soak.judge import Judge


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=SystemRandom().randrange(1 << 30), help="of what chance decides")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there, too")
    parser.add_argument("--no-laboratory", action="store_true", help="the town alone")
    given = parser.parse_args()
    logging.getLogger("gmdb").setLevel(logging.ERROR)
    place = Path(tempfile.mkdtemp(prefix="gmdb-soak-"))
    print(f"seed {given.seed}, in {place}", flush=True)
    started = time.monotonic()
    laboratory = None if given.no_laboratory else _start_laboratory(given.minutes, place)
    spark = local_session(place / "spark.log")
    try:
        judge = Judge(spark, place, given.seed)
        judge.run(given.minutes)
    finally:
        spark.stop()
    figures, violations = judge.figures, judge.violations
    if laboratory is not None:
        if violations:
            laboratory.terminate()
        figures += _counts_of(laboratory, place)
        if laboratory.returncode > 0:
            violations.append(f"the laboratory found something: {place / 'laboratory.log'}")
    minutes = (time.monotonic() - started) / 60
    _tell(figures, violations, minutes)
    if given.json:
        document = {"minutes": round(minutes, 1), "violations": violations, "figures": dict(sorted(figures.items()))}
        given.json.write_text(json.dumps(document, indent=2) + "\n")
    if violations:
        return 1
    shutil.rmtree(place)
    return 0


def _start_laboratory(minutes: float, place: Path) -> subprocess.Popen[bytes]:
    with (place / "laboratory.log").open("w") as log:
        command = [sys.executable, "-m", "tests.crash.soak", "--minutes", str(minutes)]
        return subprocess.Popen(command, stdout=log, stderr=log, env={**os.environ, "PYTHONUNBUFFERED": "1"})


def _counts_of(laboratory: subprocess.Popen[bytes], place: Path) -> Counter[str]:
    """Wait for its last run, and add up what its lines tell: ``15:04:05 threads 7: 24 power cuts, 3.1 s``."""
    laboratory.wait()
    counts: Counter[str] = Counter()
    for line in (place / "laboratory.log").read_text().splitlines():
        if told := re.match(r"[\d:]+ \w+ \d+: ([\d,]+) ([a-z ]+)", line):
            counts[f"laboratory: {told[2].strip()}"] += int(told[1].replace(",", ""))
    return counts


def _tell(figures: Counter[str], violations: list[str], minutes: float) -> None:
    print(f"\n{minutes:.0f} minutes")
    for name, count in sorted(figures.items()):
        print(f"  {name:<50} {count:>14,}")
    print(f"  {'violations':<50} {len(violations):>14,}")
    for what in violations[:20]:
        print(f"! {what[:3000]}")


if __name__ == "__main__":
    sys.exit(main())
