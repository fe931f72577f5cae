"""What verbs ask of the process that has a database open, and where they look if there is none."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.format.page import SegmentType
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.segments import read_segments
from gmdb.inspect.undo_view import UndoRecordView, view_undo_records
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


def unpurged_records(database: str) -> list[tuple[int, UndoRecordView]]:
    """The records of the undo log on disk, with their pages."""
    with DatabaseFiles(database) as files:
        undo = [segment for segment in read_segments(files) if segment.head["type"] == SegmentType.UNDO]
        pages = [page_id for segment in undo for page_id in files.segment_pages(segment.entry_page)]
        return [(page_id, record) for page_id in pages for record in view_undo_records(files.page(page_id), {})]
