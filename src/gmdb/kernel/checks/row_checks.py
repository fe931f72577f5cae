"""Whether a row found on a page can be its table's: every length, every value; fast, without words.

The tables' columns come as rules, which ``verify.rows.Rules`` makes.
"""

from __future__ import annotations

from gmdb.format.columns import Kind
from gmdb.format.layout import Structure
from gmdb.format.row import BITS_AT, COL_COUNT_AT, NO_LOCK, SIZE_AT, RowFlag, SizeCode
from gmdb.kernel.row import is_text_locator
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import load_i32, load_i64, load_u8, load_u16, load_u32, records

GOOD = 0
ASK = 1  # a kind of page that only the check in Python knows
SUSPECT = 2  # some content is wrong, but offsets can be followed
BROKEN = 3  # nothing on it can be trusted
UNWRITTEN = 4  # every byte is zero

COLUMN_RULE = Structure(
    [
        ("kind", "<i8"),
        ("size_code", "<i8"),
        ("nullable", "<i8"),
        ("may_be_long", "<i8"),  # a text that may be on pages of its own
        ("length_min", "<i8"),  # bytes of a variable value as stored
        ("length_max", "<i8"),
        ("limit", "<i8"),  # a DECIMAL of 4 or 8 bytes lies between its negative and it, a TIME between 0 and it
        ("limbs", "<u4", 4),  # the same for one of 16 bytes, 32 bits each, low first
    ]
)
TABLE_RULE = Structure([("obj_id", "<i8"), ("columns", "<i8"), ("column_count", "<i8")])
SCHEMA = Structure([("tables", "<i8"), ("table_count", "<i8")])  # tables in order of obj_id

rule_at = records(COLUMN_RULE)
table_at = records(TABLE_RULE)
schema_at = records(SCHEMA)

_RULE_SIZE, _TABLE_SIZE = COLUMN_RULE.itemsize, TABLE_RULE.itemsize
_LIMBS_AT = COLUMN_RULE.offset("limbs")
_BIT, _LONG, _DECIMAL_WORD, _DECIMAL_LONG, _DECIMAL_WIDE, _TEXT, _SHORT = (
    int(getattr(Kind, name))
    for name in ("BIT", "LONG", "DECIMAL_WORD", "DECIMAL_LONG", "DECIMAL_WIDE", "TEXT", "SHORT")
)
_SHORT_LIMIT = 1 << 15
_VARIABLE, _EIGHT = int(SizeCode.VARIABLE), int(SizeCode.EIGHT)
_HIGH_BITS = -0x7F7F_7F7F_7F7F_7F80  # the top bit of each of eight bytes
FLAG_DELETE, FLAG_ENTRY, FLAG_LINK, FLAG_COMPACTING = (int(flag) for flag in RowFlag)
_KNOWN_FLAGS = FLAG_DELETE | FLAG_ENTRY | FLAG_LINK | FLAG_COMPACTING
ENTRY_TARGET_AT = BITS_AT + 4
_ENTRY_ROW_SIZE = ENTRY_TARGET_AT + 8


# ---- values


@routine
def _follows(at, low, high):
    """Whether the byte there continues a character."""
    byte = load_u8(at)
    return low <= byte <= high


@routine
def _character_length(at, end):
    """Bytes of the UTF-8 character there; 0 if it is none."""
    lead, left = load_u8(at), end - at
    if lead < 0x80:
        return 1
    if lead < 0xC2 or lead > 0xF4:
        return 0
    if lead < 0xE0:
        return 2 if left >= 2 and _follows(at + 1, 0x80, 0xBF) else 0
    if lead < 0xF0:
        low = 0xA0 if lead == 0xE0 else 0x80
        high = 0x9F if lead == 0xED else 0xBF
        return 3 if left >= 3 and _follows(at + 1, low, high) and _follows(at + 2, 0x80, 0xBF) else 0
    low = 0x90 if lead == 0xF0 else 0x80
    high = 0x8F if lead == 0xF4 else 0xBF
    if left < 4 or not _follows(at + 1, low, high) or not _follows(at + 2, 0x80, 0xBF):
        return 0
    return 4 if _follows(at + 3, 0x80, 0xBF) else 0


@routine
def is_utf8(at, end):
    while at < end:  # ends: a character has a byte at least
        if end - at >= 8 and load_i64(at) & _HIGH_BITS == 0:
            at += 8
            continue
        length = _character_length(at, end)
        if length == 0:
            return False
        at += length
    return True


@routine
def _wide_fits(at, limbs):
    """Whether the magnitude of the 16-byte number is below that of the limit, both in 32-bit parts."""
    negative = load_u32(at + 12) >> 31
    carry = negative
    below = False
    for i in range(4):
        part = load_u32(at + 4 * i)
        if negative:
            part = (part ^ 0xFFFF_FFFF) + carry
            carry = part >> 32
            part &= 0xFFFF_FFFF
        limit = load_u32(limbs + 4 * i)
        if part != limit:
            below = part < limit
    return below


