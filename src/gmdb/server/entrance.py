"""The ways into an owner: sockets that only its user can reach, and a port that others reach over the network.

Invariants
 1. Beyond this machine no client gets in without a token that was chosen for that, and nothing is sent in the clear.
 2. What is wrong with a port or a certificate is raised before any client is let in.
"""

from __future__ import annotations

import json
import os
import re
import socket
import stat
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from gmdb.errors import CannotListen, InterfaceError, UnsafeListening
from gmdb.process.late_dataclasses import asdict, dataclass, field
from gmdb.process.late_imports import ssl
from gmdb.process.trusted_directories import flaw_of, flaw_on_way
from gmdb.server.sockets import End

# ---- Where an owner is to be reached: a private directory for its sockets, and a file in the database that names it.
#
# Invariants
#  1. Only the owner's user can enter the directory or read the file.
#  2. The path of a socket is short enough for the system, however long the database's own path is.
#  3. The file is there only while its owner holds the database's lock, or because an owner died; then nothing answers
#     at its socket, and the next owner removes both.
#  4. A process that looks for an owner trusts only a file and a directory that are both of one user, its own unless
#     it is root, and that no other user can write to.
#  5. A copy of a database's directory leads nobody to the owner of the original: the file names its directory's inode.

ENDPOINT_NAME = "gmdb.endpoint"
DOOR_NAME, FLIGHT_NAME = "door", "flight"
PREFIX = "gmdb-"
SOCKET_PATH_MAX = 107
_FILE_MAX = 4096
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)  # a Flight location is a URI, and takes no other characters


@dataclass(frozen=True)
class Place:
    """An owner: its process, the directory of its sockets, and the token that every call must carry."""

    pid: int
    folder: str
    token: str

    @property
    def door(self) -> str:
        return os.path.join(self.folder, DOOR_NAME)

    @property
    def flight(self) -> str:
        return os.path.join(self.folder, FLIGHT_NAME)


def make_place() -> Place:
    """A new place for this process."""
    base = _base()
    while True:
        folder = os.path.join(base, f"{PREFIX}{os.urandom(4).hex()}")
        with suppress(FileExistsError):
            os.mkdir(folder, 0o700)
            return Place(os.getpid(), folder, os.urandom(16).hex())


def _base() -> str:
    """The user's runtime directory if there is one, else the first directory for temporary files that will do."""
    longest = len(f"/{PREFIX}12345678/{FLIGHT_NAME}")
    named = [os.environ[name] for name in ("XDG_RUNTIME_DIR", "TMPDIR", "TEMP", "TMP") if os.environ.get(name)]
    for base in (*map(os.path.abspath, named), "/tmp", "/var/tmp"):
        short = len(os.fsencode(base)) + longest <= SOCKET_PATH_MAX
        writable = short and _PLAIN.fullmatch(base) and os.access(base, os.W_OK | os.X_OK)
        if writable and flaw_on_way(base) is None:  # su, for one, leaves XDG_RUNTIME_DIR as another user had it
            return base
    raise OSError("there is no directory for temporary files with a short, plain path where others cannot replace ours")


def publish(directory: Path, place: Place) -> None:
    """Let others find the place; the file appears as a whole."""
    new = directory / f"{ENDPOINT_NAME}.new"
    new.unlink(missing_ok=True)
    file = os.open(new, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, json.dumps({**asdict(place), "inode": directory.stat().st_ino}).encode())
    finally:
        os.close(file)
    os.replace(new, directory / ENDPOINT_NAME)


