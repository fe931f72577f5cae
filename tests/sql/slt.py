"""Running .slt files: statements, and what they must do.

    statement ok                 the statement runs
    statement count 3            … and changes three rows
    statement error REGEX        … is refused, with an error of gmdb's that the regex finds something in
    query                        the rows follow below ----, a line each, values separated by | ; NULL, true, false
    query sorted                 the same, in any order

``session NAME`` before a record runs it in another session.  Records are separated by empty lines; # begins a comment.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

import gmdb

MAIN = "main"


@dataclass
class Record:
    line: int
    kind: str
    argument: str
    text: str
    session: str = MAIN
    expected: list[str] = field(default_factory=list)


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file."""
    block: list[tuple[int, str]] = []
    for number, raw in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        if raw.startswith("#"):
            continue
        if raw.strip():
            block.append((number, raw))
        elif block:
            yield _record(block)
            block = []


def _record(block: list[tuple[int, str]]) -> Record:
    session = MAIN
    if block[0][1].startswith("session "):
        session = block.pop(0)[1].split()[1]
    line, head = block[0]
    kind, _, argument = head.partition(" ")
    assert kind in ("statement", "query"), f"line {line}: {head}"
    lines = [text for _, text in block[1:]]
    at = lines.index("----") if "----" in lines else len(lines)
    return Record(line, kind, argument.strip(), "\n".join(lines[:at]), session, lines[at + 1 :])


def shown(value: Any) -> str:
    """A value as the files write it."""
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, float):
        return repr(value)
    return str(value)


class Player:
    """Plays the records of a file on a database."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sessions: dict[str, gmdb.connection.Connection] = {}

    def play(self, file: Path) -> int:
        """Play a file; answers how many records it had."""
        count = 0
        try:
            for record in read_records(file):
                count += 1
                try:
                    self._play(record)
                except AssertionError as error:
                    raise AssertionError(f"{file.name}, line {record.line}: {record.text}\n{error}") from None
        finally:
            for session in self._sessions.values():
                session.close()
        return count

    def _session(self, name: str) -> Any:
        if name not in self._sessions:
            self._sessions[name] = gmdb.connect(self._path, lock_timeout=0.2)
        return self._sessions[name]

    def _play(self, record: Record) -> None:
        db = self._session(record.session)
        if record.kind == "statement" and record.argument.startswith("error"):
            self._refused(db, record)
            return
        try:
            cursor = db.execute(record.text)
        except gmdb.Error as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from None
        if record.kind == "query":
            found = ["|".join(map(shown, row)) for row in cursor.fetchall()]
            expected = record.expected
            if record.argument == "sorted":
                found, expected = sorted(found), sorted(expected)
            assert found == expected, "\n".join(["found:", *found, "expected:", *expected])
        elif record.argument.startswith("count"):
            assert cursor.rowcount == int(record.argument.split()[1]), f"it changed {cursor.rowcount} rows"

    def _refused(self, db: Any, record: Record) -> None:
        pattern = record.argument.partition(" ")[2]
        try:
            cursor = db.execute(record.text)
            if cursor.description:
                cursor.fetchall()
        except gmdb.Error as error:
            said = f"{type(error).__name__}: {error}"
            assert re.search(pattern, said), f"{said}\nhas no {pattern}"
            return
        raise AssertionError("it was not refused")
