"""The driver's Java process, which a load lives and dies with."""

from __future__ import annotations

import os
from pathlib import Path

from gmdb.storage.loads import Process, process_fields

_PARENT_FIELD = 1  # of /proc/PID/stat, behind the command's name


def driver_process() -> Process | None:
    """The Java process that started this one, which Spark plans a write in; None if the system does not tell."""
    pid = os.getpid()
    while pid > 1:
        if _is_java(pid):
            return Process.of(pid)
        fields = process_fields(pid)
        if fields is None:
            return None
        pid = int(fields[_PARENT_FIELD])
    return None


def _is_java(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "java" or _program_of(pid) == "java"
    except OSError:
        return False


def _program_of(pid: int) -> str:
    return Path(os.readlink(f"/proc/{pid}/exe")).name
