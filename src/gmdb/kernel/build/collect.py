"""Decorators for the processes of the build: kernels and routines are compiled into LLVM's language and no further.

Each function stays in a module of its own.  When all are collected they are linked once and optimised as
a whole; to link each into all of its callers, as Numba does, takes most of the time of a compilation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from gmdb.kernel.ahead import exported_name
from gmdb.kernel.build.target import this_target
from gmdb.kernel.runtime.jit import RoutineLibrary
from gmdb.process.late_dataclasses import dataclass

HAS_CRC32C = this_target().has_crc32c  # whatever the CPU of the machine that builds can do
collected: list[Collected] = []
_libraries: list[_UnlinkedLibrary] = []


@dataclass(frozen=True)
class Collected:
    """A kernel that is to be in the extension module."""

    function: Callable[..., Any]
    dispatcher: Any
    gives_gil_away: bool

    @property
    def name(self) -> str:
        return exported_name(self.function)

    @property
    def arguments(self) -> tuple[str, ...]:
        code = self.function.__code__
        return code.co_varnames[: code.co_argcount]

    def compile(self) -> str:
        """Compile it, and all routines that it calls; returns its symbol."""
        self.dispatcher.compile((types.int64,) * len(self.arguments))
        (result,) = self.dispatcher.overloads.values()
        if types.unliteral(result.signature.return_type) != types.int64:
            raise TypeError(f"{self.name} returns {result.signature.return_type}; kernels return 64-bit integers")
        return result.fndesc.llvm_func_name


def kernel(function: Callable[..., Any]) -> Any:
    return _collect(function, False)


def long_kernel(function: Callable[..., Any]) -> Any:
    return _collect(function, True)


def _collect(function: Callable[..., Any], gives_gil_away: bool) -> Any:
    dispatcher = routine(function)
    collected.append(Collected(function, dispatcher, gives_gil_away))
    return dispatcher


def routine(function: Callable[..., Any]) -> Any:
    options = {"nogil": True, "boundscheck": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(pipeline_class=_UnlinkedCompiler, **options)(function)


def modules() -> Iterator[Any]:
    """LLVM's modules of all that was compiled, and of the parts of Numba that it calls."""
    known: dict[JITCodeLibrary, None] = {}
    for library in _libraries:
        yield library._final_module
        known.update(dict.fromkeys(one for one in library._linking_libraries if not isinstance(one, RoutineLibrary)))
    for other in known:
        yield other._get_module_for_linking()


class _UnlinkedCompiler(Compiler):
    def __init__(self, typing_context: Any, target_context: Any, _: None, *others: Any) -> None:
        super().__init__(typing_context, target_context, _UnlinkedLibrary(target_context.codegen(), "part"), *others)


class _UnlinkedLibrary(RoutineLibrary):
    def finalize(self) -> None:
        self._finalized = True
        _libraries.append(self)

    def _optimize_functions(self, _: Any) -> None:
        """All are optimised at the end, together."""
