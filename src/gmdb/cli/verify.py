"""``gmdb verify``: everything about a database, checked: closed, crashed, a backup, or in use elsewhere."""

from __future__ import annotations

import argparse
import logging
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli.output import print_json, progress, progress_of_steps
from gmdb.cli.verbs import add_database, add_json, ask_owner
from gmdb.errors import DatabaseInUse, NotClosed
from gmdb.inspect.canvas import printable
from gmdb.process.late_dataclasses import replace

if TYPE_CHECKING:
    from gmdb.storage.log.reports import Recovery
    from gmdb.verify import Report

NAME = "verify"
HELP = "check everything about a database"
DESCRIPTION = (
    "Check every page of a database in all its bytes, rows against their tables, and pages against each other: maps,\n"
    "free lists, counts, migrated rows, undo records; every index in itself and against the rows of its table.\n"
    "A finding is a line: page, offset, what is wrong there.\n"
    "A database that was not closed properly is recovered first. One that is open elsewhere, or a backup, is copied\n"
    "as it is at one instant, and the copy is checked: there must be room for it in the same directory.\n"
    "Exit status: 0 nothing is wrong, 1 something is, 2 the command failed."
)
EXAMPLE = "examples:\n  gmdb verify shop.gmdb\n  gmdb verify shop.gmdb --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_database(parser)
    add_json(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    report = _verify(arguments.database)
    if arguments.json:
        print_json(report.document())
    else:
        if report.recovery is not None:
            print(report.recovery)
        for finding in report.findings:
            print(printable(str(finding)))
        print(summary_of(report))
    return 0 if report.clean else 1


def _verify(database: str) -> Report:
    from gmdb.verify import verify  # compiled code, which other commands do not need

    bar = partial(progress, "verify")
    try:
        return verify(database, bar)
    except DatabaseInUse:
        with progress_of_steps() as step:
            report: Report | None = ask_owner(database, lambda owner: owner.verify(step))
        if report is None:
            raise
        return report
    except NotClosed:
        recovery = recover(database)
        if recovery is None:
            return _verify_backup(database)
        return replace(verify(database, bar), recovery=recovery)


def recover(database: str) -> Recovery | None:
    """Open the database, which recovers it, and close it; None if it is a backup, which is to stay one."""
    from gmdb import connect
    from gmdb.storage.log.backup import is_backup

    if is_backup(Path(database)):
        return None
    logging.getLogger("gmdb").setLevel(logging.ERROR)  # what recovery did is printed
    with progress_of_steps() as step, connect(database, progress=step) as connection:
        return connection.recovery


def _verify_backup(database: str) -> Report:
    from gmdb.database.copies import verify_backup
    from gmdb.storage.log.reports import finish

    with progress_of_steps() as step:
        report: Report = finish(verify_backup(Path(database).absolute()), step)
    return report


def summary_of(report: Report) -> str:
    """What was checked, and whether something is wrong with it."""
    count = len(report.findings)
    outcome = "nothing is wrong" if report.clean else f"{count:,} finding{'s' if count > 1 else ''}"
    size = f"{report.pages:,} pages ({report.size / (1 << 20):,.1f} MiB)"
    return f"{size}, {report.tables} tables, {report.rows:,} rows: {outcome}"
