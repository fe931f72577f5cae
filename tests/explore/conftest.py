"""A real browser for tests: Debian's chromium, without a window.

Whatever a test does in its tab, it fails if the browser complains: an error on the console, an error that a script did
not catch, or a request to anywhere but 127.0.0.1.

Not here: what serves the pages.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect, sync_playwright

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


@pytest.fixture
def complaints() -> list[str]:
    """What the browser complained about so far; a test that provokes a complaint takes it out."""
    return []


@pytest.fixture
def tab(chromium: Browser, complaints: list[str]) -> Iterator[Page]:
    """An empty tab of a browser that has seen nothing yet."""

    def look_at(request: Request) -> None:
        where = urlsplit(request.url)
        if where.scheme not in WITHIN_THE_BROWSER and where.hostname != "127.0.0.1":
            complaints.append(f"request to another host: {request.url}")

    def listen(said: ConsoleMessage) -> None:
        if said.type == "error":
            complaints.append(f"console: {said.text} ({said.location['url']})")

    context = chromium.new_context(viewport={"width": WIDTH, "height": HEIGHT})
    context.set_default_timeout(PATIENCE_MS)
    context.on("request", look_at)
    context.on("weberror", lambda error: complaints.append(f"error of a script: {error.error}"))
    context.on("console", listen)
    yield context.new_page()
    context.close()
    assert complaints == []


@pytest.fixture
def picture(tab: Page, tmp_path: Path) -> Callable[[str], Path]:
    """Take a picture of what the tab shows: ``picture("map")`` is the path of map.png."""

    def take(name: str) -> Path:
        made = tmp_path / f"{name}.png"
        tab.screenshot(path=made)
        return made

    return take
