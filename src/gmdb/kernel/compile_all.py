"""Compiling every kernel at once, on all cores, before any is called.

All values that kernels take are 64-bit integers, so they can be compiled without being called.  Whoever does not ask
for it has each kernel compiled at its first call, by the process that calls it.
"""

from __future__ import annotations

import hashlib
import importlib
import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from types import ModuleType

from numba import types

from gmdb.kernel.compiler import COMPILED, is_kernel, kept_in, sources_of

FOLDER = Path(__file__).parent
Report = Callable[[int, int], None]  # (kernels that are compiled, all of them)


def kernel_modules() -> list[str]:
    """The modules of this folder, in which most kernels are."""
    return [f"{__package__}.{path.stem}" for path in sorted(FOLDER.glob("*.py")) if path.stem != "__init__"]


def compile_all(modules: Sequence[str], report: Report, processes: int | None = None) -> int:
    """Compile the kernels of some modules, unless that was done before; answers how many there were to compile."""
    loaded = [importlib.import_module(name) for name in modules]
    mark = kept_in() / f"all-{_digest(loaded)}"
    if not COMPILED or mark.exists():
        return 0
    # The largest files first, so that no core has a long one left at the end.
    loaded.sort(key=lambda module: -_size(module))
    kernels = [(module.__name__, name) for module in loaded for name in _kernels_of(module)]
    with ProcessPoolExecutor(
        processes or len(os.sched_getaffinity(0)), mp_context=multiprocessing.get_context("spawn")
    ) as pool:
        tasks = [pool.submit(_compile, *kernel) for kernel in kernels]
        for done, task in enumerate(as_completed(tasks), 1):
            task.result()
            report(done, len(kernels))
    mark.touch()
    return len(kernels)


def _kernels_of(module: ModuleType) -> list[str]:
    return [name for name, value in vars(module).items() if is_kernel(value) and value.__module__ == module.__name__]


def _compile(module: str, name: str) -> None:
    kernel = getattr(importlib.import_module(module), name)
    kernel.compile((types.int64,) * kernel.py_func.__code__.co_argcount)


def _source(module: ModuleType) -> Path:
    assert module.__file__ is not None
    return Path(module.__file__)


def _size(module: ModuleType) -> int:
    return sum(path.stat().st_size for path in sources_of(_source(module)))


def _digest(modules: Sequence[ModuleType]) -> str:
    sources = sorted({path for module in modules for path in sources_of(_source(module))})
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]
