"""The end of transactions, and the table of those that committed: format/transactions.py says what it is for.

Invariants
 1. A transaction that has written undo has a page for its entry in the table, so that committing needs no space.
 2. The entry goes when none of the transaction's undo records is left.
"""

from __future__ import annotations

from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.segment import SEGMENT_HEAD_AT
from gmdb.format.transactions import TRANSACTION_ENTRY
from gmdb.kernel.area import change, damaged, page_head, page_size_of, segment_head, state_of, touch_type
from gmdb.kernel.compiler import routine
from gmdb.kernel.free_lists import touch_entry
from gmdb.kernel.locks import transaction_at
from gmdb.kernel.memory import load_u32, records, store_32
from gmdb.kernel.redo import log_bytes, log_counts
from gmdb.kernel.segment import add_page
from gmdb.kernel.status import DONE

entry_record = records(TRANSACTION_ENTRY)
_ENTRY_SIZE = TRANSACTION_ENTRY.size
_TABLE = int(PageType.TRANSACTIONS)
_TYPE_AT = PAGE_HEAD.offset("page_type")
TABLE_PAGES_MAX = 1 << 12


@routine
def _per_page(page_size):
    return (page_size - HEAD_SIZE - TAIL_SIZE) // _ENTRY_SIZE


@routine
def reserve_entry(area, slot):
    """Make sure that the table has a page for the slot's entry."""
    state = state_of(area)
    page_size = page_size_of(area, state.undo_entry)
    for _ in range(TABLE_PAGES_MAX):
        if slot < state.table_page_count * _per_page(page_size):
            return DONE
        undo = touch_entry(area, state.undo_entry)
        if undo < 0:
            return undo
        page_id = add_page(area, segment_head(undo + SEGMENT_HEAD_AT).child_seg)
        if page_id < 0:
            return page_id
        page = touch_type(area, page_id, 3, 0)
        if page < 0:
            return page
        head = page_head(page)
        head.page_type = _TABLE
        head.free_begin = head.free_end
        log_bytes(area, page, _TYPE_AT, 2)
        log_counts(area, page)
        store_32(state.table_pages + 4 * state.table_page_count, page_id)
        state.table_page_count += 1
    return damaged(area, state.undo_entry)


@routine
def _write_entry(area, slot, number, scn):
    state = state_of(area)
    per_page = _per_page(page_size_of(area, state.undo_entry))
    page = touch_type(area, load_u32(state.table_pages + 4 * (slot // per_page)), _TABLE, 0)
    if page < 0:
        return page
    if page_size_of(area, page_head(page).page_id) != page_size_of(area, state.undo_entry):
        return damaged(area, page_head(page).page_id)
    at = HEAD_SIZE + slot % per_page * _ENTRY_SIZE
    change(area, page)
    entry = entry_record(page + at)
    entry.number = number
    entry.scn = scn
    log_bytes(area, page, at, _ENTRY_SIZE)
    return DONE


@routine
def enter_commit(area, slot, scn):
    """The transaction in the slot has committed."""
    return _write_entry(area, slot, transaction_at(area, slot).number, scn)


@routine
def clear_entry(area, slot):
    """Nothing of the transaction is left."""
    return _write_entry(area, slot, 0, 0)
