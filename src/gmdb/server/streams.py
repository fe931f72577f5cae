"""The owner's Flight server: what comes in on a stream goes to its client's session.

Every stream is an exchange: of messages and answers, of requests for batches and batches, or of batches and one
answer.  An error is an answer, too; Flight's own errors mean that the owner is gone.
"""

from __future__ import annotations

import hmac
import json
import socket
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyarrow import flight

from gmdb.errors import InterfaceError, OwnerGone
from gmdb.server.client_session import Client
from gmdb.server.entrance import Entrance
from gmdb.server.operations import answer, state_told
from gmdb.server.sockets import End, borrowed, is_listener, keep_alive, sockets_at
from gmdb.server.wire import END_OF_BATCHES, error_head, pack
from gmdb.tables.arrow.append import append

TOKEN_HEADER = "gmdb-token"


class _TokenCheck(flight.ServerMiddlewareFactory):
    """Refuses every call that does not carry the owner's token, whatever it asks for."""

    def __init__(self, token: str) -> None:
        self._token = token.encode()

    def start_call(self, info: Any, headers: dict[str, list[str]]) -> None:
        del info
        token = headers.get(TOKEN_HEADER, [""])[0].encode()
        if not hmac.compare_digest(token, self._token):
            raise flight.FlightUnauthenticatedError("the call does not carry the token of this owner")


class FlightOwner(flight.FlightServerBase):
    """Flight, for the clients that the door has let in."""

    def __init__(self, entrance: Entrance, find: Callable[[str], Client | None]) -> None:
        check = _TokenCheck(entrance.token)
        super().__init__(entrance.location, tls_certificates=entrance.certificates, middleware={"token": check})
        self._find = find
        self._watched: Collection[End] = [("", self.port)] if entrance.is_network else []

    def do_exchange(self, context: Any, descriptor: Any, reader: Any, writer: Any) -> None:
        del context
        request = json.loads(descriptor.command)
        client = self._find(str(request.get("key")))
        serve = {"session": _serve_session, "scan": _serve_scan, "append": _serve_append}.get(str(request.get("kind")))
        if client is None or serve is None:
            raise flight.FlightUnauthenticatedError("the door has let in no such client")
        if serve is _serve_session:
            self._watch_connections()
        with suppress(pa.ArrowException, OwnerGone):  # the client is gone, or is let go of: nobody is to be told
            serve(client, request, reader, writer)

    def _watch_connections(self) -> None:
        """Have streams of a client whose machine is gone end as well."""
        for file in list(sockets_at(self._watched)):
            with suppress(OSError), borrowed(file) as connection:  # it may have ended meanwhile
                keep_alive(connection)


def _received(reader: Any) -> Any:
    """The next message or batch; None when the client is gone."""
    try:
        return reader.read_chunk()
    except (StopIteration, pa.ArrowException):
        return None


def _serve_session(client: Client, request: dict[str, Any], reader: Any, writer: Any) -> None:
    try:
        try:
            client.open(request)
        except Exception as error:
            writer.write_metadata(pack(error_head(error)))
            return
        writer.write_metadata(pack({}))
        while (chunk := _received(reader)) is not None:
            writer.write_metadata(answer(client, chunk.app_metadata))
    finally:
        client.end()


def _serve_scan(client: Client, request: dict[str, Any], reader: Any, writer: Any) -> None:
    """A batch for each request, so that the client gets none that was read before it asked."""
    batches = client.scans.pop(request["scan"])
    writer.begin(batches.schema)
    while _received(reader) is not None:
        try:
            with client.turn():
                batch = next(batches, None)
        except Exception as error:
            writer.write_metadata(pack({**error_head(error), **state_told(client)}))
            return
        if batch is None:
            writer.write_metadata(pack(state_told(client)))
            return
        writer.write_batch(batch)


def _serve_append(client: Client, request: dict[str, Any], reader: Any, writer: Any) -> None:
    try:
        with client.turn():
            client.session.require_open()
            client.session.require_writable()
            reply = {"rows": append(client.heap(request["table"]), _batches(client, reader))}
    except Exception as error:
        writer.write_metadata(pack({**error_head(error), **state_told(client)}))
        while (chunk := _received(reader)) is not None and chunk.data is not None:
            pass  # until the client has read the answer: Flight would forget it if the client could not write
        return
    writer.write_metadata(pack({**reply, **state_told(client)}))


def _batches(client: Client, reader: Any) -> Iterator[pa.RecordBatch]:
    """What the client sends, until it says that this was all; a client that goes away before has sent nothing."""
    while True:
        with client.turn_given_away():
            chunk = _received(reader)
        if chunk is None or (chunk.data is None and bytes(chunk.app_metadata) != END_OF_BATCHES):
            raise InterfaceError("the client went away before it had sent everything")
        if chunk.data is None:
            return
        chunk.data.validate(full=True)
        yield chunk.data


def hang_up(ends: Collection[End]) -> None:
    """Cut the connections of all clients, so that streams which wait for them come to an end."""
    for file in list(sockets_at(ends)):
        with suppress(OSError), borrowed(file) as connection:  # it may have ended by itself meanwhile
            if not is_listener(connection):
                connection.shutdown(socket.SHUT_RDWR)
