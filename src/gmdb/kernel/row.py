"""Rows as bytes: values of Arrow columns into them, patches of some columns, and keys of index entries."""

from __future__ import annotations

from gmdb.format.btree import (
    DESCENDING,
    INDEX_HEAD,
    NULLS_COUNT,
    NULLS_FIRST,
    ORDER_MASK,
    POINTER_SIZE,
    Order,
)
from gmdb.format.interval import DAY, DAYS_A_MONTH
from gmdb.format.layout import Structure
from gmdb.format.lob import TEXT_LOCATOR, TEXT_MARK, TEXT_MORE_MARK
from gmdb.format.row import BITS_AT, COL_COUNT_AT, ROW_HEAD, SIZE_AT
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    move_bytes,
    records,
    store_8,
    store_16,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.status import ROW_TOO_LARGE

# ---- An Arrow column as kernels see it: where its buffers are, and how its values go into and out of rows.
#
# Rows are moved column by column in blocks: the choice of what to do with a column is made once a block, and the
# block's rows, a few kilobytes, stay in the CPU's nearest cache while their columns are done one after the other.

BLOCK_ROWS = 512

ARROW_COLUMN = Structure(
    [
        ("kind", "<i8"),  # format.columns.Kind
        ("wanted", "<i8"),  # 0: the column is only passed over
        ("values", "<i8"),  # address of fixed-width values, or of the bytes of variable ones
        ("validity", "<i8"),  # address of the validity bits; 0 = no value is null
        ("offsets", "<i8"),  # address of the 32-bit offsets of variable values
        ("first", "<i8"),  # number of the first value: what an Arrow slice starts at
        ("used", "<i8"),  # bytes of variable values written so far
        ("capacity", "<i8"),  # bytes of variable values that there is room for
        ("nulls", "<i8"),  # nulls so far
        ("length_max", "<i8"),  # bytes that a variable value may have
        ("padding", "<i8"),  # byte that fills shorter values up to length_max; -1 = none
    ]
)
arrow_column = records(ARROW_COLUMN)
COLUMN_SIZE = ARROW_COLUMN.itemsize


@routine
def get_bit(bits, number):
    return load_u8(bits + (number >> 3)) >> (number & 7) & 1


@routine
def clear_bit(bits, number):
    at = bits + (number >> 3)
    store_8(at, load_u8(at) & ~(1 << (number & 7)))


@routine
def set_bit(bits, number):
    at = bits + (number >> 3)
    store_8(at, load_u8(at) | 1 << (number & 7))


@routine
def copy_short(target, source, length):
    """Copy some bytes, most often few: eight at a time, the last eight over the ones before."""
    if length > 64:
        move_bytes(target, source, length)
    elif length >= 8:
        at = 0
        while at < length - 8:
            store_64(target + at, load_i64(source + at))
            at += 8
        store_64(target + length - 8, load_i64(source + length - 8))
    elif length >= 4:
        last = load_u32(source + length - 4)
        store_32(target, load_u32(source))
        store_32(target + length - 4, last)
    elif length > 0:
        middle, last = load_u8(source + (length >> 1)), load_u8(source + length - 1)
        store_8(target, load_u8(source))
        store_8(target + (length >> 1), middle)
        store_8(target + length - 1, last)


# ---- Patches: some columns of a row, and putting them in.
#
# A patch has a row's shape (header, size bits, values), for the columns that it is about; then their numbers, as
# u16s in ascending order.  An update is a patch; so is the undo image of one, which says what it changed.

_SIZE_MAX = 0xFFFF


@routine
def header_bytes(column_count):
    return BITS_AT + 4 * max((column_count + 15) >> 4, 1)


@routine
def column_code(row, number):
    """The size code of a column; a column that the row is too old to have is null."""
    if number >= load_u16(row + COL_COUNT_AT):
        return 0
    return load_u32(row + BITS_AT + 4 * (number >> 4)) >> 2 * (number & 15) & 3


@routine
def stored_bytes(value, code):
    """How many bytes a value takes in the row, its length included."""
    return 2 + load_u16(value) if code == 3 else 4 * code


_TEXT_LOCATOR_SIZE = TEXT_LOCATOR.size
_MORE_MARK_AT = TEXT_LOCATOR.offset("more_mark")
_MARK = int.from_bytes(bytes(TEXT_MARK), "little")
_MORE_MARK = int.from_bytes(TEXT_MORE_MARK.to_bytes(8, "little"), "little", signed=True)


