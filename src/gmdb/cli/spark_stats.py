"""``gmdb spark stats``: what is in the columns of tables, and how full the pages of segments are."""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.output import print_fleet, print_json, print_table
from gmdb.cli.spark_verbs import Work, names, summary
from gmdb.errors import InterfaceError, NoSuchTable, StorageError
from gmdb.inspect.canvas import printable

if TYPE_CHECKING:
    from gmdb.spark.fleet import LeftOut
    from gmdb.spark.profile import ColumnProfile, DatabaseSpace, SegmentSpace, TableProfile
    from gmdb.tables.catalog.schema import TableDefinition


# ---- What is printed of a table's columns: a row for each, with a picture of how its values are spread.

CELL = 24  # characters of a value in the table
LEVELS = "▁▂▃▄▅▆▇█"


def print_profile(table: TableProfile) -> None:
    print(f"table {table.table}: {table.rows:,} rows")
    headings = ("column", "type", "nulls", "distinct", "min", "max", "spread")
    sign = "" if table.distinct_is_exact else "~"
    print_table(
        headings,
        [
            (c.name, c.type, c.nulls, f"{sign}{c.distinct}", _cell(c.smallest), _cell(c.largest), spread(c))
            for c in table.columns
        ],
    )
    if table.left_out:
        print(f"left out, as large objects: {', '.join(table.left_out)}")
    print()


