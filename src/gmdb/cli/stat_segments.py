"""``gmstat segments``: the segments of a database, their pages and free lists."""

from __future__ import annotations

import argparse

from gmdb.cli.table import print_json, print_problems, print_table
from gmdb.format.address import page_name
from gmdb.format.segment import EMPTY_LIST, FREE_MAP_LIST, NO_LIST
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.segments import Segment, read_segments

NAME = "segments"
HELP = "segments: tables, indexes and undo logs, and where their pages are"
DESCRIPTION = (
    "List every segment: its entry page, what it holds, how many data and map pages it has, and how many of its\n"
    "pages are on each free list (LIST:PAGES; list 0 to 13 by the room they have, 'empty' without any row)."
)
EXAMPLE = "example:\n  gmstat segments shop.gmdb"
HEADINGS = (
    "entry", "type", "object", "id", "space", "data pages", "map pages", "pct_free", "first", "last", "free lists",
)  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    with DatabaseFiles(arguments.database) as files:
        segments = read_segments(files)
    problems = [(page_name(segment.entry_page), problem) for segment in segments for problem in segment.problems]
    if arguments.json:
        print_json({"segments": [segment.document() for segment in segments]})
    else:
        print_table(HEADINGS, [_row(segment) for segment in segments])
        print_problems(problems)
    return 1 if problems else 0


def _row(segment: Segment) -> tuple[object, ...]:
    head = segment.head
    return (
        page_name(segment.entry_page),
        segment.type_name,
        head["obj_name"],
        head["obj_id"],
        head["space_id"],
        segment.data_pages,
        segment.map_pages,
        head["pct_free"],
        page_name(head["first_data_page"]),
        page_name(head["last_page"]),
        _free_lists(segment),
    )


def _free_lists(segment: Segment) -> str:
    names = {EMPTY_LIST: "empty", FREE_MAP_LIST: "unused"}
    counts = ((names.get(n, str(n)), pages) for n, pages in sorted(segment.lists.items()) if n != NO_LIST)
    return " ".join(f"{name}:{pages}" for name, pages in counts) or "-"
