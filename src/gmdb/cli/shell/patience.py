"""Waiting for a statement: it runs in a thread, so that this one hears Ctrl-C and shows that something goes on."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as NotYet
from contextlib import contextmanager
from typing import Any, TypeVar

from gmdb.cli.terminal import Activity

LOOK_SECONDS = 0.1
INTERRUPT_SECONDS = 0.3  # until a statement is told once more: the first time may have come too early
Answer = TypeVar("Answer")


class Patience:
    """The one thread in which a shell's statements run."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(1, "gmdb-shell")

    def wait_for(self, function: Callable[[], Answer], interrupt: Callable[[], None], label: str) -> Answer:
        """What the function answers.  Ctrl-C calls ``interrupt``, again and again until the function has ended."""
        asked = threading.Event()
        future = self._pool.submit(function)
        with _on_interrupt(asked.set), Activity(label) as activity:
            told = 0.0
            while True:
                try:
                    return self._result(future)
                except NotYet:
                    if future.done():
                        raise
                if asked.is_set() and time.monotonic() - told > INTERRUPT_SECONDS:
                    interrupt()
                    told = time.monotonic()
                activity.show()

    @staticmethod
    def _result(future: Future[Any]) -> Any:
        return future.result(LOOK_SECONDS)

    def close(self) -> None:
        self._pool.shutdown()


@contextmanager
def _on_interrupt(act: Callable[[], None]) -> Iterator[None]:
    """Have Ctrl-C call something instead of raising KeyboardInterrupt; only the main thread hears of it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, lambda *_: act())
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
