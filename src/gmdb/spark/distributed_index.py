"""Building an index with Spark: what the driver's host does, and what tasks do."""

from __future__ import annotations

import threading
import time
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from pyspark import TaskContext

import gmdb
from gmdb.errors import Corruption, Error, NotSupportedError, OperationalError, ValueTooLong
from gmdb.format.address import device_of
from gmdb.format.btree import KEY_BYTES_MAX
from gmdb.format.columns import Column
from gmdb.format.row import BITS_AT, ROW_HEAD
from gmdb.format.staging import StagedKind
from gmdb.kernel.change.bulk_pages import crc_of_more
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark.jobs import in_own_words
from gmdb.spark.pinned_snapshots import keep_pin, table_of
from gmdb.spark.reading import kept_store
from gmdb.spark.table_reader import PagePartition, divide, pages_per_range, table_pages
from gmdb.storage import disk
from gmdb.storage.directory import device_path, require_database
from gmdb.storage.disk import DiskFile
from gmdb.storage.documents import Holder
from gmdb.storage.loads import load_path, new_load, remove_load, staged_path
from gmdb.storage.pinned_pages import FrozenStore
from gmdb.storage.pins import Pin
from gmdb.tables.access.indexes import IndexDefinition, NewIndex
from gmdb.tables.access.sorted_runs import KeyTooLong, LeafMerge, Run, sorted_runs
from gmdb.tables.arrow.scan import Reading
from gmdb.tables.arrow.staging import BUFFER_SIZE, index_digest, seal_file
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.device_file import DeviceFile

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ---- What tasks do to build an index: entries of some pages, sorted and cut at bounds; then leaves out of the pieces.
#
# A task writes into a file of its own, whose name it returns: what other attempts at the same work have left is removed
# with the folder.

SLACK = 16  # bytes behind the entries of a range that kernels may look at


@dataclass(frozen=True)
class IndexPlan:
    """An index that is being built: of which table at which instant, and the folder for files."""

    path: Path
    pin: Pin
    table: TableDefinition
    index: IndexDefinition
    load_id: str
    page_size: int

    @property
    def columns(self) -> list[Column]:
        return [self.table.stored[n] for n in self.index.positions]

    def __str__(self) -> str:
        return f"table {self.table.name}, index {self.index.name}"


@dataclass(frozen=True)
class Piece:
    """The entries of one file that lie between two bounds."""

    name: str
    offset: int
    size: int
    crc: int


@dataclass(frozen=True)
class Leaves:
    """A staging file of the leaves between two bounds."""

    name: str
    entries: int
    pages: int


@contextmanager
def _new_file(plan: IndexPlan, what: str, number: int) -> Iterator[tuple[str, DiskFile]]:
    """A file for this attempt at a task; it is removed if the task fails."""
    if not load_path(plan.path, plan.load_id).is_dir():
        advice = "every worker must reach the database's directory under the same path"
        raise OperationalError(f"{plan.path}: the build of index {plan.index.name} is over, or not here; {advice}")
    context = TaskContext.get()
    name = f"{what}-{number:05d}-{context.taskAttemptId() if context is not None else 0}"
    path = staged_path(plan.path, plan.load_id, name)
    try:
        with disk.current.open(path, create=True, exclusive=True) as file:
            yield name, file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _never_interrupted() -> None:
    """The check for interrupts: a task has none, since Spark ends its process."""


def runs_of(plan: IndexPlan, store: FrozenStore, page_ids: np.ndarray) -> Iterator[Run]:
    """The entries of the rows of some pages."""
    pages = store.read_ahead(np.sort(page_ids))
    try:
        form = Reading.of_closed().form
        yield from sorted_runs(store, plan.table.obj_id, plan.index.entry_page, pages, 0, form, _never_interrupted)
    except KeyTooLong:
        raise ValueTooLong(f"{plan}: a row has a key of over {KEY_BYTES_MAX} bytes") from None


def sort_pages(plan: IndexPlan, number: int, pages: PagePartition, bounds: Sequence[bytes]) -> list[tuple[int, Piece]]:
    """Write the entries of some pages, in order; returns where in the file those between any two bounds are.

    With each piece goes its place among the ranges that the bounds make.
    """
    pieces, at = [], 0
    with kept_store(plan.path, plan.pin) as store, _new_file(plan, "run", number) as (name, file):
        for run in runs_of(plan, store, pages.page_ids()):
            cuts = [0, *run.cut(store, plan.index.entry_page, bounds), run.count]
            for place, (first, last) in enumerate(pairwise(cuts)):
                data = run.between(first, last)
                if len(data):
                    file.write(data, at)
                    pieces.append((place, Piece(name, at, len(data), zlib.crc32(data.data))))
                    at += len(data)
    return pieces


