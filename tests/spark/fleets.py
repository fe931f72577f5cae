"""Fleets for tests: copies of one database, with its id and its addresses of pages; and ways to break one."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pyarrow as pa

import gmdb
from gmdb.format.address import offset_of, page_name
from gmdb.storage.directory import CONTROL_NAME, device_path

ROWS = 10_000
PAGE_SIZE = 8192
DATA_DEVICE = 4


def make_database(path: Path, rows: int = ROWS) -> Path:
    """A closed database with a table ``tbl`` of numbers and texts, and an index on the numbers."""
    with gmdb.connect(path) as db:
        db.create_table("tbl", {"i": "INT NOT NULL", "s": "VARCHAR(20)"})
        db.append("tbl", pa.table({"i": pa.array(range(rows), pa.int32()), "s": [f"text {n}" for n in range(rows)]}))
        db.create_index("tbl_i", "tbl", ["i"])
        db.commit()
    return path


def make_fleet(folder: Path, count: int, rows: int = ROWS) -> list[Path]:
    """So many databases, of which all but the first are copies of it."""
    folder.mkdir(parents=True, exist_ok=True)
    first = make_database(folder / "db000.gmdb", rows)
    return [first, *(copy(first, folder / f"db{n:03}.gmdb") for n in range(1, count))]


def copy(source: Path, target: Path) -> Path:
    return Path(shutil.copytree(source, target))


def data_page(path: Path, number: int) -> int:
    """The address of one of the table's pages."""
    with gmdb.connect(path, read_only=True) as db:
        return int(db.heap("tbl").segment.page_ids()[number])


def lose_control(path: Path) -> str:
    """Remove the control file; answers what is to be said of that."""
    (path / CONTROL_NAME).unlink()
    return f"without {CONTROL_NAME}"


def flip_bytes(path: Path, number: int = 3) -> str:
    """Change bytes of a data page."""
    page_id = data_page(path, number)
    with device_path(path, DATA_DEVICE).open("r+b") as file:
        file.seek(offset_of(page_id) * PAGE_SIZE + 1000)
        file.write(b"\xee\xee")
    return f"page {page_name(page_id)} "


def cut_short(path: Path) -> str:
    """Cut a file off before the last page of the table, as a copy that ended early does."""
    page_id = data_page(path, -1)
    os.truncate(device_path(path, DATA_DEVICE), offset_of(page_id) * PAGE_SIZE)
    return f"of {device_path(path, DATA_DEVICE)}"


def zero_catalog(path: Path) -> str:
    """Overwrite pages of the system's device with zeros."""
    with device_path(path, 0).open("r+b") as file:
        file.seek(PAGE_SIZE)
        file.write(bytes(8 * PAGE_SIZE))
    return "is damaged"


DAMAGES = {"control": lose_control, "bytes": flip_bytes, "short": cut_short}
