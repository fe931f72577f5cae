"""``gmdb stat``: looking at a database's bytes.  A verb is a file of its own; this lists them."""

from __future__ import annotations

import argparse
from typing import Any

from gmdb.cli import (
    stat_index,
    stat_locks,
    stat_page,
    stat_segments,
    stat_snapshots,
    stat_spaces,
    stat_transactions,
    stat_undo,
)
from gmdb.cli.verbs import add_verb

DESCRIPTION = (
    "Look at the bytes of a database: it may be closed, damaged, or in use elsewhere. Nothing is changed and no lock "
    "is taken. Exit status: 0 sound, 1 something is damaged, 2 the command failed."
)
VERBS = (stat_spaces, stat_segments, stat_index, stat_page, stat_undo, stat_locks, stat_transactions, stat_snapshots)


def add(commands: Any) -> None:
    add_verbs(
        commands.add_parser("stat", help="look at a database's bytes (also called gmstat)", description=DESCRIPTION)
    )


def add_verbs(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        made = add_verb(verbs, verb)
        made.add_argument("database", metavar="DB", help="the database's directory")
        verb.add_arguments(made)
        made.add_argument("--json", action="store_true", help="print one JSON document instead")
        made.set_defaults(run=verb.run)
