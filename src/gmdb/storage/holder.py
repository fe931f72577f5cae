"""Who something is kept for: a process, known by its host, its number and when it started.

What a Spark job leaves in a database's directory is named after its driver, a Java process, since the Python
processes that Spark plans and commits with come and go.
"""

from __future__ import annotations

import os
import socket
from dataclasses import asdict, dataclass
from typing import Any

_STARTED, _PARENT = 19, 1  # fields of /proc/<pid>/stat behind the command


@dataclass(frozen=True)
class Holder:
    host: str
    pid: int
    started: int

    @classmethod
    def this_process(cls) -> Holder:
        return cls._of(os.getpid())

    @classmethod
    def driver(cls) -> Holder:
        """The Java process that this one works for; this one itself if there is none."""
        pid = os.getpid()
        while pid > 1:
            if _command(pid).startswith("java"):
                return cls._of(pid)
            pid = int((_fields(pid) or ["", "0"])[_PARENT])
        return cls.this_process()

    @classmethod
    def _of(cls, pid: int) -> Holder:
        return cls(socket.gethostname(), pid, _started(pid))

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> Holder:
        return cls(str(plain["host"]), int(plain["pid"]), int(plain["started"]))

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended; of a process on another host nothing is known."""
        return self.host == socket.gethostname() and _started(self.pid) != self.started

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _fields(pid: int) -> list[str]:
    """The fields of a process's status behind its command; none if there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].decode().split()
    except OSError:
        return []


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm") as file:
            return file.read()
    except OSError:
        return ""


def _started(pid: int) -> int:
    """When a process started, in ticks since the system did; 0 if it is not there, or has ended and is a zombie."""
    fields = _fields(pid)
    return int(fields[_STARTED]) if fields and fields[0] != "Z" else 0
