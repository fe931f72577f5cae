"""An owner's endpoint: from the moment a database is open for writing until it is closed.

An owner has one for the processes of its user, and another if it is to be reached over the network.

Invariants
 1. An entrance is announced after the door listens, and withdrawn before the database's lock is let go.
 2. Stopping waits for no client: their sessions are rolled back, and their next call fails with OwnerGone.
"""

from __future__ import annotations

import atexit
import os
import threading
import warnings
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gmdb.database.engine import Database
from gmdb.errors import CannotListen, Error
from gmdb.process.finalizers import Living
from gmdb.process.late_imports import pyarrow as pa
from gmdb.server import sockets
from gmdb.server.door import Door
from gmdb.server.entrance import Entrance, Listening, NetworkEntrance, UnixEntrance

if TYPE_CHECKING:
    from gmdb.server.client_session import Client
    from gmdb.server.streams import FlightOwner

HANG_UP_INTERVAL = 0.05
_starting = threading.Lock()
_served: Living[Database] = Living()


def serve(database: Database) -> None:
    """Serve other processes from now on, if the database is open for writing and not served yet.

    A process can work alone without sharing: where there is no place for a socket, a warning says so.
    """
    with _starting:
        if not database.read_only and database not in _served:
            try:
                endpoint = Endpoint(database, UnixEntrance(database.store.directory))
            except OSError as error:
                why = f"other processes cannot use {database.store.directory} while it is open here: {error}"
                warnings.warn(why, RuntimeWarning, stacklevel=4)
                return
            database.before_close.append(endpoint.stop)
            _served.add(database)


def serve_network(database: Database, wanted: Listening) -> NetworkEntrance:
    """Serve at a port as well, until the database is closed."""
    entrance = NetworkEntrance(wanted)
    try:
        endpoint = Endpoint(database, entrance)
    except pa.ArrowException as error:
        raise CannotListen(f"Flight cannot listen at {entrance.location}: {error}") from None
    database.before_close.append(endpoint.stop)
    return entrance


class Endpoint:
    def __init__(self, database: Database, entrance: Entrance) -> None:
        self._database = database
        self._directory = database.store.directory
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._flight: FlightOwner | None = None
        self._stopping = False
        self._entrance = entrance
        try:
            self._door = Door(entrance, self._enter, self._leave, self._interrupt)
            sockets.watch(self)
            if entrance.is_network:
                self._start_flight()  # its port is known from the beginning, and that it is free
            self._door.open()
            entrance.announce()
        except BaseException:
            entrance.withdraw()
            if hasattr(self, "_door"):
                self._door.close()
            if self._flight is not None:
                self._stop_flight(self._flight)
            raise

    def _start_flight(self) -> FlightOwner:
        sockets.use_flight(*self._entrance.ends(0))
        from gmdb.server.streams import FlightOwner  # who shares nothing need not load it

        self._flight = FlightOwner(self._entrance, self._find)
        sockets.use_flight(*self._entrance.ends(self._flight.port))
        atexit.register(self.stop)  # before Flight's own, which would wait for the clients
        return self._flight

    def _enter(self) -> tuple[Client, dict[str, Any]]:
        """Let a client in; Flight is started for the first one."""
        from gmdb.server.client_session import Client, owner_gone

        flight = self._flight or self._start_flight()
        client = Client(self._database, os.urandom(8).hex())
        with self._lock:
            if self._stopping:
                raise owner_gone(self._directory)
            self._clients[client.key] = client
        return client, {"key": client.key, "path": str(self._directory), **self._entrance.flight_details(flight.port)}

    def _find(self, key: str) -> Client | None:
        with self._lock:
            return self._clients.get(key)

    def _leave(self, client: Client) -> None:
        """A client is gone.  Its rollback may take a while, so the door does not wait for it."""
        if not self._stopping:
            threading.Thread(target=self._end, args=(client,), name="gmdb-client-gone", daemon=True).start()

    def _interrupt(self, client: Client, number: int) -> None:
        """A client wants its statement to end; that may have to wait for the guard, and the door does not."""
        threading.Thread(target=client.interrupt, args=(number,), name="gmdb-interrupt", daemon=True).start()

    def _end(self, client: Client) -> None:
        client.end()
        with self._lock:
            self._clients.pop(client.key, None)

    def stop(self) -> None:
        """Let go of all clients, and end every thread of the endpoint."""
        if self._pid != os.getpid() or self._stopping:
            return
        atexit.unregister(self.stop)
        with self._lock:
            self._stopping = True
            clients = list(self._clients.values())
        self._entrance.withdraw()
        for client in clients:
            client.stop()
        self._door.close()
        if self._flight is not None:
            self._stop_flight(self._flight)
        for client in clients:
            with suppress(Error):  # closing the database rolls back what is still open, and says what is wrong
                client.end()

    def _stop_flight(self, flight: FlightOwner) -> None:
        from gmdb.server.streams import hang_up

        ends = self._entrance.ends(flight.port)
        ending = threading.Thread(target=flight.shutdown, name="gmdb-flight-end", daemon=True)
        ending.start()
        while ending.is_alive():
            hang_up(ends)
            ending.join(HANG_UP_INTERVAL)
        self._flight = None

    def leave_to_parent(self) -> list[Any]:
        """In a forked child."""
        self._door.let_go()
        return [] if self._flight is None else [self._flight]
