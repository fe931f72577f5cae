"""Indexes kept in step with rows: what an insert, update or delete of a row does to the indexes of its table.

An index has an entry for each key that some version of a row has, for as long as somebody may need that version.
A read by an entry looks at the row: the version that its snapshot sees must have the entry's key.  So entries
need no versions of their own.  An entry whose key the newest version no longer has is marked DELETE; the undo record of
that leads garbage collection to it.

Invariants
 1. ``prepare`` finds out all that could fail, before anything is changed.
 2. A unique index has no two rows whose newest versions, committed or not, have the same key without a NULL.
"""

from __future__ import annotations

from gmdb.format.address import UNDO_DEVICE
from gmdb.format.row import NO_LOCK, UNLOCKED
from gmdb.format.segment import SEGMENT_HEAD_AT
from gmdb.format.undo import UndoOperation
from gmdb.kernel.entries import make_entry
from gmdb.kernel.heap import FLAG_DELETE, LOAD_NUMBER_AT, data_of, flags_of, home_of, lock_of
from gmdb.kernel.indexes.any_index import (
    add_entry,
    entry_at,
    find_entry,
    first_with_key,
    next_with_key,
    open_index,
    pages_for_entry,
    require_pages,
    take_entry,
)
from gmdb.kernel.indexes.btree import add_sought
from gmdb.kernel.indexes.hash import require_room
from gmdb.kernel.indexes.index_head import OTHER_AT, entry_page_of, is_hash, object_of, space_of
from gmdb.kernel.indexes.index_node import entry_size, set_word
from gmdb.kernel.locks import (
    ACTIVE,
    CHAIN_MAX,
    LOAD_SIZE,
    U_LOCK,
    load_record,
    lock_above,
    lock_at,
    seen_by_all,
    transaction_at,
)
from gmdb.kernel.page.allocation import pages_available
from gmdb.kernel.page.area import damaged, segment_head, state_of, touch
from gmdb.kernel.page.redo import close_group, require_log_room
from gmdb.kernel.page.segment import touch_entry
from gmdb.kernel.places import page_of, place_of_word, slot_of, word_of_place
from gmdb.kernel.row import (
    POINTER_AT,
    compare_keys,
    has_null,
    has_shape,
    index_head,
    key_columns,
    unique_columns,
)
from gmdb.kernel.runtime.compiler import kernel, routine
from gmdb.kernel.runtime.memory import load_i64, load_u32, move_bytes, store_32
from gmdb.kernel.runtime.status import ABSENT, DONE, DUPLICATE, LOCKED, LOG_FULL, NEED_SPACE, NOT_FOUND, UNDO_FULL
from gmdb.kernel.undo import (
    RECORD_SIZE,
    SHADOW,
    copy_body,
    find_record,
    log_newest,
    record_entry,
    record_lock,
    record_object,
    record_operation,
    record_row_page,
    record_size,
    reserve_undo,
    write_record,
)

_ADD, _TAKE = int(UndoOperation.BTREE_INSERT), int(UndoOperation.BTREE_DELETE)
_HASH_ADD, _HASH_TAKE = int(UndoOperation.HASH_INSERT), int(UndoOperation.HASH_DELETE)
_SHADOW_ADD, _SHADOW_TAKE = int(UndoOperation.BTREE_INSERT_SHADOW), int(UndoOperation.BTREE_DELETE_SHADOW)
_HASH_SHADOW_ADD, _HASH_SHADOW_TAKE = int(UndoOperation.HASH_INSERT_SHADOW), int(UndoOperation.HASH_DELETE_SHADOW)
BUILDING = 1 << 32  # in a table's list of indexes: one that is being built
INDEXES_MAX = 16  # of a table
_UNDO_SPACE = UNDO_DEVICE
_DELETED = FLAG_DELETE << 24


@routine
def _entry_buffer(area):
    return state_of(area).index_scratch


@routine
def _other_buffer(area):
    return state_of(area).index_scratch + OTHER_AT


