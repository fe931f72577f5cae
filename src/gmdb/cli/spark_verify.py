"""``gmdb spark verify``: the findings of ``gmdb verify``, in its order, made by Spark's workers."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli.fleet_table import print_fleet
from gmdb.cli.spark_work import Work, summary
from gmdb.cli.table import print_json
from gmdb.cli.verify import found_in_words, recover
from gmdb.errors import DatabaseInUse, NotClosed
from gmdb.inspect.canvas import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gmdb.log.reports import Recovery
    from gmdb.spark.fleet_health import Health

NAME = "verify"
HELP = "check everything about databases, on many cores or machines"
DESCRIPTION = (
    "Check everything that gmdb verify checks, with the same findings in the same order, but by Spark's workers:\n"
    "ranges of pages, leaves of indexes, rows against indexes. Several databases, or a pattern for them in quotes,\n"
    "give a table with a row for each, and what is wrong with those that are not well.\n"
    "A database that was not closed properly is recovered first. Of one that is open elsewhere a copy is made beside\n"
    "it, by the workers and as it is at one instant, and checked; everybody goes on meanwhile. A backup is refused.\n"
    "Exit status: 0 nothing is wrong, 1 something is, 2 some database could not be checked."
)
EXAMPLE = "examples:\n  gmdb spark verify shop.gmdb\n  gmdb spark verify 'fleet/*' --master spark://head:7077"
IF_CANCELLED = "what was checked by then is not known to be sound"
SHOWN = 10  # findings of each database of several; JSON has all


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("databases", metavar="DB", nargs="+", help="directories of databases, or patterns for them")


def require(arguments: argparse.Namespace) -> None:
    """Find the databases before Spark starts; a single one must be fit to be checked."""
    from gmdb.spark.fleet import find_members
    from gmdb.spark.options import is_pattern

    arguments.members = find_members(arguments.databases)
    arguments.is_fleet = len(arguments.databases) > 1 or is_pattern(arguments.databases[0])
    arguments.recovery = None if arguments.is_fleet else _require_one(arguments.members[0].path)


def _require_one(path: Path) -> Recovery | None:
    from gmdb.verify.verifier import closed_files

    try:
        with closed_files(path):
            return None
    except NotClosed:
        return _recover(path)
    except DatabaseInUse:  # a copy of it is checked
        return None


def _recover(path: Path) -> Recovery:
    recovery = recover(str(path))
    if recovery is None:
        raise NotClosed(f"{path} is a backup; gmdb verify checks a copy of it")
    return recovery


def run(arguments: argparse.Namespace, work: Work) -> int:
    return _run_fleet(arguments, work) if arguments.is_fleet else _run_one(arguments, work)


def _run_one(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.checking import verify_databases

    (member,) = arguments.members
    with work.spark() as spark:
        (report,) = verify_databases(spark, [member.path])
        seconds = work.seconds
    report = replace(report, directory=Path(member.name), recovery=arguments.recovery)
    if arguments.json:
        print_json({"databases": [report.document()], "seconds": round(seconds, 3)})
    else:
        if report.recovery is not None:
            print(report.recovery)
        for finding in report.findings:
            print(printable(str(finding)))
        print(found_in_words(report))
        print(f"1 database: {summary(report.rows, report.size, seconds)}")
    return 0 if report.clean else 1


def _run_fleet(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.fleet_health import verify_fleet

    with work.spark() as spark:
        found = verify_fleet(spark, arguments.members, _recover)
        seconds = work.seconds
    if arguments.json:
        print_json({"databases": [health.document() for health in found], "seconds": round(seconds, 3)})
    else:
        _print_fleet(found, seconds)
    if any(health.report is None for health in found):
        return 2
    return 0 if all(health.is_well for health in found) else 1


def _print_fleet(found: Sequence[Health], seconds: float) -> None:
    headings = ("database", "tables", "rows", "pages", "MiB", "status", "first problem")
    rows = []
    for health in found:
        report = health.report
        counts = ("", "", "", "")
        if report is not None:
            size = f"{report.size / (1 << 20):,.1f}"
            counts = (f"{report.tables:,}", f"{report.rows:,}", f"{report.pages:,}", size)
        rows.append((health.database, *counts, health.status, (health.problems or [""])[0]))
    print_fleet(headings, rows)
    print()
    for health in found:
        _print_problems(health)
    reports = [health.report for health in found if health.report is not None]
    well = sum(health.is_well for health in found)
    states = {"ok": well, "with problems": len(reports) - well, "unreadable": len(found) - len(reports)}
    told = ", ".join(f"{count:,} {state}" for state, count in states.items() if count)
    total = summary(sum(report.rows for report in reports), sum(report.size for report in reports), seconds)
    print(f"{len(found):,} database{'s' if len(found) > 1 else ''}: {told}; {total}")


def _print_problems(health: Health) -> None:
    """In full, which the table may have no room for."""
    if health.report is not None and health.report.recovery is not None:
        print(f"{health.database}: {health.report.recovery}")
    for problem in health.problems[:SHOWN]:
        print(f"{health.database}: {printable(problem)}")
    more = len(health.problems) - SHOWN
    if more > 0:
        print(f"{health.database}: {more:,} more; gmdb verify {health.database} has them all")
