"""Reports of checkpoints, backups and recoveries, while they run and at their end."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any, TypeVar

from gmdb.format.address import page_name
from gmdb.process import signals
from gmdb.process.late_dataclasses import asdict, dataclass, field

Step = tuple[str, int, int]  # what is being done, how far, of how much
Progress = Callable[[str, int, int], None]
T = TypeVar("T")


def finish(steps: Generator[Step, None, T], progress: Progress | None = None) -> T:
    """Run all steps of a long operation, and report each; returns its result."""
    try:
        while True:
            step = next(steps)
            signals.check()
            if progress is not None:
                progress(*step)
    except StopIteration as end:
        result: T = end.value
        return result
    finally:
        steps.close()


@dataclass
class CheckpointReport:
    """What a checkpoint did."""

    ckpt_id: int
    pages: int
    bytes: int
    seconds: float


@dataclass
class BackupReport:
    """What a backup holds."""

    path: str
    bytes: int  # of pages
    redo_bytes: int  # that opening it replays
    time: int  # its instant: microseconds since 1970
    seconds: float


@dataclass
class Recovery:
    """The work that opening a database did that was not closed."""

    torn_pages: list[int] = field(default_factory=list)
    redo_bytes: int = 0
    groups: int = 0
    items: int = 0
    commits: int = 0
    rolled_back: int = 0  # transactions
    records_undone: int = 0
    cleaned_up: int = 0  # committed transactions whose versions were still kept
    seconds: float = 0.0
    end_lsn: int = 0
    next_transaction: int = 1
    scn: int = 1
    stopped: bool = False  # at the time asked for
    last_commit: int = 0  # when the newest commit that was replayed was made: microseconds since 1970; 0 = none was
    of_backup: bool = False  # it was a backup, which was never closed

    def __str__(self) -> str:
        return (
            f"recovered in {self.seconds:.2f} s: {len(self.torn_pages)} torn pages mended, "
            f"{self.redo_bytes} bytes of redo replayed ({self.groups} groups, {self.commits} commits), "
            f"{self.rolled_back} transactions rolled back ({self.records_undone} changes), "
            f"{self.cleaned_up} committed ones cleaned up after"
        )

    def document(self) -> dict[str, Any]:
        """The report in plain values, for JSON."""
        shown = {name: value for name, value in asdict(self).items() if name not in _INTERNAL}
        return {**shown, "torn_pages": [page_name(page_id) for page_id in self.torn_pages]}


_INTERNAL = ("next_transaction", "scn", "of_backup")
