"""What Python calls: one function a kernel, in LLVM's language, and the module that lists them.

A wrapper turns its arguments into 64-bit integers, gives the GIL away where the kernel wants that, and makes Python's
integer or exception of what the kernel returns.  All that is used of Python is in its limited API, as of 3.11; so the
structures below are the same in every later version.

Numba's runtime comes to three functions here.  Kernels make arrays, and sort, within a call; a block of memory that is
counted (``MemInfo``) is allocated together with its data, and freed with it.  No destructor is called: there are
only numbers in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from gmdb.kernel.ahead import DIGEST
from gmdb.kernel.build.parts import Kernel
from gmdb.kernel.build.target import Target
from gmdb.kernel.runtime.status import BUSY

_METHOD = "{ ptr, ptr, i32, ptr }"  # PyMethodDef
_DEFINITION = "{ i64, ptr, ptr, i64, ptr, ptr, ptr, i64, ptr, ptr, ptr, ptr, ptr }"  # PyModuleDef
_FASTCALL = 0x80
_EXEC_SLOT = 2

_HEAD = f"""
declare i64 @PyLong_AsLongLong(ptr)
declare ptr @PyLong_FromLongLong(i64)
declare ptr @PyErr_Occurred()
declare ptr @PyErr_Format(ptr, ptr, ...)
declare void @PyErr_SetObject(ptr, ptr)
declare void @PyErr_SetNone(ptr)
declare ptr @PyEval_SaveThread()
declare void @PyEval_RestoreThread(ptr)
declare ptr @PyImport_ImportModule(ptr)
declare ptr @PyObject_CallMethod(ptr, ptr, ptr, ...)
declare ptr @PyBytes_FromStringAndSize(ptr, i64)
declare ptr @PyTuple_GetItem(ptr, i64)
declare void @Py_DecRef(ptr)
declare ptr @PyModuleDef_Init(ptr)
declare ptr @PyObject_CallObject(ptr, ptr)
declare i32 @PyModule_AddStringConstant(ptr, ptr, ptr)
declare ptr @malloc(i64)
declare void @free(ptr)
@PyExc_TypeError = external global ptr
@PyExc_SystemError = external global ptr
@PyExc_ImportError = external global ptr
@_Py_NoneStruct = external global i8
@_Py_TrueStruct = external global i8
!0 = !{{!"branch_weights", i32 1, i32 2000}}

; MemInfo: count of references, destructor, its data, address of the data, size of the data, allocator
define ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 %alignment) {{
  %align = zext i32 %alignment to i64
  %with_head = add i64 %size, 48
  %all = add i64 %with_head, %align
  %block = call ptr @malloc(i64 %all)
  %failed = icmp eq ptr %block, null
  br i1 %failed, label %no_memory, label %fill
fill:
  %address = ptrtoint ptr %block to i64
  %behind_head = add i64 %address, 48
  %raised = add i64 %behind_head, %align
  %last = sub i64 %raised, 1
  %mask = sub i64 0, %align
  %aligned = and i64 %last, %mask
  store i64 1, ptr %block
  %destructor = getelementptr i64, ptr %block, i64 1
  store i64 0, ptr %destructor
  %destructor_data = getelementptr i64, ptr %block, i64 2
  store i64 0, ptr %destructor_data
  %data = getelementptr i64, ptr %block, i64 3
  store i64 %aligned, ptr %data
  %data_size = getelementptr i64, ptr %block, i64 4
  store i64 %size, ptr %data_size
  %allocator = getelementptr i64, ptr %block, i64 5
  store i64 0, ptr %allocator
  ret ptr %block
no_memory:
  ret ptr null
}}
define ptr @NRT_MemInfo_new_varsize_dtor(i64 %size, ptr %destructor) {{
  %block = call ptr @NRT_MemInfo_alloc_aligned(i64 %size, i32 32)
  ret ptr %block
}}
define void @NRT_MemInfo_call_dtor(ptr %block) {{
  call void @free(ptr %block)
  ret void
}}

