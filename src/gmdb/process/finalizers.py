"""Finalizers: what is done when an object is no longer referenced.

Python runs finalizers anywhere, and signal handlers where a function of Python's begins.  What a handler raises
in a finalizer is printed and lost.  So no finalizer here is a Python function: it runs in C, and only notes that
something must be closed.  The next operation closes it, or a thread in the background.

Invariants
 1. What was abandoned is closed once, by one thread at a time.
 2. When an operation of the main thread begins, all that was abandoned before is closed.

Not here: where a handler's exception may be raised (process/signals.py).
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
_closer = 0  # the thread that holds it


class Closed(Generic[T]):
    """Holds an iterator that is closed when this is no longer referenced; then ``on_end`` is called."""

    __slots__ = ("__del__", "iterator")
    __del__: Callable[[], None]

    def __init__(self, iterator: Iterator[T], on_end: Callable[[], None] | None) -> None:
        self.iterator = iterator
        self.__del__ = partial(_abandoned.append, (iterator, on_end))


def close_abandoned(patiently: bool = False) -> None:
    """Close what was abandoned, unless this thread is doing so already.

    ``patiently``: wait for another thread that is doing so; else return at once.
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
    except Exception as error:  # there is no caller to raise it to
        _logger.error("the resources of an abandoned read cannot be released: %s: %s", type(error).__name__, error)


def _in_child() -> None:
    global _closing, _closer
    _closing, _closer = threading.Lock(), 0  # a thread of the parent may have held it


os.register_at_fork(after_in_child=_in_child)


class Living(Generic[T]):
    """A set of weak references; unlike a WeakSet's, its finalizers are not Python functions."""

    def __init__(self) -> None:
        self._references: set[weakref.ref[T]] = set()

    def add(self, thing: T) -> None:
        self._references.add(weakref.ref(thing, self._references.discard))

    def discard(self, thing: T) -> None:
        self._references.discard(weakref.ref(thing))

    def clear(self) -> None:
        self._references.clear()

    def __iter__(self) -> Iterator[T]:
        for reference in self._references.copy():  # in C, so that no object dies meanwhile
            thing = reference()
            if thing is not None:
                yield thing

    def __len__(self) -> int:
        return len(self._references)
