"""``gmstat transactions``: what is open, from the process that has the database open."""

from __future__ import annotations

import argparse
from typing import Any

from gmdb.cli.live import ask_owner, unpurged_records
from gmdb.cli.table import print_json, print_table

NAME = "transactions"
HELP = "transactions that are open, or have ended and left something to be cleaned up"
DESCRIPTION = (
    "List every transaction that is open, or has ended and is not yet purged: its state, its commit number and how\n"
    "many locks it has. The process that has the database open is asked. If there is none, the undo log says whether\n"
    "transactions never ended; a database that was closed has none."
)
EXAMPLE = "example:\n  gmstat transactions shop.gmdb"
HEADINGS = ("transaction", "state", "scn", "locks")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    found = ask_owner(arguments.database, lambda connection: connection.transactions().to_pylist())
    source = "owner" if found is not None else "undo log"
    if found is None:
        found = _from_undo(arguments.database)
    if arguments.json:
        print_json({"source": source, "transactions": found})
    else:
        print_table(HEADINGS, [tuple("-" if t[name] is None else t[name] for name in HEADINGS) for t in found])
    return 0


def _from_undo(database: str) -> list[dict[str, Any]]:
    """A record tells its lock, not its transaction: all that never ended count as one."""
    locks = {record.head["lock_id"] for _, record in unpurged_records(database)}
    return [{"transaction": None, "state": "never ended", "scn": None, "locks": len(locks)}] if locks else []