@routine
def _index(area, target, n):
    return open_index(area, load_i64(target.indexes + 8 * n) & (BUILDING - 1))


@routine
def _is_building(target, n):
    return load_i64(target.indexes + 8 * n) & BUILDING != 0


@routine
def is_of_entry(operation):
    """Whether undo records of an operation are about index entries."""
    return _ADD <= operation <= _HASH_SHADOW_TAKE


@routine
def is_shadow(operation):
    """Whether an operation is about an index that was being built, and so did nothing to it."""
    return _SHADOW_ADD <= operation <= _HASH_SHADOW_TAKE


@routine
def adds_entry(operation):
    """Whether an operation on an entry put one in; else it took one out."""
    return operation & 1 == 0


# ---- before a change


@routine
def require_space(area, target, records):
    """Whether the tablespace has pages for splits in every index, and undo for so many more records."""
    need, space_id = 2, 0
    for n in range(target.index_count):
        index = _index(area, target, n)
        if index < 0:
            return index
        pages = pages_for_entry(area, index)
        if pages < 0:
            return pages
        need += pages
        space_id = space_of(index)
    return NEED_SPACE if pages_available(area, space_id) < need else require_undo(area, records)


@routine
def require_undo(area, records):
    """Whether there is undo for so many more records, each of them on a page of its own if need be."""
    if pages_available(area, _UNDO_SPACE) < records + 2:
        return NEED_SPACE
    undo = touch_entry(area, state_of(area).undo_entry)
    if undo < 0:
        return undo
    used = segment_head(undo + SEGMENT_HEAD_AT).page_count
    return UNDO_FULL if used + records + 2 > state_of(area).undo_limit else DONE


@routine
def _loader(area, page):
    """The transaction whose bulk load of the page is still open; -1 if there is none."""
    number = load_i64(page + LOAD_NUMBER_AT)
    state = state_of(area)
    for i in range(state.load_count):
        load = load_record(state.loads + i * LOAD_SIZE)
        if number and load.number == number and transaction_at(area, load.transaction).scn == ACTIVE:
            return load.transaction
    return -1


@routine
def _changer(area, call, row, page):
    """The other transaction, still open, that has changed or brought the row; -1 if there is none."""
    lock_id = lock_of(row)
    for _ in range(CHAIN_MAX):
        if lock_id == NO_LOCK:
            break
        lock = lock_at(area, lock_id)
        if lock.action == 0:
            break  # nobody holds it
        if lock.action != U_LOCK:
            is_open = lock.transaction != call.transaction and transaction_at(area, lock.transaction).scn == ACTIVE
            return lock.transaction if is_open else -1
        lock_id = lock.previous
    loader = _loader(area, page)
    return -1 if loader == call.transaction else loader


@routine
def _check_row(area, call, target, index, entry, place):
    """Whether the row at a place stands in the way of a key: DUPLICATE, LOCKED if that is not decided yet."""
    row = home_of(area, target.obj_id, page_of(place), slot_of(place))
    if row < 0:
        return DONE
    call.blocked = place
    other = _changer(area, call, row, touch(area, page_of(place)))
    if other >= 0:
        call.blocker = other
        return LOCKED
    if flags_of(row) & FLAG_DELETE:
        return DONE
    data = data_of(area, row)
    if data < 0:
        return data
    buffer = _other_buffer(area)
    if make_entry(index, data, buffer, 0) < 0 or compare_keys(index, buffer, entry, unique_columns(index)):
        return DONE
    return DUPLICATE


@routine
def _is_given_up(area, word):
    """Whether an entry was marked by a transaction that has ended: its row, locked or not, does not have the key."""
    lock_id = word & NO_LOCK
    if not word & _DELETED or lock_id == NO_LOCK or lock_at(area, lock_id).action == 0:
        return word & _DELETED != 0
    return transaction_at(area, lock_at(area, lock_id).transaction).scn != ACTIVE


