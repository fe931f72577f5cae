"""``gmdb feeds``: who reads the database's changes, and how much log is kept for them."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from gmdb.cli.table import print_json, print_table
from gmdb.errors import InterfaceError
from gmdb.storage.directory import read_control, require_database
from gmdb.storage.feeds import LogPosition, Reader, log_behind, read_readers, remove_reader

HELP = "list the named readers of the database's changes, or drop some"
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


def add(commands: Any) -> None:
    raw = argparse.RawDescriptionHelpFormatter
    parser = commands.add_parser("feeds", help=HELP, epilog=EXAMPLE, formatter_class=raw)
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing = verbs.add_parser("list", help="list them", description=LIST_DESCRIPTION, formatter_class=raw)
    listing.set_defaults(run=_list)
    dropping = verbs.add_parser("drop", help="drop some", description=DROP_DESCRIPTION, formatter_class=raw)
    dropping.set_defaults(run=_drop)
    for verb in (listing, dropping):
        verb.add_argument("database", metavar="DB", help="the database's directory")
        verb.add_argument("--json", action="store_true", help="print one JSON document instead")
    dropping.add_argument("names", metavar="READER", nargs="*", help="as gmdb feeds list names them")
    dropping.add_argument("--all", action="store_true", help="all of them")


def _list(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    found = [_fields(directory, reader) for reader in read_readers(directory)]
    if arguments.json:
        print_json({"readers": found})
        return 0
    rows = [
        (one["name"], one["scn"], one["seen"], _size(one["kept_bytes"]), _size(one["limit_bytes"])) for one in found
    ]
    print_table(HEADINGS, rows)
    return 0


def _drop(arguments: argparse.Namespace) -> int:
    directory = _directory(arguments)
    names = [reader.name for reader in read_readers(directory)] if arguments.all else arguments.names
    if not names and not arguments.all:
        raise InterfaceError("name the readers to drop, or say --all; gmdb feeds list names them")
    for name in names:
        remove_reader(directory, name)
    if arguments.json:
        print_json({"dropped": names})
    else:
        print(f"dropped {', '.join(names) or 'none'}")
    return 0


def _directory(arguments: argparse.Namespace) -> Path:
    directory = Path(arguments.database).absolute()
    require_database(directory)
    return directory


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
