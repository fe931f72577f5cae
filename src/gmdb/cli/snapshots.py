"""``gmdb snapshots``: pinned snapshots, listed and dropped."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.live import ask_owner
from gmdb.cli.stat_lists import SNAPSHOTS
from gmdb.cli.table import print_json
from gmdb.errors import InterfaceError
from gmdb.storage.pins import drop_closed, read_pins

if TYPE_CHECKING:
    from gmdb.connection import Connection

HELP = "list the snapshots that are pinned for readers in other processes, or drop some"
DROP_DESCRIPTION = (
    "Drop pinned snapshots: whoever still reads by one is told that it has expired, and what was kept for it is\n"
    "removed. If a process has the database open, that one does it."
)
EXAMPLE = "examples:\n  gmdb snapshots list shop.gmdb\n  gmdb snapshots drop shop.gmdb 0000000012-1f0c22aa\n"
EXAMPLE += "  gmdb snapshots drop shop.gmdb --all"


def add(commands: Any) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("snapshots", help=HELP, epilog=EXAMPLE, formatter_class=raw)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help=SNAPSHOTS.HELP, description=SNAPSHOTS.DESCRIPTION)
    listing.set_defaults(run=SNAPSHOTS.run)
    dropping = verbs.add_parser("drop", help="drop some", description=DROP_DESCRIPTION, formatter_class=raw)
    dropping.set_defaults(run=_drop)
    for verb in (listing, dropping):
        verb.add_argument("database", metavar="DB", help="the database's directory")
    SNAPSHOTS.add_arguments(listing)
    dropping.add_argument("--json", action="store_true", help="print one JSON document instead")
    dropping.add_argument("names", metavar="SNAPSHOT", nargs="*", help="as gmdb snapshots list names them")
    dropping.add_argument("--all", action="store_true", help="all of them")


def _drop(arguments: argparse.Namespace) -> int:
    directory = Path(arguments.database).absolute()
    names = [pin.name for pin in read_pins(directory)] if arguments.all else arguments.names
    if not names and not arguments.all:
        raise InterfaceError("name the snapshots to drop, or say --all; gmdb snapshots list names them")

    def ask(owner: Connection) -> bool:
        for name in names:
            owner.drop_snapshot(name)
        return True

    if ask_owner(arguments.database, ask) is None:
        for name in names:
            drop_closed(directory, name)
    if arguments.json:
        print_json({"dropped": names})
    else:
        print(f"dropped {', '.join(names) or 'none'}")
    return 0
