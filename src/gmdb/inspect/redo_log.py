"""The redo log's records as columns, of all files there are, the archive's included.

The log is read file by file.  A file has the groups that begin in it, the last of which may continue in the next file.
As in recovery, reading ends before the first group that is not whole, so a group that is being written is not seen; nor
are files that a checkpoint has removed meanwhile.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from gmdb.errors import StorageError
from gmdb.format.address import NO_PAGE
from gmdb.format.redo import HEAD_SPACE, REDO_COMMIT, REDO_GROUP, REDO_ITEM, RedoItem, payload
from gmdb.inspect.listing import BIGINT, BYTES, INT, TEXT, TIMESTAMP, ListColumn
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage.directory import read_control
from gmdb.storage.log.log_files import ARCHIVE, RedoReader, redo_numbers
from gmdb.tables.arrow.arrow_types import labels, numbers, page_names

CHUNK = 8 << 20
BYTES_KIND = "BYTES"
ITEMS_MAX = 1 << 18  # read at a time; more than a group can have

REDO = (
    ListColumn("lsn", BIGINT, "where in the log the record's group begins; a group counts as a whole or not at all"),
    ListColumn("item", INT, "which of the group's records it is, counted from 0"),
    ListColumn("file", INT, "the number of the redo file that the group begins in", True),
    ListColumn("file_offset", BIGINT, "where in that file", True),
    ListColumn("transaction", BIGINT, "the transaction's number; NULL: none, such as a purge"),
    ListColumn("kind", TEXT, "`BYTES` of a page, `FORMAT` or `IMAGE` of a whole one; `COMMIT`, `CHANGE`…"),
    ListColumn("page_id", BIGINT, "the page that it changes", True),
    ListColumn("page", TEXT, "as people write it: `4:7`"),
    ListColumn("page_create_no", BIGINT, "which formatting of the page it belongs to", True),
    ListColumn("chg_num", BIGINT, "the page's count of changes with it"),
    ListColumn("offset", INT, "of `BYTES`: where in the page they go"),
    ListColumn("length", INT, "how many bytes it has"),
    ListColumn("bytes", BYTES, "the bytes", True),
    ListColumn("scn", BIGINT, "of a commit: its number"),
    ListColumn("time", TIMESTAMP, "of a commit: when it was made, in UTC"),
    ListColumn("durable", BIGINT, "up to where the log was on disk when the group was made", True),
)


def log_folders(path: Path) -> list[Path]:
    return [path, path / ARCHIVE]


def log_files(path: Path) -> list[int]:
    """The numbers of all redo files, the archive's included."""
    return sorted({number for folder in log_folders(path) for number in redo_numbers(folder)})


def file_records(path: Path, number: int, wanted: Collection[str], since: int = 0) -> Iterator[dict[str, Any]]:
    """The records of the groups that begin in a file, at ``since`` or later, in batches of columns by REDO's names."""
    control = read_control(path)
    size = control["redo_file_size"]
    reader = RedoReader(log_folders(path), bytes.fromhex(control["database_id"]), size)
    try:
        for lsn, data, places in _groups(reader, number, payload(size), since):
            yield _values(wanted, lsn, data, places, number, payload(size))
    except StorageError:
        if number in log_files(path):
            raise


def _groups(reader: RedoReader, number: int, size: int, since: int) -> Iterator[tuple[int, bytes, np.ndarray]]:
    """(LSN, bytes of the log from there, offsets in them of groups and records) for the groups that begin in a file."""
    from gmdb.kernel.page.redo import MORE, find_items, first_group

    start, end = number * size, reader.end_of(number)
    if since >= end:
        return
    begin = max(start, since)
    data = _read(reader, begin, CHUNK, start)
    memory = np.frombuffer(data, np.uint8)
    skipped = first_group(memory.ctypes.data, len(data), begin)
    if skipped < 0:
        return
    lsn, data = begin + skipped, data[skipped:]
    places = np.zeros((ITEMS_MAX + 1, 2), "<i8")
    while True:
        memory = np.frombuffer(data, np.uint8)
        count = find_items(memory.ctypes.data, len(data), lsn, places.ctypes.data, ITEMS_MAX)
        done, reason = places[count].tolist()
        mine = places[:count][places[:count, 0] + lsn < end]
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
    """Up to ``length`` bytes of the log, across files."""
    data = b""
    while len(data) < length and (more := reader.read(lsn + len(data), length - len(data), start)):
        data += more
    return data


def _values(
    wanted: Collection[str], lsn: int, data: bytes, places: np.ndarray, number: int, size: int
) -> dict[str, Any]:
    groups, items = _records(data, places[:, 0], REDO_GROUP.dtype), _records(data, places[:, 1], REDO_ITEM.dtype)
    lsns = places[:, 0] + lsn
    kinds = items["offset"]
    is_commit, is_bytes = kinds == RedoItem.COMMIT, ~np.isin(kinds, list(RedoItem))
    begins, lengths = places[:, 1] + REDO_ITEM.size, items["length"].astype(np.int64)
    commits = np.zeros(len(items), REDO_COMMIT.dtype)
    commits[is_commit] = _records(data, begins[is_commit], REDO_COMMIT.dtype)
    has_page = items["page_id"] != NO_PAGE
    first = np.flatnonzero(np.diff(lsns, prepend=-1))  # of each group
    bigint, integer = pa.int64(), pa.int32()
    values: dict[str, Any] = {
        "lsn": lsns,
        "item": np.arange(len(items)) - np.repeat(first, np.diff(first, append=len(items))),
        "file": np.full(len(items), number),
        "file_offset": lsns - number * size + HEAD_SPACE,
        "transaction": numbers(groups["transaction"], bigint, groups["transaction"] > 0),
        "kind": labels(kinds, lambda kind: RedoItem(kind).name if kind in list(RedoItem) else BYTES_KIND),
        "page_id": numbers(items["page_id"], bigint, has_page),
        "page": pa.array(page_names(items["page_id"]).to_pylist(), pa.string(), mask=~has_page),
        "page_create_no": numbers(items["page_create_no"], bigint, has_page),
        "chg_num": numbers(items["chg_num"], bigint, has_page),
        "offset": numbers(kinds, integer, is_bytes),
        "length": lengths,
        "scn": numbers(commits["scn"], bigint, is_commit),
        "time": pa.array(commits["time"].astype(np.int64), bigint, mask=~is_commit).cast(pa.timestamp("us")),
        "durable": numbers(groups["durable"], bigint),
    }
    if "bytes" in wanted:
        ends = begins + lengths
        slices = [data[begin:end] for begin, end in zip(begins.tolist(), ends.tolist(), strict=True)]
        values["bytes"] = pa.array(slices, pa.binary())
    return values


def _records(data: bytes, offsets: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """The structures at some offsets."""
    memory = np.frombuffer(data, np.uint8)
    return np.ascontiguousarray(memory[offsets[:, None] + np.arange(dtype.itemsize)]).view(dtype)[:, 0]
