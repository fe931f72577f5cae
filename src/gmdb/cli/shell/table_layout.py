"""Rows as a table: headings in capitals, dashes as wide as the column, values to the left.

A column is as wide as its type's values can be, so that rows can be printed as they come: an INT has 11 places, a
VARCHAR(10) has 10.  If that is over ``TYPE_WIDTH_MAX``, the rows that came first decide, with some room to spare if
others follow; a longer value goes on in the next line, below where it began.  Rows that are wider than the terminal
are written a column a line.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from itertools import zip_longest
from typing import Any

from gmdb.format.columns import ColumnType
from gmdb.inspect.canvas import PLAIN, Paint
from gmdb.sql.arrays import array_text

# ---- Values as the shell writes them.

NULL = "NULL"


def text_of(value: Any) -> str:
    """A value that is not None as text that SQL would read back; bytes are hexadecimal."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, list):
        return array_text(value, text_of)
    return str(value)


def json_of(value: Any) -> str:
    """A value as JSON; a decimal keeps all its digits, and what JSON has no number for is a text."""
    if value is None:
        return "null"
    if isinstance(value, bool | Decimal) or (isinstance(value, float) and math.isfinite(value)):
        return text_of(value)
    if isinstance(value, int):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(json_of, value))}]"
    return json.dumps(text_of(value), ensure_ascii=False)


def csv_of(value: Any) -> str:
    """A value as a field: NULL is nothing at all, an empty text is quoted."""
    if value is None:
        return ""
    text = text_of(value)
    if text == "" or any(c in text for c in ',"\r\n') or text != text.strip():
        return '"' + text.replace('"', '""') + '"'
    return text


# ---- Rows as a table.

TYPE_WIDTH_MAX = 30
WIDTH_MAX = 60  # of a column whose width the first rows decide
NARROW = 12  # a column of long texts may be made as narrow as this, so that a row fits the terminal
_WIDTHS = {
    **{"SMALLINT": 6, "INT": 11, "BIGINT": 20, "REAL": 15, "DOUBLE": 24, "BOOLEAN": 5, "UUID": 36},
    **{"DATE": 10, "TIME": 15, "TIMESTAMP": 26, "TIMESTAMPTZ": 32},
}
Row = tuple[Any, ...]


def width_of(text: str) -> int:
    """How many columns of a terminal a text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    from prompt_toolkit.utils import get_cwidth  # knows of wide and combining characters; most texts have none

    return get_cwidth(text)


class Layout:
    """How the rows of one result are written."""

    def __init__(
        self,
        names: Sequence[str],
        types: Sequence[ColumnType | None],
        first: Sequence[Row],
        room: int | None,
        paint: Paint = PLAIN,
        others_follow: bool = False,
    ) -> None:
        """``first`` are rows to go by, ``room`` is how many places a line has, if it has an end."""
        self._headings = [shown(name.upper())[0] for name in names]
        self._null = f"{paint.dim}{NULL}{paint.off}"
        self._widths = [
            max(width_of(heading), _type_width(type_) or _width_of_rows(first, n, others_follow), len(NULL))
            for n, (heading, type_) in enumerate(zip(self._headings, types, strict=True))
        ]
        self._is_text = [_type_width(type_) is None for type_ in types]
        self._fit(room)
        self._by_column = room is not None and self._total() > room
        self._count = 0

    def _total(self) -> int:
        return sum(self._widths) + len(self._widths) - 1

    def _fit(self, room: int | None) -> None:
        """Take places from the columns of long texts, the widest first, as far as that helps."""
        if room is None:
            return
        low = [max(NARROW, width_of(heading)) for heading in self._headings]
        shrinkable = [n for n, is_text in enumerate(self._is_text) if is_text and self._widths[n] > low[n]]
        if self._total() - sum(self._widths[n] - low[n] for n in shrinkable) > room:
            return
        while self._total() > room:
            widest = max((n for n in shrinkable if self._widths[n] > low[n]), key=lambda n: self._widths[n])
            self._widths[widest] -= 1

    def head(self) -> list[str]:
        if self._by_column:
            return []
        return [self._line(self._headings), self._line(["-" * width for width in self._widths])]

    def lines(self, row: Row) -> Iterator[str]:
        if self._by_column:
            yield from self._column_lines(row)
            return
        simple = []
        for value, width in zip(row, self._widths, strict=True):
            text = "\n" if value is None else text_of(value)
            if len(text) > width or not text.isascii() or not text.isprintable():
                break
            simple.append(text.ljust(width))
        else:
            yield " ".join(simple).rstrip()
            return
        cells = [self._cell(value, width) for value, width in zip(row, self._widths, strict=True)]
        for parts in zip_longest(*cells, fillvalue=""):
            yield self._line(parts)

    def _cell(self, value: Any, width: int) -> list[str]:
        return [self._null] if value is None else wrapped(text_of(value), width)

    def _line(self, cells: Sequence[str]) -> str:
        padded = [cell + " " * (width - self._places(cell)) for cell, width in zip(cells, self._widths, strict=True)]
        return " ".join(padded).rstrip()

    def _places(self, cell: str) -> int:
        return len(NULL) if cell == self._null else width_of(cell)

    def _column_lines(self, row: Row) -> Iterator[str]:
        self._count += 1
        if self._count > 1:
            yield ""
        yield f"ROW {self._count}"
        width = max((width_of(heading) for heading in self._headings), default=0)
        for heading, value in zip(self._headings, row, strict=True):
            cell = [self._null] if value is None else shown(text_of(value))
            yield f"{heading}{' ' * (width - width_of(heading))} {cell[0]}".rstrip()
            yield from (" " * (width + 1) + part for part in cell[1:])


def shown(text: str) -> list[str]:
    """The lines of a text; what would steer a terminal is written as an escape."""
    if text.isprintable():
        return [text]
    return ["".join(c if c.isprintable() else _escaped(c) for c in line) for line in text.split("\n")]


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of so many places at most; a character that has two is not cut in half."""
    if len(text) <= width and text.isascii() and text.isprintable():
        return [text]
    lines = []
    for line in shown(text):
        start, places = 0, 0
        for at, character in enumerate(line):
            wide = width_of(character)
            if places + wide > width and at > start:
                lines.append(line[start:at])
                start, places = at, 0
            places += wide
        lines.append(line[start:])
    return lines


def _type_width(type_: ColumnType | None) -> int | None:
    """The places of the widest value of a type; None if that is too many, or not known."""
    if type_ is None or type_.is_array:
        return None
    if type_.name == "DECIMAL":
        width = type_.length + 2
    elif type_.name in ("BINARY", "VARBINARY"):
        width = 2 + 2 * type_.bytes_max
    else:
        width = _WIDTHS.get(type_.name, type_.length)
    return width if 0 < width <= TYPE_WIDTH_MAX else None


def _width_of_rows(rows: Sequence[Row], column: int, others_follow: bool) -> int:
    texts = (shown(text_of(row[column])) for row in rows if row[column] is not None)
    width_seen = max((width_of(line) for lines in texts for line in lines), default=0)
    return min(width_seen + width_seen // 2 if others_follow else width_seen, WIDTH_MAX)
