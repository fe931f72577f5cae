"""The verbs of ``gmdb spark``, and what they share: Spark's session, the bar, the line that sums up."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli.output import print_fleet, print_json, progress_of_tasks
from gmdb.cli.verify import recover, summary_of
from gmdb.errors import DatabaseInUse, NotClosed
from gmdb.inspect.canvas import printable
from gmdb.process.late_dataclasses import replace

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import SparkSession

    from gmdb.spark.checking import Health
    from gmdb.spark.jobs import TasksDone
    from gmdb.storage.log.reports import Recovery


# ---- What the verbs of ``gmdb spark`` share: Spark's session, the bar, and the line that sums up.


class Work:
    """A verb's session of Spark; it takes seconds to start, so verbs check their arguments before."""

    def __init__(self, verb: str, master: str, quiet: bool) -> None:
        self._verb, self._master, self._quiet = verb, master, quiet
        self._began = time.perf_counter()

    @property
    def seconds(self) -> float:
        """Seconds since Spark was ready."""
        return time.perf_counter() - self._began

    @contextmanager
    def spark(self) -> Iterator[SparkSession]:
        from gmdb.spark.jobs import session_for, watched

        with session_for(self._master) as session:
            self._began = time.perf_counter()
            with progress_of_tasks(self._verb, self._quiet) as show:

                def show_tasks(tasks: TasksDone) -> None:
                    if show is not None:
                        show(tasks.done, tasks.total, tasks.active)

                with watched(session, f"gmdb spark {self._verb}", show_tasks if show is not None else None):
                    yield session


def summary(rows: int, size: int | None, seconds: float) -> str:
    """How much was processed, and how long it took."""
    parts = [f"{rows:,} rows"]
    if size is not None:
        parts.append(f"{size / (1 << 20):,.1f} MiB" if size >= 1 << 20 else f"{size / 1024:,.1f} KiB")
    return f"{', '.join(parts)} in {seconds:.1f} s"


def names(text: str) -> list[str]:
    """``a,b`` as a list."""
    return [name.strip() for name in text.split(",") if name.strip()]


class LoadVerb:
    """``gmdb spark load``: files into a table, all of them in one transaction."""

    NAME = "load"
    HELP = "load Parquet, CSV, JSON or ORC files into a table"
    DESCRIPTION = (
        "Load files into a table, all rows or none. The kind of files is that of their names, or of --format. CSV\n"
        "files begin with the names of their columns, whose types are inferred from values. Columns are matched by\n"
        "name, so those of the table may be in another order.\n"
        "Exit status: 0 everything is loaded, 2 nothing is."
    )
    EXAMPLE = (
        "examples:\n"
        "  gmdb spark load shop.gmdb orders orders.parquet\n"
        "  gmdb spark load shop.gmdb orders 'days/2024-*.csv' --create\n"
        "  gmdb spark load shop.gmdb orders /data/orders --format parquet --overwrite"
    )
    IF_CANCELLED = "nothing was loaded"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("database", metavar="DB", type=Path, help="the database's directory")
        parser.add_argument("table", metavar="TABLE", help="the table")
        parser.add_argument(
            "files", metavar="FILE", nargs="+", help="files, directories of files, or patterns (day-*.csv)"
        )
        parser.add_argument(
            "--create", action="store_true", help="create the table, and the database, if it does not exist"
        )
        parser.add_argument("--overwrite", action="store_true", help="remove the rows that the table has")
        parser.add_argument("--format", choices=("parquet", "csv", "json", "orc"), help="what kind of files they are")

    @staticmethod
    def require(arguments: argparse.Namespace) -> None:
        from gmdb.spark.pipelines import find_sources
        from gmdb.storage.directory import require_database

        if arguments.database.exists() or not arguments.create:
            require_database(arguments.database)
        arguments.sources = find_sources(arguments.files, arguments.format)

    @staticmethod
    def run(arguments: argparse.Namespace, work: Work) -> int:
        from gmdb.spark.pipelines import load_files

        with work.spark() as spark:
            loaded = load_files(
                spark,
                arguments.database,
                arguments.table,
                arguments.sources,
                create=arguments.create,
                overwrite=arguments.overwrite,
            )
        if arguments.json:
            print_json({"database": str(arguments.database), "table": arguments.table, **loaded.document()})
        else:
            print(f"{arguments.database}, table {arguments.table}: {summary(loaded.rows, loaded.size, loaded.seconds)}")
        return 0


