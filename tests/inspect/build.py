"""A small database written page by page with nothing but format/: a second opinion on what the engine writes.

device 0 (system): 1 sys_tables, 2 its rows; 3 sys_columns, 4 its rows
device 1 (undo, 32 KiB pages): 1 … 3 free, 4 the undo segment's map page, 5 an undo page
device 4 (users): 1 … 5 free, 6 the entry page of tbl, 7 … its rows; behind them an index with one root page
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from gmdb.format.address import NO_PAGE, NO_SLOT, page_id_of
from gmdb.format.btree import BTREE_CHILD, BTREE_NODE
from gmdb.format.checksum import page_crc
from gmdb.format.columns import Column
from gmdb.format.device import DEVICE_HEAD, DEVICE_PAGE_END, FREE_NODE, SPACE_HEAD
from gmdb.format.heap import HEAP_NODE, ROWS_AT, reserve_size, usable_size
from gmdb.format.page import PAGE_HEAD, PAGE_TAIL, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import MIN_OCCUPIED, encode_cells, encode_row
from gmdb.format.segment import (
    DEFAULT_PCT_FREE,
    ENTRY_MAP_AT,
    MAP_ENTRY,
    MAP_HEAD,
    MAP_LINK,
    NO_LIST,
    SEGMENT_HEAD,
    map_capacity,
)
from gmdb.format.undo import UNDO_HEAD, UNDO_RECORD, UndoOperation
from gmdb.storage.directory import device_path, write_control
from gmdb.tables.catalog.schema import (
    SYS_COLUMNS_COLUMNS,
    SYS_COLUMNS_ID,
    SYS_TABLES_COLUMNS,
    SYS_TABLES_ID,
    make_columns,
)
from gmdb.tables.catalog.system import column_row

TBL_ID, INDEX_ID, UNDO_ID = 16, 17, 1
TBL_COLUMNS = make_columns("tbl", {"i": "INT", "s": "VARCHAR(10)"})
TBL_ENTRY, TBL_FIRST = page_id_of(4, 6), page_id_of(4, 7)
UNDO_ENTRY, UNDO_FIRST = page_id_of(1, 4), page_id_of(1, 5)
NO_LINK = MAP_LINK.pack(map_page=NO_PAGE, page_id=NO_PAGE)


def reference_rows(count: int) -> list[tuple[int, str]]:
    """The rows that the reference notes insert, in their order."""
    return [(1, "2"), (2, "3"), *((i, "hello") for i in range(count - 2))]


def seal(page: bytes) -> bytes:
    """The page with the right CRC in its tail."""
    return page[:-TAIL_SIZE] + PAGE_TAIL.pack(crc=page_crc(page))


class DeviceBuilder:
    """Pages of one device, in the order they are added."""

    def __init__(self, number: int, name: str, page_size: int = 8192) -> None:
        self.number, self.name, self.page_size = number, name, page_size
        self.pages: list[bytes] = [b""]
        self.free: list[int] = []
        self.segments = 0

    @property
    def next_id(self) -> int:
        return page_id_of(self.number, len(self.pages))

    def page(self, body: bytes, slots: Sequence[int] = (), place: int | None = None, **head: int) -> bytes:
        """A sealed page; ``body`` is all behind the page head, ``slots`` its directory."""
        fields = {
            "page_id": self.next_id if place is None else place,
            "page_create_no": 1,
            "chg_num": 1,
            "ckpt_id": 1,
            "mirror_page": NO_PAGE,
            "next_ckpt_page": NO_PAGE,
            "map_page_id": NO_PAGE,
            "data_begin": PAGE_HEAD.size,
            "free_begin": PAGE_HEAD.size + len(body),
            "free_end": self.page_size - TAIL_SIZE - 2 * len(slots),
        } | head
        directory = b"".join(offset.to_bytes(2, "little") for offset in reversed(slots))
        start = PAGE_HEAD.pack(**fields) + body
        return seal(start.ljust(self.page_size - TAIL_SIZE - len(directory), b"\0") + directory + bytes(TAIL_SIZE))

    def add_free(self, count: int) -> None:
        for _ in range(count):
            following = self.free[-1] if self.free else NO_PAGE
            self.free.append(self.next_id)
            self.pages.append(self.page(FREE_NODE.pack(next=following), page_type=PageType.FREE))

    def add_segment(
        self, obj_id: int, name: str, kind: SegmentType, contents: Iterable[tuple[bytes, list[int]]]
    ) -> None:
        """Map pages and data pages, side by side as a fresh segment takes them."""
        contents, entry, self.segments = list(contents), self.next_id, self.segments + 1
        maps: list[tuple[int, list[int]]] = []
        while contents or not maps:
            room = map_capacity(self.page_size, is_entry_page=not maps)
            part, contents = contents[:room], contents[room:]
            map_page = self.next_id
            self.pages.append(b"")
            maps.append((map_page, []))
            for number, (body, slots) in enumerate(part):
                maps[-1][1].append(self.next_id)
                owner = {"obj_id": obj_id, "seg_type": kind, "page_type": PageType.DATA}
                self.pages.append(self.page(body, slots, map_page_id=map_page, map_offset=number, **owner))
        head = self._segment_head(obj_id, name, kind, maps)
        for number, (map_page, listed) in enumerate(maps):
            prior = maps[number - 1][0] if number else NO_PAGE
            following = maps[number + 1][0] if number + 1 < len(maps) else NO_PAGE
            body = (head if map_page == entry else b"") + self._map(prior, following, listed, map_page == entry)
            owner = {"obj_id": obj_id, "seg_type": kind}
            owner["page_type"] = PageType.SEGMENT_ENTRY if map_page == entry else PageType.MAP
            owner["data_begin"] = ENTRY_MAP_AT if map_page == entry else PAGE_HEAD.size
            self.pages[map_page & 0x3FFFFF] = self.page(body, place=map_page, map_page_id=entry, **owner)

    def _segment_head(self, obj_id: int, name: str, kind: SegmentType, maps: list[tuple[int, list[int]]]) -> bytes:
        listed = [page_id for _, pages in maps for page_id in pages]
        head = SEGMENT_HEAD.pack(
            obj_id=obj_id,
            obj_name=name.encode(),
            create_no=1,
            type=kind,
            space_id=self.number,
            last_map_page=maps[-1][0],
            first_data_page=listed[0] if listed else NO_PAGE,
            last_page=listed[-1] if listed else NO_PAGE,
            page_count=len(listed),
            pct_free=DEFAULT_PCT_FREE,
            child_seg=NO_PAGE,
        )
        lists_at, lists_end = SEGMENT_HEAD.offset("free_lists[0].first.map_page"), SEGMENT_HEAD.offset("min_list_id")
        return head[:lists_at] + NO_LINK * ((lists_end - lists_at) // len(NO_LINK)) + head[lists_end:]

    def _map(self, prior: int, following: int, listed: list[int], is_entry: bool) -> bytes:
        capacity = map_capacity(self.page_size, is_entry)
        head = MAP_HEAD.pack(prior=prior, next=following, map_count=len(listed), map_capacity=capacity)
        links = 2 * NO_LINK
        return head + b"".join(MAP_ENTRY.pack(page_id=n, list_id=NO_LIST)[: -len(links)] + links for n in listed)

    def write(self, directory: Path) -> None:
        count = len(self.pages)
        body = DEVICE_HEAD.pack(
            page_count=count,
            hwm=count,
            free_page_count=len(self.free),
            first_free_page=self.free[-1] if self.free else NO_PAGE,
        )
        body += SPACE_HEAD.pack(
            seg_num=self.segments,
            free_pages=len(self.free),
            space_id=self.number,
            page_size=self.page_size,
            name=self.name.encode(),
        )
        assert PAGE_HEAD.size + len(body) == DEVICE_PAGE_END
        head = {"page_type": PageType.DEVICE_HEAD, "place": page_id_of(self.number, 0)}
        self.pages[0] = self.page(body, **head)
        device_path(directory, self.number).write_bytes(b"".join(self.pages))


def heap_pages(
    columns: Sequence[Column], rows: Iterable[Sequence[object]], page_size: int = 8192
) -> Iterable[tuple[bytes, list[int]]]:
    """Bodies and slots of heap pages, filled by the fill rule."""
    limit = usable_size(page_size) - reserve_size(page_size, DEFAULT_PCT_FREE)
    packed, slots, used = [], [], 0
    for values in rows:
        row = encode_row(columns, values).ljust(MIN_OCCUPIED, b"\0")
        if slots and used + len(row) + 2 > limit:
            yield heap_body(packed), slots
            packed, slots, used = [], [], 0
        slots.append(ROWS_AT + used - 2 * len(slots))
        packed.append(row)
        used += len(row) + 2
    yield heap_body(packed), slots


def heap_body(rows: Sequence[bytes]) -> bytes:
    return HEAP_NODE.pack(next=NO_PAGE, slot_count=len(rows), free_slot=NO_SLOT) + b"".join(rows)


def index_root() -> tuple[bytes, list[int]]:
    """The reference's root at level 2: an open upper entry, then a lower one with a key."""
    upper = encode_cells([None], [1])
    lower = encode_cells([(299).to_bytes(4, "little")], [1])
    entries = b""
    for child, entry in ((page_id_of(4, 344), upper), (page_id_of(4, 340), lower)):
        size = (len(entry) + BTREE_CHILD.size).to_bytes(2, "little")
        pointer = BTREE_CHILD.pack(page_id=child)
        entries += entry[:4] + size + entry[6:12] + pointer + entry[12:]
    node = BTREE_NODE.pack(next=NO_PAGE, prev=NO_PAGE, level=2, slot_count=2)
    return node + entries, [128, 108]


