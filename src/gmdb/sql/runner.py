"""Running SQL on a connection: statements are prepared once and kept by their text."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from sqlglot import exp

from gmdb.dbapi import Result, sets_of
from gmdb.errors import InvalidSyntax, ProgrammingError
from gmdb.sql.analyze import Analyze
from gmdb.sql.commands import OwnCommand, TransactionCommand
from gmdb.sql.definitions import Definition
from gmdb.sql.insert import Insert
from gmdb.sql.parser import Command, Parsed, parse, split
from gmdb.sql.select import prepare_select
from gmdb.sql.statement import Parameters, Statement
from gmdb.sql.update import Delete, Update

if TYPE_CHECKING:
    from gmdb.connection import Connection

STATEMENTS_MAX = 512  # that a connection keeps

Prepare = Callable[["Connection", Any], Statement]
_KINDS: list[tuple[tuple[type, ...], Prepare]] = [
    ((exp.Query, exp.Values), prepare_select),
    ((exp.Insert,), Insert),
    ((exp.Update,), Update),
    ((exp.Delete,), Delete),
    ((exp.Transaction, exp.Commit, exp.Rollback), TransactionCommand),
    ((exp.Create, exp.Drop, exp.Alter, exp.TruncateTable), Definition),
    ((exp.Analyze,), Analyze),
]


class Runner:
    """The statements of one connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._session = connection.session
        self._prepared: OrderedDict[str, tuple[Parsed, Statement]] = OrderedDict()

    def run(self, text: str, parameters: Parameters) -> Result:
        """Run a statement.  If it fails it has done nothing, and the transaction goes on."""
        if self._session.closed:
            self._session.require_open()
        found = self._prepared.get(text)
        try:
            if found is None or not found[1].is_current():
                return self._prepare_and_run(text, parameters)
            parsed, statement = found
            return statement.run(parsed.check(parameters))
        except RecursionError:
            raise InvalidSyntax("the statement is nested too deeply") from None

    def _prepare_and_run(self, text: str, parameters: Parameters) -> Result:
        """Preparing may take a while, too, and be interrupted."""
        self._session.begin_work()
        try:
            parsed, statement = self._prepare_again(text)
            self._session.check_interrupted()
            return statement.run(parsed.check(parameters))
        finally:
            self._session.end_work()

    def run_many(self, text: str, sets: Iterable[Parameters] | Any) -> Result:
        self._session.require_open()
        parsed, statement = self._prepare_again(text)
        if isinstance(statement, Insert):
            return statement.run_bulk(parsed, sets)
        if isinstance(parsed.statement, exp.Query | exp.Values):
            raise ProgrammingError("executemany is for statements that change rows; a query finds rows by execute")
        return statement.run_many([parsed.check(given) for given in sets_of(sets)])

    def split(self, script: str) -> list[str]:
        return split(script)

    def _prepare_again(self, text: str) -> tuple[Parsed, Statement]:
        """The statement, prepared anew if tables have changed since it was."""
        found = self._prepared.get(text)
        if found is not None and found[1].is_current():
            return found
        parsed = found[0] if found is not None else parse(text)
        made = parsed, self.prepare(parsed)
        self._prepared[text] = made
        if len(self._prepared) > STATEMENTS_MAX:
            self._prepared.popitem(last=False)
        return made

    def prepare(self, parsed: Parsed) -> Statement:
        """A statement that can be run, for the tables as they are now."""
        if isinstance(parsed.statement, Command):
            return OwnCommand(self._connection, parsed.statement, self._prepare_text)
        for kinds, prepare in _KINDS:
            if isinstance(parsed.statement, kinds):
                return prepare(self._connection, parsed)
        raise InvalidSyntax(f"gmdb has no statement {type(parsed.statement).__name__.upper()}")

    def _prepare_text(self, text: str) -> Statement:
        return self.prepare(parse(text))
