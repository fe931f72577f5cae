"""The shell's own commands.  They need no semicolon; everything else is SQL."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAME = r'("[^"]+"|[a-zA-Z_]\w*)'
_SWITCH = r"\s*=?\s*(on|off)"
_COMMANDS = {
    "exit": re.compile(r"exit|quit", re.I),
    "help": re.compile(r"help|\?", re.I),
    "autocommit": re.compile(r"set\s+autocommit" + _SWITCH, re.I),
    "timing": re.compile(r"set\s+timing" + _SWITCH, re.I),
    "feedback": re.compile(r"set\s+feedback" + _SWITCH, re.I),
    "output": re.compile(r"set\s+output\s+(table|csv|json|parquet)(?:\s+(?:to\s+)?('[^']+'|\S+))?", re.I),
    "tables": re.compile(r"show\s+tables", re.I),
    "describe": re.compile(rf"desc(?:ribe)?\s+{_NAME}", re.I),
}
HELP = """\
Statements end with a semicolon and may take several lines. Commands need none:

  describe TABLE                 columns, indexes and constraints of a table; also: desc
  show tables                    the tables that there are
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
    """The shell's own command that a text is; None if it is SQL."""
    text = text.strip().rstrip(";").strip()
    for name, pattern in _COMMANDS.items():
        match = pattern.fullmatch(text)
        if match is not None:
            return Command(name, tuple(match.groups("")))
    return None


def is_command(text: str) -> bool:
    return command_of(text) is not None
