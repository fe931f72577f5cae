"""``gmstat fill``: how full pages are, as a histogram."""

from __future__ import annotations

import argparse

from gmdb.cli.listings import add_output, make, show
from gmdb.inspect.listing import Listing

NAME = "fill"
HELP = "how full data pages are, as a histogram"
DESCRIPTION = (
    "Show how many data pages of a segment, or of the whole database, are how full. Only the heads of pages are read,\n"
    "and trusted; gmstat pages and gmdb verify look at all bytes."
)
EXAMPLE = "examples:\n  gmstat fill shop.gmdb orders\n  gmstat fill shop.gmdb --pages 4:0..4:999"
WIDTH = 50


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("segment", metavar="SEG", nargs="?", help="a table or index by its name, or an entry page")
    add_output(parser, "fill")


def run(arguments: argparse.Namespace) -> int:
    asked = [] if arguments.segment is None else [arguments.segment]
    return show(arguments, make(arguments, "fill", *asked), _draw)


def _draw(listing: Listing) -> None:
    most = max((pages for _, _, pages, _ in listing.rows), default=0)
    for low, high, pages, _ in listing.rows:
        bar = "█" * -(-pages * WIDTH // most) if pages else ""
        print(f"{low:>3} … {high:>3} %  {pages:>9,}  {bar}".rstrip())