def _cell(value: Any) -> str:
    from gmdb.spark.profile import plain

    text = "-" if value is None else str(plain(value))
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def spread(column: ColumnProfile) -> str:
    """A histogram as a line of bars, or the most frequent values and their counts."""
    if column.histogram is not None:
        most = max(column.histogram.counts, default=0) or 1
        heights = (-(-count * len(LEVELS) // most) for count in column.histogram.counts)
        return "".join(LEVELS[height - 1] if height else " " for height in heights)
    pairs = (column.frequent or [])[:3]
    return ", ".join(f"{_cell(value)} ×{count}" for value, count in pairs)


# ---- ``gmdb spark stats`` of a pattern: a row for each database, and the columns of a table in all of them together.


def fleet_tables(fleet: Path, names: Sequence[str], columns: Sequence[str]) -> list[TableDefinition]:
    """The named tables, as defined in the first database that can be read."""
    from gmdb.spark.fleet import find_members
    from gmdb.spark.fleet_reader import first_table

    find_members([str(fleet)])
    return [first_table([str(fleet)], name, columns or None, skips_databases=True)[0] for name in names]


def run_fleet(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.fleet import read_report
    from gmdb.spark.profile import database_spaces, profile_table

    if arguments.plot is not None and not arguments.definitions:
        raise InterfaceError("--plot of several databases draws the columns of a table; name it with --table")
    fleet, columns, exact = arguments.database.absolute(), arguments.columns, arguments.exact
    with _report_folder(arguments) as folder, work.spark() as spark:
        options = {"onError": "skip", "reportTo": folder}
        profiles = [
            profile_table(spark, fleet, table, columns=columns, exact=exact, **options)
            for table in arguments.definitions
        ]
        spaces = [] if arguments.no_segments else database_spaces(spark, str(fleet), **options)
        seconds = work.seconds
        left_out = {one.database: one for one in reversed(read_report(Path(folder)))}
    if arguments.plot is not None:
        from gmdb.spark.profile import draw_profiles

        draw_profiles(arguments.plot, profiles, [])
    if arguments.json:
        about = {"tables": [profile.document() for profile in profiles], "databases": [s.document() for s in spaces]}
        lost = [{"database": name, "error": one.error} for name, one in sorted(left_out.items())]
        print_json({"fleet": str(fleet), **about, "left_out": lost, "seconds": round(seconds, 3)})
    else:
        _print(arguments.database, profiles, spaces, left_out, seconds)
    return 2 if left_out else 0


def _report_folder(arguments: argparse.Namespace) -> tempfile.TemporaryDirectory[str]:
    """Where workers report what they skip: on a cluster beside the databases, which all workers reach."""
    from gmdb.spark.fleet import find_members
    from gmdb.spark.jobs import is_local

    beside = find_members([str(arguments.database)])[0].path.parent
    folder = None if is_local(arguments.master) else beside
    try:
        return tempfile.TemporaryDirectory(prefix=".gmdb-report-", dir=folder, ignore_cleanup_errors=True)
    except OSError as error:
        raise StorageError(f"{beside}: {error.strerror}; workers must report there what they skip") from error


def _print(
    fleet: Path,
    profiles: Sequence[TableProfile],
    spaces: Sequence[DatabaseSpace],
    left_out: Mapping[str, LeftOut],
    seconds: float,
) -> None:
    from gmdb.spark.fleet import without_path

    def named(database: str) -> str:
        return database if fleet.is_absolute() else os.path.relpath(database)

    for profile in profiles:
        print_profile(profile)
    if spaces:
        _print_spaces([(named(space.database), space) for space in spaces])
    for name, one in sorted(left_out.items()):
        print(f"left out: {named(name)}: {printable(without_path(one.error, Path(name)))}")
    rows = sum(space.rows for space in spaces) if spaces else sum(profile.rows for profile in profiles)
    size = sum(space.size for space in spaces) if spaces else None
    print(
        f"{fleet}: {len(spaces):,} databases, {summary(rows, size, seconds)}"
        if spaces
        else summary(rows, size, seconds)
    )


def _print_spaces(spaces: Sequence[tuple[str, DatabaseSpace]]) -> None:
    from gmdb.spark.fleet import without_path

    headings = ("database", "tables", "rows", "pages", "MiB", "full", "dead", "status", "first problem")
    rows = []
    for name, one in spaces:
        counts = (f"{one.tables:,}", f"{one.rows:,}", f"{one.pages:,}", f"{one.size / (1 << 20):,.1f}")
        dead = one.dead / one.size if one.size else 0.0
        status = f"{one.damaged_pages:,} damaged" if one.damaged_pages else "damaged" if one.problem else "ok"
        problem = without_path(one.problem or "", Path(one.database))
        rows.append((name, *counts, f"{one.fill:.0%}", f"{dead:.0%}", status, problem))
    print_fleet(headings, rows)
    print()


class StatsVerb:
    """``gmdb spark stats``: what is in the columns of tables, and how full the pages of segments are."""

    NAME = "stats"
    HELP = "describe the columns of tables, and how full segments are"
    DESCRIPTION = (
        "Of each column: how many NULLs, how many distinct values (about ~, unless --exact), smallest and "
        "largest, and\n"
        "how the values are spread: of numbers and times in parts of equal width, of texts the most frequent "
        "ones.\n"
        "Of each segment: how full its pages are, and how much of that is dead (rows that are deleted, and "
        "holes).\n"
        "Columns of large objects are left out unless --columns names them.\n"
        "Of a pattern in quotes: a row for each database, and of a --table the columns of all databases "
        "together.\n"
        "Exit status: 0 all is well, 2 the command failed, or some database could not be read."
    )
    EXAMPLE = (
        "examples:\n"
        "  gmdb spark stats shop.gmdb\n"
        "  gmdb spark stats shop.gmdb --table orders --columns price,day --exact --plot orders.png\n"
        "  gmdb spark stats 'fleet/*' --table orders"
    )
    IF_CANCELLED = "nothing is known yet"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "database", metavar="DB", type=Path, help="the database's directory, or a pattern for several"
        )
        parser.add_argument(
            "--table", metavar="NAME", action="append", default=[], help="only this table; may be repeated"
        )
        parser.add_argument("--columns", metavar="COL,…", type=names, default=[], help="only these, of the one --table")
        parser.add_argument("--exact", action="store_true", help="count distinct values exactly, which takes longer")
        parser.add_argument("--no-segments", action="store_true", help="leave out how full segments are")
        parser.add_argument(
            "--plot", metavar="FILE", type=Path, help="also draw a picture, .png or .svg (needs matplotlib)"
        )

    @staticmethod
    def require(arguments: argparse.Namespace) -> None:
        from gmdb.spark.options import is_pattern
        from gmdb.storage.directory import require_database

        arguments.is_fleet = is_pattern(str(arguments.database))
        if not arguments.is_fleet:
            require_database(arguments.database)
        if arguments.columns and len(arguments.table) != 1:
            raise InterfaceError("--columns is about one table; name it with --table")
        if arguments.plot is not None:
            from gmdb.spark.profile import require_picture

            require_picture(arguments.plot)
        if arguments.is_fleet:
            arguments.definitions = fleet_tables(arguments.database, arguments.table, arguments.columns)
        else:
            arguments.definitions = _tables(arguments.database, arguments.table)
        for name in arguments.columns:
            arguments.definitions[0].position(name)

    @staticmethod
    def run(arguments: argparse.Namespace, work: Work) -> int:
        if arguments.is_fleet:
            return run_fleet(arguments, work)
        from gmdb.spark.profile import profile_table, segment_spaces

        with work.spark() as spark:
            tables = [
                profile_table(spark, arguments.database, table, columns=arguments.columns, exact=arguments.exact)
                for table in arguments.definitions
            ]
            segments = [] if arguments.no_segments else segment_spaces(spark, arguments.database)
            seconds = work.seconds
        if arguments.plot is not None:
            from gmdb.spark.profile import draw_profiles

            draw_profiles(arguments.plot, tables, segments)
        rows, size = sum(table.rows for table in tables), sum(segment.size for segment in segments)
        if arguments.json:
            about = {"tables": [t.document() for t in tables], "segments": [s.document() for s in segments]}
            print_json({"database": str(arguments.database), **about, "seconds": round(seconds, 3)})
        else:
            for table in tables:
                print_profile(table)
            if segments:
                _print_segments(segments)
            print(f"{arguments.database}: {summary(rows, size or None, seconds)}")
        return 0


def _tables(database: Path, wanted: list[str]) -> list[TableDefinition]:
    import gmdb

    with gmdb.connect(database, read_only=True) as connection:
        tables = [connection.table(name) for name in wanted or connection.tables()]
    if not tables:
        raise NoSuchTable(f"{database} has no tables")
    return tables


def _print_segments(segments: list[SegmentSpace]) -> None:
    from gmdb.format.address import page_name

    headings = ("segment", "object", "type", "pages", "KiB", "full", "dead", "dead rows")
    rows = []
    for one in segments:
        dead = one.dead / one.size if one.size else 0.0
        about = (page_name(one.entry_page), one.object, one.type, one.pages, one.size >> 10)
        rows.append((*about, f"{one.fill:.0%}", f"{dead:.0%}", one.dead_rows))
    print_table(headings, rows)
    print()
