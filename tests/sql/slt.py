"""Running .slt files: statements, and what they must do.

    statement ok                 the statement runs
    statement count 3            … and changes three rows
    statement error CLASS REGEX  … is refused with this class of gmdb.errors and a message that the regex finds
                                 something in (no regex: any message); the statement has changed nothing, and its
                                 transaction goes on
    query                        the rows follow below ----, a line each, values separated by | ; NULL, true, false
    query sorted                 the same, in any order

Lines before these, in any order:

    session NAME                 another session
    onlyif gmdb                  not for PostgreSQL
    twice                        the same once more as ``select * from (…)``, which another part of gmdb works out

Records are separated by empty lines; # begins a comment.  A file whose first record is nothing but ``onlyif gmdb`` is
for gmdb alone.  What the others expect is what PostgreSQL answers: tests/sql/slt_postgres.py plays them there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol

import gmdb
from gmdb import errors

MAIN = "main"
ONLY_GMDB = "onlyif gmdb"
NULL = "NULL"
DIGITS = 11  # that must agree where the last ones need not
_DECIMAL = re.compile(r"-?\d+(\.\d+)?")


@dataclass
class Record:
    line: int
    kind: str
    argument: str
    text: str
    session: str = MAIN
    expected: list[str] = field(default_factory=list)
    only_gmdb: bool = False
    twice: bool = False
    again: bool = False

    @property
    def is_refused(self) -> bool:
        return self.argument.startswith("error")

    @property
    def error(self) -> tuple[str, str]:
        """The class and the regex of a statement that is refused."""
        class_, _, pattern = self.argument.removeprefix("error").strip().partition(" ")
        return class_, pattern


def read_records(path: Path) -> Iterator[Record]:
    """The records of a file; one that is to be played twice comes twice."""
    block: list[tuple[int, str]] = []
    only_gmdb = False
    for number, raw in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        if raw.startswith("#"):
            continue
        if raw.strip():
            block.append((number, raw))
        elif [line for _, line in block] == [ONLY_GMDB]:
            only_gmdb, block = True, []
        elif block:
            record = _record(block, only_gmdb)
            yield record
            if record.twice:
                yield replace(record, text=f"select * from ({record.text}) as again", again=True)
            block = []


def _record(block: list[tuple[int, str]], only_gmdb: bool) -> Record:
    session, twice = MAIN, False
    while (word := block[0][1].split()[0]) in ("session", "onlyif", "twice"):
        line = block.pop(0)[1]
        session = line.split()[1] if word == "session" else session
        only_gmdb, twice = only_gmdb or line == ONLY_GMDB, twice or word == "twice"
    line_number, head = block[0]
    kind, _, argument = head.partition(" ")
    assert kind in ("statement", "query"), f"line {line_number}: {head}"
    lines = [text for _, text in block[1:]]
    at = lines.index("----") if "----" in lines else len(lines)
    text, expected = "\n".join(lines[:at]), lines[at + 1 :]
    return Record(line_number, kind, argument.strip(), text, session, expected, only_gmdb, twice)


def shown(value: Any) -> str:
    """A value as the files write it."""
    if value is None:
        return NULL
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, bytes):
        return "\\x" + value.hex()
    if isinstance(value, datetime):
        return value.isoformat(" ")
    if isinstance(value, float):
        return repr(value)
    return str(value)


class Plays(Protocol):
    """What plays records: gmdb here, PostgreSQL in slt_postgres.py."""

    def play(self, record: Record) -> None: ...

    def close(self) -> None: ...


def play_file(player: Plays, file: Path) -> int:
    """Play a file; answers how many records it had."""
    count = 0
    try:
        for record in read_records(file):
            count += 1
            try:
                player.play(record)
            except AssertionError as error:
                raise AssertionError(f"{file.name}, line {record.line}: {record.text}\n{error}") from None
    finally:
        player.close()
    return count


class Player:
    """Plays records on a database of gmdb."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._sessions: dict[str, gmdb.database.connection.Connection] = {}

    def close(self) -> None:
        for session in self._sessions.values():
            session.close()

    def _session(self, name: str) -> Any:
        if name not in self._sessions:
            self._sessions[name] = gmdb.connect(self._path, lock_timeout=0.2)
        return self._sessions[name]

    def play(self, record: Record) -> None:
        db = self._session(record.session)
        if record.is_refused:
            before = contents(db)
            self._refused(db, record)
            assert contents(db) == before, "it was refused, but has changed something"
            return
        try:
            cursor = db.execute(record.text)
            found = cursor.fetchall() if record.kind == "query" else []
        except gmdb.Error as error:
            raise AssertionError(f"{type(error).__name__}: {error}") from None
        if record.kind == "query":
            compare(["|".join(map(shown, row)) for row in found], record)
        elif record.argument.startswith("count"):
            assert cursor.rowcount == int(record.argument.split()[1]), f"it changed {cursor.rowcount} rows"

    def _refused(self, db: Any, record: Record) -> None:
        class_, pattern = record.error
        assert issubclass(getattr(errors, class_), errors.Error), class_
        try:
            cursor = db.execute(record.text)
            if cursor.description:
                cursor.fetchall()
        except gmdb.Error as error:
            said = error
        else:
            raise AssertionError("it was not refused")
        assert type(said).__name__ == class_, f"{type(said).__name__}: {said}\nis no {class_}"
        assert re.search(pattern, str(said)), f"{type(said).__name__}: {said}\nhas no {pattern}"


def compare(found: list[str], record: Record) -> None:
    expected = record.expected
    if record.argument == "sorted":
        found, expected = sorted(found), sorted(expected)
    same = found == expected or (record.again and all(map(nearly, found, expected)) and len(found) == len(expected))
    assert same, "\n".join(["found:", *found, "expected:", *expected])


def nearly(one: str, other: str) -> bool:
    """Whether rows or values are the same but for the last digits of numbers: quotients and roots have as many as
    suits whoever works them out."""
    pairs = list(zip(one.split("|"), other.split("|"), strict=False))
    return one.count("|") == other.count("|") and all(a == b or _same_number(a, b) for a, b in pairs)


def _same_number(a: str, b: str) -> bool:
    if not _DECIMAL.fullmatch(a) or not _DECIMAL.fullmatch(b) or "." not in a + b:
        return False
    return abs(Decimal(a) - Decimal(b)) <= max(abs(Decimal(b)), Decimal(1)).scaleb(-DIGITS)


def contents(db: Any) -> dict[str, str]:
    """The tables that a session sees: their definitions, and their rows with row ids."""
    found = {}
    for name in db.tables():
        try:
            found[name] = f"{db.table(name)}: {list(db.select(name).rows())}"
        except errors.LockTimeout:  # somebody else is defining it anew
            found[name] = "held"
    return found
