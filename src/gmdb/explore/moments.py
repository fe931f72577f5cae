"""The states in which a database can be shown, each with a name.

``files``: as the device files are now.  ``memory``: as the process that has the database open would write them.
An LSN, or ``end``: the files with the log replayed in memory, up to there.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gmdb.errors import InterfaceError, OwnerGone
from gmdb.format.address import page_name, parse_page_id
from gmdb.inspect.diff import diff_databases, diff_images
from gmdb.inspect.inspector import Inspector, open_files
from gmdb.inspect.listing import Listing
from gmdb.inspect.replayed import parse_place
from gmdb.server.connect import connect_to_owner
from gmdb.storage.directory import require_database
from gmdb.tables.files.database_files import DatabaseFiles

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

FILES, MEMORY = "files", "memory"
_ONLY_IN_MEMORY = ("transactions", "locks", "waits")
_REPLAYED_MAX = 2  # replayed states that are cached: a comparison is of two


class Moments:
    """The states of one database.  May be used by several threads."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path).absolute()
        require_database(self.path)
        self._asking, self._replaying = threading.Lock(), threading.RLock()
        self._owner: Connection | None = None
        self._replayed: dict[tuple[Any, ...], DatabaseFiles] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._asking, self._replaying:
            if self._owner is not None:
                self._owner.close()
            for files in self._replayed.values():
                files.close()

    def devices(self) -> tuple[Listing, bool]:
        """The devices as they are now, and whether a process that has the database open listed them."""
        listing = self._from_owner("devices")
        return (listing, True) if listing is not None else (self.listing(FILES, "devices"), False)

    def listing(self, moment: str, name: str, *arguments: Any, **options: Any) -> Listing:
        """A listing of the inspector; what only memory has is taken from there, if a process has the database open."""
        if moment == MEMORY or (moment == FILES and name in _ONLY_IN_MEMORY):
            listing = self._from_owner(name, *arguments, **options)
            if listing is not None:
                return listing
            if moment == MEMORY:
                raise InterfaceError("no process has the database open: there is no memory to look at")
        with self._files(moment) as files:
            return Inspector(files).listing(name, *arguments, **options)

    def diff(self, one: str, other: str, page: str | None = None) -> Listing:
        """What differs between two moments: on one page, or on all."""
        if page is not None:
            page_id = parse_page_id(page)
            images = [self.listing(moment, "image", page_name(page_id)).rows[0][2] for moment in (one, other)]
            with self._files(FILES) as files:
                return diff_images(files, page_id, *images)
        if MEMORY in (one, other):
            raise InterfaceError("memory is compared page by page; for all pages, compare with the end of the log")
        with self._files(one) as first, self._files(other) as second:
            return diff_databases(first, second)

    def _from_owner(self, name: str, *arguments: Any, **options: Any) -> Listing | None:
        with self._asking:
            connection = self._connection()
            if connection is None:
                return None
            try:
                return Listing.from_arrow(connection.inspect(name, *arguments, **options))
            except OwnerGone:
                self._owner = None
                return None

    def _connection(self) -> Connection | None:
        if self._owner is not None and self._owner.closed:
            self._owner = None
        if self._owner is None:
            self._owner = connect_to_owner(self.path, read_only=True)
        return self._owner

    @contextmanager
    def _files(self, moment: str) -> Iterator[DatabaseFiles]:
        if moment == FILES:
            with DatabaseFiles(self.path) as files:
                yield files
        else:
            with self._replaying:
                yield self._at(moment)

    def _at(self, moment: str) -> DatabaseFiles:
        """The files with the log replayed up to a place; cached until a file of the database changes."""
        place = parse_place(moment)
        key = (place, *((file.name, *_stamp(file)) for file in sorted(self.path.iterdir()) if file.is_file()))
        files = self._replayed.pop(key, None) or open_files(self.path, moment)
        while len(self._replayed) >= _REPLAYED_MAX:
            self._replayed.pop(next(iter(self._replayed))).close()
        self._replayed[key] = files
        return files


def _stamp(file: Path) -> tuple[int, int]:
    try:
        status = file.stat()
    except FileNotFoundError:
        return 0, 0
    return status.st_mtime_ns, status.st_size
