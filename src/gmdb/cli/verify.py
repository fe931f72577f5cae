"""``gmdb verify``: everything about a closed database's files, checked."""

from __future__ import annotations

import argparse
from functools import partial
from typing import TYPE_CHECKING, Any

from gmdb.cli.table import print_json
from gmdb.cli.terminal import progress
from gmdb.inspect.canvas import printable

if TYPE_CHECKING:
    from gmdb.verify import Report

HELP = "check everything about a closed database's files"
DESCRIPTION = (
    "Check every page of a database in all its bytes, rows against their tables, and pages against each other: maps,\n"
    "free lists, counts, migrated rows, undo records. A finding is a line: page, offset, what is wrong there. Nothing\n"
    "is changed; the database must not be open elsewhere for writing.\n"
    "Exit status: 0 nothing is wrong, 1 something is, 2 the command failed."
)
EXAMPLE = "examples:\n  gmdb verify shop.gmdb\n  gmdb verify shop.gmdb --json"


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "verify",
        help=HELP,
        description=DESCRIPTION,
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("database", metavar="DB", help="the database's directory")
    parser.add_argument("--json", action="store_true", help="print one JSON document instead")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    from gmdb.verify import verify  # compiled code, which other commands do without

    report = verify(arguments.database, partial(progress, "verify"))
    if arguments.json:
        print_json(report.document())
    else:
        for finding in report.findings:
            print(printable(str(finding)))
        print(_summary(report))
    return 0 if report.clean else 1


def _summary(report: Report) -> str:
    count = len(report.findings)
    found = "nothing is wrong" if report.clean else f"{count:,} finding{'s' if count > 1 else ''}"
    size = f"{report.pages:,} pages ({report.size / (1 << 20):,.1f} MiB)"
    return f"{size}, {report.tables} tables, {report.rows:,} rows: {found}"
