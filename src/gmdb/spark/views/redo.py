"""``view=redo``: the redo log's records, of the files that are there when they are read, those of the archive included.

A partition is a file.  It has the groups that begin in it, whose last one may go on in the next file.  The log is
read as recovery would, so it ends before the first group that is not whole: what is being written now is not there
yet, and files that a checkpoint has removed since are not there any more.
"""

# mypy: disallow-subclassing-any=False

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import InputPartition

from gmdb.errors import StorageError
from gmdb.format.address import NO_PAGE
from gmdb.format.redo import HEAD_SPACE, REDO_COMMIT, REDO_GROUP, REDO_ITEM, RedoItem, payload
from gmdb.log.files import ARCHIVE, RedoReader, redo_numbers
from gmdb.spark.views.arrays import labels, numbers, page_names
from gmdb.spark.views.base import BIGINT, BINARY, INT, STRING, TIMESTAMP, Values, View, ViewColumn, ViewRead
from gmdb.storage.directory import read_control

CHUNK = 8 << 20
BYTES = "BYTES"
ITEMS_MAX = 1 << 18  # found at a time; more than a group can have


@dataclass(frozen=True)
class RedoFile(InputPartition):
    """The groups that begin in one file; -1: there is none."""

    number: int


class RedoView(View):
    name = "redo"
    is_of_instant = False
    columns = (
        ViewColumn(
            "lsn", BIGINT, "where in the log the record's group begins; a group counts as a whole or not at all"
        ),
        ViewColumn("item", INT, "which of the group's records it is, counted from 0"),
        ViewColumn("file", INT, "the number of the redo file that the group begins in"),
        ViewColumn("file_offset", BIGINT, "where in that file"),
        ViewColumn("transaction", BIGINT, "the transaction's number; NULL: none, such as a purge"),
        ViewColumn("kind", STRING, "`BYTES` of a page, `FORMAT` or `IMAGE` of a whole one; `COMMIT`, `CHANGE`…"),
        ViewColumn("page_id", BIGINT, "the page that it changes"),
        ViewColumn("page", STRING, "as people write it: `4:7`"),
        ViewColumn("page_create_no", BIGINT, "which formatting of the page it belongs to"),
        ViewColumn("chg_num", BIGINT, "the page's count of changes with it"),
        ViewColumn("offset", INT, "of `BYTES`: where in the page they go"),
        ViewColumn("length", INT, "how many bytes it has"),
        ViewColumn("bytes", BINARY, "these"),
        ViewColumn("scn", BIGINT, "of a commit: its number"),
        ViewColumn("time", TIMESTAMP, "of a commit: when it was made, in UTC"),
        ViewColumn("durable", BIGINT, "up to where the log was on disk when the group was made"),
    )

    def partitions(self, read: ViewRead) -> list[RedoFile]:
        found = {number for folder in _folders(read.path) for number in redo_numbers(folder)}
        return [RedoFile(number) for number in sorted(found)] or [RedoFile(-1)]

    def batches(self, read: ViewRead, partition: Any) -> Iterator[Values]:
        if partition.number < 0:
            return
        control = read_control(read.path)
        size = control["redo_file_size"]
        reader = RedoReader(_folders(read.path), bytes.fromhex(control["database_id"]), size)
        try:
            for lsn, data, places in _groups(reader, partition.number, payload(size)):
                yield _values(read, lsn, data, places, partition.number, payload(size))
        except StorageError:
            if partition.number in {number for folder in _folders(read.path) for number in redo_numbers(folder)}:
                raise


def _folders(path: Path) -> list[Path]:
    return [path, path / ARCHIVE]


def _groups(reader: RedoReader, number: int, size: int) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """Bytes of the log from an LSN on, and where in them the records of groups are that begin in a file."""
    from gmdb.kernel.replay import MORE, find_items, first_group

    start, end = number * size, reader.end_of(number)
    data = _read(reader, start, CHUNK, start)
    memory = np.frombuffer(data, np.uint8)
    skipped = first_group(memory.ctypes.data, len(data), start)
    if skipped < 0:
        return
    lsn, data = start + skipped, data[skipped:]
    places = np.zeros((ITEMS_MAX + 1, 2), "<i8")
    while True:
        memory = np.frombuffer(data, np.uint8)
        found = find_items(memory.ctypes.data, len(data), lsn, places.ctypes.data, ITEMS_MAX)
        done, reason = places[found].tolist()
        mine = places[:found][places[:found, 0] + lsn < end]
        if len(mine):
            yield lsn, data, mine.copy()
        lsn, data = lsn + done, data[done:]
        if reason != MORE or lsn >= end:
            return
        more = _read(reader, lsn + len(data), CHUNK, start)
        if not more and not done:
            return
        data += more


def _read(reader: RedoReader, lsn: int, length: int, start: int) -> bytes:
    """Up to ``length`` bytes, of the next file, too, where one ends."""
    data = b""
    while len(data) < length and (more := reader.read(lsn + len(data), length - len(data), start)):
        data += more
    return data


def _values(read: ViewRead, lsn: int, data: bytes, places: np.ndarray, number: int, size: int) -> dict[str, Any]:
    groups, items = _records(data, places[:, 0], REDO_GROUP.dtype), _records(data, places[:, 1], REDO_ITEM.dtype)
    lsns = places[:, 0] + lsn
    kinds = items["offset"]
    is_commit, is_bytes = kinds == RedoItem.COMMIT, ~np.isin(kinds, list(RedoItem))
    begins, lengths = places[:, 1] + REDO_ITEM.size, items["length"].astype(np.int64)
    commits = np.zeros(len(items), REDO_COMMIT.dtype)
    commits[is_commit] = _records(data, begins[is_commit], REDO_COMMIT.dtype)
    has_page = items["page_id"] != NO_PAGE
    first = np.flatnonzero(np.diff(lsns, prepend=-1))  # of each group
    values: dict[str, Any] = {
        "lsn": lsns,
        "item": np.arange(len(items)) - np.repeat(first, np.diff(first, append=len(items))),
        "file": np.full(len(items), number),
        "file_offset": lsns - number * size + HEAD_SPACE,
        "transaction": numbers(groups["transaction"], BIGINT, groups["transaction"] > 0),
        "kind": labels(kinds, lambda kind: RedoItem(kind).name if kind in list(RedoItem) else BYTES),
        "page_id": numbers(items["page_id"], BIGINT, has_page),
        "page": pa.array(page_names(items["page_id"]).to_pylist(), STRING, mask=~has_page),
        "page_create_no": numbers(items["page_create_no"], BIGINT, has_page),
        "chg_num": numbers(items["chg_num"], BIGINT, has_page),
        "offset": numbers(kinds, INT, is_bytes),
        "length": lengths,
        "scn": numbers(commits["scn"], BIGINT, is_commit),
        "time": pa.array(commits["time"].astype(np.int64), BIGINT, mask=~is_commit).cast(TIMESTAMP),
        "durable": numbers(groups["durable"], BIGINT),
    }
    if read.wants("bytes"):
        ends = begins + lengths
        slices = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        values["bytes"] = pa.array(slices, BINARY)
    return values


def _records(data: bytes, offsets: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The structures that lie at some offsets."""
    memory = np.frombuffer(data, np.uint8)
    return np.ascontiguousarray(memory[offsets[:, None] + np.arange(dtype.itemsize)]).view(dtype)[:, 0]
