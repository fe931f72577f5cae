"""Responses to the browser's requests, as JSON: listings, differences, and what database this is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gmdb.errors import InterfaceError
from gmdb.explore.moments import FILES, Moments
from gmdb.format.address import parse_page_id
from gmdb.inspect.listing import Listing, whole_number
from gmdb.inspect.page_lists import Strip
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import plain

_EXACT = 1 << 53  # JavaScript's numbers are exact up to here; larger ones are sent as strings
_ROWS_MAX = 20_000
Query = Mapping[str, list[str]]


def about(moments: Moments, query: Query) -> dict[str, Any]:
    """The database: where it is, how many pages its map has, and whether a process has it open."""
    del query
    devices, live = moments.devices()
    return {
        "name": moments.path.name,
        "path": str(moments.path),
        "live": live,
        "pages": sum(max(one["hwm"] or 0, 0) for one in devices.dicts()),
    }


def place(moments: Moments, query: Query) -> dict[str, Any]:
    """Where on the map a page is."""
    with DatabaseFiles(moments.path) as files:
        return {"place": Strip(files).place_of(parse_page_id(_one(query, "page")))}


def listing(moments: Moments, query: Query) -> dict[str, Any]:
    """A listing by its name; ``arg`` may be given several times, ``pages`` and ``since`` as gmstat has them."""
    options: dict[str, Any] = {"pages": query["pages"][0]} if "pages" in query else {}
    for name in ("since", "last"):
        if name in query:
            options[name] = _number(query, name)
    return _document(moments.listing(_moment(query, "at"), _one(query, "name"), *query.get("arg", ()), **options))


def diff(moments: Moments, query: Query) -> dict[str, Any]:
    """What two moments differ in, on all pages or on one."""
    page = query["page"][0] if "page" in query else None
    return _document(moments.diff(_moment(query, "one"), _moment(query, "other"), page))


RESPONSES: dict[str, Callable[[Moments, Query], dict[str, Any]]] = {
    "about": about,
    "place": place,
    "listing": listing,
    "diff": diff,
}


def _one(query: Query, name: str) -> str:
    if name not in query:
        raise InterfaceError(f"the request needs {name}=")
    return query[name][0]


def _number(query: Query, name: str) -> int:
    text = _one(query, name)
    number = whole_number(text)
    if number < 0:
        raise InterfaceError(f"{name}={text} is not a number")
    return number


def _moment(query: Query, name: str) -> str:
    return query.get(name, [FILES])[0] or FILES


def _document(listing: Listing) -> dict[str, Any]:
    rows = [[_json(value) for value in row] for row in listing.rows[:_ROWS_MAX]]
    notes = list(listing.notes)
    if len(listing.rows) > _ROWS_MAX:
        notes.append(f"the first {_ROWS_MAX:,} of {len(listing.rows):,}; gmstat {listing.name} has all")
    return {
        "columns": [{"name": c.name, "meaning": c.meaning, "detail": c.is_detail} for c in listing.columns],
        "rows": rows,
        "problems": listing.problems,
        "notes": notes,
    }


def _json(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > _EXACT:
        return str(value)
    return plain(value)
