"""``gmdb shrink``: free pages at the end of a database's files, given back to the operating system."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.table import print_json
from gmdb.cli.verbs import add_database, add_json
from gmdb.storage.directory import require_database
from gmdb.storage.pins import read_pins

NAME = "shrink"
HELP = "make a database's files as short as their last page in use allows"
DESCRIPTION = (
    "Give free pages at the end of a database's files back to the operating system, after rows were deleted or tables\n"
    "dropped. Pages in use stay where they are, so free ones before the last of them remain, for rows to come.\n"
    "The database may be open in another process: then that one does it, while others go on working."
)
EXAMPLE = "examples:\n  gmdb shrink shop.gmdb\n  gmdb shrink shop.gmdb --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    import gmdb  # compiled code, which other commands do without

    require_database(Path(arguments.database))
    with gmdb.connect(arguments.database) as db:
        given = db.shrink()
    if arguments.json:
        print_json({"bytes": given})
    else:
        print(f"{given / (1 << 20):,.1f} MiB given back")
        if pins := read_pins(Path(arguments.database)):
            print(f"files stay as long as they are for {len(pins)} pinned snapshots: see gmdb snapshots list")
    return 0