@routine
def is_text_locator(cell, size):
    """Whether the bytes of a TEXT or BYTEA, a NUL left out, say where the value is."""
    return size == _TEXT_LOCATOR_SIZE and load_u32(cell) == _MARK and load_i64(cell + _MORE_MARK_AT) == _MORE_MARK


@routine
def is_apart(value, code):
    """Whether a value of a row, which has a length before it, is a TEXT or BYTEA on pages of its own."""
    return (
        code == 3 and 0 <= load_u16(value) - _TEXT_LOCATOR_SIZE <= 1 and is_text_locator(value + 2, _TEXT_LOCATOR_SIZE)
    )


@routine
def _set_code(row, number, code):
    at = row + BITS_AT + 4 * (number >> 4)
    store_32(at, load_u32(at) | code << 2 * (number & 15))


@routine
def patch_bytes(patch):
    """All of a patch: the row-shaped part, the numbers, and what fills it up to four bytes."""
    return (load_u16(patch + SIZE_AT) + 2 * load_u16(patch + COL_COUNT_AT) + 3) & ~3


@routine
def patched_number(patch, index):
    return load_u16(patch + load_u16(patch + SIZE_AT) + 2 * index)


@routine
def merge_patch(target, row, patch):
    """Write the row with the patch's columns put in; returns its size."""
    patched = load_u16(patch + COL_COUNT_AT)
    count = load_u16(row + COL_COUNT_AT)
    if patched:
        count = max(count, patched_number(patch, patched - 1) + 1)
    head = header_bytes(count)
    for at in range(BITS_AT, head, 4):
        store_32(target + at, 0)
    from_row = row + header_bytes(load_u16(row + COL_COUNT_AT))
    from_patch = patch + header_bytes(patched)
    to, index = target + head, 0
    for number in range(count):
        code = column_code(row, number)
        source, length = from_row, stored_bytes(from_row, code)
        from_row += length
        if index < patched and patched_number(patch, index) == number:
            code = column_code(patch, index)
            source, length = from_patch, stored_bytes(from_patch, code)
            from_patch += length
            index += 1
        if to + length - target > _SIZE_MAX or from_row - row > 2 * _SIZE_MAX:
            return ROW_TOO_LARGE
        copy_short(to, source, length)
        _set_code(target, number, code)
        to += length
    store_32(target, load_u32(row))
    store_16(target + SIZE_AT, to - target)
    store_16(target + COL_COUNT_AT, count)
    return to - target


@routine
def _same_bytes(one, other, length):
    for i in range(length):
        if load_u8(one + i) != load_u8(other + i):
            return False
    return True


@routine
def _walk_changes(row, patch, target, numbers):
    """Visit the columns that the patch changes; returns how many they are, and the bytes they have in ``row``.

    With a target, their values go there (size bits to the header before it), their numbers to ``numbers``.
    """
    from_row = row + header_bytes(load_u16(row + COL_COUNT_AT))
    from_patch = patch + header_bytes(load_u16(patch + COL_COUNT_AT))
    number, found, size = 0, 0, 0
    for index in range(load_u16(patch + COL_COUNT_AT)):
        wanted = patched_number(patch, index)
        while number < wanted:
            from_row += stored_bytes(from_row, column_code(row, number))
            number += 1
        code, new_code = column_code(row, number), column_code(patch, index)
        length, new_length = stored_bytes(from_row, code), stored_bytes(from_patch, new_code)
        if code != new_code or length != new_length or not _same_bytes(from_row, from_patch, length):
            if target:
                head = target + header_bytes(load_u16(target + COL_COUNT_AT))
                copy_short(head + size, from_row, length)
                _set_code(target, found, code)
                store_16(numbers + 2 * found, number)
            found += 1
            size += length
        from_patch += new_length
    return found, size


@routine
def extract_image(target, row, patch):
    """Write, as a patch, the values that ``row`` has now in the columns that ``patch`` changes; returns its bytes."""
    changed, value_bytes = _walk_changes(row, patch, 0, 0)
    head = header_bytes(changed)
    for at in range(BITS_AT, head, 4):
        store_32(target + at, 0)
    end = target + head + value_bytes
    store_16(target + SIZE_AT, head + value_bytes)
    store_16(target + COL_COUNT_AT, changed)
    store_16(end + 2 * changed, 0)  # what fills the patch up to four bytes
    _walk_changes(row, patch, target, end)
    return patch_bytes(target)


