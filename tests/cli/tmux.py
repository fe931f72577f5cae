"""A terminal for tests: tmux runs a command in it, keys are typed, and what is on the screen is read."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

PATIENCE = 300.0  # what comes at all comes sooner, though kernels may have to be compiled and the machine be busy
WIDTH, HEIGHT = 100, 40
needs_tmux = pytest.mark.skipif(
    shutil.which("tmux") is None and not os.environ.get("CI"), reason="there is no tmux; scripts/programs --install"
)


class Terminal:
    def __init__(self, socket: Path, command: list[str], environment: dict[str, str]) -> None:
        self._tmux = ["tmux", "-f", os.devnull, "-S", str(socket)]
        given = [f"{name}={value}" for name, value in environment.items()]
        line = shlex.join(["env", *given, *command])
        self._run("new-session", "-d", "-x", str(WIDTH), "-y", str(HEIGHT), line)
        self._run("set-option", "-g", "remain-on-exit", "on")

    def _run(self, *arguments: str) -> str:
        return subprocess.run([*self._tmux, *arguments], check=True, capture_output=True, text=True).stdout

    def type(self, text: str) -> None:
        """Type a text, and Enter."""
        self._run("send-keys", "-l", "--", text[:-1] + "\\;" if text.endswith(";") else text)
        self.press("Enter")

    def keys(self, text: str) -> None:
        """Type a text without Enter."""
        self._run("send-keys", "-l", "--", text)

    def press(self, key: str) -> None:
        self._run("send-keys", key)

    def lines(self) -> list[str]:
        """What is on the screen, without the status line at the bottom."""
        found = self._run("capture-pane", "-p").split("\n")
        return [line.rstrip() for line in found[: HEIGHT - 1]]

    def screen(self) -> str:
        return "\n".join(self.lines()).rstrip()

    def status(self) -> str:
        return self._run("capture-pane", "-p").rstrip("\n").split("\n")[-1]

    def wait_for(self, text: str, patience: float = PATIENCE) -> None:
        """Wait until the screen, or the status line, has a text."""
        deadline = time.monotonic() + patience
        while text not in self._run("capture-pane", "-p"):
            assert time.monotonic() < deadline, f"{text!r} does not appear:\n{self.screen()}\n{self.status()}"
            time.sleep(0.05)

    def wait_for_prompt(self) -> None:
        """Wait until what was typed is done with: the last line is a prompt with nothing behind it."""
        deadline = time.monotonic() + PATIENCE
        while not self.screen().endswith("SQL>"):
            assert time.monotonic() < deadline, f"there is no prompt:\n{self.screen()}"
            time.sleep(0.05)

    def wait_for_end(self) -> None:
        """Wait until the command has ended and let go of the terminal."""
        deadline = time.monotonic() + PATIENCE
        while self._run("display-message", "-p", "#{pane_dead}") != "1\n":
            assert time.monotonic() < deadline, f"it does not end:\n{self.screen()}"
            time.sleep(0.05)

    def ask(self, text: str) -> None:
        """Type a statement and wait for what comes of it."""
        before = len(self.screen().split("\n"))
        self.type(text)
        deadline = time.monotonic() + PATIENCE
        while len(self.screen().split("\n")) <= before or not self.screen().endswith("SQL>"):
            assert time.monotonic() < deadline, f"there is no prompt:\n{self.screen()}"
            time.sleep(0.05)

    def end(self) -> None:
        subprocess.run([*self._tmux, "kill-server"], check=False, capture_output=True)


@contextmanager
def shell(folder: Path, name: str, *arguments: str) -> Iterator[Terminal]:
    """``gmdb sql`` with some arguments, in a terminal of its own."""
    environment = {"XDG_STATE_HOME": str(folder / "state"), "TERM": "screen-256color", "LC_ALL": "C.UTF-8"}
    environment["PYTHONPATH"] = os.environ.get("PYTHONPATH", "")
    terminal = Terminal(folder / name, [sys.executable, "-m", "gmdb.cli", "sql", *arguments], environment)
    try:
        terminal.wait_for("SQL>")
        yield terminal
    finally:
        terminal.end()
