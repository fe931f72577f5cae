"""Which directories no other user can change: code is loaded and tokens are sent there only.

Trusted are this process's user and root.  A directory is as safe as every step of the way to it: who may rename a
directory above it can put another one in its place.  In a directory with the sticky bit, as ``/tmp`` has it, others
can make entries but not touch ours, so it may be on the way.  What was found safe stays so, since nobody else can
change it; there is no race between check and use.  An access control list that lets others write shows in the
mode, as a right of the group.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

LINKS_MAX = 40
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def flaw_of(path: str | Path, user: int | None = None) -> str | None:
    """How others could change what is in a directory, in words for a message; None if they cannot.

    ``user`` is trusted as well.
    """
    flaw, status = _walk(path, user)
    if flaw is None and status.st_mode & _OTHERS_WRITE:
        return _writable(path, status)
    return flaw


def flaw_on_way(path: str | Path) -> str | None:
    """How others could put something else in the place of what this user makes in a directory; None if they cannot."""
    return _walk(path, None)[0]


def _walk(path: str | Path, user: int | None) -> tuple[str | None, os.stat_result]:
    """The first flaw of a directory and those above it, and of links between them; the status of the last one seen."""
    trusted = {0, os.geteuid(), user}
    pending = os.path.join(os.getcwd(), path).split("/")[::-1]
    here, status, links = "/", os.lstat("/"), 0
    while pending:
        name = pending.pop()
        step = os.path.dirname(here) if name == ".." else os.path.join(here, name) if name not in ("", ".") else here
        status = os.lstat(step)
        if status.st_uid not in trusted:
            return f"{step} belongs to user {status.st_uid}", status
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > LINKS_MAX:
                return f"{path} has too many links on its way", status
            target = os.readlink(step)
            pending += target.split("/")[::-1]
            here = "/" if target.startswith("/") else here
            continue
        if not stat.S_ISDIR(status.st_mode):
            return f"{step} is not a directory", status
        if status.st_mode & _OTHERS_WRITE and not status.st_mode & stat.S_ISVTX:
            return _writable(step, status), status
        here = step
    return None, status


def _writable(path: str | Path, status: os.stat_result) -> str:
    return f"{path} can be written by others (mode {stat.S_IMODE(status.st_mode):04o})"


def make_private(path: Path) -> None:
    """Make a directory, and what is missing above it, for this user alone, whatever the umask; it may be there."""
    try:
        path.mkdir(mode=0o700)
    except FileNotFoundError:
        make_private(path.parent)
        path.mkdir(mode=0o700, exist_ok=True)
    except FileExistsError:
        if not path.is_dir():
            raise


def is_untouched(directory: Path) -> bool:
    """Whether all that is in a directory was put there by a trusted user, and nobody else can change it.

    The way to it is safe.  Where others cannot enter it, modes within do not matter; they may come from a umask.
    """
    top = directory.lstat()
    return stat.S_ISDIR(top.st_mode) and _is_sound(top, True) and _all_sound(directory, bool(top.st_mode & 0o077))


def _is_sound(status: os.stat_result, is_open: bool) -> bool:
    is_plain = stat.S_ISDIR(status.st_mode) or (stat.S_ISREG(status.st_mode) and status.st_nlink <= 1)
    is_trusted = status.st_uid in (0, os.geteuid())
    return is_plain and is_trusted and not (is_open and status.st_mode & _OTHERS_WRITE)


def _all_sound(folder: str | Path, is_open: bool) -> bool:
    with os.scandir(folder) as entries:
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:  # another process has replaced a file meanwhile
                continue
            if not _is_sound(status, is_open):
                return False
            if stat.S_ISDIR(status.st_mode) and not _all_sound(entry.path, is_open):
                return False
    return True
