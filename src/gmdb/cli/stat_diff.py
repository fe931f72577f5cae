"""``gmstat diff``: what differs between two pages, two databases, or one database at two places of its log."""

from __future__ import annotations

import argparse
from pathlib import Path

from gmdb.cli.listings import add_output, show
from gmdb.inspect.diff import diff_databases, diff_pages
from gmdb.inspect.inspector import open_files

NAME = "diff"
HELP = "what differs between two pages, two databases, or one database at two places of its log"
DESCRIPTION = (
    "Tell what differs: fields by their names, rows by their values, and bytes. A and B are two pages of DB (4:7 and\n"
    "4:8), two places of its log (lsn:1024 and lsn:end), or B alone is another database, which DB is compared with.\n"
    "Which checkpoint wrote a page does not count, nor do CRCs. Between databases, --bytes also lists bytes."
)
EXAMPLE = (
    "examples:\n  gmstat diff shop.gmdb 4:7 4:8\n  gmstat diff shop.gmdb backup.gmdb\n"
    "  gmstat diff shop.gmdb lsn:33554432 lsn:end"
)
_PLACE = "lsn:"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="A", help="a page, a place of the log as lsn:N, or another database")
    parser.add_argument("second", metavar="B", nargs="?", help="the other page, or the other place")
    parser.add_argument("--bytes", action="store_true", help="between databases, list the bytes that differ, too")
    add_output(parser, None)


def run(arguments: argparse.Namespace) -> int:
    first, second = arguments.first, arguments.second
    if second is None:
        with open_files(arguments.database) as one, open_files(Path(first)) as other:
            return show(arguments, diff_databases(one, other, arguments.bytes))
    if first.startswith(_PLACE) or second.startswith(_PLACE):
        places = [text.removeprefix(_PLACE) for text in (first, second)]
        with open_files(arguments.database, places[0]) as one, open_files(arguments.database, places[1]) as other:
            return show(arguments, diff_databases(one, other, arguments.bytes))
    with open_files(arguments.database) as files:
        return show(arguments, diff_pages(files, first, second))
