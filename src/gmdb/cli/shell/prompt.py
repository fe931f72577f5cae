"""The terminal's side of the shell: lines to edit, history, completion, a line that says how things stand."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from prompt_toolkit import PromptSession
from prompt_toolkit.completion import CompleteEvent, Completer, Completion
from prompt_toolkit.document import Document
from prompt_toolkit.filters import Condition
from prompt_toolkit.history import FileHistory, History, InMemoryHistory

from gmdb.cli.shell.input import Pieces, is_command
from gmdb.errors import Error

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

PROMPT = "SQL>"
_WORDS = """
    add all alter analyze and as asc autocommit begin between by case cast check commit constraint create cross csv
    default delete desc describe distinct drop else end except exists exit explain false feedback for from full
    generated group having help identity in index inner insert intersect into is join json key left like limit not
    null nulls off offset on or order outer output over parquet partition primary quit release rename returning right
    rollback rownum savepoint select set show skip table tables tablespace then timing to true truncate union unique
    update using values when where with
    bigint binary boolean char date decimal double int integer interval numeric precision smallint text timestamp
    varbinary varchar
    abs avg ceil coalesce concat count floor length lower max min nullif now replace round substring sum trim upper
"""
KEYWORDS = _WORDS.split()
_WORD = re.compile(r'[\w"]+')
_TABLES = re.compile(r'\b(?:from|join|update|into|table|describe|desc)\s+([\w"]+)', re.I)


def history_path() -> Path:
    """The file with the history of typed statements."""
    home = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(home) / "gmdb" / "history"


def _history() -> History:
    path = history_path()
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        path.touch(mode=0o600)
    except OSError:
        return InMemoryHistory()  # the shell works without a writable home, but forgets its history
    return FileHistory(str(path))


class Prompt:
    """Reads statements from a terminal."""

    def __init__(self, connection: Callable[[], Connection], status: Callable[[], str]) -> None:
        self._session: PromptSession[str] = PromptSession(
            history=_history(),
            completer=Names(connection),
            complete_while_typing=False,
            multiline=Condition(self._is_unfinished),
            prompt_continuation=lambda width, line, soft: " " * width if soft else f"{line + 1:>{width - 1}}>",
            bottom_toolbar=status,
            enable_open_in_editor=True,
        )

    def _is_unfinished(self) -> bool:
        return not is_finished(self._session.default_buffer.text)

    def read(self, begun: str) -> str:
        """What is typed next, up to the end of a statement; ``begun`` is there already.  Raises EOFError at the end."""
        return self._session.prompt(PROMPT, default=begun)


def is_finished(text: str) -> bool:
    """Whether Enter ends the input: a statement has its semicolon, or it is a command or nothing."""
    return not text.strip() or is_command(text) or bool(Pieces().feed(text + "\n"))


class Names(Completer):
    """Keywords, tables, and the columns of the tables that the statement names."""

    def __init__(self, connection: Callable[[], Connection]) -> None:
        self._connection = connection

    def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
        del complete_event
        word = document.get_word_before_cursor(pattern=_WORD)
        wanted = word.lower()
        try:
            tables, columns = self._names(document.text)
        except Error:
            tables, columns = [], []  # the owner is gone, or the like: the next statement says so
        seen = set()
        for kind, names in (("column", columns), ("table", tables), ("", KEYWORDS)):
            for name in sorted(names):
                if wanted and name.lower().startswith(wanted) and name not in seen:
                    seen.add(name)
                    yield Completion(_cased(name, word) if not kind else name, -len(word), name, display_meta=kind)

    def _names(self, text: str) -> tuple[list[str], list[str]]:
        connection = self._connection()
        tables, views = connection.tables(), connection.views()
        named = {name.strip('"').lower() for name in _TABLES.findall(text)}
        columns = [c.name for table in tables if table.lower() in named for c in connection.table(table).columns]
        columns += [c.name for view in views if view.lower() in named for c in connection.view(view).columns]
        return [*tables, *views], columns


def _cased(keyword: str, word: str) -> str:
    return keyword.upper() if word.isupper() else keyword
