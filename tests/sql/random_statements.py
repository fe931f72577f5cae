"""Random statements: some that mean something, some that nearly do, and some that are no statements at all.

    Statements(Random(7)).statement()   # ("update t set n = n / 0 where s like ?", ("%a",))

Sound ones come out of a small grammar over the tables of TABLES.  Others are texts of the .slt files or of the grammar
with tokens left out, doubled, exchanged or replaced by what nobody should write: huge numbers, deep nesting, NULs.
"""

from __future__ import annotations

import re
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

from tests.sql.slt import read_records

Statement = tuple[str, Any]
TABLES = (
    "create table t (i int primary key, s varchar(20), n int, d decimal(9,2), b boolean, day date)",
    "create table u (i int, j bigint, x double precision, c char(5), m timestamp, y varbinary(20))",
    "create index u_i on u (i)",
    "create index t_s on t using hash (s)",
)
FILLING = (
    "insert into t select g, 'row ' || g, g * 10, g / 4.0, g % 2 = 0, date '2024-01-01' + g"
    " from generate_series(1, 20) g",
    "insert into u select g % 7, g, g / 3.0, 'c' || g, timestamp '2024-01-01' + g * interval '1 hour', null"
    " from generate_series(1, 20) g",
)
COLUMNS = {"t": ("i", "s", "n", "d", "b", "day"), "u": ("i", "j", "x", "c", "m", "y")}
_TOKEN = re.compile(r"\s+|'(?:[^']|'')*'|\"[^\"]*\"|\w+|::|\|\||<=|>=|<>|.", re.DOTALL)
_LITERALS = ("0", "1", "-1", "7", "2.5", "null", "true", "''", "'a'", "'row 3'", "'2024-01-05'", "date '2024-01-07'")
_ODD_LITERALS = (
    "9" * 400,
    "1e400",
    "-9223372036854775808",
    "99999999999999999999.5",
    "'" + "x" * 5000 + "'",
    "'\x00'",
    "'\ud83d\ude00'",
    "E'\\x00'",
    "'NaN'::double precision",
    "'Infinity'::double precision",
    "interval '1 month'",
    "date '9999-12-31'",
    "timestamp '0001-01-01'",
    "'\\xff'::bytea",
    "(select 1)",
    "(1, 2)",
    "*",
)
_FUNCTIONS = (
    ("abs", 1), ("upper", 1), ("length", 1), ("coalesce", 2), ("substring", 3), ("round", 2), ("sqrt", 1),
    ("repeat", 2),
    ("lpad", 3), ("chr", 1), ("nullif", 2), ("greatest", 2), ("date_trunc", 2), ("power", 2), ("ln", 1), ("mod", 2),
    ("split_part", 3), ("left", 2), ("trim", 1), ("concat", 2), ("md5", 1), ("to_hex", 1), ("initcap", 1), ("exp", 1),
    ("count", 1), ("sum", 1), ("max", 1), ("nosuch", 1), ("now", 0), ("gcd", 2), ("encode", 2), ("make_date", 3),
)  # fmt: skip
_OPERATORS = (
    "+",
    "-",
    "*",
    "/",
    "%",
    "||",
    "=",
    "<>",
    "<",
    ">=",
    "and",
    "or",
    "like",
    "ilike",
    "is distinct from",
    "^",
)
_TYPES = (
    "int",
    "bigint",
    "text",
    "varchar(3)",
    "numeric(5,2)",
    "boolean",
    "date",
    "timestamp",
    "double precision",
    "bytea",
)
_PARAMETERS: tuple[Any, ...] = (
    0, 1, -1, 2**31, 2**63, -(2**63), 2**70, 10**50, 1.5, float("nan"), float("inf"), 1e308, True, None, "", "a",
    "row 3",
    "\x00", "\udc80", "x" * 100_000, b"", b"\x00\xff", bytearray(b"ab"), memoryview(b"ab"), date.min, date.max,
    datetime(2024, 1, 5, 12), datetime.max, Decimal("1.25"), Decimal("1e50"), Decimal("NaN"), Decimal("Infinity"),
    object(), [], [1], {}, {"a": 1}, (1, 2), complex(1, 2), range(3), int, 3.0,
)  # fmt: skip


