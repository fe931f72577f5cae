"""Pins: instants of a database that stay readable while it changes, as files in its folder ``snapshots``.

``NAME.pin`` says what the instant is: which checkpoint, which commits, which tables there were, how far the devices
reached.  ``NAME.locks`` has the locks and bulk loads of transactions that had not committed.  Image files hold pages
as they were before they were overwritten.  A pin lasts for its lease, counted from when its file was last
touched; its readers touch it.

Invariants
 1. A pin's file comes last and goes first: while it is there, all that it needs is.
 2. Pins are named by their checkpoint and a random word, so that no name is used twice.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from gmdb.errors import Corruption, InterfaceError, NotADatabase, SnapshotExpired, StorageError
from gmdb.format.images import IMAGE_BATCH, IMAGE_ENTRY, read_batch_head, read_entries
from gmdb.format.page import PAGE_SIZES
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_imports import numpy as np
from gmdb.storage import disk
from gmdb.storage.directory import DirectoryLock, read_control, require_database
from gmdb.storage.disk import open_plain, read_plain
from gmdb.storage.documents import SECONDS_MAX, Holder, is_number, make, parse

FOLDER = "snapshots"
LEASE = 600.0  # seconds that a pin lasts behind the last read by it
LEASE_MIN = 1.0
NOTES_LAST = 24 * 3600.0  # seconds for which it is known why a pin was given up
_SUFFIX, _GIVEN_UP = ".pin", ".fallen"


@dataclass(frozen=True, repr=False)
class Pin:
    """One instant of a database.  ``devices``: the high-water mark of each; ``tables``: definitions in plain terms."""

    name: str
    database_id: str
    ckpt_id: int
    scn: int
    created: float
    lease: float
    holder: Holder
    devices: dict[int, int]
    tables: list[Any] = field(default_factory=list)
    is_kept: bool = True  # False: it holds only until the database is opened for writing
    log_from: int = 0  # LSN from which on the log has all that was committed after it
    shares_images: bool = True  # with older pins, in whose files they may be; readers that do not know that refuse it

    def __repr__(self) -> str:
        taken = datetime.fromtimestamp(self.created, UTC).isoformat(" ", "seconds")
        return f"<Pin {self.name}: commit {self.scn}, of {taken}, {len(self.tables)} tables, for {self.holder}>"

    def to_json(self) -> str:
        fields = {**self.__dict__, "holder": self.holder.to_plain(), "devices": list(self.devices.items())}
        return json.dumps(fields, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str | bytes) -> Pin:
        plain = parse(text)
        if not isinstance(plain, dict):
            raise ValueError("it is not a pin")
        holder, devices = Holder.from_plain(plain.get("holder")), _devices(plain.get("devices"))
        return make(cls, plain, holder=holder, devices=devices)


def _devices(plain: Any) -> dict[int, int]:
    """The high-water marks of devices."""
    is_list = isinstance(plain, list)
    if not is_list or not all(isinstance(pair, list) and len(pair) == 2 and is_number(pair[0]) for pair in plain):
        raise ValueError(f"devices is {str(plain)[:40]!r}")
    return dict(plain)


def new_name(ckpt_id: int) -> str:
    return f"{ckpt_id:010d}-{os.urandom(4).hex()}"


def require_lease(lease: float | None) -> float:
    if lease is None:
        return LEASE
    if not lease >= LEASE_MIN:
        raise InterfaceError(f"a lease of {lease} seconds is too short; it must be {LEASE_MIN:g} or more")
    return min(float(lease), SECONDS_MAX)


def folder_of(directory: Path) -> Path:
    return directory / FOLDER


def pin_path(directory: Path, name: str) -> Path:
    return folder_of(directory) / f"{name}{_SUFFIX}"


def locks_path(directory: Path, name: str) -> Path:
    return folder_of(directory) / f"{name}.locks"


def skipped_path(directory: Path, name: str) -> Path:
    """Where tasks note damaged pages that they were told to skip."""
    return folder_of(directory) / f"{name}.skipped"


def write_pin(directory: Path, pin: Pin, locks: bytes) -> None:
    """Make a pin last.  ``locks`` is empty if no transaction was under way."""
    folder, path = folder_of(directory), pin_path(directory, pin.name)
    unfinished = path.with_suffix(".new")
    _write(locks_path(directory, pin.name), locks) if locks else None
    _write(unfinished, pin.to_json().encode())
    disk.current.replace(unfinished, path)
    disk.current.sync_directory(folder)


def make_folder(directory: Path) -> None:
    folder = folder_of(directory)
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise disk.storage_error(folder, error) from error
    disk.current.sync_directory(directory)


def _write(path: Path, data: bytes) -> None:
    with disk.current.open(path, create=True) as file:
        file.write(data, 0)
        file.sync()


def remove_pin(directory: Path, name: str) -> None:
    """Remove a pin.  Its images are left to the owner, which knows which other pins need them."""
    for path in (pin_path(directory, name), locks_path(directory, name), skipped_path(directory, name)):
        if path.exists():
            disk.current.remove(path)


def read_pin(directory: Path, name: str) -> Pin:
    """A pin by its name; SnapshotExpired if it is gone."""
    path = pin_path(directory, name)
    try:
        pin = Pin.from_json(read_plain(path))
        if pin.name != name:  # it would lead to other files
            raise ValueError(f"it is of {pin.name[:40]!r}")
        return pin
    except FileNotFoundError:
        require_seen(directory)
        why = _why_given_up(directory, name) or "it was not read by for too long, or it was dropped"
        raise SnapshotExpired(f"{directory} has no snapshot {name} any more: {why}; load again") from None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Corruption(f"{path} is damaged: {error}; drop it: gmdb snapshots drop") from error


def note_given_up(directory: Path, name: str, why: str) -> None:
    """Note, for some time, why a pin was given up.  If that fails, its readers get a less precise message."""
    with suppress(OSError):
        for path in folder_of(directory).glob(f"*{_GIVEN_UP}"):
            if path.stat().st_mtime + NOTES_LAST < time.time():
                path.unlink()
        (folder_of(directory) / f"{name}{_GIVEN_UP}").write_text(why)


def _why_given_up(directory: Path, name: str) -> str:
    try:
        return "it was given up, for " + (folder_of(directory) / f"{name}{_GIVEN_UP}").read_text()
    except OSError:
        return ""


def require_seen(directory: Path, database_id: str | None = None) -> None:
    """Raise NotADatabase if this machine sees no database, or another one, at the path: the pin may be elsewhere."""
    where = f"on {socket.gethostname()}, where this process runs"
    advice = "every worker must see the database's directory under the path that the driver has for it: mount it there"
    try:
        require_database(directory)
    except NotADatabase as error:
        raise NotADatabase(f"{error}, {where}; {advice}") from None
    if database_id is not None and read_control(directory)["database_id"] != database_id:
        raise NotADatabase(f"{directory} is another database {where}; {advice}")


def read_pins(directory: Path) -> list[Pin]:
    """All pins that can be read, the oldest first."""
    pins = []
    for path in sorted(folder_of(directory).glob(f"*{_SUFFIX}")):
        try:
            pins.append(read_pin(directory, path.name.removesuffix(_SUFFIX)))
        except (SnapshotExpired, StorageError):
            continue
    return pins


def renew(directory: Path, name: str) -> None:
    """Start a pin's lease over; SnapshotExpired if it is gone.  Does nothing without the right to write."""
    try:
        os.utime(pin_path(directory, name))
    except FileNotFoundError:
        read_pin(directory, name)
    except OSError:
        pass