@text.pickle = private constant [7 x i8] c"pickle\\00"
@text.loads = private constant [6 x i8] c"loads\\00"
@text.object = private constant [2 x i8] c"N\\00"
@text.status = private constant [31 x i8] c"a kernel failed with status %d\\00"
@text.count = private constant [31 x i8] c"%s takes %d arguments, not %zd\\00"
@text.digest = private constant [{len(DIGEST) + 1} x i8] c"{DIGEST}\\00"

; status 1: %reason has the address and the size of a pickle of the exception's class and arguments
define internal ptr @raise(i32 %status, ptr %reason) cold {{
  %is_told = icmp eq i32 %status, 1
  br i1 %is_told, label %told, label %unknown
unknown:
  %system_error = load ptr, ptr @PyExc_SystemError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %system_error, ptr @text.status, i32 %status)
  ret ptr null
told:
  %pickled = load ptr, ptr %reason
  %size_at = getelementptr i8, ptr %reason, i64 8
  %size = load i32, ptr %size_at
  %length = sext i32 %size to i64
  %pickle = call ptr @PyImport_ImportModule(ptr @text.pickle)
  %no_pickle = icmp eq ptr %pickle, null
  br i1 %no_pickle, label %end, label %load
load:
  %bytes = call ptr @PyBytes_FromStringAndSize(ptr %pickled, i64 %length)
  %what = call ptr (ptr, ptr, ptr, ...) @PyObject_CallMethod(ptr %pickle, ptr @text.loads, ptr @text.object, ptr %bytes)
  call void @Py_DecRef(ptr %pickle)
  %no_what = icmp eq ptr %what, null
  br i1 %no_what, label %end, label %set
set:
  %class = call ptr @PyTuple_GetItem(ptr %what, i64 0)
  %arguments = call ptr @PyTuple_GetItem(ptr %what, i64 1)
  %no_arguments = icmp eq ptr %arguments, @_Py_NoneStruct
  br i1 %no_arguments, label %alone, label %with_arguments
alone:
  call void @PyErr_SetNone(ptr %class)
  br label %done
with_arguments:
  call void @PyErr_SetObject(ptr %class, ptr %arguments)
  br label %done
done:
  call void @Py_DecRef(ptr %what)
  br label %end
end:
  ret ptr null
}}
; call a method of a gate that takes a lock: 1, 0 if it is not free, -1 with an exception
define internal i32 @take(ptr %gate, i64 %number) {{
  %no_waiting = call ptr @PyTuple_GetItem(ptr %gate, i64 0)
  %is_no_gate = icmp eq ptr %no_waiting, null
  br i1 %is_no_gate, label %failed, label %call
call:
  %method = call ptr @PyTuple_GetItem(ptr %gate, i64 %number)
  %is_taken = call ptr @PyObject_CallObject(ptr %method, ptr %no_waiting)
  %is_null = icmp eq ptr %is_taken, null
  br i1 %is_null, label %failed, label %answered
answered:
  call void @Py_DecRef(ptr %is_taken)
  %is_true = icmp eq ptr %is_taken, @_Py_TrueStruct
  %result = zext i1 %is_true to i32
  ret i32 %result
failed:
  ret i32 -1
}}
define internal void @release(ptr %gate, i64 %number) {{
  %method = call ptr @PyTuple_GetItem(ptr %gate, i64 %number)
  %nothing = call ptr @PyObject_CallObject(ptr %method, ptr null)
  call void @Py_DecRef(ptr %nothing)
  ret void
}}
define internal i32 @enter(ptr %gate) {{
  %is_open = icmp eq ptr %gate, @_Py_NoneStruct
  br i1 %is_open, label %inside, label %begin
begin:
  %first = call i32 @take(ptr %gate, i64 1)
  %has_first = icmp eq i32 %first, 1
  br i1 %has_first, label %go_on, label %stop
go_on:
  %second = call i32 @take(ptr %gate, i64 3)
  %has_second = icmp eq i32 %second, 1
  br i1 %has_second, label %inside, label %back
inside:
  ret i32 1
back:
  call void @release(ptr %gate, i64 2)
  ret i32 %second
stop:
  ret i32 %first
}}
define internal void @leave(ptr %gate) {{
  %is_open = icmp eq ptr %gate, @_Py_NoneStruct
  br i1 %is_open, label %done, label %end
end:
  call void @release(ptr %gate, i64 4)
  call void @release(ptr %gate, i64 2)
  br label %done
done:
  ret void
}}
define internal ptr @refuse_count(ptr %name, i32 %wanted, i64 %count) cold {{
  %type_error = load ptr, ptr @PyExc_TypeError
  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %type_error, ptr @text.count, ptr %name, i32 %wanted, i64 %count)
  ret ptr null
}}
"""


def module_text(kernels: Iterable[Kernel], target: Target, name: str, digest: str) -> str:
    """The module in LLVM's language: what all wrappers share, the wrappers, and what Python looks for."""
    kernels = list(kernels)
    return "\n".join([_HEAD, *(_wrapper(kernel) for kernel in kernels), *_module(kernels, target, name, digest)])


