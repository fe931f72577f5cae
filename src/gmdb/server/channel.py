"""A client's channel to an owner: one session there, for as long as both are there.

What the owner keeps for the client under a number (a read, a statement, a large object) is of one channel, and gone
with it.  What lasts is the link (link.py), which finds another channel.

Invariants
 1. One message is under way at a time, and its answer is read before the next.
 2. After Flight has failed, or when the door says that the owner is gone, the channel is of no use any more.
 3. Nothing that a garbage collector may run sends a message: what was dropped is named in the next one.
"""

from __future__ import annotations

import json
import os
import select
import socket
import threading
import weakref
from _thread import start_new_thread
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pyarrow as pa
from pyarrow import flight

from gmdb.errors import LostWithOwner
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.signals import let_through
from gmdb.server import sockets
from gmdb.server.sockets import End, borrowed, keep_alive, sockets_at
from gmdb.server.wire import END_OF_BATCHES, Head, SessionState, TableThere, error_from, pack, unpack

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

TOKEN_HEADER = b"gmdb-token"


class Gone(Exception):
    """The owner is gone, or has let go of the client.  ``begun``: it may have begun what it was asked for last."""

    def __init__(self, begun: bool) -> None:
        super().__init__()
        self.begun = begun


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


def gone_message(route: Route) -> str:
    return f"{route.owner}, which had {route.directory} open, is gone or has closed it"


