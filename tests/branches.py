"""Which branches of storage, log, transaction and access the tests take: ``make coverage``.

With GMDB_KERNELS=plain kernels are Python, and coverage sees into them.  They are a hundred times slower then, so it
is not the whole suite that runs, but the tests of these layers, without those that take too long then.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("storage", "log", "transaction", "access")
ALSO_SHOWN = ("kernel",)
SHARE_MIN = 0.95
TESTS = (
    "tests/storage", "tests/log", "tests/transaction", "tests/isolation", "tests/feed",
    "tests/access/test_heap.py", "tests/access/test_lobs.py", "tests/access/test_indexes.py",
    "tests/access/test_online_build.py", "tests/access/test_cursors.py", "tests/access/test_rows_by_any_way.py",
    "tests/kernel/test_wrapping.py", "tests/crash/test_failures.py", "tests/crash/test_interrupts.py",
    "tests/security/test_hostile_files.py",
)  # fmt: skip
TOO_LONG = (  # for plain kernels; others of the same files take the same branches
    "tests/access/test_cursors.py::test_a_cursor_reads_many",
    "tests/access/test_cursors.py::test_every_way_to_rows",
    "tests/access/test_indexes.py::test_no_group_of_redo",
    "tests/access/test_lobs.py::test_a_process_that_is_killed",
    "tests/access/test_lobs.py::test_pages_are_used_again",
    "tests/access/test_online_build.py::test_it_is_right_beside",
    "tests/crash/test_failures.py::test_a_bit_that",
    "tests/crash/test_failures.py::test_a_page_that",
    "tests/crash/test_failures.py::test_a_request_that_fails",
    "tests/feed/test_changes.py::test_a_bulk_append",
    "tests/feed/test_changes.py::test_bulk_appends",
    "tests/feed/test_model.py",
    "tests/feed/test_readers.py::test_a_crash_of_the_owner",
    "tests/log/test_backup.py::test_a_backup_beside",
    "tests/log/test_backup.py::test_backups_beside",
    "tests/log/test_backup.py::test_devices_that_grow",
    "tests/log/test_backup.py::test_the_log_that_a_backup_needs",
    "tests/log/test_pins.py::test_dropping_pins",
    "tests/log/test_pins.py::test_random_changes",
    "tests/log/test_pins.py::test_writers_and_checkpoints",
    "tests/log/test_read_only.py::test_rows_are_right",
    "tests/log/test_replay.py::test_replayed_pages",
    "tests/log/test_upgrade.py::test_power_may_be_cut",
    "tests/security/test_hostile_files.py::test_files_that_an_attacker",
    "tests/storage/test_shrink.py::test_a_scan_goes_on",
    "tests/storage/test_shrink.py::test_writers_go_on",
    "tests/storage/test_store.py::test_a_full_disk",
    "tests/storage/test_store.py::test_dropped_pages",
    "tests/storage/test_store.py::test_every_flipped_bit",
    "tests/storage/test_store.py::test_pages_with_a_right_crc",
    "tests/transaction/test_bank.py::test_money_moves",
)


class Branches(NamedTuple):
    taken: int
    all: int

    @property
    def share(self) -> float:
        return self.taken / self.all if self.all else 1.0

    def __str__(self) -> str:
        return f"{self.taken:>6} of {self.all:>6}   {100 * self.share:6.2f} %"


def run_tests(data: Path, workers: int, arguments: list[str]) -> int:
    """Run the tests with plain kernels, and every process that they start, and leave in ``data`` which lines ran."""
    environment = {**os.environ, "GMDB_KERNELS": "plain", "COVERAGE_FILE": str(data)}
    command = [sys.executable, "-m", "coverage", "run", "-m", "pytest", "-p", "no:cacheprovider"]
    chosen = [*TESTS, *(part for test in TOO_LONG for part in ("--deselect", test))]
    spread = ["-n", str(workers), "--dist", "loadfile", "--no-loadscope-reorder"] if workers > 1 else []
    return subprocess.run(
        [*command, *spread, *(arguments or chosen)], cwd=ROOT, env=environment, check=False
    ).returncode


def report(data: Path) -> dict[str, Any]:
    """What coverage found out, by file."""
    environment = {**os.environ, "COVERAGE_FILE": str(data)}
    told = data.with_suffix(".json")
    for command in (["combine", "-q"], ["json", "-q", "--ignore-errors", "-o", str(told)]):
        subprocess.run([sys.executable, "-m", "coverage", *command], cwd=ROOT, env=environment, check=True)
    files: dict[str, Any] = json.loads(told.read_text())["files"]
    return files


def package_of(name: str) -> str:
    """Which of the packages a file is of, however deep it lies there."""
    return next((part for part in reversed(Path(name).parts[:-1]) if part in (*PACKAGES, *ALSO_SHOWN)), "")


def branches(files: dict[str, Any], *packages: str) -> Branches:
    """The branches of some packages' files."""
    mine = [files[name]["summary"] for name in files if package_of(name) in packages]
    return Branches(sum(one["covered_branches"] for one in mine), sum(one["num_branches"] for one in mine))


def show_missing(files: dict[str, Any], packages: tuple[str, ...]) -> None:
    for name, file in files.items():
        if package_of(name) in packages and file["missing_branches"]:
            print(f"{name}: {', '.join(f'{start}->{end}' for start, end in file['missing_branches'])}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.branches", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--workers", type=int, default=2, help="processes that run tests")
    parser.add_argument("--missing", action="store_true", help="list the branches that no test takes, as line->line")
    options, arguments = parser.parse_known_args()
    with tempfile.TemporaryDirectory(prefix="gmdb-coverage-") as place:
        failed = run_tests(Path(place) / "data", options.workers, arguments)
        files = report(Path(place) / "data")
    if options.missing:
        show_missing(files, PACKAGES)
    for package in (*PACKAGES, *ALSO_SHOWN):
        print(f"{package:<12}{branches(files, package)}{'' if package in PACKAGES else '   (not part of the sum)'}")
    together = branches(files, *PACKAGES)
    print(f"{'the four':<12}{together}   {100 * SHARE_MIN:g} % are asked for")
    if together.share < SHARE_MIN:
        print("too few branches are taken by tests; --missing lists the others", file=sys.stderr)
    return failed or int(together.share < SHARE_MIN)


if __name__ == "__main__":
    sys.exit(main())
