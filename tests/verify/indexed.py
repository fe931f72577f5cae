"""Databases with B-trees of several levels and with hash indexes, and tools to damage them."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import gmdb
from gmdb.format.address import NO_PAGE, RowId
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT, POINTER_SIZE
from gmdb.format.hash import HASH_NODE, HashPageType, is_directory, slot_pages
from gmdb.format.page import PAGE_HEAD, slot_offset
from gmdb.format.row import ROW_HEAD
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from tests.verify.build import Damage

POINTER_AT = ROW_HEAD.size
KEY_AT = POINTER_AT + POINTER_SIZE
ROWS = 3000


def text(n: int) -> str:
    return f"{n % 40:02}" + "x" * (n % 5 * 60)


def build_indexed(path: Path) -> Path:
    """Table t with a unique index of two levels and two others, of which t_s has three; rows changed and deleted."""
    chance = random.Random(5)
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT", "s": "VARCHAR(900)", "d": "DOUBLE", "w": "DECIMAL(30,2)"}, pct_free=5)
        db.create_index("t_k", "t", ["k"], unique=True)
        db.commit()
        table = db.heap("t")
        row_ids = [table.insert((n if n % 50 else None, text(n), n / 3, n if n % 7 else None)) for n in range(ROWS)]
        db.commit()
        db.create_index("t_s", "t", ["s", "d"])
        db.create_index("t_w", "t", ["w"])
        db.commit()
        for row_id in chance.sample(row_ids, 300):
            table.update(row_id, {"s": text(chance.randrange(40)) + "y" * 300})
        for row_id in chance.sample(row_ids, 300):
            table.delete(row_id)
        for n in range(ROWS, ROWS + 200):
            table.insert((n, text(n), n / 3, n))
        db.commit()
    return path


def build_hashed(path: Path) -> Path:
    """Table t with a unique hash index and two others: t_d has directories beneath others, for 900 rows of one key."""
    chance = random.Random(6)
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT", "s": "VARCHAR(900)", "d": "DOUBLE"}, pct_free=5)
        db.create_index("t_k", "t", ["k"], unique=True, using="hash")
        table = db.heap("t")
        doubles = (0.0, -0.0, 2.5, None)
        row_ids = [table.insert((n if n % 50 else None, text(n), doubles[n % 4])) for n in range(ROWS)]
        db.commit()
        db.create_index("t_s", "t", ["s", "d"], using="hash")
        db.create_index("t_d", "t", ["d"], using="hash")
        for row_id in chance.sample(row_ids, 300):
            table.update(row_id, {"s": text(chance.randrange(40)) + "y" * 300, "d": chance.random()})
        for row_id in chance.sample(row_ids, 300):
            table.delete(row_id)
        for n in range(ROWS, ROWS + 200):
            table.insert((n, text(n), n / 3))
        db.commit()
    return path


class IndexDamage(Damage):
    """Writes into the pages of indexes."""

    def index(self, name: str) -> IndexDefinition:
        with DatabaseFiles(self.path) as files:
            return next(index for _, index in files.index_rows() if index.name == name)

    def root(self, name: str) -> int:
        return self.get(self.index(name).entry_page, INDEX_HEAD, INDEX_AT, "root")

    def node(self, page_id: int) -> dict[str, Any]:
        return BTREE_NODE.values(self.page(page_id), NODE_AT)

    def offset(self, page_id: int, slot: int) -> int:
        """Where an entry lies on its page; counted from the end if negative."""
        page = self.page(page_id)
        slot = slot if slot >= 0 else slot + self.node(page_id)["slot_count"]
        at = slot_offset(len(page), slot)
        return int.from_bytes(page[at : at + 2], "little")

    def row_of(self, page_id: int, slot: int) -> RowId:
        at = self.offset(page_id, slot) + POINTER_AT
        return RowId.from_word(int.from_bytes(self.page(page_id)[at : at + 8], "little"))

    def lead_to(self, page_id: int, slot: int, row_id: RowId) -> None:
        self.write(page_id, self.offset(page_id, slot) + POINTER_AT, row_id.word.to_bytes(8, "little"))

    def set_slots(self, page_id: int, change: Callable[[list[int]], list[int]]) -> None:
        """Rewrite a page's directory."""
        page, count = bytearray(self.page(page_id)), self.node(page_id)["slot_count"]
        slots = change([self.offset(page_id, slot) for slot in range(count)])
        for slot, offset in enumerate(slots):
            at = slot_offset(len(page), slot)
            page[at : at + 2] = offset.to_bytes(2, "little")
        self.write_page(page_id, bytes(page))
        self.set(page_id, BTREE_NODE, NODE_AT, "slot_count", len(slots))
        self.set(page_id, PAGE_HEAD, 0, "free_end", slot_offset(len(page), len(slots)) + 2)


