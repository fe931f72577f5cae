"""A client's link to an owner: messages there, answers back, and streams of batches.

Invariants
 1. One message is under way at a time, and its answer is read before the next.
 2. After Flight has failed the link is of no use: every call raises OwnerGone.
 3. Nothing that a garbage collector may run sends a message: what was dropped is named in the next one.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gmdb.errors import ForkedProcess, InterfaceError, OwnerGone
from gmdb.process.forked import ADVICE
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.signals import Held, HeldIterator, let_through
from gmdb.server import sockets
from gmdb.server.sockets import End, borrowed, keep_alive, sockets_at
from gmdb.server.wire import END_OF_BATCHES, Head, error_from, pack, to_plain, unpack, value_of

TOKEN_HEADER = b"gmdb-token"


@dataclass(frozen=True)
class Route:
    """How an owner is reached.  ``owner``: its name in error messages."""

    directory: Path
    owner: str
    location: str
    end: End
    is_network: bool
    token: str = field(repr=False)
    transport: dict[str, Any] = field(default_factory=dict)


class Link:
    def __init__(self, route: Route, door: socket.socket, key: str, options: Head) -> None:
        self.route = route
        self._pid = os.getpid()
        self._door = door
        self._key = key
        self._lock = threading.Lock()
        self._scans: dict[int, tuple[Any, ...]] = {}  # those that may still be read, and their streams once they have
        self._closed = self._broken = False
        self._number = 0  # of the last message
        self.busy = threading.RLock()  # as a session has it
        self.held = Held(weakref.proxy(self))  # no reference cycle: it is freed as soon as nothing uses it
        self._dropped: deque[int] = deque()
        self._held_back: list[Callable[[], None]] = []
        self._call_options = flight.FlightCallOptions(headers=[(TOKEN_HEADER, route.token.encode())])
        self._flight = flight.connect(route.location, **route.transport)
        sockets.watch(self)
        try:
            self._writer, self._reader = self._exchange("session", **options)
            with self._failing():
                head, _ = unpack(self._reader.read_chunk().app_metadata)
            if "error" in head:
                raise error_from(head)
            if route.is_network:
                _watch_connections(route.end)
        except BaseException:
            self._hang_up()
            raise

    # ---- messages

    def ask(self, op: str, *arguments: Any, **options: Any) -> Any:
        """Ask the owner for an operation and wait for its result, or raise what it raised."""
        self.require_open()
        for send in tuple(self._held_back):
            send()
        sent = bytearray()
        head: Head = {"op": op, "arguments": [to_plain(value, sent) for value in arguments]}
        if options:
            head["options"] = to_plain(options, sent)
        with self._lock, self.held:
            self._number += 1
            head["asked"] = self._number
            if self._dropped:
                head["discard"] = [self._dropped.popleft() for _ in range(len(self._dropped))]
            message = pack(head, sent)
            with self._failing():
                self._writer.write_metadata(message)
                received = self._reader.read_chunk().app_metadata
        head, body = unpack(received)
        if "error" in head:
            raise error_from(head)
        return value_of(head.get("result"), body)

    def finish_read_if_idle(self) -> None:
        """Part of a session's interface; the owner does it."""

    def finish_failed(self) -> None:
        """Part of a session's interface; the owner does it."""

    def interrupt(self) -> None:
        """Have the owner end what it is doing for this client.  Needs no lock, and no answer."""
        if self._pid == os.getpid() and not self._closed and not self._broken:
            with suppress(OSError):  # the owner is gone: a thread that waits for it gets the error
                self._door.send(b"!%d!" % self._number)

    @contextmanager
    def holding_back(self, send: Callable[[], None]) -> Iterator[None]:
        """While changes are collected, to send many at once: ``send`` is called before any other message."""
        self._held_back.append(send)
        try:
            yield
        finally:
            self._held_back.remove(send)

    def require_open(self) -> None:
        if self._pid != os.getpid():
            raise ForkedProcess(
                f"the connection to {self.route.directory} belongs to process {self._pid}, which forked this one; "
                + ADVICE
            )
        if self._closed:
            raise InterfaceError("the connection is closed")
        if self._broken:
            raise self._owner_gone()

    @property
    def closed(self) -> bool:
        return self._closed

    def _owner_gone(self) -> OwnerGone:
        owner, path = self.route.owner, self.route.directory
        return OwnerGone(f"{owner}, which had {path} open, is gone or has closed it; connect again")

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After a failure between a message and its answer the link cannot be used."""
        try:
            yield
        except (pa.ArrowException, StopIteration):
            self._break()
            raise self._owner_gone() from None
        except BaseException:
            self._break()
            raise

    def _break(self) -> None:
        self._broken = True
        self._door.close()

    def drop(self, number: int) -> None:
        """Note that something which the owner keeps for this client is no longer wanted."""
        self._dropped.append(number)

    # ---- streams

    def _exchange(self, kind: str, **fields: Any) -> tuple[Any, Any]:
        command = json.dumps({"key": self._key, "kind": kind, **fields}).encode()
        with self._failing():
            return self._flight.do_exchange(flight.FlightDescriptor.for_command(command), self._call_options)

    def send(self, table: int, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Head:
        """Send batches to a table; returns the owner's answer to all of them.

        The owner may refuse them at any time: its answer is listened for meanwhile, since Flight forgets an answer
        that was not read when a later message cannot be written.
        """
        self.require_open()
        writer, reader = self._exchange("append", table=table)
        answer: Future[Any] = Future()
        threading.Thread(target=_listen, args=(reader, answer), name="gmdb-append", daemon=True).start()
        try:
            going = _written(writer.begin, schema)
            for batch in let_through(batches):
                if answer.done() or not (going and _written(writer.write_batch, batch)):
                    break
            _written(writer.write_metadata, END_OF_BATCHES)
            with self._failing():
                head, _ = unpack(answer.result().app_metadata)
        except BaseException:
            if not answer.done() and _written(writer.write_metadata, b"given up"):
                answer.exception()  # the writer cannot be closed while a thread listens
            raise
        finally:
            _close_quietly(writer)
        if "error" in head:
            raise error_from(head)
        return head

    def batches(self, scan: int) -> Iterator[pa.RecordBatch]:
        """The batches of a scan that the owner has begun."""
        self._scans[scan] = ()
        return HeldIterator(ScanStream(self, scan), self.held)

    def next_of(self, scan: int) -> Any:
        """The next batch of a scan, or the message that ends it.  It may be asked for after the connection's close."""
        if self._pid != os.getpid() or self._broken:
            self.require_open()
            raise self._owner_gone()
        writer, reader = self._scans[scan] = self._scans[scan] or self._exchange("scan", scan=scan)
        with self._failing():
            writer.write_metadata(b"next")
            return reader.read_chunk()

    def end_scan(self, scan: int) -> None:
        """A scan was read to its end, or its reader is gone."""
        ends = self._scans.pop(scan, None)
        if ends is None or self._pid != os.getpid():
            return
        if ends:
            _close_quietly(ends[0])
        else:
            self.drop(scan)
        if self._closed and not self._scans:
            self._hang_up()

    # ---- the end

    def close(self) -> None:
        """End the session; what is still being read may be read to its end.  Closing twice does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        if not self._broken and self._lock.acquire(blocking=False):
            try:
                self._writer.write_metadata(pack({"op": "close"}))
                self._reader.read_chunk()
            except (pa.ArrowException, StopIteration):
                self._broken = True
            finally:
                self._lock.release()
        self._closed = True
        if not self._scans:
            self._hang_up()

    def _hang_up(self) -> None:
        self._closed = True
        self._door.close()
        if hasattr(self, "_writer"):
            _close_quietly(self._writer)
        _close_quietly(self._flight)

    def leave_to_parent(self) -> list[Any]:
        """In a forked child."""
        self._door.close()
        ends = [end for ends in self._scans.values() for end in ends]
        return [self._flight, *(getattr(self, name) for name in ("_writer", "_reader") if hasattr(self, name)), *ends]


class ScanStream:
    """The batches of a scan, each asked for when it is wanted."""

    def __init__(self, link: Link, scan: int) -> None:
        self._link = link
        self._scan = scan
        self._finalizer = weakref.finalize(self, link.end_scan, scan)
        self._finalizer.atexit = False

    def __iter__(self) -> ScanStream:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self._finalizer.alive:
            raise StopIteration
        chunk = self._link.next_of(self._scan)
        if chunk.data is not None:
            return chunk.data
        self._finalizer()
        head, _ = unpack(chunk.app_metadata)
        if "error" in head:
            raise error_from(head)
        raise StopIteration


def _watch_connections(end: End) -> None:
    """Have a read that waits for an answer fail if the owner's machine is gone."""
    for file in list(sockets_at([end])):
        with suppress(OSError), borrowed(file) as connection:  # it may have ended meanwhile
            keep_alive(connection)


def _listen(reader: Any, answer: Future[Any]) -> None:
    try:
        answer.set_result(reader.read_chunk())
    except BaseException as error:
        answer.set_exception(error)


def _written(write: Callable[[Any], None], what: Any) -> bool:
    """Whether the owner took it.  If not, it may have answered already, and the answer says why."""
    try:
        write(what)
        return True
    except pa.ArrowException:
        return False


def _close_quietly(thing: Any) -> None:
    """Close what may be broken already."""
    with suppress(pa.ArrowException):
        thing.close()