# ---- Keys of index entries: made from rows, compared column by column.
#
# An entry has the row header's shape, a pointer of 8 bytes, then its key columns as a row stores them.  Keys are
# compared where they lie: the first column that differs decides, and what follows it is not looked at.  NULL sorts
# last, unless the index's head has another place for a column's NULLs.

POINTER_AT = ROW_HEAD.size
VALUES_AT = POINTER_AT + POINTER_SIZE
ENTRY_BUFFER = 2048


index_head = records(INDEX_HEAD)
_ORDERS_AT, _POSITIONS_AT = INDEX_HEAD.offset("orders"), INDEX_HEAD.offset("positions")
_WORD, _LONG, _DOUBLE, _WIDE, _BYTES, _REAL, _INTERVAL = (int(order) for order in Order)
_EIGHT = 2
_LOWEST = -(1 << 63)
_LOWEST_WORD = -(1 << 31)
_NO_LIMIT = (1 << 63) - 1
_MAGNITUDE = (1 << 63) - 1
_INFINITY = 0x7FF0_0000_0000_0000
_REAL_MAGNITUDE = (1 << 31) - 1
_REAL_INFINITY = 0x7F80_0000
_DAY = DAY * 1000  # nanoseconds


@routine
def key_columns(index):
    """How many columns a key has.  ``index`` is where the index's head lies, on its entry page."""
    return index_head(index).column_count


@routine
def _sign(difference):
    return 1 if difference > 0 else -1 if difference < 0 else 0


@routine
def _order_numbers(a, b):
    return 1 if a > b else -1 if a < b else 0


@routine
def order_of_double(bits):
    """A number that sorts as the double does: zeros are equal, all NaNs are, above everything."""
    if bits & _MAGNITUDE > _INFINITY:
        return _MAGNITUDE
    if bits >= 0:
        return bits
    return 0 if bits == _LOWEST else -(bits & _MAGNITUDE)


@routine
def order_of_real(bits):
    """The same for a REAL."""
    if bits & _REAL_MAGNITUDE > _REAL_INFINITY:
        return _REAL_MAGNITUDE
    if bits >= 0:
        return bits
    return -(bits & _REAL_MAGNITUDE)


@routine
def days_of_interval(value):
    """The whole days of an interval, whose months have 30."""
    return load_i32(value + 2) * DAYS_A_MONTH + load_i32(value + 6) + load_i64(value + 10) // _DAY


@routine
def rest_of_interval(value):
    """The nanoseconds behind its whole days."""
    return load_i64(value + 10) % _DAY


@routine
def _compare_bytes(a, b):
    """Two values with their lengths: the first byte that differs, then the length, decides."""
    a_length, b_length = load_u16(a), load_u16(b)
    a, b = a + 2, b + 2
    common, i = min(a_length, b_length), 0
    while i + 8 <= common and load_i64(a + i) == load_i64(b + i):
        i += 8
    while i < common:
        difference = load_u8(a + i) - load_u8(b + i)
        if difference:
            return _sign(difference)
        i += 1
    return _sign(a_length - b_length)


@routine
def compare_values(order, a, b):
    if order == _WORD:
        return _order_numbers(load_i32(a), load_i32(b))
    if order == _LONG:
        return _order_numbers(load_i64(a), load_i64(b))
    if order == _DOUBLE:
        return _order_numbers(order_of_double(load_i64(a)), order_of_double(load_i64(b)))
    if order == _WIDE:
        high = _order_numbers(load_i64(a + 10), load_i64(b + 10))
        return high if high else _order_numbers(load_i64(a + 2) ^ _LOWEST, load_i64(b + 2) ^ _LOWEST)
    if order == _REAL:
        return _order_numbers(order_of_real(load_i32(a)), order_of_real(load_i32(b)))
    if order == _INTERVAL:
        days = _order_numbers(days_of_interval(a), days_of_interval(b))
        return days if days else _order_numbers(rest_of_interval(a), rest_of_interval(b))
    return _compare_bytes(a, b)


