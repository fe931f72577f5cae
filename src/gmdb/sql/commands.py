"""Transactions and the statements that are gmdb's own."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.dbapi import Result
from gmdb.errors import NoSuchTablespace
from gmdb.format.columns import ColumnType
from gmdb.sql.parser import Command, Parsed
from gmdb.sql.scope import folded
from gmdb.sql.statement import Parameters, Statement

if TYPE_CHECKING:
    from gmdb.connection import Connection

_LINE = ColumnType("VARCHAR", 4000)
_NUMBER = re.compile(r"(page_?size|devices|device_pages)\s*=?\s*(\d+)", re.I)
_OPTIONS = {"page_size": "page_size", "pagesize": "page_size", "devices": "devices", "device_pages": "device_pages_max"}


def lines(name: str, said: list[str]) -> Result:
    """Some lines of text as rows."""
    return Result((name,), (_LINE,), len(said), iter([(line,) for line in said]))


class TransactionCommand(Statement):
    """BEGIN, COMMIT, ROLLBACK, ROLLBACK TO."""

    def __init__(self, connection: Connection, parsed: Parsed) -> None:
        super().__init__(connection)
        self._node: Any = parsed.statement

    def run(self, parameters: Parameters) -> Result:
        del parameters
        if isinstance(self._node, exp.Transaction):
            self.connection.begin()
        elif isinstance(self._node, exp.Commit):
            self.connection.commit()
        elif self._node.args.get("savepoint") is not None:
            self.connection.rollback_to(folded(self._node.args["savepoint"]))
        else:
            self.connection.rollback()
        return Result()

    def explain(self) -> list[str]:
        return [self._node.sql()]


class OwnCommand(Statement):
    """SAVEPOINT, RELEASE, SET AUTOCOMMIT, CREATE and DROP TABLESPACE, EXPLAIN, DESCRIBE."""

    def __init__(self, connection: Connection, command: Command, prepare: Callable[[str], Statement]) -> None:
        super().__init__(connection)
        self._command = command
        self._prepare = prepare

    def run(self, parameters: Parameters) -> Result:
        del parameters
        run: Callable[..., Result | None] = getattr(self, f"_{self._command.name}")
        return run(*self._command.arguments) or Result()

    def explain(self) -> list[str]:
        return [self._command.name]

    def _savepoint(self, name: str) -> None:
        self.connection.savepoint(_plain(name))

    def _release(self, name: str) -> None:
        self.connection.release_savepoint(_plain(name))

    def _autocommit(self, value: str) -> None:
        self.connection.autocommit = value.lower() in ("on", "true", "1")

    def _tablespace(self, name: str, options: str) -> None:
        numbers = {_OPTIONS[word.lower()]: int(number) for word, number in _NUMBER.findall(options)}
        self.connection.create_tablespace(_plain(name), **numbers)

    def _drop_tablespace(self, if_exists: str, name: str) -> None:
        with suppress(NoSuchTablespace) if if_exists else nullcontext():
            self.connection.drop_tablespace(_plain(name))

    def _explain(self, text: str) -> Result:
        return lines("plan", self._prepare(text).explain())

    def _describe(self, name: str) -> Result:
        table = self.connection.table(_plain(name))
        rows = [(c.name, str(c.type), "YES" if c.nullable else "NO") for c in table.columns]
        return Result(("column", "type", "nullable"), (_LINE, _LINE, _LINE), len(rows), iter(rows))


def _plain(name: str) -> str:
    return name[1:-1] if name.startswith('"') else name.lower()
