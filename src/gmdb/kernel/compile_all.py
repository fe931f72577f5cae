"""Compiling every kernel at once, on all cores, before any is called.

All values that kernels take are 64-bit integers, so they can be compiled without being called.  Whoever does not ask
for it has each kernel compiled at its first call, by the process that calls it.  That all is done is seen without
loading the compiler.
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

from gmdb.kernel.kept import digest_of, kept_in, sources_of

FOLDER = Path(__file__).parent
Report = Callable[[int, int], None]  # (kernels that are compiled, all of them)


def mark_of(folder: Path, files: Sequence[Path]) -> Path:
    """What is there once the kernels of some files are compiled: as they are, where they are; Numba asks for both."""
    where = hashlib.sha256(str(files[0].parent).encode()).hexdigest()[:8]
    return folder / f"all-{where}-{digest_of(sorted({path for file in files for path in sources_of(file)}))}"


def compile_all(others: Sequence[Path], report: Report, processes: int | None = None) -> int:
    """Compile all kernels of this folder and some other files, unless that was done before; returns how many.

    Where nothing is kept there is nothing to be done before it is needed.
    """
    folder = kept_in()
    if folder is None:
        return 0
    files = sorted([*FOLDER.glob("*.py"), *others])
    mark = mark_of(folder, files)
    if mark.exists():
        return 0
    from gmdb.kernel.compiler import COMPILED

    if not COMPILED:
        return 0
    # The largest first, so that no core has a long one left at the end.
    files.sort(key=lambda file: -sum(path.stat().st_size for path in sources_of(file)))
    kernels = [(file, name) for file in files for name in _kernels_of(_module(file))]
    count = processes or len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(count, mp_context=multiprocessing.get_context("spawn")) as pool:
        tasks = [pool.submit(_compile, *kernel) for kernel in kernels]
        for done, task in enumerate(as_completed(tasks), 1):
            task.result()
            report(done, len(kernels))
    mark.touch()
    return len(kernels)


def _module(file: Path) -> ModuleType:
    return importlib.import_module(".".join(["gmdb", *file.relative_to(FOLDER.parent).with_suffix("").parts]))


def _kernels_of(module: ModuleType) -> list[str]:
    from gmdb.kernel.compiler import is_kernel

    return [name for name, value in vars(module).items() if is_kernel(value) and value.__module__ == module.__name__]


def _compile(file: Path, name: str) -> None:
    from numba import types

    kernel = getattr(_module(file), name)
    kernel.compile((types.int64,) * kernel.py_func.__code__.co_argcount)
