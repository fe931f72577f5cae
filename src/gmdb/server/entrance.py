"""The ways into an owner: sockets that only its user can reach, and a port that others reach over the network.

Invariants
 1. Beyond this machine nobody gets in without a token that was chosen for that, and nothing is said in the clear.
 2. What is wrong with a port or a certificate is told before anybody is let in.
"""

from __future__ import annotations

import ipaddress
import os
import socket
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from gmdb.errors import CannotListen, InterfaceError, UnsafeListening
from gmdb.server.place import clear_dead, make_place, publish, withdraw
from gmdb.server.sockets import End

WAITING_MAX = 64
TOKEN_SIZE_MIN = 16


class Entrance(Protocol):
    """Where an endpoint listens: its door at a socket, and Flight at another."""

    is_network: bool

    @property
    def token(self) -> str: ...

    @property
    def tls(self) -> ssl.SSLContext | None:
        """What the door secures connections with."""

    @property
    def location(self) -> str:
        """Flight's place."""

    @property
    def certificates(self) -> list[tuple[bytes, bytes]] | None:
        """What Flight secures connections with."""

    def listen(self) -> socket.socket: ...

    def ends(self, flight_port: int) -> list[End]:
        """Where the sockets of Flight's clients are."""

    def told(self, flight_port: int) -> dict[str, Any]:
        """What a client must know to find Flight."""

    def announce(self) -> None: ...

    def withdraw(self) -> None: ...


class UnixEntrance:
    """Sockets in a directory of the user's own, which the database's directory tells of."""

    is_network = False
    tls = None
    certificates = None

    def __init__(self, directory: Path) -> None:
        clear_dead(directory)
        self._directory = directory
        self._place = make_place()
        self.token = self._place.token
        self.location = f"grpc+unix://{self._place.flight}"

    def listen(self) -> socket.socket:
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listener.bind(self._place.door)
        os.chmod(self._place.door, 0o600)
        listener.listen(WAITING_MAX)
        return listener

    def ends(self, flight_port: int) -> list[End]:
        del flight_port
        return [self._place.folder]

    def told(self, flight_port: int) -> dict[str, Any]:
        del flight_port
        return {}

    def announce(self) -> None:
        publish(self._directory, self._place)

    def withdraw(self) -> None:
        withdraw(self._directory, self._place)


@dataclass(frozen=True)
class Listening:
    """What somebody wants of a network entrance.  ``is_token_given``: it was not made up for want of one."""

    host: str
    port: int
    token: str = field(repr=False)
    is_token_given: bool = True
    flight_port: int = 0
    tls_cert: Path | None = None
    tls_key: Path | None = None


class NetworkEntrance:
    """A TCP port for the door and one for Flight; with a certificate, both in TLS."""

    is_network = True

    def __init__(self, wanted: Listening) -> None:
        self.token = require_token(wanted.token)
        self._family, self._address = _resolve(wanted.host)
        self._wanted = wanted
        self.tls, self.certificates = _certificate(wanted.tls_cert, wanted.tls_key)
        if not is_loopback(self._address):
            self._require_safety()
        host = f"[{self._address}]" if self._family == socket.AF_INET6 else self._address
        self.location = f"grpc{'' if self.tls is None else '+tls'}://{host}:{wanted.flight_port}"
        self.port = wanted.port

    def _require_safety(self) -> None:
        lacking = [] if self.tls is not None else ["a certificate (--tls-cert FILE --tls-key FILE)"]
        lacking += [] if self._wanted.is_token_given else ["a token (--token-file FILE)"]
        if lacking:
            raise UnsafeListening(
                f"{self._wanted.host} can be reached from other machines, so {' and '.join(lacking)} must be given; "
                "or listen at 127.0.0.1"
            )

    def listen(self) -> socket.socket:
        if self._wanted.flight_port:
            _bound(
                self._family, self._address, self._wanted.flight_port
            ).close()  # it says better than Flight what is wrong
        listener = _bound(self._family, self._address, self._wanted.port)
        listener.listen(WAITING_MAX)
        self.port = listener.getsockname()[1]
        return listener

    @property
    def url(self) -> str:
        host = f"[{self._wanted.host}]" if ":" in self._wanted.host else self._wanted.host
        return f"gmdb{'' if self.tls is None else '+tls'}://{host}:{self.port}"

    def ends(self, flight_port: int) -> list[End]:
        return [("", flight_port)] if flight_port else []

    def told(self, flight_port: int) -> dict[str, Any]:
        return {"flight": flight_port}

    def announce(self) -> None:
        """Nobody looks for it: clients are told the address by their users."""

    def withdraw(self) -> None:
        """As above."""


def require_token(token: str) -> str:
    """A token that travels as it is, and is not soon guessed."""
    if len(token) < TOKEN_SIZE_MIN or not (token.isascii() and token.isprintable()) or " " in token:
        raise InterfaceError(
            f"a token has at least {TOKEN_SIZE_MIN} characters of ASCII, without blanks; "
            "python -c 'import secrets; print(secrets.token_hex(32))' makes one"
        )
    return token


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine alone."""
    plain = address.partition("%")[0].removeprefix("::ffff:")
    return ipaddress.ip_address(plain).is_loopback


def _resolve(host: str) -> tuple[socket.AddressFamily, str]:
    """The address to listen at."""
    try:
        if not host:
            raise OSError("it is empty")
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"{host or 'the host'} is no address to listen at: {error}") from None
    family, *_, name = found[0]
    return family, str(name[0])


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
    except (OSError, OverflowError) as error:
        made.close()
        raise CannotListen(f"cannot listen at {address}, port {port}: {error}; choose another port or host") from None
    return made


def _certificate(cert: Path | None, key: Path | None) -> tuple[ssl.SSLContext | None, list[tuple[bytes, bytes]] | None]:
    """The certificate, for the door and for Flight."""
    if cert is None and key is None:
        return None, None
    if cert is None or key is None:
        raise InterfaceError("a certificate and its key belong together: --tls-cert FILE --tls-key FILE")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.num_tickets = 0  # for coming back later, which no client does; nobody would read them
    try:
        context.load_cert_chain(cert, key, password=lambda: _no_password(key))
        return context, [(cert.read_bytes(), key.read_bytes())]
    except OSError as error:  # TLS's own errors are such as well
        raise CannotListen(
            f"{cert} and {key} are no certificate and its key, in PEM, that can be read: {error}"
        ) from None


def _no_password(key: Path) -> str:
    raise CannotListen(f"{key} is locked by a password; give a key without one")
