"""Transactions, and the statements that are gmdb's own."""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from gmdb.database.dbapi import Result
from gmdb.errors import InvalidSyntax, NoSuchTable, NoSuchTablespace, UnsupportedExpression
from gmdb.sql.parser import NAME, Command, Parsed
from gmdb.sql.prepared import ParameterTypes, Statement
from gmdb.sql.run import Parameters
from gmdb.sql.statements import settings
from gmdb.sql.statements.definitions import validate
from gmdb.sql.statements.sequences import run_sequence
from gmdb.sql.syntax import folded, reading
from gmdb.sql.types import TEXT
from gmdb.transaction.snapshots import ISOLATION_LEVELS

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

_NUMBER = re.compile(r"(page_?size|devices|device_pages)\s*=?\s*(\d+)", re.I)
_NAMES = re.compile(NAME, re.I)
_OPTIONS = {"page_size": "page_size", "pagesize": "page_size", "devices": "devices", "device_pages": "device_pages_max"}
_MODE = re.compile(
    r"isolation level (serializable|repeatable read|read committed|read uncommitted)|read write|read only"
    r"|not deferrable|deferrable"
)


class TransactionCommand(Statement):
    """BEGIN, COMMIT, ROLLBACK, ROLLBACK TO."""

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        super().__init__(connection, parsed, types)
        node: Any = parsed.statement
        self._node = node
        self._savepoint = ""
        with reading(node) as syntax:
            if isinstance(node, exp.Rollback):
                named = syntax.take("savepoint")
                self._savepoint = "" if named is None else folded(named)

    def run(self, parameters: Parameters) -> Result:
        del parameters
        if isinstance(self._node, exp.Transaction):
            self.connection.begin()
        elif isinstance(self._node, exp.Commit):
            self.connection.commit()
        elif self._savepoint:
            self.connection.rollback_to(self._savepoint)
        else:
            self.connection.rollback()
        return Result()

    def explain(self) -> list[str]:
        return [self._node.sql()]


def _modes(text: str) -> dict[str, Any]:
    """The modes of a transaction, as ``set_transaction`` takes them."""
    text = " ".join(text.lower().split())
    rest, modes = _MODE.sub("", text).strip(" ,"), dict[str, Any]()
    if rest or not text:
        raise InvalidSyntax(f"syntax error: a transaction is not {rest}" if rest else "syntax error: which mode?")
    for match in _MODE.finditer(text):
        name, value = "read_only", cast(Any, match[0] == "read only")
        if match[0] == "not deferrable":
            continue  # as all are
        if match[0] == "deferrable":
            raise UnsupportedExpression("transactions cannot be DEFERRABLE")
        if match[1]:
            name, value = "isolation", match[1].replace("uncommitted", "committed")
            if value not in ISOLATION_LEVELS:
                raise UnsupportedExpression(f"isolation level {value} is not one of {', '.join(ISOLATION_LEVELS)}")
        if modes.setdefault(name, value) != value:
            raise InvalidSyntax(f"syntax error: {match[0]} contradicts what stands before it")
    return modes


