"""The explorer's web server: on loopback, read-only, for clients that have the token.

Invariants
 1. Every request needs the token: in the URL the first time, then in a cookie that scripts cannot read.
 2. A request must name this host and port, so that no other site's name can be made to resolve to this server.
 3. The content security policy lets the browser run and load only what this server sends.
"""

from __future__ import annotations

import json
import secrets
import sys
import traceback
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import Any
from urllib.parse import parse_qs

from gmdb.errors import CannotListen, Error
from gmdb.explore.moments import Moments
from gmdb.explore.responses import RESPONSES

HOST = "127.0.0.1"
_TYPES = {"html": "text/html", "css": "text/css", "js": "text/javascript", "svg": "image/svg+xml"}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_NO_TOKEN = (
    "This is gmdb's explorer. Open the URL that gmdb explore has printed: it has the token that is needed here.\n"
)


class ExplorerServer(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = False

    def __init__(self, moments: Moments, port: int = 0) -> None:
        self.moments = moments
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__((HOST, port), _Handler)
        except OSError as error:
            problem = f"the explorer cannot listen on port {port} of {HOST}: {error.strerror}"
            raise CannotListen(f"{problem}; --port 0 takes any that is free") from None

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore browsers that close the connection before they have the response."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.server_port}/?token={self.token}"

    @property
    def names(self) -> tuple[str, str]:
        """The values of a request's Host header that name this server."""
        return f"{HOST}:{self.server_port}", f"localhost:{self.server_port}"

    @property
    def cookie(self) -> str:
        """The cookie's name has the port, since all ports of a host share cookies."""
        return f"gmdb-explorer-{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    server: ExplorerServer
    server_version = "gmdb"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path, _, query_string = self.path.partition("?")
        query = parse_qs(query_string)
        if self.headers.get("Host") not in self.server.names:
            self._send_text(HTTPStatus.MISDIRECTED_REQUEST, "This is not that host.\n")
        elif path == "/" and "token" in query:
            self._log_in(query["token"][0])
        elif not self._has_cookie():
            self._send_text(HTTPStatus.FORBIDDEN, _NO_TOKEN)
        elif path.startswith("/api/"):
            self._respond(path.removeprefix("/api/"), query)
        else:
            self._send_file(path.lstrip("/") or "index.html")

    def _log_in(self, token: str) -> None:
        """Move the token from the URL into a cookie."""
        if not secrets.compare_digest(token.encode(), self.server.token.encode()):
            self._send_text(HTTPStatus.FORBIDDEN, _NO_TOKEN)
            return
        cookie = f"{self.server.cookie}={token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.SEE_OTHER, "text/plain", b"", {"Location": "/", "Set-Cookie": cookie})

    def _has_cookie(self) -> bool:
        try:
            cookie = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return False
        return cookie is not None and secrets.compare_digest(cookie.value.encode(), self.server.token.encode())

    def _respond(self, name: str, query: dict[str, list[str]]) -> None:
        respond = RESPONSES.get(name)
        if respond is None:
            self._send_text(HTTPStatus.NOT_FOUND, f"There is no {name}.\n")
            return
        try:
            status, document = HTTPStatus.OK, respond(self.server.moments, query)
        except Error as error:
            status, document = HTTPStatus.BAD_REQUEST, {"error": str(error)}
        except Exception as error:
            traceback.print_exc(file=sys.stderr)
            status, document = HTTPStatus.INTERNAL_SERVER_ERROR, {"error": f"{type(error).__name__}: {error}"}
        self._send(status, "application/json", json.dumps(document).encode())

    def _send_file(self, name: str) -> None:
        """Send a file of ``static``; the name is looked up among these files alone, so no path leads elsewhere."""
        file = {file.name: file for file in files("gmdb.explore").joinpath("static").iterdir()}.get(name)
        if file is None:
            self._send_text(HTTPStatus.NOT_FOUND, f"There is no {name}.\n")
        else:
            self._send(HTTPStatus.OK, _TYPES[name.rpartition(".")[2]], file.read_bytes())

    def _send_text(self, status: HTTPStatus, text: str) -> None:
        self._send(status, "text/plain", text.encode())

    def _send(self, status: HTTPStatus, kind: str, body: bytes, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Content-Security-Policy", _POLICY)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cache-Control", "no-store")
        for name, value in (more or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Requests are not written to the terminal."""