@routine
def _check_unique(area, call, target, index, entry, own):
    """Whether another row than ``own`` has the entry's key."""
    if not index_head(index).unique or has_null(index, entry):
        return DONE
    at = first_with_key(area, index, entry)
    call.is_sought = 1 if at == NOT_FOUND and target.index_count == 1 and not is_hash(index) else 0
    while at >= 0:  # ends: one entry comes behind the other, which ``next_with_key`` ensures
        found = entry_at(area, at)
        place = place_of_word(load_i64(found + POINTER_AT))
        if place != own and not _is_given_up(area, load_u32(found)):
            status = _check_row(area, call, target, index, entry, place)
            if status < 0:
                return status
        at = next_with_key(area, index, entry, at)
    return DONE if at == NOT_FOUND else at


@routine
def prepare(area, call, target, new, old, own):
    """Find out whether a row can be inserted, or given new data: DONE, or why not.  ``old`` is 0 for an insert."""
    call.is_sought = 0
    status = require_space(area, target, 2 * target.index_count)
    if status < 0:
        return status
    for turn in range(target.index_count):
        n = (call.first_index + turn) % target.index_count
        index, entry = _index(area, target, n), _entry_buffer(area)
        call.index = n
        size = make_entry(index, new, entry, word_of_place(own))
        if size == ABSENT:
            continue
        if size < 0:
            return size
        if old:
            if not _key_changes(area, index, entry, old):
                continue
            status = require_room(area, index, entry) if is_hash(index) else DONE
            if status < 0:
                return status
        status = DONE if _is_building(target, n) else _check_unique(area, call, target, index, entry, own)
        if status < 0:
            return status
    return DONE


@routine
def _key_changes(area, index, entry, old):
    """Whether a row's key is another one than that of ``entry``."""
    buffer = _other_buffer(area)
    if make_entry(index, old, buffer, 0) == ABSENT:
        return True
    return compare_keys(index, buffer, entry, key_columns(index)) != 0


# ---- changes


@routine
def _note(area, call, index, entry, operation, lock_id, word, place):
    """Write the undo record of a change of an entry; there is space for it, unless pages of undo are damaged."""
    size = entry_size(entry)
    status = reserve_undo(area, call, RECORD_SIZE + size)
    if status < 0:
        return status
    obj_id, entry_id = object_of(index), entry_page_of(index)
    record = write_record(area, call, page_of(place), slot_of(place), lock_id, obj_id, entry_id, operation, size)
    copy_body(record, entry, size)
    store_32(record + RECORD_SIZE, word)
    log_newest(area, call, record)
    call.is_unordered = 1
    return DONE


@routine
def _add(area, call, index, row, lock_id, place, is_new):
    """Have an entry for the row's key, if rows like it have any: a new one, or one that was marked as deleted.

    A new row has none of those.
    """
    entry = _entry_buffer(area)
    if make_entry(index, row, entry, word_of_place(place)) == ABSENT:
        return DONE
    store_32(entry, lock_id)
    found, word = NOT_FOUND if is_new else find_entry(area, index, entry), SHADOW
    if found >= 0:
        page, there = touch(area, page_of(found)), entry_at(area, found)
        word = load_u32(there)
        set_word(area, page, there, lock_id)
    else:
        status = add_sought(area, index, entry) if is_new and call.is_sought else add_entry(area, index, entry)
        if status < 0:
            return status
    return _note(area, call, index, entry, _HASH_ADD if is_hash(index) else _ADD, lock_id, word, place)


@routine
def _mark(area, call, index, row, lock_id, place):
    """The newest version of the row no longer has this key."""
    entry = _entry_buffer(area)
    if make_entry(index, row, entry, word_of_place(place)) == ABSENT:
        return DONE
    found = find_entry(area, index, entry)
    if found < 0:
        return DONE
    page, there = touch(area, page_of(found)), entry_at(area, found)
    word = load_u32(there)
    set_word(area, page, there, lock_id | _DELETED)
    return _note(area, call, index, entry, _HASH_TAKE if is_hash(index) else _TAKE, lock_id, word, place)


