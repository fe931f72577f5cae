"""Documents: small JSON files beside the pages.  Any process may have written them, so nothing in them is trusted.

A document becomes a dataclass whose fields have their declared types, and no value that arithmetic, paths or Arrow
cannot take.  Everything else is a ValueError; the caller, which reads the file, adds its name.
Not here: reading and writing the files.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from gmdb.process.late_dataclasses import asdict, dataclass, fields

NUMBER_MAX = (1 << 63) - 1
SECONDS_MAX = 1e11  # as times since 1970, some three thousand years

T = TypeVar("T")


def parse(raw: str | bytes) -> Any:
    """A document's content; ValueError if it is not JSON, or nested too deeply."""
    try:
        return json.loads(raw)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def is_number(value: Any) -> bool:
    """Whether it is a count: an int, not a bool, from 0 up to what 8 bytes hold."""
    return type(value) is int and 0 <= value <= NUMBER_MAX


def is_text(value: Any) -> bool:
    """Whether it is a text that UTF-8 can encode; JSON has others."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_seconds(value: Any) -> bool:
    return type(value) in (int, float) and 0 <= value <= SECONDS_MAX


_FITS: dict[str, Callable[[Any], bool]] = {
    "int": is_number,
    "float": _is_seconds,
    "str": is_text,
    "bool": lambda value: isinstance(value, bool),
    "list[Any]": lambda value: isinstance(value, list),
    "dict[str, int]": lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
    "dict[int, int]": lambda value: isinstance(value, dict) and all(map(is_number, value.values())),
}


def make(kind: type[T], plain: Any, **converted: Any) -> T:
    """A dataclass out of a document's mapping; ``converted`` are fields that the caller has converted."""
    if not isinstance(plain, dict):
        raise ValueError(f"it says {str(plain)[:40]!r} instead of what {kind.__name__} is")
    for field in fields(kind):  # type: ignore[arg-type]
        fits = _FITS.get(str(field.type))
        value = converted.get(field.name, plain.get(field.name))
        if fits is not None and (field.name in plain or field.name in converted) and not fits(value):
            raise ValueError(f"{field.name} is {str(value)[:40]!r}")
    try:
        return kind(**{**plain, **converted})
    except TypeError as error:
        raise ValueError(str(error)) from None


# ---- For whom something is kept: a process, as other processes can find it again.
#
# What a Spark job leaves in a database's directory is named after its driver, a Java process, since the Python
# processes that Spark plans and commits with come and go.  Process numbers are used again; starting times are not.
#
# Invariant: a process that has ended is never taken for alive, also if it had ended when it was asked for its start:
# one that was killed is a zombie until its parent has noticed, and a planning process may outlive its driver for a
# moment.

_STATE_FIELD, _PARENT_FIELD, _START_FIELD = 0, 1, 19  # of /proc/PID/stat, behind the command's name
_ENDED = ("Z", "X", "x")  # states of processes that are there in name only


@dataclass(frozen=True)
class Holder:
    host: str
    boot_id: str
    pid_namespace: str
    pid: int
    started: int  # 0: it had ended already

    @classmethod
    def this_process(cls) -> Holder:
        return cls.of(os.getpid())

    @classmethod
    def driver(cls) -> Holder:
        """The Java process that this one works for; this one itself if there is none."""
        pid = os.getpid()
        while pid > 0:  # in a container the driver may be process 1
            if _is_java(pid):
                return cls.of(pid)
            pid = int((_fields(pid) or ["", "0"])[_PARENT_FIELD])
        return cls.this_process()

    @classmethod
    def nobody(cls) -> Holder:
        """For what outlives every process: only a lease ends it."""
        return cls(socket.gethostname(), "", "", 0, 0)

    @classmethod
    def of(cls, pid: int) -> Holder:
        """A process of this machine by its number."""
        return cls(socket.gethostname(), *_machine(), pid, _started(pid))

    @classmethod
    def from_plain(cls, plain: Any) -> Holder:
        """The holder that ``to_plain`` wrote; ValueError if it is something else."""
        return make(cls, plain)

    def to_plain(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def is_here(self) -> bool:
        """Whether this process could see it, if it lived."""
        return bool(self.boot_id) and (self.boot_id, self.pid_namespace) == _machine()

    @property
    def is_alive(self) -> bool:
        """Whether it is known to run; of a process of another machine nothing is known."""
        return self.is_here and self.started != 0 and _started(self.pid) == self.started

    @property
    def is_gone(self) -> bool:
        """Whether it is known to have ended; nothing is known of one that the system hides, being another user's."""
        if not self.is_here or self.is_alive:
            return False
        return self.started == 0 or not _is_hidden(self.pid)

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}"


def _machine() -> tuple[str, str]:
    """What identifies a machine and container: its boot, and its namespace of process numbers."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot_id, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def _fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the command's name; none if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def _is_java(pid: int) -> bool:
    try:
        named = Path(f"/proc/{pid}/comm").read_text().strip() == "java"
        return named or Path(os.readlink(f"/proc/{pid}/exe")).name == "java"
    except OSError:
        return False


def _started(pid: int) -> int:
    """When a process started, in ticks since the system did; 0 if it is not there, or has ended and is a zombie."""
    fields = _fields(pid)
    return int(fields[_START_FIELD]) if fields and fields[_STATE_FIELD] not in _ENDED else 0


def _is_hidden(pid: int) -> bool:
    """Whether a process of that number exists that /proc does not show: mounted with hidepid, it hides others'."""
    if _fields(pid):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return False  # this user's own are never hidden: it is another that began just now
