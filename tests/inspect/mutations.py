"""``python -m tests.inspect.mutations DB COUNT SEED``: look at pages of a database with bytes changed at random.

A process of its own, which has compiled nothing, so that what looking takes is seen in its memory.  It prints how many
pages it looked at, the seconds of the CPU for all and for the slowest, and how many bytes its memory grew.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from functools import cached_property
from pathlib import Path
from random import Random

from gmdb.format.anatomy import regions
from gmdb.format.page import PAGE_HEAD
from gmdb.inspect.draw import draw_page, hex_lines
from gmdb.inspect.listing import Listing
from gmdb.inspect.log_lists import sealed
from gmdb.inspect.report import page_document
from gmdb.inspect.row_lists import add_rows, row_columns
from gmdb.inspect.transaction_lists import rows_of, undo_values
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import known_tables, view_of


class Files(DatabaseFiles):
    """The catalog is not what changes here: it is read once."""

    @cached_property
    def _tables(self) -> list[TableDefinition]:
        return super().tables()

    def tables(self) -> list[TableDefinition]:
        return self._tables


def mutated(page: bytes, random: Random) -> bytes:
    """Some bytes other than they were: anywhere, or in the heads, or in the slot directory, where they do most."""
    changed = bytearray(page)
    places = ((0, len(page)), (8, 120), (len(page) - 200, len(page) - 8))
    for _ in range(random.choice((1, 1, 2, 5, 50))):
        first, last = random.choice(places)
        at = random.randrange(first, last)
        size = random.choice((1, 1, 2, 4))
        changed[at : min(at + size, len(page))] = random.choice((random.randbytes(size), b"\xff" * size, bytes(size)))
    changed = changed[: len(page)].ljust(len(page), b"\0")
    return sealed(bytes(changed)) if random.random() < 0.5 else bytes(changed)


def look(files: DatabaseFiles, page_id: int, page: bytes) -> None:
    """All that gmstat's page, hex and rows, and undo, do with a page."""
    view = view_of(files, page_id, page)
    for line in draw_page(view):
        assert line.isprintable()
    json.dumps(page_document(view))
    for line in hex_lines(page, coloured=False, full=False):
        assert line.isprintable()
    assert sum(region.length for region in regions(page)) == len(page)
    for table in {view.table, next(t for t in view.tables.values() if t.name == "t"), None}:
        made = Listing("rows", row_columns(table))
        add_rows(made, page_id, page, table)
        made.arrow()
    for row in rows_of([(page_id, page)], view.tables):
        undo_values(row, {}, None, None)


def pages_by_kind(files: DatabaseFiles) -> list[list[int]]:
    """All pages: those of one device and type together, so that each kind comes up as often as others."""
    kinds: dict[tuple[int, int, int], list[int]] = {}
    for page_id in (n << 22 | k for n, device in files.devices.items() for k in range(device.hwm)):
        head = PAGE_HEAD.at(files.page(page_id))
        kinds.setdefault((page_id >> 22, head.page_type, head.seg_type), []).append(page_id)
    return list(kinds.values())


def peak_memory() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def look_at_many(place: Path, count: int, random: Random) -> dict[str, float]:
    seconds, slowest, before = 0.0, 0.0, 0
    with Files(place) as files:
        assert "t" in {table.name for table in known_tables(files).values()}
        kinds = pages_by_kind(files)
        for kind in kinds:
            look(files, kind[0], files.page(kind[0]))  # what all pages need is in memory then
        before = peak_memory()
        for number in range(count):
            page_id = random.choice(random.choice(kinds))
            page = mutated(files.page(page_id), random)
            began = time.process_time()
            try:
                look(files, page_id, page)
            except BaseException:
                print(f"mutation {number}, of page {page_id}", file=sys.stderr)
                raise
            took = time.process_time() - began
            seconds, slowest = seconds + took, max(slowest, took)
    return {"pages": count, "seconds": seconds, "slowest": slowest, "grown": peak_memory() - before}


if __name__ == "__main__":
    print(json.dumps(look_at_many(Path(sys.argv[1]), int(sys.argv[2]), Random(int(sys.argv[3])))))
