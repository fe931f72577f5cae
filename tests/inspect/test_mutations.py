"""Pages with bytes changed at random: looking at them ends, soon, with no exception and little memory."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gmdb.format.heap import HEAP_NODE, NODE_AT, ROWS_AT
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import MAX_COLUMNS, ROW_HEAD, UNLOCKED, header_size
from gmdb.tables.files.database_files import DatabaseFiles
from tests.inspect.mutations import look
from tests.inspect.states import build
from tests.searches import extent

MUTATIONS = os.environ.get("GMDB_MUTATIONS", str(extent(200, 600)))
SEED = os.environ.get("GMDB_MUTATIONS_SEED", "0")
MEMORY_MAX = 100 << 20
SECONDS_MAX = 2.0  # of the CPU, for one page


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mutations"))["checkpointed"]


@pytest.mark.search
def test_mutated_pages_are_shown(place: Path) -> None:
    command = [sys.executable, "-m", "tests.inspect.mutations", str(place), MUTATIONS, SEED]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    figures = json.loads(done.stdout)
    print(figures)
    assert figures["pages"] == int(MUTATIONS)
    assert figures["slowest"] < SECONDS_MAX
    assert figures["grown"] < MEMORY_MAX


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
