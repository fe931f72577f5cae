"""The inspector: everything that gmstat shows, as Arrow tables.

A listing is a function of a database's pages and of some arguments, all of them texts and numbers.  ``LISTINGS`` has
them by name, for the inspector, for ``gmstat``, for SQL's ``gm_…`` functions and for clients of a running database.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gmdb.errors import InterfaceError
from gmdb.inspect import (
    cell_lists,
    index_lists,
    live_lists,
    log_lists,
    page_lists,
    row_lists,
    seen_lists,
    space_lists,
    undo_lists,
)
from gmdb.inspect import version_lists as versions
from gmdb.inspect.diff import DIFF, diff_databases, diff_pages
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import ListColumn, Listing
from gmdb.inspect.page_range import PageRange

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

LISTINGS: dict[str, Callable[..., Listing]] = {
    "spaces": space_lists.spaces,
    "devices": space_lists.devices,
    "segments": space_lists.segments,
    "maps": space_lists.maps,
    "freelists": space_lists.freelists,
    "cells": cell_lists.cells,
    "fill": page_lists.fill,
    "pages": page_lists.pages,
    "regions": page_lists.regions,
    "image": page_lists.image,
    "rows": row_lists.rows,
    "row": versions.row,
    "seen": seen_lists.seen,
    "index": index_lists.index,
    "hash": index_lists.hash_pages,
    "entries": index_lists.entries,
    "lobs": index_lists.lobs,
    "undo": undo_lists.undo,
    "locks": undo_lists.locks,
    "transactions": undo_lists.transactions,
    "waits": live_lists.waits,
    "snapshots": live_lists.snapshots,
    "redo": log_lists.redo,
    "history": log_lists.history,
    "checkpoints": log_lists.checkpoints,
    "diff": diff_pages,
}
COLUMNS: dict[str, Sequence[ListColumn]] = {
    "spaces": space_lists.SPACES,
    "devices": space_lists.DEVICES,
    "segments": space_lists.SEGMENTS,
    "maps": space_lists.MAPS,
    "freelists": space_lists.FREE,
    "cells": cell_lists.CELLS,
    "fill": page_lists.FILL,
    "pages": page_lists.PAGES,
    "regions": page_lists.REGIONS,
    "image": page_lists.IMAGE,
    "rows": row_lists.ROW_PLACE,
    "row": versions.VERSION,
    "seen": seen_lists.SEEN,
    "index": index_lists.INDEX,
    "hash": index_lists.HASH,
    "entries": index_lists.ENTRIES,
    "lobs": index_lists.LOBS,
    "undo": undo_lists.UNDO,
    "locks": undo_lists.LOCKS,
    "transactions": undo_lists.TRANSACTIONS,
    "waits": live_lists.WAITS,
    "snapshots": live_lists.SNAPSHOTS,
    "history": log_lists.HISTORY,
    "checkpoints": log_lists.CHECKPOINTS,
    "diff": DIFF,
}
"""The columns of each listing; of rows, those before the table's own.  The log's are in redo_log.py."""

LIVE: dict[str, Callable[[Callable[[str], Any]], Listing]] = {
    "locks": live_lists.live_locks,
    "transactions": live_lists.live_transactions,
    "waits": live_lists.live_waits,
}
"""What memory knows better than files do."""


class Inspector:
    """A database that is looked at; use it as a context manager, or call ``close()``.

    ``view`` answers system views of the process that has the database open, if this is that process.
    """

    def __init__(self, files: DatabaseFiles, view: Callable[[str], Any] | None = None) -> None:
        self.files = files
        self._view = view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.files.close()

    def listing(self, name: str, *arguments: Any, pages: str | None = None, **options: Any) -> Listing:
        """A listing by its name; ``pages`` leaves out others than ``4:7`` or ``4:7..4:20``."""
        if name not in LISTINGS:
            raise InterfaceError(f"there is no listing {name}; there are {', '.join(LISTINGS)}")
        if self._view is not None and name in LIVE:
            return LIVE[name](self._view)
        made = LISTINGS[name]
        if pages is not None:
            if not takes_pages(name):
                raise InterfaceError(f"{name} is not about pages: it takes no range of them")
            options["pages"] = PageRange.parse(pages)
        try:
            bound = inspect.signature(made).bind(self.files, *arguments, **options)
            given = bound.arguments.get("pages")
            if given is not None and given is not options.get("pages"):
                raise TypeError("too many arguments; a range of pages is given by its name")
        except TypeError as error:
            raise InterfaceError(f"{name}: {error}; it takes {', '.join(arguments_of(name)) or 'nothing'}") from None
        for parameter in bound.signature.parameters.values():
            if str(parameter.annotation).startswith("str") and isinstance(bound.arguments.get(parameter.name), int):
                bound.arguments[parameter.name] = str(bound.arguments[parameter.name])  # a page by its number
        return made(*bound.args, **bound.kwargs)

    def _table(self, name: str, *arguments: Any, **options: Any) -> pa.Table:
        return self.listing(name, *(one for one in arguments if one is not None), **options).arrow()

    # ---- where things are

    def spaces(self) -> pa.Table:
        return self._table("spaces")

    def devices(self) -> pa.Table:
        return self._table("devices")

    def segments(self) -> pa.Table:
        return self._table("segments")

    def maps(self, segment: str, pages: str | None = None) -> pa.Table:
        """The entries of a segment's map pages; a segment is named by its table or index, or its entry page."""
        return self._table("maps", segment, pages=pages)

    def freelists(self, segment: str, pages: str | None = None) -> pa.Table:
        return self._table("freelists", segment, pages=pages)

    def cells(self, first: int = 0, pages_each: int = 1, count: int = 1024, whole: bool = False) -> pa.Table:
        """The database as a map: cells of some pages each, told by a few of them; ``whole`` looks into those."""
        return self._table("cells", first, pages_each, count, whole)

    # ---- pages and rows

    def fill(self, segment: str | None = None, pages: str | None = None) -> pa.Table:
        """How many data pages are how full."""
        return self._table("fill", segment, pages=pages)

    def pages(self, segment: str | None = None, pages: str | None = None) -> pa.Table:
        return self._table("pages", segment, pages=pages)

    def regions(self, page: str) -> pa.Table:
        """Every byte of a page, by the names that docs/file_format.md has."""
        return self._table("regions", page)

    def image(self, page: str) -> pa.Table:
        """A page's bytes, in one row."""
        return self._table("image", page)

    def rows(self, segment: str, pages: str | None = None) -> pa.Table:
        """The rows that lie on a table's pages, deleted and moved ones included."""
        return self._table("rows", segment, pages=pages)

    def row(self, row_id: str) -> pa.Table:
        """A row's versions, the newest first, as far as undo has them."""
        return self._table("row", row_id)

    def seen(self, place: str, transaction: int = 0, scn: int | None = None) -> pa.Table:
        """The rows of a page, or one row, as a transaction sees them at a snapshot, and why; 0: as others do."""
        return self._table("seen", place, transaction, scn)

    def find(self, segment: str, predicate: pc.Expression, pages: str | None = None) -> pa.Table:
        """Those rows of a table that an expression of Arrow's is true of: ``find("t", pc.field("a") > 5)``."""
        return self.rows(segment, pages).filter(predicate)

    # ---- indexes and large objects

    def index(self, name: str, pages: str | None = None) -> pa.Table:
        return self._table("index", name, pages=pages)

    def hash(self, name: str, pages: str | None = None) -> pa.Table:
        return self._table("hash", name, pages=pages)

    def entries(self, name: str, pages: str | None = None) -> pa.Table:
        """The entries of an index, in the order of keys."""
        return self._table("entries", name, pages=pages)

    def lobs(self, table: str | None = None) -> pa.Table:
        return self._table("lobs", table)

    # ---- transactions

    def undo(self, pages: str | None = None) -> pa.Table:
        return self._table("undo", pages=pages)

    def locks(self) -> pa.Table:
        return self._table("locks")

    def transactions(self) -> pa.Table:
        return self._table("transactions")

    def waits(self) -> pa.Table:
        return self._table("waits")

    def snapshots(self) -> pa.Table:
        return self._table("snapshots")

    # ---- the log

    def redo(self, pages: str | None = None, since: int = 0, last: int = 0) -> pa.Table:
        """The log's records from an LSN on; ``last``: only so many, the newest."""
        return self._table("redo", pages=pages, since=since, last=last)

    def history(self, page: str, last: int = 0) -> pa.Table:
        """What the log did to a page; ``last``: only so many steps, the newest."""
        return self._table("history", page, last)

    def checkpoints(self) -> pa.Table:
        return self._table("checkpoints")

    # ---- what differs

    def diff(self, first: Any, second: Any = None) -> pa.Table:
        """What two pages of this database differ in, or this database and another inspector's."""
        if isinstance(first, Inspector):
            return diff_databases(self.files, first.files, with_bytes=True).arrow()
        return self._table("diff", first, second)


def takes_pages(name: str) -> bool:
    return "pages" in inspect.signature(LISTINGS[name]).parameters


def arguments_of(name: str) -> list[str]:
    """The names of what a listing is asked by, ranges of pages left out."""
    return [one for one in inspect.signature(LISTINGS[name]).parameters if one not in ("files", "pages")]


def open_inspector(path: str | Path, at: int | str | None = None) -> Inspector:
    """A database's files, whatever state they are in; ``at``: with the log replayed up to an LSN, or its ``end``."""
    return Inspector(open_files(path, at))


def open_files(path: str | Path, at: int | str | None = None) -> DatabaseFiles:
    if at is None:
        return DatabaseFiles(path)
    from gmdb.inspect.replayed import ReplayedFiles, parse_place  # reading the log brings compiled code

    return ReplayedFiles(path, parse_place(str(at)))
