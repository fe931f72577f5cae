"""The door: a plain Unix socket at which an owner hears of its clients.

A client knocks with the token, is told where Flight is, and keeps the connection for as long as it lives.  When the
connection ends the client is gone, however it went: the system closes it also for a process that is killed.  Flight
itself could not tell; and Flight is started by the first knock only, so whoever shares nothing does not pay for it
and may fork as before.
"""

from __future__ import annotations

import hmac
import json
import os
import selectors
import socket
import threading
from collections.abc import Callable
from typing import Any

from gmdb.server.place import Place

LINE_MAX = 4096


class Door:
    """The listener's thread.  ``enter`` is called for a client that may come in and says what to tell it;
    ``interrupt`` when it wants what it asked for by Flight to end, which is all that a client says here;
    ``leave`` when it is gone."""

    def __init__(
        self,
        place: Place,
        enter: Callable[[], tuple[Any, dict[str, Any]]],
        leave: Callable[[Any], None],
        interrupt: Callable[[Any], None],
    ):
        self._token = place.token.encode()
        self._enter, self._leave, self._interrupt = enter, leave, interrupt
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(place.door)
        os.chmod(place.door, 0o600)
        self._listener.listen(64)
        self._listener.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._visitors: dict[socket.socket, bytearray] = {}  # connected, and what they have said so far
        self._clients: dict[socket.socket, Any] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="gmdb-door", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.fileobj, socket.socket):
                    self._hear(key.fileobj)

    def _accept(self) -> None:
        try:
            visitor, _ = self._listener.accept()
        except OSError:
            return  # gone before it was let in, or no descriptor is free
        visitor.setblocking(False)
        self._visitors[visitor] = bytearray()
        self._selector.register(visitor, selectors.EVENT_READ)

    def _hear(self, visitor: socket.socket) -> None:
        try:
            said = visitor.recv(LINE_MAX)
        except BlockingIOError:
            return
        except OSError:
            said = b""
        if not said:
            self._dismiss(visitor)
        elif visitor in self._visitors:
            heard = self._visitors[visitor]
            heard += said
            if b"\n" in heard or len(heard) > LINE_MAX:
                self._let_in(visitor, bytes(heard.partition(b"\n")[0]))
        elif self._clients.get(visitor) is not None:
            self._interrupt(self._clients[visitor])

    def _let_in(self, visitor: socket.socket, token: bytes) -> None:
        if not hmac.compare_digest(token, self._token):
            self._dismiss(visitor)
            return
        del self._visitors[visitor]
        try:
            self._clients[visitor], told = self._enter()
        except Exception as error:
            self._clients[visitor], told = None, {"refused": f"{type(error).__name__}: {error}"}
        try:
            visitor.sendall(json.dumps(told).encode() + b"\n")
        except OSError:
            self._dismiss(visitor)

    def _dismiss(self, visitor: socket.socket) -> None:
        self._selector.unregister(visitor)
        visitor.close()
        self._visitors.pop(visitor, None)
        client = self._clients.pop(visitor, None)
        if client is not None:
            self._leave(client)

    def close(self) -> None:
        """Let nobody in any more, and hang up on everybody."""
        self._wake.close()
        self._thread.join()
        self.let_go()

    def let_go(self) -> None:
        """Close this process's descriptors; those that a forked child has are copies."""
        self._selector.close()
        for opened in (self._listener, self._wake, self._woken, *self._visitors, *self._clients):
            opened.close()


def knock(place: Place, patience: float) -> tuple[socket.socket, dict[str, Any]] | None:
    """Ask to be let in.  Nothing if nobody is there, TimeoutError if somebody is and does not answer."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    heard = b""
    try:
        door.settimeout(patience)
        door.connect(place.door)
        door.sendall(place.token.encode() + b"\n")
        while not heard.endswith(b"\n"):
            part = door.recv(LINE_MAX)
            if not part:
                door.close()
                return None
            heard += part
        door.settimeout(None)
        return door, json.loads(heard)
    except TimeoutError:
        door.close()
        raise
    except OSError:
        door.close()
        return None
    except BaseException:
        door.close()
        raise
