"""``gmdb serve`` in a process of its own, and certificates for it, made by openssl."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.running import PATIENCE, Running

TOKEN = "0123456789abcdef0123456789abcdef"


@dataclass(frozen=True)
class Certificates:
    """A CA, another CA that has signed nothing, and a certificate with its key."""

    ca: Path
    other_ca: Path
    cert: Path
    key: Path

    @property
    def options(self) -> list[str]:
        return ["--tls-cert", str(self.cert), "--tls-key", str(self.key)]


def make_certificates(folder: Path, names: str = "DNS:localhost,IP:127.0.0.1") -> Certificates:
    for ca in ("ca", "other"):
        _openssl(folder, f"req -x509 {_KEY} -keyout {ca}.key -out {ca}.pem -days 2 -subj /CN={ca}")
    _openssl(folder, f"req {_KEY} -keyout server.key -out server.csr -subj /CN=server")
    (folder / "names").write_text(f"subjectAltName={names}")
    _openssl(folder, f"x509 -req -in server.csr -CA ca.pem -CAkey ca.key {_SIGN} -out server.pem")
    return Certificates(*(folder / name for name in ("ca.pem", "other.pem", "server.pem", "server.key")))


_KEY = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes"
_SIGN = "-CAcreateserial -days 2 -extfile names"


def _openssl(folder: Path, arguments: str) -> None:
    subprocess.run(["openssl", *arguments.split()], cwd=folder, check=True, capture_output=True, timeout=60)


class Serving(Running):
    """The command at work.  ``url`` and ``line``: what it says of itself."""

    def __init__(self, database: Path, *options: str) -> None:
        super().__init__(r"gmdb(?:\+tls)?://\S+:(\d+)", "serve", str(database), "--port", "0", *options)
        self.url, self.port = self.found[0], int(self.found[1])


def refused(database: Path, *options: str) -> str:
    """What the command says when it does not begin to serve."""
    done = subprocess.run(
        [sys.executable, "-m", "gmdb.cli", "serve", str(database), *options],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 2, (done.returncode, done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1 or done.stderr.startswith("usage:")
    return done.stderr
