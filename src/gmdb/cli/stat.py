"""``gmdb stat``: looking at a database's bytes.  A verb prints a listing, or draws one thing."""

from __future__ import annotations

import argparse
from typing import Any

from gmdb.cli.listings import add_output, make, show
from gmdb.cli.stat_verbs import (
    DiffVerb,
    FillVerb,
    FindVerb,
    HexVerb,
    HistoryVerb,
    IndexVerb,
    PageVerb,
    RedoVerb,
    SalvageVerb,
)
from gmdb.cli.verbs import add_database, add_verb
from gmdb.process.late_dataclasses import dataclass

# ---- The verbs of gmstat that print a listing: names, help texts and arguments.

_SEGMENT = ("segment", "SEG", "a table or index by its name, or a segment by its entry page, such as 4:6")


@dataclass(frozen=True)
class ListVerb:
    """``asks``: arguments as (name, metavar, help); the names of optional ones end in ``?``."""

    NAME: str
    HELP: str
    DESCRIPTION: str
    EXAMPLE: str
    listing: str
    asks: tuple[tuple[str, str, str], ...] = ()
    is_live: bool = False

    def add_arguments(self, parser: argparse.ArgumentParser) -> None:
        for name, shown, help_text in self.asks:
            if name.endswith("?"):
                parser.add_argument(name[:-1], metavar=shown, nargs="?", help=help_text)
            else:
                parser.add_argument(name, metavar=shown, help=help_text)
        add_output(parser, self.listing)

    def run(self, arguments: argparse.Namespace) -> int:
        values = [getattr(arguments, name.rstrip("?")) for name, _, _ in self.asks]
        listing_arguments = [value for value in values if value is not None]
        return show(arguments, make(arguments, self.listing, *listing_arguments, live=self.is_live))


