"""Values of every type of columns, its extremes among them: the one table that tests of types go by.

A new type gets an entry here, and every way of a value into a table and out of it is tested with it.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

from gmdb.format.columns import parse_column
from gmdb.format.interval import Interval
from gmdb.format.lob import TEXT_IN_ROW_MAX

LONG = 60_000
VALUES: dict[str, list[Any]] = {
    "SMALLINT": [0, -1, -(2**15), 2**15 - 1],
    "INT": [0, 1, -(2**31), 2**31 - 1],
    "BIGINT": [0, -1, -(2**63), 2**63 - 1],
    "REAL": [0.0, -1.5, 2.0**-149, (2 - 2.0**-23) * 2.0**127, 13421773 * 2.0**-27, float("inf"), float("-inf")],
    "DOUBLE": [0.0, -1.5, 5e-324, 1.7976931348623157e308, float("inf"), float("-inf")],
    "BOOLEAN": [True, False],
    "DATE": [date(1, 1, 1), date(1969, 12, 31), date(9999, 12, 31)],
    "TIME": [time(), time(12, 30), time(23, 59, 59, 999_999)],
    "TIMESTAMP": [datetime(1, 1, 1), datetime(1969, 12, 31, 23, 59, 59, 999_999), datetime.max],
    "DECIMAL(9,2)": [Decimal("0.00"), Decimal("-9999999.99"), Decimal("9999999.99")],
    "DECIMAL(18,0)": [Decimal(10**18 - 1), Decimal(1 - 10**18)],
    "DECIMAL(38,38)": [Decimal("0." + "9" * 38), Decimal("0." + "0" * 38)],
    "TIMESTAMPTZ": [
        datetime(1, 1, 1, tzinfo=UTC),
        datetime(1969, 12, 31, 23, 59, 59, 999_999, UTC),
        datetime.max.replace(tzinfo=UTC),
    ],
    "INTERVAL": [
        Interval(),
        Interval(-1, 29, 1),
        Interval(2**31 - 1, 2**31 - 1, (2**63 - 1) // 1000),
        Interval(1 - 2**31, 1 - 2**31, -((2**63 - 1) // 1000)),
    ],
    "UUID": [UUID(int=0), UUID(int=(1 << 128) - 1), UUID("7fffffff-ffff-4fff-bfff-0123456789ab")],
    "CHAR(4)": ["abcd", "äö", "    "],
    "VARCHAR(10)": ["", "grüß", "0123456789"],
    "TEXT": ["", "\U0001f600", "x" * TEXT_IN_ROW_MAX, "ä" * LONG],
    "VARCHAR(100000)": ["", "y" * (TEXT_IN_ROW_MAX + 1), "z" * 100_000],
    "BINARY(3)": [b"abc", b"\0\0\0"],
    "VARBINARY(10)": [b"", b"\xff" * 10],
    "BYTEA": [b"", b"\0", b"\xff" * TEXT_IN_ROW_MAX, bytes(range(256)) * 200],
    "INT[]": [[], [1], [None, -(2**31), 2**31 - 1], list(range(10_000))],
    "TEXT[]": [[], [""], ["NULL", None, 'a "b", {c}\\'], ["ü" * LONG, "x"]],
    "SMALLINT[]": [[], [1, -(2**15)], [None, 2**15 - 1]],
    "REAL[]": [[0.5], [float("inf"), None, -1.25]],
    "TIME[]": [[time(0, 0)], [None, time(23, 59, 59, 999_999)]],
    "DECIMAL(9,2)[]": [[Decimal("0.00")], [None], [Decimal("1.50"), Decimal("-9999999.99")]],
    "BOOLEAN[]": [[], [True, None, False], [True, False]],
    "BYTEA[]": [[b"", b"\xff"], [None, b""], [b"a"]],
    "TIMESTAMP[]": [[datetime(2024, 2, 29, 1, 2, 3, 4)], [None, datetime(1, 1, 1)]],
    "JSON": ['{"b": 1, "a": [1.5, null]}', '"\\u00e9"', "7", '["' + "x" * LONG + '"]'],
    "JSONB": ['{"a": [1.5, null], "b": 1}', '"é"', "7", '["' + "ä" * LONG + '"]'],
    "CLOB": ["", "short", "ü" * LONG],
    "BLOB": [b"", b"short", b"\xfe" * LONG],
}


def as_stored(spelling: str, value: Any) -> Any:
    """A value as a column of the type gives it out: filled up, if it is CHAR or BINARY."""
    type_ = parse_column("c", spelling).type
    if value is None or not type_.padding:
        return value
    return type_.decode(type_.encode(value))


def is_key(value: Any) -> bool:
    """Whether it is short enough for the key of an index, or for what takes the place of one."""
    if isinstance(value, list):
        return None not in value and len(value) < 1000 and all(map(is_key, value))
    return not isinstance(value, str | bytes) or len(value) <= 1000
