"""``gmdb spark index``: CREATE INDEX, its entries sorted by Spark's workers."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.spark_work import Work, names, summary
from gmdb.cli.table import print_json

NAME = "index"
HELP = "build an index of a large table"
DESCRIPTION = (
    "Build an index, as CREATE INDEX does, but by Spark's workers: they sort the entries of ranges of pages and make\n"
    "the leaves of the B-tree, which the process that has the database open then takes in. Others read and change\n"
    "the table all the while, but for two moments. If a row is in the way, such as one that has a key twice with\n"
    "--unique, nothing is left of the index.\n"
    "Exit status: 0 the index is there, 2 it is not."
)
EXAMPLE = (
    "examples:\n"
    "  gmdb spark index shop.gmdb orders_by_customer orders customer,day\n"
    "  gmdb spark index shop.gmdb orders_by_number orders number --unique --master spark://head:7077"
)
IF_CANCELLED = "there is no index"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("database", metavar="DB", type=Path, help="the database's directory")
    parser.add_argument("name", metavar="NAME", help="what the index is called")
    parser.add_argument("table", metavar="TABLE", help="the table")
    parser.add_argument("columns", metavar="COL[,COL…]", type=names, help="the columns of its key, in their order")
    parser.add_argument("--unique", action="store_true", help="no two rows may have the same key")
    parser.add_argument("--using", default="btree", help="btree, which it is if not given")


def require(arguments: argparse.Namespace) -> None:
    from gmdb.spark.indexing import require_kind
    from gmdb.storage.directory import require_database

    require_database(arguments.database)
    require_kind(arguments.name, arguments.table, arguments.using)


def run(arguments: argparse.Namespace, work: Work) -> int:
    from gmdb.spark.indexing import create_index

    what = (arguments.name, arguments.table, arguments.columns, arguments.unique)
    with work.spark() as spark:
        made = create_index(spark, arguments.database, *what)
    if arguments.json:
        print_json({"database": str(arguments.database), "index": arguments.name, **made.document()})
    else:
        print(f"{arguments.database}, index {arguments.name}: {summary(made.entries, made.size, made.seconds)}")
    return 0