def expires_at(directory: Path, pin: Pin) -> float:
    """When its lease runs out; the past if the pin is gone."""
    try:
        return pin_path(directory, pin.name).stat().st_mtime + pin.lease
    except OSError:
        return 0.0


def pin_closed(directory: Path, lease: float, holder: Holder, tables: list[Any], devices: dict[int, int]) -> Pin:
    """Pin a database that was closed properly and is not open; the caller holds its lock alone."""
    control = read_control(directory)
    pin = Pin(
        new_name(control["ckpt_id"]),
        control["database_id"],
        control["ckpt_id"],
        control["scn"],
        time.time(),
        lease,
        holder,
        devices,
        tables,
        log_from=control["redo_lsn"],
    )
    make_folder(directory)
    write_pin(directory, pin, b"")
    return pin


def drop_closed(directory: Path, name: str) -> None:
    """Drop a pin of a database that is not open."""
    lock = DirectoryLock(directory, exclusive=True)
    try:
        read_pin(directory, name)
        remove_pin(directory, name)  # the next process that opens the database removes its images
    finally:
        lock.release()


# ---- Image files of pins: what they are called, and finding in them the pages of an instant.
#
# A file is named by the checkpoint of the pin that was the newest when it was begun, and a number.  Pins share images,
# which may move from file to file while readers use them.
#
# Invariants
#  1. Of several images of a page, the newest that is not newer than the pin counts.
#  2. A file that was found once stays open: it can be read even if the pin is dropped meanwhile.

