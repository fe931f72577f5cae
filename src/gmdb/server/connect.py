"""The way in: this process opens the database, or asks the process that has it open, or a server.

The lock on the directory decides who the owner is.  An owner that is just opening or closing has the lock and no
endpoint yet, or no more; whoever comes then tries again for a while.
"""

from __future__ import annotations

import fcntl
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb import signals
from gmdb.errors import DatabaseInUse, InterfaceError, OwnerGone
from gmdb.late import without_collection
from gmdb.server import forks
from gmdb.server.door import knock
from gmdb.server.network import connect_to_server, is_url, parse_url
from gmdb.server.place import find_place
from gmdb.storage.directory import LOCK_NAME

if TYPE_CHECKING:
    from gmdb.connection import Connection

OWNER_PATIENCE = 10.0  # seconds for an owner to finish opening or closing, or to answer at its door
READERS_LOOKS = 10  # in a row, to be sure that readers hold the lock: an owner may let go, or somebody only look at it
INTERVAL = 0.02


def connect(path: Any, *, token: str | None = None, tls_ca: Any = None, **options: Any) -> Connection:
    """A connection to the database at ``path``, through its owner if another process is that, or to a server's."""
    if is_url(path):
        with signals.held:
            return connect_to_server(parse_url(path, token, tls_ca), _of_session(**options))
    if token is not None or tls_ca is not None:
        raise InterfaceError(f"a token and a CA are for servers, gmdb://host:port; {path} is a directory")
    with signals.held:
        return _connect_here_or_to_owner(Path(path).absolute(), options)


def _connect_here_or_to_owner(directory: Path, options: dict[str, Any]) -> Connection:
    found, looks = 0.0, 0  # when somebody else was found to have it, and how often in a row those were no owner
    while True:
        if not is_open_here(directory):
            remote = connect_to_owner(directory, **options)
            if remote is not None:
                return remote
        try:
            return open_here(directory, **options)
        except DatabaseInUse:
            found = found or time.monotonic()
            looks = 0 if _has_owner(directory) else looks + 1
            is_too_long = looks > READERS_LOOKS or (looks == 0 and time.monotonic() - found > OWNER_PATIENCE)
            if is_too_long or is_open_here(directory):
                raise
        signals.check()
        time.sleep(INTERVAL)


def _of_session(
    *,
    isolation: str = "read committed",
    autocommit: bool = False,
    lock_timeout: float = 5.0,
    read_only: bool = False,
    **_of_owners: Any,
) -> dict[str, Any]:
    """What a client may say of its session.  How commits reach the disk, and how recovery shows its progress, is the
    owner's to say."""
    options = {"isolation": isolation, "autocommit": autocommit, "lock_timeout": lock_timeout}
    return {**options, "read_only": read_only}


def connect_to_owner(directory: Path, **given: Any) -> Connection | None:
    """A connection through the process that has the database open; nothing if no process answers."""
    options = _of_session(**given)
    place = find_place(directory)
    if place is None or place.pid == os.getpid():
        return None
    try:
        let_in = knock(place, OWNER_PATIENCE)
    except TimeoutError:
        raise DatabaseInUse(f"{directory} is open in process {place.pid}, which does not answer") from None
    if let_in is None:
        return None
    door, told = let_in
    try:
        forks.use_flight(place.folder)
        from gmdb.server.link import Link, Route
        from gmdb.server.remote import RemoteConnection

        route = Route(
            directory=directory,
            owner=f"process {place.pid}",
            location=f"grpc+unix://{place.flight}",
            end=place.folder,
            is_network=False,
            token=place.token,
        )
        link = Link(route, door, told["key"], options)
        return RemoteConnection(link)
    except OwnerGone:
        return None
    except BaseException:
        door.close()
        raise


def open_here(directory: Path, **options: Any) -> Connection:
    """A connection of the process that has the database open: this one."""
    with without_collection():
        from gmdb.connection import open_connection
        from gmdb.server.endpoint import serve
        from gmdb.sql.runner import Runner

    connection = open_connection(directory, statements=Runner, **options)
    serve(connection._database)
    return connection


def is_open_here(directory: Path) -> bool:
    """Whether this process has the database open."""
    engine = sys.modules.get("gmdb.engine")
    return engine is not None and engine.is_open_here(directory)


def _has_owner(directory: Path) -> bool:
    """Whether a process holds the lock alone, as owners do."""
    try:
        file = os.open(directory / LOCK_NAME, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(file)
