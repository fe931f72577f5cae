"""Loads, stores and records over raw addresses: the operations that kernels are made of.

Every number is a signed 64-bit integer: user-space addresses fit, and mixing signed with unsigned would turn
into floating point.  Where a result may have more bits, ``multiply``, ``add`` and ``wrap`` keep the low 64: ``*`` and
``+`` must not overflow, for Numba promises to LLVM that they do not, and LLVM leaves out what that makes needless.
Loads of narrower fields extend with zeros, unless the name says signed.

There are two of each: for the compiler (intrinsics.py) and for Python (plain.py).  Where kernels were compiled ahead
neither is loaded.
"""

from __future__ import annotations

from typing import Any

from gmdb.format.layout import Structure
from gmdb.kernel.runtime.compiler import operations


def records(structure: Structure) -> Any:
    """A function from an address to the structure that lies there, its fields readable and settable by name."""
    return operations.records(structure)


load_u8, load_u16, load_u32 = operations.load_u8, operations.load_u16, operations.load_u32
load_i32, load_i64 = operations.load_i32, operations.load_i64
store_8, store_16 = operations.store_8, operations.store_16
store_32, store_64 = operations.store_32, operations.store_64
move_bytes, fill_bytes = operations.move_bytes, operations.fill_bytes
wrap, multiply, add = operations.wrap, operations.multiply, operations.add
fence = operations.fence
address_of_array = operations.address_of_array
crc_of_word = operations.crc_of_word
pwrite = operations.pwrite
