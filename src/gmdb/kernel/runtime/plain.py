"""Kernels as plain Python, for debuggers and coverage: a hundred times slower, and no compiler is imported.

The operations on memory are done by ctypes; what they give is what ``intrinsics.py`` makes of them.
"""

from __future__ import annotations

import ctypes
import functools
import os
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from gmdb.format.layout import Structure
from gmdb.kernel.runtime.python_api import CONSTANTS, Call, gate_of, returns_object, takes_objects
from gmdb.kernel.runtime.status import BUSY

HAS_CRC32C = False


def routine(function: Callable[..., Any]) -> Any:
    """A function that kernels call; here it is one like any other."""
    return function


def kernel(function: Callable[..., Any]) -> Callable[..., Any]:
    return with_objects(function, function)


long_kernel = kernel


def with_objects(kernel: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that takes or returns objects, as a function of objects; ``call`` takes and returns their addresses."""
    takes, returns, gate = takes_objects(kernel), returns_object(kernel), gate_of(kernel)
    if not any(takes) and not returns:
        return call
    if gate >= 0:
        call = _behind_gate(call, gate)
        takes = tuple(is_object and n != gate for n, is_object in enumerate(takes))

    @functools.wraps(kernel)
    def with_addresses(*arguments: Any) -> Any:
        if len(arguments) != len(takes):
            raise TypeError(f"{kernel.__name__} takes {len(takes)} arguments, not {len(arguments)}")
        result = call(*(id(one) if is_object else one for one, is_object in zip(arguments, takes, strict=True)))
        if not returns or result < 0:
            return result
        thing = ctypes.cast(int(result), ctypes.py_object).value  # one reference more
        ctypes.pythonapi.Py_DecRef(ctypes.py_object(thing))
        return thing

    return with_addresses


def _behind_gate(call: Callable[..., int], number: int) -> Callable[..., int]:
    """A kernel that is run while it has both locks of the gate that is its argument of that number."""

    def run(*arguments: Any) -> int:
        if arguments[number] is None:
            return call(*arguments[:number], 0, *arguments[number + 1 :])
        no_waiting, take_first, release_first, take_second, release_second = arguments[number]
        if not take_first(*no_waiting):
            return BUSY
        try:
            if not take_second(*no_waiting):
                return BUSY
            try:
                return call(*arguments[:number], 1, *arguments[number + 1 :])
            finally:
                release_second()
        finally:
            release_first()

    return run


def _number(bits: int, signed: bool) -> Any:
    return getattr(ctypes, f"c_{'int' if signed or bits == 64 else 'uint'}{bits}")


def _load(bits: int, signed: bool) -> Any:
    ctype = _number(bits, signed)
    return lambda address: ctype.from_address(int(address)).value


def _store(bits: int) -> Any:
    ctype = getattr(ctypes, f"c_uint{bits}")

    def store(address: int, value: int) -> None:
        ctype.from_address(int(address)).value = int(value)

    return store


class _PlainRecord(ctypes.LittleEndianStructure):
    """A structure at an address; a field keeps the low bits of what it is set to, as in machine code."""

    _pack_ = 1

    def __setattr__(self, name: str, value: int) -> None:
        super().__setattr__(name, int(value))


def records(structure: Structure) -> Any:
    """A function from an address to the structure that lies there."""
    dtype = structure.dtype
    fields: list[tuple[str, Any]] = []
    end = 0
    for name, (kind, offset, *_) in sorted((dtype.fields or {}).items(), key=lambda field: field[1][1]):
        if offset > end:
            fields.append((f"_before_{name}", ctypes.c_char * (offset - end)))
        is_number = kind.kind in "iub" and kind.itemsize in (1, 2, 4, 8)
        fields.append(
            (name, _number(8 * kind.itemsize, kind.kind == "i") if is_number else ctypes.c_char * kind.itemsize)
        )
        end = offset + kind.itemsize
    record: Any = type("PlainRecord", (_PlainRecord,), {"_fields_": fields})
    return lambda address: record.from_address(int(address))


def pwrite(file: int, address: int, length: int, offset: int) -> int:
    return os.pwrite(int(file), ctypes.string_at(int(address), int(length)), int(offset))


def move_bytes(target: int, source: int, length: int) -> None:
    ctypes.memmove(int(target), int(source), int(length))


def fill_bytes(target: int, byte: int, length: int) -> None:
    ctypes.memset(int(target), int(byte), int(length))


def fence() -> None:
    """The interpreter does one thing after the other."""


def wrap(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


def multiply(a: int, b: int) -> int:
    return wrap(a * b)


def add(a: int, b: int) -> int:
    return wrap(a + b)


def address_of_array(array: np.ndarray) -> int:
    return array.ctypes.data


def python_call(call: Call) -> Callable[..., int]:
    """A function of Python's API, on addresses."""
    kinds: dict[str, Any] = {"i": ctypes.c_int64, "w": ctypes.c_int32, "d": ctypes.c_double, "-": None}
    prototype = ctypes.PYFUNCTYPE(kinds[call.result], *(kinds[kind] for kind in call.arguments))
    function = prototype((call.symbol, ctypes.pythonapi))

    def run(*arguments: int) -> int:
        given = [
            _DOUBLE.unpack(_LONG.pack(one))[0] if kind == "d" else int(one)
            for one, kind in zip(arguments, call.arguments, strict=True)
        ]
        try:
            result = function(*given)
        except (UnicodeError, MemoryError):  # ctypes raises what the function left behind
            return 0
        if call.result == "d":
            return _LONG.unpack(_DOUBLE.pack(result))[0]
        return 0 if result is None else result

    return run


def python_constant(symbol: str) -> Callable[[], int]:
    return lambda: id(CONSTANTS[symbol])


_LONG, _DOUBLE = struct.Struct("<q"), struct.Struct("<d")
crc_of_word = None  # format/checksum.py has it for whole pages
load_u8, load_u16, load_u32 = _load(8, False), _load(16, False), _load(32, False)
load_i32, load_i64 = _load(32, True), _load(64, True)
store_8, store_16, store_32, store_64 = _store(8), _store(16), _store(32), _store(64)
