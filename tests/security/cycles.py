"""``python -m tests.security.cycles``: pages that lead round in a circle, with right checksums.

For each case a child copies a database, has its pages lead in a circle, and does with it what comes to them.  It must
be told of damage, soon.  Prints a line of JSON for each case: its name, and what became of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from gmdb.database.connection import Connection
from gmdb.errors import Corruption
from gmdb.format.address import NO_PAGE, UNDO_DEVICE, page_id_of
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, FREE_NODE_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.layout import Layout
from gmdb.format.lob import DATA_AT, LOB_NODE
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType, slot_offset
from gmdb.format.row import ROW_HEAD
from gmdb.format.segment import (
    ENTRY_MAP_AT,
    FURTHER_MAP_AT,
    MAP_ENTRY,
    MAP_HEAD,
    NO_LIST,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
)
from gmdb.format.undo import NODE_AT as UNDO_HEAD_AT
from gmdb.format.undo import UNDO_HEAD, UNDO_RECORD, UndoOperation
from gmdb.storage import disk
from gmdb.storage.directory import device_path
from gmdb.verify import verify
from tests.crash.harness import QuickDisk, connect
from tests.frozen import read_table
from tests.limits import run_limited
from tests.security.attacks import sealed
from tests.security.victims import small_files
from tests.speed import MEMORY

CPU_SECONDS = 30
POINTER_AT = ROW_HEAD.size  # of an entry of an index: the page that it leads to
LIE = 0xFFFF_FF00  # how many there are, as a page says


class Pages:
    """The pages of a closed database's files, to be changed."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.sizes = {}
        for file in sorted(directory.glob("device-*")):
            with file.open("rb") as opened:
                self.sizes[int(file.name[-4:])] = SPACE_HEAD.at(opened.read(4096), SPACE_HEAD_AT).page_size

    def read(self, page_id: int) -> bytes:
        size = self.sizes[page_id >> 22]
        with device_path(self._directory, page_id >> 22).open("rb") as file:
            file.seek((page_id & 0x3FFFFF) * size)
            return file.read(size)

    def write(self, page_id: int, data: bytes) -> None:
        with device_path(self._directory, page_id >> 22).open("r+b") as file:
            file.seek((page_id & 0x3FFFFF) * self.sizes[page_id >> 22])
            file.write(sealed(data))

    def set(self, page: int, layout: Layout, at: int, **fields: int) -> None:
        data = bytearray(self.read(page))
        for name, value in fields.items():
            start, width = at + layout.offset(name), layout.dtype[name].itemsize
            data[start : start + width] = value.to_bytes(width, "little")
        self.write(page, bytes(data))

    def set_word(self, page_id: int, at: int, value: int) -> None:
        data = bytearray(self.read(page_id))
        data[at : at + 4] = value.to_bytes(4, "little")
        self.write(page_id, bytes(data))

    def of(self, obj_id: int, page_type: PageType = PageType.DATA) -> list[int]:
        """The pages in use of an object."""
        found = []
        for device in self.sizes:
            hwm = DEVICE_HEAD.at(self.read(page_id_of(device, 0)), DEVICE_HEAD_AT).hwm
            for page_id in (page_id_of(device, offset) for offset in range(1, hwm)):
                head = PAGE_HEAD.at(self.read(page_id))
                if head.page_type == page_type and head.obj_id == obj_id:
                    found.append(page_id)
        return found

    def node(self, page_id: int) -> object:
        return BTREE_NODE.at(self.read(page_id), NODE_AT)

    def nodes(self, obj_id: int, level: int) -> list[int]:
        return [page_id for page_id in self.of(obj_id) if self.node(page_id).level == level]  # type: ignore[attr-defined]

    def entry(self, page_id: int, slot: int) -> int:
        """Where on its page an entry is."""
        data = self.read(page_id)
        at = slot_offset(len(data), slot)
        return int.from_bytes(data[at : at + 2], "little")