@routine
def _value_is_right(rule_address, code, at, length):
    """Whether a value's bytes can be its column's."""
    rule = rule_at(rule_address)
    if code == 0:
        return rule.nullable != 0
    if code != rule.size_code:
        return False
    kind = rule.kind
    if code == _VARIABLE:
        if length < rule.length_min or length > rule.length_max:
            return False
        if kind == _TEXT:
            if load_u8(at + length - 1):
                return False
            is_elsewhere = rule.may_be_long != 0 and is_text_locator(at, length - 1)
            return is_elsewhere or is_utf8(at, at + length - 1)
        return kind != _DECIMAL_WIDE or _wide_fits(at, rule_address + _LIMBS_AT)
    if kind == _BIT:
        return load_u32(at) <= 1
    if kind == _SHORT:
        return -_SHORT_LIMIT <= load_i32(at) < _SHORT_LIMIT
    if kind == _DECIMAL_WORD:
        return -rule.limit < load_i32(at) < rule.limit
    if kind == _DECIMAL_LONG:
        return -rule.limit < load_i64(at) < rule.limit
    if kind == _LONG and rule.limit:
        return 0 <= load_i64(at) < rule.limit
    return True


# ---- rows


@routine
def table_of(schema_address, obj_id):
    """The address of a table's rule; 0 if the table is not known."""
    schema = schema_at(schema_address)
    low, high = 0, schema.table_count
    while low < high:  # ends: they come closer with every look
        middle = (low + high) >> 1
        if table_at(schema.tables + middle * _TABLE_SIZE).obj_id < obj_id:
            low = middle + 1
        else:
            high = middle
    at = schema.tables + low * _TABLE_SIZE
    return at if low < schema.table_count and table_at(at).obj_id == obj_id else 0


@routine
def _lacks_value(table_address, column_count):
    """Whether a row of so many columns is too short to have a value that it must have."""
    table = table_at(table_address)
    for number in range(column_count, table.column_count):
        if not rule_at(table.columns + number * _RULE_SIZE).nullable:
            return True
    return False


@routine
def _is_dead(row):
    """Whether the row is gone for everybody: then its columns may be those of a definition that was rolled back."""
    word = load_u32(row)
    return word >> 24 & FLAG_DELETE != 0 and word & NO_LOCK == NO_LOCK


@routine
def row_verdict(row, end, table_address):
    """Of a row whose header lies before ``end``; without a table (0) only what all rows have in common."""
    if _is_dead(row):
        table_address = 0
    size, column_count = load_u16(row + SIZE_AT), load_u16(row + COL_COUNT_AT)
    words = max((column_count + 15) >> 4, 1)
    at, row_end = row + BITS_AT + 4 * words, row + size
    if at > row_end or row_end > end:
        return BROKEN
    worst = GOOD
    rules, known = 0, 0
    if table_address:
        table = table_at(table_address)
        rules, known = table.columns, table.column_count
        if _lacks_value(table_address, column_count):
            worst = SUSPECT
    for word in range(words):
        bits = load_u32(row + BITS_AT + 4 * word)
        first, count = 16 * word, min(16, column_count - 16 * word)
        if bits >> 2 * count:
            worst = SUSPECT
        for number in range(first, first + count):
            code = bits & 3
            bits >>= 2
            length = 4 * code
            if code == _VARIABLE:
                if at + 2 > row_end:
                    return BROKEN
                length = load_u16(at)
                at += 2
            if at + length > row_end:
                return BROKEN
            if table_address and number >= known and code:
                worst = SUSPECT  # a column whose addition was rolled back leaves no value
            if number < known and not _value_is_right(rules + number * _RULE_SIZE, code, at, length):
                worst = SUSPECT
            at += length
    return worst if at == row_end else BROKEN


@routine
def _entry_is_right(row):
    """Whether an ENTRY row, sound as a row, is nothing but a row id."""
    right = load_u16(row + SIZE_AT) == _ENTRY_ROW_SIZE and load_u16(row + COL_COUNT_AT) == 1
    return right and load_u32(row + BITS_AT) == _EIGHT and load_u16(row + ENTRY_TARGET_AT + 6) == 0xFFFF


@routine
def flags_verdict(row, flags):
    if flags & FLAG_ENTRY and not _entry_is_right(row):
        return BROKEN
    both = flags & FLAG_ENTRY and flags & FLAG_LINK
    if flags & FLAG_COMPACTING or both or flags & ~_KNOWN_FLAGS:
        return SUSPECT
    if flags & FLAG_LINK and load_u32(row) & NO_LOCK != NO_LOCK:
        return SUSPECT
    return GOOD
