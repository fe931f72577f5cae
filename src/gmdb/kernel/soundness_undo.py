"""Whether the records of an undo page can be followed: see soundness.py."""

from __future__ import annotations

from gmdb.format.address import NO_SLOT
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.format.undo import NODE_AT, OWNER_SIZE, RECORDS_AT, UNDO_HEAD, UNDO_RECORD, UndoOperation
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_u8, load_u16, load_u32, records
from gmdb.kernel.soundness_nodes import entry_is_sound
from gmdb.kernel.soundness_rows import image_end
from gmdb.kernel.verify_slots import directory_is_right, overlap, slot_value

_page_head = records(PAGE_HEAD)
_undo_head = records(UNDO_HEAD)
_RECORD_SIZE = UNDO_RECORD.size
_SIZE_AT, _OPERATION_AT = UNDO_RECORD.offset("size"), UNDO_RECORD.offset("op_type")
_LOCK_AT, _SLOT_AT = UNDO_RECORD.offset("lock_id"), UNDO_RECORD.offset("row_id.slot_id")
_INSERT, _UPDATE, _UPDATE_INC, _DELETE, _LOCK, _OWNER, _NONE = (
    int(operation)
    for operation in (
        UndoOperation.HEAP_INSERT,
        UndoOperation.HEAP_UPDATE,
        UndoOperation.HEAP_UPDATE_INC,
        UndoOperation.HEAP_DELETE,
        UndoOperation.HEAP_LOCK,
        UndoOperation.OWNER,
        UndoOperation.NONE,
    )
)
_FIRST_OF_ENTRY, _LAST_OF_ENTRY = int(UndoOperation.BTREE_INSERT), int(UndoOperation.HASH_DELETE_SHADOW)
_LAST_OPERATION = int(UndoOperation.OWNER)
_SLOTS_BODY, _PAGES_BODY, _WORD, _LINK = 4, 12, 4, 8


@routine
def _body_is_sound(record, end):
    operation, body = load_u8(record + _OPERATION_AT), record + _RECORD_SIZE
    if operation == _NONE:
        return True
    if operation > _LAST_OPERATION:
        return False
    if operation == _INSERT:
        return body + (_PAGES_BODY if load_u16(record + _SLOT_AT) == NO_SLOT else _SLOTS_BODY) <= end
    if _FIRST_OF_ENTRY <= operation <= _LAST_OF_ENTRY:
        return entry_is_sound(body, end) and body + load_u16(body + SIZE_AT) == end
    if operation == _OWNER:
        return record + OWNER_SIZE <= end
    if operation != _UPDATE and operation != _UPDATE_INC and operation != _DELETE and operation != _LOCK:
        return True  # of a segment or a large object: no body
    if body + _WORD > end:
        return False
    if load_u32(body) == load_u32(record + _LOCK_AT):  # it ends in where the change before is
        end -= _LINK
    if operation == _DELETE or operation == _LOCK:
        return body + _WORD <= end
    return image_end(body, end, operation == _UPDATE_INC) > 0


@routine
def undo_is_sound(page, page_size):
    head, slot_count = _page_head(page), _undo_head(page + NODE_AT).slot_count
    if not directory_is_right(head, page_size, RECORDS_AT, slot_count):
        return False
    end, in_order, last = page + head.free_begin, True, RECORDS_AT
    for slot in range(slot_count):
        offset = slot_value(page, page_size, slot)
        record = page + offset
        if offset < RECORDS_AT or record + _RECORD_SIZE > end:
            return False
        size = load_u16(record + _SIZE_AT)
        if load_u32(record + _LOCK_AT) > NO_LOCK:
            return False
        if size < _RECORD_SIZE or record + size > end or not _body_is_sound(record, record + size):
            return False
        in_order = in_order and offset >= last
        last = offset + size
    return in_order or not overlap(page, page_size, slot_count, _SIZE_AT, 0)
