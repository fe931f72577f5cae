"""How kernels are compiled.

With ``NUMBA_DISABLE_JIT=1`` kernels run as plain Python, slowly, for debuggers and coverage.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler

from gmdb.kernel.kept import cache_directory

COMPILED = not config.DISABLE_JIT


_is_announced = False
_kernels: list[Any] = []


def _announce_first_compilation(directory: Path | None) -> None:
    """Tell a person at a terminal why the first call takes long; once for each set of sources."""
    global _is_announced
    if directory is None:  # and a warning has said so
        return
    mark = directory / "announced"
    if COMPILED and not mark.exists():
        mark.touch()
        if sys.stderr.isatty() and not _is_announced:
            _is_announced = True
            print("gmdb: compiling its kernels for this machine, once; this takes about half a minute", file=sys.stderr)


def kernel(function: Callable[..., Any]) -> Callable[..., int]:
    """A function that Python calls: compiled at its first call, and kept on disk.

    It keeps the GIL: it takes microseconds, and giving the GIL away for that long costs more than it brings.
    """
    return _compile(function, nogil=False)


def long_kernel(function: Callable[..., Any]) -> Callable[..., int]:
    """A kernel that works on many pages, while other threads run Python."""
    return _compile(function, nogil=True)


def _compile(function: Callable[..., Any], nogil: bool) -> Any:
    directory = cache_directory(Path(function.__code__.co_filename))
    _announce_first_compilation(directory)
    options = {"nogil": nogil, "boundscheck": False, "no_cfunc_wrapper": True}
    made = None if directory is None else _kept(function, directory, options)
    made = made or numba.njit(**options)(function)
    _kernels.append(made)
    return made


def _kept(function: Callable[..., Any], directory: Path, options: dict[str, Any]) -> Any:
    """The function, kept in a directory; None if Numba cannot write there and chose a place that nobody has checked."""
    before = config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES
    config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = str(directory), ""  # read when the function is decorated
    try:
        made = numba.njit(cache=True, **options)(function)
    except RuntimeError:  # there is no place at all
        return None
    finally:
        config.CACHE_DIR, config.CACHE_LOCATOR_CLASSES = before
    return made if not COMPILED or Path(made.stats.cache_path).parent == directory else None


def is_kernel(value: object) -> bool:
    """Whether it is a compiled function that Python may call."""
    return any(value is kernel for kernel in _kernels)


def routine(function: Callable[..., Any]) -> Any:
    """A function that only kernels call: compiled, and cached, as part of them.  From Python it is a TypeError."""
    options = {"nogil": True, "boundscheck": False, "no_cpython_wrapper": True, "no_cfunc_wrapper": True}
    return numba.njit(pipeline_class=_RoutineCompiler, **options)(function)


class _RoutineCompiler(Compiler):
    """Compiles a routine into LLVM's language and no further.

    Numba would optimise each routine with all that it calls, and make machine code that nobody runs: kernels link the
    routines in and are optimised as a whole.  To leave that out makes the first use of a database three times as fast.
    """

    def __init__(self, typing_context: Any, target_context: Any, _: None, *others: Any) -> None:
        super().__init__(typing_context, target_context, _RoutineLibrary(target_context.codegen(), "routine"), *others)


class _RoutineLibrary(JITCodeLibrary):
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
    def codegen(self) -> _RoutineLibrary:
        return self  # for set_env, which Numba calls once the pointer is known

    def set_env(self, env_name: str, env: object) -> None:
        """There is no place for it without machine code, and only code that handles objects has need of it."""
