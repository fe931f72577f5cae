"""The shell's input: cut into statements, distinguished from the shell's own commands, quoted in errors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from gmdb.cli.shell.table_layout import width_of
from gmdb.inspect.canvas import Paint
from gmdb.process.late_patterns import late_pattern

# ---- Cutting input into statements: each ends with a semicolon that is not in a string or a comment.

_OPENING = late_pattern(r"(?<!\w)[eE]'|'|\"|--|/\*|;|(?<!\w)\$(?:[A-Za-z_]\w*)?\$")
_CLOSING = {
    "'": late_pattern("'"),
    "e'": late_pattern(r"\\.|'", re.S),
    '"': re.compile('"'),
    "--": late_pattern("\n"),
    "/*": late_pattern(r"/\*|\*/"),
}
_COMMENTS = late_pattern(r"--[^\n]*|/\*.*?\*/", re.S)


class Piece(NamedTuple):
    """A statement, and the line of its source on which it begins."""

    text: str
    line: int


class Pieces:
    """Takes lines, returns statements.  Every character is scanned once, however long a statement is."""

    def __init__(self) -> None:
        self._text = ""
        self._line = 1
        self._inside = ""  # the kind of text or comment that is open
        self._depth = 0  # of comments

    def feed(self, text: str) -> list[Piece]:
        """The statements that end in ``text``, which is one or more whole lines."""
        pieces: list[Piece] = []
        at = len(self._text)
        self._text += text
        while True:
            match = self._closing().search(self._text, at) if self._inside else _OPENING.search(self._text, at)
            if match is None:
                return pieces
            at = match.end()
            if self._inside:
                self._close(match.group())
            elif match.group() == ";":
                pieces += self._cut(match.start(), at)
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
        """A statement that was begun and is not complete yet."""
        return "" if not self._inside and is_blank(self._text) else self._text

    def finish(self) -> list[Piece]:
        """At the end of a source: a last statement needs no semicolon."""
        return self._cut(len(self._text), len(self._text))


def is_blank(text: str) -> bool:
    return not _COMMENTS.sub("", text).strip()


# ---- The shell's own commands.  They need no semicolon; everything else is SQL.

_NAME = r'("[^"]+"|[a-zA-Z_]\w*)'
_SWITCH = r"\s*=?\s*(on|off)"
_COMMANDS = {
    "exit": late_pattern(r"exit|quit", re.I),
    "help": late_pattern(r"help|\?", re.I),
    "autocommit": late_pattern(r"set\s+autocommit" + _SWITCH, re.I),
    "timing": late_pattern(r"set\s+timing" + _SWITCH, re.I),
    "feedback": late_pattern(r"set\s+feedback" + _SWITCH, re.I),
    "output": late_pattern(r"set\s+output\s+(table|csv|json|parquet)(?:\s+(?:to\s+)?('[^']+'|\S+))?", re.I),
    "tables": late_pattern(r"show\s+tables", re.I),
    "describe": late_pattern(rf"desc(?:ribe)?\s+{_NAME}", re.I),
}
_COMMAND_WORDS = {  # with which they begin
    **dict.fromkeys(("exit", "quit"), ("exit",)),
    **dict.fromkeys(("help", "?"), ("help",)),
    **dict.fromkeys(("desc", "describe"), ("describe",)),
    **{"set": ("autocommit", "timing", "feedback", "output"), "show": ("tables",)},
}
HELP = """\
Statements end with a semicolon and may take several lines. Commands need none:

  describe TABLE                 columns, indexes and constraints of a table; also: desc
  show tables                    the tables and views that there are
  set autocommit on|off          on: every statement is a transaction; off: until commit or rollback
  set feedback on|off            on: say how many rows a statement found or changed
  set timing on|off              on: say how long a statement took
  set output FORMAT [FILE]       results as table, csv, json or parquet; with FILE, into that file
  help                           this
  exit, quit                     leave; what is not committed is rolled back

Ctrl-C ends the statement that is running, Ctrl-D leaves, Tab completes a name.
"""


class Command(NamedTuple):
    name: str
    arguments: tuple[str, ...]


def command_of(text: str) -> Command | None:
    """The text as a command of the shell; None if it is SQL."""
    text = text.strip().rstrip(";").strip()
    for name in _COMMAND_WORDS.get(text.split(maxsplit=1)[0].lower() if text else "", ()):
        match = _COMMANDS[name].fullmatch(text)
        if match is not None:
            return Command(name, tuple(match.groups("")))
    return None


def is_command(text: str) -> bool:
    return command_of(text) is not None


# ---- Errors as the shell prints them: the line of the statement, a caret below the place, then the message.

_PLACE = late_pattern(r"line (\d+), column (\d+): ")
_BEFORE_MAX, _AFTER_MAX = 60, 40  # characters of a long line that are shown around the place


def error_lines(piece: Piece, error: BaseException, source: str, paint: Paint) -> Iterator[str]:
    """The lines to print.  ``source``: the script's name, if there is one; its lines are numbered then."""
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
    yield " " * width_of(head) + "^"