def find_place(directory: Path) -> Place | None:
    """What the database's file says; nothing if there is none, none that can be read, or that of another directory."""
    try:
        raw, user = _read(directory / ENDPOINT_NAME)
        fields = json.loads(raw)
        place = Place(int(fields["pid"]), str(fields["folder"]), str(fields["token"]))
        return place if fields["inode"] == directory.stat().st_ino and _is_private(place.folder, user) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read(path: Path) -> tuple[bytes, int]:
    """The content of a file that only its user could write, and the user's id."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode) or status.st_mode & 0o022 or status.st_size > _FILE_MAX:
            raise ValueError(f"{path} is not a file of an owner")
        if status.st_uid != os.getuid() and os.getuid() != 0:
            raise ValueError(f"{path} is another user's")
        return file.read(), status.st_uid


def _is_private(folder: str, user: int) -> bool:
    """Whether only the user could have put a socket there."""
    status = os.lstat(folder)
    private = stat.S_ISDIR(status.st_mode) and status.st_uid == user and not status.st_mode & 0o077
    return private and flaw_of(folder, user) is None


def withdraw(directory: Path, place: Place) -> None:
    """No owner is to be found here any more."""
    (directory / ENDPOINT_NAME).unlink(missing_ok=True)
    _remove(place.folder)


def clear_dead(directory: Path) -> None:
    """Remove what an owner that died has left.  The caller holds the database's lock."""
    place = find_place(directory)
    (directory / ENDPOINT_NAME).unlink(missing_ok=True)
    if place is None:
        return
    folder = Path(place.folder)
    ours = folder.name.startswith(PREFIX) and folder.is_dir() and not folder.is_symlink()
    if ours and folder.stat().st_uid == os.getuid() and {p.name for p in folder.iterdir()} <= {DOOR_NAME, FLIGHT_NAME}:
        _remove(place.folder)


def _remove(folder: str) -> None:
    """Remove a place with its sockets."""
    with suppress(OSError):
        for name in (DOOR_NAME, FLIGHT_NAME):
            with suppress(FileNotFoundError):
                os.unlink(os.path.join(folder, name))
        os.rmdir(folder)


# ---- The ways into an owner.

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

    def flight_details(self, flight_port: int) -> dict[str, Any]:
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

    def flight_details(self, flight_port: int) -> dict[str, Any]:
        del flight_port
        return {}

    def announce(self) -> None:
        publish(self._directory, self._place)

    def withdraw(self) -> None:
        withdraw(self._directory, self._place)


@dataclass(frozen=True)
class Listening:
    """The options of a network entrance.  ``is_token_given``: the user chose it, it was not generated."""

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

    def flight_details(self, flight_port: int) -> dict[str, Any]:
        return {"flight": flight_port}

    def announce(self) -> None:
        """Nothing to publish: clients are told the address by their users."""

    def withdraw(self) -> None:
        """As above."""


def require_token(token: str) -> str:
    """Refuse a token that cannot be sent as it is, or is easily guessed."""
    if len(token) < TOKEN_SIZE_MIN or not (token.isascii() and token.isprintable()) or " " in token:
        raise InterfaceError(
            f"a token has at least {TOKEN_SIZE_MIN} characters of ASCII, without blanks; "
            "python -c 'import secrets; print(secrets.token_hex(32))' makes one"
        )
    return token


def is_loopback(address: str) -> bool:
    """Whether an address is one of this machine alone."""
    import ipaddress

    plain = address.partition("%")[0].removeprefix("::ffff:")
    return ipaddress.ip_address(plain).is_loopback


def _resolve(host: str) -> tuple[socket.AddressFamily, str]:
    """The address to listen at."""
    try:
        if not host:
            raise OSError("it is empty")
        addresses = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise CannotListen(f"{host or 'the host'} is not an address to listen at: {error}") from None
    family, *_, name = addresses[0]
    return family, str(name[0])


def _bound(family: socket.AddressFamily, address: str, port: int) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
    except (OSError, OverflowError) as error:
        listener.close()
        raise CannotListen(f"cannot listen at {address}, port {port}: {error}; choose another port or host") from None
    return listener


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
            f"{cert} and {key} are not a certificate and its key, in PEM, that can be read: {error}"
        ) from None


def _no_password(key: Path) -> str:
    raise CannotListen(f"{key} is locked by a password; give a key without one")
