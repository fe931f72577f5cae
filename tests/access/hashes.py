"""Hash indexes for tests: making one, checking all that its pages must be, and keys and row ids that meet."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.database.connection import Connection
from gmdb.format.address import NO_PAGE, RowId, device_of, offset_of, page_name
from gmdb.format.btree import INDEX_AT, INDEX_HEAD, NODE_AT, entry_extents
from gmdb.format.columns import parse_column
from gmdb.format.hash import HASH_NODE, is_directory, slot_pages
from gmdb.format.page import PAGE_HEAD
from gmdb.kernel.indexes.hash_page import ROW_FACTOR
from gmdb.kernel.row import POINTER_AT
from gmdb.storage.store import Segment
from gmdb.tables.access.index_entries import HashIndex
from gmdb.tables.access.indexes import IndexDefinition

STARTS = (0, 10, 20, 30, 40, 50, 60, 64, 74, 84, 94, 104, 112)


def make_hash(db: Connection, types: list[str], unique: bool = False, obj_id: int = 1000) -> HashIndex:
    store = db._database.store
    columns = [parse_column(f"c{n}", type_) for n, type_ in enumerate(types)]
    definition = IndexDefinition("index", obj_id, 0, 0, unique, tuple(range(len(columns))), using="hash")
    segment = Segment.create(store, store.space("main"), obj_id, "index", HashIndex.segment_type, 0)
    return HashIndex.create(segment, columns, definition)  # type: ignore[return-value]


def page_of(index: HashIndex, page_id: int) -> bytes:
    return bytes(index.segment.store.devices[device_of(page_id)].memory(offset_of(page_id)))


def entries_of(page: bytes) -> list[tuple[int, int]]:
    """Address and place of each entry of a bucket, in slot order."""
    found = []
    for offset, end, _ in sorted(entry_extents(page), key=lambda extent: extent[2]):
        row_id = RowId.from_word(int.from_bytes(page[offset + POINTER_AT : offset + POINTER_AT + 8], "little"))
        found.append((int.from_bytes(page[end - 8 : end], "little"), row_id.page_id << 16 | row_id.slot_id))
    return found


def address_of(index: HashIndex, row_id: RowId) -> int:
    """The address of the entry that leads to a row."""
    place = row_id.page_id << 16 | row_id.slot_id
    pages = (page_of(index, page_id) for page_id in index.segment.page_ids().tolist())
    return next(a for page in pages if not is_directory(page) for a, p in entries_of(page) if p == place)


def rows_that_meet(row_hash: int, count: int) -> Iterator[RowId]:
    """Row ids whose part of the address is the same."""
    inverse = pow(ROW_FACTOR, -1, 1 << 48)
    for n in range(count):
        place = (row_hash << 24 | n) * inverse % (1 << 48)
        yield RowId(place >> 16, place & 0xFFFF)


def check_hash(index: HashIndex) -> int:
    """Whether directories and buckets are what they must be; answers how many levels of directories there are."""
    root = int(INDEX_HEAD.at(page_of(index, index.segment.entry_page), INDEX_AT).root)
    seen = [root]
    levels = _check_directory(index, root, 0, 0, seen)
    assert sorted(seen) == sorted(index.segment.page_ids().tolist()), "every page of the segment is in the index"
    return levels


def _check_directory(index: HashIndex, page_id: int, level: int, prefix: int, seen: list[int]) -> int:
    page, name = page_of(index, page_id), page_name(page_id)
    depth, slots = HASH_NODE.at(page, NODE_AT).depth, slot_pages(page)
    head: Any = PAGE_HEAD.at(page)
    assert (head.hash_tab_head.used_flag, len(slots)) == (1, 1 << depth), name
    assert depth <= STARTS[level + 1] - STARTS[level], name
    children = {child: slots.index(child) for child in slots if child != NO_PAGE}
    assert head.hash_tab_head.page_count == len(children), name
    seen += children
    levels, buckets = level + 1, 0
    for child, slot in children.items():
        below = page_of(index, child)
        if is_directory(below):
            assert (depth, slots.count(child)) == (STARTS[level + 1] - STARTS[level], 1), name
            levels = max(levels, _check_directory(index, child, level + 1, prefix << depth | slot, seen))
        else:
            buckets += 1
            _check_bucket(below, slots, slot, depth, level, prefix)
    assert level == 0 or len(children) > 1 or (children and not buckets), f"{name} should have given way"
    return levels


def _check_bucket(page: bytes, slots: list[int], slot: int, depth: int, level: int, prefix: int) -> None:
    """A bucket is in the slots of its bits and no others, and all of its entries have those bits."""
    head: Any = PAGE_HEAD.at(page)
    own: int = HASH_NODE.at(page, NODE_AT).depth
    assert (head.hash_tab_head.used_flag, head.hash_tab_head.page_count, head.hash_page_type) == (1, 0, 2)
    assert [n for n, child in enumerate(slots) if child == head.page_id] == list(
        range(slot, slot + (1 << (depth - own)))
    )
    assert slot % (1 << (depth - own)) == 0
    entries = entries_of(page)
    assert entries
    assert entries == sorted(entries)
    bits = STARTS[level] + own
    for address, place in entries:
        assert (address << 48 | place) >> (112 - bits) == prefix << own | slot >> (depth - own)
