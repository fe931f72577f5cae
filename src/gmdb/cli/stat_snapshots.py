"""``gmstat snapshots``: instants that are pinned for readers in other processes."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

from gmdb.cli.table import print_json, print_table
from gmdb.storage.directory import require_database
from gmdb.storage.images import image_files
from gmdb.storage.pins import Pin, expires_at, read_pins, skipped_path

NAME = "snapshots"
HELP = "snapshots that are pinned for readers in other processes, and what they take on disk"
DESCRIPTION = (
    "List every pinned snapshot: when it was taken, by which commit, for which process, how long its lease runs,\n"
    "and how many damaged pages reads by it have skipped. The files say so, whoever has the database open.\n"
    "Below, what the images take on disk: pages that changed since, as they were. They are shared by all snapshots."
)
EXAMPLE = "example:\n  gmstat snapshots shop.gmdb"
HEADINGS = ("snapshot", "taken", "scn", "held by", "expires in", "skipped")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    directory = Path(arguments.database).absolute()
    require_database(directory)
    found = [_fields(directory, pin) for pin in read_pins(directory)]
    size = sum(path.stat().st_size for _, _, path in image_files(directory))
    if arguments.json:
        print_json({"snapshots": found, "image_bytes": size})
        return 0
    rows = [
        (one["name"], one["taken"], one["scn"], one["held_by"], f"{one['expires_in']:.0f} s", one["skipped_pages"])
        for one in found
    ]
    print_table(HEADINGS, rows)
    print(f"{size / (1 << 20):,.1f} MiB of images")
    return 0


def _fields(directory: Path, pin: Pin) -> dict[str, Any]:
    skipped = skipped_path(directory, pin.name)
    return {
        "name": pin.name,
        "taken": time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(pin.created)),
        "scn": pin.scn,
        "ckpt_id": pin.ckpt_id,
        "held_by": str(pin.holder),
        "expires_in": round(max(expires_at(directory, pin) - time.time(), 0.0), 1),
        "skipped_pages": len(set(skipped.read_text().splitlines())) if skipped.exists() else 0,
    }
