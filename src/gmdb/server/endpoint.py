"""An owner's endpoint: from the moment a database is open for writing until it is closed.

Invariants
 1. The place is published after the door listens, and withdrawn before the database's lock is let go.
 2. Stopping waits for no client: their sessions are rolled back, and their next call fails with OwnerGone.
"""

from __future__ import annotations

import atexit
import os
import secrets
import threading
import warnings
import weakref
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from gmdb.engine import Database
from gmdb.errors import Error
from gmdb.server import forks
from gmdb.server.door import Door
from gmdb.server.place import Place, clear_dead, make_place, publish, withdraw
from gmdb.server.session import Client, owner_gone

if TYPE_CHECKING:
    from gmdb.server.streams import FlightOwner

HANG_UP_INTERVAL = 0.05
_starting = threading.Lock()
_served: weakref.WeakSet[Database] = weakref.WeakSet()


def serve(database: Database) -> None:
    """Answer other processes from now on, if the database is open for writing and they are not answered yet.

    Sharing is no condition for working alone: where there is no place for a socket, a warning says so.
    """
    with _starting:
        if not database.read_only and database not in _served:
            try:
                endpoint = Endpoint(database)
            except OSError as error:
                why = f"other processes cannot use {database.store.directory} while it is open here: {error}"
                warnings.warn(why, RuntimeWarning, stacklevel=4)
                return
            database.before_close.append(endpoint.stop)
            _served.add(database)


class Endpoint:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._directory = database.store.directory
        self._pid = os.getpid()
        self._lock = threading.Lock()
        self._clients: dict[str, Client] = {}
        self._flight: FlightOwner | None = None
        self._stopping = False
        clear_dead(self._directory)
        self.place: Place = make_place()
        try:
            self._door = Door(self.place, self._enter, self._leave, self._interrupt)
            forks.watch(self)
            publish(self._directory, self.place)
        except BaseException:
            withdraw(self._directory, self.place)
            if hasattr(self, "_door"):
                self._door.close()
            raise

    def _enter(self) -> tuple[Client, dict[str, Any]]:
        """A client was let in: Flight runs from the first one on."""
        if self._flight is None:
            forks.use_flight(self.place.folder)
            from gmdb.server.streams import FlightOwner  # who shares nothing need not load it

            self._flight = FlightOwner(self.place, self._find)
            atexit.register(self.stop)  # before Flight's own, which would wait for the clients
        client = Client(self._database, secrets.token_hex(8))
        with self._lock:
            if self._stopping:
                raise owner_gone(self._directory)
            self._clients[client.key] = client
        return client, {"key": client.key}

    def _find(self, key: str) -> Client | None:
        with self._lock:
            return self._clients.get(key)

    def _leave(self, client: Client) -> None:
        """A client is gone.  Its rollback may take a while, so the door does not wait for it."""
        if not self._stopping:
            threading.Thread(target=self._end, args=(client,), name="gmdb-client-gone", daemon=True).start()

    def _interrupt(self, client: Client) -> None:
        """A client wants its statement to end; that may have to wait for the guard, and the door does not."""
        threading.Thread(target=client.interrupt, name="gmdb-interrupt", daemon=True).start()

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
        withdraw(self._directory, self.place)
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

        ending = threading.Thread(target=flight.shutdown, name="gmdb-flight-end", daemon=True)
        ending.start()
        while ending.is_alive():
            hang_up(self.place)
            ending.join(HANG_UP_INTERVAL)
        self._flight = None

    def leave_to_parent(self) -> list[Any]:
        """In a forked child."""
        self._door.let_go()
        return [] if self._flight is None else [self._flight]
