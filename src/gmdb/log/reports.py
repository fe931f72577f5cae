"""What checkpoints and recoveries tell of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

Progress = Callable[[str, int, int], None]  # what is being done, how far, of how much


@dataclass
class CheckpointReport:
    """What a checkpoint did."""

    ckpt_id: int
    pages: int
    bytes: int
    seconds: float


@dataclass
class Recovery:
    """What opening a database that was not closed has done."""

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

    def __str__(self) -> str:
        return (
            f"recovered in {self.seconds:.2f} s: {len(self.torn_pages)} torn pages mended, "
            f"{self.redo_bytes} bytes of redo replayed ({self.groups} groups, {self.commits} commits), "
            f"{self.rolled_back} transactions rolled back ({self.records_undone} changes), "
            f"{self.cleaned_up} committed ones cleaned up after"
        )
