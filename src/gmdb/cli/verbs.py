"""Commands and their verbs: classes or modules with NAME, HELP, DESCRIPTION, EXAMPLE and ``add_arguments``."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.output import print_json
from gmdb.errors import InterfaceError
from gmdb.storage.directory import require_database

if TYPE_CHECKING:
    from gmdb.database.connection import Connection


def add_database(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", help="the database's directory")


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")


def add_verb(verbs: Any, verb: Any) -> argparse.ArgumentParser:
    """Add a verb; returns the parser of its arguments."""
    parser: argparse.ArgumentParser = verbs.add_parser(
        verb.NAME,
        help=verb.HELP,
        description=verb.DESCRIPTION,
        epilog=verb.EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    return parser


def add_list_and_drop(parser: argparse.ArgumentParser, command: Any, things: str) -> argparse.ArgumentParser:
    """Add the verbs ``list`` and ``drop`` of a command for named things; returns the parser of ``list``.

    ``command`` is a class that also has LIST_HELP, LIST_DESCRIPTION and DROP_DESCRIPTION, and two functions: ``names``
    returns the names of a database's things, ``drop`` drops some.
    """
    raw = argparse.RawDescriptionHelpFormatter
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    listing: argparse.ArgumentParser = verbs.add_parser(
        "list", help=command.LIST_HELP, description=command.LIST_DESCRIPTION, formatter_class=raw
    )
    dropping = verbs.add_parser("drop", help="drop some", description=command.DROP_DESCRIPTION, formatter_class=raw)
    for verb in (listing, dropping):
        add_database(verb)
    add_json(dropping)
    metavar = things.upper().removesuffix("S")
    dropping.add_argument("names", metavar=metavar, nargs="*", help=f"names, as gmdb {command.NAME} list prints them")
    dropping.add_argument("--all", action="store_true", help="all of them")
    unnamed = f"name the {things} to drop, or use --all; gmdb {command.NAME} list prints their names"
    dropping.set_defaults(run=lambda arguments: _drop(arguments, unnamed, command.names, command.drop))
    return listing


def _drop(
    arguments: argparse.Namespace,
    unnamed: str,
    names: Callable[[Path], list[str]],
    drop: Callable[[Path, Sequence[str]], None],
) -> int:
    directory = database_directory(arguments)
    chosen = names(directory) if arguments.all else arguments.names
    if not chosen and not arguments.all:
        raise InterfaceError(unnamed)
    drop(directory, chosen)
    if arguments.json:
        print_json({"dropped": chosen})
    else:
        print(f"dropped {', '.join(chosen) or 'none'}")
    return 0


def database_directory(arguments: argparse.Namespace) -> Path:
    directory = Path(arguments.database).absolute()
    require_database(directory)
    return directory


# ---- Requests to the process that has a database open, if there is one.


def ask_owner(database: str, question: Callable[[Connection], Any]) -> Any:
    """What ``question`` returns for a connection to the owner; None if no process has the database open for writing."""
    from gmdb.server.connect import connect_to_owner  # imports pyarrow, which other verbs do not need

    directory = Path(database).absolute()
    require_database(directory)
    connection = connect_to_owner(directory, read_only=True)
    if connection is None:
        return None
    with connection:
        return question(connection)
