"""The way in: this process opens the database, or asks the process that has it open, or a server.

The lock on the directory decides who the owner is.  An owner that is just opening or closing has the lock and no
endpoint yet, or no more; a process that comes then tries again for a while.  So does a client whose owner has gone.
"""

from __future__ import annotations

import fcntl
import os
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.errors import DatabaseInUse, InterfaceError, NoServer, NotAServer, OwnerGone, TlsFailed, TokenRefused
from gmdb.process import signals
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_imports import ssl
from gmdb.server import sockets
from gmdb.server.door import NEEDS_TLS, WRONG_PROTOCOL, WRONG_TOKEN, NoDoor, introduce, knock
from gmdb.server.entrance import find_place, is_loopback
from gmdb.server.sockets import keep_alive
from gmdb.storage.directory import LOCK_NAME, is_database

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.server.channel import Channel
    from gmdb.server.link import Finder


# ---- A server over the network, as its clients see it: its URL, the way to its door, and what may be wrong there.
#
# Invariants
#  1. A token leaves this machine in TLS only, and only for a server whose certificate is for the host of the URL.
#  2. Flight is reached at the address at which the door was, under the same certificate.

DEFAULT_PORT = 7433
SCHEME, TLS_SCHEME = "gmdb", "gmdb+tls"
TOKEN_VARIABLE = "GMDB_TOKEN"
PATIENCE = 10.0  # seconds for a server to answer
FORM = "gmdb://host:7433 or gmdb+tls://host:7433?tls_ca=FILE"


def is_url(path: Any) -> bool:
    """Whether it names a server, not a directory."""
    text = os.fspath(path) if isinstance(path, str | os.PathLike) else ""
    if isinstance(path, str):
        return text.startswith((f"{SCHEME}://", f"{TLS_SCHEME}://"))
    if isinstance(text, str) and text.startswith((f"{SCHEME}:/", f"{TLS_SCHEME}:/")):
        raise InterfaceError(f"{text} was made a path, which a URL does not survive; give {FORM} as text")
    return False


@dataclass(frozen=True)
class Server:
    """Where a server is, and what to show it."""

    host: str
    port: int
    token: str = field(repr=False)
    uses_tls: bool = False
    tls_ca: str | None = None

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{TLS_SCHEME if self.uses_tls else SCHEME}://{host}:{self.port}"


def parse_url(url: str, token: str | None = None, tls_ca: Any = None) -> Server:
    """What a URL says, and what was given beside it."""
    from urllib.parse import parse_qsl, urlsplit

    try:
        parts = urlsplit(url)
        host, port = parts.hostname, DEFAULT_PORT if parts.port is None else parts.port
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
    except ValueError as error:
        raise InterfaceError(f"the URL of a server is {FORM}: {error}") from None
    if parts.username is not None or parts.password is not None:
        raise InterfaceError(f"a token is not part of a URL; give token=, or set {TOKEN_VARIABLE}")
    if not host or parts.path not in ("", "/") or parts.fragment or not port:
        raise InterfaceError(
            f"{url} is not a server; write {FORM}. A server has one database, which it was started with"
        )
    for name, value in options:
        if name != "tls_ca" or not value:
            raise InterfaceError(f"{url}: a URL takes ?tls_ca=FILE, and no {name}={value}")
        tls_ca = value if tls_ca is None else tls_ca
    token = os.environ.get(TOKEN_VARIABLE, "") if token is None else token
    if not token:
        raise TokenRefused(f"{url} wants a token: give token=, or set {TOKEN_VARIABLE}")
    if not token.isascii() or not token.isprintable():
        raise TokenRefused(f"what was given as the token for {url} is none: it has line ends or other characters")
    ca = None if tls_ca is None else os.fspath(tls_ca)
    return Server(host, port, token, parts.scheme == TLS_SCHEME or ca is not None, ca)


def _channel_to_server(server: Server, options: dict[str, Any], patience: float = PATIENCE) -> Channel:
    """A session at a server."""
    trusted = _trust(server) if server.uses_tls else None
    door = _reach(server, patience)
    try:
        address = str(door.getpeername()[0])
        if trusted is not None:
            door = _secure(server, door, trusted)
        elif not is_loopback(address):
            raise TlsFailed(
                f"{server.url} is another machine, and nothing may be said there without TLS; "
                f"use {TLS_SCHEME}:// or give tls_ca="
            )
        reply = _let_in(server, door)
        door.settimeout(None)
        return _session_at(server, door, reply, address, trusted, options)
    except BaseException:
        door.close()
        raise


@dataclass
class _ServerFinder:
    """Finds a server that was started again at its address."""

    server: Server
    directory: Path
    patience: float

    def __call__(self, options: dict[str, Any]) -> Channel | str:
        try:
            channel = _channel_to_server(self.server, options, max(self.patience, INTERVAL))
        except NoServer as error:
            return str(error)
        if channel.route.directory != self.directory:
            channel.close()
            raise InterfaceError(
                f"{self.server.url} has another database now, {channel.route.directory}; it had {self.directory}"
            )
        return channel


