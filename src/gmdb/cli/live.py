"""What verbs ask of the process that has a database open, if there is one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.storage.directory import require_database

if TYPE_CHECKING:
    from gmdb.connection import Connection


def ask_owner(database: str, question: Callable[[Connection], Any]) -> Any:
    """The answer of the database's owner; None if no process has the database open for writing."""
    from gmdb.server.connect import connect_to_owner  # brings pyarrow, which other verbs do without

    directory = Path(database).absolute()
    require_database(directory)
    connection = connect_to_owner(directory, read_only=True)
    if connection is None:
        return None
    with connection:
        return question(connection)
