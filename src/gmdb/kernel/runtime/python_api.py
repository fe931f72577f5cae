"""The part of Python's limited API, as of 3.11, that kernels use, and which kernels take or return objects.

A kernel whose parameter is annotated ``Object`` is given the address of what Python passes.  One whose result is
annotated so returns the address of a new object, or a status, which Python gets as an int.

A kernel with a parameter annotated ``Gate`` runs while two locks are held: the *gate* that Python passes has the
arguments for taking a lock without waiting, then of each lock the methods that take and release it.  If one is not
free the kernel is not run, and BUSY is returned.  From taking the first to releasing the last no other thread runs,
and no signal handler.  The kernel gets 1; or 0, if Python passes None, since it holds both locks itself.
Not here: what kernels call (objects.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

Object = Any  # the annotation; a kernel has an address
Gate = Any  # the annotation; a kernel has 1 or 0
_OBJECT, _GATE = "Object", "Gate"
TYPE_AT = 8  # where an object has the address of its type


class Call(NamedTuple):
    """A function of Python's.  Kinds: i a number or an address, w 32 bits of a number, d a double's bits, - none."""

    symbol: str
    arguments: str
    result: str


TUPLE_SIZE, TUPLE_ITEM = Call("PyTuple_Size", "i", "i"), Call("PyTuple_GetItem", "ii", "i")
LIST_SIZE, LIST_ITEM = Call("PyList_Size", "i", "i"), Call("PyList_GetItem", "ii", "i")
INT_VALUE = Call("PyLong_AsLongLongAndOverflow", "ii", "i")
FLOAT_BITS = Call("PyFloat_AsDouble", "i", "d")
TEXT_DATA = Call("PyUnicode_AsUTF8AndSize", "ii", "i")
BYTES_SIZE, BYTES_DATA = Call("PyBytes_Size", "i", "i"), Call("PyBytes_AsString", "i", "i")
NEW_TUPLE, PUT_IN_TUPLE = Call("PyTuple_New", "i", "i"), Call("PyTuple_SetItem", "iii", "w")
NEW_LIST, ADD_TO_LIST = Call("PyList_New", "i", "i"), Call("PyList_Append", "ii", "w")
NEW_INT, NEW_FLOAT = Call("PyLong_FromLongLong", "i", "i"), Call("PyFloat_FromDouble", "d", "i")
NEW_BOOL = Call("PyBool_FromLong", "i", "i")
NEW_TEXT, NEW_BYTES = Call("PyUnicode_DecodeUTF8", "iii", "i"), Call("PyBytes_FromStringAndSize", "ii", "i")
KEEP, DROP = Call("Py_IncRef", "i", "-"), Call("Py_DecRef", "i", "-")
CLEAR_ERROR = Call("PyErr_Clear", "", "-")
SYMBOLS = frozenset(value.symbol for value in list(globals().values()) if isinstance(value, Call))

CONSTANTS: dict[str, Any] = {
    "PyLong_Type": int,
    "PyFloat_Type": float,
    "PyBool_Type": bool,
    "PyUnicode_Type": str,
    "PyBytes_Type": bytes,
    "PyTuple_Type": tuple,
    "PyList_Type": list,
    "_Py_NoneStruct": None,
    "_Py_TrueStruct": True,
}


def takes_objects(kernel: Callable[..., Any]) -> tuple[bool, ...]:
    """Of each parameter of a kernel, whether Python passes an object."""
    code = kernel.__code__
    return tuple(kernel.__annotations__.get(name) in (_OBJECT, _GATE) for name in code.co_varnames[: code.co_argcount])


def gate_of(kernel: Callable[..., Any]) -> int:
    """Which parameter of a kernel is a gate; -1: none."""
    code = kernel.__code__
    kinds = [kernel.__annotations__.get(name) for name in code.co_varnames[: code.co_argcount]]
    return kinds.index(_GATE) if _GATE in kinds else -1


def returns_object(kernel: Callable[..., Any]) -> bool:
    return kernel.__annotations__.get("return") == _OBJECT
