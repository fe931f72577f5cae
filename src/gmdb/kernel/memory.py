"""Loads, stores and records over raw addresses.

Every number is a signed 64-bit integer: user-space addresses fit, and mixing signed with unsigned would turn
into floating point.  Where a result may have more bits, ``multiply``, ``add`` and ``wrap`` keep the low 64: ``*`` and
``+`` must not overflow, for Numba promises to LLVM that they do not, and LLVM leaves out what that makes needless.
Loads of narrower fields extend with zeros, unless the name says signed.

Each operation has a ctypes twin for the mode in which kernels are not compiled.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import AttributeTemplate
from numba.extending import (
    infer_getattr,
    intrinsic,
    lower_getattr_generic,
    lower_setattr_generic,
    models,
    register_model,
)

from gmdb.format.layout import Layout
from gmdb.kernel.compiler import COMPILED, routine

_I64 = ir.IntType(64)


def _compiled_load(bits: int, signed: bool) -> Any:
    @intrinsic
    def load(typing_context, address):
        def code(context, builder, signature, arguments):
            value = builder.load(builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer()))
            value.align = 1
            if bits == 64:
                return value
            return builder.sext(value, _I64) if signed else builder.zext(value, _I64)

        return types.int64(types.int64), code

    return load


def _compiled_wrapping(operation: str) -> Any:
    @intrinsic
    def work(typing_context, a, b):
        def code(context, builder, signature, arguments):
            return getattr(builder, operation)(*arguments)

        return types.int64(types.int64, types.int64), code

    return work


def _compiled_store(bits: int) -> Any:
    @intrinsic
    def store(typing_context, address, value):
        def code(context, builder, signature, arguments):
            narrow = arguments[1] if bits == 64 else builder.trunc(arguments[1], ir.IntType(bits))
            builder.store(narrow, builder.inttoptr(arguments[0], ir.IntType(bits).as_pointer())).align = 1
            return context.get_dummy_value()

        return types.void(types.int64, types.int64), code

    return store


class StructureType(types.Type):
    """A structure in memory, known to the compiler by its address.  Its fields read and write as int64."""

    def __init__(self, dtype: np.dtype) -> None:
        self.dtype = dtype
        super().__init__(name=f"Structure({dtype.descr})")

    def field(self, name: str) -> tuple[np.dtype, int]:
        dtype, offset = self.dtype.fields[name][:2]  # type: ignore[index]
        return dtype, offset


@register_model(StructureType)
class _StructureModel(models.PrimitiveModel):
    def __init__(self, data_model_manager, structure):
        super().__init__(data_model_manager, structure, _I64)


@infer_getattr
class _StructureFields(AttributeTemplate):
    key = StructureType

    def generic_resolve(self, structure, name):
        return types.int64 if name in structure.dtype.fields else None


def _field_pointer(builder, structure, address, name):
    dtype, offset = structure.field(name)
    at = builder.add(address, ir.Constant(_I64, offset))
    return builder.inttoptr(at, ir.IntType(8 * dtype.itemsize).as_pointer()), dtype


@lower_getattr_generic(StructureType)
def _get_field(context, builder, structure, address, name):
    pointer, dtype = _field_pointer(builder, structure, address, name)
    value = builder.load(pointer)
    value.align = 1
    if dtype.itemsize == 8:
        return value
    return builder.sext(value, _I64) if dtype.kind == "i" else builder.zext(value, _I64)


@lower_setattr_generic(StructureType)
def _set_field(context, builder, signature, arguments, name):
    pointer, dtype = _field_pointer(builder, signature.args[0], arguments[0], name)
    value = context.cast(builder, arguments[1], signature.args[1], types.int64)
    if dtype.itemsize < 8:
        value = builder.trunc(value, ir.IntType(8 * dtype.itemsize))
    builder.store(value, pointer).align = 1


def _compiled_records(layout: Layout | np.dtype) -> Any:
    structure = StructureType(layout.dtype if isinstance(layout, Layout) else layout)

    @intrinsic
    def record(typing_context, address):
        def code(context, builder, signature, arguments):
            return arguments[0]

        return structure(types.int64), code

    return record


def _compiled_block_operation(name: str) -> Any:
    """memmove(target, source, length) or memset(target, byte, length)."""

    @intrinsic
    def operation(typing_context, target, source, length):
        def code(context, builder, signature, arguments):
            pointer = ir.IntType(8).as_pointer()
            byte = ir.IntType(8)
            target, source, length = arguments
            target = builder.inttoptr(target, pointer)
            if name == "llvm.memset":
                overloads = [pointer, _I64]
                source = builder.trunc(source, byte)
            else:
                overloads = [pointer, pointer, _I64]
                source = builder.inttoptr(source, pointer)
            function = builder.module.declare_intrinsic(name, overloads)
            builder.call(function, [target, source, length, ir.Constant(ir.IntType(1), 0)])
            return context.get_dummy_value()

        return types.void(types.int64, types.int64, types.int64), code

    return operation


@intrinsic
def _compiled_fence(typing_context):
    def code(context, builder, signature, arguments):
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def _compiled_address(typing_context, array):
    def code(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _I64)

    return types.int64(array), code


def _plain_number(bits: int, signed: bool) -> Any:
    return getattr(ctypes, f"c_{'int' if signed or bits == 64 else 'uint'}{bits}")


def _plain_load(bits: int, signed: bool) -> Any:
    ctype = _plain_number(bits, signed)
    return lambda address: ctype.from_address(int(address)).value


def _plain_store(bits: int) -> Any:
    ctype = getattr(ctypes, f"c_uint{bits}")

    def store(address: int, value: int) -> None:
        ctype.from_address(int(address)).value = int(value)

    return store


class _PlainRecord(ctypes.LittleEndianStructure):
    """A structure at an address; a field keeps the low bits of what it is set to, as in compiled code."""

    _pack_ = 1

    def __setattr__(self, name: str, value: int) -> None:
        super().__setattr__(name, int(value))


def _plain_records(layout: Layout | np.dtype) -> Any:
    dtype = layout.dtype if isinstance(layout, Layout) else layout
    fields: list[tuple[str, Any]] = []
    end = 0
    for name, (kind, offset, *_) in sorted((dtype.fields or {}).items(), key=lambda field: field[1][1]):
        if offset > end:
            fields.append((f"_before_{name}", ctypes.c_char * (offset - end)))
        is_number = kind.kind in "iub" and kind.itemsize in (1, 2, 4, 8)
        fields.append(
            (name, _plain_number(8 * kind.itemsize, kind.kind == "i") if is_number else ctypes.c_char * kind.itemsize)
        )
        end = offset + kind.itemsize
    record: Any = type("PlainRecord", (_PlainRecord,), {"_fields_": fields})
    return lambda address: record.from_address(int(address))


def records(layout: Layout | np.dtype) -> Any:
    """A function from an address to the structure that lies there, its fields readable and settable by name."""
    return _compiled_records(layout) if COMPILED else _plain_records(layout)


_load = _compiled_load if COMPILED else _plain_load
_store = _compiled_store if COMPILED else _plain_store

load_u8, load_u16, load_u32 = _load(8, False), _load(16, False), _load(32, False)
load_i32, load_i64 = _load(32, True), _load(64, True)
store_8, store_16, store_32, store_64 = _store(8), _store(16), _store(32), _store(64)
move_bytes = (
    _compiled_block_operation("llvm.memmove") if COMPILED else lambda t, s, n: ctypes.memmove(int(t), int(s), int(n))
)
fill_bytes = (
    _compiled_block_operation("llvm.memset") if COMPILED else lambda t, b, n: ctypes.memset(int(t), int(b), int(n))
)
fence = _compiled_fence if COMPILED else lambda: None
wrap = routine(lambda number: number) if COMPILED else lambda number: (number + 2**63) % 2**64 - 2**63
multiply = _compiled_wrapping("mul") if COMPILED else lambda a, b: wrap(a * b)
add = _compiled_wrapping("add") if COMPILED else lambda a, b: wrap(a + b)
address_of_array = _compiled_address if COMPILED else lambda array: array.ctypes.data
