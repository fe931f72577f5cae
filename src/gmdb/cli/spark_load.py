"""``gmdb spark load``: files into a table, all of them in one transaction."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.spark_work import Work, summary
from gmdb.cli.table import print_json

NAME = "load"
HELP = "load Parquet, CSV, JSON or ORC files into a table"
DESCRIPTION = (
    "Load files into a table. All rows are there afterwards, or none. What kind of files they are, their names say,\n"
    "or --format. CSV files begin with the names of their columns; what types these have is found out from values.\n"
    "Columns go by their names, so those of the table may stand in another order.\n"
    "Exit status: 0 everything is loaded, 2 nothing is."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb spark load shop.gmdb orders orders.parquet\n"
    "  gmdb spark load shop.gmdb orders 'days/2024-*.csv' --create\n"
    "  gmdb spark load shop.gmdb orders /data/orders --format parquet --overwrite"
)
IF_CANCELLED = "nothing was loaded"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", type=Path, help="the database's directory")
    parser.add_argument("table", metavar="TABLE", help="the table")
    parser.add_argument("files", metavar="FILE", nargs="+", help="files, directories of files, or patterns (day-*.csv)")
    parser.add_argument("--create", action="store_true", help="make the table, and the database, if it is not there")
    parser.add_argument("--overwrite", action="store_true", help="take the rows that the table has away")
    parser.add_argument("--format", choices=("parquet", "csv", "json", "orc"), help="what kind of files they are")


def require(arguments: argparse.Namespace) -> None:
    from gmdb.spark.files import find_sources
    from gmdb.storage.directory import require_database

    if arguments.database.exists() or not arguments.create:
        require_database(arguments.database)
    arguments.sources = find_sources(arguments.files, arguments.format)


def run(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.pipelines import load_files

    with work.spark() as spark:
        made = load_files(
            spark,
            arguments.database,
            arguments.table,
            arguments.sources,
            create=arguments.create,
            overwrite=arguments.overwrite,
        )
    if arguments.json:
        print_json({"database": str(arguments.database), "table": arguments.table, **made.document()})
    else:
        print(f"{arguments.database}, table {arguments.table}: {summary(made.rows, made.size, made.seconds)}")
    return 0
