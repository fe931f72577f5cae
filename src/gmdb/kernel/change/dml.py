"""Insert, update, delete and lock rows, on behalf of a transaction.

Invariants
 1. A row, its lock and its undo record change in one kernel call, while the row's home page is marked as
    changing: nobody sees one without the others.
 2. A kernel that returns a status has changed nothing.
"""

from __future__ import annotations

from gmdb.format.address import NO_PAGE, NO_SLOT
from gmdb.format.heap import NODE_AT
from gmdb.format.redo import ChangeOperation
from gmdb.format.row import NO_LOCK, SIZE_AT
from gmdb.kernel.change.index_upkeep import (
    add_row_entries,
    change_row_entries,
    mark_row_entries,
    prepare,
    require_space,
    require_undo,
)
from gmdb.kernel.gate import begin_work, end_work, is_as_read, may_change, may_read
from gmdb.kernel.heap import (
    FLAG_DELETE,
    FLAG_LINK,
    FLAGS_AT,
    LOAD_NUMBER_AT,
    data_of,
    flags_of,
    heap_node,
    home_of,
    lock_of,
    place_row,
    replace_row,
    row_fits,
    row_in_slot,
    set_deleted,
    set_lock,
)
from gmdb.kernel.lob import collect_lobs, note_lobs
from gmdb.kernel.locks import (
    CHAIN_MAX,
    DELETE,
    INSERT,
    U_LOCK,
    UPDATE,
    free_lock,
    load_is_open,
    lock_at,
    lock_beneath,
    locks_available,
    new_lock,
    transaction_at,
)
from gmdb.kernel.page.area import (
    address_of,
    begin_change,
    damaged,
    end_change,
    holds_rows,
    page_head,
    page_size_of,
    state_of,
    touch,
)
from gmdb.kernel.page.redo import close_group, log_change, require_log_room
from gmdb.kernel.places import page_of, place_of, slot_of
from gmdb.kernel.read.visibility import ROW_BUFFER, load_is_seen, resolve, snapshot_at
from gmdb.kernel.row import extract_image, merge_patch
from gmdb.kernel.runtime.call import call_at, target_at
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u16, load_u32, move_bytes, store_8, store_16, store_32
from gmdb.kernel.runtime.python_api import Gate, Object
from gmdb.kernel.runtime.status import (
    CHANGED,
    DAMAGED,
    DELETED,
    DONE,
    LOCKED,
    LOCKS_FULL,
    LOG_FULL,
    NOT_FOUND,
    NOT_NOW,
    RECORDS_FULL,
    ROW_TOO_LARGE,
)
from gmdb.kernel.undo import (
    LINK_SIZE,
    OP_DELETE,
    OP_INSERT,
    OP_LOCK,
    OP_UPDATE,
    OP_UPDATE_INC,
    RECORD_SIZE,
    SHADOW,
    copy_body,
    find_record,
    log_again,
    log_newest,
    newest_place,
    record_lock,
    record_operation,
    record_row_page,
    record_row_slot,
    reserve_undo,
    write_link,
    write_record,
)
from gmdb.kernel.values import read_row, write_row

_INSERT_BODY = 4
_DELETE_BODY = 4
_LOCK_BODY = 4
INSERTED, UPDATED, DELETED_ROW = (
    int(ChangeOperation.INSERT),
    int(ChangeOperation.UPDATE),
    int(ChangeOperation.DELETE),
)
BATCH_HEAD = 16  # bytes of a row of a batch before its patch
STATUS_BITS = 8
LOB_RECORDS = 4  # pages of undo that the records of all large objects of a row take


@routine
def _require_room(area, target):
    """Whether what the call logs and what undo it writes has room."""
    call = call_at(target.call)
    if call.record_count > call.record_limit:
        return RECORDS_FULL
    return LOG_FULL if require_log_room(area) < 0 else DONE


@routine
def _begin(area, target):
    """The call, with its statement begun if it is one of its own."""
    call = call_at(target.call)
    call.undo = -1
    call.blocked = -1
    if call.alone:
        call.statement += 1
        call.insert_lock = -1
        if call.latest:
            call.scn = state_of(area).scn
    return call


@routine
def _end(area, call, result):
    """Close the group of what the call changed."""
    number = transaction_at(area, call.transaction).number if call.transaction >= 0 else 0
    return close_group(area, number, result)


