"""EXPLAIN and EXPLAIN ANALYZE: how a statement is run, and what it took."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from gmdb.dbapi import Result
from gmdb.errors import ProgrammingError
from gmdb.format.columns import ColumnType
from gmdb.sql.parser import Command, Parsed, parse
from gmdb.sql.prepared import Parameters, ParameterTypes, Statement

if TYPE_CHECKING:
    from gmdb.connection import Connection

_LINE = ColumnType("VARCHAR", 4000)
_ANALYZE = re.compile(r"(?:analyze\s+|\(\s*analyze\s*\)\s*)", re.I)


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
        self.tables, self.asked = self._statement.tables, self._statement.asked

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
        said = self._statement.analyze(parameters) if self._runs else self.explain()
        return Result(("plan",), (_LINE,), len(said), iter([(line,) for line in said]))

    def explain(self) -> list[str]:
        return self._statement.explain()