@routine
def order_at(index, number):
    """How values of a key column are compared."""
    return load_u8(index + _ORDERS_AT + number) & ORDER_MASK


@routine
def unique_columns(index):
    """How many of the first key columns a unique index knows rows by: the others are only kept in it."""
    head = index_head(index)
    return head.unique_columns if head.unique_columns else head.column_count


@routine
def is_of_order(order, code, value):
    """Whether a value that is stored so can be one of a key column, NULL apart."""
    if order == _WORD or order == _REAL:
        return code == 1
    if order == _LONG or order == _DOUBLE:
        return code == 2
    return code == 3 and ((order != _WIDE and order != _INTERVAL) or load_u16(value) == 16)


@routine
def has_shape(index, entry):
    """Whether an entry, which is sound, has the index's key columns, and at most 8 bytes more.

    Keys are compared by the index's columns, so an entry with others would be read beyond its end.
    """
    columns, count, bits = key_columns(index), load_u16(entry + COL_COUNT_AT), load_u32(entry + BITS_AT)
    at = entry + VALUES_AT
    if count < columns or count > columns + 1 or (count > columns and bits >> 2 * columns & 3 != _EIGHT):
        return False
    for n in range(columns):
        code = bits >> 2 * n & 3
        if code:
            if not is_of_order(order_at(index, n), code, at):
                return False
            at += stored_bytes(at, code)
    return True


@routine
def compare_keys(index, a, b, columns):
    """Compare the first ``columns`` key columns of two entries: -1, 0 or 1."""
    a_bits, b_bits = load_u32(a + BITS_AT), load_u32(b + BITS_AT)
    a, b = a + VALUES_AT, b + VALUES_AT
    for n in range(columns):
        a_code, b_code = a_bits >> 2 * n & 3, b_bits >> 2 * n & 3
        order = load_u8(index + _ORDERS_AT + n)
        if a_code == 0 or b_code == 0:
            if a_code != b_code:
                return 1 if (a_code == 0) == (order & NULLS_FIRST == 0) else -1
            continue
        result = compare_values(order & ORDER_MASK, a, b)
        if result:
            return -result if order & DESCENDING else result
        a += stored_bytes(a, a_code)
        b += stored_bytes(b, b_code)
    return 0


@routine
def has_null(index, entry):
    """Whether a key is never another one's duplicate in a unique index, since it has a NULL, unless these count."""
    if index_head(index).unique == NULLS_COUNT:
        return False
    bits = load_u32(entry + BITS_AT)
    for n in range(unique_columns(index)):
        if bits >> 2 * n & 3 == 0:
            return True
    return False


@routine
def value_in_row(row, number, limit):
    """Where a column's value lies in a row that has it; 0 if that would be behind ``limit``."""
    at = row + header_bytes(load_u16(row + COL_COUNT_AT))
    for n in range(number):
        if at > limit:
            return 0
        at += stored_bytes(at, column_code(row, n))
    return at


@routine
def _first_bytes(value):
    """The first eight bytes of a value with its length, as a number that sorts as they do."""
    length, number = load_u16(value), 0
    for i in range(8):
        number = number << 8 | (load_u8(value + 2 + i) if i < length else 0)
    return number


@routine
def sort_prefix(index, entry):
    """A number whose bits, read as unsigned, sort as the entry's key does, as far as they go; NULL is at an end."""
    order = load_u8(index + _ORDERS_AT)
    if load_u32(entry + BITS_AT) & 3 == 0:
        return 0 if order & NULLS_FIRST else -1
    prefix = _prefix_of_value(order & ORDER_MASK, entry + VALUES_AT)
    return ~prefix if order & DESCENDING else prefix


@routine
def _prefix_of_value(order, value):
    """``sort_prefix`` of a value that is not NULL, in ascending order."""
    if order == _WORD:
        return load_i32(value) - _LOWEST_WORD
    if order == _LONG:
        return load_i64(value) ^ _LOWEST
    if order == _DOUBLE:
        return order_of_double(load_i64(value)) ^ _LOWEST
    if order == _WIDE:
        return load_i64(value + 10) ^ _LOWEST
    if order == _REAL:
        return order_of_real(load_i32(value)) ^ _LOWEST
    if order == _INTERVAL:
        return days_of_interval(value) ^ _LOWEST
    return _first_bytes(value)
