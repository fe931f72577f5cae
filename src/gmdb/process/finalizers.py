"""Finalizers: what is to be done when nobody has an object any more.

Python runs finalizers anywhere, and signal handlers where a function of Python's begins.  What a handler raises there,
in a finalizer, is printed and forgotten.  So no finalizer here is a function of Python's: what it does is in C, and
notes only that something is to be closed.  The next operation does that, or a thread in the background.

Invariants
 1. What was abandoned is closed once, by one thread at a time.
 2. When an operation of the main thread begins, all that was abandoned before is closed.

Not here: where signals may strike (process/signals.py).
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from _thread import get_ident
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Generic, TypeVar

T = TypeVar("T")
_logger = logging.getLogger("gmdb")
_abandoned: deque[tuple[Any, Callable[[], None] | None]] = deque()
_closing = threading.Lock()
_closer = 0  # the thread that has it


class Closed(Generic[T]):
    """Has an iterator that is closed when nobody has this any more; then ``on_end`` is called."""

    __slots__ = ("__del__", "iterator")
    __del__: Callable[[], None]

    def __init__(self, iterator: Iterator[T], on_end: Callable[[], None] | None) -> None:
        self.iterator = iterator
        self.__del__ = partial(_abandoned.append, (iterator, on_end))


def close_abandoned(patiently: bool = False) -> None:
    """Close what nobody has any more, unless this thread is at it already.

    ``patiently``: wait for another thread that is at it; else it goes on alone.
    """
    global _closer
    if not _abandoned or _closer == get_ident() or not _closing.acquire(patiently):
        return
    _closer = get_ident()
    try:
        while _abandoned:
            _close(*_abandoned[0])
            _abandoned.popleft()
    finally:
        _closer = 0
        _closing.release()


def _close(iterator: Any, on_end: Callable[[], None] | None) -> None:
    try:
        close = getattr(iterator, "close", None)
        if close is not None:
            close()
        if on_end is not None:
            on_end()
    except Exception as error:  # there is nobody to tell
        _logger.error("what a read held cannot be let go of: %s: %s", type(error).__name__, error)


def _in_child() -> None:
    global _closing, _closer
    _closing, _closer = threading.Lock(), 0  # a thread of the parent may have had it


os.register_at_fork(after_in_child=_in_child)


class Living(Generic[T]):
    """Objects for as long as somebody else has them; a WeakSet's finalizers are functions of Python's."""

    def __init__(self) -> None:
        self._references: set[weakref.ref[T]] = set()

    def add(self, thing: T) -> None:
        self._references.add(weakref.ref(thing, self._references.discard))

    def discard(self, thing: T) -> None:
        self._references.discard(weakref.ref(thing))

    def clear(self) -> None:
        self._references.clear()

    def __iter__(self) -> Iterator[T]:
        for reference in self._references.copy():  # in C, so that none goes meanwhile
            thing = reference()
            if thing is not None:
                yield thing

    def __len__(self) -> int:
        return len(self._references)