def _trust(server: Server) -> ssl.SSLContext:
    """The CAs that certificates are checked by: the one that was given, or those of the system."""
    try:
        return ssl.create_default_context(cafile=server.tls_ca)
    except OSError as error:  # TLS's own errors are such as well
        raise TlsFailed(f"{server.tls_ca} has no certificate, in PEM, that can be read: {error}") from None


def _reach(server: Server, patience: float) -> socket.socket:
    try:
        door = socket.create_connection((server.host, server.port), min(patience, PATIENCE))
        keep_alive(door)
        door.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return door
    except (OSError, UnicodeError) as error:
        raise NoServer(f"nothing answers at {server.url}: {error}; is gmdb serve running there?") from None


def _secure(server: Server, door: socket.socket, trusted: ssl.SSLContext) -> ssl.SSLSocket:
    try:
        return trusted.wrap_socket(door, server_hostname=server.host)
    except ssl.SSLCertVerificationError as error:
        raise TlsFailed(
            f"the certificate of {server.url} does not hold: {error.verify_message}; "
            "tls_ca= must be the file of the CA that signed it, and the URL have the host that it is for"
        ) from None
    except TimeoutError:
        raise NoServer(f"{server.url} does not answer; does it speak TLS?") from None
    except (OSError, ValueError) as error:
        raise TlsFailed(
            f"{server.url} does not speak TLS as it should ({error}); if it is a gmdb server without a certificate, "
            f"use {SCHEME}:// and no tls_ca"
        ) from None


def _let_in(server: Server, door: socket.socket) -> dict[str, Any]:
    try:
        reply = introduce(door, server.token)
    except TimeoutError:
        raise NoServer(f"a program listens at {server.url}, but does not answer") from None
    except (OSError, NoDoor) as error:
        raise NotAServer(f"what answers at {server.url} is not a gmdb server: {error}") from None
    why = reply.get("refused")
    if why is None and "key" in reply and "flight" in reply:
        return reply
    if why == WRONG_TOKEN:
        raise TokenRefused(f"{server.url} does not take this token; ask the person who started it for the right one")
    if why == NEEDS_TLS:
        raise TlsFailed(f"{server.url} wants TLS: use {TLS_SCHEME}://, with tls_ca= if its CA is not the system's")
    if why == WRONG_PROTOCOL:
        raise NotAServer(f"{server.url} is a server of another version of gmdb")
    raise NotAServer(f"{server.url} lets no client in: {reply.get('why', 'it does not say why')}")


def _session_at(
    server: Server,
    door: socket.socket,
    reply: dict[str, Any],
    address: str,
    trusted: ssl.SSLContext | None,
    options: dict[str, Any],
) -> Channel:
    sockets.use_flight((address, server.port), (address, int(reply["flight"])))
    from gmdb.server.channel import FlightChannel, Gone, Route

    host = f"[{address}]" if ":" in address else address
    transport: dict[str, Any] = {"generic_options": [("grpc.enable_http_proxy", 0)]}  # as the door was reached
    if trusted is not None:
        transport |= {"tls_root_certs": _roots(server, trusted), "override_hostname": server.host}
    route = Route(
        directory=Path(str(reply["path"])),
        owner=f"the server at {server.url}",
        location=f"grpc{'' if trusted is None else '+tls'}://{host}:{reply['flight']}",
        end=(address, int(reply["flight"])),
        is_network=True,
        token=server.token,
        transport=transport,
    )
    try:
        return FlightChannel(route, door, str(reply["key"]), options)
    except Gone:
        raise NoServer(
            f"{server.url} lets us in, but cannot be reached at port {reply['flight']}, which it uses as well; is that "
            "port closed by a firewall? gmdb serve --flight-port chooses another"
        ) from None


def _roots(server: Server, trusted: ssl.SSLContext) -> bytes | None:
    """The CAs that Flight shall trust: the same."""
    if server.tls_ca is not None:
        return Path(server.tls_ca).read_bytes()
    certificates = trusted.get_ca_certs(binary_form=True)
    return "".join(map(ssl.DER_cert_to_PEM_cert, certificates)).encode() or None


# ---- The way in.

OWNER_PATIENCE = 10.0  # seconds for an owner to finish opening or closing, or to answer at its door
READERS_LOOKS = (
    10  # in a row, to be sure that readers hold the lock: an owner may let go, or a process may only look at it
)
INTERVAL = 0.02
POLITE_LOOKS = 50  # in a row, at which another process is given the turn to open


def connect(path: Any, *, token: str | None = None, tls_ca: Any = None, **options: Any) -> Connection:
    """A connection to the database at ``path``, through its owner if another process is that, or to a server's."""
    if is_url(path):
        with signals.held:
            server, of_session = parse_url(path, token, tls_ca), _of_session(**options)
            channel = _channel_to_server(server, of_session)
            finder = _ServerFinder(server, channel.route.directory, of_session["lock_timeout"])
            return _through(channel, of_session, finder)
    if token is not None or tls_ca is not None:
        raise InterfaceError(f"a token and a CA are for servers, gmdb://host:port; {path} is a directory")
    with signals.held:
        return _connect_here_or_to_owner(Path(path).absolute(), options)


