"""B-trees for tests: making one, and checking all that its pages must be."""

from __future__ import annotations

from typing import Any

from gmdb.database.connection import Connection
from gmdb.format.address import NO_PAGE, device_of, offset_of, page_name
from gmdb.format.btree import BTREE_CHILD, BTREE_NODE, INDEX_AT, INDEX_HEAD, NODE_AT, entry_extents
from gmdb.format.columns import parse_column
from gmdb.format.page import SegmentType
from gmdb.format.row import ROW_HEAD, UNLOCKED
from gmdb.kernel.row import POINTER_AT
from gmdb.storage.store import Segment
from gmdb.tables.access.index_entries import BTreeIndex
from gmdb.tables.access.indexes import IndexDefinition


def make_tree(db: Connection, types: list[str], unique: bool, obj_id: int = 1000) -> BTreeIndex:
    store = db._database.store
    columns = [parse_column(f"c{n}", type_) for n, type_ in enumerate(types)]
    definition = IndexDefinition("index", obj_id, 0, 0, unique, tuple(range(len(columns))), using="btree")
    segment = Segment.create(store, store.space("main"), obj_id, "index", SegmentType.BTREE, 0)
    return BTreeIndex.create(segment, columns, definition)


def page_of(tree: BTreeIndex, page_id: int) -> bytes:
    return bytes(tree.segment.store.devices[device_of(page_id)].memory(offset_of(page_id)))


def root_of(tree: BTreeIndex) -> int:
    return int(INDEX_HEAD.at(page_of(tree, tree.segment.entry_page), INDEX_AT).root)


def level_of(tree: BTreeIndex, page_id: int) -> int:
    return int(BTREE_NODE.at(page_of(tree, page_id), NODE_AT).level)


def shape(tree: BTreeIndex) -> tuple[int, ...]:
    """How many pages each level has, leaves first."""
    levels = [level_of(tree, page_id) for page_id in tree.segment.page_ids().tolist()]
    return tuple(levels.count(level) for level in range(max(levels) + 1))


def entries_with_locks(tree: BTreeIndex) -> list[str]:
    """Leaf entries that are locked or marked as deleted, as page and slot."""
    found = []
    for page_id in tree.segment.page_ids().tolist():
        page = page_of(tree, page_id)
        if BTREE_NODE.at(page, NODE_AT).level == 0:
            words = (
                (slot, int.from_bytes(page[offset : offset + 4], "little")) for offset, _, slot in entry_extents(page)
            )
            found += [f"{page_name(page_id)}/{slot}: {word:#x}" for slot, word in words if word != UNLOCKED]
    return found


def check_tree(tree: BTreeIndex) -> int:
    """Whether levels, links and pages are right; answers the number of pages."""
    root = root_of(tree)
    level, row, seen = level_of(tree, root), [root], []
    while True:
        seen += row
        below: list[int] = []
        prior = NO_PAGE
        for n, page_id in enumerate(row):
            page = page_of(tree, page_id)
            node: Any = BTREE_NODE.at(page, NODE_AT)
            following = row[n + 1] if n + 1 < len(row) else NO_PAGE
            assert (node.level, node.prev, node.next) == (level, prior, following), page_name(page_id)
            prior = page_id
            if level:
                entries = sorted(entry_extents(page), key=lambda extent: extent[2])
                assert entries, f"branch {page_name(page_id)} has no entry"
                below += [BTREE_CHILD.at(page, offset + POINTER_AT).page_id for offset, _, _ in entries]
                assert ROW_HEAD.at(page, entries[-1][0]).bit_array == 0, "the last entry of a branch is open"
        if level == 0:
            break
        level, row = level - 1, below
    assert sorted(seen) == sorted(tree.segment.page_ids().tolist()), "every page of the segment is in the tree"
    return len(seen)
