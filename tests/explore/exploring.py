"""``gmdb explore`` in a process of its own, asked by http or looked at in a browser."""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from playwright.sync_api import Page

from tests.running import PATIENCE, Running


@dataclass(frozen=True)
class Answer:
    status: int
    headers: http.client.HTTPMessage
    body: str

    @property
    def document(self) -> Any:
        return json.loads(self.body)


class Exploring(Running):
    """The command at work.  ``url``: what it says that the browser is to open."""

    def __init__(self, database: Path, *options: str) -> None:
        address = r"(http://127\.0\.0\.1:(\d+)/)\?token=(\S+)"
        super().__init__(address, "explore", str(database), "--no-browser", "--port", "0", *options)
        self.url, self.base, self.token = self.found[0], self.found[1], self.found[3]
        self.port = int(self.found[2])

    @property
    def cookie(self) -> str:
        return f"gmdb-explorer-{self.port}={self.token}"

    def ask(self, path: str, method: str = "GET", headers: dict[str, str] | None = None) -> Answer:
        """One request, with nothing but the headers that are given."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        try:
            connection.putrequest(method, path, skip_host="Host" in (headers or {}), skip_accept_encoding=True)
            for name, value in (headers or {}).items():
                connection.putheader(name, value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read().decode())
        finally:
            connection.close()

    def get(self, path: str) -> Answer:
        """A request of a browser that has been let in."""
        return self.ask(path, headers={"Cookie": self.cookie})

    def listing(self, name: str, *arguments: Any, **options: Any) -> Answer:
        query = urlencode([("name", name), *(("arg", one) for one in arguments), *options.items()])
        return self.get(f"/api/listing?{query}")

    def show(self, tab: Page, view: str = "map") -> None:
        """Let a tab in, and show a view in it."""
        tab.goto(self.url)
        tab.goto(f"{self.base}#{view}")
        tab.locator(f"main > .view.{view.partition('/')[0]}").wait_for()


def refused(database: Path, *options: str) -> str:
    """What the command says when it does not begin."""
    command = [sys.executable, "-m", "gmdb.cli", "explore", str(database), "--no-browser", *options]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE, check=False)
    assert ended.returncode == 2, ended
    assert ended.stdout == ""
    assert "Traceback" not in ended.stderr
    return ended.stderr
