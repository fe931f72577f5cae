"""Rows out of Python's values, and values out of rows.

What a table's columns, or a key's, look like is told by a *shape*: a head, then a record for each column.  Only what
programs have most is done here: NULLs, numbers, booleans, texts and bytes, of exactly Python's own types.  For all
else, and for values that do not fit, a routine returns NOT_PLAIN and has done nothing: format/codec.py then does the
same, or raises the error.

Invariant: no object is made while a page is looked at, for that may run finalizers; what is made comes out of a copy.
"""

from __future__ import annotations

from gmdb.format.btree import POINTER_SIZE
from gmdb.format.layout import Structure
from gmdb.format.row import BITS_AT, COL_COUNT_AT, SIZE_AT, UNLOCKED
from gmdb.kernel.row import column_code, copy_short, header_bytes, is_text_locator, stored_bytes
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import (
    fill_bytes,
    load_i32,
    load_i64,
    load_u16,
    load_u32,
    records,
    store_16,
    store_32,
    store_64,
)
from gmdb.kernel.runtime.objects import (
    bool_type,
    bytes_data,
    bytes_size,
    bytes_type,
    clear_error,
    drop,
    float_bits,
    float_type,
    int_type,
    int_value,
    list_item,
    list_size,
    list_type,
    new_bool,
    new_bytes,
    new_float,
    new_int,
    new_none,
    new_text,
    new_tuple,
    none,
    put_in_tuple,
    text_data,
    text_type,
    true,
    tuple_item,
    tuple_size,
    tuple_type,
    type_of,
)
from gmdb.kernel.runtime.status import NOT_PLAIN

SHAPE = Structure(
    [
        ("count", "<i8"),
        ("gap", "<i8"),  # 1: there is room for a pointer behind the header, as in index entries
        ("has_numbers", "<i8"),  # 1: the columns' numbers stand behind the row, as in patches
        ("room", "<i8"),  # bytes that a row may have
        ("outputs", "<i8"),  # how many values whoever reads gets
        ("spare", "<i8"),  # 8 bytes that the functions of Python's API write to
    ]
)
FORM = Structure(
    [
        ("kind", "<i8"),
        ("code", "<i8"),  # the size code of values
        ("length_max", "<i8"),  # bytes that a text or bytes may have
        ("padding", "<i8"),  # byte that fills shorter ones up to length_max; -1 = none
        ("number", "<i8"),  # the column's, in its table
        ("output", "<i8"),  # which of the values that whoever reads gets it is; -1 = none
        ("nullable", "<i8"),
    ]
)
# Kinds; of OTHER there are only NULLs, and what nobody looks at.
OTHER, INT, BIGINT, DOUBLE, BOOLEAN, TEXT, BYTES, SMALLINT = range(8)
_VARIABLE = 3
_EXACT = 1 << 53  # up to here every int is a double
_INT_LIMIT = 1 << 31
_SMALLINT_LIMIT = 1 << 15
shape_at, form_at = records(SHAPE), records(FORM)
_SHAPE_SIZE, _FORM_SIZE = SHAPE.itemsize, FORM.itemsize


@routine
def _store_bytes(form, data, size, ending, to):
    """Write a length, bytes, what fills them up, and as many zeros behind them; returns where they end."""
    if size > form.length_max:
        return NOT_PLAIN
    copy_short(to + 2, data, size)
    if form.padding >= 0:
        fill_bytes(to + 2 + size, form.padding, form.length_max - size)
        size = form.length_max
    fill_bytes(to + 2 + size, 0, ending)
    store_16(to, size + ending)
    return to + 2 + size + ending


@routine
def _store_int(form, value, spare, to):
    number = int_value(value, spare)
    if load_i32(spare):
        return NOT_PLAIN
    if form.kind == INT:
        if number < -_INT_LIMIT or number >= _INT_LIMIT:
            return NOT_PLAIN
        store_32(to, number)
        return to + 4
    if form.kind == BIGINT:
        store_64(to, number)
        return to + 8
    if form.kind == SMALLINT:
        if number < -_SMALLINT_LIMIT or number >= _SMALLINT_LIMIT:
            return NOT_PLAIN
        store_32(to, number)
        return to + 4
    return NOT_PLAIN