class Channel(Protocol):
    """A session, wherever it is.  ``connection``: this process's own, if the session is here."""

    route: Route
    state: SessionState

    @property
    def connection(self) -> Connection | None: ...

    def is_there(self) -> bool: ...

    def ask(self, head: Head, body: bytearray) -> tuple[Head, bytes]:
        """Send a message and wait for its answer; Gone, if none comes."""

    def send(self, table: TableThere, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Head:
        """Send batches to a table; returns the owner's answer to all of them."""

    def batches(self, scan: int) -> Iterator[pa.RecordBatch]:
        """The batches of a scan that was begun there."""

    def drop(self, number: int) -> None:
        """Note that something which is kept there is no longer wanted."""

    def interrupt(self, number: int) -> None:
        """End what is being done for the message of this number."""

    def give_up(self) -> None:
        """The owner is gone, or has let go of the client."""

    def close(self) -> None: ...


class FlightChannel:
    """A channel to another process."""

    connection = None

    def __init__(self, route: Route, door: socket.socket, key: str, options: Head) -> None:
        self.route = route
        usual = bool(options["autocommit"]), str(options["isolation"]), float(options["lock_timeout"])
        self.state = SessionState(0, *usual)
        self._pid = os.getpid()
        self._door = door
        self._looking = select.poll()
        self._looking.register(door, select.POLLIN | select.POLLHUP | select.POLLERR)
        self._key = key
        self._scans: dict[int, tuple[Any, ...]] = {}  # those that may still be read, and their streams once they have
        self._closed = self._broken = False
        self._asking = threading.Lock()
        self._dropped: deque[int] = deque()
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

    def is_there(self) -> bool:
        """Whether the owner has the door open: it says nothing there, so that whatever comes is the end."""
        if not self._broken and not self._looking.poll(0):
            return True
        self._break()
        return False

    def ask(self, head: Head, body: bytearray) -> tuple[Head, bytes]:
        with self._asking:
            if self._dropped:
                head["discard"] = [self._dropped.popleft() for _ in range(len(self._dropped))]
            message = pack(head, body)
            with self._failing():
                self._writer.write_metadata(message)
                received = self._reader.read_chunk().app_metadata
            answer, content = unpack(received)
            self.note(answer)
            if answer.get("error") == LostWithOwner.__name__:  # it closes the database
                raise Gone(bool(answer["begun"]))
        return answer, content

    def note(self, head: Head) -> None:
        """Note what an answer tells of the session."""
        told = head.get("session")
        if told is not None and told[0] > self.state.number:
            self.state = SessionState(*told)

    def interrupt(self, number: int) -> None:
        if not self._closed and not self._broken:
            with suppress(OSError):  # the owner is gone: a thread that waits for it gets the error
                self._door.send(b"!%d!" % number)

    @contextmanager
    def _failing(self) -> Iterator[None]:
        """After a failure between a message and its answer the channel cannot be used."""
        try:
            yield
        except (pa.ArrowException, StopIteration):
            self._break()
            raise Gone(begun=True) from None
        except BaseException:
            self._break()
            raise

    def _break(self) -> None:
        self._broken = True
        self._door.close()

    def drop(self, number: int) -> None:
        self._dropped.append(number)

    # ---- streams

    def _exchange(self, kind: str, **fields: Any) -> tuple[Any, Any]:
        """Begin a stream."""
        command = json.dumps({"key": self._key, "kind": kind, **fields}).encode()
        with self._failing():
            return self._flight.do_exchange(flight.FlightDescriptor.for_command(command), self._call_options)

    def send(self, table: TableThere, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Head:
        """The owner may refuse them at any time: its answer is listened for meanwhile, since Flight forgets an answer
        that was not read when a later message cannot be written.
        """
        try:
            writer, reader = self._exchange("append", table=table)
        except Gone:
            raise Gone(begun=False) from None
        answer: Future[Any] = Future()
        start_new_thread(_listen, (reader, answer))  # a Thread that garbage collection finds has a finalizer in Python
        try:
            going = _written(writer.begin, schema)
            for batch in let_through(batches):
                if answer.done() or not (going and _written(writer.write_batch, batch)):
                    going = False
                    break
            going = _written(writer.write_metadata, END_OF_BATCHES) and going
            try:
                with self._failing():
                    head, _ = unpack(answer.result().app_metadata)
                self.note(head)
            except Gone:
                raise Gone(begun=going) from None
        except BaseException:
            if not answer.done() and _written(writer.write_metadata, b"given up"):
                answer.exception()  # the writer cannot be closed while a thread listens
            raise
        finally:
            _close_quietly(writer)
        return head

    def batches(self, scan: int) -> ScanStream:
        self._scans[scan] = ()
        return ScanStream(self, scan)

    def next_of(self, scan: int) -> Any:
        """The next batch of a scan, or the message that ends it.  It may be asked for after the connection's close."""
        if self._pid != os.getpid():
            raise sockets.forked(self.route.directory, self._pid)
        if self._broken:
            raise self._lost()
        try:
            writer, reader = self._scans[scan] = self._scans[scan] or self._exchange("scan", scan=scan)
            with self._failing():
                writer.write_metadata(b"next")
                return reader.read_chunk()
        except Gone:
            raise self._lost() from None

    def _lost(self) -> LostWithOwner:
        return LostWithOwner(f"{gone_message(self.route)}; what was being read is lost: read again")

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

    def give_up(self) -> None:
        self._break()
        self.close()

    def close(self) -> None:
        """End the session; what is still being read may be read to its end.  Closing twice does nothing."""
        if self._closed or self._pid != os.getpid():
            return
        if not self._broken and self._asking.acquire(blocking=False):
            try:
                self._writer.write_metadata(pack({"op": "close"}))
                self._reader.read_chunk()
            except (pa.ArrowException, StopIteration):
                self._broken = True
            finally:
                self._asking.release()
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

    def __init__(self, channel: FlightChannel, scan: int) -> None:
        self._channel = channel
        self._scan = scan
        self._finalizer = weakref.finalize(self, channel.end_scan, scan)
        self._finalizer.atexit = False

    def __iter__(self) -> ScanStream:
        return self

    def __next__(self) -> pa.RecordBatch:
        if not self._finalizer.alive:
            raise StopIteration
        chunk = self._channel.next_of(self._scan)
        if chunk.data is not None:
            return chunk.data
        self._finalizer()
        head, _ = unpack(chunk.app_metadata)
        self._channel.note(head)
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
