"""Sockets, also those that Flight has opened and does not expose: found by where their ends are.

An end is a directory, whose Unix sockets are meant; or an address and a port, at either end of a connection; or "" and
a port, which are the connections that came in there.
"""

from __future__ import annotations

import os
import socket
import stat
import weakref
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Protocol

from gmdb.errors import ForkedProcess
from gmdb.process.finalizers import Living
from gmdb.process.forked import ADVICE, keep_forever

End = str | tuple[str, int]

# A peer whose machine is gone says nothing more: it is asked after a while, and given up after some questions.
KEEPALIVE = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
UNHEARD_MS = 60_000  # the same for what was sent and never confirmed


def keep_alive(connection: socket.socket) -> None:
    """Have the system find out whether the other end of a TCP connection is still there."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in (*KEEPALIVE, (socket.TCP_USER_TIMEOUT, UNHEARD_MS)):
        connection.setsockopt(socket.IPPROTO_TCP, option, value)


def sockets_at(ends: Collection[End]) -> Iterator[int]:
    """The file descriptors of this process that are sockets with one of these ends."""
    for file in map(int, os.listdir("/proc/self/fd")):
        with suppress(OSError):  # the descriptor of the listing itself is closed by now, and others may be
            if stat.S_ISSOCK(os.fstat(file).st_mode) and any(_is_at(file, end) for end in ends):
                yield file


@contextmanager
def borrowed(file: int) -> Iterator[socket.socket]:
    """A socket that other code owns, by its descriptor."""
    with socket.socket(fileno=os.dup(file)) as copy:
        yield copy


def is_listener(opened: socket.socket) -> bool:
    return bool(opened.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))


def _is_at(file: int, end: End) -> bool:
    with borrowed(file) as copy:
        local, peer = _plain(copy.getsockname), _plain(copy.getpeername)
    if isinstance(end, str):
        return any(isinstance(name, str) and os.path.dirname(name) == end for name in (local, peer))
    if not end[0]:
        return isinstance(local, tuple) and local[1] == end[1]
    return end in (local, peer)


def _plain(ask: Any) -> End | None:
    """A socket's name, as far as it has any; an IPv4 address is one, however it is written."""
    try:
        name = ask()
    except OSError:
        return None
    if isinstance(name, str):
        return name
    if isinstance(name, tuple) and len(name) in (2, 4):
        return str(name[0]).removeprefix("::ffff:"), int(name[1])
    return None


# ---- What a forked child must leave alone.
#
# gRPC, on which Flight stands, does not survive a fork: in a child of a process that has used it, any call hangs, and
# so may the destructors of its objects.  And a child that keeps copies of its parent's sockets keeps others from
# noticing that the parent is gone.  So in a child the sockets are closed, the objects are never touched again, and
# a caller that asks for Flight is told to use spawn.  A child of a process that never used Flight may use it.


class Inherited(Protocol):
    def leave_to_parent(self) -> list[Any]:
        """Close sockets in the child; returns the objects whose destructors must not run there."""


_in_use: Living[Inherited] = Living()
_ends: set[End] = set()
_used = False
_spoilt = False


def watch(inherited: Inherited) -> None:
    """From now on a forked child leaves it to its parent."""
    _in_use.add(inherited)


def forked(directory: Any, pid: int) -> ForkedProcess:
    """The error of a child that uses its parent's connection."""
    return ForkedProcess(f"the connection to {directory} belongs to process {pid}, which forked this one; {ADVICE}")


def use_flight(*ends: End) -> None:
    """Say that Flight is about to be used with sockets at these ends; refuse where it would hang."""
    global _used
    if _spoilt:
        raise ForkedProcess(
            "this process was forked from one that shared a database with others, and cannot do that itself; " + ADVICE
        )
    _used = True
    _ends.update(ends)


def _detach_finalizers(thing: Any) -> None:
    """Flight has a server shut down at exit, and offers no way to take that back."""
    for finalizer in list(getattr(weakref.finalize, "_registry", ())):
        entry = finalizer.peek()
        if entry is not None and entry[0] is thing:
            keep_forever(finalizer.detach())


def _after_in_child() -> None:
    global _spoilt
    for inherited in list(_in_use):
        for thing in inherited.leave_to_parent():
            _detach_finalizers(thing)
            keep_forever(thing)
    _in_use.clear()
    if _used:
        _spoilt = True
        for file in list(sockets_at(_ends)):
            os.close(file)


os.register_at_fork(after_in_child=_after_in_child)
