"""Pages with bytes changed at random: looking at them ends, soon, with no exception and little memory."""

from __future__ import annotations

import json
import os
import resource
import time
from pathlib import Path
from random import Random

import pytest

from gmdb.errors import Error
from gmdb.format.anatomy import regions
from gmdb.format.page import PAGE_HEAD
from gmdb.inspect.draw import draw_page
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.hex_view import hex_lines
from gmdb.inspect.listing import Listing
from gmdb.inspect.log_lists import sealed
from gmdb.inspect.page_view import known_tables, view_of
from gmdb.inspect.report import page_document
from gmdb.inspect.row_lists import add_rows, row_columns
from gmdb.inspect.undo_lists import rows_of, undo_values
from tests.inspect.states import build

MUTATIONS = int(os.environ.get("GMDB_MUTATIONS", "300"))
SEED = int(os.environ.get("GMDB_MUTATIONS_SEED", "0"))
MEMORY_MAX = 100 << 20
SECONDS_MAX = 10.0  # of one page; a machine may be busy


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mutations"))["checkpointed"]


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


def test_mutated_pages_are_shown(place: Path) -> None:
    random = Random(SEED)
    with DatabaseFiles(place) as files:
        assert "t" in {table.name for table in known_tables(files).values()}
        ids = [n << 22 | k for n, device in files.devices.items() for k in range(device.hwm)]
        kinds: dict[tuple[int, int, int], list[int]] = {}
        for page_id in ids:
            head = PAGE_HEAD.at(files.page(page_id))
            kinds.setdefault((page_id >> 22, head.page_type, head.seg_type), []).append(page_id)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for number in range(MUTATIONS):
            page_id = random.choice(kinds[random.choice(list(kinds))])
            page = mutated(files.page(page_id), random)
            began = time.monotonic()
            try:
                look(files, page_id, page)
            except Error as error:
                raise AssertionError(f"mutation {number} of page {page_id}: {error}") from error
            assert time.monotonic() - began < SECONDS_MAX
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
        assert grown < MEMORY_MAX
