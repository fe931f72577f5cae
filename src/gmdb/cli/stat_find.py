"""``gmstat find``: the rows of a table that a condition is true of, wherever they lie and whoever may see them."""

from __future__ import annotations

import argparse

from gmdb.cli.listings import add_output, make, show

NAME = "find"
HELP = "rows of a table that a condition is true of, deleted ones included"
DESCRIPTION = (
    "List the rows on a table's pages that a condition of SQL is true of. Besides the table's columns it may "
    "name what\n"
    "gmstat rows shows: _rowid, _page_id, _slot, _size, _lock_id, _flags, _moved_to, _problem."
)
EXAMPLE = (
    'examples:\n  gmstat find shop.gmdb orders "id between 10 and 20"\n'
    "  gmstat find shop.gmdb orders \"_lock_id is not null and name like 'a%'\""
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("segment", metavar="SEG", help="a table by its name, or by its entry page")
    parser.add_argument("condition", metavar="PREDICATE", help="what would stand behind WHERE")
    add_output(parser, "rows")


def run(arguments: argparse.Namespace) -> int:
    condition = arguments.condition
    arguments.where = f"({condition}) and ({arguments.where})" if arguments.where else condition
    return show(arguments, make(arguments, "rows", arguments.segment))
