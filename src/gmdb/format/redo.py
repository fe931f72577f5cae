"""The head of a redo record: which page it changes, and to which change number."""

from __future__ import annotations

from gmdb.format.layout import layout

REDO_RECORD = layout(
    "redo record head",
    32,
    length=("<u4", "bytes of the record, this head included"),
    crc=("<u4", "CRC32C of all bytes of the record behind this field"),
    transaction=("<u8", "the transaction's number; 0 = none"),
    page_id=("<u4", "the page it changes"),
    page_create_no=("<u4", "which formatting of that page it belongs to"),
    chg_num=("<u4", "the page's chg_num after the change"),
    record_type=("u1", "what it does"),
    flags=("u1", "bit 0: last record of its group"),
    reserved=("<u2", "0"),
)
