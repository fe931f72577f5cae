"""How kernels are run: compiled ahead, compiled at their first call, or as plain Python.

- **ahead**: the extension module that ``gmdb.kernel.build`` makes has all of them.  Neither a compiler nor Numba is
  needed, or loaded.  It is used if it was made of the very sources that lie beside it, and for a CPU like this one.
- **jit**: Numba compiles a kernel when it is first called, and keeps the machine code (code_cache.py).  For those
  who change kernels.
- **plain**: kernels are Python, slowly, for debuggers and coverage.  Numba is not imported.

``GMDB_KERNELS`` names the way.  Without it kernels run ahead where they can, else by the JIT; never as plain Python.
A kernel is decorated the same way for all three.
"""

from __future__ import annotations

import importlib.util
import os
import warnings
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from gmdb.errors import InterfaceError, KernelsUnavailable
from gmdb.kernel import ahead

__all__ = [
    "AHEAD", "BUILD", "COMPILED", "HAS_CRC32C", "JIT", "PLAIN", "WAY", "kernel", "long_kernel", "numpy", "operations",
    "routine",
]  # fmt: skip

AHEAD, JIT, PLAIN = "ahead", "jit", "plain"
BUILD = "build"  # what gmdb.kernel.build sets in its own processes, which compile kernels for the extension module
_ADVICE = "install gmdb from a wheel, which has kernels, or gmdb[jit], which can compile them"


def _chosen(wanted: str) -> str:
    """The way that kernels run in this process."""
    if wanted not in ("", AHEAD, JIT, PLAIN, BUILD):
        raise InterfaceError(f"GMDB_KERNELS is {wanted!r}; it may be {AHEAD}, {JIT} or {PLAIN}, or not be set")
    if wanted == JIT:
        _require_numba("GMDB_KERNELS is jit")
    if wanted in (JIT, PLAIN, BUILD):
        return wanted
    flaw = ahead.load()
    if flaw is None:
        return AHEAD
    if wanted == AHEAD:
        raise KernelsUnavailable(f"GMDB_KERNELS is ahead, but {flaw.text}; {flaw.advice}")
    _require_numba(flaw.text)
    if not flaw.is_absence:
        message = f"gmdb compiles kernels when they are first called, as {flaw.text}; {flaw.advice}"
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return JIT


def _require_numba(why: str) -> None:
    if importlib.util.find_spec("numba") is None:
        raise KernelsUnavailable(f"{why}, and Numba, which compiles them, is not installed; {_ADVICE}")


WAY = _chosen(os.environ.get("GMDB_KERNELS", ""))
COMPILED = WAY != PLAIN

_way: Any  # has the decorators
if WAY == AHEAD:
    _way = ahead
elif WAY == PLAIN:
    from gmdb.kernel.runtime import plain

    _way = plain
elif WAY == JIT:
    from gmdb.kernel.runtime import jit

    _way = jit
else:
    from gmdb.kernel.build import collect

    _way = collect


def kernel(function: Callable[..., Any]) -> Callable[..., int]:
    """A function that Python calls.

    It keeps the GIL: it takes microseconds, and giving the GIL away for that long costs more than it brings.
    What of its parameters and its result is an object, annotations say (python_api.py); all else are integers.
    """
    return _way.kernel(function)


def long_kernel(function: Callable[..., Any]) -> Callable[..., int]:
    """A kernel that works on many pages, while other threads run Python."""
    return _way.long_kernel(function)


def routine(function: Callable[..., Any]) -> Any:
    """A function that only kernels call: compiled as part of them.  If Python calls it, that is a TypeError.

    As plain Python it is a function like any other.
    """
    return _way.routine(function)


HAS_CRC32C: bool = _way.HAS_CRC32C  # whether the CPU that kernels are compiled for has an instruction for it

if TYPE_CHECKING or WAY != AHEAD:
    import numpy
else:  # what kernels' sources have of NumPy is for those who compile or run them
    from gmdb.process.late_imports import numpy

operations: Any  # on memory and objects: what memory.py and objects.py export
if WAY in (JIT, BUILD):
    from gmdb.kernel.runtime import intrinsics

    operations = intrinsics
elif WAY == AHEAD:
    operations = ahead.operations
else:
    operations = _way
