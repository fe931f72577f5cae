"""A SQLite database: its tables with their keys, foreign keys, defaults, checks and indexes, and their rows.

Names become lower case: SQLite's are case-insensitive, and gmdb folds names that are not quoted.
What has no place in gmdb (triggers, virtual tables, indexes over expressions, collations), and views, which SQLite
writes in its own dialect, are left out.  The account says so, as it does of everything else that is not as it was.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from gmdb.cli.sources.plan import (
    Account,
    Chosen,
    IndexPlan,
    Profile,
    TablePlan,
    Unfit,
    choose,
    declared_decimal,
    in_short,
)
from gmdb.errors import DataError, Error, NoSuchTable, NotADatabase, TypeMismatch
from gmdb.format.columns import Column
from gmdb.process.late_dataclasses import replace
from gmdb.sql.bind.of_rows import columns_of
from gmdb.sql.dialect import GmdbSql, parse_expression
from gmdb.sql.statements.assignment import bind_default
from gmdb.sql.statements.generated import bind_generated
from gmdb.tables.catalog.schema import FOREIGN_KEY, PRIMARY_KEY, UNIQUE, Constraint

MAGIC = b"SQLite format 3\0"
BATCH_ROWS, BATCH_BYTES = 50_000, 64 << 20
COLUMNS_A_TIME = 100  # whose values one query looks through
IDENTITY_MAX = 1 << 62


_OPTIONS = re.compile(r"\)(?:\s|,|without\s+rowid|strict)*$", re.I)


class _Column(NamedTuple):
    """A row of SQLite's ``table_xinfo``."""

    position: int
    name: str
    declared: str
    not_null: int
    default: str | None
    key: int  # its place in the primary key, from 1
    hidden: int  # 2 or 3: its values are computed


class SqliteSource:
    def __init__(self, path: Path, only: str | None) -> None:
        """``only``: the one table that is wanted."""
        self.account = Account()
        self._only = only
        self._path = path
        self._connection = sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)
        try:
            self._connection.execute("begin")
            self._connection.execute("select count(*) from sqlite_master").fetchone()
        except sqlite3.Error as error:
            self._connection.close()
            raise NotADatabase(f"{path}: SQLite cannot read it: {error}") from None

    def __enter__(self) -> SqliteSource:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._connection.close()

    def _ask(self, statement: str, *parameters: Any) -> list[Any]:
        return self._connection.execute(statement, parameters).fetchall()

    def plans(self) -> list[TablePlan]:
        objects = self._ask("select type, name, tbl_name, sql from sqlite_master order by rowid")
        kinds = {name: (kind, without) for _, name, kind, _, without, _ in self._ask("pragma table_list")}
        plans = []
        for kind, name, table, sql in objects:
            if self._only is not None and table.lower() != self._only.lower():
                continue
            what = "virtual table" if kind == "table" and kinds[name][0] == "virtual" else kind
            if what in ("view", "trigger", "virtual table"):
                self.account.has(f"{what}s")
                self.account.leave_out(f"{what}s", f"{what} {name}")
            elif kind == "table" and kinds[name][0] == "table" and not name.startswith("sqlite_"):
                self.account.has("tables")
                plans.append(_TableReader(self._connection, name, sql, bool(kinds[name][1]), self.account).plan())
        if self._only is not None and not plans:
            names = ", ".join(name for kind, name, _, _ in objects if kind == "table") or "none"
            raise NoSuchTable(f"{self._path} has no table {self._only}; its tables are: {names}")
        return plans


