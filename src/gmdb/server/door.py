"""The door: a plain socket at which an owner hears of its clients, a Unix socket or one over TCP.

A client says hello and shows the token, is told where Flight is, and keeps the connection for as long as it lives.
When the connection ends the client is gone, however it went: the system closes it also for a process that is killed.
Flight itself could not tell.  On a Unix socket Flight is started by the first knock only, so a process that shares
nothing does not pay for it and may fork as before.

Invariants
 1. The thread waits for no client: a visitor that is slow or silent, also within TLS's handshake, keeps no other out.
 2. A visitor that has shown no token within ``VISITOR_PATIENCE`` is sent away, so that few are there at a time.
 3. A client shows its token only to a peer that has answered as a door; behind TLS, only to the host that it means.
"""

from __future__ import annotations

import json
import selectors
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_imports import ssl
from gmdb.server.entrance import Entrance, Place
from gmdb.server.sockets import keep_alive

HELLO = b"gmdb 1\n"
LINE_MAX = 4096
RECORD_MAX = 1 << 14  # of TLS: reading as much leaves nothing behind that the selector does not know of
TLS_BEGINS = b"\x16"
VISITOR_PATIENCE = 10.0  # seconds
VISITORS_MAX = 64
WRONG_TOKEN, WRONG_PROTOCOL, NEEDS_TLS, FAILED = "token", "protocol", "tls", "failed"  # why one is refused


@dataclass
class Visitor:
    """A connection that was not let in yet."""

    until: float
    heard: bytearray = field(default_factory=bytearray)
    is_secure: bool = False
    said_hello: bool = False


