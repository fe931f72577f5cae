"""What tasks do to build an index: entries of some pages, sorted and cut at bounds; then leaves out of the pieces.

A task writes into a file of its own, whose name it answers: what other attempts at the same work have left is removed
with the folder.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
from pyspark import TaskContext

from gmdb.access.indexes import IndexDefinition
from gmdb.access.leaves import LeafMerge
from gmdb.access.runs import KeyTooLong, Run, sorted_runs
from gmdb.arrow.scan import Reading
from gmdb.arrow.staging import BUFFER_SIZE, index_digest, seal_file
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption, OperationalError, ValueTooLong
from gmdb.format.btree import KEY_BYTES_MAX
from gmdb.format.columns import Column
from gmdb.format.staging import StagedKind
from gmdb.kernel.staged import crc_of_more
from gmdb.spark.plan import PageRange
from gmdb.spark.reading import kept_store
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.loads import load_path, staged_path
from gmdb.storage.pins import Pin

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
        return [self.table.columns[n] for n in self.index.positions]

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


def _go_on() -> None:
    """Nothing ends a task's work from within: Spark ends its process."""


def runs_of(plan: IndexPlan, store: FrozenStore, page_ids: np.ndarray) -> Iterator[Run]:
    """The entries of the rows of some pages."""
    pages = store.read_ahead(np.sort(page_ids))
    try:
        form = Reading.of_closed().form
        yield from sorted_runs(store, plan.table.obj_id, plan.index.entry_page, pages, 0, form, _go_on)
    except KeyTooLong:
        raise ValueTooLong(f"{plan}: a row has a key of over {KEY_BYTES_MAX} bytes") from None


def sort_pages(plan: IndexPlan, number: int, pages: PageRange, bounds: Sequence[bytes]) -> list[tuple[int, Piece]]:
    """Write the entries of some pages, in order; answers where in the file those between any two bounds are.

    With each piece goes its place among the ranges that the bounds make.
    """
    made, at = [], 0
    with kept_store(plan.path, plan.pin) as store, _new_file(plan, "run", number) as (name, file):
        for run in runs_of(plan, store, pages.page_ids()):
            cuts = [0, *run.cut(store, plan.index.entry_page, bounds), run.count]
            for place, (first, last) in enumerate(pairwise(cuts)):
                data = run.between(first, last)
                if len(data):
                    file.write(data, at)
                    made.append((place, Piece(name, at, len(data), zlib.crc32(data.data))))
                    at += len(data)
    return made


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
    memory, at, found = np.zeros(sum(piece.size for piece in pieces) + SLACK, np.uint8), 0, []
    for piece in pieces:
        path = staged_path(plan.path, plan.load_id, piece.name)
        with disk.current.open(path) as file:
            part = memory[at : at + piece.size]
            size = file.read_into(part, piece.offset)
        if size != piece.size or zlib.crc32(part.data) != piece.crc:
            raise Corruption(f"{path}: its bytes are not those that were written; the index is not built, start over")
        found.append(part)
        at += piece.size
    return found
