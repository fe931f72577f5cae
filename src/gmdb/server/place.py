"""Where an owner is to be reached: a private directory for its sockets, and a file in the database that names it.

Invariants
 1. Only the owner's user can enter the directory or read the file.
 2. The path of a socket is short enough for the system, however long the database's own path is.
 3. The file is there only while its owner holds the database's lock, or because an owner died; then nobody answers
    at its socket, and the next owner removes both.
 4. Whoever looks for an owner trusts only a file and a directory that are both of one user, its own unless it is root,
    and that nobody else can write to.
 5. A copy of a database's directory leads nobody to the owner of the original: the file names its directory's inode.
"""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import stat
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from gmdb.trust import flaw_of, flaw_on_way

ENDPOINT_NAME = "gmdb.endpoint"
DOOR_NAME, FLIGHT_NAME = "door", "flight"
PREFIX = "gmdb-"
SOCKET_PATH_MAX = 107
_FILE_MAX = 4096
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
        writable = short and _PLAIN.fullmatch(base) and os.access(base, os.W_OK | os.X_OK)
        if writable and flaw_on_way(base) is None:  # su, for one, leaves XDG_RUNTIME_DIR as another user had it
            return base
    raise OSError("there is no directory for temporary files with a short, plain path where others cannot replace ours")


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
        raw, user = _read(directory / ENDPOINT_NAME)
        fields = json.loads(raw)
        place = Place(int(fields["pid"]), str(fields["folder"]), str(fields["token"]))
        return place if fields["inode"] == directory.stat().st_ino and _is_private(place.folder, user) else None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def _read(path: Path) -> tuple[bytes, int]:
    """What a file says that only its user could write, and whose it is."""
    with os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
        found = os.fstat(file.fileno())
        if not stat.S_ISREG(found.st_mode) or found.st_mode & 0o022 or found.st_size > _FILE_MAX:
            raise ValueError(f"{path} is no file of an owner")
        if found.st_uid != os.getuid() and os.getuid() != 0:
            raise ValueError(f"{path} is another user's")
        return file.read(), found.st_uid


def _is_private(folder: str, user: int) -> bool:
    """Whether nobody but the user could have put a socket there."""
    found = os.lstat(folder)
    private = stat.S_ISDIR(found.st_mode) and found.st_uid == user and not found.st_mode & 0o077
    return private and flaw_of(folder, user) is None


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
