"""One life of the town's owner, seen from outside: what it was told, what it said, and how it ended."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

PATIENCE = 300.0  # seconds for what only takes long on a busy machine


class Life:
    """``acknowledged``: how many commits each writer was told of, kept over all lives."""

    def __init__(self, directory: Path, seed: int, acknowledged: dict[int, int], log: Path) -> None:
        self.acknowledged = acknowledged
        self.figures: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.failures: list[str] = []
        self.is_troubled = False  # something was done to it, after which its visitors may be turned away
        self.opened, self.failed, self.rested, self.ended = (threading.Event() for _ in range(4))
        self._log = log.open("a")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.soak.owner", str(directory), str(seed)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
        )
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            word, _, rest = line.rstrip("\n").partition(" ")
            if word == "ack":
                writer, steps = map(int, rest.split())
                self.acknowledged[writer] = steps
                self.figures["transactions"] += 1
            elif word == "did":
                what, _, count = rest.rpartition(" ")
                self.figures[what] += int(count)
            elif word == "wrong":
                self.wrong.append(rest)
            elif word == "failed":
                self.failures.append(rest)
                self.failed.set()
            elif word in ("open", "resting", "ended"):
                {"open": self.opened, "resting": self.rested, "ended": self.ended}[word].set()
            else:
                self.wrong.append(f"the owner said {line!r}")
        for event in (self.opened, self.failed, self.rested, self.ended):
            event.set()  # nobody needs to wait for the dead

    # ---- what is done to it

    def tell(self, *words: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(" ".join(map(str, words)) + "\n")
        self._process.stdin.flush()

    def await_opening(self) -> None:
        if not self.opened.wait(PATIENCE) or self._process.poll() is not None:
            self.wrong.append(f"it did not open: see {self._log.name}")

    def kill(self) -> None:
        self.is_troubled = True
        self._process.send_signal(signal.SIGKILL)
        self._bury()

    def cut_power(self, seed: int) -> None:
        self.is_troubled = True
        self.tell("power", seed)
        self._bury()

    def meet_fault(self, request: str, nth: int, error: int, files: str, seconds: float) -> bool:
        """Let the disk fail, and wait until that was noticed; answers whether it was in that time."""
        self.is_troubled = True
        self.tell("fault", request, nth, error, files)
        return self.failed.wait(seconds)

    def end(self) -> None:
        """Close the database as one should."""
        self.tell("end")
        if not self.ended.wait(PATIENCE):
            self.wrong.append("it does not close")
            self._process.kill()
        self._bury()

    def _bury(self) -> None:
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.wrong.append("it does not die")
            self._process.kill()
            self._process.wait()
        self._listener.join()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._log.close()


def moment() -> str:
    return time.strftime("%H:%M:%S")
