"""The types of SQL expressions, and how DuckDB is told about them.

Types are gmdb's ColumnTypes; INTERVAL exists inside of statements only.  The type of a quoted literal, of NULL and of
a parameter given as text is open (None) until its surroundings decide it, as in PostgreSQL.

DECIMAL is where PostgreSQL has no bound and gmdb has 38 digits.  The scale of a result is

    a + b, a - b, a % b     the larger scale
    a * b                   the sum of the scales while that is at most 20, else the larger one, and at least 16
    a / b, avg              the larger scale, and at least 16
    sum, min, max, abs      the argument's
    round(a, n), trunc      n

and its precision is 38.  A value that does not fit raises ValueOutOfRange.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from sqlglot import exp

from gmdb.errors import IllTyped, SchemaError, UnsupportedExpression
from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType, make_type

INT = ColumnType("INT")
BIGINT = ColumnType("BIGINT")
DOUBLE = ColumnType("DOUBLE")
BOOLEAN = ColumnType("BOOLEAN")
DATE = ColumnType("DATE")
TIMESTAMP = ColumnType("TIMESTAMP")
INTERVAL = ColumnType("INTERVAL")
TEXT = ColumnType("VARCHAR", 4000)
BYTES = ColumnType("VARBINARY", 32000)
QUOTIENT_SCALE = 16
PRODUCT_SCALE_MAX = 20

_DUCK_NAMES = {
    "INT": "INTEGER",
    "CHAR": "VARCHAR",
    "VARCHAR": "VARCHAR",
    "BINARY": "BLOB",
    "VARBINARY": "BLOB",
}
_RANKS = {"INT": 0, "BIGINT": 1, "DECIMAL": 2, "DOUBLE": 3}
_INTEGER_DIGITS = {"INT": 10, "BIGINT": 19}
_SPELLED = {
    "SMALLINT": INT,
    "TINYINT": INT,
    "INT": INT,
    "BIGINT": BIGINT,
    "FLOAT": DOUBLE,
    "REAL": DOUBLE,
    "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "TEXT": TEXT,
    "VARCHAR": TEXT,
    "BPCHAR": TEXT,
    "BINARY": BYTES,
    "VARBINARY": BYTES,
    "BLOB": BYTES,
    "LONGTEXT": TEXT,
    "INTERVAL": INTERVAL,
}


@dataclass(slots=True, frozen=True)
class Bound:
    """An expression as DuckDB's SQL, with its type.

    ``declared``: the type's length or precision was written down somewhere (a column, a cast) and is shown.
    ``literal``: the text of a quoted literal, None for anything else.
    """

    sql: str
    type: ColumnType | None
    declared: bool = False
    literal: str | None = None
    references: frozenset[str] = field(default_factory=frozenset)


def within(type_: ColumnType) -> ColumnType:
    """The type that a column's values have within expressions: large objects are texts and bytes like others."""
    return {"CLOB": TEXT, "BLOB": BYTES}.get(type_.name, type_)


def decimal(precision: int, scale: int) -> ColumnType:
    return ColumnType("DECIMAL", min(precision, DECIMAL_DIGITS_MAX), scale)


def is_number(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.name in _RANKS


def is_integer(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.name in _INTEGER_DIGITS


def is_text(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.name in ("CHAR", "VARCHAR")


def is_binary(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.name in ("BINARY", "VARBINARY")


def is_moment(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.name in ("DATE", "TIMESTAMP")


def duck_type(type_: ColumnType) -> str:
    if type_.name == "DECIMAL":
        return f"DECIMAL({type_.length},{type_.scale})"
    return _DUCK_NAMES.get(type_.name, type_.name)


def as_decimal(type_: ColumnType) -> ColumnType:
    """The DECIMAL that holds every value of a number that is not DOUBLE."""
    return type_ if type_.name == "DECIMAL" else decimal(_INTEGER_DIGITS[type_.name], 0)


def text_literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def common_type(
    types: Sequence[ColumnType | None], what: str, line: int | None = None, column: int | None = None
) -> ColumnType | None:
    """The type that values of all these types are brought to, None when all are open."""
    known = [type_ for type_ in types if type_ is not None]
    if not known:
        return None
    first = known[0]
    if all(type_ == first for type_ in known):
        return first
    if all(is_number(type_) for type_ in known):
        return _common_number(known)
    if all(is_text(type_) for type_ in known):
        return TEXT
    if all(is_binary(type_) for type_ in known):
        return BYTES
    if all(is_moment(type_) for type_ in known):
        return TIMESTAMP
    other = next(type_ for type_ in known if type_.name != first.name)
    raise IllTyped(f"{what} cannot mix {first.name} and {other.name}", line, column, "Cast one of them")


def _common_number(types: Sequence[ColumnType]) -> ColumnType:
    highest = max(types, key=lambda type_: _RANKS[type_.name])
    if highest.name != "DECIMAL":
        return highest
    exact = [as_decimal(type_) for type_ in types]
    scale = max(type_.scale for type_ in exact)
    return decimal(max(type_.length - type_.scale for type_ in exact) + scale, scale)


def type_of_cast(node: exp.DataType, line: int | None, column: int | None) -> ColumnType | None:
    """The ColumnType that a cast names; None for a DECIMAL whose scale is to be that of the value."""
    name = node.this.value if isinstance(node.this, exp.DType) else str(node.this)
    try:
        numbers = [int(parameter.name) for parameter in node.expressions]
        if name == "DECIMAL" and not numbers:
            return None
        if name in ("DECIMAL", "VARCHAR", "CHAR", "BINARY", "VARBINARY") and (numbers or name == "CHAR"):
            return make_type(name, numbers)
    except (ValueError, SchemaError) as error:
        raise UnsupportedExpression(f"type {node.sql(dialect='postgres')}: {error}", line, column) from None
    if name in _SPELLED:
        return _SPELLED[name]
    raise UnsupportedExpression(f"there is no type {node.sql(dialect='postgres')}", line, column)
