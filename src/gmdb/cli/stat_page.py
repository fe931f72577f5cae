"""``gmstat page``: one page, drawn."""

from __future__ import annotations

import argparse

from gmdb.cli.table import print_json
from gmdb.cli.terminal import paint
from gmdb.format.address import parse_page_id
from gmdb.inspect.draw import draw_page
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.page_view import view_page
from gmdb.inspect.report import page_document

NAME = "page"
HELP = "one page, drawn field by field, and what is wrong with it"
DESCRIPTION = (
    "Draw a page from its head to its tail: every field with its offset, value and meaning, every row with its\n"
    "bytes and values. A damaged page is drawn as far as it makes sense; what is wrong is listed at the end."
)
EXAMPLE = "examples:\n  gmstat page shop.gmdb 4:7\n  gmstat page shop.gmdb 16777223 --json"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
    parser.add_argument("--full", action="store_true", help="draw every byte of long values too")


def run(arguments: argparse.Namespace) -> int:
    page_id = parse_page_id(arguments.page)
    with DatabaseFiles(arguments.database) as files:
        view = view_page(files, page_id)
    if arguments.json:
        print_json(page_document(view))
    else:
        for line in draw_page(view, paint(), arguments.full):
            print(line)
    return 1 if view.findings else 0
