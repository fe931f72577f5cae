"""``gmstat undo``: the undo log, record by record."""

from __future__ import annotations

import argparse

from gmdb.catalog.schema import TableDefinition
from gmdb.cli.table import print_json, print_problems, print_table
from gmdb.errors import Error
from gmdb.format.address import page_name
from gmdb.format.anatomy import check
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.segments import read_segments
from gmdb.inspect.undo_view import UndoRecordView, view_undo_records

NAME = "undo"
HELP = "undo records: how rows were before transactions changed them"
DESCRIPTION = (
    "List the records of the undo log: where each is, what was done to which row under which lock, and the image of\n"
    "before. A database that was closed has none; connection.dump(PATH) writes the pages of one that is in use."
)
EXAMPLE = "example:\n  gmstat undo shop.dump"
HEADINGS = ("record", "operation", "row", "table", "lock", "size", "columns", "before", "bytes")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    with DatabaseFiles(arguments.database) as files:
        tables = _tables(files)
        pages = []
        problems = []
        for page_id in _undo_pages(files):
            page = files.page(page_id)
            problems += [(page_name(page_id), f"offset {f.offset}: {f.message}") for f in check(page, page_id)]
            pages.append((page_id, view_undo_records(page, tables)))
    if arguments.json:
        documents = [{"page_id": page_id, "records": [r.document() for r in records]} for page_id, records in pages]
        print_json({"pages": documents, "problems": [f"{where}: {what}" for where, what in problems]})
    else:
        print_table(HEADINGS, [_row(page_id, record) for page_id, records in pages for record in records])
        print_problems(problems)
    return 1 if problems else 0


def _tables(files: DatabaseFiles) -> dict[int, TableDefinition]:
    """The tables by number; none if the catalog cannot be read."""
    try:
        tables = files.tables()
        lobs = {table.lobs.obj_id: table for table in tables if table.lobs is not None}
        return {table.obj_id: table for table in tables} | lobs
    except Error:
        return {}


def _undo_pages(files: DatabaseFiles) -> list[int]:
    found = []
    for segment in read_segments(files):
        if segment.head["type"] == SegmentType.UNDO:
            found += files.segment_pages(segment.entry_page)
    return [page_id for page_id in found if PAGE_HEAD.at(files.page(page_id)).page_type == PageType.DATA]


def _row(page_id: int, record: UndoRecordView) -> tuple[object, ...]:
    values = record.image.document()["values"] if record.image is not None else None
    return (
        f"{page_name(page_id)}:{record.slot}",
        record.operation,
        record.row_id,
        record.table_name or record.head["obj_id"],
        record.head["lock_id"],
        record.head["size"],
        ",".join(map(str, record.changed)) or "-",
        ", ".join(map(repr, values)) if values else "-",
        record.body[:24].hex(" "),
    )
