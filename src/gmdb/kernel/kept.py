"""Where machine code is kept, and by which names.

Numba does not notice when a function that a kernel calls, in another file, has changed.  So the machine code of a
file's kernels lies in a folder named by a hash of that file and all that it imports: other sources, other folder.
"""

from __future__ import annotations

import hashlib
import os
import re
import tempfile
from collections.abc import Iterable
from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent.parent
_IMPORT = re.compile(rb"^ *from gmdb\.(format|kernel)(?:\.(\w+))? import ((?:\([^)]*\)|[^\n])*)", re.MULTILINE)


@cache
def kept_in() -> Path:
    """The folder of all machine code: among the user's caches, or else among temporary files."""
    base = os.environ.get("GMDB_CACHE_DIR") or os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    directory = Path(base) / "gmdb"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if os.access(directory, os.W_OK):
            return directory
    except OSError:
        pass
    directory = Path(tempfile.gettempdir()) / f"gmdb-{os.getuid()}"
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    return directory


@cache
def _imports(source: Path) -> frozenset[Path]:
    """The files of kernels and formats that a source imports from by itself."""
    found: set[Path] = set()
    for folder, module, names in _IMPORT.findall(source.read_bytes()):
        modules = [module] if module else re.findall(rb"\w+", names)
        found.update(_PACKAGE / folder.decode() / f"{name.decode()}.py" for name in modules)
    return frozenset(path for path in found if path.is_file())


def sources_of(source: Path) -> list[Path]:
    """A file and all files that it imports, at first or second hand."""
    found: set[Path] = set()
    pending = [source]
    while pending:
        path = pending.pop()
        if path not in found:
            found.add(path)
            pending += _imports(path)
    return sorted(found)


def digest_of(sources: Iterable[Path]) -> str:
    """Another text for other contents."""
    return hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()[:16]


@cache
def cache_directory(source: Path) -> Path:
    """Where the machine code of a file's kernels is kept."""
    directory = kept_in() / f"{source.stem}-{digest_of(sources_of(source))}"
    directory.mkdir(exist_ok=True)
    return directory
