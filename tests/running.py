"""A ``gmdb`` command that goes on until it is told to end, in a process of its own."""

from __future__ import annotations

import contextlib
import os
import re
import select
import signal
import subprocess
import sys

PATIENCE = 120.0  # kernels may have to be compiled


class Running:
    """The command at work.  ``line`` is what it says of itself, ``found`` what a pattern finds there."""

    def __init__(self, pattern: str, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "gmdb.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        assert self.process.stdout is not None
        if not select.select([self.process.stdout], [], [], PATIENCE)[0]:
            self.kill()
        self.line = self.process.stdout.readline()
        found = re.search(pattern, self.line)
        assert found is not None, (self.line, self.process.stderr.read() if self.process.stderr else "")
        self.found = found

    def end(self, by: int = signal.SIGTERM) -> tuple[int, str, str]:
        """Its exit status, and what else it wrote to its outputs."""
        os.kill(self.process.pid, by)
        out, noise = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, out, noise

    def kill(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        with contextlib.suppress(ValueError):
            self.process.communicate(timeout=PATIENCE)
