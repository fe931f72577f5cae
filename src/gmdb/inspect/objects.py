"""What has a segment: tables, indexes, large objects, the undo log.  Found by name, also in damaged databases."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator
from contextlib import suppress

from gmdb.errors import Error, NoSuchTable
from gmdb.format.address import page_name, parse_page_id
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import known_tables


@dataclass(frozen=True)
class SegmentObject:
    """A segment, and the object it belongs to, as the catalog or else the segment's own head names it."""

    name: str
    kind: str
    obj_id: int
    entry_page: int
    table: TableDefinition | None


def segment_objects(files: DatabaseFiles) -> list[SegmentObject]:
    """Every segment whose entry page can be recognised, in order of address."""
    named = {segment.entry_page: segment for segment in _of_catalog(files)}
    segments = []
    for device in files.devices:
        for entry in files.segment_entries(device):
            segments.append(named.get(entry) or _of_head(files, entry))
    return segments


def _of_catalog(files: DatabaseFiles) -> Iterator[SegmentObject]:
    tables = known_tables(files)
    for table in tables.values():
        yield SegmentObject(table.name, "table", table.obj_id, table.entry_page, table)
        if table.lobs is not None:
            yield SegmentObject(f"{table.name}.lobs", "lobs", table.lobs.obj_id, table.lobs.entry_page, table)
    with suppress(Error):  # a list of indexes that cannot be read names none
        for _, index in files.index_rows():
            kind, table_of = f"{index.using} index", tables.get(index.table_id)
            yield SegmentObject(index.name, kind, index.obj_id, index.entry_page, table_of)


def _of_head(files: DatabaseFiles, entry: int) -> SegmentObject:
    head = SEGMENT_HEAD.values(files.page(entry), SEGMENT_HEAD_AT)
    kind = SegmentType(head["type"]).name.lower() if head["type"] in list(SegmentType) else f"type {head['type']}"
    return SegmentObject(head["obj_name"], kind, head["obj_id"], entry, None)


def _by_name(objects: Iterable[SegmentObject], text: str) -> SegmentObject | None:
    known: dict[str, SegmentObject] = {}
    for one in objects:
        known.setdefault(one.name, one)
    return known.get(text) or known.get(text.lower())


def _begins_segment(files: DatabaseFiles, entry: int) -> bool:
    try:
        return bool(PAGE_HEAD.at(files.page(entry)).page_type == PageType.SEGMENT_ENTRY)
    except Error:
        return False


def names_of(files: DatabaseFiles, page_ids: dict[int, int]) -> dict[int, str]:
    """The names of objects, each found from one of its pages, without searching for all segments.

    An object that the catalog does not list is named by the head of its segment, which the page's map leads to.
    """
    names = {segment.obj_id: segment.name for segment in _of_catalog(files)}
    for obj_id, page_id in page_ids.items():
        if obj_id and obj_id not in names:
            with suppress(Error):  # a damaged page leads nowhere
                entry = _entry_of(files, page_id)
                if entry is not None:
                    names[obj_id] = _of_head(files, entry).name
    return names


def _entry_of(files: DatabaseFiles, page_id: int) -> int | None:
    for _ in range(3):  # a data page, its map page, the entry page
        head = PAGE_HEAD.at(files.page(page_id))
        if head.page_type == PageType.SEGMENT_ENTRY:
            return page_id
        page_id = head.map_page_id
    return None


def find_segment(files: DatabaseFiles, text: str) -> SegmentObject:
    """A segment by the name of its object, or by its entry page.  Files are searched only if the catalog lacks it."""
    named = _by_name(_of_catalog(files), text)
    if named is not None and _begins_segment(files, named.entry_page):
        return named
    segments = segment_objects(files)
    named = _by_name(segments, text)
    if named is not None:
        return named
    if text[:1].isdecimal():
        entry = parse_page_id(text)
        for one in segments:
            if one.entry_page == entry:
                return one
        kind = PAGE_HEAD.at(files.page(entry)).page_type
        wrong = f"page {page_name(entry)} is not the entry page of a segment"
        raise NoSuchTable(f"{wrong}: its page_type is {PageType(kind).name if kind in list(PageType) else kind}")
    names = [one.name for one in segments]
    near = difflib.get_close_matches(text.lower(), names, 1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(names) or 'none'}"
    raise NoSuchTable(f"{files.path} has no segment {text}; {hint}")