@routine
def _claim(area, call, page, word):
    """Whether the call's transaction may change a row with this lock word: DONE, or why not."""
    lock_id = word & NO_LOCK
    for _ in range(CHAIN_MAX):
        if lock_id == NO_LOCK:
            break
        lock = lock_at(area, lock_id)
        if lock.action == 0:
            lock_id = NO_LOCK  # nobody holds it
            break
        if lock.transaction == call.transaction:
            break
        scn = transaction_at(area, lock.transaction).scn
        if scn == 0:
            if lock.action == INSERT or load_is_open(area, load_i64(page + LOAD_NUMBER_AT)):
                return NOT_FOUND  # the holder brought the row itself
            call.blocker = lock.transaction
            return LOCKED
        if lock.action != U_LOCK:
            if scn > call.scn:
                return CHANGED
            break
        lock_id = lock.previous
    if lock_id == NO_LOCK and not load_is_seen(area, call, page):
        return NOT_FOUND
    return DELETED if word >> 24 & FLAG_DELETE else DONE


@routine
def _claimed_home(area, call, obj_id, page_id, slot):
    """The row in a home slot if the call's transaction may change it, or why not."""
    home = home_of(area, obj_id, page_id, slot)
    if home < 0:
        return home
    status = _claim(area, call, address_of(area, page_id), load_u32(home))
    return status if status < 0 else home


@routine
def _holds(area, call, row):
    """Whether the row's lock is the call's transaction's own."""
    lock_id = lock_of(row)
    if lock_id == NO_LOCK or lock_at(area, lock_id).action == 0:
        return False
    return lock_at(area, lock_id).transaction == call.transaction


@routine
def _lock_row(area, call, page_id, slot, row, action):
    """The lock under which the transaction changes the row: its own, or a new one on top of what is there.

    A lock that the row shares with others is replaced by one of its own; a U-lock becomes the action's.
    """
    lock_id = lock_of(row)
    if not _holds(area, call, row):
        return new_lock(area, call.transaction, action, call.statement, page_id, slot, lock_beneath(area, lock_id))
    lock = lock_at(area, lock_id)
    if lock.row_slot == NO_SLOT:
        own = new_lock(area, call.transaction, INSERT, lock.statement, page_id, slot, lock_id)
        lock.above = NO_LOCK  # others share it: what lies above is found through the rows
        return own
    if lock.action == U_LOCK:
        lock.action = action
        lock.statement = call.statement
    return lock_id


@routine
def _log_change(area, call, page_id, slot, obj_id, entry_id, lock_id, before, operation, body, body_size):
    """Write the undo record of a change under ``lock_id``, and make it the lock's newest."""
    lock = lock_at(area, lock_id)
    further = lock.undo_page != NO_PAGE or lock.action == INSERT
    size = body_size + (LINK_SIZE if further else 0)
    record = write_record(area, call, page_id, slot, lock_id, obj_id, entry_id, operation, size)
    copy_body(record, body, body_size)
    word = lock_id if further else SHADOW if before == NO_LOCK else before
    store_32(record + RECORD_SIZE, word)
    if further:
        write_link(record, place_of(lock.undo_page, lock.undo_slot), call.statement)
    log_newest(area, call, record)
    lock.undo_page = page_of(call.undo)
    lock.undo_slot = slot_of(call.undo)
    lock.last_statement = call.statement


@routine
def _insert(area, target, call, size):
    obj_id, entry_id, row = target.obj_id, target.entry_id, target.buffer
    if not row_fits(size, page_size_of(area, entry_id)):
        return ROW_TOO_LARGE
    status = prepare(area, call, target, row, 0, -1) if target.index_count else DONE
    if status == DONE:
        status = reserve_undo(area, call, RECORD_SIZE + _INSERT_BODY)
    if status < 0:
        return status
    if call.insert_lock < 0 and locks_available(area) < 1:
        return LOCKS_FULL
    lock_id = call.insert_lock
    if lock_id < 0:
        lock_id = new_lock(area, call.transaction, INSERT, call.statement, NO_PAGE, NO_SLOT, NO_LOCK)
        lock_at(area, lock_id).rows = 0
        call.insert_lock = lock_id
    store_32(row, lock_id)
    place = place_row(area, entry_id, row, size)
    if place < 0:
        if lock_at(area, lock_id).rows == 0:
            free_lock(area, lock_id)
            call.insert_lock = -1
        return place
    lock_at(area, lock_id).rows += 1
    _log_insert(area, call, page_of(place), slot_of(place), obj_id, entry_id, lock_id)
    if target.feed:
        log_change(area, call, target.feed, INSERTED, place, newest_place(area, call), row, size, row, 0, 0)
    status = add_row_entries(area, call, target, row, lock_id, place)
    return place if status == DONE else status


