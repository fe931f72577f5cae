"""Other processes for tests: each runs what the test sends it, and answers with the result or the exception."""

from __future__ import annotations

import contextlib
import pickle
import select
import struct
import subprocess
import sys
from typing import Any

PATIENCE = 300.0  # what comes at all comes sooner, though kernels may have to be compiled and the machine be busy
SOON = 120.0  # as long as that, but far less than the lock timeouts that would end a wait as well

_PROGRAM = """
import os, pickle, struct, sys
answers = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)
names = {}
exec("import gmdb, time, threading\\nimport pyarrow as pa\\n" + sys.argv[1], names)
while True:
    size = sys.stdin.buffer.read(4)
    if len(size) < 4:
        break
    source, given = pickle.loads(sys.stdin.buffer.read(struct.unpack("<I", size)[0]))
    names.update(given)
    try:
        try:
            code = compile(source, "<test>", "eval")
        except SyntaxError:
            exec(source, names)
            answer = (True, None)
        else:
            answer = (True, eval(code, names))
        answer = pickle.dumps(answer)
    except BaseException as error:
        answer = pickle.dumps((False, error))
    answers.write(struct.pack("<I", len(answer)) + answer)
    answers.flush()
"""


class Peer:
    """A process: ``peer("db.tables()")`` runs there.  ``start`` and ``finish`` do it in two steps."""

    def __init__(self, beforehand: str = "") -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM, beforehand],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    @property
    def pid(self) -> int:
        return self.process.pid

    def start(self, source: str, **given: Any) -> None:
        message = pickle.dumps((source, given))
        assert self.process.stdin is not None
        self.process.stdin.write(struct.pack("<I", len(message)) + message)
        self.process.stdin.flush()

    def has_answered(self, seconds: float = 0.0) -> bool:
        assert self.process.stdout is not None
        waiting = select.poll()  # which takes descriptors of any number
        waiting.register(self.process.stdout, select.POLLIN | select.POLLHUP)
        return bool(waiting.poll(seconds * 1000))

    def finish(self) -> Any:
        assert self.process.stdout is not None
        assert self.has_answered(PATIENCE), "the other process does not answer"
        size = self.process.stdout.read(4)
        assert len(size) == 4, self.noise()
        fine, answer = pickle.loads(self.process.stdout.read(struct.unpack("<I", size)[0]))
        if not fine:
            raise answer
        return answer

    def __call__(self, source: str, **given: Any) -> Any:
        self.start(source, **given)
        return self.finish()

    def kill(self) -> None:
        self.process.kill()  # which looks whether another thread of the test has just waited for its end
        self.process.wait(PATIENCE)

    def noise(self) -> str:
        assert self.process.stderr is not None
        return self.process.stderr.read().decode()

    def leave(self) -> tuple[int, str]:
        """Let it end by itself; answers its exit status and what it printed."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE), self.noise()

    def end(self) -> None:
        if self.process.poll() is None:
            self.kill()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            if pipe is not None:
                with contextlib.suppress(BrokenPipeError):
                    pipe.close()
