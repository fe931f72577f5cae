"""The records of an undo page: what was done to which row, and how it was before."""

from __future__ import annotations

from collections.abc import Iterator

from gmdb.format.page import TAIL_SIZE
from gmdb.format.undo import UNDO_RECORD
from gmdb.inspect.canvas import Block, Line, byte_lines, section_line
from gmdb.inspect.draw_fields import field_lines
from gmdb.inspect.draw_rows import row_lines
from gmdb.inspect.page_view import PageView
from gmdb.inspect.undo_view import UndoRecordView, view_undo_records


def undo_blocks(view: PageView, full: bool) -> list[Block]:
    return [
        Block(record.offset, record.end, list(_record_lines(view.page, record, full)))
        for record in view_undo_records(view.page, view.tables)
    ]


def _record_lines(page: bytes, record: UndoRecordView, full: bool) -> Iterator[Line]:
    table = f" of table {record.table_name}" if record.table_name else ""
    row = f"row {record.row_id}{table}"
    yield section_line(None, f"record {record.slot}", record.operation.lower(), row)
    yield from field_lines(UNDO_RECORD, page, record.offset, "")
    body_at = record.offset + UNDO_RECORD.size
    if record.image is None:
        yield from byte_lines(record.body, body_at, full=full)
        return
    yield from row_lines(record.image, "  before", len(page) - TAIL_SIZE, full)
    rest_at = record.image.values_at + len(record.image.raw)
    rest = record.body[rest_at - body_at :]
    numbers = ", ".join(map(str, record.changed))
    beside = {0: f"changed columns, by number: {numbers}"} if numbers else {}
    yield from byte_lines(rest, rest_at, beside, full)