@dataclass(frozen=True)
class Victim:
    """Where things are in the database that every case begins with."""

    table: int  # object ids
    tree: int
    hash: int
    lobs: int
    entry: int  # entry pages
    tree_entry: int
    hash_entry: int
    lob: int  # the first page of a large object
    device: int


ROWS = 3000


def make_victim(directory: Path) -> Victim:
    with small_files(), connect(directory) as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(300)"})
        db.create_table("l", {"i": "INT", "b": "BLOB"})
        db.create_table("gone", {"i": "INT", "s": "VARCHAR(300)"})
        for n in range(ROWS):
            db.insert("t", (n, f"{n:0200}"))
            if n % 4 == 0:
                db.insert("gone", (n, "g" * 200))
        db.insert("l", (1, b"b" * 60_000))
        db.create_index("t_i", "t", ["s"])
        db.create_index("t_h", "t", ["i"], using="hash")
        db.commit()
        db.drop_table("gone")  # leaves free pages behind
        db.commit()
        table, lobs = db.table("t"), db.table("l").lobs
        assert lobs is not None
        tree, by_hash = table.indexes
    pages = Pages(directory)
    lob = next(page for page in pages.of(lobs.obj_id) if LOB_NODE.at(pages.read(page), NODE_AT).first_page == page)
    assert len(pages.nodes(tree.obj_id, 0)) > 50
    return Victim(
        table.obj_id,
        tree.obj_id,
        by_hash.obj_id,
        lobs.obj_id,
        table.entry_page,
        tree.entry_page,
        by_hash.entry_page,
        lob,
        table.entry_page >> 22,
    )


Change = Callable[[Pages, Victim], None]
Use = Callable[[Connection, Path], object]
CASES: dict[str, tuple[Change, list[Use]]] = {}


def case(*uses: Use) -> Callable[[Change], Change]:
    def add(change: Change) -> Change:
        CASES[change.__name__] = (change, list(uses))
        return change

    return add


# ---- what is done with it


def scan(db: Connection, _: Path) -> None:
    for batch in db.arrow("t"):
        batch.validate()


def insert(db: Connection, _: Path) -> None:
    for n in range(2000):
        db.insert("t", (ROWS + n, f"{n:0250}"))


def walk_forwards(db: Connection, _: Path) -> None:
    list(db.heap("t").by("t_i").range())


def walk_backwards(db: Connection, _: Path) -> None:
    list(db.heap("t").by("t_i").range(backwards=True))


def query(db: Connection, _: Path) -> None:
    db.execute("select count(s) from t where s >= '0' and s < '1'").fetchall()  # by the index, from end to end


def find(db: Connection, _: Path) -> None:
    for n in range(ROWS):
        db.heap("t").by("t_i").find((f"{n:0200}",))


def find_by_hash(db: Connection, _: Path) -> None:
    for n in range(ROWS):
        db.heap("t").by("t_h").find((n,))


def delete(db: Connection, _: Path) -> None:
    """Nobody need be told: rows go although an index does not lead to their entries."""
    heap = db.heap("t")
    for row_id, _row in list(heap.rows()):
        heap.delete(row_id)
    db.commit()
    db.gc()


def drop(db: Connection, _: Path) -> None:
    db.drop_table("t")
    db.commit()
    db.gc()


def read_lob(db: Connection, _: Path) -> None:
    for row_id, _row in db.heap("l").rows():
        with db.open_lob("l", "b", row_id) as file:
            while file.read(10_000):
                pass


def delete_lob(db: Connection, _: Path) -> None:
    db.execute("delete from l")
    db.commit()
    db.gc()


def shrink(db: Connection, _: Path) -> None:
    db.shrink()


# ---- circles


