"""Runs SQL on a connection: statements are prepared once and cached by their text and the types of parameters."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from gmdb.database.dbapi import Result, sets_of
from gmdb.errors import InvalidSyntax, ProgrammingError, StatementError
from gmdb.format.columns import ColumnType
from gmdb.process.late_dataclasses import dataclass, field, replace
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.parser import Command, Parsed, parse, split, unknown_statement
from gmdb.sql.plan.planner import EXECUTOR
from gmdb.sql.prepared import NOT_CURRENT, Check, ParameterTypes, Quick, Statement
from gmdb.sql.run import Parameters
from gmdb.sql.statements.row_rules import know_rules
from gmdb.sql.syntax import changes_rows
from gmdb.sql.types import type_of_value
from gmdb.sql.zones import ZONE
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.sql.statements.insert import Insert

    Prepare = Callable[[Connection, Parsed, ParameterTypes], Statement]


# ---- EXPLAIN and EXPLAIN ANALYZE: how a statement is run, and what it took.

_LINE = ColumnType("VARCHAR", 4000)
_ANALYZE = late_pattern(r"(?:analyze\s+|\(\s*analyze\s*\)\s*)", re.I)


class Explain(Statement):
    """The plan of another statement; ``analyze``: which runs."""

    def __init__(
        self,
        connection: Connection,
        parsed: Parsed,
        types: ParameterTypes,
        prepare: Callable[[Parsed, ParameterTypes], Statement],
    ) -> None:
        super().__init__(connection, parsed, types)
        inner, self._runs = self.inner(parsed)
        self._statement = prepare(inner, types)
        self._count = len(inner.names) or inner.count
        self.tables, self.views = self._statement.tables, self._statement.views
        self.mean_the_same = self._statement.mean_the_same
        self.typed_parameters = self._statement.typed_parameters

    @staticmethod
    def inner(parsed: Parsed) -> tuple[Parsed, bool]:
        """The statement that is explained, and whether it is to run."""
        assert isinstance(parsed.statement, Command)
        (text,) = parsed.statement.arguments
        analyze = _ANALYZE.match(text)
        return parse(text[analyze.end() :] if analyze is not None else text), analyze is not None

    def run(self, parameters: Parameters) -> Result:
        if self._runs and len(parameters) < self._count:
            raise ProgrammingError(f"explain analyze runs the statement: give its {self._count} parameters")
        lines = self._statement.analyze(parameters) if self._runs else self.explain()
        return Result(("plan",), (_LINE,), len(lines), iter([(line,) for line in lines]))

    def explain(self) -> list[str]:
        return self._statement.explain()


# ---- Running SQL on a connection.

ATTEMPTS_MAX = 100  # at a statement whose tables are redefined each time before it runs
STATEMENTS_MAX = 512  # texts that a connection caches
VARIANTS_MAX = 16  # of each, for parameters of different types

# Statements by their class: the module below this package that has them, and the class there.
_KINDS: list[tuple[tuple[type, ...], str, str]] = [
    ((exp.Query, exp.Values), "queries", "Query"),
    ((exp.Insert,), "statements.insert", "Insert"),
    ((exp.Update,), "statements.update", "Update"),
    ((exp.Delete,), "statements.update", "Delete"),
    ((exp.Merge,), "statements.merge", "Merge"),
    ((exp.Transaction, exp.Commit, exp.Rollback), "statements.transactions", "TransactionCommand"),
    ((exp.Create, exp.Drop, exp.Alter, exp.TruncateTable), "statements.definitions", "Definition"),
    ((exp.Analyze,), "statements.analyze", "Analyze"),
]


@dataclass(slots=True)
class _Entry:
    """A text, and the statements prepared for it, each with a check whether parameters have its types."""

    parsed: Parsed
    variants: list[tuple[Check, Statement]] = field(default_factory=list)

    def statement(self, parameters: Parameters) -> Statement | None:
        """The statement for these parameters, if there is one that is current."""
        for fits, statement in self.variants:
            if fits(parameters):
                return statement if statement.is_current() else None
        return None

    def add(self, statement: Statement) -> None:
        """Add a statement, as the first that is tried."""
        self.variants = [one for one in self.variants if one[1].is_current()][: VARIANTS_MAX - 1]
        self.variants.insert(0, (statement.fits(), statement))


class Runner:
    """The statements of one connection.  ``executor``: the one that queries are to be planned for, if it can be."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.session = connection.session
        know_rules(connection._database.catalog)
        self._cache: OrderedDict[str, _Entry] = OrderedDict()
        self.quick: dict[str, Quick] = {}  # of texts in the cache, that of the statement which ran last
        self._executor: str | None = None
        self._time_zone = "UTC"

    @property
    def executor(self) -> str | None:
        return self._executor

    @executor.setter
    def executor(self, executor: str | None) -> None:
        self._executor = executor
        self.forget()

    def forget(self) -> None:
        """Prepare all statements anew: what they name may mean something else."""
        self._cache.clear()
        self.quick.clear()

    @property
    def time_zone(self) -> str:
        """By which statements read and write times; prepared ones have it in them."""
        return self._time_zone

    @time_zone.setter
    def time_zone(self, zone: str) -> None:
        self._time_zone = zone
        self._cache.clear()
        self.quick.clear()

    def run(self, text: str, parameters: Parameters) -> Result:
        """Run a statement.  If it fails it has done nothing, and the transaction goes on."""
        try:
            return self._run_whole(text, parameters)
        except RecursionError:
            raise InvalidSyntax("the statement is nested too deeply") from None

    @operation
    def _run_whole(self, text: str, parameters: Parameters) -> Result:
        """Prepare and run a statement; both can be interrupted.  If definitions change meanwhile, it is retried."""
        self.session.require_open()
        self.session.begin_work()
        zone = ZONE.set(self._time_zone)
        try:
            for attempts_left in range(ATTEMPTS_MAX, 0, -1):
                parameters, statement = self._statement(text, parameters)
                self.session.check_interrupted()
                try:
                    result = statement.run(parameters)
                    if statement.quick is not None and not statement.mean_the_same:  # a fast path does not ask that
                        self.quick[text] = statement.quick
                    return result
                except NOT_CURRENT:
                    if attempts_left == 1 or statement.is_current():
                        raise
            raise AssertionError("the last attempt returns or raises")
        finally:
            ZONE.reset(zone)
            self.session.end_work()

    @operation
    def run_many(self, text: str, sets: Iterable[Parameters] | Any) -> Result:
        self.session.require_open()
        zone = ZONE.set(self._time_zone)
        try:
            return self._run_sets(text, sets)
        finally:
            ZONE.reset(zone)

    def _run_sets(self, text: str, sets: Iterable[Parameters] | Any) -> Result:
        parsed = self._text(text).parsed
        if isinstance(parsed.statement, exp.Query | exp.Values):
            raise ProgrammingError("executemany is for statements that change rows; a query finds rows by execute")

        def each(parameters: Parameters) -> Result:
            parameters, statement = self._statement(text, parameters)
            return statement.run(parameters)

        if isinstance(parsed.statement, exp.Insert):
            from gmdb.sql.statements.insert import insert_many

            return insert_many(self._connection, parsed, self._open_insert(text, parsed), sets, each)
        checked = [parsed.check(given) for given in sets_of(sets)]
        changed = 0
        with self._connection.all_or_nothing():
            for parameters in checked:
                changed += max(each(parameters).rowcount, 0)
        return Result(rowcount=changed)

    def _open_insert(self, text: str, parsed: Parsed) -> Insert | None:
        """An INSERT for values of any types; None if it depends on them."""
        nulls: Parameters = dict.fromkeys(parsed.names) if parsed.names else (None,) * parsed.count
        try:
            _, insert = self._statement(text, nulls)
        except StatementError:
            return None
        return cast("Insert", insert)

    def split(self, script: str) -> list[str]:
        return split(script)

    def copy(self, connection: Any, text: str, file: Any) -> Result:
        """Carry out a COPY here, where its files are."""
        from gmdb.sql.copying import run_copy

        return run_copy(connection, text, file)

    def _text(self, text: str) -> _Entry:
        entry = self._cache.get(text)
        if entry is None:
            parsed = parse(text)
            if isinstance(parsed.statement, Command) and parsed.statement.name == "explain":
                inner, _ = Explain.inner(parsed)
                parsed = replace(parsed, names=inner.names, count=inner.count)
            entry = self._cache[text] = _Entry(parsed)
            if len(self._cache) > STATEMENTS_MAX:
                oldest, _ = self._cache.popitem(last=False)
                self.quick.pop(oldest, None)
        return entry

    def _statement(self, text: str, parameters: Parameters) -> tuple[Parameters, Statement]:
        """The checked parameters, and the statement for their types, prepared again if tables have changed."""
        entry = self._text(text)
        if isinstance(entry.parsed.statement, Command) and not parameters:
            return (), self.prepare(entry.parsed, _open_types(entry.parsed))  # EXPLAIN needs no values
        parameters = entry.parsed.check(parameters)
        statement = entry.statement(parameters)
        if statement is None:
            items: Iterable[tuple[Any, Any]] = (
                parameters.items() if isinstance(parameters, Mapping) else enumerate(parameters)
            )
            statement = self.prepare(entry.parsed, {key: type_of_value(value) for key, value in items})
            entry.add(statement)
        return parameters, statement

    def prepare(self, parsed: Parsed, types: ParameterTypes) -> Statement:
        """A statement that can be run, for the tables as they are now."""
        if isinstance(parsed.statement, Command):
            if parsed.statement.name == "explain":
                return Explain(self._connection, parsed, types, self.prepare)
            from gmdb.sql.statements.transactions import OwnCommand

            return OwnCommand(self._connection, parsed, types)
        token, zone = EXECUTOR.set(self._executor), ZONE.set(self._time_zone)
        try:
            if isinstance(parsed.statement, exp.Query) and changes_rows(parsed.statement):
                from gmdb.sql.statements.query_of_changes import QueryOfChanges

                return QueryOfChanges(self._connection, parsed, types)
            for kinds, module, name in _KINDS:
                if isinstance(parsed.statement, kinds):
                    prepare: Prepare = getattr(import_module(f"gmdb.sql.{module}"), name)
                    return prepare(self._connection, parsed, types)
        finally:
            EXECUTOR.reset(token)
            ZONE.reset(zone)
        raise unknown_statement(parsed.text)


def _open_types(parsed: Parsed) -> ParameterTypes:
    """Parameters whose values are not known yet."""
    return dict.fromkeys(parsed.names or range(parsed.count))
