"""gmdb: a transactional row store embedded in Python, whose data files Apache Spark reads in parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmdb.errors import Error

if TYPE_CHECKING:
    from gmdb.engine import Database

__all__ = ["Error", "connect"]
__version__ = "0.1.0"


def connect(path: Any, *, read_only: bool = False) -> Database:
    """Open the database at ``path``, a directory; make it if nothing is there.

    Use it as a context manager, or call ``close()``: a clean close writes every page.
    """
    from gmdb.engine import Database  # the engine brings compiled kernels; commands that need none skip them

    return Database(path, read_only=read_only)
