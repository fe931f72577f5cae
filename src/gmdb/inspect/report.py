"""A page as one nested document of plain values, for JSON.  Keys are the names of the format's fields."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from gmdb.format import anatomy, btree, device, hash, heap, undo
from gmdb.format.address import RowId, page_name
from gmdb.format.heap import HEAP_NODE
from gmdb.format.layout import Layout, Region
from gmdb.format.page import PAGE_HEAD, PAGE_TAIL, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import ROW_HEAD, header_size
from gmdb.format.slotted import bounded, slot_room, slots
from gmdb.tables.files.page_view import PageView, view_undo_records

_STEP = re.compile(r"[^.\[\]]+")


def page_document(view: PageView) -> dict[str, Any]:
    page = view.page
    return {
        "page_id": view.page_id,
        "page": page_name(view.page_id),
        "page_size": len(page),
        "file": view.path.name,
        "kind": view.kind,
        "table": view.table.name if view.table is not None else None,
        "head": fields(PAGE_HEAD, page, 0),
        **_body(view),
        "tail": fields(PAGE_TAIL, page, len(page) - TAIL_SIZE),
        "problems": [{"offset": finding.offset, "message": finding.message} for finding in view.findings],
    }


def fields(layout: Layout, page: bytes, offset: int) -> dict[str, Any]:
    """A structure's fields, nested as declared."""
    return nest(layout.regions(page, offset))


def nest(regions: Iterable[Region]) -> dict[str, Any]:
    """``a.b`` becomes ``{"a": {"b": …}}``, ``a[0]`` and ``a[1]`` become ``{"a": […]}``."""
    tree: dict[str, Any] = {}
    for region in regions:
        *path, last = _STEP.findall(region.name)
        at = tree
        for step in path:
            at = at.setdefault(step, {})
        at[last] = region.value
    return {name: _lists(value) for name, value in tree.items()}


def _lists(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value and all(step.isdecimal() for step in value):
        return [_lists(value[step]) for step in sorted(value, key=int)]
    return {name: _lists(inner) for name, inner in value.items()}


def _body(view: PageView) -> dict[str, Any]:
    page = view.page
    structure = anatomy.structure_of(page)
    if structure is heap:
        return _heap(view)
    if structure is undo:
        records = [record.document() for record in view_undo_records(page, view.tables)]
        return _slotted(page, undo.UNDO_HEAD, undo.RECORDS_AT) | {"records": records}
    if structure is btree:
        return _slotted(page, btree.BTREE_NODE, btree.ENTRIES_AT) | {"entries": _btree_entries(page)}
    if structure is hash and not hash.is_directory(page):
        return _slotted(page, hash.HASH_NODE, btree.ENTRIES_AT) | {"entries": _btree_entries(page)}
    if structure is not None:
        return nest(structure.regions(page))
    if PAGE_HEAD.at(page).page_type == PageType.FREE:
        return nest(device.free_page_regions(page))
    return {}


def _slotted(page: bytes, node: Layout, entries_at: int) -> dict[str, Any]:
    count = node.at(page, PAGE_HEAD.size).slot_count
    return {
        "node": fields(node, page, PAGE_HEAD.size),
        "slots": slots(page, min(count, slot_room(page, entries_at))),
    }


def _heap(view: PageView) -> dict[str, Any]:
    return _slotted(view.page, HEAP_NODE, heap.ROWS_AT) | {"rows": [row.document() for row in view.rows]}


def _btree_entries(page: bytes) -> list[dict[str, Any]]:
    """Entries in key order, which is slot order."""
    extents = bounded(page, btree.entry_extents(page))
    return [index_entry(page, offset, end, slot) for offset, end, slot in extents]


def leads_to_rows(page: bytes) -> bool:
    """Whether the entries of a page point to rows, as those of leaves and buckets do."""
    return bool(PAGE_HEAD.at(page).seg_type == SegmentType.HASH or btree.BTREE_NODE.at(page, btree.NODE_AT).level == 0)


def index_entry(page: bytes, offset: int, end: int, slot: int) -> dict[str, Any]:
    head = ROW_HEAD.values(page, offset)
    at = offset + header_size(head["col_count"])
    pointer = int.from_bytes(page[at : at + btree.POINTER_SIZE], "little")
    target: dict[str, Any] = {"child_page": pointer & 0xFFFF_FFFF}
    if leads_to_rows(page):
        target = {"row_id": str(RowId.from_word(pointer))}
    if PAGE_HEAD.at(page).seg_type == SegmentType.HASH and end - 8 >= at + btree.POINTER_SIZE:
        end -= 8
        target["address"] = f"{int.from_bytes(page[end : end + 8], 'little'):016x}"
    return {"slot": slot, "offset": offset, **head, **target, "key": page[at + btree.POINTER_SIZE : end].hex()}
