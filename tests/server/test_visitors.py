"""Visitors that keep a server's door busy keep nobody else out."""

# ruff: noqa: F811 (fixtures)

from __future__ import annotations

import socket
import ssl
import time

import gmdb
from gmdb.server import door as door_module
from tests.server.peer import SOON
from tests.server.serving import TOKEN, Certificates, Serving
from tests.server.test_network import plain, secure, shared  # noqa: F401


def test_slow_and_silent_visitors_keep_nobody_out(secure: Serving, certificates: Certificates) -> None:
    visitors = []
    for said in (
        b"",
        b"\x16",
        b"\x16\x03\x01\x02\x00\x01",
        b"\x16" * 600,
        b"gmdb 1\n",
        b"\0" * 5000,
        b"GET / HTTP/1.1\r\n",
    ):
        visitor = socket.create_connection(("127.0.0.1", secure.port))
        visitor.sendall(said)
        visitors.append(visitor)
    context = ssl.create_default_context(cafile=str(certificates.ca))
    for said in (b"", b"gmdb", b"gmdb 1\n", b"gmdb 1\n" + b"x" * 20_000, b"noise\n"):
        raw = socket.create_connection(("127.0.0.1", secure.port))
        visitors.append(context.wrap_socket(raw, server_hostname="localhost"))
        visitors[-1].sendall(said)
    began = time.monotonic()
    with gmdb.connect(secure.url, token=TOKEN, tls_ca=certificates.ca) as db:
        assert db.execute("select 1").fetchall() == [(1,)]
    assert time.monotonic() - began < door_module.VISITOR_PATIENCE
    for visitor in visitors:
        visitor.close()


def test_visitors_that_never_show_a_token_are_sent_away(secure: Serving, plain: Serving) -> None:
    silent = [socket.create_connection(("127.0.0.1", serving.port)) for serving in (secure, plain)]
    many = [socket.create_connection(("127.0.0.1", plain.port)) for _ in range(door_module.VISITORS_MAX + 1)]
    silent[1].settimeout(SOON)
    assert silent[1].recv(1) == b""  # there are too many, and it was first
    silent[0].settimeout(door_module.VISITOR_PATIENCE + SOON)
    assert silent[0].recv(1) == b""
    for visitor in (*silent, *many):
        visitor.close()
