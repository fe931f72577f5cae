"""A copy of a database's pages as a pin has them, made by the workers of a cluster: a dump, for those who verify it.

Not here: copies that can be opened again, which are backups (log/backup.py).
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gmdb.errors import StorageError
from gmdb.format.address import offset_of, page_id_of
from gmdb.format.control import Purpose
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT
from gmdb.inspect.pinned import PinnedFiles
from gmdb.spark.snapshots import drop_pin, take_pin
from gmdb.storage.directory import device_path, dropped_numbers, note_dropped, read_control, write_control
from gmdb.storage.pins import LEASE, Pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RANGE_SIZE = 8 << 20  # bytes of pages that a worker has in memory
_NOT_CARRIED = ("magic", "format_version", "reserved", "crc")
Range = tuple[int, int, int]  # device, first page, number of pages


@contextmanager
def pinned_copy(spark: SparkSession, path: Path) -> Iterator[Path]:
    """A copy of a database at one instant, beside it, for as long as it is used."""
    pin = take_pin(path, LEASE)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.copy-", dir=path.parent))
    except OSError as error:
        drop_pin(path, pin.name)
        raise StorageError(f"{path.parent}: {error.strerror}; its copy needs as much space there") from error
    try:
        target = folder / path.name
        target.mkdir()
        ranges = _prepare(path, pin, target)
        work = spark.sparkContext.parallelize(ranges, len(ranges))
        work.foreachPartition(lambda part: _copy(path, pin, target, part))
        drop_pin(path, pin.name)
        yield target
    finally:
        drop_pin(path, pin.name)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(path: Path, pin: Pin, target: Path) -> list[Range]:
    """Make the files of a dump, without pages; answers what is to be copied."""
    control = read_control(path)
    fields = {name: value for name, value in control.items() if name not in _NOT_CARRIED}
    fields |= {"database_id": list(bytes.fromhex(control["database_id"])), "purpose": Purpose.DUMP, "clean": 1}
    write_control(target, write_control(target, fields))  # both copies
    for number in dropped_numbers(path):
        note_dropped(target, number)
    ranges: list[Range] = []
    with PinnedFiles(path, pin) as files:
        for number, hwm in pin.devices.items():
            page_size = files.devices[number].page_size
            head = DEVICE_HEAD.at(files.page(page_id_of(number, 0)), DEVICE_HEAD_AT)
            with device_path(target, number).open("wb") as file:
                file.truncate(head.page_count * page_size)
            step = RANGE_SIZE // page_size
            ranges += [(number, first, min(step, hwm - first)) for first in range(0, hwm, step)]
    return ranges


def _copy(path: Path, pin: Pin, target: Path, ranges: Iterator[Range]) -> None:
    """On a worker: copy some pages; damaged ones as they are, since somebody wants to find them."""
    from gmdb.spark.reading import kept_store

    with kept_store(path, pin) as store:
        store.skip = _leave_it
        for number, first, count in ranges:
            ids = np.arange(page_id_of(number, first), page_id_of(number, first) + count, dtype=np.uint32)
            store.read_ahead(ids)
            with device_path(target, number).open("r+b") as file:
                for page_id in ids.tolist():
                    page = store.page(page_id)
                    os.pwrite(file.fileno(), page, offset_of(page_id) * len(page))


def _leave_it(page_id: int, what: str) -> None:
    """Whoever verifies the copy says what is wrong with the page."""
    del page_id, what