class TreeDamage(IndexDamage):
    """Writes into the pages of B-trees."""

    def level(self, name: str, level: int) -> list[int]:
        """The pages of a level, in order."""
        at = self.root(name)
        while self.node(at)["level"] > level:
            at = self.child(at, 0)
        pages = []
        while at != NO_PAGE:
            pages.append(at)
            at = self.node(at)["next"]
        return pages

    def leaves(self, name: str) -> list[int]:
        return self.level(name, 0)

    def child(self, page_id: int, slot: int) -> int:
        at = self.offset(page_id, slot) + POINTER_AT
        return int.from_bytes(self.page(page_id)[at : at + 4], "little")


class HashDamage(IndexDamage):
    """Writes into the pages of hash indexes."""

    def slots(self, directory: int) -> list[int]:
        return slot_pages(self.page(directory))

    def lead(self, directory: int, slots: Iterable[int], page_id: int) -> int:
        """Have slots of a directory lead to a page, and count its pages anew; answers the first slot's offset."""
        wanted = list(slots)
        for slot in wanted:
            self.write(directory, ENTRIES_AT + 4 * slot, page_id.to_bytes(4, "little"))
        count = len({*self.slots(directory)} - {NO_PAGE})
        self.set(directory, PAGE_HEAD, 0, "hash_tab_head.page_count", count)
        return ENTRIES_AT + 4 * wanted[0]

    def pages_below(self, directory: int) -> list[int]:
        """The pages that a directory leads to, in order."""
        return list(dict.fromkeys(child for child in self.slots(directory) if child != NO_PAGE))

    def buckets(self, name: str) -> list[int]:
        """Those that the root leads to."""
        return [page_id for page_id in self.pages_below(self.root(name)) if not is_directory(self.page(page_id))]

    def directories(self, name: str) -> list[int]:
        """Those that the root leads to."""
        return [page_id for page_id in self.pages_below(self.root(name)) if is_directory(self.page(page_id))]

    def block(self, directory: int, page_id: int) -> list[int]:
        """The slots that lead to a page."""
        return [slot for slot, child in enumerate(self.slots(directory)) if child == page_id]

    def address_at(self, page_id: int, slot: int) -> int:
        """Where the address of an entry lies."""
        offset = self.offset(page_id, slot)
        return offset + int(ROW_HEAD.at(self.page(page_id), offset).size) - 8

    def make_directory(self, page_id: int, depth: int, children: dict[int, int]) -> None:
        """Turn a page of the index into a directory."""
        slots = [children.get(slot, NO_PAGE) for slot in range(1 << depth)]
        self.write(page_id, ENTRIES_AT, b"".join(child.to_bytes(4, "little") for child in slots))
        self.set(page_id, HASH_NODE, NODE_AT, "depth", depth)
        self.set(page_id, HASH_NODE, NODE_AT, "slot_count", 1 << depth)
        self.set(page_id, PAGE_HEAD, 0, "free_begin", ENTRIES_AT + 4 * len(slots))
        self.set(page_id, PAGE_HEAD, 0, "hash_page_type", HashPageType.DIRECTORY)
        self.set(page_id, PAGE_HEAD, 0, "hash_tab_head.page_count", len({*children.values()}))
