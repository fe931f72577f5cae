"""A table with a row for each of many databases: their paths first, counts to the right, what is long at the end.

On a terminal a row is a line: paths lose their beginning and the last column its end, where there is no room.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from gmdb.cli.table import print_table
from gmdb.inspect.canvas import printable

PATH_MIN = 16
GAP = 2


def print_fleet(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """``rows`` are texts: the database, then counts, a status, and a last column of any length."""
    columns = [list(column) for column in zip(headings, *rows, strict=True)]
    for n in range(1, len(columns) - 2):
        width = max(map(len, columns[n]))
        columns[n] = [cell.rjust(width) for cell in columns[n]]
    columns[0], columns[-1] = _fitted(
        [printable(c) for c in columns[0]], columns[1:-1], list(map(printable, columns[-1]))
    )
    head, *body = zip(*columns, strict=True)
    print_table(head, body)


def _fitted(paths: list[str], between: Sequence[Sequence[str]], last: list[str]) -> tuple[list[str], list[str]]:
    """First and last column, cut so that lines are no longer than the terminal is wide."""
    if not sys.stdout.isatty():
        return paths, last
    room = shutil.get_terminal_size().columns - sum(max(map(len, column)) + GAP for column in between) - GAP
    for_paths = min(max(map(len, paths)), max(room // 2, PATH_MIN))
    for_last = max(room - for_paths, len(last[0]))
    return [_without_start(text, for_paths) for text in paths], [_without_end(text, for_last) for text in last]


def _without_start(text: str, width: int) -> str:
    return text if len(text) <= width else "…" + text[1 - width :]


def _without_end(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
