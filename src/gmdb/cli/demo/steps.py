"""The demo's output: one line per step, with the time that it took, and what was expected beside what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.output import print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE_NAME, COPY_NAME, LOG_NAME = "demo.gmdb", "copy.gmdb", "spark.log"
NOTES = "notes"  # the table of the process that is killed
LABEL_WIDTH = 50


class Story:
    """What chapters share: where the database is, Spark once it was started, and what has been checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / DATABASE_NAME
        self.checks: list[tuple[str, Any, Any]] = []
        self._spark: SparkSession | None = None

    def expect(self, what: str, expected: Any, actual: Any) -> None:
        """Note a result beside what it must be."""
        self.checks.append((what, expected, actual))

    @contextmanager
    def step(self, label: str) -> Iterator[list[str]]:
        """One line: what is being done, then how long it took, then the notes that were made."""
        print(f"{label:<{LABEL_WIDTH}}", end="", flush=True)
        notes: list[str] = []
        start = time.perf_counter()
        try:
            yield notes
        except BaseException:
            print("  failed", flush=True)
            raise
        print(f"{time.perf_counter() - start:8.3f} s  {'; '.join(notes)}".rstrip(), flush=True)

    def spark(self) -> SparkSession:
        if self._spark is None:
            from gmdb.spark.jobs import local_session

            with self.step("start Spark"):
                self._spark = local_session(self.folder / LOG_NAME)
        return self._spark

    def close(self) -> None:
        if self._spark is not None:
            self._spark.stop()
            self._spark = None

    def conclude(self, seconds: float) -> int:
        """Print what was found beside what it must be; 0 if all is the same, 1 if not."""
        print()
        rows = [
            (what, f"{expected:,}", f"{actual:,}", "" if expected == actual else "WRONG")
            for what, expected, actual in self.checks
        ]
        print_table(("checked", "must be", "found", ""), rows)
        agree = all(expected == actual for _, expected, actual in self.checks)
        print(f"\n{'All agree' if agree else 'They do not agree: this is a bug in gmdb'}; {seconds:.0f} s in all.")
        return 0 if agree else 1
