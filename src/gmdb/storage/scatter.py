"""Writing many pages to their places in one file, in one call.

A checkpoint writes thousands of pages, each to another place.  A system call each from Python would mean asking for
the interpreter's lock each time, and waiting for it behind whoever computes; so the loop is compiled, and runs
without it.
"""

from __future__ import annotations

import ctypes
import os

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from gmdb.kernel.compiler import COMPILED, long_kernel
from gmdb.kernel.memory import load_i64


@intrinsic
def _compiled_pwrite(typing_context, file, address, length, offset):
    """The C library's pwrite, by its name, so that the compiled code can be kept on disk."""

    def code(context, builder, signature, arguments):
        i64, i32 = ir.IntType(64), ir.IntType(32)
        function_type = ir.FunctionType(i64, [i32, i64, i64, i64])
        function = builder.module.globals.get("pwrite") or ir.Function(builder.module, function_type, "pwrite")
        return builder.call(function, [builder.trunc(arguments[0], i32), *arguments[1:]])

    return types.int64(types.int64, types.int64, types.int64, types.int64), code


def _plain_pwrite(file: int, address: int, length: int, offset: int) -> int:
    return os.pwrite(int(file), ctypes.string_at(int(address), int(length)), int(offset))


_pwrite = _compiled_pwrite if COMPILED else _plain_pwrite


@long_kernel
def write_pieces(file, addresses, offsets, count, size):
    """Write ``count`` pieces of ``size`` bytes, from addresses to offsets (i64s); answers how many went through."""
    for i in range(count):
        if _pwrite(file, load_i64(addresses + 8 * i), size, load_i64(offsets + 8 * i)) != size:
            return i
    return count
