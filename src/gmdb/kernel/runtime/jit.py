"""Kernels that Numba compiles when they are first called, and keeps on disk."""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import llvmlite.binding as llvm
import numba
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from gmdb.errors import InterfaceError
from gmdb.kernel.runtime.code_cache import cache_directory
from gmdb.kernel.runtime.plain import with_objects

if config.DISABLE_JIT:
    raise InterfaceError("Numba compiles nothing while NUMBA_DISABLE_JIT is set; GMDB_KERNELS=plain needs no Numba")

HAS_CRC32C = bool(llvm.get_host_cpu_features().get("sse4.2", False))
_is_announced = False


def _announce_first_compilation(directory: Path | None) -> None:
    """Tell a person at a terminal why the first call takes long; once for each set of sources."""
    global _is_announced
    if directory is None:  # a warning has said so
        return
    mark = directory / "announced"
    if not mark.exists():
        mark.touch()
        if sys.stderr.isatty() and not _is_announced:
            _is_announced = True
            print("gmdb: compiling kernels when they are first called; make kernels does it ahead", file=sys.stderr)


def kernel(function: Callable[..., Any]) -> Any:
    return _compile(function, nogil=False)


def long_kernel(function: Callable[..., Any]) -> Any:
    return _compile(function, nogil=True)


def _compile(function: Callable[..., Any], nogil: bool) -> Any:
    directory = cache_directory(Path(function.__code__.co_filename))
    _announce_first_compilation(directory)
    options = {"nogil": nogil, "boundscheck": False, "no_cfunc_wrapper": True}
    cached = None if directory is None else _cached(function, directory, options)
    return with_objects(function, cached or numba.njit(**options)(function))


def _cached(function: Callable[..., Any], directory: Path, options: dict[str, Any]) -> Any:
    """The function, cached in the directory; None if Numba cannot write there and chose another, unchecked place."""
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = str(directory), ""  # read when the function is decorated
    try:
        compiled = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # no directory can be written
        return None
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before
    return compiled if Path(compiled.stats.cache_path).parent == directory else None


def routine(function: Callable[..., Any]) -> Any:
    options = {"nogil": True, "boundscheck": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(pipeline_class=_RoutineCompiler, **options)(function)


class _RoutineCompiler(Compiler):
    """Compiles a routine into LLVM's language and no further.

    Numba would optimise each routine with all that it calls, and make machine code that is never run: kernels link the
    routines in and are optimised as a whole.  To leave that out makes the first use of a database three times as fast.
    """

    def __init__(self, typing_context: Any, target_context: Any, _: None, *others: Any) -> None:
        super().__init__(typing_context, target_context, RoutineLibrary(target_context.codegen(), "routine"), *others)


class RoutineLibrary(JITCodeLibrary):
    def finalize(self) -> None:
        for library in dict.fromkeys(self._linking_libraries):
            self._reload_init.update(library._reload_init)
            self._final_module.link_in(library._get_module_for_linking(), preserve=True)
        self._finalize_dynamic_globals()
        self._finalized = True

    def get_pointer_to_function(self, _: str) -> int:
        """What Python would call: it has the signature of such a function, and sets a TypeError."""
        self._ensure_finalized()
        return ctypes.cast(ctypes.pythonapi.PyErr_BadArgument, ctypes.c_void_p).value or 0

    @property
    def codegen(self) -> RoutineLibrary:
        return self  # for set_env, which Numba calls once the pointer is known

    def set_env(self, env_name: str, env: object) -> None:
        """Do nothing: only code that handles objects needs an environment, and there is no machine code."""
