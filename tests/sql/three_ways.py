"""One meaning: random statements asked of gmdb by rows and by DuckDB, with and without indexes, and of PostgreSQL.

    python -m tests.sql.three_ways --count 100000 --seed 1             # prints what differs, as short as it gets
    python -m tests.sql.three_ways --kind changes --only 1-4711        # the questions that a number names, again

Values, their types, the numbers of changed rows and what tables hold after a change must be the same in every way; of
errors, that there is one, and of which family.  Doubles may differ in their last digits, since sums depend on an
order, and quotients have another number of digits in PostgreSQL.
"""

from __future__ import annotations

import argparse
import math
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from bench.postgres import Connection as Postgres
from bench.postgres import PostgresError, Rows, available, server

import gmdb
from gmdb import errors
from gmdb.database.connection import Connection
from gmdb.format.columns import ColumnType, parse_column
from gmdb.sql.plan.estimates import DUCK, ROWS
from tests.sql import differential
from tests.sql.differences import difference, is_equal, row_key
from tests.sql.questions import Question, with_parameters
from tests.sql.random_arrays import Arrays
from tests.sql.random_lookups import INDEXES, MORE_INDEXES, MORE_INDEXES_A_TABLE, TABLES, Changes, Lookups
from tests.sql.random_queries import Queries
from tests.sql.random_views import with_views
from tests.sql.reduction import reduced
from tests.sql.slt_postgres import family_of
from tests.sql.tables import COLUMNS as SPELLINGS
from tests.sql.tables import create_statements, random_rows

SIZES = {"t1": 12, "t2": 7, "t3": 4, "t4": 25, "t5": 300}
EXPRESSION_ROWS = 40
QUESTIONS_A_FILLING = 100
PARAMETER_SHARE = 0.15
POSTGRES_SECONDS = 20
# What PostgreSQL's numeric has and gmdb's has not (docs/sql.md): no numbers, and numbers of more than 38 digits.
_NO_DECIMAL = re.compile(
    r"a decimal cannot be (NaN|-?Infinity)|numeric field overflow: .* does not fit DECIMAL\(38,\d+\)"
)
_OF_ROWS = (errors.DataError, errors.IntegrityError)
KINDS = ("expressions", "queries", "lookups", "changes", "views", "arrays")


@dataclass
class Outcome:
    """What came of a question in one way; ``table`` is what the changed table holds then."""

    types: list[ColumnType] = field(default_factory=list)
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    count: int = -1
    table: list[tuple[Any, ...]] = field(default_factory=list)
    error: type[BaseException] | None = None
    message: str = ""

    def __str__(self) -> str:
        return f"{self.error.__name__}: {self.message}" if self.error else f"{len(self.rows)} rows {self.rows[:5]}"


@dataclass(frozen=True)
class Way:
    """A connection whose statements one executor runs, if it can; None: the one that the planner chooses."""

    name: str
    connection: Connection
    executor: str | None = None

    def differs(self, question: Question) -> bool:
        """Whether another way does not do just the same: DuckDB runs what cannot be run by rows, and one of the two
        what the planner chooses; of changes, there are ways to single rows that are chosen only."""
        if self.executor is None:
            return bool(question.table)
        if self.executor == DUCK or question.table or question.before:
            return True
        try:
            _, statement = self.connection._statements._statement(*question.gmdb)  # type: ignore[attr-defined]
        except Exception:  # that ``ask`` tells of
            return True
        return bool(statement.plan.executor == self.executor)

    def ask(self, question: Question) -> Outcome:
        text, values = question.gmdb
        try:
            for statement in question.before:
                self.connection.execute(statement)
            cursor = self.connection.execute(text, values)
            outcome = Outcome(count=cursor.rowcount)
            if cursor.description is not None:
                outcome.types = [type_ or ColumnType("VARCHAR", length=4000) for type_ in cursor._result.types]
                outcome.rows = cursor.fetchall()
            cursor.close()
            if question.table:
                outcome.table = self.connection.execute(f"select * from {question.table} order by k").fetchall()
        except Exception as error:  # those that are not gmdb's own are wrong by themselves
            outcome = Outcome(error=type(error), message=str(error))
        self.connection.rollback()
        return outcome


