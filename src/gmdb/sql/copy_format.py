"""The two formats of COPY, as PostgreSQL has them: lines of values, and how each value is written.

Invariants
 1. Reading what was written gives the same values, NULL and empty texts told apart.
 2. A line that is not as the format says is refused, with its number.
Not here: which table or file (copying.py), what a value's text means (casts.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from gmdb.errors import InvalidText
from gmdb.process.late_dataclasses import dataclass

_OTHERWISE = "it ends otherwise than the lines before it"
_END = "\\."  # alone in a line: no data follows
_ESCAPES = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_WRITTEN = {value: f"\\{letter}" for letter, value in _ESCAPES.items()} | {"\\": "\\\\"}
_ESCAPED = re.compile(r"\\(?:([0-7]{1,3})|x([0-9A-Fa-f]{1,2})|(.|\Z))", re.S)


@dataclass(frozen=True, slots=True)
class Format:
    """``forced_null`` and ``forced_text``: positions of columns whose quoted, or unquoted, values are looked at as the
    others would be; ``forced_quote``: those that are always quoted."""

    is_csv: bool
    delimiter: str
    null: str
    quote: str = '"'
    escape: str = '"'
    forced_quote: frozenset[int] = frozenset()
    forced_null: frozenset[int] = frozenset()
    forced_text: frozenset[int] = frozenset()

    # ---- reading

    def rows(self, lines: Iterable[str]) -> Iterator[tuple[int, list[str | None]]]:
        """The values of each line, with its number."""
        numbered = _Lines(lines)
        return self._csv_rows(numbered) if self.is_csv else self._text_rows(numbered)

    def _text_rows(self, lines: _Lines) -> Iterator[tuple[int, list[str | None]]]:
        null, delimiter = self.null, self.delimiter
        for number, raw in lines:
            line = lines.stripped(number, raw)
            if line == _END:
                return
            if "\\" not in line:
                yield number, [None if value == null else value for value in line.split(delimiter)]
                continue
            whole = line
            while _ends_open(whole):  # a backslash before the end of the line stands for that
                following = next(lines, None)
                if following is None:
                    break
                whole += "\n" + lines.stripped(*following)
            values = _split(whole, delimiter)
            yield number, [None if value == null else _unescaped(value, number) for value in values]

    def _csv_rows(self, lines: _Lines) -> Iterator[tuple[int, list[str | None]]]:
        quote, null, delimiter, forced_text = self.quote, self.null, self.delimiter, self.forced_text
        for number, raw in lines:
            if quote in raw:
                yield number, self._quoted(number, raw, lines)
                continue
            line = lines.stripped(number, raw)
            if line == _END:
                return
            values: list[str | None] = [
                None if value == null and n not in forced_text else value
                for n, value in enumerate(line.split(delimiter))
            ]
            yield number, values

    def _quoted(self, number: int, line: str, lines: _Lines) -> list[str | None]:
        """The values of a line with quotes, and of those behind it as long as one is open."""
        values: list[str | None] = []
        parts: list[str] = []
        is_open, was_quoted, at = False, False, 0
        while is_open or line[at:] not in ("", lines.end):
            if at == len(line):
                following = next(lines, None)
                if following is None:
                    raise InvalidText(f"line {number}: a quote is not closed")
                line, at = following[1], 0
            sign = line[at]
            at += 1
            if is_open and sign == self.escape and line[at : at + 1] and line[at] in (self.quote, self.escape):
                parts.append(line[at])
                at += 1
            elif sign == self.quote:
                is_open, was_quoted = not is_open, True
            elif is_open or sign != self.delimiter:
                if not is_open and sign in "\r\n":
                    raise InvalidText(f"line {number}: {_OTHERWISE}")
                parts.append(sign)
            else:
                values.append(self._value("".join(parts), was_quoted, len(values)))
                parts, was_quoted = [], False
        values.append(self._value("".join(parts), was_quoted, len(values)))
        return values

    def _value(self, text: str, was_quoted: bool, position: int) -> str | None:
        is_null = text == self.null
        if was_quoted:
            return None if is_null and position in self.forced_null else text
        return None if is_null and position not in self.forced_text else text

    # ---- writing

    def line(self, values: Sequence[str | None]) -> str:
        write = self._csv_value if self.is_csv else self._text_value
        line = self.delimiter.join(write(value, n, len(values)) for n, value in enumerate(values))
        return line + "\n"

    def _text_value(self, value: str | None, _position: int, _count: int) -> str:
        if value is None:
            return self.null
        signs = (_WRITTEN.get(sign) or (f"\\{sign}" if sign == self.delimiter else sign) for sign in value)
        return "".join(signs) if not value.isalnum() else value

    def _csv_value(self, value: str | None, position: int, count: int) -> str:
        if value is None:
            return self.null
        is_odd = value == self.null or (count == 1 and value == _END) or position in self.forced_quote
        if not is_odd and not any(sign in value for sign in (self.delimiter, self.quote, "\n", "\r")):
            return value
        for sign in dict.fromkeys((self.escape, self.quote)):
            value = value.replace(sign, self.escape + sign)
        return f"{self.quote}{value}{self.quote}"


class _Lines:
    """Lines with their numbers.  ``end``: what they end with, which must be the same for all, but within quotes."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines = iter(lines)
        self._number = 0
        self.end = ""

    def __iter__(self) -> Iterator[tuple[int, str]]:
        return self

    def __next__(self) -> tuple[int, str]:
        line = next(self._lines)
        while line.endswith("\r") and (more := next(self._lines, None)) is not None:
            line += more  # a file of texts may take that for the end of a line
        self._number += 1
        self.end = self.end or ("\r\n" if line.endswith("\r\n") else "\n" if line.endswith("\n") else "")
        return self._number, line

    def stripped(self, number: int, line: str) -> str:
        """A line without its end."""
        if line.endswith("\n"):
            line = line[: -len(self.end)] if line.endswith(self.end) else line
        if line[-1:] in ("\r", "\n"):
            raise InvalidText(f"line {number}: {_OTHERWISE}")
        return line


def _ends_open(line: str) -> bool:
    return (len(line) - len(line.rstrip("\\"))) % 2 == 1


def _split(line: str, delimiter: str) -> list[str]:
    """The values of a line, in which a backslash keeps the sign behind it from being a delimiter."""
    values, begin = [], 0
    for match in re.finditer(rf"\\.|{re.escape(delimiter)}", line, re.S):
        if match.group() == delimiter:
            values.append(line[begin : match.start()])
            begin = match.end()
    return [*values, line[begin:]]


def _unescaped(value: str, number: int) -> str:
    if "\\" not in value:
        return value

    def sign(match: re.Match[str]) -> str:
        octal, hexadecimal, other = match.groups()
        if octal or hexadecimal:
            code = int(octal, 8) & 0xFF if octal else int(hexadecimal, 16)
            if code > 0x7F:
                raise InvalidText(f"line {number}: bytes beyond ASCII are not written as {match.group()!r} here")
            return chr(code)
        return _ESCAPES.get(other, other or "\\")

    return _ESCAPED.sub(sign, value)
