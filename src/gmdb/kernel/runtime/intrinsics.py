"""Loads, stores, records and the CPU's instructions, for the compiler: intrinsics of Numba, some lines of LLVM each.

``plain.py`` has the same for Python.

Not here: whatever is to run where Numba is not installed.
"""

from __future__ import annotations

from inspect import Parameter, Signature
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

from gmdb.format.layout import Structure
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.python_api import Call

_I64 = ir.IntType(64)


def _load(bits: int, signed: bool) -> Any:
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


def _wrapping(operation: str) -> Any:
    @intrinsic
    def work(typing_context, a, b):
        def code(context, builder, signature, arguments):
            return getattr(builder, operation)(*arguments)

        return types.int64(types.int64, types.int64), code

    return work


def _store(bits: int) -> Any:
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


def records(declared: Structure) -> Any:
    structure = StructureType(declared.dtype)

    @intrinsic
    def record(typing_context, address):
        def code(context, builder, signature, arguments):
            return arguments[0]

        return structure(types.int64), code

    return record


def _block_operation(name: str) -> Any:
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
def fence(typing_context):
    def code(context, builder, signature, arguments):
        builder.fence("acq_rel")
        return context.get_dummy_value()

    return types.void(), code


@intrinsic
def address_of_array(typing_context, array):
    def code(context, builder, signature, arguments):
        data = context.make_array(signature.args[0])(context, builder, arguments[0]).data
        return builder.ptrtoint(data, _I64)

    return types.int64(array), code


@intrinsic
def pwrite(typing_context, file, address, length, offset):
    """The C library's, by its name, so that the compiled code can be kept on disk."""

    def code(context, builder, signature, arguments):
        i64, i32 = ir.IntType(64), ir.IntType(32)
        function_type = ir.FunctionType(i64, [i32, i64, i64, i64])
        function = builder.module.globals.get("pwrite") or ir.Function(builder.module, function_type, "pwrite")
        return builder.call(function, [builder.trunc(arguments[0], i32), *arguments[1:]])

    return types.int64(types.int64, types.int64, types.int64, types.int64), code


@intrinsic
def crc_of_word(typing_context, crc, word):
    """The instruction of x86's SSE 4.2; no other CPU has it."""

    def code(context, builder, signature, arguments):
        i64 = ir.IntType(64)
        function = builder.module.declare_intrinsic("llvm.x86.sse42.crc32.64.64", (), ir.FunctionType(i64, [i64, i64]))
        return builder.call(function, arguments)

    return types.int64(types.int64, types.int64), code


# ---- Python's objects: functions of its API by their names, on addresses.


def python_call(call: Call) -> Any:
    """A function of Python's API."""
    signature = types.int64(*(types.int64,) * len(call.arguments))

    def code(context, builder, signature, arguments):
        kinds = {"i": _I64, "w": ir.IntType(32), "d": ir.DoubleType(), "-": ir.VoidType()}
        function_type = ir.FunctionType(kinds[call.result], [kinds[kind] for kind in call.arguments])
        function = builder.module.globals.get(call.symbol) or ir.Function(builder.module, function_type, call.symbol)
        given = [
            builder.bitcast(argument, kinds["d"]) if kind == "d" else argument
            for kind, argument in zip(call.arguments, arguments, strict=True)
        ]
        result = builder.call(function, given)
        if call.result == "w":
            return builder.sext(result, _I64)
        return ir.Constant(_I64, 0) if call.result == "-" else builder.bitcast(result, _I64)

    def typed(*_: Any) -> Any:
        return signature, code

    # Numba goes by the names of parameters, the first of which is its own.
    names = ["context", *(f"argument{n}" for n in range(len(call.arguments)))]
    parameters = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in names]
    typed.__signature__ = Signature(parameters)  # type: ignore[attr-defined]
    return intrinsic(typed)


def python_constant(symbol: str) -> Any:
    """A function that returns the address of an object that there is one of."""

    def code(context, builder, signature, arguments):
        variable = builder.module.globals.get(symbol) or ir.GlobalVariable(builder.module, ir.IntType(8), symbol)
        return builder.ptrtoint(variable, _I64)

    return intrinsic(lambda _: (types.int64(), code))


load_u8, load_u16, load_u32 = _load(8, False), _load(16, False), _load(32, False)
load_i32, load_i64 = _load(32, True), _load(64, True)
store_8, store_16, store_32, store_64 = _store(8), _store(16), _store(32), _store(64)
move_bytes, fill_bytes = _block_operation("llvm.memmove"), _block_operation("llvm.memset")
multiply, add = _wrapping("mul"), _wrapping("add")


@routine
def wrap(number):
    return number
