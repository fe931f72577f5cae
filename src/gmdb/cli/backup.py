"""``gmdb backup``: a copy of a database, in use or not, as it is at one instant."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.table import print_json
from gmdb.cli.terminal import progress_of_steps
from gmdb.cli.verbs import add_database, add_json
from gmdb.errors import InterfaceError
from gmdb.storage.directory import require_database

NAME = "backup"
HELP = "copy a database, in use or not, as it is at one instant"
DESCRIPTION = (
    "Copy a database to a new directory, as it is at one instant. If another process has it open, that process makes\n"
    "the copy, and goes on with its work meanwhile. gmdb restore makes a database out of the copy; gmdb verify checks\n"
    "it. Exit status: 0 the backup was made, 2 it was not, and nothing is left of it."
)
EXAMPLE = "examples:\n  gmdb backup shop.gmdb backups/monday\n  gmdb backup shop.gmdb backups/monday --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    parser.add_argument("target", metavar="TARGET", help="where the backup is to be; nothing may be there yet")
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from dataclasses import asdict

    from gmdb import connect
    from gmdb.copies import local_time
    from gmdb.log.backup import is_backup

    require_database(Path(arguments.database))
    if is_backup(Path(arguments.database)):
        raise InterfaceError(f"{arguments.database} is a backup itself: copy its files")
    with progress_of_steps() as step, connect(arguments.database, progress=step) as connection:
        report = connection.backup(arguments.target, step)
    if arguments.json:
        print_json(asdict(report))
    else:
        size = f"{report.bytes / (1 << 20):,.1f} MiB of pages, {report.redo_bytes / (1 << 20):,.1f} MiB of log"
        print(f"{report.path}: {size}, in {report.seconds:.1f} s; as it was at {local_time(report.time)}")
    return 0
