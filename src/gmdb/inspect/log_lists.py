"""Listings of the log: its records, what it did to one page, and checkpoints."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator
from typing import Any

from gmdb.errors import Error, InterfaceError
from gmdb.format import anatomy
from gmdb.format.address import page_id_of, page_name, parse_page_id
from gmdb.format.checksum import crc32c, page_crc
from gmdb.format.control import CONTROL, CONTROL_SIZE, COPY_DISTANCE
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, PAGE_TAIL, TAIL_SIZE
from gmdb.format.redo import RedoItem
from gmdb.inspect.listing import BIGINT, BOOLEAN, BYTES, INT, TEXT, TIMESTAMP, ListColumn, Listing, whole_number
from gmdb.inspect.objects import segment_objects
from gmdb.inspect.page_lists import ALL_PAGES, PageSelection
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.storage.directory import CONTROL_NAME
from gmdb.tables.files.database_files import DatabaseFiles, require_sound

_RECORDS_MAX = 1 << 40  # more than any log has
REDO_MORE = (
    ListColumn("object", TEXT, "what the page belongs to now: a table, an index…; NULL: not known"),
    ListColumn("committed", TIMESTAMP, "when the record's transaction committed, in UTC; NULL: the log does not say"),
)
HISTORY = (
    ListColumn("step", INT, "which change of the page it is, counted from 1"),
    ListColumn("lsn", BIGINT, "where in the log its group begins"),
    ListColumn("transaction", BIGINT, "the transaction; NULL: none, as for a purge"),
    ListColumn("committed", TIMESTAMP, "when that committed, in UTC; NULL: the log does not say", True),
    ListColumn("kind", TEXT, "`BYTES`, or `FORMAT` or `IMAGE` of the whole page"),
    ListColumn("page_create_no", BIGINT, "which formatting of the page it belongs to", True),
    ListColumn("chg_num", BIGINT, "the page's count of changes with it"),
    ListColumn("offset", INT, "where the bytes go"),
    ListColumn("length", INT, "how many they are"),
    ListColumn("fields", TEXT, "what these bytes are; NULL: the page cannot be rebuilt at this step"),
    ListColumn("before", TEXT, "the bytes before, in hexadecimal; at most 32 of them"),
    ListColumn("after", TEXT, "the bytes that the step wrote; at most 32 of them"),
    ListColumn("bytes", BYTES, "all bytes of the record", True),
)
CHECKPOINTS = (
    ListColumn("ckpt_id", BIGINT, "the checkpoint"),
    ListColumn("pages", BIGINT, "pages in the device files that it was the last to write"),
    ListColumn("sequence", BIGINT, "the number of the control file's write; NULL: no copy is of this checkpoint"),
    ListColumn("is_newest", BOOLEAN, "whether that copy counts"),
    ListColumn("clean", BOOLEAN, "whether the database was closed then"),
    ListColumn("redo_lsn", BIGINT, "where in the log replaying begins"),
    ListColumn("scn", BIGINT, "the newest commit when it was written"),
    ListColumn("next_transaction", BIGINT, "the next transaction's number", True),
)
CHANGES = ("BYTES", RedoItem.FORMAT.name, RedoItem.IMAGE.name)  # kinds that change a page
_SHOWN = 32  # bytes of a change that are listed
_FIELDS_MAX = 4


def items(files: DatabaseFiles, listing: Listing, since: int = 0) -> Iterator[dict[str, Any]]:
    """The log's records in order, as dictionaries by column names."""
    from gmdb.inspect.redo_log import REDO, file_records, log_files

    names = [column.name for column in REDO]
    try:
        for number in log_files(files.path):
            for values in file_records(files.path, number, names, since):
                columns = [values[name].tolist() if isinstance(values[name], np.ndarray) else values[name].to_pylist()
                           for name in names]  # fmt: skip
                for row in zip(*columns, strict=True):
                    yield dict(zip(names, row, strict=True))
    except Error as error:
        listing.wrong("redo log", error)


