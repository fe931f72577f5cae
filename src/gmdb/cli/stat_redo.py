"""``gmstat redo``: the log, record by record, and as it is written."""

from __future__ import annotations

import argparse
import sys
import time

from gmdb.cli.listings import add_output, make, show

NAME = "redo"
HELP = "records of the redo log, by transaction, page, table or time; --follow shows it grow"
DESCRIPTION = (
    "List the records of the redo files that are there, those of the archive included: which transaction "
    "changed which\n"
    "bytes of which page, and when transactions committed. --where chooses: by transaction, page, object, committed…"
)
EXAMPLE = (
    "examples:\n  gmstat redo shop.gmdb --where \"object = 'orders'\"\n"
    "  gmstat redo shop.gmdb --where \"kind = 'COMMIT' and time > timestamp '2026-01-31 12:00:00'\"\n"
    "  gmstat redo shop.gmdb --pages 4:7 --follow"
)
POLL_SECONDS = 0.3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--since", metavar="LSN", type=int, default=0, help="only what begins at an LSN or behind it")
    parser.add_argument("--follow", action="store_true", help="go on with what is written, until Ctrl-C")
    add_output(parser, "redo")


def run(arguments: argparse.Namespace) -> int:
    listing = make(arguments, "redo", since=arguments.since)
    status = show(arguments, listing)
    arguments.goes_on = True
    while arguments.follow:
        if listing.rows:
            arguments.since = max(row[0] for row in listing.rows) + 8  # groups begin at multiples of 8
            sys.stdout.flush()
        time.sleep(POLL_SECONDS)
        listing = make(arguments, "redo", since=arguments.since)
        if listing.rows:
            status = max(status, show(arguments, listing))
    return status
