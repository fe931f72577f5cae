"""How long the explorer's map of a large database takes to open, in a real browser.

The database is sparse: its device says that it has all those pages, and most of them were never written.  The map
reads as many of them as it would if they had been.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

import gmdb
from gmdb.format.address import FIRST_USER_DEVICE
from gmdb.format.checksum import page_crc
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT
from gmdb.format.page import PAGE_TAIL, TAIL_SIZE
from gmdb.storage.directory import device_path
from gmdb.storage.store import MAIN_PAGE_SIZE

TARGET = 2.0  # seconds
SIZE = 10 << 30
ROWS = 100_000


@dataclass(frozen=True)
class MapOpening:
    """``seconds`` from asking for the page to the last cell that was painted."""

    size: int
    cells: int
    seconds: float

    @property
    def met(self) -> bool:
        return self.seconds < TARGET


def has_browser() -> bool:
    return shutil.which("chromium") is not None


def make_sparse(path: Path, size: int) -> None:
    with gmdb.connect(path) as db:
        db.create_table("narrow", {"i": "INT", "s": "VARCHAR(40)"})
        db.append("narrow", pa.table({"i": pa.array(range(ROWS), pa.int32()), "s": ["some words"] * ROWS}))
    with open(device_path(path, FIRST_USER_DEVICE), "r+b") as file:
        page = bytearray(file.read(MAIN_PAGE_SIZE))
        head = DEVICE_HEAD.at(page, DEVICE_HEAD_AT)
        head.hwm = head.page_count = size // MAIN_PAGE_SIZE
        page[-TAIL_SIZE:] = PAGE_TAIL.pack(crc=page_crc(page))
        file.seek(0)
        file.write(page)
        file.truncate(size)


def measure(directory: Path, size: int = SIZE) -> MapOpening:
    from playwright.sync_api import sync_playwright

    path = directory / "sparse.gmdb"
    make_sparse(path, size)
    command = [sys.executable, "-m", "gmdb.cli", "explore", str(path), "--no-browser"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server, sync_playwright() as playwright:
        assert server.stdout is not None
        url = next(word for word in server.stdout.readline().split() if word.startswith("http"))
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": 1400, "height": 900})
        begin = time.perf_counter()
        tab.goto(url)
        painted = tab.wait_for_selector("[data-painted]").get_attribute("data-painted")
        seconds = time.perf_counter() - begin
        browser.close()
        server.terminate()
    return MapOpening(size, int(painted.split()[-1]), seconds)


def map_line(opening: MapOpening) -> str:
    outcome = "met" if opening.met else "**missed**"
    return (
        f"the explorer's map of {opening.size / (1 << 30):.0f} GiB, {opening.cells:,} cells: {opening.seconds:.2f} s "
        f"in the browser; target below {TARGET:.0f} s, {outcome}"
    )