def make_leaves(plan: IndexPlan, number: int, pieces: Sequence[Piece]) -> Leaves:
    """Merge the pieces of a range into a staging file of leaves."""
    memory = _read(plan, pieces)
    buffer = np.zeros(BUFFER_SIZE, np.uint8)
    length = crc = 0
    with kept_store(plan.path, plan.pin) as store, _new_file(plan, "leaves", number) as (name, file):
        merge = LeafMerge(store, plan.index.entry_page, memory)
        while count := merge.fill(buffer, plan.page_size, str(plan), plan.columns):
            size = count * plan.page_size
            crc = crc_of_more(buffer.ctypes.data, size, crc)
            file.write(buffer[:size], length)
            length += size
        pages = length // plan.page_size
        fields = {"kind": StagedKind.LEAVES, "page_size": plan.page_size, "page_count": pages}
        seal_file(file, index_digest(plan.index), merge.entries, length, crc, **fields)
    return Leaves(name, merge.entries, pages)


def _read(plan: IndexPlan, pieces: Sequence[Piece]) -> list[np.ndarray]:
    memory, at, parts = np.zeros(sum(piece.size for piece in pieces) + SLACK, np.uint8), 0, []
    for piece in pieces:
        path = staged_path(plan.path, plan.load_id, piece.name)
        with disk.current.open(path) as file:
            part = memory[at : at + piece.size]
            size = file.read_into(part, piece.offset)
        if size != piece.size or zlib.crc32(part.data) != piece.crc:
            raise Corruption(f"{path}: its bytes are not those that were written; the index is not built, start over")
        parts.append(part)
        at += piece.size
    return parts


# ---- Building an index with Spark: CREATE INDEX for tables that one machine's cores take too long for.
#
# The owner of the database plants the index and pins the table; tasks sort the entries of ranges of pages, then make
# leaves out of ranges of keys; the owner takes the leaves in.  Transactions go on all the while: docs/spark.md.

LOCK_TIMEOUT = 60.0  # seconds that a build waits for the table, in the two moments when it must have it alone
SORT_BYTES = 64 << 20  # of pages whose entries a task sorts, at most
MERGE_BYTES = 64 << 20  # of entries that a task makes leaves of, about, at most
SMALL_BYTES = 1 << 20  # of entries that are not worth dividing
SAMPLE_PAGES = 256
PAGES_A_BOUND = 16  # of the sample: rows of a page may have nearly the same keys


@dataclass(frozen=True)
class IndexMade:
    """The result of a build."""

    entries: int
    size: int
    seconds: float

    def document(self) -> dict[str, Any]:
        return {"rows": self.entries, "bytes": self.size, "seconds": round(self.seconds, 3)}


def require_kind(name: str, table: str, using: str) -> None:
    """Refuse an index whose entries need no sorting."""
    if using.lower() != "btree":
        message = f"index {name}: Spark builds B-trees only"
        raise NotSupportedError(f"{message}; CREATE INDEX {name} ON {table} USING {using} (…) makes it")


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
            new = NewIndex(name, tuple(columns), unique)
            index, pin = connection._begin_index(table, new, load_id=load_id, holder=driver)
            try:
                keep_pin(directory, pin, over)
                plan = _plan(directory, pin, table, index, load_id)
                with _own_errors():
                    files = _make(spark, plan)
            except BaseException:
                with suppress(Error):  # its owner is gone, and the build with it
                    connection._abandon_index()
                raise
            entries = connection._finish_index([leaves.name for leaves in files if leaves.pages])
    finally:
        over.set()
        remove_load(directory, load_id)
    size = sum(leaves.pages for leaves in files) * plan.page_size
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
    but not if that key may be there once only: the task that has both finds out.
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
        entries = [run.between(place, place + 1).tobytes() for place in places if place < run.count]
    finally:
        store.close()
    if plan.index.unique:
        entries = [_before_all(entry, len(plan.columns)) for entry in entries]
    return list(dict.fromkeys(entries))


def _before_all(entry: bytes, columns: int) -> bytes:
    """An entry before all that have its key, if it has no NULL."""
    bits = int.from_bytes(entry[BITS_AT : BITS_AT + 4], "little")
    if any(bits >> 2 * n & 3 == 0 for n in range(columns)):
        return entry
    return entry[: ROW_HEAD.size] + bytes(8) + entry[ROW_HEAD.size + 8 :]
