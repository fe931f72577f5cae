"""One page with all that is known about it: whose it is, what lies in it, what is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from gmdb.errors import Corruption, DataError, Error
from gmdb.format import anatomy, heap, row
from gmdb.format.address import NO_PAGE, NO_SLOT, SYSTEM_DEVICE, RowId, offset_of, page_name
from gmdb.format.columns import Column, is_uuid
from gmdb.format.interval import Interval
from gmdb.format.layout import Finding
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import BITS_AT, NO_LOCK, ROW_HEAD, RowFlag, SizeCode, header_size, walk_cells
from gmdb.format.segment import MAP_HEAD, SEGMENT_HEAD, SEGMENT_HEAD_AT, map_head_at
from gmdb.format.slotted import bounded
from gmdb.format.undo import UNDO_RECORD, UndoOperation, record_extents
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.access.indexes import HIDDEN
from gmdb.tables.catalog.schema import SYS_COLUMNS_COLUMNS, SYS_COLUMNS_ID, TableDefinition
from gmdb.tables.files.database_files import SYS_TABLES, DatabaseFiles, entry_target

# ---- One row, taken apart for people: its header, its bytes, and its values where its table is known.
#
# Undo images and B-tree entries begin like rows, so they are looked at through this too.

NO_LOCK_BEFORE = 0xFFFF_FFFF  # in an undo image: the row had no lock, and no flags


@dataclass(frozen=True)
class Cell:
    """A column's value in a row: where it starts (its length included), and what it is, if that is known."""

    name: str
    offset: int
    value: Any


@dataclass(frozen=True)
class RowView:
    slot: int
    offset: int
    lock_word: int
    size: int
    col_count: int
    bit_array: int
    further_bits: bytes
    values_at: int
    raw: bytes
    cells: tuple[Cell, ...] | None
    target: RowId | None
    problem: str = ""

    @property
    def lock_id(self) -> int:
        return self.lock_word & NO_LOCK

    @property
    def flags(self) -> RowFlag:
        return _flags(self.lock_word)

    @property
    def flag_names(self) -> list[str]:
        return flag_names(self.flags)

    def document(self) -> dict[str, Any]:
        """The row in plain values, for JSON."""
        document: dict[str, Any] = {
            "slot": self.slot,
            "offset": self.offset,
            "lock_id": self.lock_id,
            "flags": int(self.flags),
            "flag_names": self.flag_names,
            "size": self.size,
            "col_count": self.col_count,
            "bit_array": self.bit_array,
            "bytes": self.raw.hex(),
            "values": None if self.cells is None else [plain(cell.value) for cell in self.cells],
        }
        if self.further_bits:
            document["further_bits"] = self.further_bits.hex()
        if self.target is not None:
            document["moved_to"] = str(self.target)
        return document


def _flags(lock_word: int) -> RowFlag:
    return RowFlag(0 if lock_word == NO_LOCK_BEFORE else lock_word >> 24)


def flag_names(flags: int) -> list[str]:
    names = [str(flag.name) for flag in RowFlag if flags & flag]
    unknown = flags & ~int(RowFlag.DELETE | RowFlag.ENTRY | RowFlag.LINK | RowFlag.COMPACTING)
    return [*names, f"0x{unknown:02x}"] if unknown else names


