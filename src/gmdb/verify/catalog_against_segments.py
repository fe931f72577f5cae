"""Segments against the catalog: every table has its segment, every segment its table."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from typing import Any

from gmdb.errors import Error
from gmdb.format import heap
from gmdb.format.address import SYSTEM_DEVICE, RowId, device_of, page_name
from gmdb.format.page import PageType, SegmentType
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import UNDO_ENTRY
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.schema import (
    FIRST_USER_ID,
    SYS_COLUMNS_COLUMNS,
    SYS_COLUMNS_ID,
    SYS_TABLES_ENTRY,
    TableDefinition,
    table_of_row,
)
from gmdb.tables.files.database_files import SYS_TABLES, DatabaseFiles
from gmdb.tables.files.page_view import known_tables
from gmdb.verify.findings import Findings
from gmdb.verify.segments import CheckedSegment
from gmdb.verify.survey import MISSING, Survey

Place = tuple[int, int]  # a page and an offset on it


class Catalog:
    """The tables and indexes, and where in the system tables each is described."""

    def __init__(
        self,
        tables: Mapping[int, TableDefinition],
        listed: list[tuple[Place, TableDefinition]],
        indexes: Sequence[tuple[Place, IndexDefinition]] = (),
    ) -> None:
        self.tables = tables
        self.listed = listed
        self.indexes = indexes

    @property
    def is_known(self) -> bool:
        return bool(self.listed)


def read_catalog(files: DatabaseFiles, findings: Findings) -> Catalog:
    """What the system tables say; if they cannot be read, the system tables alone, and a finding."""
    try:
        tables = {table.obj_id: table for table in files.tables()}
        listed = list(_listed(files, tables))
        indexes = [(_place(files, row_id), index) for row_id, index in files.index_rows()]
        _check_columns(files, tables, findings)
    except Error as error:
        page_id, offset = getattr(error, "page_id", None), getattr(error, "offset", None)
        findings.on_page(
            SYS_TABLES_ENTRY if page_id is None else page_id,
            offset or 0,
            f"the catalog cannot be read, so rows and segments were not checked against it: {error}",
        )
        return Catalog(known_tables(files), [])
    return Catalog(tables, listed, indexes)


def _place(files: DatabaseFiles, row_id: RowId) -> Place:
    return row_id.page_id, dict(heap.live_slots(files.page(row_id.page_id)))[row_id.slot_id]


def _listed(files: DatabaseFiles, tables: Mapping[int, TableDefinition]) -> Iterator[tuple[Place, TableDefinition]]:
    for row_id, row in files.rows(SYS_TABLES):
        yield _place(files, row_id), table_of_row(row, tables[row[0]].columns)


def _check_columns(files: DatabaseFiles, tables: Mapping[int, TableDefinition], findings: Findings) -> None:
    """Each table has columns number 0, 1, …, with different names; each column has a table."""
    source = TableDefinition(
        "sys_columns", SYS_COLUMNS_ID, SYSTEM_DEVICE, tables[SYS_COLUMNS_ID].entry_page, SYS_COLUMNS_COLUMNS
    )
    positions: dict[int, set[int]] = {obj_id: set() for obj_id in tables}
    names: set[tuple[int, str]] = set()
    for row_id, (obj_id, position, name, *_) in files.rows(source):
        wrong = ""
        if obj_id not in tables:
            wrong = f"column {name} is of object {obj_id}, which is not a table"
        elif position in positions[obj_id] or not 0 <= position < len(tables[obj_id].columns):
            wrong = f"column {name} of table {tables[obj_id].name} has number {position}"
        elif (obj_id, name.lower()) in names:
            wrong = f"table {tables[obj_id].name} has two columns called {name}"
        if wrong:
            findings.on_page(*_place(files, row_id), wrong)
        else:
            positions[obj_id].add(position)
            names.add((obj_id, name.lower()))


def check_catalog(survey: Survey, catalog: Catalog, segments: list[CheckedSegment], in_between: Container[int]) -> None:
    """``in_between``: entry pages of segments that are being created, or that were dropped and are not yet removed."""
    if not catalog.is_known:
        return
    _check_numbers(survey, catalog)
    for place, table in catalog.listed:
        wanted = SegmentType.SYSTEM if table.obj_id < FIRST_USER_ID else SegmentType.HEAP
        wrong = wrong_entry(survey, table.entry_page, table.obj_id, table.space_id, (wanted,))
        if wrong:
            message = f"table {table.name} starts at page {page_name(table.entry_page)}, {wrong}"
            survey.findings.on_page(*place, message)
        if table.lobs is not None:
            lobs = table.lobs
            wrong = wrong_entry(survey, lobs.entry_page, lobs.obj_id, table.space_id, (SegmentType.LOB,))
            if wrong:
                message = f"large objects of table {table.name} start at page {page_name(lobs.entry_page)}, {wrong}"
                survey.findings.on_page(*place, message)
        elif any(column.type.may_be_apart for column in table.columns):
            survey.findings.on_page(*place, f"table {table.name} has no segment for its large objects")
    entries = {table.entry_page for _, table in catalog.listed} | {index.entry_page for _, index in catalog.indexes}
    entries |= {table.lobs.entry_page for _, table in catalog.listed if table.lobs is not None}
    entries |= {page for s in segments if s.entry_page == UNDO_ENTRY for page in (UNDO_ENTRY, s.head["child_seg"])}
    for segment in segments:
        if segment.entry_page not in entries and segment.entry_page not in in_between:
            at = SEGMENT_HEAD_AT + SEGMENT_HEAD.offset("obj_id")
            message = f"a segment of object {segment.obj_id}, but no table or index starts here"
            survey.findings.on_page(segment.entry_page, at, message)


def _check_numbers(survey: Survey, catalog: Catalog) -> None:
    """Numbers and names are unique; numbers are below the next one to be assigned."""
    numbers: set[int] = set()
    names: set[str] = set()
    next_id = survey.files.control.get("next_obj_id", 0)
    for place, table in catalog.listed:
        if table.obj_id in numbers or table.name.lower() in names:
            survey.findings.on_page(*place, f"table {table.name}, number {table.obj_id}, is there twice")
        if next_id and table.obj_id >= next_id:
            message = f"table {table.name} has number {table.obj_id}, which the next table would get ({next_id})"
            survey.findings.on_page(*place, message)
        numbers.add(table.obj_id)
        names.add(table.name.lower())


def wrong_entry(survey: Survey, entry: int, obj_id: int, space_id: int, kinds: Sequence[SegmentType]) -> str:
    """Why an object's segment cannot start at a page; empty if it can, or if the page itself is damaged."""
    fact: Any = survey.fact(entry)
    if fact["verdict"] == MISSING:
        return "which is not in use"
    if not survey.can_follow(entry):
        return ""
    if fact["page_type"] != PageType.SEGMENT_ENTRY:
        return f"which is not an entry page: its page_type is {fact['page_type']}"
    if fact["obj_id"] != obj_id:
        return f"which is of object {fact['obj_id']} instead of {obj_id}"
    if fact["seg_type"] not in kinds:
        return f"whose seg_type is {fact['seg_type']} instead of {' or '.join(str(int(kind)) for kind in kinds)}"
    space = survey.files.devices[device_of(entry)].space_id
    return "" if space == space_id else f"which lies in tablespace {space} instead of {space_id}"
