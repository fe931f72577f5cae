"""How the demo talks: a line a step, with the time that it took, and what was expected beside what was found."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.table import print_table

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DATABASE_NAME, COPY_NAME, LOG_NAME = "demo.gmdb", "copy.gmdb", "spark.log"
NOTES = "notes"  # the table of the process that is killed
LABEL_WIDTH = 50


class Story:
    """What chapters share: where the database is, Spark, which starts meanwhile, and what has been checked."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.database = folder / DATABASE_NAME
        self.checks: list[tuple[str, Any, Any]] = []
        self._background = ThreadPoolExecutor(1)
        self._starting: Future[SparkSession] | None = None

    def expect(self, what: str, expected: Any, found: Any) -> None:
        """Note an answer beside what it must be."""
        self.checks.append((what, expected, found))

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

    def start_spark(self) -> None:
        """Have Spark start while other things are done."""
        self._starting = self._background.submit(_start_spark, self.folder / LOG_NAME)

    def spark(self) -> SparkSession:
        if self._starting is None:
            self.start_spark()
        assert self._starting is not None
        if not self._starting.done():
            with self.step("wait for Spark to start"):
                wait([self._starting])
        return self._starting.result()

    def close(self) -> None:
        if self._starting is not None and self._starting.exception() is None:
            self._starting.result().stop()
        self._background.shutdown()

    def conclude(self, seconds: float) -> int:
        """Print what was found beside what it must be; 0 if all is the same, 1 if not."""
        print()
        marks = [
            (what, f"{must:,}", f"{found:,}", "" if must == found else "WRONG") for what, must, found in self.checks
        ]
        print_table(("checked", "must be", "found", ""), marks)
        agree = all(must == found for _, must, found in self.checks)
        print(f"\n{'All agree' if agree else 'They do not agree: this is a bug in gmdb'}; {seconds:.0f} s in all.")
        return 0 if agree else 1


def _start_spark(log: Path) -> SparkSession:
    from gmdb.spark.local import local_session

    return local_session(log)
