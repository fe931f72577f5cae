"""``gmstat locks``: who holds which rows, from the process that has the database open."""

from __future__ import annotations

import argparse
from typing import Any

from gmdb.cli.live import ask_owner, unpurged_records
from gmdb.cli.table import print_json, print_table
from gmdb.format.address import RowId, page_name

NAME = "locks"
HELP = "row locks in use: their transactions, rows and undo records"
DESCRIPTION = (
    "List every lock that is in use: whose it is, what was done to which row first, the lock beneath it, and its\n"
    "newest undo record. The process that has the database open is asked. If there is none, the undo log says which\n"
    "locks transactions held that never ended; a database that was closed has none."
)
EXAMPLE = "example:\n  gmstat locks shop.gmdb"
HEADINGS = ("lock", "transaction", "action", "row", "beneath", "undo record")
NO_LOCK = 0xFF_FFFF


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    locks = ask_owner(arguments.database, lambda connection: connection.locks().to_pylist())
    source = "owner" if locks is not None else "undo log"
    if locks is None:
        locks = [_from_record(*found) for found in unpurged_records(arguments.database)]
    if arguments.json:
        print_json({"source": source, "locks": locks})
    else:
        print_table(HEADINGS, [_row(lock) for lock in locks])
    return 0


def _from_record(page_id: int, record: Any) -> dict[str, Any]:
    return {
        "lock_id": record.head["lock_id"],
        "transaction": None,
        "action": record.operation,
        "page_id": record.row_id.page_id,
        "slot_id": record.row_id.slot_id,
        "previous": None,
        "undo_page": page_id,
        "undo_slot": record.slot,
    }


def _row(lock: dict[str, Any]) -> tuple[object, ...]:
    beneath = lock["previous"]
    undo = f"{page_name(lock['undo_page'])}:{lock['undo_slot']}" if page_name(lock["undo_page"]) != "none" else "-"
    return (
        lock["lock_id"],
        "-" if lock["transaction"] is None else lock["transaction"],
        lock["action"],
        RowId(lock["page_id"], lock["slot_id"]),
        "-" if beneath is None or beneath == NO_LOCK else beneath,
        undo,
    )
