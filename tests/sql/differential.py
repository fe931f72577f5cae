"""Random expressions over random rows: what both gmdb and PostgreSQL are asked.

The expressions are text in the dialect that both speak.  Each kind of value has a strategy of its own, so most are well
typed; their values overflow, divide by zero and are NULL often enough.
"""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from typing import Any

from hypothesis import strategies as st

from gmdb.format.columns import Column, parse_column
from gmdb.sql.casts import write_text

COLUMNS: dict[str, str] = {
    "i": "int",
    "j": "int",
    "b": "bigint",
    "n": "decimal(10,2)",
    "m": "decimal(24,6)",
    "x": "double precision",
    "y": "double precision",
    "s": "varchar(20)",
    "t": "varchar(4000)",
    "c": "char(6)",
    "d": "date",
    "e": "date",
    "ts": "timestamp",
    "p": "boolean",
    "q": "boolean",
    "z": "varbinary(20)",
}
_POSTGRES_TYPES = {"varchar(4000)": "text", "varbinary(20)": "bytea"}


def columns() -> list[Column]:
    return [parse_column(name, spelling) for name, spelling in COLUMNS.items()]


def row_literals(row: tuple[Any, ...]) -> str:
    """The row as a list of PostgreSQL's expressions, named as the columns are."""
    typed = zip(row, columns(), COLUMNS.values(), strict=True)
    return ", ".join(
        f"CAST({literal(value, column)} AS {_POSTGRES_TYPES.get(type_, type_)}) AS {column.name}"
        for value, column, type_ in typed
    )


def literal(value: Any, column: Column) -> str:
    """A value as PostgreSQL reads it."""
    if value is None:
        return "NULL"
    text = value if column.type.name == "CHAR" else write_text(column.type)(value)
    return "'" + text.replace("'", "''") + "'"


# ---- rows

_characters = st.sampled_from(" aAbBcxz019%_\\'é,.-")
_words = st.text(_characters, max_size=6)
_small = st.integers(-10, 10)
_ints = _small | st.integers(-(2**31), 2**31 - 1) | st.sampled_from([-(2**31), 2**31 - 1])
_bigints = _small | st.integers(-(2**63), 2**63 - 1)
_doubles = (
    st.sampled_from([0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e15, 1e-5, 1e300, 1e-300, 123456.789])
    | st.floats(-1000, 1000).map(lambda value: round(value, 3))
    | st.floats()
)
_dates = st.dates(date(1970, 1, 1), date(2100, 12, 31))
_times = st.datetimes(datetime(1960, 1, 1), datetime(2100, 12, 31))


