"""Where an owner is to be reached: a private directory for its sockets, and a file in the database that names it.

Invariants
 1. Only the owner's user can enter the directory or read the file.
 2. The path of a socket is short enough for the system, however long the database's own path is.
 3. The file is there only while its owner holds the database's lock, or because an owner died; then nobody answers
    at its socket, and the next owner removes both.
 4. A copy of a database's directory leads nobody to the owner of the original: the file names its directory's inode.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

ENDPOINT_NAME = "gmdb.endpoint"
DOOR_NAME, FLIGHT_NAME = "door", "flight"
PREFIX = "gmdb-"
SOCKET_PATH_MAX = 107
_PLAIN = re.compile(r"[\w./-]+", re.ASCII)  # a Flight location is a URI, and takes no other characters


@dataclass(frozen=True)
class Place:
    """An owner: its process, the directory of its sockets, and the word that every call must carry."""

    pid: int
    folder: str
    token: str

    @property
    def door(self) -> str:
        return os.path.join(self.folder, DOOR_NAME)

    @property
    def flight(self) -> str:
        return os.path.join(self.folder, FLIGHT_NAME)


def make_place() -> Place:
    """A new place for this process."""
    return Place(os.getpid(), tempfile.mkdtemp(prefix=PREFIX, dir=_base()), secrets.token_hex(16))


def _base() -> str:
    """The user's runtime directory if there is one, else the first directory for temporary files that will do."""
    longest = len(f"/{PREFIX}12345678/{FLIGHT_NAME}")
    for base in (os.environ.get("XDG_RUNTIME_DIR", ""), tempfile.gettempdir(), "/tmp", "/var/tmp"):
        short = len(os.fsencode(base)) + longest <= SOCKET_PATH_MAX
        if short and _PLAIN.fullmatch(base) and os.access(base, os.W_OK | os.X_OK):
            return base
    raise OSError("there is no directory for temporary files with a short, plain path")


def publish(directory: Path, place: Place) -> None:
    """Let others find the place: all of the file is there, or none of it."""
    made = directory / f"{ENDPOINT_NAME}.new"
    made.unlink(missing_ok=True)
    file = os.open(made, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.write(file, json.dumps({**asdict(place), "inode": directory.stat().st_ino}).encode())
    finally:
        os.close(file)
    os.replace(made, directory / ENDPOINT_NAME)


def find_place(directory: Path) -> Place | None:
    """What the database's file says; nothing if there is none, none that can be read, or that of another directory."""
    try:
        fields = json.loads((directory / ENDPOINT_NAME).read_bytes())
        if fields["inode"] != directory.stat().st_ino:
            return None
        return Place(int(fields["pid"]), str(fields["folder"]), str(fields["token"]))
    except (OSError, ValueError, KeyError, TypeError):
        return None


def withdraw(directory: Path, place: Place) -> None:
    """Nobody is to be found here any more."""
    (directory / ENDPOINT_NAME).unlink(missing_ok=True)
    shutil.rmtree(place.folder, ignore_errors=True)


def clear_dead(directory: Path) -> None:
    """Remove what an owner that died has left.  The caller holds the database's lock."""
    place = find_place(directory)
    (directory / ENDPOINT_NAME).unlink(missing_ok=True)
    if place is None:
        return
    folder = Path(place.folder)
    ours = folder.name.startswith(PREFIX) and folder.is_dir() and not folder.is_symlink()
    if ours and folder.stat().st_uid == os.getuid() and {p.name for p in folder.iterdir()} <= {DOOR_NAME, FLIGHT_NAME}:
        shutil.rmtree(folder, ignore_errors=True)
