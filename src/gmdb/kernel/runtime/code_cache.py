"""The cache of machine code: where it is, and how its folders are named.

Numba does not notice when a function that a kernel calls, in another file, has changed.  So the machine code of a
file's kernels lies in a folder named by a hash of that file and all that it imports: other sources, other folder.

Numba keeps machine code as pickles: to load one is to run what its author wrote.  So nothing is loaded from a place
that other users can write to, or where they have left something.  If no other place is left, nothing is cached.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

from gmdb.errors import UnsafeDirectory
from gmdb.process.trusted_directories import flaw_of, is_untouched, make_private

NAME = "gmdb"

_PACKAGE = Path(__file__).parents[2]
_IMPORT = re.compile(rb"^ *from gmdb\.((?:format|kernel)(?:\.\w+)*) import ((?:\([^)]*\)|[^\n])*)", re.MULTILINE)


@cache
def cache_folder() -> Path | None:
    """The folder of all machine code: among the user's caches, or else among temporary files; None if neither will do.

    A folder that somebody has named must be safe; one that was guessed is passed over.
    """
    named = Path(os.environ["GMDB_CACHE_DIR"]).absolute() if os.environ.get("GMDB_CACHE_DIR") else None
    reasons: list[str] = []
    for directory in _candidates(named):
        try:
            make_private(directory)
            flaw = flaw_of(directory)
            if flaw is None and not os.access(directory, os.W_OK | os.X_OK):
                raise PermissionError(f"{directory} cannot be written")
        except OSError as error:
            reasons.append(str(error))
            continue
        if flaw is None:
            return directory
        if named and directory == named / NAME:
            advice = "name a directory that only you can write, or unset GMDB_CACHE_DIR"
            raise UnsafeDirectory(
                f"GMDB_CACHE_DIR is {named}, where others could put code for you to run: {flaw}; {advice}"
            )
        reasons.append(flaw)
    why = "; ".join(reasons)
    advice = "set GMDB_CACHE_DIR to a directory that only you can write"
    warnings.warn(
        f"gmdb compiles its kernels anew in every process, as no directory may keep them: {why}; {advice}",
        RuntimeWarning,
        stacklevel=2,
    )
    return None


def _candidates(named: Path | None) -> Iterator[Path]:
    """Where the folder may be, the best first."""
    if named:
        yield named / NAME
    else:
        caches = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"))
        if caches.is_absolute():  # else it must be ignored, or this user has no home directory
            yield caches / NAME
    yield Path(tempfile.gettempdir()) / f"{NAME}-{os.geteuid()}"


@cache
def _imports(source: Path) -> frozenset[Path]:
    """The files of kernels and formats that a source imports from by itself."""
    paths: set[Path] = set()
    for module, names in _IMPORT.findall(source.read_bytes()):
        path = _PACKAGE.joinpath(*module.decode().split("."))
        paths.add(path.with_suffix(".py"))
        paths.update(path / f"{name.decode()}.py" for name in re.findall(rb"\w+", names))
    return frozenset(path for path in paths if path.is_file())


def sources_of(source: Path) -> list[Path]:
    """A file and all files that it imports, directly or not."""
    sources: set[Path] = set()
    pending = [source]
    while pending:
        path = pending.pop()
        if path not in sources:
            sources.add(path)
            pending += _imports(path)
    return sorted(sources)


def digest_of(sources: Iterable[Path]) -> str:
    """A text that differs for other contents."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


@cache
def cache_directory(source: Path) -> Path | None:
    """The directory of the machine code of a file's kernels; None if there is no cache."""
    folder = cache_folder()
    if folder is None:
        return None
    directory = folder / f"{source.stem}-{digest_of(sources_of(source))}"
    make_private(directory)
    if not is_untouched(directory):
        _remove(directory)
        directory.mkdir(mode=0o700, exist_ok=True)
    if directory.stat().st_mode & 0o077:
        directory.chmod(0o700)  # what Numba makes within has the modes that the umask gives
    return directory


def _remove(directory: Path) -> None:
    """Remove what may be of others; it is compiled anew."""
    try:
        directory.unlink() if directory.is_symlink() else shutil.rmtree(directory)
    except OSError as error:
        reason = "has something of another user in it, and cannot be removed"
        raise UnsafeDirectory(f"{directory} {reason} ({error}); have it removed, or set GMDB_CACHE_DIR") from error