class Door:
    """The listener's thread.  ``enter`` is called for a client that may come in and says what to tell it;
    ``interrupt`` when it wants what it asked for by Flight to end, which is all that a client says here;
    ``leave`` when it is gone."""

    def __init__(
        self,
        entrance: Entrance,
        enter: Callable[[], tuple[Any, dict[str, Any]]],
        leave: Callable[[Any], None],
        interrupt: Callable[[Any, int], None],
    ):
        self._token = entrance.token.encode()
        self._tls = entrance.tls
        self._is_network = entrance.is_network
        self._enter, self._leave, self._interrupt = enter, leave, interrupt
        self._listener = entrance.listen()
        self._listener.setblocking(False)
        self._wake, self._woken = socket.socketpair()
        self._visitors: dict[socket.socket, Visitor] = {}
        self._clients: dict[socket.socket, Any] = {}
        self._selector = selectors.DefaultSelector()
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread = threading.Thread(target=self._run, name="gmdb-door", daemon=True)

    def open(self) -> None:
        self._thread.start()

    def _run(self) -> None:
        while True:
            soonest = min((visitor.until for visitor in self._visitors.values()), default=None)
            timeout = None if soonest is None else max(soonest - time.monotonic(), 0)
            for key, _ in self._selector.select(timeout):
                if key.fileobj is self._woken:
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif key.fileobj in self._clients or key.fileobj in self._visitors:
                    self._read(key.fileobj)
            now = time.monotonic()
            for silent in [end for end, visitor in self._visitors.items() if visitor.until <= now]:
                self._dismiss(silent)

    def _accept(self) -> None:
        try:
            end, _ = self._listener.accept()
        except OSError:
            return  # gone before it was let in, or no descriptor is free
        end.setblocking(False)
        self._visitors[end] = Visitor(time.monotonic() + VISITOR_PATIENCE)
        self._selector.register(end, selectors.EVENT_READ)
        if self._is_network:
            keep_alive(end)
        if len(self._visitors) > VISITORS_MAX:
            self._dismiss(next(iter(self._visitors)))

    def _read(self, end: socket.socket) -> None:
        visitor = self._visitors.get(end)
        try:
            if visitor is not None and self._tls is not None and not visitor.is_secure:
                self._secure(end, visitor)
                return
            message = end.recv(RECORD_MAX)
        except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
            return
        except OSError:
            message = b""
        if not message:
            self._dismiss(end)
        elif visitor is not None:
            visitor.heard += message
            self._read_hello(end, visitor)
        elif self._clients[end] is not None:
            numbers = [int(part) for part in message.split(b"!") if part.isdigit()]
            if numbers:  # else a part of one, which interrupts nothing
                self._interrupt(self._clients[end], max(numbers))

    # ---- TLS

    def _secure(self, end: socket.socket, visitor: Visitor) -> None:
        """Go on with the handshake as far as that is possible now."""
        if not isinstance(end, ssl.SSLSocket):
            if end.recv(1, socket.MSG_PEEK) != TLS_BEGINS:
                end.recv(RECORD_MAX)  # what is left unread would take the answer with it
                self._refuse(end, NEEDS_TLS)
                return
            secured = self._wrap(end, visitor)
            if secured is None:
                return
            end = secured
        try:
            end.do_handshake()
        except ssl.SSLWantReadError:
            self._selector.modify(end, selectors.EVENT_READ)
        except ssl.SSLWantWriteError:
            self._selector.modify(end, selectors.EVENT_WRITE)
        except (OSError, ValueError):
            self._dismiss(end)
        else:
            visitor.is_secure = True
            self._selector.modify(end, selectors.EVENT_READ)
            self._read(end)  # the first line may have come along

    def _wrap(self, end: socket.socket, visitor: Visitor) -> ssl.SSLSocket | None:
        """The visitor's socket as one of TLS, in the place of the plain one; None if it is gone."""
        assert self._tls is not None
        self._selector.unregister(end)
        del self._visitors[end]
        try:
            wrapped = self._tls.wrap_socket(end, server_side=True, do_handshake_on_connect=False)
        except OSError:
            end.close()
            return None
        self._selector.register(wrapped, selectors.EVENT_READ)
        self._visitors[wrapped] = visitor
        return wrapped

    # ---- letting in

    def _read_hello(self, end: socket.socket, visitor: Visitor) -> None:
        """Read what a visitor sends: hello, and the token."""
        heard = visitor.heard
        if not visitor.said_hello:
            if not heard.startswith(HELLO):
                if heard.startswith(HELLO[:5]) and b"\n" in heard:
                    self._refuse(end, WRONG_PROTOCOL)
                elif not HELLO.startswith(heard):
                    self._dismiss(end)
                return
            del heard[: len(HELLO)]
            visitor.said_hello = True
            if not self._send_line(end, {"gmdb": 1}):
                return
        if b"\n" in heard or len(heard) > LINE_MAX:
            self._let_in(end, bytes(heard.partition(b"\n")[0]))

    def _let_in(self, end: socket.socket, token: bytes) -> None:
        from hmac import compare_digest

        if not compare_digest(token, self._token):
            self._refuse(end, WRONG_TOKEN)
            return
        del self._visitors[end]
        try:
            self._clients[end], reply = self._enter()
        except Exception as error:
            self._clients[end], reply = None, {"refused": FAILED, "why": f"{type(error).__name__}: {error}"}
        self._send_line(end, reply)

    def _refuse(self, end: socket.socket, why: str) -> None:
        if self._send_line(end, {"refused": why}):
            self._dismiss(end)

    def _send_line(self, end: socket.socket, what: dict[str, Any]) -> bool:
        """Send a line; a visitor that cannot take even that is dismissed."""
        try:
            end.sendall(json.dumps(what).encode() + b"\n")
        except OSError:
            self._dismiss(end)
            return False
        return True

    def _dismiss(self, end: socket.socket) -> None:
        self._selector.unregister(end)
        end.close()
        self._visitors.pop(end, None)
        client = self._clients.pop(end, None)
        if client is not None:
            self._leave(client)

    def close(self) -> None:
        """Let no more clients in, and close all connections."""
        self._wake.close()
        if self._thread.ident is not None:
            self._thread.join()
        self.let_go()

    def let_go(self) -> None:
        """Close this process's descriptors; those that a forked child has are copies."""
        self._selector.close()
        for opened in (self._listener, self._wake, self._woken, *self._visitors, *self._clients):
            opened.close()


# ---- the visitor's side


class NoDoor(ValueError):
    """The peer does not answer as a door does."""


def introduce(door: socket.socket, token: str) -> dict[str, Any]:
    """Ask to be let in; returns the door's reply.  OSError if the connection ends, NoDoor if it is another's."""
    door.sendall(HELLO)
    reply = _read_reply(door)
    if "gmdb" in reply:
        door.sendall(token.encode() + b"\n")
        reply = _read_reply(door)
    return reply


def _read_reply(door: socket.socket) -> dict[str, Any]:
    heard = b""
    while not heard.endswith(b"\n"):
        part = door.recv(LINE_MAX)
        if not part or len(heard) > LINE_MAX:
            raise NoDoor("it hung up" if not part else "it talks too much")
        heard += part
    try:
        reply = json.loads(heard)
    except ValueError:
        raise NoDoor("it speaks another language") from None
    if not isinstance(reply, dict):
        raise NoDoor("it speaks another language")
    return reply


def knock(place: Place, patience: float) -> tuple[socket.socket, dict[str, Any]] | None:
    """Ask an owner on this machine.  None if no owner is there or lets us in, TimeoutError if it does not answer."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        door.settimeout(patience)
        door.connect(place.door)
        reply = introduce(door, place.token)
        door.settimeout(None)
        if "refused" not in reply:
            return door, reply
    except TimeoutError:
        door.close()
        raise
    except (OSError, NoDoor):
        pass
    except BaseException:
        door.close()
        raise
    door.close()
    return None