def _constant(label: str, text: str) -> str:
    data = text.encode() + b"\0"
    escaped = "".join(chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in data)
    return f'@{label} = private constant [{len(data)} x i8] c"{escaped}"'


def _wrapper(kernel: Kernel) -> str:
    count = len(kernel.arguments)
    signature = f"{kernel.name}({', '.join((*kernel.arguments, '/'))})\n--\n\n"
    numbers = "".join(f", i64 %n{i}" for i in range(count))
    lines = [
        _constant(f"name.{kernel.name}", kernel.name),
        _constant(f"doc.{kernel.name}", signature + kernel.doc),
        f"declare hidden i32 @{kernel.symbol}(ptr, ptr{', i64' * count})",
        f"define internal ptr @call.{kernel.name}(ptr %module, ptr %arguments, i64 %count) {{",
        "  %result = alloca i64",
        "  %reason = alloca ptr",
        f"  %is_right = icmp eq i64 %count, {count}",
        "  br i1 %is_right, label %argument0, label %wrong_count",
        "wrong_count:",
        f"  call ptr @refuse_count(ptr @name.{kernel.name}, i32 {count}, i64 %count)",
        "  br label %failed",
        *(line for i in range(count) for line in _argument(i, kernel.takes_objects[i], i == kernel.gate)),
        f"argument{count}:",
        *(_entering(kernel.gate) if kernel.gate >= 0 else ()),
        *(["  %state = call ptr @PyEval_SaveThread()"] if kernel.gives_gil_away else []),
        f"  %status = call i32 @{kernel.symbol}(ptr %result, ptr %reason{numbers})",
        *(["  call void @PyEval_RestoreThread(ptr %state)"] if kernel.gives_gil_away else []),
        *([f"  call void @leave(ptr %o{kernel.gate})"] if kernel.gate >= 0 else []),
        "  %is_good = icmp eq i32 %status, 0",
        "  br i1 %is_good, label %good, label %bad",
        "good:",
        "  %value = load i64, ptr %result",
        *(_OBJECT_OR_NUMBER if kernel.returns_object else ()),
        "  %number = call ptr @PyLong_FromLongLong(i64 %value)",
        "  ret ptr %number",
        "bad:",
        "  %why = load ptr, ptr %reason",
        "  call ptr @raise(i32 %status, ptr %why)",
        "  br label %failed",
        "failed:",
        "  ret ptr null",
        "}",
    ]
    return "\n".join(lines)


# What a kernel returns is the address of an object, or a status, which is less.
_OBJECT_OR_NUMBER = (
    "  %is_object = icmp sge i64 %value, 0",
    "  br i1 %is_object, label %object, label %status_only",
    "object:",
    "  %thing = inttoptr i64 %value to ptr",
    "  ret ptr %thing",
    "status_only:",
)


def _entering(gate: int) -> Iterator[str]:
    """Take the locks of a gate, or return BUSY."""
    yield f"  %entered = call i32 @enter(ptr %o{gate})"
    yield "  switch i32 %entered, label %failed [i32 1, label %inside i32 0, label %outside]"
    yield "outside:"
    yield f"  %busy = call ptr @PyLong_FromLongLong(i64 {BUSY})"
    yield "  ret ptr %busy"
    yield "inside:"


