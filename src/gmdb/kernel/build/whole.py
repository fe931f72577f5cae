"""All kernels: which there are, how they are divided among processes, and the module that comes out.

The result depends on the sources alone, not on how many processes make it: the parts are always the same.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import multiprocessing
import os
import re
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import gmdb.kernel
from gmdb.kernel.ahead import DIGEST, MODULE, sources_digest
from gmdb.kernel.build.link import find_linker, link
from gmdb.kernel.build.parts import compile_part, compile_wrappers
from gmdb.kernel.build.target import this_target
from gmdb.kernel.runtime.code_cache import sources_of

PARTS = 2
_KERNEL = re.compile(r"^@(?:long_)?kernel$", re.MULTILINE)
_FOLDER = Path(gmdb.kernel.__file__).parent


def is_built(file: Path) -> bool:
    """Whether the module is there, and made of the sources as they are now."""
    if not file.exists():
        return False
    loader = importlib.machinery.ExtensionFileLoader(MODULE, str(file))
    spec = importlib.util.spec_from_loader(MODULE, loader)
    assert spec is not None
    try:
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
    except ImportError:
        return False
    return bool(getattr(module, DIGEST, None) == sources_digest())


def build(into: Path, processes: int | None = None) -> int:
    """Compile all kernels into one extension module; returns how many there are."""
    linker, target = find_linker(), this_target()
    digest = sources_digest()
    before = dict(os.environ)
    os.environ.update(target.environment, GMDB_KERNELS="build")
    try:
        count = min(processes or len(os.sched_getaffinity(0)), PARTS)
        with ProcessPoolExecutor(count, multiprocessing.get_context("spawn"), max_tasks_per_child=1) as pool:
            parts = list(pool.map(compile_part, parts_of(kernel_modules())))
    finally:
        os.environ.clear()
        os.environ.update(before)
    kernels = sorted((kernel for part in parts for kernel in part.kernels), key=lambda kernel: kernel.name)
    wrappers = compile_wrappers(kernels, target, MODULE, digest)
    link(linker, [wrappers, *(part.code for part in parts)], into)
    return len(kernels)


def kernel_modules() -> list[Path]:
    """The files of all kernels."""
    return [path for path in sorted(_FOLDER.rglob("*.py")) if _KERNEL.search(path.read_text(encoding="utf-8"))]


def parts_of(files: list[Path]) -> list[tuple[str, ...]]:
    """Names of modules, divided so that the parts take about as long, and have little code in common."""
    needs = {file: {path: path.stat().st_size for path in sources_of(file)} for file in files}
    parts: list[dict[Path, int]] = [{} for _ in range(PARTS)]
    names: list[list[str]] = [[] for _ in range(PARTS)]
    for file in sorted(files, key=lambda file: (-sum(needs[file].values()), file)):

        def weight(part: dict[Path, int], file: Path = file) -> int:
            return sum((part | needs[file]).values())

        best = min(range(PARTS), key=lambda number: weight(parts[number]))
        parts[best] |= needs[file]
        names[best].append(_module_name(file))
    return [tuple(part) for part in names]


def _module_name(file: Path) -> str:
    return ".".join([gmdb.kernel.__name__, *file.relative_to(_FOLDER).with_suffix("").parts])
