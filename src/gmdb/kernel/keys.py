"""Keys of index entries: made from rows, compared column by column.

An entry has the row header's shape, a pointer of 8 bytes, then its key columns as a row stores them.  Keys are compared
where they lie: the first column that differs decides, and what follows it is not looked at.  NULL sorts last.
"""

from __future__ import annotations

from gmdb.format.btree import INDEX_HEAD, KEY_BYTES_MAX, POINTER_SIZE, Order
from gmdb.format.row import BITS_AT, COL_COUNT_AT, ROW_HEAD, SIZE_AT, UNLOCKED
from gmdb.kernel.columns import copy_short
from gmdb.kernel.compiler import routine
from gmdb.kernel.memory import load_i32, load_i64, load_u8, load_u16, load_u32, records, store_16, store_32, store_64
from gmdb.kernel.patch import column_code, header_bytes, stored_bytes
from gmdb.kernel.status import KEY_TOO_LONG, NOT_FOUND

POINTER_AT = ROW_HEAD.size
VALUES_AT = POINTER_AT + POINTER_SIZE
ENTRY_BUFFER = 2048


index_head = records(INDEX_HEAD)
_ORDERS_AT, _POSITIONS_AT = INDEX_HEAD.offset("orders"), INDEX_HEAD.offset("positions")
_WORD, _LONG, _DOUBLE, _WIDE, _BYTES = (int(order) for order in Order)
_EIGHT = 2
_LOWEST = -(1 << 63)
_LOWEST_WORD = -(1 << 31)
_NO_LIMIT = (1 << 63) - 1
_MAGNITUDE = (1 << 63) - 1
_INFINITY = 0x7FF0_0000_0000_0000


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
def _compare_values(order, a, b):
    if order == _WORD:
        return _order_numbers(load_i32(a), load_i32(b))
    if order == _LONG:
        return _order_numbers(load_i64(a), load_i64(b))
    if order == _DOUBLE:
        return _order_numbers(order_of_double(load_i64(a)), order_of_double(load_i64(b)))
    if order == _WIDE:
        high = _order_numbers(load_i64(a + 10), load_i64(b + 10))
        return high if high else _order_numbers(load_i64(a + 2) ^ _LOWEST, load_i64(b + 2) ^ _LOWEST)
    return _compare_bytes(a, b)


@routine
def order_at(index, number):
    """How values of a key column are compared."""
    return load_u8(index + _ORDERS_AT + number)


@routine
def _is_of_order(order, code, value):
    """Whether a value that is stored so can be one of a key column, NULL apart."""
    if order == _WORD:
        return code == 1
    if order == _LONG or order == _DOUBLE:
        return code == 2
    return code == 3 and (order != _WIDE or load_u16(value) == 16)


@routine
def has_shape(index, entry):
    """Whether an entry, which is sound, has the index's key columns, and at most 8 bytes more.

    Whoever compares keys goes by the index's columns, so an entry that has others would lead it astray.
    """
    columns, count, bits = key_columns(index), load_u16(entry + COL_COUNT_AT), load_u32(entry + BITS_AT)
    at = entry + VALUES_AT
    if count < columns or count > columns + 1 or (count > columns and bits >> 2 * columns & 3 != _EIGHT):
        return False
    for n in range(columns):
        code = bits >> 2 * n & 3
        if code:
            if not _is_of_order(order_at(index, n), code, at):
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
        if a_code == 0 or b_code == 0:
            if a_code != b_code:
                return 1 if a_code == 0 else -1
            continue
        result = _compare_values(order_at(index, n), a, b)
        if result:
            return result
        a += stored_bytes(a, a_code)
        b += stored_bytes(b, b_code)
    return 0


@routine
def has_null(index, entry):
    """Whether a key column is NULL: such keys are never each other's duplicates."""
    bits = load_u32(entry + BITS_AT)
    for n in range(key_columns(index)):
        if bits >> 2 * n & 3 == 0:
            return True
    return False


@routine
def _value_in_row(row, number, limit):
    """Where a column's value lies in a row that has it; 0 if that would be behind ``limit``."""
    at = row + header_bytes(load_u16(row + COL_COUNT_AT))
    for n in range(number):
        if at > limit:
            return 0
        at += stored_bytes(at, column_code(row, n))
    return at


@routine
def make_entry(index, row, entry, row_id):
    """Write the leaf entry of a row; answers its size, or KEY_TOO_LONG."""
    return make_entry_within(index, row, _NO_LIMIT, entry, row_id)


@routine
def make_entry_within(index, row, limit, entry, row_id):
    """``make_entry`` of a row that may be nonsense, if somebody changes it meanwhile: it is not read behind ``limit``.

    NOT_FOUND if it is nonsense for sure.
    """
    to, bits = entry + VALUES_AT, 0
    for n in range(key_columns(index)):
        number = load_u16(index + _POSITIONS_AT + 2 * n)
        code = column_code(row, number)
        if code == 0:
            continue
        value = _value_in_row(row, number, limit)
        length = stored_bytes(value, code) if 0 < value <= limit else 0
        if length == 0 or value + length > limit:
            return NOT_FOUND
        if to + length - entry - VALUES_AT > KEY_BYTES_MAX:
            return KEY_TOO_LONG
        if not _is_of_order(order_at(index, n), code, value):
            continue  # a row that is not its table's: whoever reads it will say so
        copy_short(to, value, length)
        bits |= code << 2 * n
        to += length
    size = to - entry
    store_32(entry, UNLOCKED)
    store_16(entry + SIZE_AT, size)
    store_16(entry + COL_COUNT_AT, key_columns(index))
    store_32(entry + BITS_AT, bits)
    store_64(entry + POINTER_AT, row_id)
    return size


@routine
def _first_bytes(value):
    """The first eight bytes of a value with its length, as a number that sorts as they do."""
    length, number = load_u16(value), 0
    for i in range(8):
        number = number << 8 | (load_u8(value + 2 + i) if i < length else 0)
    return number


@routine
def sort_prefix(index, entry):
    """A number whose bits, read as unsigned, sort as the entry's key does, as far as they go; NULL is the highest."""
    if load_u32(entry + BITS_AT) & 3 == 0:
        return -1
    order, value = load_u8(index + _ORDERS_AT), entry + VALUES_AT
    if order == _WORD:
        return load_i32(value) - _LOWEST_WORD
    if order == _LONG:
        return load_i64(value) ^ _LOWEST
    if order == _DOUBLE:
        return order_of_double(load_i64(value)) ^ _LOWEST
    if order == _WIDE:
        return load_i64(value + 10) ^ _LOWEST
    return _first_bytes(value)


@routine
def row_id_word(page_id, slot):
    """A row id as the 8 bytes that an entry points with."""
    return page_id | slot << 32 | -1 << 48


@routine
def place_of_word(word):
    """page id << 16 | slot of a row id's 8 bytes."""
    return (word & 0xFFFF_FFFF) << 16 | (word >> 32 & 0xFFFF)
