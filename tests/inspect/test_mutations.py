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
from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import MAX_COLUMNS, ROW_HEAD, UNLOCKED, header_size
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

MUTATIONS = int(os.environ.get("GMDB_MUTATIONS", "600"))
SEED = int(os.environ.get("GMDB_MUTATIONS_SEED", "0"))
RESET_PEAK = Path("/proc/self/clear_refs")
MEMORY_MAX = 100 << 20
SECONDS_MAX = 2.0  # of the CPU, for one page


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


def peak_memory() -> int:
    """The most memory that the process had since the peak was reset, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


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
        seconds = []
        RESET_PEAK.write_text("5")  # compiling takes more than what is measured here
        before = peak_memory()
        for number in range(MUTATIONS):
            page_id = random.choice(kinds[random.choice(list(kinds))])
            page = mutated(files.page(page_id), random)
            began = time.process_time()
            try:
                look(files, page_id, page)
            except Error as error:
                raise AssertionError(f"mutation {number} of page {page_id}: {error}") from error
            seconds.append(time.process_time() - began)
            assert seconds[-1] < SECONDS_MAX, f"mutation {number} of page {page_id}"
        grown = peak_memory() - before
        print(f"{MUTATIONS:,} pages, {sum(seconds):.1f} s, the slowest {max(seconds):.3f} s, {grown >> 20} MiB more")
        assert grown < MEMORY_MAX


@pytest.mark.parametrize(
    ("columns", "size"),
    [(60_000, 20_000), (MAX_COLUMNS, 8000), (MAX_COLUMNS, header_size(MAX_COLUMNS))],
    ids=["impossible rows", "long rows", "rows of NULLs"],
)
def test_a_row_that_every_slot_leads_to_is_looked_at_a_few_times(place: Path, columns: int, size: int) -> None:
    """A damaged page can have as many slots as bytes allow, and each can claim most of the page."""
    slots, page = 6000, bytearray(32768)
    end = len(page) - TAIL_SIZE - 2 * slots
    head, node, row = PAGE_HEAD.at(page), HEAP_NODE.at(page, NODE_AT), ROW_HEAD.at(page, ROWS_AT)
    head.page_type, head.seg_type, head.data_begin = PageType.DATA, SegmentType.HEAP, NODE_AT
    head.free_begin = head.free_end = end
    node.slot_count = slots
    row.lock_id, row.size, row.col_count = UNLOCKED, size, columns
    page[end:-TAIL_SIZE] = ROWS_AT.to_bytes(2, "little") * slots
    began = time.process_time()
    with DatabaseFiles(place) as files:
        look(files, 4 << 22 | 7, bytes(page))
    assert time.process_time() - began < SECONDS_MAX