SUFFIX = ".images"


class Image(NamedTuple):
    """Where a page's image is."""

    ckpt_id: int
    file: int
    offset: int
    size: int


def image_path(directory: Path, ckpt_id: int, number: int) -> Path:
    return folder_of(directory) / f"{ckpt_id:010d}-{number:04d}{SUFFIX}"


def image_files(directory: Path) -> list[tuple[int, int, Path]]:
    """Checkpoint, number and path of each file, in order."""
    files = []
    for path in folder_of(directory).glob(f"*{SUFFIX}"):
        ckpt_id, _, number = path.name.removesuffix(SUFFIX).partition("-")
        if ckpt_id.isdecimal() and number.isdecimal():
            files.append((int(ckpt_id), int(number), path))
    return sorted(files)


class KeptPage(NamedTuple):
    """A version of a page in an image file."""

    ckpt_id: int
    path: Path
    offset: int
    size: int


def read_images(path: Path) -> Iterator[tuple[int, KeptPage]]:
    """All images of a file, with their page ids."""
    file = _File(path)
    try:
        for page_id, image in file.new_images():
            if image.size in PAGE_SIZES:
                yield page_id, KeptPage(image.ckpt_id, path, image.offset, image.size)
    finally:
        file.close()


class _File:
    """An image file, read as far as its batches are whole."""

    def __init__(self, path: Path) -> None:
        self.number = open_plain(path)
        self._read = 0

    def new_images(self) -> list[tuple[int, Image]]:
        """The images of batches that were added since the last time, with their page ids."""
        images: list[tuple[int, Image]] = []
        end = os.fstat(self.number).st_size
        while head := read_batch_head(os.pread(self.number, IMAGE_BATCH.size, self._read)):
            size = IMAGE_ENTRY.size * head["page_count"]
            at = self._read + IMAGE_BATCH.size + size
            entries = read_entries(os.pread(self.number, size, at - size), head) if at <= end else None
            if entries is None or head["size"] != IMAGE_BATCH.size + size + int(entries[:, 2].sum(dtype=np.int64)):
                break
            for page_id, ckpt_id, length in entries.tolist():
                images.append((page_id, Image(ckpt_id, self.number, at, length)))
                at += length
            self._read += head["size"]
        return images

    def close(self) -> None:
        os.close(self.number)


class ImageIndex:
    """The images that a pin's reader may need, by page id."""

    def __init__(self, directory: Path, pin: Pin) -> None:
        self._directory = directory
        self._pin = pin
        self._files: dict[Path, _File] = {}
        self.newest: dict[int, Image] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look for images that were added."""
        gone: set[Path] = set()
        while added := [path for _, _, path in image_files(self._directory) if path not in {*self._files, *gone}]:
            for path in added:
                try:
                    self._files[path] = _File(path)
                except FileNotFoundError:
                    gone.add(path)  # what is needed of it is in another one by now
        for file in self._files.values():
            for page_id, image in file.new_images():
                if image.ckpt_id <= self._pin.ckpt_id:
                    known = self.newest.get(page_id)
                    if known is None or known.ckpt_id < image.ckpt_id:
                        self.newest[page_id] = image

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
