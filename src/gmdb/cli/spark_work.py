"""What the verbs of ``gmdb spark`` share: Spark's session, the bar, and the line that sums up."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gmdb.cli.terminal import progress_of_tasks

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gmdb.spark.jobs import TasksDone


class Work:
    """A verb's way to Spark, which takes seconds to start: so a verb looks at its arguments first."""

    def __init__(self, verb: str, master: str, quiet: bool) -> None:
        self._verb, self._master, self._quiet = verb, master, quiet
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """How long it has taken since Spark was there."""
        return time.perf_counter() - self._began

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        from gmdb.spark.jobs import session_for, watched

        with session_for(self._master) as session:
            self._began = time.perf_counter()
            with progress_of_tasks(self._verb, self._quiet) as show:

                def tell(found: TasksDone) -> None:
                    if show is not None:
                        show(found.done, found.total, found.active)

                with watched(session, f"gmdb spark {self._verb}", tell if show is not None else None):
                    yield session


def summary(rows: int, size: int | None, seconds: float) -> str:
    """How much it was, and how long it took."""
    parts = [f"{rows:,} rows"]
    if size is not None:
        parts.append(f"{size / (1 << 20):,.1f} MiB" if size >= 1 << 20 else f"{size / 1024:,.1f} KiB")
    return f"{', '.join(parts)} in {seconds:.1f} s"


def names(text: str) -> list[str]:
    """``a,b`` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]
