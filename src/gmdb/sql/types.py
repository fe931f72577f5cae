"""Types within expressions: what SQL calls them, which turn into which by themselves, which type a mixture has.

The types are those of columns, and three ideas of PostgreSQL's fit into them:
 1. ``text`` is VARCHAR(4000), ``bytea`` VARBINARY(32000).
 2. A ``numeric`` without digits is DECIMAL(38, s): its values carry their own scale, as PostgreSQL's do, and s is the
    scale that they have as a rule.
 3. An interval is a type within an expression only; no column and no result has it.
CLOB and BLOB are types of columns only: within expressions their values are ``text`` and ``bytea``.
The type None is that of NULL, of a string literal and of a parameter until their surroundings give them one.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from gmdb.errors import SchemaError, UnsupportedExpression
from gmdb.format.columns import DECIMAL_DIGITS_MAX, VARCHAR_MAX, ColumnType, make_type
from gmdb.sql.dialect import place

INT = ColumnType("INT")
BIGINT = ColumnType("BIGINT")
DOUBLE = ColumnType("DOUBLE")
BOOLEAN = ColumnType("BOOLEAN")
DATE = ColumnType("DATE")
TIMESTAMP = ColumnType("TIMESTAMP")
TEXT = ColumnType("VARCHAR", VARCHAR_MAX)
BYTEA = ColumnType("VARBINARY", 32000)
INTERVAL = ColumnType("INTERVAL")
NUMERIC = ColumnType("DECIMAL", DECIMAL_DIGITS_MAX, 0)
BLOB = ColumnType("BLOB")
CLOB = ColumnType("CLOB")

NUMBERS = ("INT", "BIGINT", "DECIMAL", "DOUBLE")  # each turns into those behind it
TEXTS = ("CHAR", "VARCHAR")
BYTES = ("BINARY", "VARBINARY")
INTEGERS = {"INT": (-(2**31), 2**31 - 1), "BIGINT": (-(2**63), 2**63 - 1)}

_NAMES = {
    "INT": "integer",
    "BIGINT": "bigint",
    "DECIMAL": "numeric",
    "DOUBLE": "double precision",
    "BOOLEAN": "boolean",
    "DATE": "date",
    "TIMESTAMP": "timestamp without time zone",
    "CHAR": "character",
    "VARCHAR": "character varying",
    "BINARY": "bytea",
    "VARBINARY": "bytea",
    "BLOB": "blob",
    "CLOB": "clob",
    "INTERVAL": "interval",
}
_DTYPES = {
    "INT": INT,
    "SMALLINT": INT,
    "TINYINT": INT,
    "MEDIUMINT": INT,
    "BIGINT": BIGINT,
    "FLOAT": DOUBLE,
    "DOUBLE": DOUBLE,
    "BOOLEAN": BOOLEAN,
    "DATE": DATE,
    "TIMESTAMP": TIMESTAMP,
    "TIMESTAMPNTZ": TIMESTAMP,
    "DATETIME": TIMESTAMP,
    "TEXT": TEXT,
    "INTERVAL": INTERVAL,
    "BLOB": BLOB,
    "LONGTEXT": CLOB,
}


def numeric(scale: int) -> ColumnType:
    """The type of decimals without a given number of digits, that have ``scale`` behind the point as a rule."""
    return ColumnType("DECIMAL", DECIMAL_DIGITS_MAX, min(scale, DECIMAL_DIGITS_MAX))


def pg_name(type_: ColumnType | None) -> str:
    """What PostgreSQL calls the type."""
    return "unknown" if type_ is None else "text" if type_ == TEXT else _NAMES[type_.name]


def within(type_: ColumnType) -> ColumnType:
    """The type that a column's values have within expressions: large objects are texts and bytes like others."""
    return {"CLOB": TEXT, "BLOB": BYTEA}.get(type_.name, type_)


def category(type_: ColumnType) -> str:
    """The family within which types turn into one another."""
    name = type_.name
    if name in NUMBERS:
        return "number"
    if name in TEXTS:
        return "text"
    if name in BYTES:
        return "bytes"
    return "time" if name in ("DATE", "TIMESTAMP") else name


def turns_into(source: ColumnType | None, target: ColumnType) -> bool:
    """Whether a value becomes the target's type where nobody asks for it."""
    if source is None or source.name == target.name or (source.name, target.name) == ("DATE", "TIMESTAMP"):
        return True
    if source.name in NUMBERS and target.name in NUMBERS:
        return NUMBERS.index(source.name) < NUMBERS.index(target.name)
    return category(source) == category(target) in ("text", "bytes")


def common_type(types: Sequence[ColumnType | None]) -> ColumnType | None:
    """The type of a value that may be of any of these.  None if they are all unknown; ValueError if there is none."""
    known = [type_ for type_ in types if type_ is not None]
    if not known:
        return None
    chosen = known[0]
    for type_ in known[1:]:
        if category(type_) != category(chosen):
            raise ValueError(f"{chosen} and {type_}")
        if turns_into(chosen, type_) and not turns_into(type_, chosen):
            chosen = type_
    same = [type_ for type_ in known if type_.name == chosen.name]
    if chosen.name == "DECIMAL":
        return chosen if len(set(known)) == 1 else numeric(max(type_.scale for type_ in known))
    if len(set(same)) > 1 or len(same) < len(known):
        return {"VARCHAR": TEXT, "VARBINARY": BYTEA}.get(
            chosen.name, ColumnType(chosen.name, max(t.length for t in same))
        )
    return chosen


def type_from(node: exp.DataType) -> tuple[ColumnType, bool]:
    """The type that a cast or a definition names, and whether a DECIMAL's digits were given with it."""
    name = node.this.name if isinstance(node.this, exp.DType) else str(node.this)
    line, column = place(node)
    try:
        numbers = [int(parameter.this.name) for parameter in node.expressions]
    except (ValueError, AttributeError):
        raise UnsupportedExpression(f"the numbers of the type {node.sql('postgres')}", line, column) from None
    if name in _DTYPES and (not numbers or name in ("DOUBLE", "FLOAT")):
        return _DTYPES[name], True
    try:
        if name == "DECIMAL":
            return (make_type("DECIMAL", numbers), True) if numbers else (NUMERIC, False)
        if name in ("CHAR", "NCHAR"):
            return make_type("CHAR", numbers), True
        if name in ("VARCHAR", "NVARCHAR", "BPCHAR"):
            return (make_type("VARCHAR", numbers) if numbers else TEXT), True
        if name in ("VARBINARY", "BINARY"):
            return (make_type(name, numbers) if numbers else BYTEA), True
    except SchemaError as error:
        raise UnsupportedExpression(str(error), line, column) from None
    known = "INT, BIGINT, DOUBLE, DECIMAL(p,s), BOOLEAN, DATE, TIMESTAMP, CHAR(n), VARCHAR(n), TEXT, BYTEA, CLOB, BLOB"
    raise UnsupportedExpression(f"there is no type {node.sql('postgres')}", line, column, f"The types are {known}")
