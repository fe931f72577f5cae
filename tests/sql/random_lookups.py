"""Random statements about keys: conditions, joins and orders that an index can decide, and changes that use them.

The tables are those of random_queries, with a primary key ``k``; t5 has many rows.
"""

from __future__ import annotations

from datetime import date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any

from tests.sql.questions import Question
from tests.sql.random_queries import NUMBERS, TYPES, Queries

COLUMNS = {**TYPES, "k": "int"}
TABLES = ("t1", "t2", "t3", "t4", "t5")
INDEXES = ("(i)", "(s, i)", "(d)", "(n)", "(c)", "(b, k)", "(x)", "(t, j)", "using hash (u)", "(f, d)")
MORE_INDEXES = (  # of which each table has some, chosen by chance
    "(i desc, j nulls first)",
    "(j desc nulls last, i)",
    "(s nulls first, d desc)",
    "(d desc) include (s, k)",
    "(i) include (j, n, x)",
    "(x desc, k)",
    "(n nulls first, m desc)",
    "(t desc nulls last, b nulls first)",
    "(c desc, i desc)",
    "(i) where s is not null",
    "(j desc) where i > 0",
    "(d) where f",
    "(k) where i between 0 and 3 and n < 5",
    "(s) where f is not true or x >= 1.5::double precision",
    "using hash (i) where c = 'ab' or j <= 2",
    "(b, n desc) include (k) where d > date '2020-02-10'",
)
MORE_INDEXES_A_TABLE = 5
_DAY = date(2020, 1, 28)
_PYTHON = {  # of which type parameters are that stand for a column's value
    "numeric": Decimal,
    "double": float,
    "text": str,
    "char": str,
    "date": date,
    "timestamp": datetime,
    "boolean": bool,
    "bytea": bytes,
}
_Tables = dict[str, dict[str, str]]


