"""Building an index with Spark: CREATE INDEX for tables that one machine's cores take too long for.

The owner of the database plants the index and pins the table; tasks sort the entries of ranges of pages, then make
leaves out of ranges of keys; the owner takes the leaves in.  Transactions go on all the while: docs/spark.md.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import gmdb
from gmdb.access.indexes import IndexDefinition
from gmdb.errors import Error, NotSupportedError
from gmdb.format.address import device_of
from gmdb.format.row import BITS_AT, ROW_HEAD
from gmdb.inspect.device_file import DeviceFile
from gmdb.spark.index_tasks import IndexPlan, Leaves, Piece, make_leaves, runs_of, sort_pages
from gmdb.spark.jobs import in_own_words
from gmdb.spark.plan import divide, pages_per_range, table_pages
from gmdb.spark.snapshots import keep_pin, table_of
from gmdb.storage.directory import device_path, require_database
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.holder import Holder
from gmdb.storage.loads import new_load, remove_load
from gmdb.storage.pins import Pin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOCK_TIMEOUT = 60.0  # seconds that a build waits for the table, in the two moments when it must have it alone
SORT_BYTES = 64 << 20  # of pages whose entries a task sorts, at most
MERGE_BYTES = 64 << 20  # of entries that a task makes leaves of, about, at most
SMALL_BYTES = 1 << 20  # of entries that are not worth dividing
SAMPLE_PAGES = 256
PAGES_A_BOUND = 16  # of the sample: rows of a page may have nearly the same keys


@dataclass(frozen=True)
class IndexMade:
    """An index that is there."""

    entries: int
    size: int
    seconds: float

    def document(self) -> dict[str, Any]:
        return {"rows": self.entries, "bytes": self.size, "seconds": round(self.seconds, 3)}


def require_kind(name: str, table: str, using: str) -> None:
    """Refuse an index whose entries need no sorting."""
    if using.lower() != "btree":
        said = f"index {name}: Spark builds B-trees only"
        raise NotSupportedError(f"{said}; CREATE INDEX {name} ON {table} USING {using} (…) makes it")


def create_index(
    spark: SparkSession,
    path: str | Path,
    name: str,
    table: str,
    columns: Sequence[str],
    unique: bool = False,
    using: str = "btree",
) -> IndexMade:
    """Add an index on some columns of a table, whose entries Spark's tasks sort; others go on using the table."""
    require_kind(name, table, using)
    directory, began = Path(path).absolute(), time.perf_counter()
    require_database(directory)
    driver, over = Holder.this_process(), threading.Event()
    load_id = new_load(directory, driver)
    try:
        with gmdb.connect(directory, lock_timeout=LOCK_TIMEOUT) as connection:
            what: dict[str, Any] = {"unique": unique, "load_id": load_id, "holder": driver}
            index, pin = connection._begin_index(name, table, list(columns), **what)
            try:
                keep_pin(directory, pin, over)
                plan = _plan(directory, pin, table, index, load_id)
                with _own_errors():
                    made = _make(spark, plan)
            except BaseException:
                with suppress(Error):  # its owner is gone, and the build with it
                    connection._abandon_index()
                raise
            entries = connection._finish_index([leaves.name for leaves in made if leaves.pages])
    finally:
        over.set()
        remove_load(directory, load_id)
    size = sum(leaves.pages for leaves in made) * plan.page_size
    return IndexMade(entries, size, time.perf_counter() - began)


def _plan(path: Path, pin: Pin, table: str, index: IndexDefinition, load_id: str) -> IndexPlan:
    definition = table_of(pin, table, path)
    number = device_of(index.entry_page)
    device = DeviceFile(device_path(path, number), number)
    device.close()
    return IndexPlan(path, pin, definition, index, load_id, device.page_size)


@contextmanager
def _own_errors() -> Iterator[None]:
    """What tasks raise, in the words in which they raised it."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JError) as error:
        raise in_own_words(error) from error


def _make(spark: SparkSession, plan: IndexPlan) -> list[Leaves]:
    """The leaves of the index, in the order of their entries."""
    context = spark.sparkContext
    pages = table_pages(plan.path, plan.pin, plan.table.entry_page)
    bounds = _bounds(plan, pages, context.defaultParallelism)
    share = min(pages_per_range(len(pages) * plan.page_size, plan.page_size, None), SORT_BYTES // plan.page_size)
    parts = list(enumerate(divide(pages, share)))
    sorted_ = (
        context.parallelize(parts, len(parts)).map(lambda part: sort_pages(plan, part[0], part[1], bounds)).collect()
    )
    ranges: list[list[Piece]] = [[] for _ in range(len(bounds) + 1)]
    for pieces in sorted_:
        for place, piece in pieces:
            ranges[place].append(piece)
    merges = [(number, pieces) for number, pieces in enumerate(ranges) if pieces]
    if not merges:
        return []
    return context.parallelize(merges, len(merges)).map(lambda merge: make_leaves(plan, *merge)).collect()


def _bounds(plan: IndexPlan, pages: Sequence[int], cores: int) -> list[bytes]:
    """Entries that divide all into ranges of about equal size, by a sample: it is read here, as it is small.

    An entry is at home in the range of the bound behind it.  Also rows with the same key are divided, by their row ids;
    but not if that key may be there once only: whoever has both finds out.
    """
    wanted = max(SAMPLE_PAGES, PAGES_A_BOUND * (len(pages) * plan.page_size // MERGE_BYTES))
    chosen = np.array(pages[:: max(len(pages) // wanted, 1)], np.uint32)
    if not len(chosen):
        return []
    store = FrozenStore(plan.path, plan.pin)
    try:
        run = next(runs_of(plan, store, chosen))
        total = len(run.between(0, run.count)) * len(pages) // len(chosen)
        ranges = max(total // MERGE_BYTES + 1, min(cores, total // SMALL_BYTES))
        places = [run.count * n // ranges for n in range(1, ranges)]
        found = [run.between(place, place + 1).tobytes() for place in places if place < run.count]
    finally:
        store.close()
    if plan.index.unique:
        found = [_before_all(entry, len(plan.columns)) for entry in found]
    return list(dict.fromkeys(found))


def _before_all(entry: bytes, columns: int) -> bytes:
    """An entry before all that have its key, if it has no NULL."""
    bits = int.from_bytes(entry[BITS_AT : BITS_AT + 4], "little")
    if any(bits >> 2 * n & 3 == 0 for n in range(columns)):
        return entry
    return entry[: ROW_HEAD.size] + bytes(8) + entry[ROW_HEAD.size + 8 :]