class ExportVerb:
    """``gmdb spark export``: a table into a directory of Parquet files."""

    NAME = "export"
    HELP = "write a table as Parquet files"
    DESCRIPTION = (
        "Write the rows of a table into a directory of Parquet files, which must be empty, or not there, "
        "unless\n"
        "--overwrite is given. With --partition-by, there is a directory for each value, as Spark and others "
        "expect it.\n"
        "Exit status: 0 everything is written, 2 the command failed."
    )
    EXAMPLE = (
        "examples:\n"
        "  gmdb spark export shop.gmdb orders /data/orders\n"
        "  gmdb spark export shop.gmdb orders /data/orders --partition-by year,month --where \"state = 'paid'\""
    )
    IF_CANCELLED = "the directory may hold a part of the files, without _SUCCESS"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("database", metavar="DB", type=Path, help="the database's directory")
        parser.add_argument("table", metavar="TABLE", help="the table")
        parser.add_argument("target", metavar="DIR", help="the directory to write to")
        parser.add_argument(
            "--partition-by", metavar="COL,…", type=names, default=[], help="a directory for each value"
        )
        parser.add_argument("--columns", metavar="COL,…", type=names, default=[], help="only these columns")
        parser.add_argument("--where", metavar="CONDITION", help="only rows that meet it, in Spark's SQL")
        parser.add_argument("--overwrite", action="store_true", help="remove what is in the directory")
        parser.add_argument("--files", metavar="N", type=int, help="write about this many files")
        parser.add_argument("--compression", choices=("zstd", "snappy"), default="zstd", help="of the files (zstd)")

    @staticmethod
    def require(arguments: argparse.Namespace) -> None:
        from gmdb.errors import InterfaceError
        from gmdb.spark.pipelines import require_target
        from gmdb.storage.directory import require_database

        require_database(arguments.database)
        require_target(arguments.target, arguments.database, arguments.overwrite)
        if arguments.files is not None and arguments.files < 1:
            raise InterfaceError(f"--files {arguments.files}: write at least one file")

    @staticmethod
    def run(arguments: argparse.Namespace, work: Work) -> int:
        from gmdb.spark.pipelines import Wanted, export_table

        wanted = Wanted(
            arguments.columns, arguments.where, arguments.partition_by, arguments.files, arguments.compression
        )
        with work.spark() as spark:
            exported = export_table(
                spark, arguments.database, arguments.table, arguments.target, wanted, overwrite=arguments.overwrite
            )
        if arguments.json:
            print_json({"table": arguments.table, "directory": arguments.target, **exported.document()})
        else:
            print(f"{arguments.target}: {summary(exported.rows, exported.size, exported.seconds)}")
        return 0


class CreateIndexVerb:
    """``gmdb spark index``: CREATE INDEX, its entries sorted by Spark's workers."""

    NAME = "index"
    HELP = "build an index of a large table"
    DESCRIPTION = (
        "Build an index, as CREATE INDEX does, but by Spark's workers: they sort the entries of ranges of "
        "pages and make\n"
        "the leaves of the B-tree, which the process that has the database open then takes in. Others read "
        "and change\n"
        "the table all the while, but for two moments. If a row is in the way, such as one that has a key "
        "twice with\n"
        "--unique, nothing is left of the index.\n"
        "Exit status: 0 the index is there, 2 it is not."
    )
    EXAMPLE = (
        "examples:\n"
        "  gmdb spark index shop.gmdb orders_by_customer orders customer,day\n"
        "  gmdb spark index shop.gmdb orders_by_number orders number --unique --master spark://head:7077"
    )
    IF_CANCELLED = "there is no index"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("database", metavar="DB", type=Path, help="the database's directory")
        parser.add_argument("name", metavar="NAME", help="the name of the index")
        parser.add_argument("table", metavar="TABLE", help="the table")
        parser.add_argument("columns", metavar="COL[,COL…]", type=names, help="the columns of its key, in their order")
        parser.add_argument("--unique", action="store_true", help="no two rows may have the same key")
        parser.add_argument("--using", default="btree", help="the kind of index: btree, which is the default")

    @staticmethod
    def require(arguments: argparse.Namespace) -> None:
        from gmdb.spark.distributed_index import require_kind
        from gmdb.storage.directory import require_database

        require_database(arguments.database)
        require_kind(arguments.name, arguments.table, arguments.using)

    @staticmethod
    def run(arguments: argparse.Namespace, work: Work) -> int:
        from gmdb.spark.distributed_index import create_index

        what = (arguments.name, arguments.table, arguments.columns, arguments.unique)
        with work.spark() as spark:
            index = create_index(spark, arguments.database, *what)
        if arguments.json:
            print_json({"database": str(arguments.database), "index": arguments.name, **index.document()})
        else:
            print(f"{arguments.database}, index {arguments.name}: {summary(index.entries, index.size, index.seconds)}")
        return 0