class _TableReader:
    """Reads the definition and the rows of one table."""

    def __init__(
        self, connection: sqlite3.Connection, name: str, sql: str, without_rowid: bool, account: Account
    ) -> None:
        self._connection = connection
        self._name = name
        self._table = _quoted(name)
        self._without_rowid = without_rowid
        self._account = account
        self._columns = [_Column(*row) for row in connection.execute(f"pragma table_xinfo({self._table})")]
        self._sql = sql
        self._tree = _parsed(sql)

    def _remark(self, what: str) -> None:
        self._account.remark(f"table {self._name}: {what}")

    def _leave_out(self, kind: str, what: str, count: int = 1) -> None:
        self._account.leave_out(kind, f"table {self._name}: {what}", count)

    def plan(self) -> TablePlan:
        rows, profiles = self._profiles()
        chosen = [self._choose(column, profile) for column, profile in zip(self._columns, profiles, strict=True)]
        keys = sorted((column for column in self._columns if column.key), key=lambda column: column.key)
        identity = self._identity(keys, profiles)
        columns = [
            self._column(column, one, profile, identity is not None and bool(column.key))
            for column, one, profile in zip(self._columns, chosen, profiles, strict=True)
        ]
        columns = self._generated(columns)
        plan = TablePlan(self._name.lower(), columns, rows, partial(self._batches, [one.convert for one in chosen]))
        plan.identity = identity
        self._add_keys(plan, keys, profiles)
        self._add_indexes(plan)
        plan.checks = self._checks()
        plan.foreign_keys = self._foreign_keys()
        self._account.has("columns", len(columns))
        return plan

    # ---- columns

    def _profiles(self) -> tuple[int, list[Profile]]:
        """How many rows there are, and what the values of each column are."""
        profiles: list[Profile] = []
        rows = 0
        for first in range(0, len(self._columns), COLUMNS_A_TIME):
            some = self._columns[first : first + COLUMNS_A_TIME]
            parts = [part for column in some for part in _profile_parts(column)]
            row = self._connection.execute(f"select count(*), {', '.join(parts)} from {self._table}").fetchone()
            rows, values = row[0], row[1:]
            size = len(values) // len(some)
            for n in range(len(some)):
                profiles.append(Profile(*values[n * size : (n + 1) * size]))
        longest = sum(profile.bytes_max for profile in profiles)
        self._batch_rows = min(BATCH_ROWS, max(BATCH_BYTES // max(longest, 1), 1))
        return rows, profiles

    def _choose(self, column: _Column, profile: Profile) -> Chosen:
        try:
            chosen = choose(column.declared, profile)
        except Unfit as unfit:
            raise TypeMismatch(
                f"table {self._name}, column {column.name}, {self._first_row(column, unfit.condition)}: {unfit}, "
                "which gmdb has no type for"
            ) from None
        if chosen.remark:
            self._remark(f"column {column.name} ({column.declared or 'no type'}) {chosen.remark}")
        return chosen

    def _first_row(self, column: _Column, condition: str) -> str:
        """The first row that meets a condition, by its rowid, or its key if it has none."""
        by = _quoted(next(c.name for c in self._columns if c.key)) if self._without_rowid else "rowid"
        where = condition.format(column=_quoted(column.name))
        (row,) = self._connection.execute(f"select {by} from {self._table} where {where} limit 1").fetchone()
        return f"row {row!r}" if self._without_rowid else f"row {row}"

    def _column(self, column: _Column, chosen: Chosen, profile: Profile, is_identity: bool) -> Column:
        if is_identity:
            return Column(column.name.lower(), chosen.type, False, identity="by default")
        nullable = bool(profile.nulls) or not (column.not_null or column.key)
        return Column(column.name.lower(), chosen.type, nullable, default=self._default(column, chosen))

    def _default(self, column: _Column, chosen: Chosen) -> str | None:
        if column.default is None or column.default.upper() == "NULL":
            return None
        self._account.has("defaults")
        text = column.default
        if chosen.type.name == "BOOLEAN" and text in ("0", "1"):
            text = "true" if text == "1" else "false"
        try:
            written = _written(sqlglot.parse_one(text, read="sqlite"))
            bind_default(parse_expression(written), Column(column.name.lower(), chosen.type))
        except (Error, SqlglotError) as error:
            self._leave_out("defaults", f"column {column.name}: default {column.default}: {in_short(error)}")
            return None
        return written

    def _generated(self, columns: Sequence[Column]) -> list[Column]:
        """The columns, those that SQLite computes with their expressions, as far as gmdb can have them."""
        names, whole = [column.name.lower() for column in self._columns if column.hidden in (2, 3)], list(columns)
        self._account.has("computed columns", len(names))
        nodes = {} if self._tree is None else dict(_computed(self._tree))
        for n, column in enumerate(columns):
            if column.name not in names:
                continue
            try:
                written = _written(nodes[column.name])
                bind_generated(parse_expression(written), column, self._name, columns, columns_of(columns))
            except (Error, KeyError) as error:
                why = "its definition could not be read" if isinstance(error, KeyError) else in_short(error)
                self._leave_out("computed columns", f"column {column.name}: how it is computed: {why}")
            else:
                whole[n] = replace(column, generated=written)
        return whole

    def _identity(self, keys: Sequence[_Column], profiles: Sequence[Profile]) -> tuple[str, int] | None:
        """An INTEGER PRIMARY KEY is numbered by SQLite; with AUTOINCREMENT no number comes twice."""
        if self._without_rowid or len(keys) != 1 or keys[0].declared.upper() != "INTEGER":
            return None
        last = profiles[self._columns.index(keys[0])].high or 0
        if self._connection.execute("select 1 from sqlite_master where name = 'sqlite_sequence'").fetchone():
            row = self._connection.execute("select seq from sqlite_sequence where name = ?", (self._name,)).fetchone()
            last = max(last, row[0] if row is not None and isinstance(row[0], int) else 0)
        if last >= IDENTITY_MAX:
            self._remark(f"column {keys[0].name}: its numbers have come too far to be continued")
            return None
        return keys[0].name.lower(), last

    # ---- keys, checks, indexes

    def _add_keys(self, plan: TablePlan, keys: Sequence[_Column], profiles: Sequence[Profile]) -> None:
        if not keys:
            return
        self._account.has("primary keys")
        names = tuple(column.name.lower() for column in keys)
        if any(profiles[self._columns.index(column)].nulls for column in keys):
            self._remark(f"primary key ({', '.join(names)}) has NULLs: it becomes a unique constraint")
            plan.keys.append(Constraint(UNIQUE, names))
        else:
            plan.keys.append(Constraint(PRIMARY_KEY, names))

    def _add_indexes(self, plan: TablePlan) -> None:
        listed = self._connection.execute(f"pragma index_list({self._table})").fetchall()
        for _, name, unique, origin, is_partial in reversed(listed):
            if origin == "pk":
                continue
            self._account.has("unique constraints" if origin == "u" else "indexes")
            columns = self._index_columns(name, origin)
            condition = self._condition(name) if is_partial else ""
            if columns is None or condition is None:
                continue
            if origin == "u":
                plan.keys.append(Constraint(UNIQUE, tuple(column[1:-1].replace('""', '"') for column, _ in columns)))
                continue
            keys = tuple(f"{column}{' desc' if descending else ''}" for column, descending in columns)
            plan.indexes.append(IndexPlan(name.lower(), keys, bool(unique), condition))

    def _condition(self, name: str) -> str | None:
        """The condition of a partial index; None if it cannot be read."""
        asked = "select sql from sqlite_master where type = 'index' and name = ?"
        tree = _parsed(self._connection.execute(asked, (name,)).fetchone()[0])
        where = None if tree is None else tree.find(exp.Where)
        if where is None:
            self._leave_out("indexes", f"index {name}, whose condition could not be read")
            return None
        return _written(where.this)

    def _index_columns(self, name: str, origin: str) -> tuple[tuple[str, bool], ...] | None:
        """The columns of an index, and which of them descend; None if it is one that gmdb cannot have."""
        parts = [row for row in self._connection.execute(f"pragma index_xinfo({_quoted(name)})") if row[5]]
        what = f"index {name}" if origin == "c" else "a unique constraint"
        nodes = self._index_nodes(name) if any(part[1] < 0 for part in parts) else []
        if nodes is None or len(nodes) not in (0, len(parts)):
            self._leave_out("indexes", f"{what}, whose expressions could not be read")
            return None
        for n, (_, _, column, _, collation, _) in enumerate(parts):
            if collation.upper() != "BINARY":
                one = f"column {column}" if column is not None else _written(nodes[n])
                self._account.has("collations of keys")
                self._leave_out("collations of keys", f"{what}: the collation {collation.upper()} of {one}")
        return tuple(
            (f"({_written(nodes[n])})" if column is None else _quoted(column.lower()), bool(descending))
            for n, (_, _, column, descending, *_) in enumerate(parts)
        )

    def _index_nodes(self, name: str) -> list[exp.Expr] | None:
        """The parts of an index's key, as they were written; None if they cannot be read."""
        asked = "select sql from sqlite_master where type = 'index' and name = ?"
        tree = _parsed(self._connection.execute(asked, (name,)).fetchone()[0])
        parameters = None if tree is None else tree.find(exp.IndexParameters)
        if parameters is None:
            return None
        return [one.this if isinstance(one, exp.Ordered) else one for one in parameters.args.get("columns") or ()]

    def _checks(self) -> list[str]:
        if self._tree is None:
            count = len(re.findall(r"(?i)\bcheck\s*\(", self._sql))
            if count:
                self._account.has("checks", count)
                self._leave_out("checks", "its checks, since its definition could not be read", count)
            return []
        checks = [_written(node.this) for node in self._tree.find_all(exp.CheckColumnConstraint)]
        self._account.has("checks", len(checks))
        return checks

    def _foreign_keys(self) -> list[Constraint]:
        """SQLite lists the last one first."""
        parts: dict[int, list[Any]] = {}
        for row in self._connection.execute(f"pragma foreign_key_list({self._table})").fetchall():
            parts.setdefault(row[0], []).append(row)
        self._account.has("foreign keys", len(parts))
        when = [] if self._tree is None else [_deferred(node) for node in self._tree.find_all(exp.Reference, bfs=False)]
        if len(when) != len(parts):
            self._remark("when its foreign keys are checked could not be read: at the end of each statement")
            when = [False] * len(parts)
        keys = []
        for number, deferred in zip(sorted(parts, reverse=True), when, strict=True):
            columns = sorted(parts[number], key=lambda row: row[1])
            _, _, target, _, to, on_update, on_delete, _ = columns[0]
            keys.append(
                Constraint(
                    FOREIGN_KEY,
                    tuple(row[3].lower() for row in columns),
                    references=target.lower(),
                    key=() if to is None else tuple(row[4].lower() for row in columns),
                    on_update=on_update.lower(),
                    on_delete=on_delete.lower(),
                    deferrable=deferred,
                    deferred=deferred,
                )
            )
        return keys

    # ---- rows

    def _batches(self, converts: Sequence[Callable[[Sequence[Any]], pa.Array]]) -> Iterator[pa.RecordBatch]:
        names = [column.name.lower() for column in self._columns]
        chosen = ", ".join(_quoted(column.name) for column in self._columns)
        try:
            cursor = self._connection.execute(f"select {chosen} from {self._table}")
            while rows := cursor.fetchmany(self._batch_rows):
                arrays = [convert(values) for convert, values in zip(converts, zip(*rows, strict=True), strict=True)]
                yield pa.RecordBatch.from_arrays(arrays, names)
        except sqlite3.OperationalError as error:  # a text that is none, most of all
            raise DataError(f"table {self._name}: SQLite cannot hand out a value: {error}") from None


def _profile_parts(column: _Column) -> list[str]:
    """The expressions that make a Profile, in its order."""
    c, declared = _quoted(column.name), column.declared.upper()
    kind = f"typeof({c})"
    parts = [_number_of(f"{kind} = '{name}'") for name in ("integer", "real", "text", "blob", "null")]
    parts += [f"{end}(case when {kind} = 'integer' then {c} end)" for end in ("min", "max")]
    parts.append(f"coalesce(max(case when {kind} in ('text', 'blob') then length(cast({c} as blob)) end), 0)")
    parts.append(_number_of(f"{kind} = 'integer' and {c} in (0, 1)") if declared.startswith("BOOL") else "0")
    parts.append(_number_of(f"{kind} = 'text' and date({c}, '+0 days') is {c}") if declared == "DATE" else "0")
    if declared.startswith(("DATETIME", "TIMESTAMP")):
        whole = f"datetime(substr({c}, 1, 19), '+0 days') is replace(substr({c}, 1, 19), 'T', ' ')"
        fraction = f"substr({c}, 20, 1) = '.' and length({c}) between 21 and 26 and substr({c}, 21) not glob '*[^0-9]*'"
        parts.append(_number_of(f"{kind} = 'text' and {whole} and (length({c}) = 19 or ({fraction}))"))
    else:
        parts.append("0")
    digits = declared_decimal(column.declared)
    if digits is not None:
        limit, scale = 10.0 ** (digits[0] - digits[1]), digits[1]
        is_short = f"round({c}, {scale}) = {c} and {c} > -{limit!r} and {c} < {limit!r}"
        parts.append(_number_of(f"{kind} in ('integer', 'real') and {is_short}"))
    else:
        parts.append("0")
    return parts


def _computed(tree: exp.Expr) -> Iterator[tuple[str, exp.Expr]]:
    """The computed columns of a table's definition, in small letters, and their expressions."""
    for column in tree.find_all(exp.ColumnDef):
        for one in (part.args.get("kind") for part in column.args.get("constraints") or ()):
            if isinstance(one, exp.ComputedColumnConstraint):
                yield column.name.lower(), one.this


def _deferred(reference: exp.Expr) -> bool:
    """Whether a foreign key is checked at the commit: SQLite knows no command that changes that."""
    options = " ".join(str(option).upper() for option in reference.args.get("options") or ())
    return "INITIALLY DEFERRED" in options and "NOT DEFERRABLE" not in options


def _number_of(condition: str) -> str:
    return f"count(case when {condition} then 1 end)"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _parsed(sql: str) -> exp.Expr | None:
    """A table's definition, of which the options at the end do not matter here; None if it cannot be read."""
    try:
        tree = sqlglot.parse_one(_OPTIONS.sub(")", sql), read="sqlite")
    except SqlglotError:
        return None
    return None if isinstance(tree, exp.Command) else tree


def _written(node: exp.Expr) -> str:
    """An expression of SQLite's as gmdb writes it, with names in small letters."""
    node = node.copy()
    for name in node.find_all(exp.Identifier):
        name.set("this", name.name.lower())
    return node.sql(dialect=GmdbSql)
