"""``gmdb serve``: a database, kept open for clients that come over the network."""

from __future__ import annotations

import argparse
import os
import secrets
import signal
import socket
import threading
import webbrowser
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.verbs import add_database
from gmdb.errors import CannotListen, InterfaceError
from gmdb.storage.directory import require_database
from gmdb.storage.disk import read_plain

if TYPE_CHECKING:
    from gmdb.server.entrance import Listening


# ---- Commands that run until a signal ends them.

ENDINGS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def until_signalled() -> Iterator[Callable[[], None]]:
    """Yields a function that waits for Ctrl-C or SIGTERM.

    A signal before the wait raises KeyboardInterrupt in the block; further ones are ignored, so that closing is not
    interrupted.  The signal may reach any thread; Python's wakeup socket wakes the one that waits.
    """
    woken, wake = socket.socketpair()
    wake.setblocking(False)
    is_waiting = False

    def end(*_: Any) -> None:
        for number in ENDINGS:
            signal.signal(number, signal.SIG_IGN)
        if not is_waiting:
            raise KeyboardInterrupt

    def wait() -> None:
        nonlocal is_waiting
        is_waiting = True
        woken.recv(1)

    before = {number: signal.signal(number, end) for number in ENDINGS}
    wakes = signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
    try:
        yield wait
    finally:
        signal.set_wakeup_fd(wakes)
        for number, handler in before.items():
            signal.signal(number, handler)
        woken.close()
        wake.close()


