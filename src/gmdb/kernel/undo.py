"""Undo records: how rows were before a transaction changed them.

Records go to the tail page of one shared segment.  A record is live until its transaction is rolled back or no
snapshot needs it; a page without live records is given back.

A record's body, by operation
 - HEAP_INSERT: how many slots from the row's on (u16); with slot 65535, how many pages from the row's on (u32).
 - HEAP_UPDATE_INC: a patch with the values before.  HEAP_UPDATE: the whole row before.
 - HEAP_DELETE: the row's lock word before.
The image's lock word is the row's before: 0xFFFFFFFF for none.  If it is the record's own lock, the transaction
had inserted or changed the row before; the record then ends in where the change before it is (an undo row id,
no page if that was the insert) and the statement that made this one.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.segment import SEGMENT_HEAD_AT
from gmdb.format.undo import NODE_AT, RECORDS_AT, UNDO_HEAD, UNDO_RECORD, UndoOperation
from gmdb.kernel.area import change, page_head, page_size_of, state_of, touch_type
from gmdb.kernel.compiler import routine
from gmdb.kernel.free_lists import touch_entry
from gmdb.kernel.memory import load_u8, load_u16, load_u32, move_bytes, records, store_8, store_16, store_32
from gmdb.kernel.segment import add_page, release_page, segment_head
from gmdb.kernel.status import DONE, NOT_FOUND, UNDO_FULL

undo_head = records(UNDO_HEAD)
RECORD_SIZE = UNDO_RECORD.size
LINK_SIZE = 8
SHADOW = 0xFFFF_FFFF  # the lock word of a row that had none
OP_INSERT, OP_UPDATE, OP_UPDATE_INC, OP_DELETE = (
    int(UndoOperation.HEAP_INSERT),
    int(UndoOperation.HEAP_UPDATE),
    int(UndoOperation.HEAP_UPDATE_INC),
    int(UndoOperation.HEAP_DELETE),
)
OP_NONE = int(UndoOperation.NONE)
_DATA = int(PageType.DATA)
_ROW_PAGE_AT = UNDO_RECORD.offset("row_id.page_id")
_ROW_SLOT_AT = UNDO_RECORD.offset("row_id.slot_id")
_LOCK_AT, _OBJECT_AT = UNDO_RECORD.offset("lock_id"), UNDO_RECORD.offset("obj_id")
_ENTRY_AT, _SIZE_AT = UNDO_RECORD.offset("seg_entry"), UNDO_RECORD.offset("size")
_OPERATION_AT = UNDO_RECORD.offset("op_type")
assert PAGE_HEAD.size == NODE_AT


@routine
def record_lock(record):
    return load_u32(record + _LOCK_AT)


@routine
def record_object(record):
    return load_u32(record + _OBJECT_AT)


@routine
def record_entry(record):
    return load_u32(record + _ENTRY_AT)


@routine
def record_row_page(record):
    return load_u32(record + _ROW_PAGE_AT)


@routine
def record_row_slot(record):
    return load_u16(record + _ROW_SLOT_AT)


@routine
def record_size(record):
    return load_u16(record + _SIZE_AT)


@routine
def record_operation(record):
    return load_u8(record + _OPERATION_AT)


@routine
def image_word(record):
    """The lock word that the row had before, for all operations but inserts."""
    return load_u32(record + RECORD_SIZE)


@routine
def is_further(record):
    """Whether the transaction had changed the row before this record."""
    return record_operation(record) != OP_INSERT and image_word(record) == record_lock(record)


@routine
def prior_record(record):
    """Where the transaction's change before this one is: page id << 16 | slot."""
    at = record + record_size(record) - LINK_SIZE
    return load_u32(at) << 16 | load_u16(at + 4)


@routine
def is_first(record):
    """Whether it is the transaction's first change of the row, but for inserting it."""
    return not is_further(record) or prior_record(record) >> 16 == NO_PAGE


@routine
def record_statement(record):
    """The low 16 bits of the statement of a further change."""
    return load_u16(record + record_size(record) - 2)