@case(insert, shrink)
def free_pages(pages: Pages, victim: Victim) -> None:
    """The last page of a device's list of free pages leads to the first."""
    home = page_id_of(victim.device, 0)
    first = at = DEVICE_HEAD.at(pages.read(home), DEVICE_HEAD_AT).first_free_page
    while (following := int.from_bytes(pages.read(at)[FREE_NODE_AT : FREE_NODE_AT + 4], "little")) != NO_PAGE:
        at = following
    pages.set_word(at, FREE_NODE_AT, first)
    pages.set(home, DEVICE_HEAD, DEVICE_HEAD_AT, free_page_count=LIE)


@case(insert, shrink)
def free_page_of_itself(pages: Pages, victim: Victim) -> None:
    home = page_id_of(victim.device, 0)
    first = DEVICE_HEAD.at(pages.read(home), DEVICE_HEAD_AT).first_free_page
    pages.set_word(first, FREE_NODE_AT, first)
    pages.set(home, DEVICE_HEAD, DEVICE_HEAD_AT, free_page_count=LIE)


@case(scan)
def map_pages(pages: Pages, victim: Victim) -> None:
    pages.set(victim.entry, MAP_HEAD, ENTRY_MAP_AT, next=victim.entry, prior=victim.entry)


@case(drop)
def map_page_that_nobody_uses(pages: Pages, victim: Victim) -> None:
    """It would not be given back, so whoever drops the segment would come to it again and again."""
    size, home = pages.sizes[victim.device], page_id_of(victim.device, 0)
    above = home | DEVICE_HEAD.at(pages.read(home), DEVICE_HEAD_AT).hwm
    assert above - home < DEVICE_HEAD.at(pages.read(home), DEVICE_HEAD_AT).page_count
    pages.write(above, bytes(size))
    fields = {"page_id": above, "obj_id": victim.table, "seg_type": SegmentType.HEAP, "page_type": PageType.MAP}
    pages.set(above, PAGE_HEAD, 0, **fields, data_begin=FURTHER_MAP_AT, free_begin=FURTHER_MAP_AT + MAP_HEAD.size)
    pages.set(above, PAGE_HEAD, 0, free_end=size - 8, map_page_id=NO_PAGE, next_ckpt_page=NO_PAGE)
    capacity = (size - 8 - FURTHER_MAP_AT - MAP_HEAD.size) // MAP_ENTRY.size
    pages.set(above, MAP_HEAD, FURTHER_MAP_AT, prior=above, next=NO_PAGE, map_count=0, map_capacity=capacity)
    pages.set(victim.entry, SEGMENT_HEAD, SEGMENT_HEAD_AT, last_map_page=above)


@case(walk_forwards, query)
def leaves_that_go_on_at_the_first(pages: Pages, victim: Victim) -> None:
    leaves = pages.nodes(victim.tree, 0)
    first = next(page for page in leaves if pages.node(page).prev == NO_PAGE)  # type: ignore[attr-defined]
    last = next(page for page in leaves if pages.node(page).next == NO_PAGE)  # type: ignore[attr-defined]
    pages.set(last, BTREE_NODE, NODE_AT, next=first)


@case(walk_backwards)
def leaves_that_go_back_to_the_last(pages: Pages, victim: Victim) -> None:
    leaves = pages.nodes(victim.tree, 0)
    first = next(page for page in leaves if pages.node(page).prev == NO_PAGE)  # type: ignore[attr-defined]
    last = next(page for page in leaves if pages.node(page).next == NO_PAGE)  # type: ignore[attr-defined]
    pages.set(first, BTREE_NODE, NODE_AT, prev=last)


@case(walk_forwards, walk_backwards, query)
def empty_leaves(pages: Pages, victim: Victim) -> None:
    """Leaves without entries are in any order: they lead to each other."""
    leaves = pages.nodes(victim.tree, 0)
    for page, other in ((leaves[3], leaves[4]), (leaves[4], leaves[3])):
        pages.set(page, BTREE_NODE, NODE_AT, next=other, prev=other, slot_count=0)
        size = pages.sizes[page >> 22]
        pages.set(page, PAGE_HEAD, 0, free_begin=ENTRIES_AT, free_end=size - 8)


