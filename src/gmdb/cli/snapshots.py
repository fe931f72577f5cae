"""``gmdb snapshots``: pinned snapshots, listed and dropped."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli.live import ask_owner
from gmdb.cli.stat_lists import SNAPSHOTS
from gmdb.cli.verbs import add_list_and_drop
from gmdb.storage.pins import drop_closed, read_pins

if TYPE_CHECKING:
    from gmdb.connection import Connection

NAME = "snapshots"
HELP = "list the snapshots that are pinned for readers in other processes, or drop some"
DESCRIPTION = (
    "A snapshot is pinned for readers in other processes, as Spark's are: what they may still read is kept for them\n"
    "until they let it go, or it expires."
)
LIST_HELP, LIST_DESCRIPTION = SNAPSHOTS.HELP, SNAPSHOTS.DESCRIPTION
DROP_DESCRIPTION = (
    "Drop pinned snapshots: whoever still reads by one is told that it has expired, and what was kept for it is\n"
    "removed. If a process has the database open, that one does it."
)
EXAMPLE = "examples:\n  gmdb snapshots list shop.gmdb\n  gmdb snapshots drop shop.gmdb 0000000012-1f0c22aa\n"
EXAMPLE += "  gmdb snapshots drop shop.gmdb --all"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listing = add_list_and_drop(parser, sys.modules[__name__], "snapshots")
    SNAPSHOTS.add_arguments(listing)
    listing.set_defaults(run=SNAPSHOTS.run)


def names(directory: Path) -> list[str]:
    return [pin.name for pin in read_pins(directory)]


def drop(directory: Path, chosen: Sequence[str]) -> None:
    def ask(owner: Connection) -> bool:
        for name in chosen:
            owner.drop_snapshot(name)
        return True

    if ask_owner(str(directory), ask) is None:
        for name in chosen:
            drop_closed(directory, name)
