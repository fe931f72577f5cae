"""``gmstat hex``: the bytes of a page, each line with what they are."""

from __future__ import annotations

import argparse

from gmdb.cli.listings import add_output, make, page_bytes, show
from gmdb.cli.terminal import is_coloured
from gmdb.inspect.hex_view import hex_lines
from gmdb.inspect.inspector import open_files
from gmdb.inspect.listing import Listing

NAME = "hex"
HELP = "the bytes of a page in hexadecimal, each with what it is, coloured by region"
DESCRIPTION = (
    "Print the bytes of a page, sixteen a line, with the names of the regions that begin on it, as "
    "docs/file_format.md\n"
    "has them. Lines that are alike are left out, but for the first. On a terminal each kind of region has a colour."
)
EXAMPLE = "examples:\n  gmstat hex shop.gmdb 4:7\n  gmstat hex shop.gmdb 4:7 --no-color --full"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("page", metavar="PAGE", help="the page: DEVICE:PAGE, such as 4:7, or its number")
    parser.add_argument("--no-color", action="store_true", help="use no colour, on a terminal either")
    parser.add_argument("--full", action="store_true", help="print lines that are alike, too")
    add_output(parser, "regions")


def run(arguments: argparse.Namespace) -> int:
    with open_files(arguments.database, arguments.at) as files:
        page = page_bytes(arguments, files)

    def draw(_: Listing) -> None:
        for line in hex_lines(page, is_coloured() and not arguments.no_color, arguments.full):
            print(line)

    return show(arguments, make(arguments, "regions", arguments.page), None if arguments.where else draw)