@routine
def _note_shadow(area, call, index, row, adds, lock_id, place):
    """Record for the build of an index a key that a row has now, or no longer has."""
    entry = _entry_buffer(area)
    if make_entry(index, row, entry, word_of_place(place)) == ABSENT:
        return DONE
    operation = (_SHADOW_ADD if adds else _SHADOW_TAKE) + (_HASH_SHADOW_ADD - _SHADOW_ADD if is_hash(index) else 0)
    return _note(area, call, index, entry, operation, lock_id, SHADOW, place)


@routine
def add_row_entries(area, call, target, row, lock_id, place):
    """A row was inserted."""
    for n in range(target.index_count):
        index = _index(area, target, n)
        if _is_building(target, n):
            status = _note_shadow(area, call, index, row, True, lock_id, place)
        else:
            status = _add(area, call, index, row, lock_id, place, True)
        if status < 0:
            return status
    return DONE


@routine
def add_entry_checked(area, call, target, n, entry, lock_id):
    """``add_row_entries``, for one index, of a row whose entry is at hand: with all checks, so that it may fail."""
    status = require_space(area, target, 2)
    if status < 0:
        return status
    index, place = _index(area, target, n), place_of_word(load_i64(entry + POINTER_AT))
    operation = _HASH_ADD if is_hash(index) else _ADD
    if _is_building(target, n):
        operation += _SHADOW_ADD - _ADD
    else:
        status = _check_unique(area, call, target, index, entry, place)
        if status == DONE:
            store_32(entry, lock_id)
            status = add_entry(area, index, entry)
    return status if status < 0 else _note(area, call, index, entry, operation, lock_id, SHADOW, place)


@routine
def change_row_entries(area, call, target, new, old, lock_id, place):
    """A row was given new data."""
    for n in range(target.index_count):
        index, entry = _index(area, target, n), _entry_buffer(area)
        is_gone = make_entry(index, new, entry, 0) == ABSENT
        if make_entry(index, old, entry, 0) == ABSENT if is_gone else not _key_changes(area, index, entry, old):
            continue
        if _is_building(target, n):
            status = _note_shadow(area, call, index, old, False, lock_id, place)
            if status == DONE:
                status = _note_shadow(area, call, index, new, True, lock_id, place)
        else:
            status = _mark(area, call, index, old, lock_id, place)
            if status == DONE:
                status = _add(area, call, index, new, lock_id, place, False)
        if status < 0:
            return status
    return DONE


@routine
def mark_row_entries(area, call, target, row, lock_id, place):
    """A row was deleted."""
    for n in range(target.index_count):
        index = _index(area, target, n)
        if _is_building(target, n):
            status = _note_shadow(area, call, index, row, False, lock_id, place)
        else:
            status = _mark(area, call, index, row, lock_id, place)
        if status < 0:
            return status
    return DONE


# ---- afterwards


@routine
def recorded_entry(area, record):
    """The entry that an undo record is about, in a buffer."""
    buffer = _entry_buffer(area)
    move_bytes(buffer, record + RECORD_SIZE, record_size(record) - RECORD_SIZE)
    return buffer


@routine
def _open_recorded(area, record):
    """The index that an undo record is about; negative if it was dropped."""
    page = touch(area, record_entry(record))
    if page < 0:
        return page
    index = open_index(area, record_entry(record))
    if index > 0 and object_of(index) != record_object(record):
        return -1
    return index


@routine
def take_back_entry(area, record, locked):
    """Undo what a record says of an entry."""
    index = _open_recorded(area, record)
    if index < 0 or is_shadow(record_operation(record)):
        return DONE
    word, entry = load_u32(record + RECORD_SIZE), recorded_entry(area, record)
    if not has_shape(index, entry):
        return damaged(area, record_row_page(record))
    is_free = word == SHADOW or not _is_held(area, record, word & NO_LOCK, locked)
    if adds_entry(record_operation(record)) and is_free:
        take_entry(area, index, entry)
        return DONE
    found = find_entry(area, index, entry)
    if found >= 0:
        set_word(area, touch(area, page_of(found)), entry_at(area, found), word | NO_LOCK if is_free else word)
    return DONE