def plain(value: Any) -> Any:
    """A value as JSON can hold it without loss: what JSON has no type for becomes a string."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Interval) or is_uuid(value):
        return str(value)
    if isinstance(value, Decimal) or (isinstance(value, float) and not abs(value) < float("inf")):
        return str(value)
    return value


def view_row(page: bytes, slot: int, offset: int, columns: Sequence[Column] | None) -> RowView:
    """The row at ``offset``, whose header must lie in the page; of the rest, as much as does."""
    head = ROW_HEAD.at(page, offset)
    end = min(offset + head.size, len(page))
    values_at = min(offset + header_size(head.col_count), max(end, offset + ROW_HEAD.size))
    is_entry = bool(_flags(head.lock_id) & RowFlag.ENTRY) and values_at + 8 <= end
    cells, problem = None, ""
    if columns is not None and not is_entry:
        try:
            cells = view_cells(page, offset, end, columns)
        except (Corruption, DataError) as error:
            problem = "" if _is_dead(head.lock_id) else str(error)
    return RowView(
        slot=slot,
        offset=offset,
        lock_word=head.lock_id,
        size=head.size,
        col_count=head.col_count,
        bit_array=head.bit_array,
        further_bits=page[offset + BITS_AT + 4 : values_at],
        values_at=values_at,
        raw=page[values_at:end],
        cells=cells,
        target=entry_target(page, offset) if is_entry else None,
        problem=problem,
    )


def _is_dead(lock_word: int) -> bool:
    """Whether a row is deleted for everyone: then its columns may be those of a definition that was rolled back."""
    return bool(_flags(lock_word) & RowFlag.DELETE) and lock_word & NO_LOCK == NO_LOCK


def view_cells(page: bytes, offset: int, end: int, columns: Sequence[Column]) -> tuple[Cell, ...]:
    """The row's values by column.  Raises Corruption or DataError if they cannot be these columns' values."""
    cells = []
    for number, (code, at, length) in enumerate(walk_cells(page, offset, end)):
        if number >= len(columns):
            if code == SizeCode.NULL:
                continue  # what is left of a column whose addition was rolled back
            raise Corruption(f"the row has more columns than its table, {len(columns)}", offset=offset)
        column = columns[number]
        start = at - 2 if code == SizeCode.VARIABLE else at
        if code not in (SizeCode.NULL, column.type.size_code):
            message = f"column {column.name}: its size bits are {code}, but {column.type} has {column.type.size_code}"
            raise DataError(message)
        value = None if code == SizeCode.NULL else column.type.decode(page[at : at + length])
        cells.append(Cell(column.name.removeprefix(HIDDEN), start, value))
    return tuple(cells) + tuple(Cell(column.name, end, None) for column in columns[len(cells) :])


# ---- Undo records, taken apart: what was done, to which row, and how the row was before.

_WITH_IMAGE = (UndoOperation.HEAP_UPDATE, UndoOperation.HEAP_UPDATE_INC)


@dataclass(frozen=True)
class UndoRecordView:
    slot: int
    offset: int
    head: dict[str, Any]
    body: bytes
    image: RowView | None
    table_name: str
    changed: tuple[int, ...]

    @property
    def end(self) -> int:
        return self.offset + UNDO_RECORD.size + len(self.body)

    @property
    def row_id(self) -> RowId:
        return RowId(self.head["row_id.page_id"], self.head["row_id.slot_id"])

    @property
    def operation(self) -> str:
        kind = self.head["op_type"]
        return UndoOperation(kind).name if kind in list(UndoOperation) else f"unknown operation {kind}"

    def is_about(self, place: RowId) -> bool:
        """Whether it is about the row at a place; an insert's record may be of several slots, or of whole pages."""
        first, count = self.row_id, 1
        if self.head["op_type"] == UndoOperation.HEAP_INSERT:
            if first.slot_id == NO_SLOT:
                return first.page_id <= place.page_id < first.page_id + int.from_bytes(self.body[:4], "little")
            count = int.from_bytes(self.body[:2], "little")
        return first.page_id == place.page_id and first.slot_id <= place.slot_id < first.slot_id + count

    def document(self) -> dict[str, Any]:
        """The record in plain values, for JSON."""
        head = {name: value for name, value in self.head.items() if not name.startswith("row_id.")}
        document = {
            "slot": self.slot,
            "offset": self.offset,
            "row_id": {name: self.head[f"row_id.{name}"] for name in ("page_id", "slot_id", "sid_reserve")},
            **head,
            "operation": self.operation,
            "bytes": self.body.hex(),
        }
        if self.image is not None:
            image = self.image.document()
            del image["slot"]
            document["image"] = image
            document["changed_columns"] = list(self.changed)
        return document


def view_undo_records(page: bytes, tables: Mapping[int, TableDefinition]) -> list[UndoRecordView]:
    return [_view(page, offset, end, slot, tables) for offset, end, slot in bounded(page, record_extents(page))]


def _view(page: bytes, offset: int, end: int, slot: int, tables: Mapping[int, TableDefinition]) -> UndoRecordView:
    head = UNDO_RECORD.values(page, offset)
    at, end = offset + UNDO_RECORD.size, min(end, len(page))
    table = tables.get(head["obj_id"])
    image: RowView | None = None
    changed: tuple[int, ...] = ()
    if head["op_type"] in _WITH_IMAGE and at + ROW_HEAD.size <= end:
        columns = table.stored if table is not None else None
        if head["op_type"] == UndoOperation.HEAP_UPDATE_INC:
            changed = _changed_columns(page, at, end)
            columns = _pick(columns, changed)
        image = view_row(page, slot, at, columns)
    return UndoRecordView(slot, offset, head, page[at:end], image, table.name if table else "", changed)


def _changed_columns(page: bytes, image_at: int, end: int) -> tuple[int, ...]:
    """The numbers of the columns in an incremental image: one u16 each, behind the image."""
    head = ROW_HEAD.at(page, image_at)
    at = image_at + max(head.size, header_size(head.col_count))
    if at + 2 * head.col_count > end:
        return ()
    return tuple(int.from_bytes(page[n : n + 2], "little") for n in range(at, at + 2 * head.col_count, 2))


def _pick(columns: tuple[Column, ...] | None, numbers: tuple[int, ...]) -> tuple[Column, ...] | None:
    if columns is None or not numbers or max(numbers) >= len(columns):
        return None
    return tuple(columns[number] for number in numbers)


# ---- One page with all that is known about it.

# Where sys_columns starts is in sys_tables, but what it looks like is known without reading anything.
_SYS_COLUMNS = TableDefinition("sys_columns", SYS_COLUMNS_ID, SYSTEM_DEVICE, NO_PAGE, SYS_COLUMNS_COLUMNS)
_BUILT_IN = {table.obj_id: table for table in (SYS_TABLES, _SYS_COLUMNS)}
_MAP_STEPS_MAX = 1000