def undo_page() -> tuple[bytes, list[int]]:
    """The reference's undo record: the varchar of a row was 'hello' before."""
    image = encode_cells([b"hello\0"], [3], lock_word=0xFFFF_FFFF)
    record = UNDO_RECORD.pack(
        row_id=(TBL_FIRST, 2, 0xFFFF),
        lock_id=592,
        obj_id=TBL_ID,
        seg_entry=TBL_ENTRY,
        size=48,
        op_type=UndoOperation.HEAP_UPDATE_INC,
        reserved=0xFF,
    )
    return UNDO_HEAD.pack(slot_count=1) + record + image + b"\1\0\0\0", [84]


def build_database(directory: Path, rows: Sequence[Sequence[object]] | None = None) -> Path:
    """Write the database; ``rows`` are those of tbl."""
    directory.mkdir()
    tables = [
        (SYS_TABLES_ID, "sys_tables", 0, page_id_of(0, 1), SYS_TABLES_COLUMNS),
        (SYS_COLUMNS_ID, "sys_columns", 0, page_id_of(0, 3), SYS_COLUMNS_COLUMNS),
        (TBL_ID, "tbl", 4, TBL_ENTRY, TBL_COLUMNS),
    ]
    described = [
        column_row(obj_id, position, column)
        for obj_id, _, _, _, columns in tables
        for position, column in enumerate(columns)
    ]
    system = DeviceBuilder(0, "system")
    listed = heap_pages(SYS_TABLES_COLUMNS, [(*table[:4], *[None] * 5) for table in tables])
    system.add_segment(SYS_TABLES_ID, "sys_tables", SegmentType.SYSTEM, listed)
    system.add_segment(SYS_COLUMNS_ID, "sys_columns", SegmentType.SYSTEM, heap_pages(SYS_COLUMNS_COLUMNS, described))
    undo = DeviceBuilder(1, "undo", page_size=32768)
    undo.add_free(3)
    undo.add_segment(UNDO_ID, "undo", SegmentType.UNDO, [undo_page()])
    users = DeviceBuilder(4, "users")
    users.add_free(5)
    filled = heap_pages(TBL_COLUMNS, rows if rows is not None else reference_rows(300))
    users.add_segment(TBL_ID, "tbl", SegmentType.HEAP, filled)
    users.add_segment(INDEX_ID, "tbl_i", SegmentType.BTREE, [index_root()])
    for device in (system, undo, users):
        device.write(directory)
    write_control(directory, {"ckpt_id": 1, "database_id": list(range(16)), "next_obj_id": 18, "clean": 1})
    return directory


def change_page(directory: Path, page_id: int, offset: int, raw: bytes, sealed: bool = False) -> None:
    """Overwrite bytes of a page; ``sealed`` makes its CRC right again."""
    path = device_path(directory, page_id >> 22)
    size = 32768 if page_id >> 22 == 1 else 8192
    at = (page_id & 0x3FFFFF) * size
    data = bytearray(path.read_bytes())
    data[at + offset : at + offset + len(raw)] = raw
    if sealed:
        data[at : at + size] = seal(bytes(data[at : at + size]))
    path.write_bytes(data)
