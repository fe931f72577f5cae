"""A PostgreSQL server of one's own, to compare with: started on a Unix socket in a temporary folder, and asked there.

    with server() as connection:
        connection.ask("SELECT 1 + 1")   # Rows(types=["integer"], rows=[("2",)])
    with server(Listening(port, password)) as connection: ...   # over TCP, too, for programs that know nothing else

Needs PostgreSQL's programs; ``available()`` says whether they are there.  Speaks the protocol itself (version 3, simple
queries, values as text), so no driver is needed.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import struct
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

USER, DATABASE = "gmdb", "postgres"
_PORT = 5432  # names the socket's file, where nothing listens to TCP
_UNDEMANDING = ("fsync=off", "shared_buffers=16MB", "autovacuum=off")
_START_SECONDS_MAX = 60
_TYPES = {
    16: "boolean",
    17: "bytea",
    20: "bigint",
    21: "smallint",
    23: "integer",
    25: "text",
    700: "real",
    701: "double precision",
    705: "unknown",
    1000: "boolean[]",
    1001: "bytea[]",
    1007: "integer[]",
    1009: "text[]",
    1015: "character varying[]",
    1016: "bigint[]",
    1022: "double precision[]",
    1042: "character",
    1043: "character varying",
    1082: "date",
    1114: "timestamp without time zone",
    1115: "timestamp without time zone[]",
    1182: "date[]",
    1083: "time without time zone",
    1184: "timestamp with time zone",
    1186: "interval",
    1231: "numeric[]",
    1700: "numeric",
    2950: "uuid",
    2206: "regtype",
}


class PostgresError(Exception):
    """What the server answered instead of rows: its SQLSTATE and message."""

    def __init__(self, state: str, message: str) -> None:
        super().__init__(f"{state}: {message}")
        self.state = state


@dataclass
class Rows:
    """An answer: the names of the columns' types, and values as PostgreSQL writes them."""

    types: list[str]
    rows: list[tuple[str | None, ...]]
    tag: str = ""  # what the command was and how many rows it changed, "INSERT 0 3"


@dataclass(frozen=True)
class Listening:
    """Where a server listens to TCP on the loopback device, and the password that it asks for there."""

    port: int
    password: str


def _program(name: str) -> Path | None:
    """A program of PostgreSQL's, of the newest version that is installed."""
    installed = sorted(
        Path("/usr/lib/postgresql").glob(f"*/bin/{name}"), key=lambda path: float(path.parts[-3]), reverse=True
    )
    found = shutil.which(name)
    return installed[0] if installed else Path(found) if found else None


def available() -> bool:
    """Whether to compare with a server; continuous integration always does, and fails if there is none."""
    return bool(os.environ.get("CI")) or (_program("postgres") is not None and _program("initdb") is not None)


class Connection:
    """A session with the server."""

    def __init__(self, folder: Path, port: int = _PORT) -> None:
        self.folder, self._port = folder, port  # the folder is the server's user's, who may be another one
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(folder / f".s.PGSQL.{port}"))
        self._input = self._socket.makefile("rb")
        start = f"user\0{USER}\0database\0{DATABASE}\0client_encoding\0UTF8\0\0".encode()
        self._socket.sendall(struct.pack(">ii", len(start) + 8, 196608) + start)
        self._answer()

    def another(self) -> Connection:
        """A second session with the same server; whoever asks closes it."""
        return Connection(self.folder, self._port)

    def ask(self, query: str) -> Rows:
        """The rows of a query, or of the last of several.  Raises PostgresError."""
        return self.ask_all(query)[-1]

    def ask_all(self, queries: str) -> list[Rows]:
        """What each of several queries gives; those behind one that fails are not run.  Raises PostgresError."""
        body = queries.encode() + b"\0"
        self._socket.sendall(b"Q" + struct.pack(">i", len(body) + 4) + body)
        return self._answer()

    def close(self) -> None:
        self._socket.sendall(b"X" + struct.pack(">i", 4))
        self._input.close()
        self._socket.close()

    def _answer(self) -> list[Rows]:
        """Everything up to the server's being ready again."""
        answers, answer = [], Rows([], [])
        error = None
        while True:
            head = self._input.read(5)
            if len(head) < 5:
                raise error or ConnectionError("PostgreSQL closed the connection")
            kind, body = head[:1], self._input.read(struct.unpack(">i", head[1:])[0] - 4)
            if kind == b"T":
                answer.types = _described(body)
            elif kind == b"D":
                answer.rows.append(_values(body))
            elif kind == b"C":
                answer.tag = body[:-1].decode()
                answers.append(answer)
                answer = Rows([], [])
            elif kind == b"E":
                fields = dict((part[:1], part[1:].decode()) for part in body.split(b"\0") if part)
                error = PostgresError(fields[b"C"], fields[b"M"])
            elif kind == b"Z":
                if error is not None:
                    raise error
                return answers or [answer]


