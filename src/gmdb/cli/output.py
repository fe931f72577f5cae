"""What verbs print: tables, JSON documents, colours and progress on a terminal."""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from gmdb.inspect.canvas import COLOURED, PLAIN, Paint, printable

# ---- What verbs print: tables with headings, problems, JSON documents.

NONE = "-"


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Columns as wide as they need to be; numbers, and what stands for none, to the right."""
    numeric = [_is_numeric([row[n] for row in rows]) for n in range(len(headings))]
    cells = [[printable(str(cell)) for cell in row] for row in [headings, *rows]]
    widths = [max(len(row[n]) for row in cells) for n in range(len(headings))]
    for row in [cells[0], ["-" * width for width in widths], *cells[1:]]:
        padded = (c.rjust(w) if right else c.ljust(w) for c, w, right in zip(row, widths, numeric, strict=True))
        print("  ".join(padded).rstrip())


def _is_numeric(cells: Sequence[object]) -> bool:
    known = [cell for cell in cells if cell != NONE]
    return bool(known) and all(isinstance(cell, int | float) for cell in known)


def print_problems(problems: Sequence[tuple[str, str]]) -> None:
    for where, problem in problems:
        print(f"damaged: {where}: {problem}")


def print_json(document: dict[str, Any]) -> None:
    print(json.dumps(document, indent=2))


# ---- The terminal: whether to use colour, and how to show that something goes on.
#
# Colour only on a terminal, and never if NO_COLOR is set; a progress bar only on a terminal, if it takes long.

QUIET_SECONDS = 1.0  # work that is done by then shows no bar
REDRAW_SECONDS = 0.1
BAR_WIDTH = 30
_CLEAR_LINE = "\r\x1b[K"


def is_coloured() -> bool:
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def paint() -> Paint:
    return COLOURED if is_coloured() else PLAIN


def clear_line() -> None:
    """Clear the line, such as of the ^C that a terminal prints by itself."""
    if sys.stderr.isatty() and os.environ.get("TERM") != "dumb":
        print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


@contextmanager
def progress(label: str, total: int) -> Iterator[Callable[[int], None]]:
    """A bar on stderr, which goes away at the end: ``with progress("verify", pages) as step: … step(16)``."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _: None
        return
    bar = _Bar(label, total)
    try:
        yield bar.step
    finally:
        bar.clear()


@contextmanager
def progress_of_steps() -> Iterator[Callable[[str, int, int], None]]:
    """A bar for work that calls ``step(what, done, total)``; another ``what`` starts again."""
    bar: _Bar | None = None

    def step(what: str, done: int, total: int) -> None:
        nonlocal bar
        if bar is None:
            bar = _Bar(what, total)
        bar.show(what, done, total)

    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield lambda _what, _done, _total: None
        return
    try:
        yield step
    finally:
        if bar is not None:
            bar.clear()


@contextmanager
def progress_of_tasks(label: str, quiet: bool = False) -> Iterator[Callable[[int, int, int], None] | None]:
    """A bar for work that calls ``show(done, total, active)``, in tasks; None if there is no terminal."""
    if quiet or not sys.stdout.isatty() or not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield None
        return
    bar = _TaskBar(label)
    try:
        yield bar.show_tasks
    finally:
        bar.clear()


class _Bar:
    def __init__(self, label: str, total: int) -> None:
        self._label, self._total, self._done = label, max(total, 1), 0
        self._due = time.monotonic() + QUIET_SECONDS
        self._drawn = False

    def step(self, count: int) -> None:
        """Note that ``count`` more are done."""
        self.show(self._label, self._done + count, self._total)

    def show(self, label: str, done: int, total: int) -> None:
        """Show that ``done`` of ``total`` are done."""
        self._label, self._done, self._total = label, done, max(total, 1)
        if time.monotonic() < self._due:
            return
        share = min(self._done / self._total, 1.0)
        filled = int(share * BAR_WIDTH)
        bar = "#" * filled + "-" * (BAR_WIDTH - filled)
        text = f"{_CLEAR_LINE}{self._label} [{bar}] {share:4.0%}{self._remarks()}"
        print(text, end="", file=sys.stderr, flush=True)
        self._drawn, self._due = True, time.monotonic() + REDRAW_SECONDS

    def _remarks(self) -> str:
        """What stands behind the bar."""
        return ""

    def clear(self) -> None:
        if self._drawn:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


class _TaskBar(_Bar):
    """A bar with the number of tasks, how many end per second, and the time left."""

    def __init__(self, label: str) -> None:
        super().__init__(label, 1)
        self._began, self._active = time.monotonic(), 0

    def show_tasks(self, done: int, total: int, active: int) -> None:
        self._active = active
        self.show(self._label, done, total)

    def _remarks(self) -> str:
        passed = time.monotonic() - self._began
        text = f"  {self._done}/{self._total} tasks, {self._active} running"
        if not self._done or passed <= 0:
            return text
        rate = self._done / passed
        return f"{text}, {rate:.1f}/s, {(self._total - self._done) / rate:.0f} s left"


class Activity:
    """A line on stderr that says for how long something has been going on; it goes away at the end.

    For work of unknown length: ``with Activity("running") as activity: … activity.show()``.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._began = time.monotonic()
        self._is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._drawn = False

    def show(self) -> None:
        passed = time.monotonic() - self._began
        if self._is_shown and passed >= QUIET_SECONDS:
            text = f"{_CLEAR_LINE}{self._label} … {passed:.0f} s, Ctrl-C ends it"
            print(text, end="", file=sys.stderr, flush=True)
            self._drawn = True

    def __enter__(self) -> Activity:
        return self

    def __exit__(self, *_: object) -> None:
        if self._drawn:
            print(_CLEAR_LINE, end="", file=sys.stderr, flush=True)


# ---- A table with a row for each of many databases: their paths first, counts to the right, what is long at the end.
#
# On a terminal a row is a line: paths lose their beginning and the last column its end, where there is no room.

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
