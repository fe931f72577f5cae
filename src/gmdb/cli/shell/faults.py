"""Errors as the shell tells them: the line of the statement, a caret below the place, then what is wrong."""

from __future__ import annotations

import re
from collections.abc import Iterator

from prompt_toolkit.utils import get_cwidth

from gmdb.cli.shell.pieces import Piece
from gmdb.inspect.canvas import Paint

_PLACE = re.compile(r"line (\d+), column (\d+): ")
_BEFORE_MAX, _AFTER_MAX = 60, 40  # characters of a long line that are shown around the place


def said_of(piece: Piece, error: BaseException, source: str, paint: Paint) -> Iterator[str]:
    """The lines to print.  ``source``: the name of the script, whose lines are counted then."""
    message = " ".join(str(error).split()) or type(error).__name__
    place = _PLACE.match(message)
    lines = piece.text.splitlines()
    number = int(place[1]) if place is not None else 1
    if place is not None and number <= len(lines):
        yield from _pointed_at(lines[number - 1], int(place[2]) - 1)
        message = message[place.end() :]
        if len(lines) > 1 and not source:
            message = f"line {number}: {message}"
    where = f"{source}:{piece.line + number - 1}: " if source else ""
    yield f"{paint.red}{where}error:{paint.off} {message}"


def _pointed_at(line: str, column: int) -> Iterator[str]:
    start = max(column - _BEFORE_MAX, 0)
    end = column + _AFTER_MAX
    before = "…" if start else ""
    head = before + line[start:column].replace("\t", " ")
    yield head + line[column:end].replace("\t", " ") + ("…" if end < len(line) else "")
    yield " " * get_cwidth(head) + "^"
