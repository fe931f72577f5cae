"""Transactions, and the statements that are gmdb's own."""

from __future__ import annotations

import re
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, cast

from sqlglot import exp

from gmdb.database.dbapi import Result
from gmdb.errors import (
    InvalidSyntax,
    NoSuchSequence,
    NoSuchTable,
    NoSuchTablespace,
    SchemaExists,
    UnsupportedExpression,
)
from gmdb.process.late_patterns import late_pattern
from gmdb.sql.bind.names import Names
from gmdb.sql.parser import Command, Parsed
from gmdb.sql.prepared import ParameterTypes, Statement
from gmdb.sql.run import Parameters
from gmdb.sql.statements import settings
from gmdb.sql.statements.definitions import move, validate
from gmdb.sql.statements.sequences import alter_sequence, create_sequence
from gmdb.sql.syntax import QUALIFIED, folded, plain_name, reading, written_name
from gmdb.sql.types import TEXT
from gmdb.tables.catalog.names import PUBLIC
from gmdb.transaction.snapshots import ISOLATION_LEVELS

if TYPE_CHECKING:
    from gmdb.database.connection import Connection

_NUMBER = re.compile(r"(page_?size|devices|device_pages)\s*=?\s*(\d+)", re.I)
_NAMES = late_pattern(QUALIFIED)
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

    def _copy(self) -> None:
        hint = "cursor.copy(statement) does, for the program that calls it"
        raise UnsupportedExpression("statements read and write no files, and COPY does", hint=hint)

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
        name, value = plain_name(name), value.strip()
        if name != "search_path" and value.startswith("'"):
            if "'" in value[1:-1] or not value.endswith("'"):
                raise InvalidSyntax(f"syntax error: {name} has one value, not {value}")
            value = value[1:-1]
        settings.assign(self.connection, name, value)

    def _set_time_zone(self, value: str) -> None:
        settings.assign(self.connection, "timezone", value[1:-1] if value.startswith("'") else value.strip())

    def _set_schema(self, value: str) -> None:
        settings.assign(self.connection, "search_path", '"' + value[1:-1].replace('"', '""') + '"')

    def _show(self, text: str, name: str) -> Result:
        usual = "timezone" if "zone" in text.lower() else "transaction_isolation"
        name = plain_name(name) if name else usual
        return Result((name,), (TEXT,), 1, iter([(settings.show(self.connection, name),)]))

    def _reset(self, name: str) -> None:
        settings.reset(self.connection, plain_name(name))

    def _savepoint(self, name: str) -> None:
        self.connection.savepoint(plain_name(name))

    def _release(self, name: str) -> None:
        self.connection.release_savepoint(plain_name(name))

    def _autocommit(self, value: str) -> None:
        self.connection.autocommit = value.lower() in ("on", "true", "1")

    def _constraints(self, listed: str, *more: str) -> None:
        names = None if listed.lower() == "all" else [str(written_name(name)) for name in _NAMES.findall(listed)]
        self.connection.set_constraints(names, deferred=more[-1].lower() == "deferred")

    def _validate(self, if_exists: str, table: str, name: str) -> None:
        with suppress(NoSuchTable) if if_exists else nullcontext():
            validate(self.connection, self._table(table), plain_name(name))

    def _table(self, name: str) -> str:
        """The full name of a table."""
        return Names(self.connection).table(written_name(name), exp.Identifier()).name

    # ---- sequences and schemas

    def _create_sequence(self, temporary: str, exists: str, name: str, rest: str) -> None:
        create_sequence(self.connection, exists, written_name(name), rest, bool(temporary))

    def _alter_sequence(self, exists: str, name: str, rest: str) -> None:
        alter_sequence(self.connection, exists, written_name(name), rest)

    def _drop_sequence(self, if_exists: str, listed: str, how: str) -> None:
        names = Names(self.connection)
        written = [written_name(name) for name in _NAMES.findall(listed)]
        wanted = [names.sequence(name) for name in written if not if_exists or names.find_sequence(name)]
        if wanted:
            self.connection.drop_sequence(*wanted, cascade=how.lower() == "cascade")

    def _create_schema(self, if_not_exists: str, name: str) -> None:
        with suppress(SchemaExists) if if_not_exists else nullcontext():
            self.connection.create_schema(plain_name(name))

    def _drop_schema(self, if_exists: str, listed: str, *more: str) -> None:
        names = [plain_name(name) for name in _NAMES.findall(listed)]
        known = [PUBLIC, *self.connection.schemas()]
        wanted = [name for name in names if name in known or not if_exists]
        if wanted:
            self.connection.drop_schema(*wanted, cascade=more[-1].lower() == "cascade")

    def _alter_schema(self, name: str, new_name: str) -> None:
        self.connection.rename_schema(self.connection._schema(plain_name(name)).name, plain_name(new_name))

    def _move(self, kind: str, if_exists: str, name: str, schema: str) -> None:
        """SET SCHEMA of a table, a view or a sequence."""
        with suppress(NoSuchTable, NoSuchSequence) if if_exists else nullcontext(), self.connection.defining():
            move(self.connection, kind.lower(), written_name(name), plain_name(schema))

    def _tablespace(self, name: str, options: str) -> None:
        settings = [(_OPTIONS[word.lower()], int(number)) for word, number in _NUMBER.findall(options)]
        if len(dict(settings)) < len(settings):
            raise InvalidSyntax(f"tablespace {name}: an option is given twice")
        self.connection.create_tablespace(plain_name(name), **dict(settings))

    def _drop_tablespace(self, if_exists: str, name: str) -> None:
        with suppress(NoSuchTablespace) if if_exists else nullcontext():
            self.connection.drop_tablespace(plain_name(name))

    def _rename_constraint(self, if_exists: str, table: str, name: str, new_name: str) -> None:
        with suppress(NoSuchTable) if if_exists else nullcontext():
            self.connection.rename_constraint(self._table(table), plain_name(name), plain_name(new_name))

    def _comment(self, *words: str) -> None:
        *what, text = filter(None, words)
        kind, first, *second = what[0].lower(), *what[1:]
        comment = None if text.lower() == "null" else text[1:-1].replace("''", "'")
        if kind == "column":
            names = {"table": self._table(first), "column": plain_name(second[0])}
        elif kind == "constraint":
            names = {"table": self._table(second[0]), "constraint": plain_name(first)}
        elif kind == "table":
            names = {"table": self._table(first)}
        elif kind == "index":
            names = {"index": Names(self.connection).index(written_name(first))}
        elif written_name(first).schema:
            raise InvalidSyntax(f"syntax error: no schema stands before the name of a schema: {first}")
        else:
            names = {"schema": plain_name(first)}
        self.connection.comment(comment, **names)

    def _describe(self, name: str) -> Result:
        names, written, nowhere = Names(self.connection), written_name(name), exp.Identifier()
        known = names.view(written) or names.table(written, nowhere)
        rows = [(c.name, str(c.type), "YES" if c.nullable else "NO") for c in known.columns]
        return Result(("column", "type", "nullable"), (TEXT, TEXT, TEXT), len(rows), iter(rows))
