"""Some of the kernels, with all that they call, as one object: the work of one process of the build."""

from __future__ import annotations

import importlib
from typing import Any

import llvmlite.binding as llvm

from gmdb.errors import KernelsUnavailable
from gmdb.kernel.build.target import Target, this_target
from gmdb.kernel.runtime.python_api import SYMBOLS, gate_of, returns_object, takes_objects
from gmdb.process.late_dataclasses import dataclass

SYMBOL = "gmdb_"  # what the names of all of a part's own functions that others call begin with

# What machine code may call: of the C library, which every process of Python has loaded.
C_LIBRARY = frozenset({"free", "malloc", "memcpy", "memmove", "memset", "pwrite"})
# Numba's runtime, as far as kernels need it: arrays that do not outlive a call (wrappers.py defines them).
RUNTIME = frozenset({"NRT_MemInfo_alloc_aligned", "NRT_MemInfo_call_dtor", "NRT_MemInfo_new_varsize_dtor"})


@dataclass(frozen=True)
class Kernel:
    """What the extension module has to know of a kernel."""

    name: str
    symbol: str
    arguments: tuple[str, ...]
    takes_objects: tuple[bool, ...]  # of each argument
    gate: int  # which argument is a gate; -1: none
    returns_object: bool
    gives_gil_away: bool
    doc: str


@dataclass(frozen=True)
class Part:
    kernels: tuple[Kernel, ...]
    code: bytes  # an object


def compile_part(names: tuple[str, ...]) -> Part:
    """Compile the kernels of some modules.  The process is one that compiles nothing else."""
    from gmdb.kernel.build import collect

    for name in names:
        importlib.import_module(name)
    symbols = {one: one.compile() for one in collect.collected if one.function.__module__ in names}
    module = llvm.parse_assembly("")
    for one in collect.modules():
        module.link_in(one, preserve=True)
    kernels = []
    for one, symbol in symbols.items():
        objects = takes_objects(one.function), gate_of(one.function), returns_object(one.function)
        doc = one.function.__doc__ or ""
        kernels.append(Kernel(one.name, SYMBOL + one.name, one.arguments, *objects, one.gives_gil_away, doc))
        module.get_function(symbol).name = kernels[-1].symbol
    keep_inside(module, {kernel.symbol for kernel in kernels})
    code = emit(module)
    _check_symbols(module)
    return Part(tuple(kernels), code)


def keep_inside(module: Any, shared: set[str] | frozenset[str], public: str = "") -> None:
    """Have other objects see nothing but what is shared, so that the rest can be inlined and left out.

    Of that nothing is seen outside of the library, except what is public.
    """
    for value in (*module.functions, *module.global_variables):
        if value.name in shared:
            value.visibility = "hidden"
        elif not value.is_declaration and value.name != public and value.linkage != llvm.Linkage.private:
            value.linkage = "internal"


def _check_symbols(module: Any) -> None:
    needed = {function.name for function in module.functions if function.is_declaration}
    unknown = {name for name in needed - C_LIBRARY - RUNTIME - SYMBOLS if not name.startswith("llvm.")}
    if unknown:
        raise KernelsUnavailable(f"kernels call what an extension module does not have: {', '.join(sorted(unknown))}")


def machine_of(target: Target) -> Any:
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    llvm.initialize_native_asmparser()  # for the one instruction that wrappers.py spells out
    return llvm.Target.from_triple(target.triple).create_target_machine(
        cpu=target.cpu, features="", opt=3, reloc="pic", codemodel="default"
    )


def emit(module: Any) -> bytes:
    """Optimise a module as Numba does it, in two steps, and make machine code of it."""
    target = this_target()
    machine = machine_of(target)
    module.triple, module.data_layout = target.triple, str(machine.target_data)
    _optimise(module, machine, 0)  # inlines, so that counts of references are pruned within a function
    _optimise(module, machine, 3)
    module.verify()
    addresses = [value.name for value in module.global_variables if value.name.startswith("numba.dynamic.globals")]
    if addresses:
        raise KernelsUnavailable(f"kernels need addresses of the process that compiles them: {', '.join(addresses)}")
    return machine.emit_object(module)


def _optimise(module: Any, machine: Any, level: int) -> None:
    options = llvm.create_pipeline_tuning_options(speed_level=level)
    options.loop_vectorization, options.slp_vectorization = level > 0, False
    builder = llvm.create_pass_builder(machine, options)
    passes = builder.getModulePassManager()
    if level == 0:
        passes.add_loop_rotate_pass()
        passes.add_instruction_combine_pass()
        passes.add_jump_threading_pass()
    passes.add_refprune_pass()
    passes.run(module, builder)


def compile_wrappers(kernels: list[Kernel], target: Target, name: str, digest: str) -> bytes:
    """The object of what Python calls."""
    from gmdb.kernel.build.wrappers import module_text

    module = llvm.parse_assembly(module_text(kernels, target, name, digest))
    keep_inside(module, RUNTIME, public=f"PyInit_{name}")
    return emit(module)
