"""Addresses of hash index entries: a hash of the key in the upper 40 bits, one of the row id in the lower 24.

So all entries of one key lie in one run of addresses, and however many they are, they differ.  An address is an
unsigned number of 64 bits, kept in a signed one.  Keys that ``compare_keys`` calls equal have the same hash.

An entry of a hash index has the shape of a B-tree's leaf entry and one more column, its address.
"""

from __future__ import annotations

from gmdb.format.btree import Order
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT
from gmdb.kernel.btree_page import entry_size
from gmdb.kernel.compiler import routine
from gmdb.kernel.keys import POINTER_AT, VALUES_AT, key_columns, order_at, order_of_double, place_of_word
from gmdb.kernel.memory import (
    load_i32,
    load_i64,
    load_u8,
    load_u16,
    load_u32,
    multiply,
    store_16,
    store_32,
    store_64,
    wrap,
)
from gmdb.kernel.patch import stored_bytes

ROW_BITS = 24
PLACE_BITS = 48
_WORD, _LONG, _DOUBLE, _WIDE = int(Order.WORD), int(Order.LONG), int(Order.DOUBLE), int(Order.WIDE)
_KEY_MASK, _ROW_MASK = (1 << 40) - 1, (1 << ROW_BITS) - 1
_FIRST, _SECOND = 0x2545_F491_4F6C_DD1D, -0x4B47_D0C5_C0D3_2F4B  # odd, their bits in no order
_NULL = 0x6E75_6C6C
ROW_FACTOR = 0x9E37_79B9_7F4B  # odd, so that row ids that lie together are spread evenly
_LOWEST = -(1 << 63)
_EIGHT = 2


@routine
def _mix(state, word):
    """A state of 64 bits that depends on every bit of the state before and of a word."""
    state = multiply(state ^ word, _FIRST)
    state ^= state >> 29 & 0x7_FFFF_FFFF
    state = multiply(state, _SECOND)
    return state ^ (state >> 32 & 0xFFFF_FFFF)


@routine
def _mix_bytes(state, value):
    length = load_u16(value)
    state, at = _mix(state, length), value + 2
    end = at + length
    while at + 8 <= end:
        state = _mix(state, load_i64(at))
        at += 8
    tail = 0
    while at < end:
        tail = tail << 8 | load_u8(at)
        at += 1
    return _mix(state, tail)


@routine
def _mix_value(state, order, value):
    if order == _WORD:
        return _mix(state, load_i32(value))
    if order == _LONG:
        return _mix(state, load_i64(value))
    if order == _DOUBLE:
        return _mix(state, order_of_double(load_i64(value)))
    if order == _WIDE:
        return _mix(_mix(state, load_i64(value + 2)), load_i64(value + 10))
    return _mix_bytes(state, value)


@routine
def hash_key(index, entry):
    """The 40 bits that all entries with the entry's key have in common."""
    bits, at, state = load_u32(entry + BITS_AT), entry + VALUES_AT, 0
    for n in range(key_columns(index)):
        code = bits >> 2 * n & 3
        if code == 0:
            state = _mix(state, _NULL)
        else:
            state = _mix_value(state, order_at(index, n), at)
            at += stored_bytes(at, code)
    return state >> ROW_BITS & _KEY_MASK


@routine
def first_address(key_hash):
    """The lowest address that entries with a key may have."""
    return wrap(key_hash << ROW_BITS)


@routine
def hash_in_address(address):
    return address >> ROW_BITS & _KEY_MASK


@routine
def place_in(entry):
    """page id << 16 | slot of the entry's row."""
    return place_of_word(load_i64(entry + POINTER_AT))


@routine
def address_in(entry):
    return load_i64(entry + entry_size(entry) - 8)


@routine
def address_for(index, entry):
    """The address that an entry with this key and row id has."""
    row_hash = multiply(place_in(entry), ROW_FACTOR) >> PLACE_BITS - ROW_BITS & _ROW_MASK
    return first_address(hash_key(index, entry)) | row_hash


@routine
def give_address(index, entry):
    """Put the address behind the key, if it is not there yet; the entry's buffer has room."""
    columns, size = key_columns(index), entry_size(entry)
    if load_u16(entry + COL_COUNT_AT) > columns:
        return
    store_64(entry + size, address_for(index, entry))
    store_16(entry + SIZE_AT, size + 8)
    store_16(entry + COL_COUNT_AT, columns + 1)
    store_32(entry + BITS_AT, load_u32(entry + BITS_AT) | _EIGHT << 2 * columns)


@routine
def comes_before(address, place, other_address, other_place):
    """The order of entries: by address, then by row id."""
    if address != other_address:
        return address ^ _LOWEST < other_address ^ _LOWEST
    return place < other_place


@routine
def common_bits(address, place, other_address, other_place):
    """How many bits two entries have in common from the top: 64 of the address, then 48 of the row id."""
    differing, bits, last = address ^ other_address, 0, 63
    if differing == 0:
        differing, bits, last = place ^ other_place, 64, PLACE_BITS - 1
    while last >= 0 and not differing >> last & 1:
        bits += 1
        last -= 1
    return bits


@routine
def bit_at(address, place, number):
    """One of the 112 bits, counted from the top."""
    return address >> 63 - number & 1 if number < 64 else place >> 63 + PLACE_BITS - number & 1