class VerifyVerb:
    """``gmdb spark verify``: the findings of ``gmdb verify``, in its order, made by Spark's workers."""

    NAME = "verify"
    HELP = "check everything about databases, on many cores or machines"
    DESCRIPTION = (
        "Check everything that gmdb verify checks, with the same findings in the same order, but by Spark's "
        "workers:\n"
        "ranges of pages, leaves of indexes, rows against indexes. Several databases, or a pattern for them "
        "in quotes,\n"
        "give a table with a row for each, and the problems of those that have some.\n"
        "A database that was not closed properly is recovered first. Of one that is open elsewhere a copy is "
        "made beside\n"
        "it, by the workers and as it is at one instant, and checked; others go on working meanwhile. A backup "
        "is refused.\n"
        "Exit status: 0 nothing is wrong, 1 something is, 2 some database could not be checked."
    )
    EXAMPLE = "examples:\n  gmdb spark verify shop.gmdb\n  gmdb spark verify 'fleet/*' --master spark://head:7077"
    IF_CANCELLED = "what was checked by then is not known to be sound"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("databases", metavar="DB", nargs="+", help="directories of databases, or patterns for them")

    @staticmethod
    def require(arguments: argparse.Namespace) -> None:
        """Find the databases before Spark starts; a single one must be fit to be checked."""
        from gmdb.spark.fleet import find_members
        from gmdb.spark.options import is_pattern

        arguments.members = find_members(arguments.databases)
        arguments.is_fleet = len(arguments.databases) > 1 or is_pattern(arguments.databases[0])
        arguments.recovery = None if arguments.is_fleet else _require_one(arguments.members[0].path)

    @staticmethod
    def run(arguments: argparse.Namespace, work: Work) -> int:
        return _run_fleet(arguments, work) if arguments.is_fleet else _run_one(arguments, work)


SHOWN = 10  # findings of each database of several; JSON has all


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
        print(summary_of(report))
        print(f"1 database: {summary(report.rows, report.size, seconds)}")
    return 0 if report.clean else 1


def _run_fleet(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.checking import verify_fleet

    with work.spark() as spark:
        healths = verify_fleet(spark, arguments.members, _recover)
        seconds = work.seconds
    if arguments.json:
        print_json({"databases": [health.document() for health in healths], "seconds": round(seconds, 3)})
    else:
        _print_fleet(healths, seconds)
    if any(health.report is None for health in healths):
        return 2
    return 0 if all(health.is_well for health in healths) else 1


def _print_fleet(healths: Sequence[Health], seconds: float) -> None:
    headings = ("database", "tables", "rows", "pages", "MiB", "status", "first problem")
    rows = []
    for health in healths:
        report = health.report
        counts = ("", "", "", "")
        if report is not None:
            size = f"{report.size / (1 << 20):,.1f}"
            counts = (f"{report.tables:,}", f"{report.rows:,}", f"{report.pages:,}", size)
        rows.append((health.database, *counts, health.status, (health.problems or [""])[0]))
    print_fleet(headings, rows)
    print()
    for health in healths:
        _print_problems(health)
    reports = [health.report for health in healths if health.report is not None]
    well = sum(health.is_well for health in healths)
    states = {"ok": well, "with problems": len(reports) - well, "unreadable": len(healths) - len(reports)}
    outcome = ", ".join(f"{count:,} {state}" for state, count in states.items() if count)
    total = summary(sum(report.rows for report in reports), sum(report.size for report in reports), seconds)
    print(f"{len(healths):,} database{'s' if len(healths) > 1 else ''}: {outcome}; {total}")


def _print_problems(health: Health) -> None:
    """Print problems in full; the table may have cut them off."""
    if health.report is not None and health.report.recovery is not None:
        print(f"{health.database}: {health.report.recovery}")
    for problem in health.problems[:SHOWN]:
        print(f"{health.database}: {printable(problem)}")
    more = len(health.problems) - SHOWN
    if more > 0:
        print(f"{health.database}: {more:,} more; gmdb verify {health.database} has them all")