def redo(files: DatabaseFiles, pages: PageSelection = ALL_PAGES, since: int = 0, last: int = 0) -> Listing:
    """The records of the redo files, from LSN ``since`` on: commits, and changes of ``pages``.

    ``last``: only so many, the newest.
    """
    from gmdb.inspect.redo_log import REDO

    begin, most = whole_number(since), whole_number(last)
    if begin < 0 or most < 0:
        raise InterfaceError(f"since is an LSN and last a number of records, not {since!r} and {last!r}")
    listing = Listing("redo", (*REDO, *REDO_MORE))
    names = {stored.obj_id: stored.name for stored in segment_objects(files)}
    owners: dict[int, str | None] = {}
    records: deque[dict[str, Any]] = deque(maxlen=min(most, _RECORDS_MAX) or None)
    committed: dict[int, Any] = {}
    for item in items(files, listing, begin):
        page_id = item["page_id"]
        if item["kind"] == RedoItem.COMMIT.name:
            committed[item["transaction"]] = item["time"]
        elif page_id is None or not pages.first <= page_id <= pages.last:
            continue
        if page_id is not None and page_id not in owners:
            owners[page_id] = _owner(files, page_id, names)
        records.append(item | {"object": None if page_id is None else owners[page_id]})
    for item in records:
        listing.add(**item, committed=committed.get(item["transaction"]))
    return listing


def _owner(files: DatabaseFiles, page_id: int, names: dict[int, str]) -> str | None:
    try:
        raw = files.head(page_id)
    except Error:
        return None
    return names.get(PAGE_HEAD.at(raw).obj_id) if len(raw) >= HEAD_SIZE else None


# ---- one page


@dataclass(frozen=True)
class Step:
    """A change of a page.  ``page``: as it was after it, without CRC; None if the log does not go back far enough."""

    number: int
    item: dict[str, Any]
    before: bytes | None
    page: bytes | None


def steps(files: DatabaseFiles, page_id: int, listing: Listing) -> list[Step]:
    """The changes of a page in the log; it is rebuilt from its formatting, an image, or the file's copy."""
    size = files.device(page_id).page_size
    page = _base(files, page_id, listing)
    changes: list[Step] = []
    for item in items(files, listing):
        if item["page_id"] != page_id or item["kind"] not in CHANGES:
            continue
        before = page
        after = replay_item(item, before, size, listing)
        changes.append(
            Step(len(changes) + 1, item, before if before is not None and _is_before(item, before) else None, after)
        )
        page = after if after is not None else page
    return changes


def _base(files: DatabaseFiles, page_id: int, listing: Listing) -> bytes | None:
    """The file's copy of the page, which may be older than the log; what memory has would be newer."""
    try:
        page = files.stored_page(page_id)
        require_sound(page, page_id)
        return page
    except Error as error:
        listing.notes.append(f"the file's copy of the page cannot be used: {error}")
        return None


def _is_before(item: dict[str, Any], page: bytes) -> bool:
    """Whether a page is in the state that the item changed."""
    head = PAGE_HEAD.at(page)
    return bool(item["page_create_no"] == head.page_create_no and item["chg_num"] - head.chg_num in (0, 1))


def replay_item(item: dict[str, Any], page: bytes | None, size: int, listing: Listing) -> bytes | None:
    """The page with an item replayed on it; None if that is not possible."""
    data = item["bytes"]
    if item["kind"] == RedoItem.FORMAT.name:
        return data[:HEAD_SIZE].ljust(size, b"\0") if len(data) >= HEAD_SIZE else None
    if item["kind"] == RedoItem.IMAGE.name:
        head = PAGE_HEAD.at(data) if len(data) >= HEAD_SIZE else None
        if head is None or head.free_end + len(data) - head.free_begin != size - TAIL_SIZE:
            listing.wrong(f"LSN {item['lsn']}", "the image of a page is not as long as its head says")
            return None
        gap = bytes(head.free_end - head.free_begin)
        return bytes(data[: head.free_begin] + gap + data[head.free_begin :] + bytes(TAIL_SIZE))
    if page is None or not _is_before(item, page) or item["offset"] + len(data) > size:
        return None
    changed = bytearray(page)
    changed[item["offset"] : item["offset"] + len(data)] = data
    PAGE_HEAD.at(changed).chg_num = item["chg_num"]
    return bytes(changed)