def lead_to(pages: Pages, victim: Victim, target: int) -> None:
    """Let all entries of the tree's branches lead to one page."""
    for level in range(1, 16):
        for page in pages.nodes(victim.tree, level):
            for slot in range(pages.node(page).slot_count):  # type: ignore[attr-defined]
                pages.set_word(page, pages.entry(page, slot) + POINTER_AT, target)


@case(find, walk_forwards, insert, delete, query)
def branches_that_lead_to_the_root(pages: Pages, victim: Victim) -> None:
    lead_to(pages, victim, INDEX_HEAD.at(pages.read(victim.tree_entry), INDEX_AT).root)


@case(find_by_hash, insert, delete)
def directories_that_lead_to_the_root(pages: Pages, victim: Victim) -> None:
    root = INDEX_HEAD.at(pages.read(victim.hash_entry), INDEX_AT).root
    for slot in range(pages.node(root).slot_count):  # type: ignore[attr-defined]
        pages.set_word(root, ENTRIES_AT + 4 * slot, root)


@case(read_lob, delete_lob)
def large_object_of_itself(pages: Pages, victim: Victim) -> None:
    count = PAGE_HEAD.at(pages.read(victim.lob)).free_begin - DATA_AT
    for at in range(DATA_AT, DATA_AT + count, 4):
        pages.set_word(victim.lob, at, victim.lob)


@case(delete_lob)
def large_object_of_itself_twice(pages: Pages, victim: Victim) -> None:
    """It says that it has a level between."""
    pages.set(victim.lob, LOB_NODE, NODE_AT, level=2)
    large_object_of_itself(pages, victim)


@case(insert)
def free_list_of_the_segment(pages: Pages, victim: Victim) -> None:
    """Every page of the table is on its list of pages that have much room, and its neighbours are itself."""
    data = bytearray(pages.read(victim.entry))
    count = MAP_HEAD.at(bytes(data), ENTRY_MAP_AT).map_count
    for number in range(count):
        at = ENTRY_MAP_AT + MAP_HEAD.size + number * MAP_ENTRY.size
        page_id = MAP_ENTRY.at(bytes(data), at).page_id
        link = victim.entry.to_bytes(4, "little") + number.to_bytes(4, "little") + page_id.to_bytes(4, "little")
        data[at + 4] = 12 if number else NO_LIST
        data[at + 8 : at + 32] = 2 * link
    at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("free_lists[12].first.map_page")
    data[at : at + 24] = 2 * link
    pages.write(victim.entry, bytes(data))


# ---- undo, which a database that was closed does not have


def _change_again_and_again(db: Connection) -> None:
    """Let a transaction change a row several times."""
    heap = db.heap("t")
    row_id = next(row_id for row_id, _ in heap.rows())
    for n in range(3):
        heap.update(row_id, {"i": -n})


def _of_itself(read: Callable[[int], bytes]) -> tuple[int, bytes]:
    """The page with the newest undo record of a row that was changed, which says that it comes before itself."""
    hwm = DEVICE_HEAD.at(read(page_id_of(UNDO_DEVICE, 0)), DEVICE_HEAD_AT).hwm
    for page_id in (page_id_of(UNDO_DEVICE, offset) for offset in range(1, hwm)):
        data = bytearray(read(page_id))
        head = PAGE_HEAD.at(bytes(data))
        if head.page_type != PageType.DATA or head.seg_type != SegmentType.UNDO:
            continue
        for slot in reversed(range(UNDO_HEAD.at(bytes(data), UNDO_HEAD_AT).slot_count)):
            at = int.from_bytes(data[slot_offset(len(data), slot) :][:2], "little")
            record = UNDO_RECORD.at(bytes(data), at)
            if record.op_type in (UndoOperation.HEAP_UPDATE, UndoOperation.HEAP_UPDATE_INC):
                link = at + record.size - 8
                data[link : link + 6] = page_id.to_bytes(4, "little") + slot.to_bytes(2, "little")
                return page_id, bytes(data)
    raise AssertionError("no record of the row")


