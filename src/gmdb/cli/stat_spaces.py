"""``gmstat spaces``: the tablespaces of a database and their devices."""

from __future__ import annotations

import argparse

from gmdb.cli.table import print_json, print_problems, print_table
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.space import Space

NAME = "spaces"
HELP = "tablespaces, their devices and how full they are"
DESCRIPTION = "List the tablespaces of a database: page size, devices, pages, high-water mark, free pages, segments."
EXAMPLE = "example:\n  gmstat spaces shop.gmdb"
HEADINGS = ("space", "name", "page size", "devices", "pages", "hwm", "free", "segments")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    del parser


def run(arguments: argparse.Namespace) -> int:
    with DatabaseFiles(arguments.database) as files:
        spaces = files.spaces()
        problems = [(f"space {space.space_id}", problem) for space in spaces for problem in space.problems()]
        if arguments.json:
            print_json({"spaces": [space.document() for space in spaces]})
        else:
            print_table(HEADINGS, [_row(space) for space in spaces])
            print_problems(problems)
    return 1 if problems else 0


def _row(space: Space) -> tuple[object, ...]:
    devices = ", ".join(str(device.number) for device in space.devices)
    counts = (space.page_count, space.hwm, space.free_pages, space.seg_num)
    return (space.space_id, space.name, space.page_size, devices, *counts)