def sealed(page: bytes) -> bytes:
    """A page as it would be written, with its CRC."""
    return page[:-TAIL_SIZE] + PAGE_TAIL.pack(crc=page_crc(page))


def history(files: DatabaseFiles, page: str, last: int = 0) -> Listing:
    """The changes of a page in the log, step by step; ``last``: only so many, the newest."""
    page_id, most = parse_page_id(page), whole_number(last)
    if most < 0:
        raise InterfaceError(f"{last!r} is not a number of steps")
    listing = Listing("history", HISTORY)
    committed: dict[int, Any] = {}
    changes = steps(files, page_id, listing)
    for item in items(files, Listing("", ())):
        if item["kind"] == RedoItem.COMMIT.name:
            committed[item["transaction"]] = item["time"]
    for step in changes[-most:]:
        item, data = step.item, step.item["bytes"]
        at = item["offset"] or 0
        shown = data[:_SHOWN]
        before = None if step.before is None or item["offset"] is None else step.before[at : at + len(shown)]
        listing.add(
            step=step.number,
            **{name: item[name] for name in ("lsn", "transaction", "kind", "page_create_no", "chg_num", "offset")},
            committed=committed.get(item["transaction"]),
            length=item["length"],
            fields=None if step.page is None else fields_of(step.page, at, len(data), item["offset"] is None),
            before=None if before is None else before.hex(),
            after=shown.hex() if item["offset"] is not None else None,
            bytes=data,
        )
    if not changes:
        listing.notes.append(f"the redo files have no change of page {page_name(page_id)}")
    return listing


def fields_of(page: bytes, offset: int, length: int, is_whole: bool) -> str:
    """The names of the regions that a range of bytes touches."""
    if is_whole:
        return "the whole page"
    names = [r.name for r in anatomy.regions(page) if r.offset < offset + length and offset < r.end]
    more = f" and {len(names) - _FIELDS_MAX} more" if len(names) > _FIELDS_MAX else ""
    return ", ".join(names[:_FIELDS_MAX]) + more


# ---- checkpoints


def checkpoints(files: DatabaseFiles) -> Listing:
    """Checkpoints that were the last to write some page, and what the copies of the control file say."""
    listing = Listing("checkpoints", CHECKPOINTS)
    written: Counter[int] = Counter()
    for number, device in files.devices.items():
        ids = np.arange(page_id_of(number, 0), page_id_of(number, min(device.hwm, device.file_pages)))
        for first in range(0, len(ids), 1 << 16):
            raw = files.starts(ids[first : first + (1 << 16)], HEAD_SIZE)
            ckpt_ids, counts = np.unique(raw.view(PAGE_HEAD.dtype)[:, 0]["ckpt_id"], return_counts=True)
            written.update(dict(zip(ckpt_ids.tolist(), counts.tolist(), strict=True)))
    copies = _control_copies(files)
    newest = max((copy["sequence"] for copy in copies), default=-1)
    for ckpt_id in sorted(written.keys() | {copy["ckpt_id"] for copy in copies}):
        own = [copy for copy in copies if copy["ckpt_id"] == ckpt_id] or [{}]
        for copy in own:
            listing.add(
                ckpt_id=ckpt_id,
                pages=written[ckpt_id],
                is_newest=copy["sequence"] == newest if copy else None,
                clean=bool(copy["clean"]) if copy else None,
                **{name: copy.get(name) for name in ("sequence", "redo_lsn", "scn", "next_transaction")},
            )
    return listing


def _control_copies(files: DatabaseFiles) -> list[dict[str, Any]]:
    raw = (files.path / CONTROL_NAME).read_bytes()[:CONTROL_SIZE].ljust(CONTROL_SIZE, b"\0")
    parts = (raw[at : at + CONTROL.size] for at in (0, COPY_DISTANCE))
    whole = (part for part in parts if crc32c(part[:-4]) == int.from_bytes(part[-4:], "little"))
    return [CONTROL.values(part) for part in whole]