class Statements:
    """Statements, one after the other, from a seed."""

    def __init__(self, random: Random) -> None:
        self._random = random
        folder = Path(__file__).parent / "slt"
        self._corpus = [record.text for file in sorted(folder.glob("*.slt")) for record in read_records(file)]
        self._parameters = 0

    def statement(self) -> Statement:
        """A statement with its parameters."""
        random, self._parameters = self._random, 0
        kind = random.random()
        if kind < 0.5:
            text = self._sound()
        elif kind < 0.7:
            text = self._mutated(self._sound())
        elif kind < 0.9:
            text = self._mutated(random.choice(self._corpus))
        elif kind < 0.96:
            text = self._nested()
        else:
            text = self._noise()
        return text, self._given()

    def _given(self) -> Any:
        """Parameters: mostly as many as there are, now and then something else altogether."""
        random = self._random
        if random.random() < 0.03:
            return random.choice([(1,), [], {}, {"a": 1}, "ab", 7, None, {1: 2}, object(), (1, 2, 3)])
        return tuple(random.choice(_PARAMETERS) for _ in range(self._parameters))

    # ---- statements of the grammar

    def _sound(self) -> str:
        makes = (
            self._select, self._select, self._select, self._insert, self._insert, self._update, self._update,
            self._delete, self._definition, self._set_operation, self._own,
        )  # fmt: skip
        return self._random.choice(makes)()

    def _table(self) -> str:
        return self._random.choice(("t", "t", "t", "u", "u", "u", "sys_tables", "nosuch", "generate_series(1, 9) g"))

    def _column(self) -> str:
        return self._random.choice(
            ("i", "s", "n", "d", "b", "day", "j", "x", "c", "m", "y", "t.i", "u.i", "rowid", "zz")
        )

    def _value(self, depth: int = 2) -> str:
        random = self._random
        kind = random.random()
        if depth <= 0 or kind < 0.25:
            return random.choice((random.choice(COLUMNS["t"]), self._column(), random.choice(_LITERALS)))
        if kind < 0.28:
            return random.choice(_ODD_LITERALS)
        if kind < 0.34:
            self._parameters += 1
            return "?"
        if kind < 0.55:
            name, count = random.choice(_FUNCTIONS)
            return f"{name}({', '.join(self._value(depth - 1) for _ in range(count))})"
        if kind < 0.8:
            return f"({self._value(depth - 1)} {random.choice(_OPERATORS)} {self._value(depth - 1)})"
        if kind < 0.86:
            return f"({self._value(depth - 1)})::{random.choice(_TYPES)}"
        if kind < 0.9:
            return f"case when {self._value(depth - 1)} then {self._value(depth - 1)} else {self._value(depth - 1)} end"
        if kind < 0.94:
            return f"({self._value(depth - 1)} in ({self._value(depth - 1)}, {self._value(depth - 1)}))"
        if kind < 0.97:
            return f"({self._value(depth - 1)} between {self._value(depth - 1)} and {self._value(depth - 1)})"
        return f"(select {self._value(depth - 1)} from {self._table()} limit 1)"

    def _condition(self) -> str:
        random = self._random
        if random.random() < 0.5:
            table = random.choice(("t", "u"))
            column = random.choice(COLUMNS[table])
            return f"{column} {random.choice(('=', '<', '>=', '<>'))} {random.choice(_LITERALS)}"
        return self._value()

    def _where(self) -> str:
        return f" where {self._condition()}" if self._random.random() < 0.6 else ""

    def _select(self) -> str:
        random = self._random
        values = ", ".join(self._value() for _ in range(random.randint(1, 3)))
        values = random.choice((values, values, "*", "count(*)", f"distinct {values}"))
        source = self._table()
        join = random.choice(("", "", "", f" join u on {self._condition()}", ", t t2", " left join u using (i)"))
        where = self._where()
        group = f" group by {self._column()}" if random.random() < 0.15 else ""
        order = (
            f" order by {self._value(1)}{random.choice((' desc', '', ' nulls first'))}" if random.random() < 0.3 else ""
        )
        limit = f" limit {random.choice(('1', '5', '0', '-1', '?', 'null'))}" if random.random() < 0.3 else ""
        self._parameters += limit.count("?")
        lock = " for update skip locked" if random.random() < 0.05 else ""
        return f"select {values} from {source}{join}{where}{group}{order}{limit}{lock}"

    def _set_operation(self) -> str:
        word = self._random.choice(("union", "union all", "except", "intersect"))
        return f"{self._select()} {word} {self._select()}"

    def _insert(self) -> str:
        random = self._random
        table = random.choice(("t", "u"))
        columns = random.sample(COLUMNS[table], random.randint(1, 4))
        rows = ", ".join(
            "(" + ", ".join(random.choice((*_LITERALS, self._value(1), "default")) for _ in columns) + ")"
            for _ in range(random.randint(1, 3))
        )
        source = f"values {rows}" if random.random() < 0.7 else self._select()
        tail = random.choice(("", "", " on conflict do nothing", " on conflict (i) do update set n = excluded.n"))
        returning = random.choice(("", "", " returning *", f" returning {self._value(1)}"))
        return f"insert into {table} ({', '.join(columns)}) {source}{tail}{returning}"

    def _update(self) -> str:
        random = self._random
        table = random.choice(("t", "u"))
        sets = ", ".join(f"{random.choice(COLUMNS[table])} = {self._value(1)}" for _ in range(random.randint(1, 2)))
        return f"update {table} set {sets}{self._where()}{random.choice(('', '', ' returning *'))}"

    def _delete(self) -> str:
        table = self._random.choice(("t", "u"))
        return f"delete from {table} where {self._condition()} and {self._condition()}"

    def _definition(self) -> str:
        random = self._random
        name = f"f{random.randint(1, 3)}"
        return random.choice(
            (
                f"create table {name} (i int primary key, s varchar({random.randint(0, 30)}) default {self._value(1)})",
                f"create table if not exists {name} (i {random.choice(_TYPES)} check ({self._value(1)}))",
                f"drop table if exists {name}",
                f"drop table {name}",
                f"create {random.choice(('', 'unique '))}index {name}_i on {name} (i)",
                f"alter table {name} add column c{random.randint(1, 3)} {random.choice(_TYPES)}",
                f"alter table {name} rename column i to j",
                f"alter table {name} add constraint k check ({self._value(1)})",
                f"alter table {name} drop constraint k",
                f"truncate table {name}",
                f"insert into {name} values ({random.choice(_LITERALS)})",
                f"alter table t add column extra{random.randint(1, 9)} int default {self._value(1)}",
            )
        )

    def _own(self) -> str:
        return self._random.choice(
            ("savepoint f", "rollback to f", "release f", f"explain {self._select()}", "describe t", "begin",
             "select * from sys_locks", "analyze t", "set autocommit maybe", "explain explain select 1")
        )  # fmt: skip

    # ---- what is no statement

    def _mutated(self, text: str) -> str:
        random = self._random
        tokens = _TOKEN.findall(text)
        for _ in range(random.randint(1, 3)):
            if not tokens:
                break
            at, other = random.randrange(len(tokens)), random.randrange(len(tokens))
            kind = random.randrange(8)
            if kind == 0:
                del tokens[at]
            elif kind == 1:
                tokens.insert(at, tokens[other])
            elif kind == 2:
                tokens[at], tokens[other] = tokens[other], tokens[at]
            elif kind == 3:
                tokens[at] = random.choice(
                    (*_ODD_LITERALS, *_LITERALS, "?", ":a", "(", ")", ",", ";", "\x00", "$1", "@")
                )
            elif kind == 4:
                tokens[at] = tokens[at].upper() + "x" * random.choice((1, 70, 3000))
            elif kind == 5:
                tokens[at] = f"{self._value(1)}"
            elif kind == 6:
                tokens = tokens[:at]
            else:
                tokens[at] = "".join(chr(random.choice((0, 7, 34, 39, 92, 0x80, 0x2028, 0x1F600))) for _ in range(3))
        return "".join(tokens)

    def _nested(self) -> str:
        random = self._random
        deep = random.choice((5, 30, 300, 3000))
        inner = random.choice(_LITERALS)
        return random.choice(
            (
                f"select {'(' * deep}{inner}{')' * deep}",
                f"select {'-' * 1}{'- ' * deep}1",
                f"select {'not ' * deep}true",
                f"select {'abs(' * deep}{inner}{')' * deep} from t",
                f"select {'case when true then ' * deep}{inner}{' end' * deep}",
                f"select {' + '.join(['1'] * deep)}",
                f"select i from t where {' or '.join([f'i = {n}' for n in range(deep)])}",
                f"select {'(select ' * deep}{inner}{')' * deep}",
                f"select {' || '.join(['s'] * deep)} from t",
                f"select * from {'(select * from ' * deep}t{') x' * deep}",
                f"select 1 in ({', '.join(['1'] * deep)})",
                f"insert into u (i) values {', '.join(['(1)'] * deep)}",
                f"select {', '.join(['1'] * deep)}",
                f"{' union all '.join(['select 1'] * min(deep, 30))}",
                f"update t set n = {'coalesce(' * deep}n{')' * deep}",
                f"select repeat('x', {10 ** random.randint(1, 12)}) from t",
                f"select count(*) from generate_series(1, {10 ** random.randint(1, 18)}) g where g < 3",
                f"select lpad('x', {10 ** random.randint(1, 12)}, 'ab')",
                f"select {'x' * deep} from {'y' * deep}",
                f"create table {'z' * deep} (i int)",
            )
        )

    def _noise(self) -> str:
        random = self._random
        characters = [
            random.choice("select from'\"()-;:?*/\\\x00\n$%{}[]é😀0123456789") for _ in range(random.randint(0, 60))
        ]
        return "".join(characters)
