"""Who sees a row, and which version of it.

The rule is a table: the row's DELETE flag and the lock's action give, for the lock's own transaction and for
others, VISIBLE, INVISIBLE or FROM_UNDO.  By snapshots: a transaction that committed before the
snapshot counts as no lock; any other that is not the reader's own is "other".  Under another's U-lock or
delete, and beneath a version that came from undo, it is applied again with the lock word of before.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.format.layout import Structure
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.kernel.heap import FLAG_DELETE, LOAD_NUMBER_AT
from gmdb.kernel.locks import (
    CHAIN_MAX,
    DELETE,
    INSERT,
    LOAD_SIZE,
    U_LOCK,
    UPDATE,
    load_record,
    lock_at,
    transaction_at,
)
from gmdb.kernel.page.area import damaged, state_of
from gmdb.kernel.places import page_of, slot_of
from gmdb.kernel.row import merge_patch
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u16, move_bytes, records
from gmdb.kernel.runtime.status import INVISIBLE, NOT_FOUND
from gmdb.kernel.undo import (
    OP_DELETE,
    OP_UPDATE,
    OP_UPDATE_INC,
    RECORD_SIZE,
    SHADOW,
    chain_max,
    find_record,
    image_word,
    is_further,
    prior_record,
    record_lock,
    record_operation,
    record_row_page,
    record_row_slot,
    record_statement,
)

VISIBLE, HIDDEN, FROM_UNDO = 0, 1, 2
ROW_BUFFER = 1 << 16

SNAPSHOT = Structure(
    [
        ("scn", "<i8"),  # commits up to this one are seen
        ("transaction", "<i8"),  # the reader's own slot in the transaction table; -1 = none
        ("statement", "<i8"),  # own changes up to this statement are seen
    ]
)
snapshot_at = records(SNAPSHOT)


@routine
def decide(deleted, action, own):
    """The table.  ``deleted``: the row's flag; ``action``: the lock's, 0 for none."""
    if action == 0:
        return HIDDEN if deleted else VISIBLE
    if own:
        return HIDDEN if deleted else VISIBLE
    if action == INSERT:
        return HIDDEN
    if action == UPDATE:
        return FROM_UNDO
    return VISIBLE  # another's U-lock or delete: as the row was beneath it


@kernel
def decide_visibility(deleted, action, own):
    """``decide`` for callers in Python."""
    return decide(deleted, action, own)


@routine
def _is_own(area, snapshot, lock):
    return lock.transaction == snapshot.transaction and lock.statement <= snapshot.statement


@routine
def committed_before(area, transaction, scn):
    committed = transaction_at(area, transaction).scn
    return 0 < committed <= scn


@routine
def load_is_seen(area, snapshot, page):
    """Whether the reader sees rows without a lock on the page: the bulk load that filled it must have committed."""
    number = load_i64(page + LOAD_NUMBER_AT)
    if number == 0:
        return True
    state = state_of(area)
    for i in range(state.load_count):
        load = load_record(state.loads + i * LOAD_SIZE)
        if load.number == number:
            if load.transaction == snapshot.transaction:
                return load.statement <= snapshot.statement
            return committed_before(area, load.transaction, snapshot.scn)
    return True  # no snapshot is older than it


@routine
def _undo_change(record, version, buffer, word):
    """Take one change back; returns (where the version before lies, its lock word)."""
    operation = record_operation(record)
    before = image_word(record)
    if before == SHADOW:
        before = NO_LOCK
    if operation == OP_DELETE:
        return version, before
    if operation == OP_UPDATE:
        move_bytes(buffer, record + RECORD_SIZE, load_u16(record + RECORD_SIZE + SIZE_AT))
        return buffer, before
    if operation == OP_UPDATE_INC:
        other = buffer if version != buffer else buffer + ROW_BUFFER
        merge_patch(other, version, record + RECORD_SIZE)
        return other, before
    return version, word


@routine
def _names_row(record, lock_id, page_id, slot):
    return record_lock(record) == lock_id and record_row_page(record) == page_id and record_row_slot(record) == slot


@routine
def _undo_lock(area, snapshot, lock_id, version, buffer, page_id, slot, all_of_it, steps):
    """Take back a lock's changes of the row, newest first: all, or those after the snapshot's statement.

    Returns (version, lock word beneath, how many of ``steps`` are left).  NOT_FOUND if the chain does not lead to this
    row, DAMAGED if it has more records than steps.
    """
    lock = lock_at(area, lock_id)
    word = lock_id
    at_page, at_slot = lock.undo_page, lock.undo_slot
    for step in range(steps):
        left = steps - step
        if at_page == NO_PAGE:
            return version, word, left
        record = find_record(area, at_page, at_slot)
        if record < 0 or not _names_row(record, lock_id, page_id, slot):
            return NOT_FOUND, word, left
        further = is_further(record)
        if not all_of_it and (not further or _seen_statement(record, snapshot.statement)):
            return version, word, left
        version, word = _undo_change(record, version, buffer, word)
        if not further:
            return version, word, left - 1
        prior = prior_record(record)
        at_page, at_slot = page_of(prior), slot_of(prior)
    return damaged(area, lock.undo_page), word, 0


@routine
def _seen_statement(record, statement):
    """Whether a further change was made by the statement or before it; they count modulo 2^16."""
    return (statement - record_statement(record)) & 0xFFFF < 0x8000


@routine
def resolve(area, snapshot, word, version, page_seen, buffer, page_id, slot):
    """The version of a row that the snapshot sees: its address, or INVISIBLE; NOT_FOUND: look at the page again.

    DAMAGED if locks or undo records lead round in a circle.

    ``word`` is the row's lock word, ``version`` where its data lies; ``buffer`` takes versions built from undo.
    """
    steps = chain_max(area)
    for _ in range(CHAIN_MAX):
        deleted = word >> 24 & FLAG_DELETE
        lock_id = word & NO_LOCK
        if lock_id == NO_LOCK or state_of(area).locks == 0:  # a closed database has no locks
            return version if page_seen and not deleted else INVISIBLE
        lock = lock_at(area, lock_id)
        action = lock.action
        if action == 0:
            word |= NO_LOCK  # left behind by a transaction of another time
            continue
        if action == U_LOCK:
            word = (word & ~NO_LOCK) | lock.previous
            continue
        if _is_own(area, snapshot, lock):
            if lock.last_statement <= snapshot.statement:
                return version if decide(deleted, action, True) == VISIBLE else INVISIBLE
            version, _, _ = _undo_lock(area, snapshot, lock_id, version, buffer, page_id, slot, False, steps)
            return version  # a change that it had not seen deleted the row, or altered it
        if committed_before(area, lock.transaction, snapshot.scn):
            return version if not deleted else INVISIBLE
        decision = decide(deleted, action, False)
        if decision == HIDDEN:
            return INVISIBLE
        if decision == VISIBLE and action != DELETE:
            return NOT_FOUND
        version, word, steps = _undo_lock(area, snapshot, lock_id, version, buffer, page_id, slot, True, steps)
        if version < 0:
            return version
    return damaged(area, page_id)