@kernel
def insert_row(area, target_address, size):
    """Add the row in the buffer to a heap; returns its place, or a status."""
    target = target_at(target_address)
    status = _require_room(area, target)
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _insert(area, target, call, size))


@kernel
def insert_values(area, target_address, gate: Gate, shape, values: Object):
    """``insert_row`` of values in column order, a tuple or list, as a whole operation."""
    target = target_at(target_address)
    if not may_change(area, target, gate):
        return NOT_NOW
    size = write_row(shape, values, target.buffer)
    status = _require_room(area, target) if size > 0 else size
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _insert(area, target, call, size))


@routine
def _log_insert(area, call, page_id, slot, obj_id, entry_id, lock_id):
    """Count the row into the record before, if that is about the slots before it; else write one."""
    newest = newest_place(area, call)
    record = find_record(area, page_of(newest), slot_of(newest)) if slot_of(newest) != NO_SLOT else NOT_FOUND
    if record > 0 and record_operation(record) == OP_INSERT and record_lock(record) == lock_id:
        count = load_u16(record + RECORD_SIZE)
        if record_row_page(record) == page_id and record_row_slot(record) + count == slot:
            store_16(record + RECORD_SIZE, count + 1)
            log_again(area, call, record)
            return
    record = write_record(area, call, page_id, slot, lock_id, obj_id, entry_id, OP_INSERT, _INSERT_BODY)
    store_32(record + RECORD_SIZE, 1)
    log_newest(area, call, record)


@routine
def _update(area, target, call, place):
    obj_id, entry_id, patch = target.obj_id, target.entry_id, target.buffer
    page_id, slot = page_of(place), slot_of(place)
    home = _claimed_home(area, call, obj_id, page_id, slot)
    if home < 0:
        return home
    page = address_of(area, page_id)
    old = data_of(area, home)
    if old < 0:
        return old
    row, image = state_of(area).scratch, state_of(area).scratch + ROW_BUFFER
    size = merge_patch(row, old, patch)
    call.size = size
    if size < 0 or not row_fits(size, page_size_of(area, page_id)):
        return ROW_TOO_LARGE
    before_row = 0
    if target.index_count:
        before_row = row + 2 * ROW_BUFFER
        move_bytes(before_row, old, load_u16(old + SIZE_AT))
        status = prepare(area, call, target, row, before_row, place)
        if status < 0:
            return status
    operation = OP_UPDATE_INC
    image_size = extract_image(image, old, patch)
    if image_size > load_u16(old + SIZE_AT):
        operation = OP_UPDATE
        image_size = load_u16(old + SIZE_AT)
        move_bytes(image, old, image_size)
    lobs = collect_lobs(target, call, old, patch)
    status = require_undo(area, LOB_RECORDS) if lobs else DONE
    if status == DONE:
        status = reserve_undo(area, call, RECORD_SIZE + image_size + LINK_SIZE)
    if status < 0:
        return status
    if locks_available(area) < 1:
        return LOCKS_FULL
    begin_change(area, page_id)
    status = replace_row(area, entry_id, page_id, page, slot, row, size)
    home = row_in_slot(page, page_size_of(area, page_id), slot)
    if status == DONE and home < 0:
        status = damaged(area, page_id)
    if status == DONE:
        before = lock_beneath(area, lock_of(home))
        lock_id = _lock_row(area, call, page_id, slot, home, UPDATE)
        set_lock(area, page, home, lock_id)
        _log_change(area, call, page_id, slot, obj_id, entry_id, lock_id, before, operation, image, image_size)
        if target.feed:
            is_patch = 1 if operation == OP_UPDATE_INC else 0
            log_change(area, call, target.feed, UPDATED, place, call.undo, row, size, image, image_size, is_patch)
        if target.index_count:
            status = change_row_entries(area, call, target, row, before_row, lock_id, place)
        if status == DONE:
            status = note_lobs(area, call, target, lobs)
    end_change(area, page_id)
    return call.undo if status == DONE else status


