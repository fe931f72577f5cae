"""Bugs planted on purpose, each of which the tests must find within minutes: ``make planted``, ``ARGS="lost undo"``.

For each, the sources are copied, one place of the copy is changed, and the tests that guard crashes, transactions and
visibility run there until the first of them fails.  A test suite that misses one is not worth its minutes.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

TOP = Path(__file__).parents[1]
TESTS = ("tests/transaction", "tests/isolation", "tests/model", "tests/crash", "tests/log")
LIMIT = 900  # seconds; whoever is not found by then has escaped


@dataclass(frozen=True)
class Bug:
    name: str
    story: str
    file: str
    old: str
    new: str


BUGS = (
    Bug(
        "skipped fsync",
        "a commit returns when its log is written, but nothing was synced",
        "storage/log/log_files.py",
        "            for number in sorted(numbers):\n                self._open[number].sync()\n",
        "            pass\n",
    ),
    Bug(
        "lost undo record",
        "every eighth undo record of a page is not logged, so that recovery cannot roll it back",
        "kernel/undo.py",
        '    """Log the newest record of an undo page, its body written."""\n',
        '    """Log the newest record of an undo page, its body written."""\n'
        "    if undo_head(page + NODE_AT).slot_count % 8 == 0:\n        return\n",
    ),
    Bug(
        "index entry kept",
        "a rollback takes rows back, but not their entries in indexes",
        "kernel/change/rollback.py",
        "        return take_back_entry(area, record, locked)\n",
        "        return DONE\n",
    ),
    Bug(
        "wrong visibility row",
        "a row that another transaction has deleted is gone before that commits",
        "kernel/read/visibility.py",
        "    return VISIBLE  # another's U-lock or delete: as the row was beneath it\n",
        "    return HIDDEN if deleted else VISIBLE\n",
    ),
    Bug(
        "dirty read",
        "a row that another transaction has updated is seen as it is, not out of undo",
        "kernel/read/visibility.py",
        "        return FROM_UNDO\n    return VISIBLE",
        "        return VISIBLE\n    return VISIBLE",
    ),
    Bug(
        "mirror not synced",
        "pages go to their places before the mirror that could mend them is on disk",
        "storage/log/checkpoint.py",
        "        self._file.sync()\n",
        "",
    ),
    Bug(
        "pages ahead of the log",
        "a checkpoint writes pages whose changes are not in the log yet",
        "storage/log/checkpoint.py",
        "        self._redo.write_through(end)\n",
        "",
    ),
    Bug(
        "garbage collected too early",
        "versions go that the oldest snapshot still reads",
        "transaction/gc.py",
        "if one.scn > oldest or",
        "if one.scn > oldest + 1 or",
    ),
)


def plant(bug: Bug, place: Path) -> None:
    """Copy the sources and tests, with the bug among them."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir()
    for part in ("src", "tests", "bench", "pyproject.toml", "docs", "README.md"):
        source = TOP / part
        if source.is_dir():
            shutil.copytree(source, place / part, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(source, place / part)
    file = place / "src" / "gmdb" / bug.file
    text = file.read_text()
    if text.count(bug.old) != 1:
        raise SystemExit(f"{bug.name}: {bug.file} has changed, and the place to plant it is not to be found")
    file.write_text(text.replace(bug.old, bug.new))


def hunt(bug: Bug, place: Path) -> tuple[float, str]:
    """Run the tests with the bug in place; answers after how many seconds which test failed and why, or "" if none did.

    Kernels are compiled before: that the sources have changed is not what takes a test its time.
    """
    plant(bug, place)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-n", "2", "--dist", "loadfile", *TESTS]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(place / "src"), str(place)])}
    subprocess.run([sys.executable, "-m", "gmdb.kernel.build"], cwd=place, env=environment, check=True)
    started = time.monotonic()
    try:
        ended = subprocess.run(
            command, cwd=place, env=environment, capture_output=True, text=True, timeout=LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        return LIMIT, ""
    seconds = time.monotonic() - started
    failed = re.search(r"^(?:FAILED|ERROR) (.+)", ended.stdout, re.MULTILINE)
    return seconds, failed[1] if failed else ""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.planted", description=__doc__)
    parser.add_argument("name", nargs="*", help=f"of bugs, or parts of names: {', '.join(bug.name for bug in BUGS)}")
    wanted = parser.parse_args().name
    bugs = [bug for bug in BUGS if not wanted or any(word in bug.name for word in wanted)]
    escaped = 0
    with tempfile.TemporaryDirectory(prefix="gmdb-planted-") as folder:
        place = Path(folder) / "sources"  # always the same: machine code is kept by where its source is
        for bug in bugs:
            print(f"{bug.name}: {bug.story}", flush=True)
            seconds, test = hunt(bug, place)
            escaped += not test
            print(f"  found by {test} after {seconds:.0f} s" if test else f"  NOT FOUND in {seconds:.0f} s", flush=True)
    print(f"{len(bugs) - escaped} of {len(bugs)} were found")
    return 1 if escaped else 0


if __name__ == "__main__":
    sys.exit(main())
