"""Folders of bulk loads: ``loads/<load id>`` in the database's directory, with the staging files of a load.

A note in the folder says which process the load belongs to: the driver, which plans it and has it taken in.  Once
that process is gone, the folder is litter: the process that has the database open for writing removes it, when it
opens the database and every now and then.

Invariants
 1. No folder is removed whose process lives.  A process of another machine, or of one that was started again since,
    cannot be checked: its folder is litter when nothing in it has changed for a day.
 2. Nothing in a folder is part of the database: backups, checks and recovery know nothing of them.
 3. A folder goes as a whole: it loses its name first, so that a task which is late finds none to write to.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from pathlib import Path

from gmdb.errors import InterfaceError
from gmdb.process.late_patterns import late_pattern
from gmdb.storage.disk import read_plain, storage_error
from gmdb.storage.documents import Holder, parse

LOADS_NAME = "loads"
_GONE = "gone-"  # what the names of folders begin with that are being removed
NOTE_NAME = "driver.json"
PATIENCE = 24 * 3600.0  # seconds without a change after which a folder of another machine is litter
_NAME = late_pattern(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}")


def load_path(directory: Path, load_id: str) -> Path:
    if not _NAME.fullmatch(load_id):
        raise InterfaceError(f"{load_id!r} is not a name of a load")
    return directory / LOADS_NAME / load_id


def staged_path(directory: Path, load_id: str, name: str) -> Path:
    """Where a staging file is."""
    if not _NAME.fullmatch(name):
        raise InterfaceError(f"{name!r} is not a name of a staging file")
    return load_path(directory, load_id) / name


def new_load(directory: Path, driver: Holder, kin: str = "") -> str:
    """Make a folder for a load that belongs to a process; returns the load's id.

    ``kin``: a prefix that the ids of loads that follow each other share.
    """
    load_id = f"{kin}{time.strftime('%Y%m%dT%H%M%S')}-{os.urandom(6).hex()}"
    folder = load_path(directory, load_id)
    try:
        _make_folder(folder)
        (folder / NOTE_NAME).write_text(json.dumps(driver.to_plain()))
    except OSError as error:
        raise storage_error(folder, error) from error
    return load_id


def _make_folder(folder: Path) -> None:
    while True:
        try:
            return folder.mkdir(parents=True)
        except FileNotFoundError:
            folder.parent.parent.stat()  # the database is there: the last load's end has removed what is between


def remove_load(directory: Path, load_id: str) -> None:
    """Remove a load's folder and all that is in it; a second time does nothing."""
    folder = load_path(directory, load_id)
    _remove(folder)
    _remove_if_empty(folder.parent)


def _remove(folder: Path) -> None:
    import shutil

    nameless = folder if folder.name.startswith(_GONE) else folder.with_name(f"{_GONE}{folder.name}")
    with suppress(OSError):  # it is gone already
        if nameless != folder:
            folder.rename(nameless)
        shutil.rmtree(nameless)


def remove_kin(directory: Path, driver: Holder, kin: str) -> None:
    """Remove all folders of a process's loads whose ids have the prefix."""
    for folder in (directory / LOADS_NAME).glob(f"{kin}*"):
        if _driver_of(folder) == driver:
            remove_load(directory, folder.name)


def _remove_if_empty(folder: Path) -> None:
    with suppress(OSError):  # there are others, or it is gone already
        folder.rmdir()


def remove_litter(directory: Path) -> list[str]:
    """Remove the folders of loads whose process is gone; returns their names."""
    try:
        folders = sorted((directory / LOADS_NAME).iterdir())
    except OSError:
        return []
    removed = [folder for folder in folders if _is_litter(folder)]
    for folder in removed:
        _remove(folder)
    _remove_if_empty(directory / LOADS_NAME)
    return [folder.name.removeprefix(_GONE) for folder in removed]


def _is_litter(folder: Path) -> bool:
    driver = _driver_of(folder)
    if folder.name.startswith(_GONE) or (driver is not None and driver.is_gone):
        return True
    if driver is not None and driver.is_alive:
        return False
    try:
        newest = max(path.stat().st_mtime for path in (folder, *folder.iterdir()))
    except OSError:
        return False  # it is being changed
    return time.time() - newest > PATIENCE


def _driver_of(folder: Path) -> Holder | None:
    try:
        return Holder.from_plain(parse(read_plain(folder / NOTE_NAME)))
    except (OSError, ValueError):
        return None