class Lookups(Queries):
    """A stream of queries whose conditions compare columns with values and with other columns."""

    def __init__(self, random: Random) -> None:
        super().__init__(random)
        self.values: list[Any] = []

    def question(self) -> Question:
        self.values = []
        makers = (
            self.listed,
            self.listed,
            self.extremes,
            self.joined,
            self.joined,
            self.by_subquery,
            self.grouped_keys,
        )
        text, ordered = self.random.choice(makers)()
        return Question(text, tuple(self.values), ordered)

    # ---- values

    def given(self, value: Any) -> str:
        """A value as a parameter."""
        self.values.append(value)
        return f"«{len(self.values) - 1}»"

    def value(self, type_: str) -> str:
        """A value of a column's type or of one that compares with it, written out or given."""
        if self.chance(0.03):
            return self.pick("NULL", self.given(None))
        if type_ in NUMBERS:
            return self.number()
        if type_ in ("text", "char"):
            word = self.pick("a", "ab", "", "A", "b", "abcd", "abc", "ab ", "Zebra")
            return self.pick(f"'{word}'", f"'{word}'::char(4)", f"'{word}'::text", self.given(word))
        if type_ == "boolean":
            return self.pick("true", "false", self.given(True))
        if type_ == "bytea":
            return self.pick("'\\x6162'::bytea", self.given(b"ab"))
        day = _DAY + timedelta(days=self.random.randint(0, 40))
        moment = datetime(day.year, day.month, day.day, self.random.choice([0, 0, 12]))
        return self.pick(
            f"'{day}'", f"date '{day}'", f"timestamp '{moment}'", self.given(day), self.given(moment), f"'{day}'::date"
        )

    def number(self) -> str:
        number = self.random.choice([*range(-5, 10), 1000, 2**31 - 1, 2**40, -(10**12) + 3, 10**10])
        part = self.random.choice([0, 0, 0.5, 0.25])
        return self.random.choice(
            [
                lambda: f"({number})",
                lambda: f"{number + part}::numeric",
                lambda: f"({number + part})::double precision",
                lambda: f"({number})::bigint",
                lambda: f"'{number}'::int" if abs(number) < 2**31 else f"'{number}'::bigint",
                lambda: f"({number} + 1)",
                lambda: self.given(number),
                lambda: self.given(float(number + part)),
                lambda: self.given(Decimal(str(number + part))),
            ]
        )()

    # ---- conditions

    def lookup(self, tables: _Tables, others: _Tables | None = None) -> str:
        """A comparison of a column with values, or with columns of other tables."""
        alias = self.random.choice(list(tables))
        name = self.random.choice(list(tables[alias]))
        type_, column = tables[alias][name], f"{alias}.{name}"

        def value() -> str:
            other = None if others is None or not self.chance(0.6) else self.column(self.comparable(type_), others)
            return other or self.value(type_)

        choices = [
            lambda: f"{column} = {value()}",
            lambda: f"{column} = {value()}",
            lambda: f"{value()} {self.pick('=', '<', '>=')} {column}",
            lambda: f"{column} {self.pick('<', '<=', '>', '>=', '<>')} {value()}",
            lambda: f"{column} {self.pick('', 'NOT ')}BETWEEN {value()} AND {value()}",
            lambda: f"{column} {self.pick('IN', 'IN', 'NOT IN')} ({', '.join(value() for _ in range(3))})",
            lambda: f"{column} > {value()} AND {column} <= {value()}",
            lambda: f"{column} IS {self.pick('', 'NOT ')}NULL",
            lambda: f"{column} IS NOT DISTINCT FROM {value()}",
        ]
        if type_ in ("text", "char"):
            choices.append(lambda: f"{column} LIKE {self.pick('', 'NULL || ') if self.chance(0.1) else ''}'a%'")
        if type_ == "boolean":
            choices = [lambda: self.pick(column, f"NOT {column}"), lambda: f"{column} = {value()}"]
        return self.random.choice(choices)()

    def comparable(self, type_: str) -> str:
        return self.mixed(type_) if type_ in ("char", "text", "date", "timestamp") or type_ in NUMBERS else type_

    def lookups(self, tables: _Tables, others: _Tables | None = None) -> str:
        parts = [self.lookup(tables, others) for _ in range(self.random.randint(1, 3))]
        if len(parts) == 3 and self.chance(0.5):
            return f"({parts[0]} OR {parts[1]}) AND {parts[2]}"
        return f" {self.pick('AND', 'AND', 'OR')} ".join(f"({part})" for part in parts)

    # ---- queries

    def table(self) -> tuple[str, _Tables]:
        alias = self.alias()
        return f"{self.pick(*TABLES, 't5')} AS {alias}", {alias: dict(COLUMNS)}

    def listed(self) -> tuple[str, bool]:
        source, tables = self.table()
        (alias,) = tables
        where = f" WHERE {self.lookups(tables)}" if self.chance(0.85) else ""
        columns = ", ".join(f"{alias}.{name}" for name in self.random.sample(list(COLUMNS), 3))
        text = f"SELECT {alias}.k, {columns} FROM {source}{where}"
        if self.chance(0.4):
            names = self.random.sample(list(COLUMNS), self.random.randint(0, 2))
            way = self.pick("", "", " DESC")
            order = ", ".join(f"{alias}.{name}{way}" for name in (*names, "k"))
            limit = self.pick("", " LIMIT 3", " LIMIT 5 OFFSET 2", f" LIMIT {self.given(4)}", " OFFSET 7", " LIMIT 0")
            return f"{text} ORDER BY {order}{limit}", True
        return text, False

    def extremes(self) -> tuple[str, bool]:
        source, tables = self.table()
        (alias,) = tables
        name = self.random.choice([name for name, type_ in COLUMNS.items() if type_ not in ("boolean", "bytea")])
        calls = self.random.sample(
            [f"min({alias}.{name})", f"max({alias}.{name})", "count(*)"], self.random.randint(1, 3)
        )
        where = f" WHERE {self.lookups(tables)}" if self.chance(0.6) else ""
        return f"SELECT {', '.join(calls)} FROM {source}{where}", False

    def joined(self) -> tuple[str, bool]:
        text, tables = self.table()
        first = next(iter(tables))
        for _ in range(self.random.randint(1, 2)):
            other, more = self.table()
            kind = self.pick("JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN")
            condition = self.equality(tables, more)
            if self.chance(0.3) and kind != "FULL JOIN":
                condition = f"{condition} AND {self.lookup(more, tables)}"
            text, tables = f"{text} {kind} {other} ON {condition}", {**tables, **more}
        columns = ", ".join(f"{alias}.{self.random.choice(list(COLUMNS))}" for alias in tables)
        where = f"{first}.k < {self.value('int')} AND {self.lookups(tables, tables)}"
        return f"SELECT {first}.k, {columns} FROM {text} WHERE {where}", False

    def equality(self, left: _Tables, right: _Tables) -> str:
        """Mostly over types that are not the same."""
        type_ = self.pick("int", "int", "text", "date", "char", "numeric", "bigint", "double", "timestamp")
        return f"{self.column(type_, left)} = {self.column(self.comparable(type_), right)}"

    def by_subquery(self) -> tuple[str, bool]:
        source, tables = self.table()
        (alias,) = tables
        return f"SELECT {alias}.k, {alias}.i FROM {source} WHERE {self.query_condition(tables)}", False

    def query_condition(self, tables: _Tables) -> str:
        """A condition with a subquery that looks for rows by columns of the tables."""
        other, inner = self.table()
        (alias,) = inner
        type_ = self.pick("int", "text", "date", "char", "numeric", "bigint")
        condition = f"{self.equality(inner, tables)} AND {self.lookup(inner, tables)}"
        condition = self.pick(condition, condition, self.lookup(inner))
        column, value = self.column(self.comparable(type_), inner), self.column(type_, tables)
        extreme = "max" if self.chance(0.5) else "min"
        return self.random.choice(
            [
                lambda: f"{self.pick('', 'NOT ')}EXISTS (SELECT 1 FROM {other} WHERE {condition})",
                lambda: f"{value} {self.pick('', 'NOT ')}IN (SELECT {column} FROM {other} WHERE {condition})",
                lambda: f"{value} = (SELECT {extreme}({column}) FROM {other} WHERE {condition})",
                lambda: f"(SELECT count(*) FROM {other} WHERE {condition}) {self.pick('=', '>')} {self.pick('0', '1')}",
                lambda: f"{value} {self.pick('<', '>=')} ALL (SELECT {column} FROM {other} WHERE {condition})",
                lambda: f"{value} IN (SELECT {column} FROM {other} WHERE {condition} ORDER BY {alias}.k LIMIT 2)",
            ]
        )()

    def grouped_keys(self) -> tuple[str, bool]:
        source, tables = self.table()
        (alias,) = tables
        name = self.random.choice(list(COLUMNS))
        number = self.column(self.pick(*NUMBERS[:3]), tables)
        where = f" WHERE {self.lookups(tables)}" if self.chance(0.6) else ""
        calls = f"count(*), sum({number}), min({self.column('text', tables)})"
        return f"SELECT {alias}.{name}, {calls} FROM {source}{where} GROUP BY {alias}.{name}", False