class OwnCommand(Statement):
    """BEGIN with modes, SET, SHOW, RESET, SAVEPOINT, RELEASE, SET CONSTRAINTS, VALIDATE, sequences, tablespaces,
    comments, names of constraints, DESCRIBE."""

    def __init__(self, connection: Connection, parsed: Parsed, types: ParameterTypes) -> None:
        super().__init__(connection, parsed, types)
        assert isinstance(parsed.statement, Command)
        self._command = parsed.statement

    def run(self, parameters: Parameters) -> Result:
        del parameters
        run = getattr(self, f"_{self._command.name}")
        return run(*self._command.arguments) or Result()

    def explain(self) -> list[str]:
        return [self._command.name]

    def _begin(self, modes: str) -> None:
        chosen = _modes(modes)
        self.connection.begin()
        try:
            self.connection.set_transaction(**chosen)
        except BaseException:
            self.connection.rollback()
            raise

    def _set_transaction(self, modes: str) -> None:
        self.connection.set_transaction(**_modes(modes))

    def _set_all_transactions(self, modes: str) -> None:
        self.connection.set_all_transactions(**_modes(modes))

    def _set(self, name: str, value: str) -> None:
        settings.assign(self.connection, _plain(name), value[1:-1] if value.startswith("'") else value.strip())

    def _set_schema(self, value: str) -> None:
        settings.assign(self.connection, "search_path", value[1:-1])

    def _show(self, text: str, name: str) -> Result:
        name = _plain(name) if name else "transaction_isolation"
        del text
        return Result((name,), (TEXT,), 1, iter([(settings.show(self.connection, name),)]))

    def _reset(self, name: str) -> None:
        settings.reset(self.connection, _plain(name))

    def _savepoint(self, name: str) -> None:
        self.connection.savepoint(_plain(name))

    def _release(self, name: str) -> None:
        self.connection.release_savepoint(_plain(name))

    def _autocommit(self, value: str) -> None:
        self.connection.autocommit = value.lower() in ("on", "true", "1")

    def _constraints(self, listed: str, *more: str) -> None:
        names = None if listed.lower() == "all" else [_plain(name) for name in _NAMES.findall(listed)]
        self.connection.set_constraints(names, deferred=more[-1].lower() == "deferred")

    def _validate(self, if_exists: str, table: str, name: str) -> None:
        with suppress(NoSuchTable) if if_exists else nullcontext():
            validate(self.connection, self.connection.table(_plain(table)).name, _plain(name))

    def _sequence(self, *groups: str) -> None:
        verb, exists, name, rest = groups[:4] if groups[0] else groups[4:]
        run_sequence(self.connection, verb.lower(), exists, _plain(name), rest)

    def _drop_sequence(self, if_exists: str, listed: str, *more: str) -> None:
        names = [_plain(name) for name in _NAMES.findall(listed)]
        known = self.connection.sequences()
        wanted = [name for name in names if name in known or not if_exists]
        if wanted:
            self.connection.drop_sequence(*wanted, cascade=more[-1].lower() == "cascade")

    def _tablespace(self, name: str, options: str) -> None:
        settings = [(_OPTIONS[word.lower()], int(number)) for word, number in _NUMBER.findall(options)]
        if len(dict(settings)) < len(settings):
            raise InvalidSyntax(f"tablespace {name}: an option is given twice")
        self.connection.create_tablespace(_plain(name), **dict(settings))

    def _drop_tablespace(self, if_exists: str, name: str) -> None:
        with suppress(NoSuchTablespace) if if_exists else nullcontext():
            self.connection.drop_tablespace(_plain(name))

    def _rename_constraint(self, if_exists: str, table: str, name: str, new_name: str) -> None:
        with suppress(NoSuchTable) if if_exists else nullcontext():
            self.connection.rename_constraint(_plain(table), _plain(name), _plain(new_name))

    def _comment(self, *words: str) -> None:
        *what, text = filter(None, words)
        kind, *names = what[0].lower(), *map(_plain, what[1:])
        if kind == "column":
            names.reverse()  # the table comes first
        comment = None if text.lower() == "null" else text[1:-1].replace("''", "'")
        self.connection.comment(comment, **dict(zip((kind, "table"), names, strict=False)))

    def _describe(self, name: str) -> Result:
        name = _plain(name)
        known = self.connection.view(name) if name in self.connection.views() else self.connection.table(name)
        rows = [(c.name, str(c.type), "YES" if c.nullable else "NO") for c in known.columns]
        return Result(("column", "type", "nullable"), (TEXT, TEXT, TEXT), len(rows), iter(rows))


def _plain(name: str) -> str:
    return name[1:-1].replace('""', '"') if name.startswith('"') else name.lower()
