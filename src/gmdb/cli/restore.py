"""``gmdb restore``: a database out of a backup, brought to any time since if its log was archived."""

from __future__ import annotations

import argparse
from datetime import datetime
from typing import TYPE_CHECKING

from gmdb.cli.table import print_json
from gmdb.cli.terminal import progress_of_steps
from gmdb.cli.verbs import add_json
from gmdb.errors import InterfaceError

if TYPE_CHECKING:
    from gmdb.log.reports import Recovery

NAME = "restore"
HELP = "make a database out of a backup, as it was then or later"
DESCRIPTION = (
    "Make a database out of a backup, as it was when the backup was made. With the log that was archived since, it is\n"
    "brought to the last commit there, or to the last one up to a time. The backup stays as it is. The new database\n"
    "has an id of its own and archives nothing: log and backups of the old one are not for it.\n"
    "Exit status: 0 the database was made, 2 it was not, and nothing is left of it."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb restore backups/monday shop.gmdb\n"
    "  gmdb restore backups/monday shop.gmdb --archive old.gmdb/archive\n"
    '  gmdb restore backups/monday shop.gmdb --archive old.gmdb/archive --to "2026-11-15 12:00:00"'
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backup", metavar="BACKUP", help="what gmdb backup made")
    parser.add_argument("target", metavar="TARGET", help="where the database is to be; nothing may be there yet")
    parser.add_argument("--archive", metavar="DIR", help="a folder with archived log, or a database that has one")
    parser.add_argument("--to", metavar="TIME", help="the time to go to: local, or in ISO form with a zone")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    to = None if arguments.to is None else parse_time(arguments.to)
    from gmdb.copies import restore  # compiled code, which other commands do without

    with progress_of_steps() as step:
        recovery = restore(arguments.backup, arguments.target, archive=arguments.archive, to=to, progress=step)
    if arguments.json:
        print_json({"database": arguments.target, "recovery": recovery.document()})
    else:
        print(recovery)
        print(_summary(arguments.target, to, recovery))
    return 0


def parse_time(text: str) -> datetime:
    """A time as people write it; without a zone it is local."""
    try:
        return datetime.fromisoformat(text.strip()).astimezone()
    except (ValueError, OverflowError):
        said = "is no time; write it as 2026-11-15 12:00:00, or with a zone as 2026-11-15T12:00:00+01:00"
        raise InterfaceError(f"{text!r} {said}") from None


def _summary(target: str, to: datetime | None, recovery: Recovery) -> str:
    from gmdb.copies import local_time

    newest = "no commit was replayed"
    if recovery.last_commit:
        newest = f"the newest commit that was replayed is of {local_time(recovery.last_commit)}"
    if to is not None and not recovery.stopped:
        newest += f"; the log ends before {to:%Y-%m-%d %H:%M:%S}, so what was committed after that is not there"
    return f"{target}: {newest}; make a backup of it, older ones are not for it"