class Ways:
    """The same tables in all ways."""

    def __init__(self, folder: Path, postgres: Postgres | None) -> None:
        self._stack = ExitStack()
        self._postgres = postgres
        self.is_filled = False
        self.databases = [self._connect(folder / name, None) for name in ("plain", "indexed")]
        self.ways = [
            Way(f"{executor}, {name}", self._connect(folder / name, executor), executor)
            for name in ("plain", "indexed")
            for executor in (ROWS, DUCK)
        ]
        self.ways.append(Way("chosen, indexed", self.databases[1]))
        if postgres is not None:
            for setting in (f"statement_timeout = '{POSTGRES_SECONDS}s'", "client_min_messages = error"):
                postgres.ask(f"set {setting}")

    def _connect(self, path: Path, executor: str | None) -> Connection:
        connection = self._stack.enter_context(closing(gmdb.connect(path)))
        if executor is not None:
            connection._statements.executor = executor  # type: ignore[attr-defined]
        return connection

    def close(self) -> None:
        self._stack.close()

    def fill(self, seed: str) -> None:
        """The tables anew, with random rows: those of the queries, and ``r`` with those of the expressions."""
        self.is_filled = True
        random = Random(seed)
        chosen = Random(f"indexes {seed}")
        for name in TABLES:
            rows = [(*row, number) for number, row in enumerate(random_rows(random, SIZES[name]))]
            indexes = (*INDEXES, *chosen.sample(MORE_INDEXES, MORE_INDEXES_A_TABLE))
            self._create(name, {**SPELLINGS, "k": "int"}, rows, indexes)
        rows = [(*differential.random_row(random), number) for number in range(EXPRESSION_ROWS)]
        self._create("r", {**differential.COLUMNS, "k": "int"}, rows, ("(i)", "(s)", "(d, b)"))

    def _create(
        self, name: str, spellings: dict[str, str], rows: list[tuple[Any, ...]], indexes: Sequence[str]
    ) -> None:
        columns = [parse_column(column, spelling) for column, spelling in spellings.items()]
        listed = ", ".join(f"{column} {spelling}" for column, spelling in spellings.items())
        for number, database in enumerate(self.databases):
            database.execute(f"drop table if exists {name}")
            database.execute(f"create table {name} ({listed}, primary key (k))")
            database.executemany(f"insert into {name} values ({', '.join('?' * len(columns))})", rows)
            for place, index in enumerate(indexes if number else ()):
                key, hashed = index.removeprefix("using hash "), "using hash" in index
                using = "using hash " if hashed else ""
                database.execute(f"create index {name}_{place} on {name} {using}{key}")
            database.commit()
            if number:
                database.execute(f"analyze {name}")
                database.commit()
        if self._postgres is not None:
            self._postgres.ask(f"DROP TABLE IF EXISTS {name}")
            self._postgres.ask(create_statements(name, columns, rows))
            self._postgres.ask(f"ALTER TABLE {name} ADD PRIMARY KEY (k)")

    # ---- asking

    def difference(self, question: Question) -> str:
        """What differs between the ways, or nothing; first of all between which."""
        first, *others = [(way, way.ask(question)) for way in self.ways if way.differs(question)]
        for way, outcome in (first, *others):
            if outcome.error is not None and not issubclass(outcome.error, errors.Error):
                return f"{way.name}: {outcome}"
        for way, outcome in others:
            told = differs(first[1], outcome, question.ordered)
            if told:
                return f"{first[0].name} and {way.name}: {told}"
        if self._postgres is None:
            return ""
        told = self._beside_postgres(question, first[1])
        return f"PostgreSQL: {told}" if told else ""

    def _beside_postgres(self, question: Question, mine: Outcome) -> str:
        assert self._postgres is not None
        table: Rows | None = None
        try:
            if question.table or question.before:  # in one message: a round trip takes longer than a statement
                contents = [f"select * from {question.table} order by k"] if question.table else []
                asked = [*question.before, question.postgres, *contents]
                answers = self._postgres.ask_all(f"begin; {'; '.join(asked)}; rollback")[len(question.before) + 1 : -1]
                theirs, table = answers[0], answers[1] if question.table else None
            else:
                theirs = self._postgres.ask(question.postgres)
        except PostgresError as error:
            if question.table or question.before:
                self._postgres.ask("rollback")
            elif question.values and mine.error is None:  # constants may fail where values that come later are not read
                with suppress(PostgresError):
                    return difference(mine.types, mine.rows, self._postgres.ask(question.late), question.ordered)
            return refusal_differs(mine, error, bool(question.table))
        if mine.error is errors.ValueOutOfRange and _NO_DECIMAL.fullmatch(mine.message):
            return ""
        if mine.error is not None:
            return f"{mine} and {len(theirs.rows)} rows {theirs.rows[:3]}"
        if table is not None:
            changed = int(theirs.tag.split()[-1])
            types = [parse_column("x", spelling).type for spelling in (*SPELLINGS.values(), "int")]
            if mine.count != changed:
                return f"{mine.count} rows changed and {changed}"
            return difference(types, mine.table, table, True) or self._returned(mine, theirs)
        return difference(mine.types, mine.rows, theirs, question.ordered)

    def _returned(self, mine: Outcome, theirs: Rows) -> str:
        return difference(mine.types, mine.rows, theirs, False) if theirs.types or mine.types else ""


def differs(one: Outcome, other: Outcome, ordered: bool) -> str:
    """What differs between two of gmdb's outcomes."""
    if one.error is not None or other.error is not None:
        return "" if _same_family(one.error, other.error) else f"{one} and {other}"
    if list(map(str, one.types)) != list(map(str, other.types)):
        return f"types {list(map(str, one.types))} and {list(map(str, other.types))}"
    if one.count != other.count and one.table:
        return f"{one.count} rows changed and {other.count}"
    return _rows_differ(one.rows, other.rows, ordered) or _rows_differ(one.table, other.table, True)


