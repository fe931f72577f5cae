"""Random queries out of a grammar: every kind of clause that gmdb takes, typed so that most of them have an answer."""

from __future__ import annotations

from random import Random

TYPES = {
    "i": "int",
    "j": "int",
    "b": "bigint",
    "n": "numeric",
    "m": "numeric",
    "x": "double",
    "s": "text",
    "u": "text",
    "c": "char",
    "d": "date",
    "t": "timestamp",
    "f": "boolean",
    "y": "bytea",
}
NUMBERS = ("int", "bigint", "numeric", "double")


class Queries:
    """A stream of queries over tables t1, t2 and t3, which have the columns of TYPES."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.aliases = 0

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def pick(self, *items: str) -> str:
        return self.random.choice(items)

    def alias(self) -> str:
        self.aliases += 1
        return f"q{self.aliases}"

    # ---- expressions: of a type, over tables (alias -> {column: type})

    def column(self, type_: str, tables: dict[str, dict[str, str]]) -> str | None:
        found = [f"{alias}.{name}" for alias, columns in tables.items() for name, t in columns.items() if t == type_]
        return self.random.choice(found) if found else None

    def expression(self, type_: str, tables: dict[str, dict[str, str]], depth: int = 2) -> str:
        column = self.column(type_, tables)
        if column is not None and (depth <= 0 or self.chance(0.4)):
            return column
        if depth <= 0 or self.chance(0.12):
            return self.literal(type_)
        shared = {
            0: lambda: self.case(type_, tables, depth),
            1: lambda: f"coalesce({self.expression(type_, tables, depth - 1)}, {self.literal(type_)})",
            2: lambda: f"nullif({self.expression(type_, tables, depth - 1)}, {self.literal(type_)})",
            3: lambda: self.extreme(type_, tables, depth),
        }
        if self.chance(0.25) and type_ not in ("char", "bytea"):
            return shared[self.random.randrange(4)]()
        return getattr(self, f"_{type_}")(tables, depth - 1)

    def case(self, type_: str, tables: dict[str, dict[str, str]], depth: int) -> str:
        when = self.condition(tables, depth - 1)
        one, other = (self.expression(type_, tables, depth - 1) for _ in range(2))
        return f"CASE WHEN {when} THEN {one} ELSE {other} END"

    def extreme(self, type_: str, tables: dict[str, dict[str, str]], depth: int) -> str:
        one, other = (self.expression(type_, tables, depth - 1) for _ in range(2))
        return f"{self.pick('greatest', 'least')}({one}, {other})"

    def literal(self, type_: str) -> str:
        return {
            "int": lambda: str(self.random.randint(-3, 12)),
            "bigint": lambda: f"{self.random.randint(-3, 5)}::bigint",
            "numeric": lambda: self.pick("0.5", "1.25", "-3.10", "100", "2.0", "0.01") + "::numeric(9,2)",
            "double": lambda: self.pick("0.5", "-2", "1e3", "3.25") + "::double precision",
            "text": lambda: self.pick("'a'::text", "''::text", "'abc'::text", "'ä b'::text", "'Z'::varchar(3)"),
            "char": lambda: self.pick("'ab'::char(4)", "'a'::char(4)"),
            "date": lambda: self.pick("'2020-02-01'::date", "'2020-02-29'::date"),
            "timestamp": lambda: self.pick("'2020-03-01 00:00:00'::timestamp", "'2020-02-28 12:34:56.5'::timestamp"),
            "boolean": lambda: self.pick("true", "false"),
            "bytea": lambda: self.pick("'\\x6162'::bytea", "'\\x00'::bytea"),
        }[type_]()

    def _int(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        def a(type_: str) -> str:
            return self.expression(type_, tables, depth)

        return self.random.choice(
            [
                lambda: f"({a('int')} {self.pick('+', '-', '*')} {self.random.randint(0, 3)})",
                lambda: f"({a('int')} / nullif({a('int')}, 0))",
                lambda: f"({a('int')} % {self.pick('3', '7', '-2')})",
                lambda: f"length({a('text')})",
                lambda: f"length({a('char')})",
                lambda: f"octet_length({a('bytea')})",
                lambda: f"strpos({a('text')}, {a('text')})",
                lambda: f"({a('date')} - {a('date')})",
                lambda: f"abs({a('int')})",
                lambda: f"(- {a('int')})",
                lambda: f"({a('boolean')})::int",
                lambda: f"round({a('numeric')}, 1)::int % 1000",
                lambda: f"ascii({a('text')})",
            ]
        )()

    def _bigint(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        return self.random.choice(
            [
                lambda: f"({self.expression('bigint', tables, depth)} {self.pick('+', '-')} {self.literal('int')})",
                lambda: f"({self.expression('int', tables, depth)}::bigint * {self.literal('bigint')})",
                lambda: f"({self.expression('bigint', tables, depth)} / {self.pick('2', '-3', '7')})",
                lambda: f"({self.expression('bigint', tables, depth)} % 5)",
                lambda: f"abs({self.expression('bigint', tables, depth)})",
            ]
        )()

    def _numeric(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        def a(type_: str) -> str:
            return self.expression(type_, tables, depth)

        return self.random.choice(
            [
                lambda: f"({a('numeric')} {self.pick('+', '-')} {a('numeric')})",
                lambda: f"({a('numeric')} * {self.literal('numeric')})",
                lambda: f"({a('int')} * {self.literal('numeric')})",
                lambda: f"({a('numeric')} / nullif({self.column('numeric', tables) or '3.5'}, 0))",
                lambda: f"round({a('numeric')}, {self.random.randint(0, 3)})",
                lambda: f"trunc({a('numeric')}, {self.random.randint(0, 3)})",
                lambda: f"round({a('numeric')})",
                lambda: f"{self.pick('floor', 'ceil', 'sign', 'abs')}({a('numeric')})",
                lambda: f"({a('int')} + {a('numeric')})",
                lambda: f"({a('numeric')} % {self.pick('3', '0.7', '-2.5')})",
                lambda: f"{a('int')}::numeric",
                lambda: (
                    f"extract({self.pick('year', 'month', 'day', 'dow', 'doy', 'week', 'quarter')} from {a('date')})"
                ),
                lambda: f"extract({self.pick('second', 'hour', 'epoch', 'minute', 'isodow')} from {a('timestamp')})",
                lambda: f"{self.column('numeric', tables) or '1.555'}::numeric(12,1)",
            ]
        )()

    def _double(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        def a(type_: str) -> str:
            return self.expression(type_, tables, depth)

        return self.random.choice(
            [
                lambda: f"({a('double')} {self.pick('+', '-', '*')} {self.literal('double')})",
                lambda: f"({a('double')} / nullif({a('double')}, 0))",
                lambda: f"({a('double')} + {a('numeric')})",
                lambda: f"({a('int')} * {a('double')})",
                lambda: f"{self.pick('round', 'floor', 'ceil', 'abs', 'trunc', 'sign')}({a('double')})",
                lambda: f"sqrt(abs({a('double')}))",
                lambda: f"{a('int')}::double precision",
                lambda: f"{a('numeric')}::double precision",
                lambda: f"power({a('int')}, 2)",
            ]
        )()

    def _text(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        def a(type_: str) -> str:
            return self.expression(type_, tables, depth)

        return self.random.choice(
            [
                lambda: f"({a('text')} || {a('text')})",
                lambda: f"({a('char')} || {a('text')})",
                lambda: f"({a('text')} || {a('int')})",
                lambda: f"{self.pick('upper', 'lower', 'reverse', 'trim', 'ltrim', 'rtrim', 'md5')}({a('text')})",
                lambda: f"substring({a('text')} from {self.random.randint(-1, 3)} for {self.random.randint(0, 3)})",
                lambda: f"substr({a('text')}, {self.random.randint(-1, 3)})",
                lambda: f"{self.pick('left', 'right')}({a('text')}, {self.random.randint(-2, 3)})",
                lambda: f"replace({a('text')}, 'a', {a('text')})",
                lambda: f"{self.pick('lpad', 'rpad')}({a('text')}, {self.random.randint(0, 6)}, '*')",
                lambda: f"concat({a('text')}, {a('int')}, {a('boolean')})",
                lambda: f"concat_ws('-', {a('text')}, {a('date')})",
                lambda: f"{a(self.pick('int', 'boolean', 'date', 'timestamp', 'char', 'bytea'))}::text",
                lambda: f"{self.column('numeric', tables) or '1.50'}::text",
                lambda: f"{self.ascii(tables, depth)}::varchar(2)",
                lambda: f"split_part({a('text')}, ' ', 1)",
                lambda: f"repeat({a('text')}, {self.random.randint(-1, 2)})",
                lambda: f"to_char({a('timestamp')}, 'YYYY-MM-DD HH24:MI:SS')",
            ]
        )()

    def _char(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        return f"{self.ascii(tables, depth)}::char(4)"

    def ascii(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        """A text whose characters are bytes: that is what gmdb counts for types, where PostgreSQL counts characters."""
        return f"translate({self.expression('text', tables, depth)}, 'äöüÄÖÜ', 'aouAOU')"

    def _bytea(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        return f"({self.expression('bytea', tables, depth)} || {self.expression('bytea', tables, depth)})"

    def _date(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        return self.random.choice(
            [
                lambda: (
                    f"({self.expression('date', tables, depth)} {self.pick('+', '-')} {self.random.randint(0, 40)})"
                ),
                lambda: f"{self.expression('timestamp', tables, depth)}::date",
                lambda: f"({self.expression('date', tables, depth)} + ({self.expression('int', tables, 0)} % 50))",
            ]
        )()

    def _timestamp(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        span = self.pick("1 day", "1 month", "90 minutes", "1 year 2 months", "-3 hours", "1.5 seconds")
        return self.random.choice(
            [
                lambda: f"({self.expression('timestamp', tables, depth)} {self.pick('+', '-')} interval '{span}')",
                lambda: f"({self.expression('date', tables, depth)} + interval '{span}')",
                lambda: (
                    f"date_trunc('{self.pick('month', 'day', 'hour', 'year', 'week', 'quarter')}', "
                    f"{self.expression('timestamp', tables, depth)})"
                ),
                lambda: f"{self.expression('date', tables, depth)}::timestamp",
            ]
        )()

    def _boolean(self, tables: dict[str, dict[str, str]], depth: int) -> str:
        return f"({self.condition(tables, depth)})"

    def condition(self, tables: dict[str, dict[str, str]], depth: int = 2) -> str:
        type_ = self.pick("int", "bigint", "numeric", "double", "text", "char", "date", "timestamp")

        def a(chosen: str = type_) -> str:
            return self.expression(chosen, tables, depth - 1)

        choices = [
            lambda: f"{a()} {self.pick('=', '<>', '<', '<=', '>', '>=')} {a()}",
            lambda: f"{a()} {self.pick('=', '<', '>=')} {a(self.mixed(type_))}",
            lambda: f"{a()} BETWEEN {a()} AND {a()}",
            lambda: f"{a()} {self.pick('IN', 'NOT IN')} ({a()}, {self.literal(type_)}, {a()})",
            lambda: f"{a()} IS {self.pick('', 'NOT ')}NULL",
            lambda: f"{a()} IS {self.pick('', 'NOT ')}DISTINCT FROM {a()}",
            lambda: f"{a('text')} {self.pick('LIKE', 'NOT LIKE', 'ILIKE')} '{self.pick('a%', '%b%', '_', 'A_%', '%')}'",
            lambda: f"{a('char')} LIKE '{self.pick('a%', 'ab  ', '____', 'ab')}'",
            lambda: f"({a('int')}, {a('text')}) {self.pick('=', '<>', '<', '>=')} ({a('int')}, {a('text')})",
            lambda: f"{a('boolean')} IS {self.pick('', 'NOT ')}{self.pick('TRUE', 'FALSE', 'UNKNOWN')}",
            lambda: self.column("boolean", tables) or "true",
        ]
        if depth > 0:
            choices += [
                lambda: f"({self.condition(tables, depth - 1)} AND {self.condition(tables, depth - 1)})",
                lambda: f"({self.condition(tables, depth - 1)} OR {self.condition(tables, depth - 1)})",
                lambda: f"NOT ({self.condition(tables, depth - 1)})",
                lambda: self.subquery_condition(tables),
            ]
        return self.random.choice(choices)()

    def mixed(self, type_: str) -> str:
        if type_ in NUMBERS:
            return self.pick(*NUMBERS)
        return {"char": "text", "text": "char", "date": "timestamp", "timestamp": "date"}[type_]

    def subquery_condition(self, tables: dict[str, dict[str, str]]) -> str:
        alias = self.alias()
        inner = {alias: dict(TYPES)}
        both = {**tables, **inner} if self.chance(0.6) else inner
        table = self.pick("t1", "t2", "t3")
        type_ = self.pick("int", "text", "numeric", "date", "char")
        value = self.expression(type_, tables, 1)
        source = f"FROM {table} AS {alias} WHERE {self.condition(both, 0)}"
        return self.random.choice(
            [
                lambda: f"{self.pick('EXISTS', 'NOT EXISTS')} (SELECT * {source})",
                lambda: f"{value} {self.pick('IN', 'NOT IN')} (SELECT {self.expression(type_, inner, 1)} {source})",
                lambda: (
                    f"{value} {self.pick('=', '<', '>')} {self.pick('ANY', 'ALL')} "
                    f"(SELECT {self.expression(type_, inner, 0)} {source})"
                ),
                lambda: f"{self.expression('int', tables, 0)} < (SELECT count(*) {source})",
                lambda: f"{value} <= (SELECT max({self.expression(type_, inner, 1)}) {source})",
            ]
        )()

    # ---- aggregates and windows

    def aggregate(self, tables: dict[str, dict[str, str]]) -> str:
        type_ = self.pick(*NUMBERS)
        any_type = self.pick(*NUMBERS, "text", "char", "date", "timestamp")
        distinct = "DISTINCT " if self.chance(0.2) else ""
        call = self.random.choice(
            [
                lambda: "count(*)",
                lambda: f"count({distinct}{self.expression(any_type, tables, 1)})",
                lambda: f"{self.pick('sum', 'avg')}({distinct}{self.expression(type_, tables, 1)})",
                lambda: f"{self.pick('min', 'max')}({self.expression(any_type, tables, 1)})",
                lambda: (
                    f"{self.pick('stddev', 'variance', 'var_pop', 'stddev_pop')}({self.column(type_, tables) or 1})"
                ),
                lambda: f"{self.pick('bool_and', 'bool_or', 'every')}({self.condition(tables, 0)})",
                lambda: self.string_agg(tables),
            ]
        )()
        return f"{call} FILTER (WHERE {self.condition(tables, 0)})" if self.chance(0.15) else call

    def string_agg(self, tables: dict[str, dict[str, str]]) -> str:
        value = self.expression("text", tables, 1)
        return f"string_agg({value}, ',' ORDER BY {value})"

    def window(self, tables: dict[str, dict[str, str]], key: str) -> str:
        """A window whose order is total, by a key."""
        type_ = self.pick("int", "text", "numeric", "date", "double")
        parts = []
        if self.chance(0.5):
            parts.append(f"PARTITION BY {self.expression(self.pick('int', 'text', 'boolean', 'char'), tables, 1)}")
        parts.append(f"ORDER BY {self.expression(type_, tables, 1)}{self.direction()}, {key}")
        frame = self.pick("", "", "ROWS BETWEEN 2 PRECEDING AND CURRENT ROW", "ROWS UNBOUNDED PRECEDING")
        value = self.expression(type_, tables, 1)
        whole = self.pick("int", "bigint", "numeric")
        call = self.random.choice(
            [
                lambda: self.pick(
                    "row_number()", "rank()", "dense_rank()", "percent_rank()", "cume_dist()", "ntile(3)"
                ),
                lambda: f"{self.pick('lag', 'lead')}({value}{self.pick('', ', 2')})",
                lambda: f"{self.pick('first_value', 'last_value')}({value})",
                lambda: f"{self.pick('sum', 'avg')}({self.expression(whole, tables, 1)})",
                lambda: f"{self.pick('min', 'max', 'count')}({value})",
            ]
        )()
        return f"{call} OVER ({' '.join(parts)}{' ' + frame if '()' not in call and 'la' not in call else ''})"

    def direction(self) -> str:
        return self.pick("", " DESC", " ASC", " DESC NULLS LAST", " NULLS FIRST")

    # ---- queries: each returns its text and the types of its columns

    def source(self, depth: int) -> tuple[str, dict[str, dict[str, str]]]:
        def one() -> tuple[str, dict[str, dict[str, str]]]:
            alias = self.alias()
            if depth > 0 and self.chance(0.25):
                text, types = self.select(depth - 1)
                columns = {f"k{number}": type_ for number, type_ in enumerate(types)}
                return f"({text}) AS {alias}({', '.join(columns)})", {alias: columns}
            return f"{self.pick('t1', 't2', 't3')} AS {alias}", {alias: dict(TYPES)}

        text, tables = one()
        for _ in range(self.pick("", "", "j", "jj").count("j")):
            other, more = one()
            both = {**tables, **more}
            kind = self.pick("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS JOIN")
            if kind == "CROSS JOIN":
                text = f"{text} CROSS JOIN {other}"
            else:
                text = f"{text} {kind} {other} ON {self.equality(tables, more)}"
            tables = both
        return text, tables

    def equality(self, left: dict[str, dict[str, str]], right: dict[str, dict[str, str]]) -> str:
        for type_ in self.random.sample(["int", "text", "date", "char", "numeric", "boolean", "bigint"], 7):
            one, other = self.column(type_, left), self.column(type_, right)
            if one is not None and other is not None:
                return f"{one} = {other}"
        return "1 = 1"

    def select(self, depth: int = 1) -> tuple[str, list[str]]:
        """A query whose rows do not depend on any order."""
        source, tables = self.source(depth)
        where = f" WHERE {self.condition(tables, 2)}" if self.chance(0.6) else ""
        count = self.random.randint(1, 3)
        if self.chance(0.4):
            return self.grouped(source, tables, where)
        types = [self.pick(*NUMBERS, "text", "char", "date", "timestamp", "boolean", "bytea") for _ in range(count)]
        listed = ", ".join(self.expression(type_, tables, 3) for type_ in types)
        distinct = "DISTINCT " if self.chance(0.2) else ""
        return f"SELECT {distinct}{listed} FROM {source}{where}", types

    def grouped(self, source: str, tables: dict[str, dict[str, str]], where: str) -> tuple[str, list[str]]:
        keys = [self.pick("int", "text", "char", "boolean", "date") for _ in range(self.random.randint(0, 2))]
        groups = [self.expression(type_, tables, 1) for type_ in keys]
        groups = [key if any(alias + "." in key for alias in tables) else f"coalesce({key}, NULL)" for key in groups]
        aggregates = [self.aggregate(tables) for _ in range(self.random.randint(1, 3))]
        having = f" HAVING {self.aggregate(tables)} IS NOT NULL" if self.chance(0.2) else ""
        by = ", ".join(self.pick(str(number + 1), key) for number, key in enumerate(groups))
        group = f" GROUP BY {by}" if groups else ""
        unknown = ["any"] * len(aggregates)
        return f"SELECT {', '.join([*groups, *aggregates])} FROM {source}{where}{group}{having}", [*keys, *unknown]

    def query(self) -> tuple[str, bool]:
        """A query, and whether its rows are in an order that is told."""
        kind = self.random.random()
        if kind < 0.12:
            return self.windowed(), False
        if kind < 0.24:
            return self.combined(), False
        text, types = self.select(2)
        if kind < 0.32:
            columns = ", ".join(f"k{number}" for number in range(len(types)))
            text = f"WITH w({columns}) AS ({text}) SELECT * FROM w UNION ALL SELECT * FROM w"
        if self.chance(0.5):
            order = ", ".join(f"{number + 1}{self.direction()}" for number in range(len(types)))
            limit = self.pick("", " LIMIT 5", " LIMIT 4 OFFSET 2", " OFFSET 3")
            return f"{text} ORDER BY {order}{limit}", True
        return text, False

    def windowed(self) -> str:
        tables = {"q": {**TYPES, "k": "int"}}
        condition = f" WHERE {self.condition(tables, 1)}" if self.chance(0.4) else ""
        listed = ", ".join(self.window(tables, "q.k") for _ in range(self.random.randint(1, 2)))
        return f"SELECT q.k, {listed} FROM t4 AS q{condition}"

    def combined(self) -> str:
        types = [self.pick("int", "text", "numeric", "date", "bigint", "double") for _ in range(2)]
        parts = []
        for _ in range(self.random.randint(2, 3)):
            source, tables = self.source(0)
            chosen = [self.mixed_number(type_) for type_ in types]
            listed = ", ".join(self.expression(type_, tables, 1) for type_ in chosen)
            parts.append(f"(SELECT {listed} FROM {source})")
        text = parts[0]
        for part in parts[1:]:
            text += f" {self.pick('UNION', 'UNION ALL', 'INTERSECT', 'EXCEPT', 'INTERSECT ALL', 'EXCEPT ALL')} {part}"
        return text

    def mixed_number(self, type_: str) -> str:
        return self.pick("int", type_) if type_ in NUMBERS else type_
