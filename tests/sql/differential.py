"""Random expressions over random rows: what both gmdb and PostgreSQL are asked.

    random_expression(Random(7))   # "(i % j)"

The expressions are text in the dialect that both speak.  Each kind of value has a maker of its own, so most are well
typed; their values overflow, divide by zero and are NULL often enough.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from random import Random
from typing import Any
from uuid import UUID

from gmdb.format.columns import Column, parse_column
from gmdb.format.interval import Interval
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
    "h": "smallint",
    "r": "real",
    "tz": "timestamptz",
    "ti": "time",
    "iv": "interval",
    "u": "uuid",
}
Maker = Callable[[Random], str]
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

_CHARACTERS = " aAbBcxz019%_\\'é,.-"
_DOUBLES = (0.0, -0.0, 1.0, -1.5, 2.5, 0.1, 1e15, 1e-5, 1e300, 1e-300, 123456.789, float("inf"), float("nan"))


def random_row(random: Random) -> tuple[Any, ...]:
    """A quarter of the values are NULL."""

    def some(value: Any) -> Any:
        return None if random.random() < 0.25 else value

    padded = _word(random, "ab xA", 3)
    return (
        some(random.choice([_small(random), random.randint(-(2**31), 2**31 - 1), -(2**31), 2**31 - 1])),
        some(_small(random)),
        some(random.choice([_small(random), random.randint(-(2**63), 2**63 - 1)])),
        some(_decimal(random, 10, 2)),
        some(_decimal(random, 24, 6)),
        some(_double(random)),
        some(_double(random)),
        some(_word(random, _CHARACTERS, 6)),
        some(_word(random, _CHARACTERS, 6)),
        some(padded + " " * (6 - len(padded.encode()))),
        some(date(1970, 1, 1) + timedelta(days=random.randint(0, 47_846))),
        some(date(1970, 1, 1) + timedelta(days=random.randint(0, 47_846))),
        some(datetime(1960, 1, 1) + timedelta(microseconds=random.randint(0, 4_449_513_600_000_000))),
        some(random.random() < 0.5),
        some(random.random() < 0.5),
        some(random.randbytes(random.randint(0, 4))),
        some(random.choice([_small(random), random.randint(-(2**15), 2**15 - 1), -(2**15), 2**15 - 1])),
        some(_real(random)),
        some(datetime(1960, 1, 1, tzinfo=UTC) + timedelta(microseconds=random.randint(0, 4_449_513_600_000_000))),
        some((datetime(1970, 1, 1) + timedelta(microseconds=random.randrange(86_400_000_000))).time()),
        some(Interval(_small(random), _small(random), random.choice([0, random.randint(-(10**11), 10**11)]))),
        some(UUID(int=random.choice([0, 1, (1 << 128) - 1, random.getrandbits(128)]))),
    )


def _small(random: Random) -> int:
    return random.randint(-10, 10)


def _decimal(random: Random, precision: int, scale: int) -> Decimal:
    limit = 10**precision - 1
    return Decimal(random.choice([random.randint(-limit, limit), random.randint(-999, 999)])).scaleb(-scale)


def _double(random: Random) -> float:
    """Round ones, odd ones, and any eight bytes."""
    bits: float = struct.unpack("<d", random.randbytes(8))[0]
    return random.choice([random.choice(_DOUBLES), round(random.uniform(-1000, 1000), 3), bits])


def _real(random: Random) -> float:
    bits: float = struct.unpack("<f", random.randbytes(4))[0]
    return random.choice([0.0, -0.0, 1.0, -1.5, 2.5, 16777216.0, float("inf"), float("nan"), bits])


def _word(random: Random, characters: str, longest: int) -> str:
    return "".join(random.choice(characters) for _ in range(random.randint(0, longest)))


# ---- expressions


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _sampled(items: Sequence[str]) -> Maker:
    return lambda random: random.choice(items)


def _one_of(*makers: Maker) -> Maker:
    return lambda random: random.choice(makers)(random)


def _form(template: str, *parts: Maker) -> Maker:
    return lambda random: template.format(*(part(random) for part in parts))


def _integer(low: int, high: int) -> Maker:
    return lambda random: str(random.randint(low, high))


def _words(random: Random) -> str:
    return _quoted(_word(random, _CHARACTERS, 6))


_comparison = _sampled(["=", "<>", "<", "<=", ">", ">="])
_units = _sampled(["1 month", "-2 days", "1 year 3 days", "36 hours", "90.5 seconds", "1 week", "00:30:00"])
_fields = _sampled(["year", "month", "day", "dow", "isodow", "doy", "quarter", "week", "epoch", "decade", "century"])
_clock_fields = _sampled(["hour", "minute", "second", "milliseconds", "epoch", "year"])
_truncations = _sampled(["second", "minute", "hour", "day", "week", "month", "quarter", "year"])


def _numbers(inner: dict[str, Any]) -> Maker:
    number, text, truth, day, moment, count = (inner[k] for k in ("number", "text", "truth", "day", "moment", "count"))
    return _one_of(
        _form("({} {} {})", number, _sampled("+-*/"), number),
        _form("({} % {})", count, count),
        _form("(- {})", number),
        _form("{}({})", _sampled(["abs", "ceil", "floor", "round", "trunc", "sign"]), number),
        _form("{}({}::numeric, {})", _sampled(["round", "trunc"]), number, _integer(-3, 8)),
        _form("sqrt(abs({}))", number),
        _form("mod({}, {})", count, count),
        _form("cast({} as {})", number, _sampled(["smallint", "int", "bigint", "real", "double precision"])),
        _form("cast({} as numeric(12,3))", number),
        _form("case when {} then {} else {} end", truth, number, number),
        _form("case {} when {} then {} end", number, number, number),
        _form("coalesce({}, {})", number, number),
        _form("nullif({}, {})", number, number),
        _form("{}({}, {})", _sampled(["greatest", "least"]), number, number),
        _form("{}({})", _sampled(["length", "octet_length", "ascii"]), text),
        _form("{}({})", _sampled(["length", "octet_length", "ascii"]), inner["padded"]),
        _form("strpos({}, {})", text, text),
        _form("position({} in {})", text, text),
        _form("extract({} from {})", _fields, day),
        _form("extract({} from {})", _clock_fields, moment),
        _form("extract({} from {})", _sampled(["hour", "minute", "second", "epoch"]), inner["clock"]),
        _form("extract({} from {})", _sampled(["year", "day", "hour", "second", "epoch"]), inner["span"]),
        _form("date_part('{}', {})", _clock_fields, moment),
        _form("({} - {})", day, day),
        _form("cast({} as int)", truth),
    )


def _counts(inner: dict[str, Any]) -> Maker:
    count, text, truth = inner["count"], inner["text"], inner["truth"]
    return _one_of(
        _form("({} {} {})", count, _sampled("+-*/%"), count),
        _form("length({})", text),
        _form("case when {} then {} else {} end", truth, count, count),
        _form("abs({})", count),
    )


def _texts(inner: dict[str, Any]) -> Maker:
    number, text, truth, day, moment = (inner[k] for k in ("number", "text", "truth", "day", "moment"))
    padded = inner["padded"]
    position = _integer(-3, 8)
    return _one_of(
        _form("({} || {})", text, text),
        _form("({} || {}::text)", text, number),
        _form("{}({})", _sampled(["lower", "upper", "trim", "ltrim", "rtrim", "reverse", "initcap"]), text),
        _form("{}({}, {})", _sampled(["btrim", "ltrim", "rtrim"]), text, text),
        _form("substr({}, {})", text, position),
        _form("substring({} from {} for {})", text, position, position),
        _form("replace({}, {}, {})", text, text, text),
        _form("{}({}, {})", _sampled(["left", "right", "repeat"]), text, position),
        _form("{}({}, {}, {})", _sampled(["lpad", "rpad"]), text, position, text),
        _form("split_part({}, {}, {})", text, text, position),
        _form("concat({}, {}, {})", text, number, truth),
        _form("concat_ws({}, {}, {})", text, text, day),
        _form("translate({}, {}, {})", text, text, text),
        _form("case when {} then {} else {} end", truth, text, text),
        _form("coalesce({}, {})", text, text),
        _form("nullif({}, {})", text, text),
        _form("greatest({}, {})", text, text),
        _form("cast(md5({}) as varchar(3))", text),
        _form("cast({} as text)", _one_of(number, truth, day, moment)),
        _form("cast({} as text)", _one_of(*(inner[kind] for kind in ("clock", "span", "key")))),
        _form("md5({})", text),
        _form("({} || {})", padded, text),
        _form("{}({})", _sampled(["lower", "reverse", "rtrim"]), padded),
        _form("concat({}, {})", padded, text),
        _form("cast({} as {})", padded, _sampled(["text", "varchar(3)", "char(2)", "char(8)"])),
    )


def _truths(inner: dict[str, Any]) -> Maker:
    number, text, truth, day, moment = (inner[k] for k in ("number", "text", "truth", "day", "moment"))
    padded = inner["padded"]
    pair = _one_of(
        _form("({} {} {})", number, _comparison, number),
        _form("({} {} {})", text, _comparison, text),
        _form("({} {} {})", day, _comparison, _one_of(day, moment)),
        _form("({} {} {})", moment, _comparison, moment),
        *(_form("({} {} {})", inner[kind], _comparison, inner[kind]) for kind in ("clock", "span", "key")),
    )
    return _one_of(
        pair,
        pair,
        _form("({} and {})", truth, truth),
        _form("({} or {})", truth, truth),
        _form("(not {})", truth),
        _form("({} is {} null)", _one_of(number, text, day), _sampled(["", "not"])),
        _form("({} is {})", truth, _sampled(["true", "false", "unknown", "not true", "not false", "not unknown"])),
        _form("({} is {} distinct from {})", number, _sampled(["", "not"]), number),
        _form("({} is {} distinct from {})", text, _sampled(["", "not"]), text),
        _form("({} {} between {} and {})", number, _sampled(["", "not"]), number, number),
        _form("({} between symmetric {} and {})", day, day, day),
        _form("({} {} in ({}, {}, null))", number, _sampled(["", "not"]), number, number),
        _form("({} in ({}, {}))", text, text, text),
        _form("({} {} {})", text, _sampled(["like", "not like", "ilike"]), _words),
        _form("coalesce({}, {})", truth, truth),
        _form("({} {} {})", padded, _comparison, _one_of(padded, _LEAVES["text"])),
        _form("({} {} {})", _LEAVES["text"], _comparison, padded),
        _form("({} in ({}, 'ab ', 'x', null))", padded, padded),
        _form("({} like {})", padded, _words),
    )


def _days(inner: dict[str, Any]) -> Maker:
    day, moment, truth = inner["day"], inner["moment"], inner["truth"]
    return _one_of(
        _form("({} {} {})", day, _sampled("+-"), _sampled(["(1)", "(31)", "(j)", "(-400)"])),
        _form("cast({} as date)", moment),
        _form("case when {} then {} else {} end", truth, day, day),
        _form("greatest({}, {})", day, day),
    )


def _moments(inner: dict[str, Any]) -> Maker:
    day, moment, truth = inner["day"], inner["moment"], inner["truth"]
    return _one_of(
        _form("({} {} interval '{}')", _one_of(day, moment), _sampled("+-"), _units),
        _form("({} + ({} - {}))", moment, moment, moment),
        _form("cast({} as timestamp)", day),
        _form("date_trunc('{}', {})", _truncations, moment),
        _form("({} + {})", day, inner["clock"]),
        _form("({} {} {})", moment, _sampled("+-"), inner["span"]),
        _form("({} at time zone '{}')", moment, _sampled(["UTC", "America/New_York"])),
        _form("cast({} as {})", moment, _sampled(["timestamp", "timestamptz"])),
        _form("case when {} then {} else {} end", truth, moment, day),
        _form("least({}, {})", moment, day),
    )


def _clocks(inner: dict[str, Any]) -> Maker:
    clock, span, moment, truth = inner["clock"], inner["span"], inner["moment"], inner["truth"]
    return _one_of(
        _form("({} {} {})", clock, _sampled("+-"), span),
        _form("cast({} as time)", _one_of(moment, span)),
        _form("case when {} then {} else {} end", truth, clock, clock),
        _form("greatest({}, {})", clock, clock),
    )


def _spans(inner: dict[str, Any]) -> Maker:
    clock, span, moment, truth = inner["clock"], inner["span"], inner["moment"], inner["truth"]
    return _one_of(
        _form("({} - {})", clock, clock),
        _form("({} - {})", moment, moment),
        _form("({} {} {})", span, _sampled("+-"), span),
        _form("({} * {})", span, _sampled(["2", "-1", "0.5", "h"])),
        _form("(- {})", span),
        _form("cast({} as interval)", clock),
        _form("coalesce({}, {})", span, span),
        _form("case when {} then {} else {} end", truth, span, span),
    )


def _keys(inner: dict[str, Any]) -> Maker:
    return _one_of(
        _form("coalesce({}, {})", inner["key"], inner["key"]),
        _form("cast(cast({} as text) as uuid)", inner["key"]),
        _form("case when {} then {} else {} end", inner["truth"], inner["key"], inner["key"]),
    )


_LEAVES = {
    "number": _sampled([*"ijbnmxyhr", "1", "0", "-7", "2.50", "0.001", "3000000000", "null::int"]),
    "count": _sampled(["i", "j", "b", "h", "3", "0", "-2"]),
    "text": _sampled(["s", "t", "''", "'aB'", "' x '", "null::text"]),
    "padded": _sampled(["c", "'ab'::char(4)", "null::char(3)"]),
    "truth": _sampled(["p", "q", "true", "false", "null::boolean"]),
    "day": _sampled(["d", "e", "date '2024-02-29'"]),
    "moment": _sampled(["ts", "tz", "timestamp '2000-01-31 23:59:59.5'", "'2000-02-29 12:00+05:30'::timestamptz"]),
    "clock": _sampled(["ti", "'23:30'::time", "'00:00:00.5'::time"]),
    "span": _sampled(["iv", "interval '1 month'", "interval '30 days'", "interval '-36 hours'"]),
    "key": _sampled(["u", "'7fffffff-ffff-4fff-bfff-0123456789ab'::uuid"]),
}
_BRANCHES = {
    **{"number": _numbers, "count": _counts, "text": _texts, "truth": _truths, "day": _days, "moment": _moments},
    **{"clock": _clocks, "span": _spans, "key": _keys},
}


def expressions(depth: int) -> dict[str, Maker]:
    """A maker for each kind of value."""
    if not depth:
        return _LEAVES
    inner = expressions(depth - 1)
    mixed = {kind: _one_of(leaves, inner.get(kind, leaves)) for kind, leaves in _LEAVES.items()}
    return {kind: make(mixed) for kind, make in _BRANCHES.items()}


random_expression = _one_of(*(maker for depth in (1, 2, 3) for maker in expressions(depth).values()))
