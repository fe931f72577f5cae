"""Objects of libraries that a forked child has from its parent: it must not use them, nor even destroy them.

Only the thread that forked goes on in a child.  A destructor that waits for another thread waits for ever.
"""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Any

ADVICE = (
    "start processes with spawn instead: multiprocessing.get_context('spawn'), or ProcessPoolExecutor(mp_context=...)"
)


def keep_forever(thing: Any) -> None:
    """Let no destructor run, not even at the process's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _Silencer:
    """Closes standard error when the interpreter clears ``sys``: after all output of Python code."""

    def __init__(self) -> None:
        self._open, self._dup2, self._flags = os.open, os.dup2, os.O_WRONLY  # globals are gone by then

    def __del__(self) -> None:
        self._dup2(self._open("/dev/null", self._flags), 2)


def silence_leak_reports() -> None:
    """Silence a library's complaint at exit about objects that are never destroyed, as DuckDB's about leaks."""
    sys._gmdb_silencer = _Silencer()  # type: ignore[attr-defined]
