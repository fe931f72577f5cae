"""Cutting what is typed or read into statements: each ends with a semicolon that is not in a text or a comment."""

from __future__ import annotations

import re
from typing import NamedTuple

_OPENING = re.compile(r"(?<!\w)[eE]'|'|\"|--|/\*|;|(?<!\w)\$(?:[A-Za-z_]\w*)?\$")
_CLOSING = {
    "'": re.compile("'"),
    "e'": re.compile(r"\\.|'", re.S),
    '"': re.compile('"'),
    "--": re.compile("\n"),
    "/*": re.compile(r"/\*|\*/"),
}
_COMMENTS = re.compile(r"--[^\n]*|/\*.*?\*/", re.S)


class Piece(NamedTuple):
    """A statement, and the line of its source on which it begins."""

    text: str
    line: int


class Pieces:
    """Takes lines, gives statements.  Every character is looked at once, however long a statement is."""

    def __init__(self) -> None:
        self._text = ""
        self._line = 1
        self._inside = ""  # the kind of text or comment that is open
        self._depth = 0  # of comments

    def feed(self, text: str) -> list[Piece]:
        """The statements that end in ``text``, which is one or more whole lines."""
        found: list[Piece] = []
        at = len(self._text)
        self._text += text
        while True:
            match = self._closing().search(self._text, at) if self._inside else _OPENING.search(self._text, at)
            if match is None:
                return found
            at = match.end()
            if self._inside:
                self._close(match.group())
            elif match.group() == ";":
                found += self._cut(match.start(), at)
                at = 0
            else:
                self._inside, self._depth = match.group().lower(), 1

    def _closing(self) -> re.Pattern[str]:
        return _CLOSING.get(self._inside) or re.compile(re.escape(self._inside), re.I)

    def _close(self, token: str) -> None:
        if self._inside == "/*":
            self._depth += 1 if token == "/*" else -1
            if self._depth:
                return
        elif token.startswith("\\"):
            return
        self._inside = ""

    def _cut(self, end: int, following: int) -> list[Piece]:
        piece, line = self._text[:end], self._line
        self._line += self._text.count("\n", 0, following)
        self._text = self._text[following:]
        if is_blank(piece):
            return []
        before = len(piece) - len(piece.lstrip())
        return [Piece(piece.strip(), line + piece.count("\n", 0, before))]

    @property
    def rest(self) -> str:
        """What was begun and has no end yet."""
        return "" if not self._inside and is_blank(self._text) else self._text

    def finish(self) -> list[Piece]:
        """At the end of a source: a last statement needs no semicolon."""
        return self._cut(len(self._text), len(self._text))


def is_blank(text: str) -> bool:
    return not _COMMENTS.sub("", text).strip()
