"""Undo records, taken apart: what was done, to which row, and how the row was before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import NO_SLOT, RowId
from gmdb.format.columns import Column
from gmdb.format.row import ROW_HEAD, header_size
from gmdb.format.slotted import bounded
from gmdb.format.undo import UNDO_RECORD, UndoOperation, record_extents
from gmdb.inspect.row_view import RowView, view_row

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
        """Whether it tells of the row at a place; an insert's record may be of several slots, or of whole pages."""
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
        columns = table.columns if table is not None else None
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
