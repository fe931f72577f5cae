"""``gmdb archive``: whether a database keeps its log, so that backups can be brought to any time since."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.verbs import add_database
from gmdb.storage.directory import require_database

NAME = "archive"
HELP = "keep a database's log, or do not, for gmdb restore"
DESCRIPTION = (
    "Have a database keep its log in its folder archive, where it is moved when it is needed no more, or have it\n"
    "removed. Together with a backup that was made since then, gmdb restore brings the database back to any time. The\n"
    "files may be moved elsewhere from that folder; gmdb removes none of them.\n"
    "Exit status: 0 done, 2 the command failed."
)
EXAMPLE = "examples:\n  gmdb archive shop.gmdb on\n  gmdb archive shop.gmdb off"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument("state", choices=("on", "off"), help="whether the log is kept from now on")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from gmdb import connect

    require_database(Path(arguments.database))
    with connect(arguments.database) as connection:
        connection.set_archiving(arguments.state == "on")
    if arguments.state == "on":
        print(f"{arguments.database} keeps its log from now on; make a backup to begin with")
    else:
        print(f"{arguments.database} keeps no log from now on; what was archived stays")
    return 0