class ServeVerb:
    """``gmdb serve``: a database, kept open for clients that come over the network."""

    NAME = "serve"
    HELP = "offer a database to other machines, or other users of this one"
    DESCRIPTION = (
        "Open a database and keep it open, for clients that come over TCP: gmdb.connect('gmdb://host:7433', "
        "token=...),\n"
        "gmdb sql gmdb://host:7433. Processes of the same user on this machine go on using its path. Ctrl-C "
        "and SIGTERM\n"
        "close it; transactions that are open are rolled back.\n"
        "Every client needs a token. Without --token-file or --token it is the one in DB/gmdb.token, which is\n"
        "created if need be and which only your user can read; clients take it from GMDB_TOKEN or an argument.\n"
        "To listen on other addresses than loopback, both a token and a certificate must be given.\n"
        "Clients use two ports: that of --port, to which they connect, and one for Arrow Flight, which the server\n"
        "tells them."
    )
    EXAMPLE = (
        "examples:\n"
        "  gmdb serve shop.gmdb\n"
        "  GMDB_TOKEN=$(cat shop.gmdb/gmdb.token) gmdb sql gmdb://127.0.0.1:7433\n"
        "  gmdb serve shop.gmdb --host 0.0.0.0 --flight-port 7434 --token-file token --tls-cert cert.pem "
        "--tls-key key.pem"
    )

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--host", default=DEFAULT_HOST, help="where to listen (127.0.0.1)")
        parser.add_argument(
            "--port", type=port_number, default=DEFAULT_PORT, help="the port (7433); 0: any that is free"
        )
        parser.add_argument("--flight-port", type=port_number, default=0, help="the second port (any that is free)")
        parser.add_argument(
            "--tls-cert", metavar="FILE", type=Path, help="the server's certificate and its chain, in PEM"
        )
        parser.add_argument(
            "--tls-key", metavar="FILE", type=Path, help="the certificate's key, in PEM, without password"
        )
        token = parser.add_mutually_exclusive_group()
        token.add_argument(
            "--token-file", metavar="FILE", type=Path, help="a file with the token that clients must show"
        )
        token.add_argument("--token", help="the token itself; others may see it in the list of processes")
        parser.set_defaults(run=ServeVerb.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        directory = Path(arguments.database).absolute()
        require_database(directory)
        wanted, where = _listening(arguments, directory)
        with until_signalled() as wait:
            from gmdb.server.connect import open_here  # compiled code, which other commands do without
            from gmdb.server.endpoint import serve_network

            with open_here(
                directory,
                isolation="read committed",
                autocommit=False,
                lock_timeout=5.0,
                read_only=False,
                sync=None,
                progress=None,
            ) as db:
                entrance = serve_network(db._database, wanted)
                print(f"{arguments.database} is at {entrance.url}, {where}; Ctrl-C closes it", flush=True)
                wait()
        return 0


TOKEN_NAME = "gmdb.token"
DEFAULT_HOST, DEFAULT_PORT = "127.0.0.1", 7433


def port_number(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) > 0xFFFF:
        raise argparse.ArgumentTypeError(f"{text} is not a port; a port is 0 to 65535")
    return int(text)


def _listening(arguments: argparse.Namespace, directory: Path) -> tuple[Listening, str]:
    """What the arguments say, and where the token is, as text."""
    from gmdb.server.entrance import Listening, NetworkEntrance

    def listening(token: str, is_given: bool) -> Listening:
        return Listening(
            arguments.host,
            arguments.port,
            token,
            is_token_given=is_given,
            flight_port=arguments.flight_port,
            tls_cert=arguments.tls_cert,
            tls_key=arguments.tls_key,
        )

    if arguments.token is not None:
        wanted, where = listening(arguments.token, True), "token as given"
    elif arguments.token_file is not None:
        wanted, where = listening(_read_token(arguments.token_file), True), f"token in {arguments.token_file}"
    else:
        NetworkEntrance(listening(secrets.token_hex(), False))  # refused arguments leave no file behind
        token_file = directory / TOKEN_NAME
        wanted, where = listening(_own_token(token_file), False), f"token in {token_file}"
    NetworkEntrance(wanted)  # opening may take long, so arguments are checked first
    return wanted, where


def _read_token(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise InterfaceError(f"{file} has no token that can be read: {error}") from None


def _own_token(file: Path) -> str:
    """The database's own token, created when it is first needed; only the user can read the file."""
    try:
        if file.exists():
            if file.stat().st_mode & 0o077 or file.stat().st_uid != os.getuid():
                raise CannotListen(f"other users can read {file}; remove it, and a new token will be created")
            return read_plain(file).decode("ascii", "replace").strip()
        token = secrets.token_hex(32)
        with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
            stream.write(token + "\n")
        return token
    except OSError as error:
        raise CannotListen(f"{file}, for a token, cannot be created: {error}; pass one with --token-file") from None


class ExploreVerb:
    """``gmdb explore``: a database in the browser."""

    NAME = "explore"
    HELP = "look at a database in the browser"
    DESCRIPTION = (
        "Show a database in the browser: a map of all its pages, any page with the meaning of each byte, "
        "segments and\n"
        "indexes, versions of rows and who sees them, transactions, locks and the log as it is written, and "
        "what two\n"
        "moments differ in. The database may be closed, open in another process, crashed or damaged; nothing "
        "is changed.\n"
        "The page is served on loopback, to anyone on this machine who has the URL, until Ctrl-C. Nothing is\n"
        "fetched from other hosts."
    )
    EXAMPLE = "examples:\n  gmdb explore shop.gmdb\n  gmdb explore shop.gmdb --no-browser --port 8080"

    @staticmethod
    def add_arguments(parser: argparse.ArgumentParser) -> None:
        add_database(parser)
        parser.add_argument("--port", type=port_number, default=0, help="the port (any that is free)")
        parser.add_argument("--no-browser", action="store_true", help="only print the URL")
        parser.set_defaults(run=ExploreVerb.run)

    @staticmethod
    def run(arguments: argparse.Namespace) -> int:
        from gmdb.explore.moments import Moments
        from gmdb.explore.web import ExplorerServer

        with (
            until_signalled() as wait,
            Moments(arguments.database) as moments,
            ExplorerServer(moments, arguments.port) as server,
        ):
            threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.1}, daemon=True).start()
            print(f"{arguments.database} is at {server.url} ; Ctrl-C ends it", flush=True)
            if not arguments.no_browser:
                webbrowser.open(server.url)
            wait()
            server.shutdown()
        return 0