def _decimals(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    limit = 10**precision - 1
    return (st.integers(-limit, limit) | st.integers(-999, 999)).map(lambda digits: Decimal(digits).scaleb(-scale))


def _nullable(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.one_of(values, values, values, st.none())


ROWS = st.tuples(
    _nullable(_ints),
    _nullable(_small),
    _nullable(_bigints),
    _nullable(_decimals(10, 2)),
    _nullable(_decimals(24, 6)),
    _nullable(_doubles),
    _nullable(_doubles),
    _nullable(_words),
    _nullable(_words),
    _nullable(st.text(st.sampled_from("ab xA"), max_size=3).map(lambda text: text + " " * (6 - len(text.encode())))),
    _nullable(_dates),
    _nullable(_dates),
    _nullable(_times),
    _nullable(st.booleans()),
    _nullable(st.booleans()),
    _nullable(st.binary(max_size=4)),
)


# ---- expressions


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _form(template: str, *parts: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.tuples(*parts).map(lambda values: template.format(*values))


_comparison = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
_units = st.sampled_from(["1 month", "-2 days", "1 year 3 days", "36 hours", "90.5 seconds", "1 week", "00:30:00"])
_fields = st.sampled_from(
    ["year", "month", "day", "dow", "isodow", "doy", "quarter", "week", "epoch", "decade", "century"]
)
_clock_fields = st.sampled_from(["hour", "minute", "second", "milliseconds", "epoch", "year"])
_truncations = st.sampled_from(["second", "minute", "hour", "day", "week", "month", "quarter", "year"])


def _numbers(inner: dict[str, Any]) -> st.SearchStrategy[str]:
    number, text, truth, day, moment, count = (inner[k] for k in ("number", "text", "truth", "day", "moment", "count"))
    return st.one_of(
        _form("({} {} {})", number, st.sampled_from("+-*/"), number),
        _form("({} % {})", count, count),
        _form("(- {})", number),
        _form("{}({})", st.sampled_from(["abs", "ceil", "floor", "round", "trunc", "sign"]), number),
        _form("{}({}::numeric, {})", st.sampled_from(["round", "trunc"]), number, st.integers(-3, 8).map(str)),
        _form("sqrt(abs({}))", number),
        _form("mod({}, {})", count, count),
        _form("cast({} as {})", number, st.sampled_from(["int", "bigint", "double precision", "numeric(12,3)"])),
        _form("case when {} then {} else {} end", truth, number, number),
        _form("case {} when {} then {} end", number, number, number),
        _form("coalesce({}, {})", number, number),
        _form("nullif({}, {})", number, number),
        _form("{}({}, {})", st.sampled_from(["greatest", "least"]), number, number),
        _form("{}({})", st.sampled_from(["length", "octet_length", "ascii"]), text),
        _form("{}({})", st.sampled_from(["length", "octet_length", "ascii"]), inner["padded"]),
        _form("strpos({}, {})", text, text),
        _form("position({} in {})", text, text),
        _form("extract({} from {})", _fields, day),
        _form("extract({} from {})", _clock_fields, moment),
        _form("date_part('{}', {})", _clock_fields, moment),
        _form("({} - {})", day, day),
        _form("cast({} as int)", truth),
    )


def _counts(inner: dict[str, Any]) -> st.SearchStrategy[str]:
    count, text, truth = inner["count"], inner["text"], inner["truth"]
    return st.one_of(
        _form("({} {} {})", count, st.sampled_from("+-*/%"), count),
        _form("length({})", text),
        _form("case when {} then {} else {} end", truth, count, count),
        _form("abs({})", count),
    )


def _texts(inner: dict[str, Any]) -> st.SearchStrategy[str]:
    number, text, truth, day, moment = (inner[k] for k in ("number", "text", "truth", "day", "moment"))
    padded = inner["padded"]
    position = st.integers(-3, 8).map(str)
    return st.one_of(
        _form("({} || {})", text, text),
        _form("({} || {}::text)", text, number),
        _form("{}({})", st.sampled_from(["lower", "upper", "trim", "ltrim", "rtrim", "reverse", "initcap"]), text),
        _form("{}({}, {})", st.sampled_from(["btrim", "ltrim", "rtrim"]), text, text),
        _form("substr({}, {})", text, position),
        _form("substring({} from {} for {})", text, position, position),
        _form("replace({}, {}, {})", text, text, text),
        _form("{}({}, {})", st.sampled_from(["left", "right", "repeat"]), text, position),
        _form("{}({}, {}, {})", st.sampled_from(["lpad", "rpad"]), text, position, text),
        _form("split_part({}, {}, {})", text, text, position),
        _form("concat({}, {}, {})", text, number, truth),
        _form("concat_ws({}, {}, {})", text, text, day),
        _form("translate({}, {}, {})", text, text, text),
        _form("case when {} then {} else {} end", truth, text, text),
        _form("coalesce({}, {})", text, text),
        _form("nullif({}, {})", text, text),
        _form("greatest({}, {})", text, text),
        _form("cast(md5({}) as varchar(3))", text),
        _form("cast({} as text)", st.one_of(number, truth, day, moment)),
        _form("md5({})", text),
        _form("({} || {})", padded, text),
        _form("{}({})", st.sampled_from(["lower", "reverse", "rtrim"]), padded),
        _form("concat({}, {})", padded, text),
        _form("cast({} as {})", padded, st.sampled_from(["text", "varchar(3)", "char(2)", "char(8)"])),
    )


def _truths(inner: dict[str, Any]) -> st.SearchStrategy[str]:
    number, text, truth, day, moment = (inner[k] for k in ("number", "text", "truth", "day", "moment"))
    padded = inner["padded"]
    pair = st.one_of(
        _form("({} {} {})", number, _comparison, number),
        _form("({} {} {})", text, _comparison, text),
        _form("({} {} {})", day, _comparison, st.one_of(day, moment)),
        _form("({} {} {})", moment, _comparison, moment),
    )
    return st.one_of(
        pair,
        pair,
        _form("({} and {})", truth, truth),
        _form("({} or {})", truth, truth),
        _form("(not {})", truth),
        _form("({} is {} null)", st.one_of(number, text, day), st.sampled_from(["", "not"])),
        _form(
            "({} is {})", truth, st.sampled_from(["true", "false", "unknown", "not true", "not false", "not unknown"])
        ),
        _form("({} is {} distinct from {})", number, st.sampled_from(["", "not"]), number),
        _form("({} is {} distinct from {})", text, st.sampled_from(["", "not"]), text),
        _form("({} {} between {} and {})", number, st.sampled_from(["", "not"]), number, number),
        _form("({} between symmetric {} and {})", day, day, day),
        _form("({} {} in ({}, {}, null))", number, st.sampled_from(["", "not"]), number, number),
        _form("({} in ({}, {}))", text, text, text),
        _form("({} {} {})", text, st.sampled_from(["like", "not like", "ilike"]), _words.map(_quoted)),
        _form("coalesce({}, {})", truth, truth),
        _form("({} {} {})", padded, _comparison, st.one_of(padded, _LEAVES["text"])),
        _form("({} {} {})", _LEAVES["text"], _comparison, padded),
        _form("({} in ({}, 'ab ', 'x', null))", padded, padded),
        _form("({} like {})", padded, _words.map(_quoted)),
    )


def _days(inner: dict[str, Any]) -> st.SearchStrategy[str]:
    day, moment, truth = inner["day"], inner["moment"], inner["truth"]
    return st.one_of(
        _form(
            "({} {} {})", day, st.sampled_from("+-"), st.sampled_from(["1", "31", "j", "-400"]).map(lambda n: f"({n})")
        ),
        _form("cast({} as date)", moment),
        _form("case when {} then {} else {} end", truth, day, day),
        _form("greatest({}, {})", day, day),
    )


def _moments(inner: dict[str, Any]) -> st.SearchStrategy[str]:
    day, moment, truth = inner["day"], inner["moment"], inner["truth"]
    return st.one_of(
        _form("({} {} interval '{}')", st.one_of(day, moment), st.sampled_from("+-"), _units),
        _form("({} + ({} - {}))", moment, moment, moment),
        _form("cast({} as timestamp)", day),
        _form("date_trunc('{}', {})", _truncations, moment),
        _form("case when {} then {} else {} end", truth, moment, day),
        _form("least({}, {})", moment, day),
    )


_LEAVES = {
    "number": st.sampled_from(
        ["i", "j", "b", "n", "m", "x", "y", "1", "0", "-7", "2.50", "0.001", "3000000000", "null::int"]
    ),
    "count": st.sampled_from(["i", "j", "b", "3", "0", "-2"]),
    "text": st.sampled_from(["s", "t", "''", "'aB'", "' x '", "null::text"]),
    "padded": st.sampled_from(["c", "'ab'::char(4)", "null::char(3)"]),
    "truth": st.sampled_from(["p", "q", "true", "false", "null::boolean"]),
    "day": st.sampled_from(["d", "e", "date '2024-02-29'"]),
    "moment": st.sampled_from(["ts", "timestamp '2000-01-31 23:59:59.5'"]),
}
_BRANCHES = {"number": _numbers, "count": _counts, "text": _texts, "truth": _truths, "day": _days, "moment": _moments}


def expressions(depth: int) -> dict[str, st.SearchStrategy[str]]:
    """A strategy for each kind of value."""
    if not depth:
        return _LEAVES
    inner = expressions(depth - 1)
    mixed = {kind: st.one_of(leaves, inner.get(kind, leaves)) for kind, leaves in _LEAVES.items()}
    return {kind: make(mixed) for kind, make in _BRANCHES.items()}


EXPRESSIONS = st.one_of(*(made for depth in (1, 2, 3) for made in expressions(depth).values()))
