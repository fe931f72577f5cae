"""Loading and scanning take memory by the batch; the table adds only the map of its pages, 0.2 MiB a million rows."""

from __future__ import annotations

import pytest
from bench.memory import MemoryUse, measure

ROWS = 20_000_000
GROWTH_MAX = 64  # MiB; a batch, some buffers, and what the scan's threads decode at a time
SPREAD_MAX = 32  # MiB; the table with four times the rows is over 600 MiB larger
FEW = ROWS // 4  # enough for a scan's threads to have all their buffers at once


@pytest.fixture(scope="module")
def uses() -> tuple[MemoryUse, MemoryUse]:
    return measure(FEW), measure(ROWS)


def test_twenty_million_rows_are_loaded_and_scanned_in_little_memory(uses):
    _, many = uses
    assert many.load_growth < GROWTH_MAX
    assert many.scan_growth < GROWTH_MAX


def test_four_times_the_rows_take_hardly_more_memory(uses):
    few, many = uses
    assert many.load_growth - few.load_growth < SPREAD_MAX
    assert many.scan_growth - few.scan_growth < SPREAD_MAX
