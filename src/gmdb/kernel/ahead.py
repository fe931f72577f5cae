"""Kernels compiled ahead: the extension module with them, whether it may be used, and their names in it.

Invariants
 1. A module is used only if it was made of the sources that lie beside it: it carries their digest.
 2. A module that was made for CPUs with more instructions than this one has is not loaded: loading it fails.
Not here: how it is built (build/).
"""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType
from typing import Any, NoReturn
from zlib import crc32

from gmdb.errors import KernelsUnavailable
from gmdb.process.late_dataclasses import dataclass

MODULE = "_kernels"
FILE = f"{MODULE}.abi3.so"  # in this folder
DIGEST = "SOURCES"  # the module's attribute with the digest of what it was made of
HAS_CRC32C = False  # of no meaning: nothing is compiled

_FOLDER = os.path.dirname(__file__)
_PACKAGE = __name__.rpartition(".")[0]
_SOURCES = ("format", "kernel")  # the folders of what machine code depends on

_module: ModuleType | None = None


@dataclass(frozen=True)
class Flaw:
    """Why there are no kernels compiled ahead, and what to do."""

    text: str
    advice: str
    is_absence: bool = False


def load() -> Flaw | None:
    """Load the module, if it is there and fits."""
    global _module
    again = "run make kernels, or python -m gmdb.kernel.build"
    try:
        module = importlib.import_module(f"{_PACKAGE}.{MODULE}")
    except ModuleNotFoundError:
        return Flaw("no kernels compiled ahead are there", again, is_absence=True)
    except ImportError as error:
        return Flaw(f"kernels compiled ahead cannot be loaded: {error}", again)
    if getattr(module, DIGEST) != sources_digest():
        return Flaw(f"the kernels in {module.__file__} were compiled from other sources", again)
    _module = module
    return None


def sources_digest() -> str:
    """A text that differs for other sources: a checksum of each file."""
    sums, top = [], os.path.dirname(_FOLDER)
    for name in sorted(name for folder in _SOURCES for name in _python_files(top, folder)):
        with open(os.path.join(top, name), "rb", buffering=0) as file:
            content = file.readall()
        sums.append(f"{crc32(content, crc32(name.encode())):08x}")
    return "".join(sums)


def _python_files(top: str, folder: str) -> Iterator[str]:
    with os.scandir(os.path.join(top, folder)) as entries:
        for entry in entries:
            if entry.name.endswith(".py"):
                yield f"{folder}/{entry.name}"
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _python_files(top, f"{folder}/{entry.name}")


def exported_name(function: Callable[..., Any]) -> str:
    """What a kernel is called in the module: its own module below this package, and its name."""
    return f"{function.__module__.removeprefix(f'{_PACKAGE}.')}.{function.__name__}".replace(".", "__")


def kernel(function: Callable[..., Any]) -> Callable[..., int]:
    compiled = getattr(_module, exported_name(function), None)
    if compiled is None:
        name = f"{function.__module__}.{function.__name__}"
        raise KernelsUnavailable(f"{name} is not among the kernels compiled ahead; run it with GMDB_KERNELS=jit")
    return compiled


long_kernel = kernel


def routine(function: Callable[..., Any]) -> Any:
    return partial(_refuse, function.__name__)


def _refuse(name: str, *_: Any) -> NoReturn:
    raise TypeError(f"{name} is a part of kernels, which Python cannot call")


class _Operations:
    """What kernels are made of (runtime/memory.py, runtime/objects.py), none of which Python can call."""

    def __getattr__(self, name: str) -> Any:
        if name in _MAKERS:
            return lambda _: _operation
        return _operation


_MAKERS = ("records", "python_call", "python_constant")  # of operations
_operation = partial(_refuse, "an operation on memory")
operations = _Operations()