def undo_of_itself_by_a_pin(directory: Path) -> list[str]:
    with connect(directory) as db, connect(directory) as writer:
        _change_again_and_again(writer)
        db.checkpoint()
        pin = db.take_snapshot(lease=600)
        pages = Pages(directory)
        pages.write(*_of_itself(pages.read))
        told = _told(lambda: read_table(directory, pin, "t"))
        db.drop_snapshot(pin.name)
        return told


def undo_of_itself_in_memory(directory: Path) -> list[str]:
    """Nobody rolls back: what came before the change is not known any more."""
    with connect(directory) as db, connect(directory) as writer:
        devices = db.heap("t").segment.store.devices

        def memory(page_id: int) -> memoryview:
            return devices[page_id >> 22].memory(page_id & 0x3FFFFF)

        _change_again_and_again(writer)
        page_id, changed = _of_itself(lambda page_id: bytes(memory(page_id)))
        memory(page_id)[:] = changed
        for read in (
            lambda: scan(db, directory),
            lambda: list(db.heap("t").rows()),
            lambda: db.heap("t").by("t_i").find((f"{0:0200}",)),
        ):
            _require(_told(read))
        sys.stdout.flush()
        os._exit(0)  # nothing can be rolled back


UNDO_CASES = (undo_of_itself_by_a_pin, undo_of_itself_in_memory)


# ---- running them


def _told(work: Callable[[], object]) -> list[str]:
    try:
        work()
    except Corruption as error:
        return [str(error)]
    return []


def run(directory: Path, victim: Victim, change: Change, use: Use) -> None:
    change(Pages(directory), victim)
    assert verify(directory).findings, "verify finds nothing wrong"
    told = []
    try:
        with connect(directory) as db:
            told += _told(lambda: use(db, directory))
            db.rollback()
    except Corruption as error:
        told.append(str(error))
    assert told or use is delete, "nobody was told"


def warm(victim: Path, directory: Path) -> None:
    """Do all that is done in the cases with a database that is whole: compiles what the children need."""
    for use in {use for _, uses in CASES.values() for use in uses}:
        shutil.copytree(victim, directory)
        with connect(directory) as db:
            db.savepoint("before")
            db.insert("t", (-1, "x"))
            _change_again_and_again(db)
            db.rollback_to("before")  # as a statement that fails does
            use(db, directory)
        assert not verify(directory).findings
        shutil.rmtree(directory)
    shutil.copytree(victim, directory)
    with connect(directory) as db, connect(directory) as writer:
        _change_again_and_again(writer)
        pin = db.take_snapshot(lease=600)
        read_table(directory, pin, "t")
        scan(db, directory)
        walk_forwards(db, directory)
        db.drop_snapshot(pin.name)
    shutil.rmtree(directory)


def main(names: list[str]) -> None:
    place = Path(tempfile.mkdtemp(prefix="gmdb-cycles-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    try:
        with disk.use(QuickDisk()):
            victim = make_victim(place / "victim")
            works: dict[str, Callable[[], object]] = {}
            for name, (change, uses) in CASES.items():
                for use in uses:
                    title = f"{name} {use.__name__}"
                    works[title] = lambda change=change, use=use: run(place / "db", victim, change, use)
            for work in UNDO_CASES:
                works[work.__name__] = lambda work=work: _require(work(place / "db"))
            warm(place / "victim", place / "db")
            for name, limited in works.items():
                if names and name not in names:
                    continue
                shutil.copytree(place / "victim", place / "db")
                ended = run_limited(lambda limited=limited: limited() and None, CPU_SECONDS)  # type: ignore[misc]
                shutil.rmtree(place / "db")
                print(json.dumps({"name": name, "code": ended.code, "how": str(ended)}), flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def _require(told: list[str]) -> None:
    assert told, "nobody was told"


if __name__ == "__main__":
    main(sys.argv[1:])