def _described(body: bytes) -> list[str]:
    types, at = [], 2
    for _ in range(struct.unpack_from(">h", body)[0]):
        at = body.index(b"\0", at) + 1
        oid = struct.unpack_from(">ihihih", body, at)[2]
        types.append(_TYPES.get(oid, f"type {oid}"))
        at += 18
    return types


def _values(body: bytes) -> tuple[str | None, ...]:
    values: list[str | None] = []
    at = 2
    for _ in range(struct.unpack_from(">h", body)[0]):
        (size,) = struct.unpack_from(">i", body, at)
        at += 4
        values.append(None if size < 0 else body[at : at + size].decode())
        at += max(0, size)
    return tuple(values)


@contextmanager
def server(listening: Listening | None = None, settings: Sequence[str] = _UNDEMANDING) -> Iterator[Connection]:
    """A new, empty server, ended at the end; C collation, UTF-8, times without a zone's rules.

    Without other settings it promises no durability and is slow with much data.
    """
    folder = Path(tempfile.mkdtemp(prefix="pg"))
    try:
        user = _unprivileged_user(folder)
        _make_cluster(folder, user, listening)
        port = listening.port if listening else _PORT
        given = [*settings, f"listen_addresses={'127.0.0.1' if listening else ''}", f"port={port}", "timezone=UTC"]
        given += [f"unix_socket_directories={folder}", "log_min_messages=panic"]
        options = [part for setting in given for part in ("-c", setting)]
        process = subprocess.Popen([_program("postgres"), "-D", folder / "data", *options], user=user, cwd=folder)
        try:
            connection = _connected(folder, port, process)
            try:
                yield connection
            finally:
                connection.close()
        finally:
            process.send_signal(signal.SIGINT)  # a fast shutdown
            process.wait(_START_SECONDS_MAX)
    finally:
        shutil.rmtree(folder)


def _make_cluster(folder: Path, user: int | None, listening: Listening | None) -> None:
    """Whoever gets at the folder needs no password."""
    command = [_program("initdb"), "-D", folder / "data", "-U", USER, "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"]
    command += ["--auth-local=trust", "--auth-host=scram-sha-256"]
    if listening:
        words = folder / "password"
        words.write_text(listening.password)
        if user is not None:
            os.chown(words, user, -1)
        command.append(f"--pwfile={words}")
    environment = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
    subprocess.run(command, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL, env=environment)


def _unprivileged_user(folder: Path) -> int | None:
    """PostgreSQL does not run as root: whose server it is to be, and the folder."""
    if os.geteuid() != 0:
        return None
    names = {entry.pw_name: entry.pw_uid for entry in pwd.getpwall()}
    user = names.get("postgres", names.get("nobody", 65534))
    os.chown(folder, user, -1)
    return user


def _connected(folder: Path, port: int, process: subprocess.Popen[bytes]) -> Connection:
    limit = time.monotonic() + _START_SECONDS_MAX
    while process.poll() is None and time.monotonic() < limit:
        try:
            return Connection(folder, port)
        except (FileNotFoundError, ConnectionError, PostgresError):  # it is not ready yet
            time.sleep(0.05)
    raise RuntimeError(f"PostgreSQL did not start within {_START_SECONDS_MAX} s (status {process.poll()})")
