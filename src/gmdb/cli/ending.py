"""Commands that go on until they are told to end."""

from __future__ import annotations

import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_told_to_end() -> Iterator[Callable[[], None]]:
    """Gives a function that waits for Ctrl-C or SIGTERM.  One that comes before the wait ends the block as Ctrl-C does;
    further ones change nothing, so that what is being closed is closed.

    The signal may reach any thread: the system's own way of waking this one is a byte in a socket.
    """
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    is_waiting = False

    def end(*_: Any) -> None:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        if not is_waiting:
            raise KeyboardInterrupt

    def wait() -> None:
        nonlocal is_waiting
        is_waiting = True
        woken.recv(1)

    before = {number: signal.signal(number, end) for number in ENDINGS}
    wakes = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    try:
        yield wait
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in before.items():
            signal.signal(number, handler)
        woken.close()
        wake.close()
