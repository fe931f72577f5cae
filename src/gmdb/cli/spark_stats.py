"""``gmdb spark stats``: what is in the columns of tables, and how full the pages of segments are."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.cli import spark_stats_fleet
from gmdb.cli.spark_profile import print_profile
from gmdb.cli.spark_work import Work, names, summary
from gmdb.cli.table import print_json, print_table
from gmdb.errors import InterfaceError, NoSuchTable

if TYPE_CHECKING:
    from gmdb.catalog.schema import TableDefinition
    from gmdb.spark.space_profile import SegmentSpace

NAME = "stats"
HELP = "describe the columns of tables, and how full segments are"
DESCRIPTION = (
    "Of each column: how many NULLs, how many distinct values (about ~, unless --exact), smallest and largest, and\n"
    "how the values are spread: of numbers and times in parts of equal width, of texts the most frequent ones.\n"
    "Of each segment: how full its pages are, and how much of that is dead (rows that are deleted, and holes).\n"
    "Columns of large objects are left out unless --columns names them.\n"
    "Of a pattern in quotes: a row for each database, and of a --table the columns of all databases together.\n"
    "Exit status: 0 all is well, 2 the command failed, or some database could not be read."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb spark stats shop.gmdb\n"
    "  gmdb spark stats shop.gmdb --table orders --columns price,day --exact --plot orders.png\n"
    "  gmdb spark stats 'fleet/*' --table orders"
)
IF_CANCELLED = "nothing is known yet"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", type=Path, help="the database's directory, or a pattern for several")
    parser.add_argument("--table", metavar="NAME", action="append", default=[], help="only this table; may be repeated")
    parser.add_argument("--columns", metavar="COL,…", type=names, default=[], help="only these, of the one --table")
    parser.add_argument("--exact", action="store_true", help="count distinct values exactly, which takes longer")
    parser.add_argument("--no-segments", action="store_true", help="leave out how full segments are")
    parser.add_argument(
        "--plot", metavar="FILE", type=Path, help="also draw a picture, .png or .svg (needs matplotlib)"
    )


def require(arguments: argparse.Namespace) -> None:
    from gmdb.spark.options import is_pattern
    from gmdb.storage.directory import require_database

    arguments.is_fleet = is_pattern(str(arguments.database))
    if not arguments.is_fleet:
        require_database(arguments.database)
    if arguments.columns and len(arguments.table) != 1:
        raise InterfaceError("--columns is about one table; name it with --table")
    if arguments.plot is not None:
        from gmdb.spark.profile_picture import require_picture

        require_picture(arguments.plot)
    if arguments.is_fleet:
        arguments.definitions = spark_stats_fleet.tables(arguments.database, arguments.table, arguments.columns)
    else:
        arguments.definitions = _tables(arguments.database, arguments.table)
    for name in arguments.columns:
        arguments.definitions[0].position(name)


def _tables(database: Path, wanted: list[str]) -> list[TableDefinition]:
    import gmdb

    with gmdb.connect(database, read_only=True) as connection:
        found = [connection.table(name) for name in wanted or connection.tables()]
    if not found:
        raise NoSuchTable(f"{database} has no tables")
    return found


def run(arguments: argparse.Namespace, work: Work) -> int:
    if arguments.is_fleet:
        return spark_stats_fleet.run(arguments, work)
    from gmdb.spark.column_profile import profile_table
    from gmdb.spark.space_profile import segment_spaces

    with work.spark() as spark:
        tables = [
            profile_table(spark, arguments.database, table, columns=arguments.columns, exact=arguments.exact)
            for table in arguments.definitions
        ]
        segments = [] if arguments.no_segments else segment_spaces(spark, arguments.database)
        seconds = work.seconds
    if arguments.plot is not None:
        from gmdb.spark.profile_picture import draw_profiles

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
