"""What a forked child must leave alone.

gRPC, on which Flight stands, does not survive a fork: in a child of a process that has used it, any call hangs, and
so may the destructors of its objects.  And a child that keeps copies of its parent's sockets keeps others from
noticing that the parent is gone.  So in a child the sockets are closed, the objects are never touched again, and
whoever asks for Flight is told to use spawn.  A child of a process that never used Flight may use it.
"""

from __future__ import annotations

import os
import weakref
from typing import Any, Protocol

from gmdb.errors import ForkedProcess
from gmdb.finalizers import Living
from gmdb.forked import ADVICE, keep_for_ever
from gmdb.server.sockets import End, sockets_at


class Inherited(Protocol):
    def leave_to_parent(self) -> list[Any]:
        """Close sockets in the child; answers the objects whose destructors must not run there."""


_in_use: Living[Inherited] = Living()
_ends: set[End] = set()
_used = False
_spoilt = False


def watch(inherited: Inherited) -> None:
    """From now on a forked child leaves it to its parent."""
    _in_use.add(inherited)


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
        found = finalizer.peek()
        if found is not None and found[0] is thing:
            keep_for_ever(finalizer.detach())


def _after_in_child() -> None:
    global _spoilt
    for inherited in list(_in_use):
        for thing in inherited.leave_to_parent():
            _detach_finalizers(thing)
            keep_for_ever(thing)
    _in_use.clear()
    if _used:
        _spoilt = True
        for file in list(sockets_at(_ends)):
            os.close(file)


os.register_at_fork(after_in_child=_after_in_child)