@routine
def find_record(area, page_id, slot):
    """The address of an undo record; a negative status if there is none there."""
    page = touch_type(area, page_id, _DATA, 0)
    if page < 0:
        return page
    if slot >= undo_head(page + NODE_AT).slot_count:
        return NOT_FOUND
    return page + load_u16(page + page_size_of(area, page_id) - TAIL_SIZE - 2 * (slot + 1))


@routine
def _has_room(page, page_size, size):
    head = page_head(page)
    return head.free_end - head.free_begin >= size + 2


@routine
def reserve_undo(area, size):
    """Make sure that the tail page takes a record of ``size`` bytes; DONE or a status, with nothing lost."""
    state = state_of(area)
    if state.undo_page != NO_PAGE:
        page = touch_type(area, state.undo_page, _DATA, 0)
        if page < 0:
            return page
        if _has_room(page, page_size_of(area, state.undo_page), size):
            return DONE
    entry_page = touch_entry(area, state.undo_entry)
    if entry_page < 0:
        return entry_page
    if segment_head(entry_page + SEGMENT_HEAD_AT).page_count >= state.undo_limit:
        return UNDO_FULL
    page_id = add_page(area, state.undo_entry)
    if page_id < 0:
        return page_id
    page = touch_type(area, page_id, _DATA, 0)
    page_head(page).free_begin = RECORDS_AT
    full, state.undo_page = state.undo_page, page_id
    if full != NO_PAGE:
        return _release_if_dead(area, full)
    return DONE


@routine
def write_record(area, row_page, row_slot, lock_id, obj_id, entry_id, operation, body_size):
    """Append a record to the tail page, which has room; the caller writes the body.  Answers its address."""
    page_id = state_of(area).undo_page
    page = touch_type(area, page_id, _DATA, 0)
    head, node = page_head(page), undo_head(page + NODE_AT)
    record = page + head.free_begin
    store_32(record + _ROW_PAGE_AT, row_page)
    store_16(record + _ROW_SLOT_AT, row_slot)
    store_16(record + _ROW_SLOT_AT + 2, 0xFFFF)
    store_32(record + _LOCK_AT, lock_id)
    store_32(record + _OBJECT_AT, obj_id)
    store_32(record + _ENTRY_AT, entry_id)
    store_16(record + _SIZE_AT, RECORD_SIZE + body_size)
    store_8(record + _OPERATION_AT, operation)
    store_8(record + _OPERATION_AT + 1, 0xFF)
    head.free_end -= 2
    store_16(page + head.free_end, head.free_begin)
    head.free_begin += RECORD_SIZE + body_size
    node.slot_count += 1
    change(area, page_id, page)
    return record


@routine
def newest_place(area):
    """Where the record that was written last is: page id << 16 | slot."""
    page_id = state_of(area).undo_page
    page = touch_type(area, page_id, _DATA, 0)
    return page_id << 16 | (undo_head(page + NODE_AT).slot_count - 1)


@routine
def write_link(record, prior, statement):
    """End a further record in where the change before it is."""
    at = record + record_size(record) - LINK_SIZE
    store_32(at, prior >> 16)
    store_16(at + 4, prior & 0xFFFF)
    store_16(at + 6, statement & 0xFFFF)


@routine
def copy_body(record, body, size):
    move_bytes(record + RECORD_SIZE, body, size)


@routine
def _release_if_dead(area, page_id):
    """Give a page back that has no live record: to the tablespace, or, if it is the tail, to new records."""
    page = touch_type(area, page_id, _DATA, 0)
    if page < 0:
        return page
    head, node = page_head(page), undo_head(page + NODE_AT)
    if head.del_count < node.slot_count:
        return DONE
    if page_id != state_of(area).undo_page:
        return release_page(area, state_of(area).undo_entry, page_id)
    head.del_count = 0
    node.slot_count = 0
    head.free_begin = RECORDS_AT
    head.free_end = page_size_of(area, page_id) - TAIL_SIZE
    change(area, page_id, page)
    return DONE


@routine
def kill_record(area, page_id, record):
    """The record is needed no more."""
    page = touch_type(area, page_id, _DATA, 0)
    if page < 0:
        return page
    store_8(record + _OPERATION_AT, OP_NONE)
    page_head(page).del_count += 1
    change(area, page_id, page)
    return _release_if_dead(area, page_id)
