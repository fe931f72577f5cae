"""The box that pages are drawn in: an offset before it, a value in words and a meaning behind it.

12  |             page_id           | 16777223     4:7           where this page belongs
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from typing import NamedTuple

BOX_WIDTH = 33
SECTION_WIDTH = 13
BYTES_PER_LINE = 8
BYTES_SHOWN = 96


class Line(NamedTuple):
    offset: int | None
    label: str
    value: str = ""
    words: str = ""
    meaning: str = ""


class Block(NamedTuple):
    """The lines of one entry of a page, and the bytes it takes."""

    start: int
    end: int
    lines: list[Line]


class Paint(NamedTuple):
    """Terminal escapes; all empty where there is no colour."""

    dim: str = ""
    bold: str = ""
    red: str = ""
    off: str = ""


PLAIN = Paint()
COLOURED = Paint(dim="\033[2m", bold="\033[1m", red="\033[31m", off="\033[0m")
RULE = Line(None, "+" + "-" * BOX_WIDTH + "+")


def printable(text: str) -> str:
    """The text with control characters as dots: names from damaged bytes must not steer a terminal."""
    return text if text.isprintable() else "".join(c if c.isprintable() else "·" for c in text)


def labelled(section: str, field: str) -> str:
    return f" {section:<{SECTION_WIDTH}}{field}" if section or field else ""


def section_line(offset: int | None, section: str, field: str, *texts: str) -> Line:
    return Line(offset, labelled(section, field), *texts)


def byte_lines(raw: bytes, offset: int, beside: dict[int, str] | None = None, full: bool = False) -> Iterator[Line]:
    """Bytes in hexadecimal, eight a line; ``beside`` has texts to print beside lines, by line number."""
    notes = dict(beside or {})
    shown = len(raw) if full or len(raw) <= BYTES_SHOWN + BYTES_PER_LINE else BYTES_SHOWN
    for start in range(0, shown, BYTES_PER_LINE):
        label = " " + "  ".join(f"{byte:02x}" for byte in raw[start : start + BYTES_PER_LINE])
        yield Line(offset + start, label, notes.pop(start // BYTES_PER_LINE, ""))
    rest = ", ".join(note for _, note in sorted(notes.items()))
    if shown < len(raw):
        yield Line(offset + shown, "   ...", f"{len(raw) - shown} more bytes; --full shows them{rest and ': ' + rest}")
    elif rest:
        yield Line(None, "", rest)


def render(lines: Iterable[Line], paint: Paint = PLAIN, marked: Iterable[int] = ()) -> Iterator[str]:
    """The drawing's lines as text; lines that an offset of ``marked`` lies on are flagged as wrong."""
    lines = list(lines)
    starts = sorted(line.offset for line in lines if line.offset is not None)
    wrong = {starts[max(bisect_right(starts, offset) - 1, 0)] for offset in marked} if starts else set()
    for line in lines:
        if line == RULE:
            yield f"{paint.dim}        {line.label}{paint.off}"
            continue
        is_wrong = line.offset is not None and line.offset in wrong
        at = "" if line.offset is None else str(line.offset)
        before = f"{paint.red if is_wrong else paint.dim}{'!' if is_wrong else ' '}{at:>5}  {paint.off}"
        value = printable(line.value)
        behind = f"{value:<12} {line.words:<15} " if line.meaning else f"{value:<12} {line.words}"
        text = f"{before}|{line.label:<{BOX_WIDTH}}| {behind.rstrip() if not line.meaning else behind}"
        yield f"{text}{paint.dim}{line.meaning}{paint.off}" if line.meaning else text.rstrip()
