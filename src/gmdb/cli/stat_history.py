"""``gmstat history``: what the log did to one page, step by step, with the page rebuilt at any step."""

from __future__ import annotations

import argparse

from gmdb.cli.listings import add_output, make, show
from gmdb.cli.table import print_json
from gmdb.cli.terminal import paint
from gmdb.errors import InterfaceError
from gmdb.format.address import parse_page_id
from gmdb.inspect.draw import draw_page
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import Listing
from gmdb.inspect.log_lists import sealed, steps
from gmdb.inspect.page_view import view_of
from gmdb.inspect.report import page_document

NAME = "history"
HELP = "what the log did to a page, step by step; --step draws the page as it was then"
DESCRIPTION = (
    "List the changes of a page that the redo files have: which transaction wrote which bytes, what they are, "
    "and what\n"
    "was there before. A page is rebuilt from its formatting, from an image in the log, or from the file where "
    "that is\n"
    "older than the log; at steps before that, only what was written is known."
)
EXAMPLE = "examples:\n  gmstat history shop.gmdb 4:7\n  gmstat history shop.gmdb 4:7 --step 12"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
    parser.add_argument("--step", metavar="N", type=int, help="draw the page as it was behind step N")
    parser.add_argument("--full", action="store_true", help="with --step, draw every byte of long values too")
    add_output(parser, "history")


def run(arguments: argparse.Namespace) -> int:
    if arguments.step is None:
        return show(arguments, make(arguments, "history", arguments.page))
    page_id = parse_page_id(arguments.page)
    with DatabaseFiles(arguments.database) as files:
        found = steps(files, page_id, Listing("", ()))
        if not 1 <= arguments.step <= len(found):
            raise InterfaceError(f"the log has {len(found)} changes of page {arguments.page}; there is no step "
                                 f"{arguments.step}")  # fmt: skip
        page = found[arguments.step - 1].page
        if page is None:
            raise InterfaceError(f"page {arguments.page} cannot be rebuilt at step {arguments.step}: the log that is "
                                 "there begins after its formatting")  # fmt: skip
        view = view_of(files, page_id, sealed(page))
    if arguments.json:
        print_json(page_document(view))
    else:
        for line in draw_page(view, paint(), arguments.full):
            print(line)
    return 1 if view.findings else 0
