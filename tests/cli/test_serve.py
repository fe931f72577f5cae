"""What ``gmdb serve`` refuses before it opens a database."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

import gmdb
from tests.server.serving import TOKEN, Serving, make_certificates, refused


@pytest.fixture
def made(path: Path) -> Path:
    gmdb.connect(path).close()
    return path


def test_it_listens_beyond_loopback_with_a_certificate_and_a_token_only(made: Path, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    for host in ("0.0.0.0", "::", "192.0.2.1"):
        both = refused(made, "--host", host)
        assert f"{host} can be reached from other machines" in both
        assert "a certificate (--tls-cert FILE --tls-key FILE) and a token (--token-file FILE) must be given" in both
        assert "a token (--token-file FILE) must be given" in refused(made, "--host", host, *certificates.options)
        assert "a certificate (--tls-cert" in refused(made, "--host", host, "--token", TOKEN)
    assert not (made / "gmdb.token").exists()
    serving = Serving(made, "--host", "0.0.0.0", "--token", TOKEN, *certificates.options)
    try:
        url = f"gmdb+tls://127.0.0.1:{serving.port}"
        with gmdb.connect(url, token=TOKEN, tls_ca=certificates.ca) as db:
            assert db.tables() == []
        assert serving.end() == (0, "", "")
    finally:
        serving.kill()


def test_a_token_is_long_enough_and_plain(made: Path, tmp_path: Path) -> None:
    for token in ("", "short", "with blanks in between it", "nüchtern" * 4):
        assert "a token has at least 16 characters" in refused(made, "--token", token)
    file = tmp_path / "token"
    assert "no token that can be read" in refused(made, "--token-file", str(file))
    file.write_text("short")
    assert "a token has at least 16 characters" in refused(made, "--token-file", str(file))
    assert "not allowed with" in refused(made, "--token-file", str(file), "--token", TOKEN)


def test_a_token_that_others_can_read_is_not_used(made: Path) -> None:
    file = made / "gmdb.token"
    file.write_text(TOKEN)
    os.chmod(file, 0o644)
    assert "other users can read" in refused(made, "--port", "0")


def test_a_certificate_that_cannot_be_used_is_told_of(made: Path, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    cert, key, other = (
        str(file) for file in (certificates.cert, certificates.key, certificates.ca.with_suffix(".key"))
    )
    assert "belong together" in refused(made, "--tls-cert", cert)
    assert "belong together" in refused(made, "--tls-key", key)
    for pair in ((cert, other), (key, cert), (cert, str(tmp_path / "none"))):
        assert "are not a certificate and its key" in refused(made, "--tls-cert", pair[0], "--tls-key", pair[1])


def test_a_port_that_is_taken_is_told_of(made: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = str(listener.getsockname()[1])
        assert f"cannot listen at 127.0.0.1, port {taken}: " in refused(made, "--port", taken)
        assert f"port {taken}: " in refused(made, "--port", "0", "--flight-port", taken)
    assert "70000 is not a port" in refused(made, "--port", "70000")
    assert "is not an address to listen at" in refused(made, "--host", "no-such-host.invalid")


def test_what_is_no_database_or_is_open_elsewhere_is_told_of(made: Path, tmp_path: Path) -> None:
    assert "does not exist" in refused(tmp_path / "none.gmdb")
    assert not (tmp_path / "none.gmdb").exists()
    with gmdb.connect(made):
        assert "open" in refused(made, "--port", "0")


@pytest.mark.parametrize("host", ["localhost", "::1"])
def test_loopback_has_several_names(made: Path, host: str) -> None:
    if host == "::1" and not Path("/proc/net/if_inet6").exists():
        pytest.skip("this machine has no IPv6")
    serving = Serving(made, "--host", host, "--token", TOKEN)
    try:
        with gmdb.connect(serving.url, token=TOKEN) as db:
            assert db.execute("select 1").fetchall() == [(1,)]
        assert serving.end() == (0, "", "")
    finally:
        serving.kill()
