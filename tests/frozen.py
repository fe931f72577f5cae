"""Reading a database by a pin, as workers of Spark do, without Spark."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from gmdb.spark.reading import read_pages
from gmdb.spark.table_reader import TableRead
from gmdb.storage.pins import Pin, pin_path
from gmdb.tables.catalog.definition_documents import table_from_plain
from gmdb.tables.files.pinned_files import PinnedFiles

RANGE = 5


def read_table(path: Path, pin: Pin, name: str, where: str = "", skips_damage: bool = False) -> pa.Table:
    """A table as the pin has it, in ranges of some pages: rows that have moved lie in others."""
    table = next(table for table in map(table_from_plain, pin.tables) if table.name == name)
    with PinnedFiles(path, pin) as files:
        pages = np.array(files.segment_pages(table.entry_page), np.uint32)
        page_size = files.device(table.entry_page).page_size
    names = tuple(column.name for column in table.columns)
    read = TableRead(path, pin, table, names, where, page_size, skips_damage)
    ranges = [pages[first : first + RANGE] for first in range(0, len(pages), RANGE)]
    batches = [batch for part in ranges for batch in read_pages(read, part)]
    return pa.Table.from_batches(batches) if batches else pa.table({name: [] for name in names})


def read_rows(path: Path, pin: Pin, name: str, where: str = "", skips_damage: bool = False) -> list[tuple[Any, ...]]:
    """Its rows, sorted."""
    columns = [column.to_pylist() for column in read_table(path, pin, name, where, skips_damage).columns]
    return sorted(zip(*columns, strict=True))


def grow_older(path: Path, pin: Pin, seconds: float) -> None:
    """Let a pin's lease have begun so many seconds earlier."""
    file = pin_path(path, pin.name)
    began = file.stat().st_mtime - seconds
    os.utime(file, (began, began))
