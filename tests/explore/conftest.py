"""A real browser for tests: Debian's chromium, without a window.

What serves the pages is the command itself, in a process of its own (exploring.py), one for each database of states.

Whatever a test does in its tab, it fails if the browser complains: an error on the console, an error that a script did
not catch, or a request to anywhere but 127.0.0.1.  A test that provokes refusals says so before it does: the console's
messages arrive in their own time, some after the test has seen on the page what it waited for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

import gmdb
from gmdb.format.address import parse_page_id
from tests.explore.exploring import Exploring
from tests.inspect.build import change_page
from tests.inspect.states import build

PATIENCE_MS = 60_000
WIDTH, HEIGHT = 1400, 900
ARGUMENTS = ["--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]  # there is no internet
WITHIN_THE_BROWSER = {"about", "blob", "data"}


@pytest.fixture(scope="package")
def chromium() -> Iterator[Browser]:
    """One browser for all tests here.

    It is gone before other tests of the same process run: while Playwright is started, an event loop counts as running
    in this thread, and nothing else can start one, nor should fork.
    """
    program = shutil.which("chromium")
    if program is None and not os.environ.get("CI"):
        pytest.skip("there is no chromium; scripts/programs --install")
    assert program is not None, "there is no chromium; scripts/programs --install"
    expect.set_options(timeout=PATIENCE_MS)
    with sync_playwright() as playwright:
        # Without its sandbox, which root cannot have: all that it loads is the project's own.
        browser = playwright.chromium.launch(executable_path=program, chromium_sandbox=False, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Complaints:
    """What the browser complained about, but for what the test has said that it would."""

    expected: str | None = None
    unexpected: list[str] = field(default_factory=list)

    def add(self, said: str) -> None:
        if self.expected is None or self.expected not in said:
            self.unexpected.append(said)


@pytest.fixture
def complaints() -> Complaints:
    return Complaints()


@pytest.fixture
def tab(chromium: Browser, complaints: Complaints) -> Iterator[Page]:
    """An empty tab of a browser that has seen nothing yet."""

    def look_at(request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme not in WITHIN_THE_BROWSER and where.hostname != "127.0.0.1":
            complaints.add(f"request to another host: {request.url}")

    def listen(said: ConsoleMessage) -> None:
        if said.type == "error":
            complaints.add(f"console: {said.text} ({said.location['url']})")

    context = chromium.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    context.set_default_timeout(PATIENCE_MS)
    context.on("request", look_at)
    context.on("weberror", lambda error: complaints.add(f"error of a script: {error.error}"))
    context.on("console", listen)
    yield context.new_page()
    context.close()
    assert complaints.unexpected == []


@pytest.fixture
def picture(tab: Page, tmp_path: Path) -> Callable[[str], Path]:
    """Take a picture of what the tab shows: ``picture("map")`` is the path of map.png."""

    def take(name: str) -> Path:
        made = tmp_path / f"{name}.png"
        tab.screenshot(path=made)
        return made

    return take


@pytest.fixture(scope="package")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The databases of tests/inspect/states.py, and one of them of which a page with rows is damaged."""
    folder = tmp_path_factory.mktemp("states")
    made = build(folder)
    made["damaged"] = Path(shutil.copytree(made["closed"], folder / "damaged"))
    change_page(made["damaged"], parse_page_id(page_of(made["closed"], "heap")), 200, b"\xff\xfe\xfd\xfc")
    return made


@pytest.fixture(scope="package")
def explorers(states: dict[str, Path]) -> Iterator[Callable[[str], Exploring]]:
    """An explorer of a database by its name; when all tests are over, none has had anything to complain about."""
    begun: dict[str, Exploring] = {}

    def explore(name: str) -> Exploring:
        if name not in begun:
            begun[name] = Exploring(states[name])
        return begun[name]

    yield explore
    for one in begun.values():
        assert one.end() == (0, "", "")


def page_of(path: Path, kind: str) -> str:
    """The first page of a kind that a database has, as cells name them."""
    with gmdb.inspect.open(path) as inspector:
        return next(one["page"] for one in inspector.cells(0, 1, 1 << 14).to_pylist() if one["kind"] == kind)
