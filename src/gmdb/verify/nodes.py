"""Pages of indexes, as far as the page alone tells, in words.

The plain twin of ``kernel/verify_nodes.py``; it is asked when that finds fault.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from gmdb.errors import Corruption
from gmdb.format import slotted
from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, NODE_AT, POINTER_SIZE
from gmdb.format.hash import HASH_NODE, LEVEL_BITS, HashPageType
from gmdb.format.layout import Finding
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, slot_offset
from gmdb.format.row import BITS_AT, COL_COUNT_AT, COLUMNS_PER_WORD, ROW_HEAD, SIZE_AT, UNLOCKED, RowFlag, walk_cells
from gmdb.kernel.soundness_nodes import LEVELS_MAX

_SHORTEST = ROW_HEAD.size + POINTER_SIZE


def node_findings(page: bytes) -> Iterator[Finding]:
    """What is wrong with a B-tree page beyond what ``format.btree.check`` says."""
    level = int(BTREE_NODE.at(page, NODE_AT).level)
    if level >= LEVELS_MAX:
        at = NODE_AT + BTREE_NODE.offset("level")
        yield Finding(at, f"level {level}; no tree has more than {LEVELS_MAX} levels")
    yield from _entry_findings(page, level == 0)


def hash_findings(page: bytes) -> Iterator[Finding]:
    """What is wrong with a page of a hash index beyond what ``format.hash.check`` says."""
    head: Any = PAGE_HEAD.at(page)
    node: Any = HASH_NODE.at(page, NODE_AT)
    if head.hash_tab_head.used_flag != 1:
        at = PAGE_HEAD.offset("hash_tab_head.used_flag")
        yield Finding(at, f"used_flag {head.hash_tab_head.used_flag}; every page of a hash index has 1")
    for name in ("next", "prev"):
        if getattr(node, name) != NO_PAGE:
            at = NODE_AT + HASH_NODE.offset(name)
            yield Finding(at, f"{name} is {page_name(getattr(node, name))}; pages of a hash index have no siblings")
    if head.hash_page_type != HashPageType.BUCKET:
        return
    if node.depth > LEVEL_BITS:
        at = NODE_AT + HASH_NODE.offset("depth")
        yield Finding(at, f"a bucket of depth {node.depth}; directories choose by {LEVEL_BITS} bits at most")
    if head.hash_tab_head.page_count:
        at = PAGE_HEAD.offset("hash_tab_head.page_count")
        yield Finding(at, f"page_count {head.hash_tab_head.page_count} in a bucket, which leads to no pages")
    yield from _entry_findings(page, True)


def _entry_findings(page: bytes, is_leaf: bool) -> Iterator[Finding]:
    node: Any = BTREE_NODE.at(page, NODE_AT)
    end = min(PAGE_HEAD.at(page).free_begin, len(page) - TAIL_SIZE)
    count = min(node.slot_count, slotted.slot_room(page, ENTRIES_AT))
    for slot, offset in enumerate(slotted.slots(page, count)):
        if offset & slotted.SLOT_FREED:
            said = f"slot {slot} is marked as freed; the slots of an index's pages never are"
            yield Finding(slot_offset(len(page), slot), said)
        elif ENTRIES_AT <= offset < end:
            for at, said in _wrong_entry(page, offset, end, is_leaf):
                yield Finding(at, f"slot {slot}: {said}")


def _wrong_entry(page: bytes, offset: int, end: int, is_leaf: bool) -> Iterator[tuple[int, str]]:
    if offset + _SHORTEST > end:
        yield offset, f"an entry takes {_SHORTEST} bytes at least, but the entries end at {end}"
        return
    head: Any = ROW_HEAD.at(page, offset)
    if head.size < _SHORTEST or offset + head.size > end:
        yield (
            offset + SIZE_AT,
            f"an entry of {head.size} bytes, but it has {_SHORTEST} at least and the entries end at {end}",
        )
        return
    if not 1 <= head.col_count <= COLUMNS_PER_WORD:
        yield offset + COL_COUNT_AT, f"an entry has 1 to {COLUMNS_PER_WORD} columns, this one {head.col_count}"
        return
    wrong = _wrong_values(page[offset : offset + head.size])
    if wrong:
        yield offset + BITS_AT, wrong
        return
    if head.bit_array >> 2 * head.col_count:
        yield offset + BITS_AT, f"size bits behind those of the {head.col_count} columns are set"
    yield from _wrong_head(page, offset, head, is_leaf)


def _wrong_values(entry: bytes) -> str:
    """Whether the values of the key end where the entry does."""
    row = entry[: ROW_HEAD.size] + entry[_SHORTEST:]
    at = ROW_HEAD.size
    try:
        for _, start, length in walk_cells(row, 0, len(row)):
            at = start + length
    except Corruption as error:
        return f"the key is longer than its entry: {error}"
    return "" if at == len(row) else f"the entry has {len(entry)} bytes, but its key ends after {at + POINTER_SIZE}"


def _wrong_head(page: bytes, offset: int, head: Any, is_leaf: bool) -> Iterator[tuple[int, str]]:
    """The lock word, and what fills the pointer up."""
    at = offset + ROW_HEAD.size
    if is_leaf:
        flags = head.lock_id >> 24
        if flags & ~int(RowFlag.DELETE):
            yield offset, f"the entry's flags, 0x{flags:02x}, are none that entries have"
        if page[at + 6 : at + 8] != b"\xff\xff":
            yield at + 6, "the row id that an entry holds does not end in 65535"
    else:
        if head.lock_id != UNLOCKED:
            yield offset, "an entry of a branch has neither lock nor flags, but this one has"
        if any(page[at + 4 : at + 8]):
            yield at + 4, "the bytes behind the child page are not zero"