@routine
def _is_held(area, record, lock_id, locked):
    """Whether the lock that an entry had before a change is still the row's, and its purge will come by.

    If not, nobody would take that lock off the entry, or remove an entry that was marked under it.  The purge of what
    everyone sees may have come by already: entries come first, and the row has the lock until its own turn.
    """
    if lock_id == NO_LOCK or record_lock(record) == NO_LOCK:
        return False
    if lock_id == record_lock(record):
        return True  # the same transaction's
    above = lock_above(area, record_lock(record), lock_id) if locked else NO_LOCK
    beneath = lock_id if above != NO_LOCK else NO_LOCK
    return beneath != NO_LOCK and not seen_by_all(area, lock_at(area, beneath).transaction)


@routine
def purge_entry(area, record):
    """Everyone sees the change that the record is about: an entry that was deleted goes, any other has no lock."""
    index = _open_recorded(area, record)
    if index < 0 or is_shadow(record_operation(record)):
        return
    entry = recorded_entry(area, record)
    found = find_entry(area, index, entry) if has_shape(index, entry) else NOT_FOUND
    if found < 0:
        return
    page, there = touch(area, page_of(found)), entry_at(area, found)
    word = load_u32(there)
    if word & NO_LOCK != record_lock(record):
        return
    if word & _DELETED and not adds_entry(record_operation(record)):
        take_entry(area, index, entry)
    elif adds_entry(record_operation(record)) and not word & _DELETED:
        set_word(area, page, there, word | NO_LOCK)


# ---- Catching up: what transactions did to a table while an index on it was being built.
#
# They could not change the index itself, for it was not all there; their undo records, the SHADOW operations, say what
# they would have done.  The build applies them, transaction by transaction in the order of commits.


@routine
def _shadow(area, index, entry_id, place):
    """The undo record at a place, if it is a shadow operation on the index; else NOT_FOUND."""
    record = find_record(area, page_of(place), slot_of(place))
    if record < 0 or not is_shadow(record_operation(record)):
        return NOT_FOUND
    return record if record_entry(record) == entry_id and record_object(record) == object_of(index) else NOT_FOUND


@routine
def _apply(area, index, record):
    entry = recorded_entry(area, record)
    store_32(entry, UNLOCKED)
    if not adds_entry(record_operation(record)):
        status = take_entry(area, index, entry)
        return DONE if status == NOT_FOUND else status
    status = require_pages(area, index)
    if status == DONE and find_entry(area, index, entry) == NOT_FOUND:
        status = add_entry(area, index, entry)
    return status


@kernel
def apply_shadows(area, entry_id, places, count):
    """Do to an index what the shadow operations among some undo records, given by their places (i64s), say.

    Returns how many records were looked at, fewer than ``count`` if it is to be called again for the others.
    """
    index = open_index(area, entry_id)
    if index < 0:
        return index
    for i in range(count):
        record = _shadow(area, index, entry_id, load_i64(places + 8 * i))
        if record < 0:
            continue
        status = LOG_FULL if require_log_room(area) < 0 else _apply(area, index, record)
        close_group(area, 0, DONE)
        if status < 0:
            return i if i else status
    return count


@kernel
def check_shadows(area, entry_id, places, count):
    """DUPLICATE if a key that was added has two rows now."""
    index = open_index(area, entry_id)
    if index < 0:
        return index
    for i in range(count):
        record = _shadow(area, index, entry_id, load_i64(places + 8 * i))
        if record < 0 or not adds_entry(record_operation(record)):
            continue
        entry = recorded_entry(area, record)
        if has_null(index, entry):
            continue
        place = first_with_key(area, index, entry)
        if place >= 0 and next_with_key(area, index, entry, place) >= 0:
            return DUPLICATE
    return DONE