@routine
def _store_value(form, value, spare, to):
    """Write a value that is not None; returns where it ends."""
    kind, type_ = form.kind, type_of(value)
    if type_ == int_type():
        return _store_int(form, value, spare, to)
    if type_ == text_type():
        if kind != TEXT:
            return NOT_PLAIN
        data = text_data(value, spare)
        if data == 0:
            clear_error()
            return NOT_PLAIN
        return _store_bytes(form, data, load_i64(spare), 1, to)
    if type_ == float_type():
        if kind != DOUBLE:
            return NOT_PLAIN
        store_64(to, float_bits(value))
        return to + 8
    if type_ == bytes_type():
        if kind != BYTES or is_text_locator(bytes_data(value), bytes_size(value)):
            return NOT_PLAIN
        return _store_bytes(form, bytes_data(value), bytes_size(value), 0, to)
    if type_ == bool_type() and kind == BOOLEAN:
        store_32(to, 1 if value == true() else 0)
        return to + 4
    return NOT_PLAIN


@routine
def _most_bytes(form):
    """How many bytes a column's value takes at most."""
    return 3 + form.length_max if form.code == _VARIABLE else 8


@routine
def write_row(shape_address, values, to):
    """Write a row of the values in a tuple or list; returns its bytes, or NOT_PLAIN."""
    shape = shape_at(shape_address)
    count, spare = shape.count, shape.spare
    is_tuple = type_of(values) == tuple_type()
    if not is_tuple and type_of(values) != list_type():
        return NOT_PLAIN
    if (tuple_size(values) if is_tuple else list_size(values)) != count:
        return NOT_PLAIN
    head = header_bytes(count)
    for at in range(BITS_AT, head, 4):
        store_32(to + at, 0)
    at = to + head
    if shape.gap:
        store_64(at, 0)
        at += POINTER_SIZE
    for n in range(count):
        form = form_at(shape_address + _SHAPE_SIZE + n * _FORM_SIZE)
        value = tuple_item(values, n) if is_tuple else list_item(values, n)
        if value == none():
            if not form.nullable:
                return NOT_PLAIN
            continue
        if at - to + _most_bytes(form) > shape.room:
            return NOT_PLAIN
        at = _store_value(form, value, spare, at)
        if at < 0:
            return at
        word = to + BITS_AT + 4 * (n >> 4)
        store_32(word, load_u32(word) | form.code << 2 * (n & 15))
    store_32(to, UNLOCKED)
    store_16(to + SIZE_AT, at - to)
    store_16(to + COL_COUNT_AT, count)
    if shape.has_numbers:
        for n in range(count):
            store_16(at, form_at(shape_address + _SHAPE_SIZE + n * _FORM_SIZE).number)
            at += 2
    return at - to


@routine
def _value_at(form, code, at):
    """A value of a row as a new object; 0 if it is not one of the column's."""
    if code != form.code:
        return 0
    kind = form.kind
    if kind == INT or kind == SMALLINT:
        return new_int(load_i32(at))
    if kind == BIGINT:
        return new_int(load_i64(at))
    if kind == TEXT:  # of one that is on pages, what the row has is no UTF-8
        return new_text(at + 2, load_u16(at) - 1) if load_u16(at) else 0
    if kind == DOUBLE:
        return new_float(load_i64(at))
    if kind == BYTES:
        return 0 if is_text_locator(at + 2, load_u16(at)) else new_bytes(at + 2, load_u16(at))
    if kind == BOOLEAN:
        return new_bool(1 if load_i32(at) else 0)
    return 0


@routine
def read_row(shape_address, row):
    """A new tuple of values of a row, or NOT_PLAIN."""
    shape = shape_at(shape_address)
    at = row + header_bytes(load_u16(row + COL_COUNT_AT))
    values = new_tuple(shape.outputs)
    if values == 0:
        clear_error()
        return NOT_PLAIN
    for n in range(shape.count):
        form, code = form_at(shape_address + _SHAPE_SIZE + n * _FORM_SIZE), column_code(row, n)
        if form.output >= 0:
            value = _value_at(form, code, at) if code else new_none()
            if value == 0:
                clear_error()
                drop(values)
                return NOT_PLAIN
            put_in_tuple(values, form.output, value)
        at += stored_bytes(at, code)
    return values