_KINDS = {
    PageType.DEVICE_HEAD: "device head",
    PageType.SEGMENT_ENTRY: "segment entry page",
    PageType.MAP: "map page",
    PageType.FREE: "free page",
}
_DATA_KINDS = {
    SegmentType.SYSTEM: "system heap page",
    SegmentType.HEAP: "heap page",
    SegmentType.UNDO: "undo page",
    SegmentType.BTREE: "B-tree page",
    SegmentType.HASH: "hash index page",
    SegmentType.LOB: "lob page",
}
_ROW_SEGMENTS = (SegmentType.SYSTEM, SegmentType.HEAP)


@dataclass(frozen=True)
class PageView:
    page_id: int
    page: bytes
    path: Path
    tables: dict[int, TableDefinition]
    table: TableDefinition | None
    rows: tuple[RowView, ...]
    findings: tuple[Finding, ...]

    @property
    def kind(self) -> str:
        return kind_of(self.page)


def kind_of(page: bytes) -> str:
    head = PAGE_HEAD.at(page)
    if not any(page):
        return "page that was never written: all bytes are zero"
    if head.page_type == PageType.DATA:
        return _DATA_KINDS.get(head.seg_type, f"data page of an unknown segment type, {head.seg_type}")
    return _KINDS.get(head.page_type, f"page of an unknown type, {head.page_type}")


def view_page(files: DatabaseFiles, page_id: int) -> PageView:
    return view_of(files, page_id, files.page(page_id))


def view_of(files: DatabaseFiles, page_id: int, page: bytes) -> PageView:
    """The bytes of a page that need not be what the file has now."""
    tables = known_tables(files)
    table = _owner(files, page, tables)
    rows = _rows(page, table)
    device = files.device(page_id)
    findings = [*findings_of(files, page_id, page), *_row_findings(page, rows)]
    return PageView(page_id, page, device.path, tables, table, rows, tuple(findings))


def findings_of(files: DatabaseFiles, page_id: int, page: bytes) -> list[Finding]:
    """What is wrong with a page, by its bytes and by its place."""
    findings = anatomy.check(page, page_id)
    device = files.device(page_id)
    if not any(page) and device.has_head and offset_of(page_id) < device.hwm:
        findings.append(Finding(0, f"all bytes are zero, but the device uses its first {device.hwm} pages"))
    return findings


def known_tables(files: DatabaseFiles) -> dict[int, TableDefinition]:
    """Tables by number; where the catalog is unreadable, the system's own."""
    try:
        return _BUILT_IN | {table.obj_id: table for table in files.tables()}
    except Error:
        return dict(_BUILT_IN)


def _rows(page: bytes, table: TableDefinition | None) -> tuple[RowView, ...]:
    if anatomy.structure_of(page) is not heap:
        return ()
    columns = table.stored if table is not None else None
    return tuple(view_row(page, slot, offset, columns) for offset, _, slot in heap.row_extents(page))


def _row_findings(page: bytes, rows: tuple[RowView, ...]) -> list[Finding]:
    """Rows that are whole, but whose values cannot be their table's."""
    end = min(PAGE_HEAD.at(page).free_begin, len(page) - TAIL_SIZE)
    whole = (view for view in rows if view.problem and not any(row.check(page, view.offset, end, "")))
    return [Finding(view.offset, f"slot {view.slot}: {view.problem}") for view in whole]


def _owner(files: DatabaseFiles, page: bytes, tables: dict[int, TableDefinition]) -> TableDefinition | None:
    """The table whose page this is: by the object number in the head, or through the map if that is damaged."""
    head = PAGE_HEAD.at(page)
    if head.seg_type == SegmentType.LOB:
        return next((t for t in tables.values() if t.lobs is not None and t.lobs.obj_id == head.obj_id), None)
    if head.seg_type not in _ROW_SEGMENTS or head.page_type in (PageType.NONE, PageType.DEVICE_HEAD, PageType.FREE):
        return None
    if head.obj_id in tables:
        return tables[head.obj_id]
    try:
        return tables.get(_object_of_map(files, head.map_page_id))
    except Error:
        return None


def _object_of_map(files: DatabaseFiles, map_page: int) -> int:
    """The object whose segment the map page belongs to; 0 if the chain of map pages leads nowhere."""
    for _ in range(_MAP_STEPS_MAX):
        page = files.sound_page(map_page)
        if PAGE_HEAD.at(page).page_type == PageType.SEGMENT_ENTRY:
            return int(SEGMENT_HEAD.at(page, SEGMENT_HEAD_AT).obj_id)
        if PAGE_HEAD.at(page).page_type != PageType.MAP:
            break
        map_page = MAP_HEAD.at(page, map_head_at(page)).prior
    return 0


def title(view: PageView) -> str:
    """The page in one line: ``page 4:7 (16777223): heap page of table tbl, 8192 bytes at 57344 of device-0004``."""
    of_table = f" of table {view.table.name}" if view.table is not None else ""
    size = len(view.page)
    place = f"{size} bytes at {offset_of(view.page_id) * size} of {view.path.name}"
    return f"page {page_name(view.page_id)} ({view.page_id}): {view.kind}{of_table}, {place}"
