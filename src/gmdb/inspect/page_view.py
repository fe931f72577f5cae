"""One page with all that is known about it: whose it is, what lies in it, what is wrong with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from gmdb.catalog.schema import SYS_COLUMNS_COLUMNS, SYS_COLUMNS_ID, TableDefinition
from gmdb.errors import Error
from gmdb.format import anatomy, heap, row
from gmdb.format.address import NO_PAGE, SYSTEM_DEVICE, offset_of, page_name
from gmdb.format.layout import Finding
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.segment import MAP_HEAD, SEGMENT_HEAD, SEGMENT_HEAD_AT, map_head_at
from gmdb.inspect.files import SYS_TABLES, DatabaseFiles
from gmdb.inspect.row_view import RowView, view_row

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
    columns = table.columns if table is not None else None
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