def _connect_here_or_to_owner(directory: Path, options: dict[str, Any]) -> Connection:
    since, looks = 0.0, 0  # since when others have it, and how often in a row those were not an owner
    of_session, turns = _of_session(**options), _Turns(directory)
    while True:
        if not is_open_here(directory):
            channel = _channel_to_owner(directory, of_session)
            if channel is not None:
                return _through(channel, of_session, _OwnerFinder(directory, options))
        try:
            with turns.next(of_session["read_only"]) as is_turn:
                if is_turn:
                    return open_here(directory, **options)
        except DatabaseInUse:
            since = since or time.monotonic()
            looks = 0 if _has_owner(directory) else looks + 1
            is_too_long = looks > READERS_LOOKS or (looks == 0 and time.monotonic() - since > OWNER_PATIENCE)
            if is_too_long or is_open_here(directory):
                raise
        signals.check()
        time.sleep(INTERVAL)


class _OwnerFinder:
    """Finds the owner of a database after the last one went; if there is none, this process becomes it.

    A session for reading only waits for another process to do that, since readers keep owners out.
    """

    patience = OWNER_PATIENCE

    def __init__(self, directory: Path, options: dict[str, Any]) -> None:
        self.directory = directory
        self.options = options
        self._turns = _Turns(directory)

    def __call__(self, options: dict[str, Any]) -> Channel | str:
        directory = self.directory
        try:
            is_ours = is_open_here(directory)
            channel = None if is_ours else _channel_to_owner(directory, options)
            if channel is not None:
                return channel
            if options["read_only"]:
                return "no process has it open for writing"
            if not is_database(directory):
                return "the database is not there any more"
            with self._turns.next() as is_turn:
                if not is_turn:
                    return "another process is about to open it"
                from gmdb.server.own_channel import OwnChannel

                sync = None if is_ours else self.options.get("sync")
                return OwnChannel(open_here(directory, **{**self.options, **options, "sync": sync}))
        except DatabaseInUse as error:
            return str(error)


class _Turns:
    """One process at a time tries to become a database's owner: the others would load compiled code for nothing.

    This guards nothing, the lock file does: who was refused too often goes on all the same.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._refused = 0

    @contextmanager
    def next(self, reads_only: bool = False) -> Iterator[bool]:
        """Whether it is this process's turn, which it then has until the end of the block."""
        file = -1
        try:
            with suppress(FileNotFoundError, NotADirectoryError, PermissionError):  # opening says what is wrong
                file = os.open(self._directory, os.O_RDONLY | os.O_DIRECTORY)
            is_free = file < 0 or reads_only or is_open_here(self._directory) or _locked(file)
            self._refused = 0 if is_free else self._refused + 1
            yield self._refused % POLITE_LOOKS == 0
        finally:
            if file >= 0:
                os.close(file)


def _locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


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


def connect_to_owner(directory: Path, **session_options: Any) -> Connection | None:
    """A connection through the process that has the database open, as long as that has it; nothing if none answers."""
    options = _of_session(**session_options)
    channel = _channel_to_owner(directory, options)
    return None if channel is None else _through(channel, options, None)


def _through(channel: Channel, options: dict[str, Any], finder: Finder | None) -> Connection:
    from gmdb.server.link import Link
    from gmdb.server.remote import RemoteConnection

    return RemoteConnection(Link(channel, options, finder))


def _channel_to_owner(directory: Path, options: dict[str, Any]) -> Channel | None:
    """A session in the process that has the database open; nothing if no process answers."""
    place = find_place(directory)
    if place is None or place.pid == os.getpid():
        return None
    try:
        let_in = knock(place, OWNER_PATIENCE)
    except TimeoutError:
        raise DatabaseInUse(f"{directory} is open in process {place.pid}, which does not answer") from None
    if let_in is None:
        return None
    door, reply = let_in
    try:
        sockets.use_flight(place.folder)
        from gmdb.server.channel import FlightChannel, Gone, Route

        route = Route(
            directory=directory,
            owner=f"process {place.pid}",
            location=f"grpc+unix://{place.flight}",
            end=place.folder,
            is_network=False,
            token=place.token,
        )
        with suppress(Gone, OwnerGone):
            return FlightChannel(route, door, reply["key"], options)
        return None
    except BaseException:
        door.close()
        raise


def open_here(directory: Path, **options: Any) -> Connection:
    """A connection of the process that has the database open: this one."""
    from gmdb.database.connection import open_connection
    from gmdb.server.endpoint import serve
    from gmdb.sql.runner import Runner

    connection = open_connection(directory, statements=Runner, **options)
    serve(connection._database)
    return connection


def is_open_here(directory: Path) -> bool:
    """Whether this process has the database open."""
    engine = sys.modules.get("gmdb.database.engine")
    look = getattr(engine, "is_open_here", None)  # not there yet, while another thread imports the module
    return look is not None and look(directory)


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
