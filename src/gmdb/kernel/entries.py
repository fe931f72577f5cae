"""Entries of rows: which an index has, and their bytes.

An index with a key program has entries of some rows only.  The program's instructions are evaluated on the row where
it lies; what it says is not trusted: it leads nowhere beyond its own bytes and those of the row.
Not here: how entries compare (row.py).
"""

from __future__ import annotations

from gmdb.format.btree import INDEX_HEAD, KEY_BYTES_MAX, Order
from gmdb.format.key_program import INSTRUCTION, PROGRAM_HEAD, ProgramOperation, Truth
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT, UNLOCKED, SizeCode
from gmdb.format.segment import PROGRAM_ROOM
from gmdb.kernel.row import (
    POINTER_AT,
    VALUES_AT,
    column_code,
    compare_values,
    copy_short,
    index_head,
    is_apart,
    is_of_order,
    key_columns,
    order_at,
    stored_bytes,
    value_in_row,
)
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import load_u16, records, store_16, store_32, store_64
from gmdb.kernel.runtime.status import ABSENT, KEY_TOO_LONG, NOT_FOUND

program_head, instruction_at = records(PROGRAM_HEAD), records(INSTRUCTION)
_HEAD_SIZE, _SIZE = PROGRAM_HEAD.size, INSTRUCTION.size
_COUNT_MAX = (PROGRAM_ROOM - _HEAD_SIZE) // _SIZE
_COMPARE, _COMPARE_COLUMNS, _IS_NULL, _TRUTH, _NOT, _AND, _OR, _IS = (int(one) for one in ProgramOperation)
_FALSE, _TRUE, _UNKNOWN = (int(one) for one in Truth)
_WORD, _LONG, _DOUBLE, _WIDE, _BYTES, _REAL, _INTERVAL = (int(order) for order in Order)
_POSITIONS_AT = INDEX_HEAD.offset("positions")
_NO_LIMIT = (1 << 63) - 1
_VARIABLE = int(SizeCode.VARIABLE)


@routine
def _value_of(row, number, order, limit):
    """Where a column's value lies that compares in an order; 0 if it is NULL, or the row is nonsense."""
    code = column_code(row, number)
    if code == 0:
        return 0
    value = value_in_row(row, number, limit)
    if value <= 0 or value > limit or value + stored_bytes(value, code) > limit or not is_of_order(order, code, value):
        return 0
    return value


@routine
def _constant(program, size, at, order):
    """Where a constant of a program of so many bytes lies; 0 if it would not be all there."""
    if at + 2 > size:
        return 0
    length = 2 + load_u16(program + at)
    if order == _WORD or order == _REAL:
        length = 4
    elif order == _LONG or order == _DOUBLE:
        length = 8
    elif (order == _WIDE or order == _INTERVAL) and length != 18:
        return 0
    return program + at if at + length <= size else 0


@routine
def _compared(program, size, step, row, limit):
    """The truth of a comparison."""
    one = _value_of(row, step.column, step.order, limit)
    if step.operation == _COMPARE:
        other = _constant(program, size, step.operand, step.order)
    else:
        other = _value_of(row, step.operand, step.order, limit)
    if one == 0 or other == 0:
        return _UNKNOWN
    return step.which >> (compare_values(step.order, one, other) + 1) & 1


@routine
def _joined(is_or, one, other):
    """AND or OR of two truths."""
    deciding = _TRUE if is_or else _FALSE
    if one == deciding or other == deciding:
        return deciding
    return _UNKNOWN if one == _UNKNOWN or other == _UNKNOWN else 1 - deciding


@routine
def _truth_of(step):
    return _TRUE if step.which & 2 else _FALSE if step.which & 1 else _UNKNOWN


@routine
def _stepped(program, size, step, row, limit, stack):
    """The stack, two bits a truth, after an instruction."""
    operation, top = step.operation, stack & 3
    if operation == _COMPARE or operation == _COMPARE_COLUMNS:
        return stack << 2 | _compared(program, size, step, row, limit)
    if operation == _IS_NULL:
        return stack << 2 | (1 if column_code(row, step.column) == 0 else 0)
    if operation == _TRUTH:
        return stack << 2 | _truth_of(step)
    if operation == _NOT:
        return stack & ~3 | (_UNKNOWN if top == _UNKNOWN else 1 - top)
    if operation == _IS:
        return stack & ~3 | step.which >> top & 1
    return stack >> 2 & ~3 | _joined(operation == _OR, top, stack >> 2 & 3)


@routine
def has_entry(index, row, limit):
    """Whether the index has an entry of a row, which is not read behind ``limit``."""
    size = index_head(index).program_size
    if size == 0:
        return True
    program, stack = index + index_head(index).program_at, 0
    count = min(program_head(program).count, (size - _HEAD_SIZE) // _SIZE, _COUNT_MAX)
    for n in range(count):
        step = instruction_at(program + _HEAD_SIZE + n * _SIZE)
        stack = _stepped(program, size, step, row, limit, stack)
    return stack & 3 == _TRUE


@routine
def _is_elsewhere(row, number, order, limit):
    """Whether a column's value is a TEXT or BYTEA on pages of its own."""
    value = _value_of(row, number, order, limit) if order == _BYTES else 0
    return value > 0 and is_apart(value, _VARIABLE)


@routine
def _compares_elsewhere(index, row, limit):
    """Whether the index's program asks for a value that is not in the row."""
    size = index_head(index).program_size
    if size == 0:
        return False
    program = index + index_head(index).program_at
    for n in range(min(program_head(program).count, (size - _HEAD_SIZE) // _SIZE, _COUNT_MAX)):
        step = instruction_at(program + _HEAD_SIZE + n * _SIZE)
        if step.operation == _COMPARE or step.operation == _COMPARE_COLUMNS:
            if _is_elsewhere(row, step.column, step.order, limit):
                return True
            if step.operation == _COMPARE_COLUMNS and _is_elsewhere(row, step.operand, step.order, limit):
                return True
    return False


@routine
def make_entry(index, row, entry, row_id):
    """Write the leaf entry of a row; returns its size, KEY_TOO_LONG, or ABSENT if the index has none."""
    return make_entry_within(index, row, _NO_LIMIT, entry, row_id)


@routine
def make_entry_within(index, row, limit, entry, row_id):
    """``make_entry`` of a row that may be nonsense, if somebody changes it meanwhile: it is not read behind ``limit``.

    NOT_FOUND if it is nonsense for sure.
    """
    if _compares_elsewhere(index, row, limit):
        return KEY_TOO_LONG
    if not has_entry(index, row, limit):
        return ABSENT
    to, bits = entry + VALUES_AT, 0
    for n in range(key_columns(index)):
        number = load_u16(index + _POSITIONS_AT + 2 * n)
        code = column_code(row, number)
        if code == 0:
            continue
        value = value_in_row(row, number, limit)
        length = stored_bytes(value, code) if 0 < value <= limit else 0
        if length == 0 or value + length > limit:
            return NOT_FOUND
        if to + length - entry - VALUES_AT > KEY_BYTES_MAX or is_apart(value, code):
            return KEY_TOO_LONG
        if not is_of_order(order_at(index, n), code, value):
            continue  # a row that is not its table's: reading it raises an error
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
