"""``gmdb stat``: looking at a database's bytes.  A verb prints a listing, or draws one thing."""

from __future__ import annotations

import argparse
from typing import Any

from gmdb.cli import (
    stat_diff,
    stat_fill,
    stat_find,
    stat_hex,
    stat_history,
    stat_index,
    stat_page,
    stat_redo,
    stat_salvage,
)
from gmdb.cli.stat_lists import LIST_VERBS
from gmdb.cli.verbs import add_database, add_verb

NAME = "stat"
HELP = "look at a database's bytes (also called gmstat)"
DESCRIPTION = (
    "Look at the bytes of a database: it may be closed, damaged, or in use elsewhere. Nothing is changed and no lock "
    "is taken. Exit status: 0 sound, 1 something is damaged, 2 the command failed."
)
EXAMPLE = "examples:\n  gmstat spaces shop.gmdb\n  gmstat page shop.gmdb 4:2\n  gmstat page --help"
_ORDER = (
    "spaces", "devices", "segments", "maps", "freelists", "fill", "pages", "page", "hex", "rows", "row", "find",
    "index", "hash", "lob", "undo", "locks", "transactions", "waits", "snapshots", "redo", "history", "checkpoints",
    "diff", "salvage",
)  # fmt: skip
_DRAWN: tuple[Any, ...] = (
    stat_fill,
    stat_page,
    stat_hex,
    stat_find,
    stat_index,
    stat_redo,
    stat_history,
    stat_diff,
    stat_salvage,
)
VERBS: list[Any] = sorted((*LIST_VERBS, *_DRAWN), key=lambda verb: _ORDER.index(verb.NAME))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        made = add_verb(verbs, verb)
        add_database(made)
        verb.add_arguments(made)
        made.set_defaults(run=verb.run)
