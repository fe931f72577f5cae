"""``gmdb spark export``: a table into a directory of Parquet files."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.spark_work import Work, names, summary
from gmdb.cli.table import print_json

NAME = "export"
HELP = "write a table as Parquet files"
DESCRIPTION = (
    "Write the rows of a table into a directory of Parquet files, which must be empty, or not there, unless\n"
    "--overwrite is given. With --partition-by, there is a directory for each value, as Spark and others expect it.\n"
    "Exit status: 0 everything is written, 2 the command failed."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb spark export shop.gmdb orders /data/orders\n"
    "  gmdb spark export shop.gmdb orders /data/orders --partition-by year,month --where \"state = 'paid'\""
)
IF_CANCELLED = "the directory may hold a part of the files, without _SUCCESS"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", type=Path, help="the database's directory")
    parser.add_argument("table", metavar="TABLE", help="the table")
    parser.add_argument("target", metavar="DIR", help="the directory to write to")
    parser.add_argument("--partition-by", metavar="COL,…", type=names, default=[], help="a directory for each value")
    parser.add_argument("--columns", metavar="COL,…", type=names, default=[], help="only these columns")
    parser.add_argument("--where", metavar="CONDITION", help="only rows that meet it, in Spark's SQL")
    parser.add_argument("--overwrite", action="store_true", help="take what is in the directory away")
    parser.add_argument("--files", metavar="N", type=int, help="about so many files, and not as many as it comes to")
    parser.add_argument("--compression", choices=("zstd", "snappy"), default="zstd", help="zstd if not given")


def require(arguments: argparse.Namespace) -> None:
    from gmdb.errors import InterfaceError
    from gmdb.spark.files import require_target
    from gmdb.storage.directory import require_database

    require_database(arguments.database)
    require_target(arguments.target, arguments.database, arguments.overwrite)
    if arguments.files is not None and arguments.files < 1:
        raise InterfaceError(f"--files {arguments.files}: there is one file at least")


def run(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.pipelines import Wanted, export_table

    wanted = Wanted(arguments.columns, arguments.where, arguments.partition_by, arguments.files, arguments.compression)
    with work.spark() as spark:
        made = export_table(
            spark, arguments.database, arguments.table, arguments.target, wanted, overwrite=arguments.overwrite
        )
    if arguments.json:
        print_json({"table": arguments.table, "directory": arguments.target, **made.document()})
    else:
        print(f"{arguments.target}: {summary(made.rows, made.size, made.seconds)}")
    return 0