@kernel
def update_row(area, target_address, place):
    """Put the columns of the patch in the buffer into a row; returns where the undo record is.  Its row id stays."""
    target = target_at(target_address)
    status = _require_room(area, target)
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _update(area, target, call, place))


@kernel
def update_values(area, target_address, gate: Gate, as_read, place, shape, values: Object):
    """``update_row`` by new values of the shape's columns, a tuple or list, as a whole operation.

    ``as_read``: only if everything still is as ``find_values`` has read it.
    """
    target = target_at(target_address)
    if not may_change(area, target, gate) or (as_read and not is_as_read(area, call_at(target.call))):
        return NOT_NOW
    size = write_row(shape, values, target.buffer)
    status = _require_room(area, target) if size > 0 else size
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _update(area, target, call, place))


@routine
def _delete(area, target, call, place):
    obj_id, entry_id = target.obj_id, target.entry_id
    page_id, slot = page_of(place), slot_of(place)
    home = _claimed_home(area, call, obj_id, page_id, slot)
    if home < 0:
        return home
    page = address_of(area, page_id)
    data = data_of(area, home)
    if data < 0:
        return data
    status = require_space(area, target, target.index_count) if target.index_count else DONE
    lobs = collect_lobs(target, call, data, 0)
    if status == DONE and lobs:
        status = require_undo(area, target.index_count + LOB_RECORDS)
    if status == DONE:
        status = reserve_undo(area, call, RECORD_SIZE + _DELETE_BODY + LINK_SIZE)
    if status < 0:
        return status
    if locks_available(area) < 1:
        return LOCKS_FULL
    begin_change(area, page_id)
    before = lock_beneath(area, lock_of(home))
    lock_id = _lock_row(area, call, page_id, slot, home, DELETE)
    set_lock(area, page, home, lock_id)
    set_deleted(area, page, home, True)
    _log_change(area, call, page_id, slot, obj_id, entry_id, lock_id, before, OP_DELETE, home, _DELETE_BODY)
    if target.feed:
        log_change(area, call, target.feed, DELETED_ROW, place, call.undo, data, load_u16(data + SIZE_AT), data, 0, 0)
    if target.index_count:
        status = mark_row_entries(area, call, target, data_of(area, home), lock_id, place)
    if status == DONE:
        status = note_lobs(area, call, target, lobs)
    end_change(area, page_id)
    return status


@kernel
def delete_row(area, target_address, place):
    """Set the row's DELETE flag; GC removes the row."""
    target = target_at(target_address)
    status = _require_room(area, target)
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _delete(area, target, call, place))


@routine
def _lock(area, target, call, place):
    page_id, slot = page_of(place), slot_of(place)
    home = _claimed_home(area, call, target.obj_id, page_id, slot)
    if home < 0:
        return home
    page = address_of(area, page_id)
    if _holds(area, call, home):
        return DONE
    status = reserve_undo(area, call, RECORD_SIZE + _LOCK_BODY)
    if status < 0:
        return status
    before = lock_beneath(area, lock_of(home))
    lock_id = new_lock(area, call.transaction, U_LOCK, call.statement, page_id, slot, before)
    if lock_id < 0:
        return lock_id
    begin_change(area, page_id)
    set_lock(area, page, home, lock_id)
    record = write_record(area, call, page_id, slot, lock_id, target.obj_id, target.entry_id, OP_LOCK, _LOCK_BODY)
    store_32(record + RECORD_SIZE, SHADOW if before == NO_LOCK else before)
    log_newest(area, call, record)
    end_change(area, page_id)
    return DONE


@kernel
def lock_row(area, target_address, place):
    """Hold the row against other writers until the transaction ends: a U-lock."""
    target = target_at(target_address)
    status = _require_room(area, target)
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _lock(area, target, call, place))