def _argument(number: int, is_object: bool, is_gate: bool) -> Iterator[str]:
    """An argument as a number; an object's is its address.  -1 may be a number or stand for an error."""
    yield f"argument{number}:"
    yield f"  %at{number} = getelementptr ptr, ptr %arguments, i64 {number}"
    yield f"  %o{number} = load ptr, ptr %at{number}"
    if is_gate:
        yield f"  %has_gate = icmp ne ptr %o{number}, @_Py_NoneStruct"
        yield f"  %n{number} = zext i1 %has_gate to i64"
    elif is_object:
        yield f"  %n{number} = ptrtoint ptr %o{number} to i64"
    if is_object:
        yield f"  br label %argument{number + 1}"
        return
    yield f"  %n{number} = call i64 @PyLong_AsLongLong(ptr %o{number})"
    yield f"  %is_minus_one{number} = icmp eq i64 %n{number}, -1"
    yield f"  br i1 %is_minus_one{number}, label %ask{number}, label %argument{number + 1}, !prof !0"
    yield f"ask{number}:"
    yield f"  %error{number} = call ptr @PyErr_Occurred()"
    yield f"  %is_number{number} = icmp eq ptr %error{number}, null"
    yield f"  br i1 %is_number{number}, label %argument{number + 1}, label %failed"


def _module(kernels: list[Kernel], target: Target, name: str, digest: str) -> Iterator[str]:
    rows = [
        f"{_METHOD} {{ ptr @name.{kernel.name}, ptr @call.{kernel.name}, i32 {_FASTCALL}, ptr @doc.{kernel.name} }}"
        for kernel in kernels
    ]
    rows.append(f"{_METHOD} zeroinitializer")
    yield _constant("text.name", name)
    yield _constant("text.sources", digest)
    yield f"@methods = internal global [{len(rows)} x {_METHOD}] [{', '.join(rows)}]"
    slots = f"{{ i32, ptr }} {{ i32 {_EXEC_SLOT}, ptr @execute }}, {{ i32, ptr }} zeroinitializer"
    yield f"@slots = internal global [2 x {{ i32, ptr }}] [{slots}]"
    yield (
        f"@definition = internal global {_DEFINITION} {{ i64 1, ptr null, ptr null, i64 0, ptr null, ptr @text.name,"
        " ptr null, i64 0, ptr @methods, ptr @slots, ptr null, ptr null, ptr null }"
    )
    yield f"define ptr @PyInit_{name}() #0 {{"
    yield "  %module = call ptr @PyModuleDef_Init(ptr @definition)"
    yield "  ret ptr %module"
    yield "}"
    yield from _execute(target)
    yield f'attributes #0 = {{ "target-cpu"="{target.oldest_cpu}" }}'


def _execute(target: Target) -> Iterator[str]:
    """What runs when the module is imported: it refuses where the CPU lacks instructions; there it has none of them."""
    yield "define internal i32 @execute(ptr %module) #0 {"
    if target.cpuid_bits:
        clobbered = "~{dirflag},~{fpsr},~{flags}"
        yield (
            '  %cpu = call { i32, i32, i32, i32 } asm sideeffect "cpuid",'
            f' "={{ax}},={{bx}},={{cx}},={{dx}},{{ax}},{{cx}},{clobbered}"(i32 1, i32 0)'
        )
        yield "  %features = extractvalue { i32, i32, i32, i32 } %cpu, 2"
        yield f"  %wanted = and i32 %features, {target.cpuid_bits}"
        yield f"  %is_fit = icmp eq i32 %wanted, {target.cpuid_bits}"
        yield "  br i1 %is_fit, label %fit, label %unfit"
        yield "unfit:"
        yield "  %import_error = load ptr, ptr @PyExc_ImportError"
        yield "  call ptr (ptr, ptr, ...) @PyErr_Format(ptr %import_error, ptr @text.unfit)"
        yield "  ret i32 -1"
        yield "fit:"
    yield "  %done = call i32 @PyModule_AddStringConstant(ptr %module, ptr @text.digest, ptr @text.sources)"
    yield "  ret i32 %done"
    yield "}"
    yield _constant("text.unfit", f"they need a CPU with the instructions of {target.cpu}, and this one lacks some")
