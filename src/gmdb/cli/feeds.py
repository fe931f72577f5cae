"""``gmdb feeds``: who reads the database's changes, and how much log is kept for them."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gmdb.cli.table import print_json, print_table
from gmdb.cli.verbs import add_json, add_list_and_drop, database_directory
from gmdb.storage.directory import read_control
from gmdb.storage.feeds import LogPosition, Reader, log_behind, read_readers, remove_reader

NAME = "feeds"
HELP = "list the named readers of the database's changes, or drop some"
DESCRIPTION = (
    "A named reader of changes, as a stream is, stands behind a commit; the log of the commits after it is kept until\n"
    "the reader has them, up to a limit."
)
LIST_HELP = "list them"
LIST_DESCRIPTION = (
    "List every named reader of changes: behind which commit it stands, when it last said so, how much log is kept\n"
    "for it, and how much may be at most. The files say so, whoever has the database open."
)
DROP_DESCRIPTION = (
    "Drop readers of changes: the log is kept for them no more. A stream that goes on with one is told that its\n"
    "place is gone, and starts again from a snapshot."
)
EXAMPLE = "examples:\n  gmdb feeds list shop.gmdb\n  gmdb feeds drop shop.gmdb nightly-copy"
HEADINGS = ("reader", "behind commit", "last seen", "log kept", "at most")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    listing = add_list_and_drop(parser, sys.modules[__name__], "readers")
    add_json(listing)
    listing.set_defaults(run=_list)


def _list(arguments: argparse.Namespace) -> int:
    directory = database_directory(arguments)
    found = [_fields(directory, reader) for reader in read_readers(directory)]
    if arguments.json:
        print_json({"readers": found})
        return 0
    rows = [
        (one["name"], one["scn"], one["seen"], _size(one["kept_bytes"]), _size(one["limit_bytes"])) for one in found
    ]
    print_table(HEADINGS, rows)
    return 0


def names(directory: Path) -> list[str]:
    return [reader.name for reader in read_readers(directory)]


def drop(directory: Path, chosen: Sequence[str]) -> None:
    for name in chosen:
        remove_reader(directory, name)


def _fields(directory: Path, reader: Reader) -> dict[str, Any]:
    database_id = read_control(directory)["database_id"]
    return {
        "name": reader.name,
        "position": reader.position,
        "scn": LogPosition.from_text(reader.position, database_id).scn,
        "seen": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(reader.seen)),
        "kept_bytes": log_behind(directory, reader),
        "limit_bytes": reader.keep,
    }


def _size(size: int) -> str:
    return f"{size / (1 << 20):,.1f} MiB"