def _same_family(one: type[BaseException] | None, other: type[BaseException] | None) -> bool:
    """Which of several rows fails first is not told; that one does is."""
    if one is None or other is None:
        return False
    return one is other or (issubclass(one, errors.DataError) and issubclass(other, errors.DataError))


def _rows_differ(mine: list[tuple[Any, ...]], others: list[tuple[Any, ...]], ordered: bool) -> str:
    if len(mine) != len(others):
        return f"{len(mine)} rows and {len(others)}: {mine[:3]} {others[:3]}"
    if not ordered:
        mine, others = sorted(mine, key=row_key), sorted(others, key=row_key)
    for a, b in zip(mine, others, strict=True):
        if not all(is_equal(x, y, exact=True) for x, y in zip(a, b, strict=True)):
            return f"{a} and {b}"
    return ""


def refusal_differs(mine: Outcome, error: PostgresError, is_change: bool) -> str:
    """What is wrong with how gmdb took what PostgreSQL refuses; a statement too long for it tells nothing.

    Of a change, one row may fail by its values and another one by a constraint: which is the first is not told.
    """
    if error.state == "57014":
        return ""
    family = family_of(error.state)
    if is_change and family in _OF_ROWS and mine.error is not None and issubclass(mine.error, _OF_ROWS):
        return ""
    if mine.error is None or not issubclass(mine.error, family):
        return f"{mine} and {error}"
    return ""


# ---- questions


def question(kind: str, seed: str) -> Question:
    random = Random(f"{kind} {seed}")
    if kind == "queries":
        text, ordered = Queries(random).query()
        return Question(text, (), ordered)
    if kind == "lookups":
        return Lookups(random).question()
    if kind == "arrays":
        return Arrays(random).question()
    if kind == "changes":
        return Changes(random).question()
    if kind == "views":
        kinds = ("queries", "lookups", "changes")
        return with_views(question(random.choice(kinds), seed), random)
    share = random.choice([0.0, 0.0, 0.5, 1.0])
    text, values = with_parameters(differential.random_expression(random), random, share)
    row = random.randrange(EXPRESSION_ROWS)
    if random.random() < 0.5:  # as it is kept from being worked out once for all in PostgreSQL, too
        return Question(f"SELECT {text} FROM (SELECT * FROM r WHERE k = {row} OFFSET 0) AS r", values)
    return Question(f"SELECT {text} FROM r WHERE k = {row}", values)


def numbers(seed: int, count: int) -> Iterator[tuple[str, str]]:
    """The names of fillings and, within them, of questions."""
    for number in range(count):
        filling = f"{seed}-{number // QUESTIONS_A_FILLING}"
        yield filling, f"{filling}-{number % QUESTIONS_A_FILLING}"


def search(
    ways: Ways,
    kinds: Sequence[str],
    seed: int,
    count: int,
    tell: Callable[[str, str, Question, str], bool],
    seconds: float = math.inf,
) -> Counter[str]:
    """Ask so many questions, for so long; ``tell`` is called with what differs and says whether to go on."""
    end = time.monotonic() + seconds
    counts: Counter[str] = Counter()
    filled = ""
    for number, (filling, name) in enumerate(numbers(seed, count)):
        if time.monotonic() > end:
            break
        if filling != filled:
            ways.fill(filling)
            filled = filling
        kind = kinds[number % len(kinds)]
        asked = question(kind, name)
        told = ways.difference(asked)
        counts[kind] += 1
        if told:
            counts["different"] += 1
            if not tell(kind, name, asked, told):
                break
    return counts


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("python -m tests.sql.three_ways", description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=math.inf, help="end after that time (default: with the count)")
    parser.add_argument("--kind", action="append", choices=KINDS, help="repeatable; all of them by default")
    parser.add_argument(
        "--stop", type=int, default=20, metavar="N", help="after so many differences (default: %(default)s)"
    )
    parser.add_argument("--as-it-is", action="store_true", help="show what differs without making it shorter")
    parser.add_argument("--only", metavar="NAME", help="one question by its name, such as 1-0-17")
    given = parser.parse_args(arguments)
    shown: Counter[str] = Counter()

    def tell(kind: str, name: str, asked: Question, told: str) -> bool:
        shorter = asked if given.as_it_is else reduced(asked, told, ways.difference)
        print(f"--- {kind} {name}\n{shorter}\n  {ways.difference(shorter)}\n", flush=True)
        shown["all"] += 1
        return shown["all"] < given.stop

    started = time.monotonic()
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="gmdb-ways-")))
        ways = Ways(folder, stack.enter_context(server()) if available() else None)
        stack.callback(ways.close)
        kinds = given.kind or KINDS
        if given.only:
            ways.fill(given.only.rpartition("-")[0])
            for kind in kinds:
                asked = question(kind, given.only)
                print(f"--- {kind}\n{asked}\n  {ways.difference(asked) or 'the same'}\n")
            return 0
        counts = search(ways, kinds, given.seed, given.count, tell, given.seconds)
    told = ", ".join(f"{count:,} {kind}" for kind, count in counts.items())
    print(f"{told}; {time.monotonic() - started:.0f} s")
    return 1 if counts["different"] else 0


if __name__ == "__main__":
    sys.exit(main())
