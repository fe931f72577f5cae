"""How kernels are compiled, and where the machine code is kept.

Numba does not notice when a function that a kernel calls, in another file, has changed.  So the cache lies in
a folder named by a hash of all sources that kernels are made of: other sources, other folder.

With ``NUMBA_DISABLE_JIT=1`` kernels run as plain Python, slowly, for debuggers and coverage.
"""

from __future__ import annotations

import hashlib
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
from numba.core import config

COMPILED = not config.DISABLE_JIT


def _sources_hash() -> str:
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder in ("format", "kernel"):
        for path in sorted((package / folder).glob("*.py")):
            digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


def _cache_directory() -> Path:
    base = os.environ.get("GMDB_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(base) / "gmdb" / f"kernels-{_sources_hash()}"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:
        pass
    directory = Path(tempfile.gettempdir()) / f"gmdb-{os.getuid()}" / directory.name
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


CACHE_DIRECTORY = _cache_directory()


def _announce_first_compilation() -> None:
    """Tell a person at a terminal why the first call takes seconds; once for each set of sources."""
    mark = CACHE_DIRECTORY / "announced"
    if COMPILED and not mark.exists():
        mark.touch()
        if sys.stderr.isatty():
            print("gmdb: compiling its kernels for this machine, once; this takes some seconds", file=sys.stderr)


def kernel(function: Callable[..., Any]) -> Callable[..., int]:
    """A function that Python calls: compiled at its first call, and kept on disk.

    It keeps the GIL: it takes microseconds, and giving the GIL away for that long costs more than it brings.
    """
    return _compile(function, nogil=False)


def long_kernel(function: Callable[..., Any]) -> Callable[..., int]:
    """A kernel that works on many pages, while other threads run Python."""
    return _compile(function, nogil=True)


def _compile(function: Callable[..., Any], nogil: bool) -> Any:
    _announce_first_compilation()
    before, config.CACHE_DIR = config.CACHE_DIR, str(CACHE_DIRECTORY)  # read when the function is decorated
    try:
        return numba.njit(nogil=nogil, cache=True, boundscheck=False)(function)
    finally:
        config.CACHE_DIR = before


def routine(function: Callable[..., Any]) -> Any:
    """A function that only kernels call: compiled, and cached, as part of them."""
    return numba.njit(nogil=True, boundscheck=False)(function)
