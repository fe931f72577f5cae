"""Histories of definitions and changes, statement by statement beside PostgreSQL: one transaction, with savepoints.

    python -m tests.sql.definition_histories --count 50 --seed 1

Tables get and lose columns, types, keys, checks, foreign keys, indexes and views, and rows meanwhile.  Each statement
must do the same: be refused, or change as many rows, and show the same ones.  Where gmdb refuses what PostgreSQL takes,
as docs/sql.md says, or the other way round for no reason that matters, both take the statement back and go on.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from bench.postgres import Connection as Postgres
from bench.postgres import PostgresError, Rows, server

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection
from tests.integrity import problems
from tests.sql.differences import difference

STATEMENTS = 100
BEGINNING = (
    "create table t1 (a int primary key, b int, c text, d numeric(9,2))",
    "create table t2 (a int, b int references t1 on delete cascade, c varchar(20), d date)",
    "create table t3 (a bigint unique, b text, c int, d boolean default true)",
)
TABLES, VIEWS, COLUMNS = ("t1", "t2", "t3"), ("v1", "v2", "v3"), ("a", "b", "c", "d")
TYPES = ("int", "bigint", "text", "varchar(5)", "varchar(20)", "numeric(9,2)", "date", "boolean", "double precision")
ACTIONS = ("no action", "restrict", "cascade", "set null", "set default")
VALUES = ("1", "2", "3", "4", "5", "null", "'2'", "'3'")
# What gmdb refuses and PostgreSQL takes.
REFUSED = re.compile(
    r"is used by view|yet to check|belongs to one ADD|stands alone in|does not know this|and \w+ of tabl|last column"
    r"|ON CONFLICT is not supported through a view|compares columns with constants of their type"
)
# What PostgreSQL refuses and gmdb takes: a name for itself, a column that is dropped and altered, a type as it was.
TAKEN = ("42701", "42703", "0A000")


class Texts:
    """Random statements."""

    def __init__(self, random: Random) -> None:
        self._random = random

    def next(self) -> str:
        kinds = (self._insert, self._update, self._delete, self._alter, self._define, self._view, self._of_savepoints)
        return self._random.choices(kinds, (30, 14, 7, 30, 9, 13, 5))[0]()

    def _one(self, of: Sequence[str]) -> str:
        return self._random.choice(of)

    def _condition(self) -> str:
        c = self._one(COLUMNS)
        ways = ("is not null", "is null", "> 1", "= 2", "<> 3", "in (1, 2)", "between 1 and 3", "> 1 and b is not null")
        return self._one((f"{c} {self._one(ways)}", "a < b", "a = b"))

    def _insert(self) -> str:
        names = self._random.sample(COLUMNS, self._random.randrange(1, 5))
        rows = (f"({', '.join(self._one(VALUES) for _ in names)})" for _ in range(self._random.randrange(1, 4)))
        text = f"insert into {self._one((*TABLES, *TABLES, *VIEWS))} ({', '.join(names)})"
        end = f" on conflict ({names[0]}) do update set {self._one(COLUMNS)} = {self._one(VALUES)}"
        if self._random.random() < 0.2:
            return f"{text} select {', '.join(names)} from {self._one(TABLES)}"
        if self._random.random() < 0.3:
            return f"{text} values {next(rows)}{self._one((end, ' on conflict do nothing', ' returning *'))}"
        return f"{text} values {', '.join(rows)}"

    def _update(self) -> str:
        c, d, table = self._one(COLUMNS), self._one(COLUMNS), self._one((*TABLES, *TABLES, *VIEWS))
        value = self._one((self._one(VALUES), d, f"{c} + 1"))
        where = self._one(("", f" where {self._condition()}", f" where {self._condition()} returning {d}"))
        return f"update {table} set {c} = {value}{where}"

    def _delete(self) -> str:
        c, d, table, other = self._one(COLUMNS), self._one(COLUMNS), self._one(TABLES), self._one(TABLES)
        ends = ("", f" using {other} where {table}.{c} = {other}.{d}", f" where {c} in (select {d} from {other})")
        return f"delete from {table}{self._one((f' where {self._condition()}', *ends))}"

    def _column(self, name: str) -> str:
        ends = (
            " not null",
            " default 1",
            " default 'x'",
            " unique",
            f" references {self._one(TABLES)}",
            " check (a > 0)",
        )
        return f"{name} {self._one(TYPES)}{self._one(ends) if self._random.random() < 0.5 else ''}"

    def _action(self) -> str:
        c, d, name = self._one(COLUMNS), self._one(COLUMNS), self._one(("k1", "k2", "k3"))
        rules = f"on delete {self._one(ACTIONS)} on update {self._one(ACTIONS)}"
        late = self._one(("", " deferrable", " deferrable initially deferred", " not valid"))
        return self._one(
            (
                f"add column {self._column(c)}", f"add column if not exists {self._column(c)}",
                f"drop column {c}{self._one(('', ' cascade'))}", f"drop column if exists {c}",
                f"alter {c} type {self._one(TYPES)}",
                f"alter {c} type {self._one(TYPES)} using {self._one((d, 'null'))}",
                f"alter {c} set not null", f"alter {c} drop not null", f"alter {c} drop default",
                f"alter {c} set default {self._one(('1', 'null', '1 + 1'))}",
                f"add constraint {name} check ({self._condition()})", f"add constraint {name} unique ({c})",
                f"add primary key ({c})", f"add check ({self._condition()}) not valid", f"validate constraint {name}",
                f"add constraint {name} foreign key ({c}) references {self._one(TABLES)} ({d}) {rules}{late}",
                f"drop constraint {name}{self._one(('', ' cascade'))}", f"drop constraint if exists {name}",
                f"rename column {c} to {self._one((*COLUMNS, 'e'))}", f"rename constraint {name} to k4",
            )
        )  # fmt: skip

    def _alter(self) -> str:
        actions = [self._action() for _ in range(self._random.choice([1, 1, 1, 2, 3]))]
        return f"alter table {self._one(TABLES)} {', '.join(actions)}"

    def _define(self) -> str:
        table, c, d, index = self._one(TABLES), self._one(COLUMNS), self._one(COLUMNS), f"i{self._random.randrange(4)}"
        columns = ", ".join(self._column(name) for name in self._random.sample(COLUMNS, 3))
        end = self._one(("", f" include ({d})", f" where {self._condition()}"))
        return self._one(
            (
                f"create table {table} ({columns})", f"drop table {table} cascade", f"truncate {table} cascade",
                f"create index {index} on {table} ({c}{self._one(('', ' desc', ' nulls first'))}){end}",
                f"create unique index {index} on {table} ({c}){end}", f"drop index {index}",
                f"alter index {index} rename to i{self._random.randrange(4)}",
            )
        )  # fmt: skip

    def _view(self) -> str:
        view, table, c, d = self._one(VIEWS), self._one(TABLES), self._one(COLUMNS), self._one(COLUMNS)
        return self._one(
            (
                f"create view {view} as select {c}, {d} from {table} where {self._condition()}",
                f"create or replace view {view} as select * from {table}", f"drop view if exists {view} cascade",
                f"create view {view} as select * from {self._one(VIEWS)} where {self._condition()} with check option",
                f"select * from {view}", f"select count(*), max({c}) from {table} where {self._condition()}",
                f"select {c} from {table} order by {c} desc nulls last, {d}",
            )
        )  # fmt: skip

    def _of_savepoints(self) -> str:
        ends = ("set constraints all deferred", "set constraints all immediate")
        return self._one(("savepoint s", "rollback to savepoint s", *ends))


Answer = tuple[Any, Any]  # what gmdb and PostgreSQL have made of a statement: rows, how many were changed, or an error


class History:
    """One transaction in both."""

    def __init__(self, db: Connection, postgres: Postgres, seed: str) -> None:
        self._db, self._postgres, self._random = db, postgres, Random(seed)
        self.texts: list[str] = []  # that were taken
        self.counts: Counter[str] = Counter()
        for text in BEGINNING:
            db.execute(text)
            postgres.ask(text)
        self._set("savepoint s")

    def play(self, statements: int = STATEMENTS) -> str:
        """What differs, and behind which statements; nothing if all is the same."""
        texts = Texts(self._random)
        for _ in range(statements):
            text = texts.next()
            told = "" if self._is_savepoint(text) else self._compare(text)
            if not told and self._random.random() < 0.1:
                told = self._tables_differ()
            if told:
                return "\n".join([*self.texts, f"{text}\n  {told}"])
        return self._tables_differ()

    def _set(self, text: str) -> None:
        self._db.execute(text)
        self._postgres.ask(text)

    def _is_savepoint(self, text: str) -> bool:
        if "savepoint" not in text:
            return False
        self._set(text)
        self.texts.append(text)
        return True

    def _compare(self, text: str) -> str:
        self._set("savepoint one")
        mine, theirs = self._mine(text), self._theirs(text)
        told = _differs(text, mine, theirs)
        is_refused = isinstance(mine, Exception) or isinstance(theirs, Exception)
        if is_refused:
            self._set("rollback to savepoint one")
        else:
            self.texts.append(text)
        self._set("release savepoint one")
        self.counts["refused" if is_refused else text.split()[0]] += 1
        return told

    def _mine(self, text: str) -> Any:
        try:
            cursor = self._db.execute(text)
            return cursor.rowcount if cursor.description is None else (cursor._result.types, cursor.fetchall())
        except Exception as error:
            return error

    def _theirs(self, text: str) -> Any:
        try:
            return self._postgres.ask(text)
        except PostgresError as error:
            return error

    def _tables_differ(self) -> str:
        for name in sorted(self._db.tables()):
            told = _differs("", self._mine(f"select * from {name}"), self._theirs(f"select * from {name}"))
            if told:
                return f"table {name}: {told}"
        return ""


def _differs(text: str, mine: Any, theirs: Any) -> str:
    if isinstance(mine, Exception) and (not isinstance(mine, errors.Error) or isinstance(mine, errors.InternalError)):
        return f"{mine!r}"
    if isinstance(mine, Exception) or isinstance(theirs, Exception):
        is_known = REFUSED.search(str(mine)) or (isinstance(theirs, PostgresError) and theirs.state in TAKEN)
        both = isinstance(mine, Exception) and isinstance(theirs, Exception)
        return "" if both or is_known or "if not exists" in text else f"{mine!r} and {theirs!r}"
    assert isinstance(theirs, Rows)
    if not isinstance(mine, tuple):
        changed = re.fullmatch(r"(?:INSERT 0|UPDATE|DELETE) (\d+)", theirs.tag)
        return f"{mine} rows and {theirs.tag}" if changed and int(changed[1]) != mine else ""
    return difference(mine[0], mine[1], theirs, "order by" in text)


def search(postgres: Postgres, folder: Path, seed: int, count: int) -> tuple[list[str], Counter[str]]:
    """What differs in so many histories, and how many statements there were."""
    found, counts = list[str](), Counter[str]()
    postgres.ask("set client_min_messages = error")
    for number in range(count):
        path = folder / f"{number}.gmdb"
        postgres.ask("begin")
        with closing(gmdb.connect(path)) as db:
            history = History(db, postgres, f"{seed}-{number}")
            told = history.play()
            counts.update(history.counts)
        postgres.ask("rollback")
        told = told or "\n".join(problems(path))
        if told:
            found.append(f"--- history {seed}-{number}\n{told}")
    return found, counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.sql.definition_histories", description=__doc__)
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    with server() as postgres, tempfile.TemporaryDirectory(prefix="gmdb-histories-") as folder:
        found, counts = search(postgres, Path(folder), given.seed, given.count)
    print("\n\n".join([*found, ", ".join(f"{n:,} {kind}" for kind, n in counts.most_common())]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
