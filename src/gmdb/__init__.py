"""gmdb: a transactional row store embedded in Python, whose data files Apache Spark reads in parallel."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmdb.errors import Error

if TYPE_CHECKING:
    from gmdb.connection import Connection

__all__ = ["Error", "connect"]
__version__ = "0.1.0"


def connect(
    path: Any,
    *,
    isolation: str = "read committed",
    autocommit: bool = False,
    lock_timeout: float = 5.0,
    read_only: bool = False,
) -> Connection:
    """A connection to the database at ``path``, a directory; it is made if nothing is there.

    ``isolation`` is "read committed" or "repeatable read"; ``lock_timeout`` is how many seconds a writer waits for
    another's row.  If another process has the database open, this one works through it.  Use the connection as a
    context manager, or call ``commit()`` and ``close()``.
    """
    from gmdb.server.connect import connect as connect_to  # brings pyarrow; commands that need none skip it

    return connect_to(path, isolation=isolation, autocommit=autocommit, lock_timeout=lock_timeout, read_only=read_only)
