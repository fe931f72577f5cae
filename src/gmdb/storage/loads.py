"""Folders of bulk loads: ``loads/<load id>`` in the database's directory, with the staging files of a load.

A note in the folder says which process the load belongs to: the driver, which plans it and has it taken in.  When
that is gone, nobody will: the folder is litter, and whoever opens the database for writing removes it.

Invariants
 1. No folder is removed whose process lives.  A process of another machine, or of one that was started again since,
    cannot be asked: its folder is litter when nothing in it has changed for a day.
 2. Nothing in a folder is part of the database: backups, checks and recovery know nothing of them.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from gmdb.errors import InterfaceError
from gmdb.storage.disk import storage_error

LOADS_NAME = "loads"
NOTE_NAME = "driver.json"
PATIENCE = 24 * 3600.0  # seconds without a change after which a folder of another machine is litter
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")
_START_FIELD = 19  # of /proc/PID/stat, behind the command's name: when the process was started


@dataclass(frozen=True)
class Process:
    """A process, as whoever runs beside it can find it again: numbers are used again, starting times are not."""

    boot_id: str
    pid_namespace: str
    pid: int
    start: str

    @classmethod
    def of(cls, pid: int) -> Process | None:
        """The process of that number on this machine; None if there is none, or the system does not tell."""
        start = _start_of(pid)
        return None if start is None else cls(*_machine(), pid, start)

    @property
    def is_here(self) -> bool:
        """Whether this process could see it, if it lived."""
        return (self.boot_id, self.pid_namespace) == _machine() and bool(self.boot_id)

    @property
    def is_alive(self) -> bool:
        return _start_of(self.pid) == self.start


def _machine() -> tuple[str, str]:
    """What tells machines and containers apart: since when this one runs, and whose process numbers count."""
    try:
        boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return boot_id, os.readlink("/proc/self/ns/pid")
    except OSError:
        return "", ""


def _start_of(pid: int) -> str | None:
    fields = process_fields(pid)
    return None if fields is None or fields[0] == "Z" else fields[_START_FIELD]


def process_fields(pid: int) -> list[str] | None:
    """What /proc tells of a process behind its command's name: state, parent, …; None if there is no such process."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None


def load_path(directory: Path, load_id: str) -> Path:
    if not _NAME.fullmatch(load_id):
        raise InterfaceError(f"{load_id!r} is no name of a load")
    return directory / LOADS_NAME / load_id


def staged_path(directory: Path, load_id: str, name: str) -> Path:
    """Where a staging file is."""
    if not _NAME.fullmatch(name):
        raise InterfaceError(f"{name!r} is no name of a staging file")
    return load_path(directory, load_id) / name


def new_load(directory: Path, driver: Process | None) -> str:
    """Make a folder for a load that belongs to a process; answers the load's id."""
    load_id = f"{time.strftime('%Y%m%dT%H%M%S')}-{secrets.token_hex(6)}"
    folder = load_path(directory, load_id)
    try:
        folder.mkdir(parents=True)
        (folder / NOTE_NAME).write_text(json.dumps(None if driver is None else asdict(driver)))
    except OSError as error:
        raise storage_error(folder, error) from error
    return load_id


def remove_load(directory: Path, load_id: str) -> None:
    """Remove a load's folder and all that is in it; a second time does nothing."""
    folder = load_path(directory, load_id)
    shutil.rmtree(folder, ignore_errors=True)
    _remove_if_empty(folder.parent)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # there are others, or it is gone already
        folder.rmdir()


def remove_litter(directory: Path) -> list[str]:
    """Remove the folders of loads that nobody will finish; answers their names."""
    try:
        folders = sorted((directory / LOADS_NAME).iterdir())
    except OSError:
        return []
    removed = [folder.name for folder in folders if _is_litter(folder)]
    for name in removed:
        shutil.rmtree(directory / LOADS_NAME / name, ignore_errors=True)
    _remove_if_empty(directory / LOADS_NAME)
    return removed


def _is_litter(folder: Path) -> bool:
    driver = _driver_of(folder)
    if driver is not None and driver.is_here:
        return not driver.is_alive
    try:
        newest = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return False  # it changes just now
    return time.time() - newest > PATIENCE


def _driver_of(folder: Path) -> Process | None:
    try:
        return Process(**json.loads((folder / NOTE_NAME).read_text()))
    except (OSError, ValueError, TypeError):
        return None
