"""The lock area and the transaction table, in memory only.

A row's lock id leads to a lock: which transaction holds the row, its first action on it, its newest undo record
of it, and the lock that the row had before.

Invariants
 1. A lock id is free only when no row and no undo image holds it.
 2. A lock keeps its transaction's first action on the row.  Rows that one statement inserts share a lock until
    one of them is changed again.
 3. ``previous`` names the lock beneath, or none if every snapshot sees what its holder did; ``above`` of
    a lock that is not shared names the lock whose ``previous`` it is.
"""

from __future__ import annotations

from enum import IntEnum

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.layout import Structure
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType
from gmdb.format.row import NO_LOCK
from gmdb.format.segment import SEGMENT_HEAD_AT
from gmdb.format.transactions import TRANSACTION_ENTRY
from gmdb.kernel.page.area import change, damaged, page_head, page_size_of, segment_head, state_of, touch_type
from gmdb.kernel.page.redo import log_bytes, log_counts
from gmdb.kernel.page.segment import add_page, touch_entry
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import fill_bytes, load_u32, records, store_32
from gmdb.kernel.runtime.status import DONE, LOCKS_FULL

LOCKS_MAX = 1 << 24
TRANSACTIONS_MAX = 1 << 22
CHAIN_MAX = 1 << 20  # locks on one row; in a file written by another program they may go round in a circle
ACTIVE, ROLLED_BACK = 0, -1  # what ``scn`` says of a transaction that has not committed


class LockAction(IntEnum):
    """What a transaction did first to a row."""

    NONE = 0
    INSERT = 1
    UPDATE = 2
    DELETE = 3
    U_LOCK = 4


LOCK = Structure(
    [
        ("transaction", "<u4"),  # slot in the transaction table
        ("action", "<u4"),
        ("previous", "<u4"),  # the lock beneath; NO_LOCK = none
        ("above", "<u4"),  # the lock on top of this one; NO_LOCK = none
        ("row_page", "<u4"),  # the row; of a shared lock, none
        ("row_slot", "<u4"),
        ("undo_page", "<u4"),  # the newest undo record of the row; NO_PAGE = none
        ("undo_slot", "<u4"),
        ("statement", "<u4"),  # of the first action
        ("last_statement", "<u4"),  # of the newest change
        ("rows", "<u4"),  # rows that share the lock
        ("u_locked", "<u4"),  # 1: it was a U-lock first
        ("next_free", "<u4"),
    ]
)

TRANSACTION = Structure(
    [
        ("number", "<i8"),  # never used again
        ("scn", "<i8"),  # when it committed; ACTIVE or ROLLED_BACK
        ("locks", "<i8"),  # locks it holds or held that are not yet freed
        ("reserved", "<i8"),
    ]
)

LOAD = Structure([("number", "<i8"), ("transaction", "<i8"), ("statement", "<i8")])

lock_record = records(LOCK)
transaction_record = records(TRANSACTION)
load_record = records(LOAD)
LOCK_SIZE, TRANSACTION_SIZE, LOAD_SIZE = LOCK.itemsize, TRANSACTION.itemsize, LOAD.itemsize


@routine
def lock_at(area, lock_id):
    return lock_record(state_of(area).locks + lock_id * LOCK_SIZE)


@routine
def transaction_at(area, slot):
    return transaction_record(state_of(area).transactions + slot * TRANSACTION_SIZE)


@routine
def locks_available(area):
    state = state_of(area)
    return state.lock_limit - state.locks_used


@routine
def new_lock(area, transaction, action, statement, page_id, slot, previous):
    """A lock for a row (or, with slot NO_SLOT, for the rows of a statement); LOCKS_FULL if there is none."""
    state = state_of(area)
    if state.locks_used >= state.lock_limit:
        return LOCKS_FULL
    lock_id = state.lock_free
    if lock_id != NO_LOCK:
        state.lock_free = lock_at(area, lock_id).next_free
    else:
        lock_id = state.lock_high
        state.lock_high += 1
    state.locks_used += 1
    lock = lock_at(area, lock_id)
    lock.transaction = transaction
    lock.action = action
    lock.previous = previous
    lock.above = NO_LOCK
    lock.row_page = page_id
    lock.row_slot = slot
    lock.undo_page = NO_PAGE
    lock.undo_slot = NO_SLOT
    lock.statement = statement
    lock.last_statement = statement
    lock.rows = 1
    lock.u_locked = 1 if action == U_LOCK else 0
    transaction_at(area, transaction).locks += 1
    if previous != NO_LOCK:
        lock_at(area, previous).above = lock_id
    return lock_id


@routine
def free_lock(area, lock_id):
    """Nothing holds the lock id any more."""
    state = state_of(area)
    lock = lock_at(area, lock_id)
    transaction_at(area, lock.transaction).locks -= 1
    fill_bytes(state.locks + lock_id * LOCK_SIZE, 0, LOCK_SIZE)
    lock.next_free = state.lock_free
    state.lock_free = lock_id
    state.locks_used -= 1


@routine
def load_is_open(area, number):
    """Whether the bulk load of that number is still running: others must not put rows on its pages."""
    state = state_of(area)
    for i in range(state.load_count):
        load = load_record(state.loads + i * LOAD_SIZE)
        if number and load.number == number:
            return transaction_at(area, load.transaction).scn == ACTIVE
    return False


@routine
def seen_by_all(area, transaction):
    """Whether the transaction committed before every snapshot that is still in use."""
    scn = transaction_at(area, transaction).scn
    return 0 < scn <= state_of(area).oldest


@routine
def lock_beneath(area, lock_id):
    """The lock that counts for a new holder: past U-locks that have ended, none if everyone sees its work."""
    for _ in range(CHAIN_MAX):
        if lock_id == NO_LOCK:
            break
        lock = lock_at(area, lock_id)
        if lock.action == U_LOCK:
            lock_id = lock.previous
        elif lock.action == 0 or seen_by_all(area, lock.transaction):
            return NO_LOCK  # gmdb leaves no row with a lock that no transaction holds: something else wrote it
        else:
            return lock_id
    return NO_LOCK


@routine
def lock_above(area, top, lock_id):
    """Which lock, from a row's ``top`` on downwards, lies on another one; NO_LOCK if none does."""
    for _ in range(CHAIN_MAX):
        if top == NO_LOCK or lock_at(area, top).action == 0:
            break
        if lock_at(area, top).previous == lock_id:
            return top
        top = lock_at(area, top).previous
    return NO_LOCK


INSERT, UPDATE, DELETE, U_LOCK = (
    int(LockAction.INSERT),
    int(LockAction.UPDATE),
    int(LockAction.DELETE),
    int(LockAction.U_LOCK),
)


# ---- The end of transactions, and the table of those that committed: format/transactions.py says what it is for.
#
# Invariants
#  1. A transaction that has written undo has a page for its entry in the table, so that committing needs no space.
#  2. The entry goes when none of the transaction's undo records is left.

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
        page = add_page(area, segment_head(undo + SEGMENT_HEAD_AT).child_seg, 0)
        if page < 0:
            return page
        head = page_head(page)
        head.page_type = _TABLE
        head.free_begin = head.free_end
        log_bytes(area, page, _TYPE_AT, 2)
        log_counts(area, page)
        store_32(state.table_pages + 4 * state.table_page_count, head.page_id)
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
