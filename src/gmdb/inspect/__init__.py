"""A database's bytes, read from its files alone: works on closed and on damaged databases, takes no lock.

``gmdb.inspect.open(PATH)`` returns an inspector, whose methods return as Arrow tables what ``gmstat`` prints:
``.pages("tbl")``, ``.rows("tbl")``…
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gmdb.inspect.inspector import Inspector

__all__ = ["open"]


def open(path: str | Path, at: int | str | None = None) -> Inspector:
    """An inspector of the database at ``path``; nothing is changed and no lock is taken.

    ``at``: show pages as recovery would leave them, with the log replayed up to this LSN, or to its ``"end"``.
    """
    from gmdb.inspect.inspector import open_inspector

    return open_inspector(path, at)
