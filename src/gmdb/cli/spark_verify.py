"""``gmdb spark verify``: what ``gmdb verify`` checks, the pages divided among the workers of a cluster."""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli.spark_work import Work, summary
from gmdb.cli.table import print_json
from gmdb.cli.verify import found_in_words, recover
from gmdb.errors import DatabaseInUse, Error, NotClosed
from gmdb.inspect.canvas import printable

if TYPE_CHECKING:
    from gmdb.log.reports import Recovery
    from gmdb.verify import Report

NAME = "verify"
HELP = "check everything about databases, on many cores or machines"
DESCRIPTION = (
    "Check everything that gmdb verify checks, with the same findings in the same order, but by Spark's workers:\n"
    "ranges of pages, leaves of indexes, rows against indexes. Several databases are one piece of work.\n"
    "A database that was not closed properly is recovered first. Of one that is open elsewhere a copy is made beside\n"
    "it, by the workers and as it is at one instant, and checked; everybody goes on meanwhile. A backup is refused.\n"
    "Exit status: 0 nothing is wrong, 1 something is, 2 some database could not be checked."
)
EXAMPLE = "examples:\n  gmdb spark verify shop.gmdb\n  gmdb spark verify fleet/*.gmdb --master spark://head:7077"
IF_CANCELLED = "what was checked by then is not known to be sound"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("databases", metavar="DB", type=Path, nargs="+", help="directories of databases")


def require(arguments: argparse.Namespace) -> None:
    """Find out which databases can be checked, before Spark starts."""
    from gmdb.verify.verifier import closed_files

    arguments.recovered, arguments.refused = {}, 0
    for path in list(arguments.databases):
        try:
            try:
                with closed_files(path.absolute()):
                    pass
            except NotClosed:
                arguments.recovered[path] = _recover(path)
            except DatabaseInUse:
                continue  # a copy of it is checked
        except Error as error:
            print(f"gmdb: {' '.join(str(error).split())}", file=sys.stderr)
            arguments.databases.remove(path)
            arguments.refused += 1


def _recover(path: Path) -> Recovery:
    recovery = recover(str(path))
    if recovery is None:
        raise NotClosed(f"{path} is a backup; gmdb verify checks a copy of it")
    return recovery


def run(arguments: argparse.Namespace, work: Work) -> int:
    if not arguments.databases:
        return 2
    from gmdb.spark.checking import verify_databases

    with work.spark() as spark:
        reports = verify_databases(spark, arguments.databases)
        seconds = work.seconds
    reports = [
        replace(report, directory=path, recovery=arguments.recovered.get(path))
        for path, report in zip(arguments.databases, reports, strict=True)
    ]
    if arguments.json:
        print_json({"databases": [report.document() for report in reports], "seconds": round(seconds, 3)})
    else:
        for report in reports:
            _print(report, len(reports) > 1)
        total = summary(sum(r.rows for r in reports), sum(r.size for r in reports), seconds)
        print(f"{len(reports)} database{'s' if len(reports) > 1 else ''}: {total}")
    if arguments.refused:
        return 2
    return 0 if all(report.clean for report in reports) else 1


def _print(report: Report, is_one_of_many: bool) -> None:
    name = f"{report.directory}: " if is_one_of_many else ""
    if report.recovery is not None:
        print(f"{name}{report.recovery}")
    for finding in report.findings:
        print(f"{name}{printable(str(finding))}")
    print(f"{name}{found_in_words(report)}")