SNAPSHOTS = ListVerb(
    "snapshots",
    "snapshots that are pinned for readers in other processes, and what they take on disk",
    "List every pinned snapshot: when it was taken, by which commit, for which process, how long its lease runs,\n"
    "and how many damaged pages its readers have skipped. It is read from files; the database may be open or closed.\n"
    "Below is the size of the images, which are pages that changed since, as they were. All snapshots share them.",
    "example:\n  gmstat snapshots shop.gmdb",
    "snapshots",
)
LIST_VERBS = (
    ListVerb(
        "spaces",
        "tablespaces, their devices and how full they are",
        "List the tablespaces of a database: page size, devices, pages, high-water mark, free pages, segments.",
        "example:\n  gmstat spaces shop.gmdb",
        "spaces",
    ),
    ListVerb(
        "devices",
        "devices: their files, pages and free pages",
        "List the devices of a database, a file each.",
        "example:\n  gmstat devices shop.gmdb",
        "devices",
    ),
    ListVerb(
        "segments",
        "segments: tables, indexes and undo logs, and where their pages are",
        "List every segment: its entry page, what it holds, how many data and map pages it has, and how many of its\n"
        "pages are on each free list (LIST:PAGES; list 0 to 13 by the room they have, 'empty' without any row).",
        "example:\n  gmstat segments shop.gmdb",
        "segments",
    ),
    ListVerb(
        "maps",
        "a segment's map: which data pages it has, and on which free lists they are",
        "List the entries of a segment's map pages. Data pages whose heads name another entry are marked.",
        'examples:\n  gmstat maps shop.gmdb orders\n  gmstat maps shop.gmdb orders --where "list is not null"',
        "maps",
        (_SEGMENT,),
    ),
    ListVerb(
        "freelists",
        "a segment's free lists, page by page in the order in which inserts take them",
        "Follow the free lists of a segment link by link, and report where one breaks.",
        "example:\n  gmstat freelists shop.gmdb orders",
        "freelists",
        (_SEGMENT,),
    ),
    ListVerb(
        "pages",
        "pages: their heads, how full they are, their rows, and what is wrong with them",
        "List the pages of a segment, or all that were ever used, each with what is wrong with it.",
        'examples:\n  gmstat pages shop.gmdb orders\n  gmstat pages shop.gmdb --where "problem is not null"\n'
        "  gmstat pages shop.gmdb --pages 4:0..4:99 --csv",
        "pages",
        (("segment?", *_SEGMENT[1:]),),
    ),
    ListVerb(
        "rows",
        "a table's rows as they lie on pages, deleted and moved ones included",
        "List the rows on a table's pages, whether visible or not: their places, sizes, locks, flags and values.",
        "examples:\n  gmstat rows shop.gmdb orders\n  gmstat rows shop.gmdb orders --where \"_flags = 'DELETE'\"",
        "rows",
        (_SEGMENT,),
    ),
    ListVerb(
        "row",
        "one row, with its whole history of versions",
        "Show a row as it is, and as it was before each change that the undo log still has, newest version first:\n"
        "which transaction made it, whether that has committed, and where its bytes are.",
        "example:\n  gmstat row shop.gmdb 4:7:12",
        "row",
        (("row", "ROWID", "the row, as SQL's rowid: DEVICE:PAGE:SLOT"),),
    ),
    ListVerb(
        "hash",
        "a hash index: its directories and buckets",
        "List the pages of a hash index: which bits of an address lead to them, and how full they are.",
        "example:\n  gmstat hash shop.gmdb orders_code",
        "hash",
        (("index", "NAME", "the index's name"),),
    ),
    ListVerb(
        "lob",
        "large objects: their lengths and pages",
        "List the large objects of a table, or of all: first page, length, levels, and whether all pages are there.",
        "example:\n  gmstat lob shop.gmdb orders",
        "lobs",
        (("table?", "TABLE", "the table's name"),),
    ),
    ListVerb(
        "undo",
        "undo records: how rows were before transactions changed them",
        "List the records of the undo log: where each is, its transaction, what was done to which row under which\n"
        "lock, and the values before. A database that was closed has none; --live asks the process that has it open.",
        "examples:\n  gmstat undo shop.gmdb --live\n  gmstat undo shop.gmdb --where \"state = 'in flight'\"",
        "undo",
    ),
    ListVerb(
        "locks",
        "row locks in use: their transactions, rows and undo records",
        "List every lock in use: its transaction, its first change and the row, the lock beneath it, and its newest\n"
        "undo record, from the process that has the database open. If there is none, the locks of transactions that\n"
        "never ended are listed from the undo log; a database that was closed has none.",
        "example:\n  gmstat locks shop.gmdb",
        "locks",
        is_live=True,
    ),
    ListVerb(
        "transactions",
        "transactions that are open, or have ended and left something to be cleaned up",
        "List every transaction that is open, or has ended and is not yet purged: its state, its commit number and\n"
        "how many locks it has, from the process that has the database open. If there is none, transactions that\n"
        "never ended are listed from the undo log; a database that was closed has none.",
        "example:\n  gmstat transactions shop.gmdb",
        "transactions",
        is_live=True,
    ),
    ListVerb(
        "waits",
        "transactions that wait for a lock, and for which row or table",
        "List the transactions that wait, from the process that has the database open; without one, none wait.",
        "example:\n  gmstat waits shop.gmdb",
        "waits",
        is_live=True,
    ),
    SNAPSHOTS,
    ListVerb(
        "checkpoints",
        "checkpoints: how many pages are of each, and what the control file says",
        "List the checkpoints that were the last to write some page, with both copies of the control file.",
        "example:\n  gmstat checkpoints shop.gmdb",
        "checkpoints",
    ),
)


# ---- ``gmdb stat``: looking at a database's bytes.

NAME = "stat"
HELP = "look at a database's bytes (also called gmstat)"
DESCRIPTION = (
    "Look at the bytes of a database: it may be closed, damaged, or in use elsewhere. Nothing is changed and no lock "
    "is taken. Exit status: 0 sound, 1 something is damaged, 2 the command failed."
)
EXAMPLE = "examples:\n  gmstat spaces shop.gmdb\n  gmstat page shop.gmdb 4:2\n  gmstat page --help"
_ORDER = (
    "spaces", "devices", "segments", "maps", "freelists", "fill", "pages", "page", "hex", "rows", "row", "find",
    "index", "hash", "lob", "undo", "locks", "transactions", "waits", "snapshots", "redo", "history", "checkpoints",
    "diff", "salvage",
)  # fmt: skip
_DRAWN: tuple[Any, ...] = (
    FillVerb,
    PageVerb,
    HexVerb,
    FindVerb,
    IndexVerb,
    RedoVerb,
    HistoryVerb,
    DiffVerb,
    SalvageVerb,
)
VERBS: list[Any] = sorted((*LIST_VERBS, *_DRAWN), key=lambda verb: _ORDER.index(verb.NAME))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(title="verbs", metavar="VERB", required=True)
    for verb in VERBS:
        subparser = add_verb(verbs, verb)
        add_database(subparser)
        verb.add_arguments(subparser)
        subparser.set_defaults(run=verb.run)