class Changes(Lookups):
    """A stream of inserts, updates and deletes."""

    def question(self) -> Question:
        self.values = []
        name = self.pick(*TABLES)
        maker = self.random.choice(
            [self.insert, self.insert_rows_of, self.update, self.update, self.update_from, self.delete]
        )
        text = maker(name)
        return Question(text, tuple(self.values), False, name)

    def changed_value(self, name: str, tables: _Tables) -> str:
        type_ = COLUMNS[name]
        if type_ in ("text", "char"):
            return f"left({self.ascii(tables, 1)}, {self.pick('2', '3')})"
        if type_ in NUMBERS and self.chance(0.4):
            type_ = self.pick(*NUMBERS)
        return self.expression(type_, tables, 2)

    def returning(self, name: str) -> str:
        if self.chance(0.6):
            return ""
        value = self.expression(self.pick(*NUMBERS), {name: COLUMNS}, 1)
        return f" RETURNING {self.pick(f'{name}.*', f'{name}.k, {value} AS e')}"

    def where(self, tables: _Tables) -> str:
        return self.random.choice(
            [
                lambda: f" WHERE {self.lookups(tables)}",
                lambda: f" WHERE {self.lookups(tables)}",
                lambda: f" WHERE {self.condition(tables, 1)}",
                lambda: f" WHERE {self.query_condition(tables)}",
                lambda: "",
            ]
        )()

    def chosen(self) -> list[str]:
        return self.random.sample([name for name in COLUMNS if name != "k"], self.random.randint(1, 3))

    def insert(self, name: str) -> str:
        columns = self.chosen()
        first = self.random.choice([1, 5000])
        rows = [
            f"({first + number}, {', '.join(self.pick(self.value_for(one), 'DEFAULT') for one in columns)})"
            for number in range(self.random.randint(1, 3))
        ]
        text = f"INSERT INTO {name} (k, {', '.join(columns)}) VALUES {', '.join(rows)}"
        return f"{text}{self.conflict(name, columns)}{self.returning(name)}"

    def value_for(self, name: str) -> str:
        """A parameter that stands alone for a column's value must be one of the column's own type."""
        if self.chance(0.5):
            return self.changed_value(name, {})
        value = self.value(COLUMNS[name])
        is_own = not value.startswith("«") or self.values[-1] is None or self._fits(COLUMNS[name], self.values[-1])
        return value if is_own else f"coalesce({value}, NULL)"

    def _fits(self, type_: str, value: Any) -> bool:
        whole = (2**31 if type_ == "int" else 2**63) if type_ in ("int", "bigint") else 0
        if whole:
            return type(value) is int and abs(value) < whole
        return type(value) is _PYTHON[type_]

    def conflict(self, name: str, columns: list[str]) -> str:
        column = columns[0]
        return self.pick(
            "",
            " ON CONFLICT DO NOTHING",
            " ON CONFLICT (k) DO NOTHING",
            f" ON CONFLICT (k) DO UPDATE SET {column} = excluded.{column}",
            f" ON CONFLICT (k) DO UPDATE SET {column} = coalesce({name}.{column}, excluded.{column})"
            f" WHERE {name}.k > 1 OR excluded.i = 3",
        )

    def insert_rows_of(self, name: str) -> str:
        source, tables = self.table()
        (alias,) = tables
        columns = self.chosen()
        values = ", ".join(self.changed_value(one, tables) for one in columns)
        moved = self.pick("+ 5000", "+ 5000", "")
        text = f"INSERT INTO {name} (k, {', '.join(columns)}) SELECT {alias}.k {moved}, {values} FROM {source}"
        return f"{text}{self.where(tables)}{self.conflict(name, columns)}{self.returning(name)}"

    def update(self, name: str) -> str:
        tables = {name: dict(COLUMNS)}
        sets = [f"{one} = {self.changed_value(one, tables)}" for one in self.chosen()]
        if self.chance(0.3):
            other, inner = self.table()
            value, condition = self.column("int", inner), self.equality(inner, tables)
            sets = [f"j = (SELECT max({value}) FROM {other} WHERE {condition})"]
        return f"UPDATE {name} SET {', '.join(sets)}{self.where(tables)}{self.returning(name)}"

    def update_from(self, name: str) -> str:
        """Each row meets one other row at most: which of several it would be is not told."""
        other, inner = self.table()
        (alias,) = inner
        both = {name: dict(COLUMNS), **inner}
        column = self.chosen()[0]
        condition = f"{alias}.k = {name}.{self.pick('k', 'j', 'i', 'b')} AND ({self.lookups(both, both)})"
        if self.chance(0.4):
            return f"DELETE FROM {name} USING {other} WHERE {condition}{self.returning(name)}"
        return f"UPDATE {name} SET {column} = {self.changed_value(column, both)} FROM {other} WHERE {condition}"

    def delete(self, name: str) -> str:
        return f"DELETE FROM {name}{self.where({name: dict(COLUMNS)})}{self.returning(name)}"
