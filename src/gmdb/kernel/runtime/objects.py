"""Python's objects within kernels, by their addresses: looked at, and made.

What comes out of another object is borrowed: it lives as long as that.  What is new must be dropped, put into another
object, or returned.  Functions that make objects return 0 when there is no memory, or bytes are not UTF-8;
``clear_error`` then forgets Python's exception.  The others leave none behind, if an object has the type they are for,
but for ``text_data`` of a text that has no UTF-8.
"""

from __future__ import annotations

from gmdb.kernel.runtime import python_api as api
from gmdb.kernel.runtime.compiler import operations, routine
from gmdb.kernel.runtime.memory import load_i64

tuple_size, tuple_item = operations.python_call(api.TUPLE_SIZE), operations.python_call(api.TUPLE_ITEM)
list_size, list_item = operations.python_call(api.LIST_SIZE), operations.python_call(api.LIST_ITEM)
int_value = operations.python_call(api.INT_VALUE)  # and the address of 32 bits that tell whether it overflows
float_bits = operations.python_call(api.FLOAT_BITS)
text_data = operations.python_call(api.TEXT_DATA)  # and the address for the size in bytes
bytes_size, bytes_data = operations.python_call(api.BYTES_SIZE), operations.python_call(api.BYTES_DATA)
new_tuple = operations.python_call(api.NEW_TUPLE)
put_in_tuple = operations.python_call(api.PUT_IN_TUPLE)  # the tuple takes the object over
new_list = operations.python_call(api.NEW_LIST)
add_to_list = operations.python_call(api.ADD_TO_LIST)  # the list has it, too
new_int, new_float = operations.python_call(api.NEW_INT), operations.python_call(api.NEW_FLOAT)
new_bool = operations.python_call(api.NEW_BOOL)
decode_text = operations.python_call(api.NEW_TEXT)
new_bytes = operations.python_call(api.NEW_BYTES)
keep, drop = operations.python_call(api.KEEP), operations.python_call(api.DROP)
clear_error = operations.python_call(api.CLEAR_ERROR)

int_type, float_type = operations.python_constant("PyLong_Type"), operations.python_constant("PyFloat_Type")
bool_type, text_type = operations.python_constant("PyBool_Type"), operations.python_constant("PyUnicode_Type")
bytes_type, tuple_type = operations.python_constant("PyBytes_Type"), operations.python_constant("PyTuple_Type")
list_type = operations.python_constant("PyList_Type")
none, true = operations.python_constant("_Py_NoneStruct"), operations.python_constant("_Py_TrueStruct")

_TYPE_AT = api.TYPE_AT


@routine
def type_of(thing):
    """The address of an object's type, which is no subclass of it."""
    return load_i64(thing + _TYPE_AT)


@routine
def new_text(data, size):
    return decode_text(data, size, 0)


@routine
def new_none():
    keep(none())
    return none()