@kernel
def delete_as_read(area, target_address, gate: Gate, place):
    """``delete_row`` as a whole operation, if everything still is as ``find_values`` has read it."""
    target = target_at(target_address)
    if not may_change(area, target, gate) or not is_as_read(area, call_at(target.call)):
        return NOT_NOW
    status = _require_room(area, target)
    if status < 0:
        return status
    call = _begin(area, target)
    return _end(area, call, _delete(area, target, call, place))


@kernel
def change_rows(area, target_address, count):
    """Update or delete the rows of a batch in the buffer, in order, until one cannot be changed.

    The batch: for each row its place and the bytes of its patch (i64s), then the patch; without one it is deleted.
    Returns how many rows were changed << STATUS_BITS | the status of the next one, negated; 0: there is none.
    """
    target = target_at(target_address)
    call = call_at(target.call)
    batch = target.buffer
    entry, done, status = batch, 0, DONE
    for _ in range(count):
        status = _require_room(area, target)
        if status < 0:
            break
        if done == 0:
            call = _begin(area, target)
        call.undo = -1
        call.blocked = -1
        place, size = load_i64(entry), load_i64(entry + 8)
        if size == 0:
            status = _end(area, call, _delete(area, target, call, place))
        else:
            target.buffer = entry + BATCH_HEAD
            status = _end(area, call, _update(area, target, call, place))
            target.buffer = batch
        if status < 0:
            break
        entry += BATCH_HEAD + size
        done += 1
    return done << STATUS_BITS | (-status if status < 0 else 0)


@kernel
def holds_row(area, target_address, place):
    """Whether the call's transaction has locked or changed the row: 1 or 0."""
    target = target_at(target_address)
    home = home_of(area, target.obj_id, page_of(place), slot_of(place))
    return 1 if home > 0 and _holds(area, call_at(target.call), home) else 0


@routine
def _fetch(area, target, snapshot_address, place):
    page_id, slot = page_of(place), slot_of(place)
    if snapshot_address == 0:
        call = call_at(target.call)
        if call.latest:
            call.scn = state_of(area).scn
        snapshot_address = target.call
    snapshot = snapshot_at(snapshot_address)
    home = home_of(area, target.obj_id, page_id, slot)
    if home < 0:
        return home
    version = data_of(area, home)
    if version < 0:
        return version
    seen = load_is_seen(area, snapshot, address_of(area, page_id))
    version = resolve(area, snapshot, load_u32(home), version, seen, state_of(area).scratch, page_id, slot)
    if version < 0:
        return version
    size = load_u16(version + SIZE_AT)
    move_bytes(target.buffer, version, size)
    store_8(target.buffer + FLAGS_AT, 0)
    return size


@kernel
def fetch_row(area, target_address, snapshot_address, place):
    """Copy the version of a row that the snapshot sees to the buffer; returns its bytes, or a status.

    Without a snapshot, the session's own: the newest commit if it reads by that.
    """
    return _fetch(area, target_at(target_address), snapshot_address, place)


@kernel
def fetch_values(area, target_address, gate: Gate, place, shape) -> Object:
    """The values of a row as the newest commit, and the session's own changes, have it: a tuple, or a status."""
    target = target_at(target_address)
    if not may_read(area, target, gate):
        return NOT_NOW
    size = _fetch(area, target, 0, place)
    if size <= 0:
        return size
    begin_work(area, gate)
    values = read_row(shape, target.buffer)
    end_work(area, gate)
    return values


@kernel
def list_rows(area, snapshot_address, obj_id, page_id, slots):
    """Write the slots (u16) of the page's rows that the snapshot sees; returns their number."""
    snapshot = snapshot_at(snapshot_address)
    page = touch(area, page_id)
    if page < 0:
        return page
    if page_head(page).obj_id != obj_id or not holds_rows(page_head(page)):
        return 0
    page_size = page_size_of(area, page_id)
    seen = load_is_seen(area, snapshot, page)
    count = 0
    for slot in range(heap_node(page + NODE_AT).slot_count):
        home = row_in_slot(page, page_size, slot)
        if home < 0 or flags_of(home) & FLAG_LINK:
            continue
        version = data_of(area, home)
        if version < 0:
            return version
        version = resolve(area, snapshot, load_u32(home), version, seen, state_of(area).scratch, page_id, slot)
        if version == DAMAGED:
            return version
        if version >= 0:
            store_16(slots + 2 * count, slot)
            count += 1
    return count
