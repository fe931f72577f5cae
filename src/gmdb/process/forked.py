"""What a forked child does with objects of libraries that belong to its parent: nothing, not even destroy them.

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


def keep_for_ever(thing: Any) -> None:
    """Let no destructor run, not even at the process's end."""
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


class _LastWord:
    """Ends standard error when the interpreter lets go of ``sys``: after all that is Python has had its say."""

    def __init__(self) -> None:
        self._open, self._dup2, self._flags = os.open, os.dup2, os.O_WRONLY  # globals are gone by then

    def __del__(self) -> None:
        self._dup2(self._open("/dev/null", self._flags), 2)


def hear_no_complaints() -> None:
    """Let a library say nothing of what cannot be let go of: DuckDB's lists that at the end, as leaked."""
    sys._gmdb_last_word = _LastWord()  # type: ignore[attr-defined]
