"""``gmstat page``: one page, drawn."""

from __future__ import annotations

import argparse

from gmdb.cli.listings import add_output, make, page_bytes, show
from gmdb.cli.table import print_json
from gmdb.cli.terminal import paint
from gmdb.format.address import parse_page_id
from gmdb.inspect.draw import draw_page
from gmdb.inspect.inspector import open_files
from gmdb.inspect.page_view import view_of
from gmdb.inspect.report import page_document

NAME = "page"
HELP = "one page, drawn field by field, and what is wrong with it"
DESCRIPTION = (
    "Draw a page from its head to its tail: every field with its offset, value and meaning, every row with its\n"
    "bytes and values. A damaged page is drawn as far as it makes sense; what is wrong is listed at the end.\n"
    "--csv, --arrow and --where are about its regions: every byte by its name."
)
EXAMPLE = "examples:\n  gmstat page shop.gmdb 4:7\n  gmstat page shop.gmdb 16777223 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
    parser.add_argument("--full", action="store_true", help="draw every byte of long values too")
    add_output(parser, "regions")


def run(arguments: argparse.Namespace) -> int:
    if arguments.csv or arguments.arrow or arguments.where:
        return show(arguments, make(arguments, "regions", arguments.page))
    page_id = parse_page_id(arguments.page)
    with open_files(arguments.database, arguments.at) as files:
        view = view_of(files, page_id, page_bytes(arguments, files))
    if arguments.json:
        print_json(page_document(view))
    else:
        for line in draw_page(view, paint(), arguments.full):
            print(line)
    return 1 if view.findings else 0
