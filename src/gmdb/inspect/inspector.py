"""The inspector: everything that gmstat shows, as Arrow tables.

A listing is a function of a database's pages and of arguments that are strings or numbers.  ``LISTINGS`` declares each
once, by name; the inspector's methods, ``gmstat``, SQL's ``gm_…`` functions and clients of a running database are all
derived from it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gmdb.errors import InterfaceError
from gmdb.inspect import index_lists, log_lists, page_lists, row_lists, space_lists, transaction_lists
from gmdb.inspect import row_lists as versions
from gmdb.inspect.diff import DIFF, diff_databases, diff_pages
from gmdb.inspect.listing import ListColumn, Listing
from gmdb.inspect.page_lists import PageSelection
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.files.database_files import DatabaseFiles

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.compute as pc

View = Callable[[str], Any]


@dataclass(frozen=True)
class Listed:
    """A listing: the function that makes it from a database's files, and its columns.

    Listings of rows have the table's columns behind these.  ``live`` makes it from the system views of the process
    that has the database open, for what memory knows better than the files.  The log's columns are in redo_log.py.
    """

    make: Callable[..., Listing]
    columns: Sequence[ListColumn] = ()
    live: Callable[[View], Listing] | None = None

    @property
    def parameters(self) -> list[inspect.Parameter]:
        """Its parameters, a range of pages as a string."""
        _, *own = inspect.signature(self.make).parameters.values()
        return [one.replace(default=None, annotation="str | None") if one.name == "pages" else one for one in own]

    @property
    def takes_pages(self) -> bool:
        return any(one.name == "pages" for one in self.parameters)


LISTINGS = {
    "spaces": Listed(space_lists.spaces, space_lists.SPACES),
    "devices": Listed(space_lists.devices, space_lists.DEVICES),
    "segments": Listed(space_lists.segments, space_lists.SEGMENTS),
    "maps": Listed(space_lists.maps, space_lists.MAPS),
    "freelists": Listed(space_lists.freelists, space_lists.FREE),
    "cells": Listed(page_lists.cells, page_lists.CELLS),
    "fill": Listed(page_lists.fill, page_lists.FILL),
    "pages": Listed(page_lists.pages, page_lists.PAGES),
    "regions": Listed(page_lists.regions, page_lists.REGIONS),
    "image": Listed(page_lists.image, page_lists.IMAGE),
    "rows": Listed(row_lists.rows, row_lists.ROW_PLACE),
    "row": Listed(versions.row, versions.VERSION),
    "seen": Listed(row_lists.seen, row_lists.SEEN),
    "index": Listed(index_lists.index, index_lists.INDEX),
    "hash": Listed(index_lists.hash_pages, index_lists.HASH),
    "entries": Listed(index_lists.entries, index_lists.ENTRIES),
    "lobs": Listed(index_lists.lobs, index_lists.LOBS),
    "undo": Listed(transaction_lists.undo, transaction_lists.UNDO),
    "locks": Listed(transaction_lists.locks, transaction_lists.LOCKS, transaction_lists.live_locks),
    "transactions": Listed(
        transaction_lists.transactions, transaction_lists.TRANSACTIONS, transaction_lists.live_transactions
    ),
    "waits": Listed(transaction_lists.waits, transaction_lists.WAITS, transaction_lists.live_waits),
    "snapshots": Listed(transaction_lists.snapshots, transaction_lists.SNAPSHOTS),
    "redo": Listed(log_lists.redo),
    "history": Listed(log_lists.history, log_lists.HISTORY),
    "checkpoints": Listed(log_lists.checkpoints, log_lists.CHECKPOINTS),
    "diff": Listed(diff_pages, DIFF),
}


class Inspector:
    """Listings of one database.  Use it as a context manager, or call ``close()``.

    ``view`` returns a system view by its name; it is given if this process has the database open.
    """

    def __init__(self, files: DatabaseFiles, view: View | None = None) -> None:
        self.files = files
        self._view = view

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        self.files.close()

    def listing(self, name: str, /, *arguments: Any, pages: str | None = None, **options: Any) -> Listing:
        """A listing by its name; ``pages`` restricts it to ``4:7``, or to a range such as ``4:7..4:20``."""
        if name not in LISTINGS:
            raise InterfaceError(f"there is no listing {name}; there are {', '.join(LISTINGS)}")
        listed = LISTINGS[name]
        if self._view is not None and listed.live is not None:
            return listed.live(self._view)
        if pages is not None:
            if not takes_pages(name):
                raise InterfaceError(f"{name} is not about pages: it takes no range of them")
            options["pages"] = PageSelection.parse(pages)
        try:
            bound = inspect.signature(listed.make).bind(self.files, *arguments, **options)
            by_position = bound.arguments.get("pages")
            if by_position is not None and by_position is not options.get("pages"):
                raise TypeError("too many arguments; pass a range of pages by keyword, pages=")
        except TypeError as error:
            raise InterfaceError(f"{name}: {error}; it takes {', '.join(arguments_of(name)) or 'nothing'}") from None
        for parameter in bound.signature.parameters.values():
            if str(parameter.annotation).startswith("str") and isinstance(bound.arguments.get(parameter.name), int):
                bound.arguments[parameter.name] = str(bound.arguments[parameter.name])  # a page by its number
        return listed.make(*bound.args, **bound.kwargs)

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., pa.Table]:
            """Every listing is a method: ``inspector.rows("tbl", pages="4:7")``."""

    def find(self, segment: str, predicate: pc.Expression, pages: str | None = None) -> pa.Table:
        """The rows of a table for which an Arrow expression is true: ``find("t", pc.field("a") > 5)``."""
        return self.rows(segment, pages).filter(predicate)

    def diff(self, first: Any, second: Any = None) -> pa.Table:
        """What differs between two pages of this database, or between this database and another inspector's."""
        if isinstance(first, Inspector):
            return diff_databases(self.files, first.files, with_bytes=True).arrow()
        return self.listing("diff", first, second).arrow()


def _add_methods() -> None:
    for name, listed in LISTINGS.items():
        if name not in vars(Inspector):
            setattr(Inspector, name, _method(name, listed))


def _method(name: str, listed: Listed) -> Callable[..., Any]:
    myself = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    signature = inspect.Signature([myself, *listed.parameters], return_annotation="pa.Table")

    def method(*arguments: Any, **options: Any) -> pa.Table:
        values = signature.bind(*arguments, **options).arguments
        inspector = values.pop("self")
        return inspector.listing(name, **{key: value for key, value in values.items() if value is not None}).arrow()

    method.__name__, method.__qualname__, method.__doc__ = name, f"Inspector.{name}", listed.make.__doc__
    method.__signature__ = signature  # type: ignore[attr-defined]
    return method


_add_methods()


def takes_pages(name: str) -> bool:
    return LISTINGS[name].takes_pages


def arguments_of(name: str) -> list[str]:
    """The names of a listing's arguments, without ``pages``."""
    return [one.name for one in LISTINGS[name].parameters if one.name != "pages"]


def open_inspector(path: str | Path, at: int | str | None = None) -> Inspector:
    """An inspector of a database in any state; ``at``: with the log replayed up to an LSN, or to its ``end``."""
    return Inspector(open_files(path, at))


def open_files(path: str | Path, at: int | str | None = None) -> DatabaseFiles:
    if at is None:
        return DatabaseFiles(path)
    from gmdb.inspect.replayed import ReplayedFiles, parse_place  # reading the log imports compiled code

    return ReplayedFiles(path, parse_place(str(at)))
