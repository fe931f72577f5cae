"""Types within expressions: their SQL names, implicit conversions, and the common type of several.

The types are those of columns, and three ideas of PostgreSQL's fit into them:
 1. ``text`` is VARCHAR without a length, ``bytea`` VARBINARY without one.
 2. A ``numeric`` without digits is DECIMAL(38, s): its values carry their own scale, as PostgreSQL's do, and s is the
    scale that they have as a rule.
 3. What depends on the session's time zone is given it as a constant: a statement is bound by it (zones.py).
CLOB and BLOB are types of columns only: within expressions their values are ``text`` and ``bytea``.
The type None is that of NULL, of a string literal and of a parameter until their surroundings give them one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from typing import Any, NamedTuple

from sqlglot import exp

from gmdb.errors import SchemaError, TypeMismatch, UnsupportedExpression, ValueOutOfRange
from gmdb.format.columns import DECIMAL_DIGITS_MAX, ColumnType, array_of, is_uuid, make_type
from gmdb.format.interval import Interval
from gmdb.sql.dialect import place
from gmdb.tables.access.lob_files import is_file

SMALLINT = ColumnType("SMALLINT")
INT = ColumnType("INT")
BIGINT = ColumnType("BIGINT")
REAL = ColumnType("REAL")
DOUBLE = ColumnType("DOUBLE")
BOOLEAN = ColumnType("BOOLEAN")
DATE = ColumnType("DATE")
TIME = ColumnType("TIME")
TIMESTAMP = ColumnType("TIMESTAMP")
TIMESTAMPTZ = ColumnType("TIMESTAMPTZ")
TEXT = ColumnType("VARCHAR")
BYTEA = ColumnType("VARBINARY")
UUID = ColumnType("UUID")
CHAR = ColumnType("CHAR")  # of any length, where functions are chosen
INTERVAL = ColumnType("INTERVAL")
FILE = ColumnType("FILE")  # of a parameter that is read piece by piece, which only a column for large objects takes
NUMERIC = ColumnType("DECIMAL", DECIMAL_DIGITS_MAX, 0)
JSON = ColumnType("JSON")
JSONB = ColumnType("JSONB")
BLOB = ColumnType("BLOB")
CLOB = ColumnType("CLOB")

NUMBERS = ("SMALLINT", "INT", "BIGINT", "DECIMAL", "REAL", "DOUBLE")  # each turns into those behind it
FLOATS = ("REAL", "DOUBLE")
TEXTS = ("CHAR", "VARCHAR")
BYTES = ("BINARY", "VARBINARY")
MOMENTS = ("DATE", "TIMESTAMP", "TIMESTAMPTZ")  # each turns into those behind it
_LONGEST = {"VARCHAR": TEXT, "VARBINARY": BYTEA}
QUOTIENT_SCALE = 16  # of quotients, roots and logarithms, unless an operand has more
_INTEGER_DIGITS = {"SMALLINT": 5, "INT": 10, "BIGINT": 19}
_PYTHON_TYPES: dict[type, ColumnType] = {
    **{float: DOUBLE, date: DATE, time: TIME, timedelta: INTERVAL, Interval: INTERVAL, dict: JSONB},
    **dict.fromkeys((bytes, bytearray, memoryview), BYTEA),
}
INTEGERS = {"SMALLINT": (-(2**15), 2**15 - 1), "INT": (-(2**31), 2**31 - 1), "BIGINT": (-(2**63), 2**63 - 1)}


class Called(NamedTuple):
    """A type as SQL knows it: PostgreSQL's name, the short one, and the family within which types turn into one
    another."""

    name: str
    short: str
    family: str = ""


CALLED = {
    "SMALLINT": Called("smallint", "int2", "number"),
    "INT": Called("integer", "int4", "number"),
    "BIGINT": Called("bigint", "int8", "number"),
    "DECIMAL": Called("numeric", "numeric", "number"),
    "REAL": Called("real", "float4", "number"),
    "DOUBLE": Called("double precision", "float8", "number"),
    "BOOLEAN": Called("boolean", "bool"),
    "DATE": Called("date", "date", "time"),
    "TIMESTAMP": Called("timestamp without time zone", "timestamp", "time"),
    "TIME": Called("time without time zone", "time"),
    "TIMESTAMPTZ": Called("timestamp with time zone", "timestamptz", "time"),
    "INTERVAL": Called("interval", "interval"),
    "UUID": Called("uuid", "uuid"),
    "CHAR": Called("character", "bpchar", "text"),
    "VARCHAR": Called("character varying", "varchar", "text"),
    "JSON": Called("json", "json"),
    "JSONB": Called("jsonb", "jsonb"),
    "BINARY": Called("bytea", "bytea", "bytes"),
    "VARBINARY": Called("bytea", "bytea", "bytes"),
    "BLOB": Called("blob", "bytea"),
    "CLOB": Called("clob", "text"),
}
_DTYPES = {
    **dict.fromkeys(("INT", "MEDIUMINT"), INT),
    **dict.fromkeys(("SMALLINT", "TINYINT"), SMALLINT),
    **{"DOUBLE": DOUBLE, "TIME": TIME, "UUID": UUID, "TIMESTAMPTZ": TIMESTAMPTZ},
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPNTZ", "DATETIME"), TIMESTAMP),
    **{"BIGINT": BIGINT, "BOOLEAN": BOOLEAN, "DATE": DATE, "TEXT": TEXT, "INTERVAL": INTERVAL},
    **{"BLOB": BLOB, "LONGTEXT": CLOB, "JSON": JSON, "JSONB": JSONB},
}


def numeric(scale: int) -> ColumnType:
    """The type of decimals without a fixed number of digits, that have ``scale`` behind the point as a rule."""
    return ColumnType("DECIMAL", DECIMAL_DIGITS_MAX, min(scale, DECIMAL_DIGITS_MAX))


def _is_one_of(names: Container[str]) -> Callable[[ColumnType | None], bool]:
    return lambda type_: type_ is not None and type_.name in names


is_number, is_integer = _is_one_of(NUMBERS), _is_one_of(INTEGERS)
is_text, is_binary = _is_one_of(TEXTS), _is_one_of(BYTES)
is_moment = _is_one_of(MOMENTS)


def decimal_of(precision: int, scale: int) -> ColumnType:
    """The type of decimals with so many digits, as far as there are that many."""
    return ColumnType("DECIMAL", max(1, min(precision, DECIMAL_DIGITS_MAX)), scale)


def as_decimal(type_: ColumnType) -> ColumnType:
    """The DECIMAL that holds every value of an exact number."""
    return type_ if type_.name == "DECIMAL" else ColumnType("DECIMAL", _INTEGER_DIGITS[type_.name], 0)


def type_of_value(value: Any) -> ColumnType | None:
    """The type of a parameter's value, which is that of the value written out.

    None for str, None and empty lists: they are open, as a quoted literal and NULL are.  A dict is JSONB, and so is a
    list that is no array.  Raises TypeMismatch for what is not a value of SQL.
    """
    if value is None or isinstance(value, str):
        return None
    if isinstance(value, bool):
        return BOOLEAN
    if isinstance(value, int):
        return INT if -(2**31) <= value < 2**31 else BIGINT if -(2**63) <= value < 2**63 else NUMERIC
    if isinstance(value, Decimal):
        if not value.is_finite():
            raise ValueOutOfRange(f"{value} is not a DECIMAL")
        return numeric(max(0, -int(value.as_tuple().exponent)))
    if isinstance(value, datetime):
        return TIMESTAMP if value.tzinfo is None else TIMESTAMPTZ
    if is_uuid(value):
        return UUID
    if isinstance(value, list | tuple):
        return _type_of_elements(value)
    type_ = next((type_ for kind, type_ in _PYTHON_TYPES.items() if isinstance(value, kind)), None)
    if type_ is None and is_file(value):
        return FILE
    if type_ is None:
        raise TypeMismatch(f"a parameter cannot be {value!r}, of {type(value).__name__}")
    return type_


def _type_of_elements(values: Sequence[Any]) -> ColumnType | None:
    """The type of an array that is given as a list; None if no element tells, and JSONB if it is none.  Texts in it are
    just that."""
    kinds = set(map(type, values)) - {type(None)}
    if not kinds:
        return None
    if kinds == {str}:
        return array_of(TEXT)
    if kinds == {int}:
        known = values if None not in values else [value for value in values if value is not None]
        low, high = type_of_value(min(known)), type_of_value(max(known))
        if low == high == INT:
            return _INTS
        types = [low, high]
    else:
        types = list({type_of_value(value) or TEXT for value in values if value is not None})
    if any(type_ is not None and (type_.is_array or type_.is_json) for type_ in types):
        return JSONB
    try:
        element = common_type(types)
    except ValueError:
        return JSONB
    assert element is not None
    return array_of(element)


_INTS = array_of(INT)


def is_array(type_: ColumnType | None) -> bool:
    return type_ is not None and type_.is_array


def beside(type_: ColumnType, text: str | None = None) -> ColumnType:
    """The type that an open value, a literal of this text if it is known, takes beside a value of a known type."""
    if type_.is_array:
        return array_of(beside(type_.element, _longest_scale(text)))
    if type_.name == "DECIMAL":
        return numeric(scale_of_text(text, type_.scale))
    return _LONGEST.get(type_.name, type_)


def unlimited(type_: ColumnType) -> ColumnType:
    """A type of texts or bytes without its length; any other itself."""
    return array_of(unlimited(type_.element)) if type_.is_array else _LONGEST.get(type_.name, type_)


def scale_of_text(text: str | None, otherwise: int = 0) -> int:
    """The digits behind the point of a decimal as it is written; of an unknown one, as many as a cast gives."""
    if text is None:
        return max(QUOTIENT_SCALE, otherwise)
    try:
        exponent = Decimal(text.strip()).as_tuple().exponent
    except InvalidOperation:
        return otherwise
    return min(max(0, -exponent), DECIMAL_DIGITS_MAX) if isinstance(exponent, int) else otherwise


def _longest_scale(text: str | None) -> str | None:
    """Of the texts of an array's elements, the one with the most digits behind the point."""
    if text is None:
        return None
    return max(re.split(r"[{},\"]", text), key=scale_of_text, default=None)


def pg_name(type_: ColumnType | None) -> str:
    """What PostgreSQL calls the type."""
    if type_ is not None and type_.is_array:
        return f"{pg_name(type_.element)}[]"
    return "unknown" if type_ is None else "text" if type_ == TEXT else CALLED[type_.name].name


def within(type_: ColumnType) -> ColumnType:
    """The type that a column's values have within expressions: large objects are texts and bytes like others."""
    return {"CLOB": TEXT, "BLOB": BYTEA}.get(type_.name, type_)


def category(type_: ColumnType) -> str:
    """The family within which types turn into one another."""
    if type_.is_array:
        return f"arrays of {category(type_.element)}"
    called = CALLED.get(type_.name)
    return type_.name if called is None or not called.family else called.family


TURNING = (("DATE", "TIMESTAMP"), ("DATE", "TIMESTAMPTZ"), ("TIMESTAMP", "TIMESTAMPTZ"), ("TIME", "INTERVAL"))


def turns_into(source: ColumnType | None, target: ColumnType) -> bool:
    """Whether a value is converted to the target's type without a cast."""
    if source is None or source.name == target.name or (source.name, target.name) in TURNING:
        return True
    if source.is_array and target.is_array:
        return turns_into(source.element, target.element)
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
    if chosen.is_array:
        element = common_type([type_.element for type_ in known])
        return None if element is None else array_of(element)
    same = [type_ for type_ in known if type_.name == chosen.name]
    if chosen.name == "DECIMAL":
        exact = [as_decimal(type_) for type_ in known]
        scale = max(type_.scale for type_ in exact)
        return decimal_of(max(type_.length - type_.scale for type_ in exact) + scale, scale)
    if len(set(same)) > 1 or len(same) < len(known):
        return _LONGEST.get(chosen.name, ColumnType(chosen.name, max(type_.length for type_ in same)))
    return chosen


def _array_from(node: exp.DataType) -> tuple[ColumnType, bool]:
    """``type_from``, of ``int[]``."""
    line, column = place(node)
    if node.args.get("values"):
        raise UnsupportedExpression("an array has any number of elements", line, column, "Write [] without a number")
    inner = node.expressions[0] if node.expressions else None
    if not isinstance(inner, exp.DataType):
        raise UnsupportedExpression("an array's type names that of its elements", line, column, "Write INT[]")
    element, limited = type_from(inner)
    try:
        return array_of(element), limited
    except SchemaError as error:
        raise UnsupportedExpression(str(error), line, column) from None


def type_from(node: exp.DataType) -> tuple[ColumnType, bool]:
    """The type that a cast or a definition names, and whether a DECIMAL's digits were given with it."""
    name = node.this.name if isinstance(node.this, exp.DType) else str(node.this)
    line, column = place(node)
    if name == "ARRAY":
        return _array_from(node)
    try:
        numbers = [int(parameter.this.name) for parameter in node.expressions]
    except (ValueError, AttributeError):
        raise UnsupportedExpression(f"the numbers of the type {node.sql('postgres')}", line, column) from None
    if name == "FLOAT":
        return _floating(numbers, node), True
    if name in _DTYPES and (not numbers or name == "DOUBLE"):
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
    raise UnsupportedExpression(f"there is no type {node.sql('postgres')}", line, column, f"The types are {_KNOWN}")


_KNOWN = (
    "SMALLINT, INT, BIGINT, REAL, DOUBLE, DECIMAL(p,s), BOOLEAN, DATE, TIME, TIMESTAMP, TIMESTAMPTZ, INTERVAL, UUID, "
    "CHAR(n), VARCHAR(n), TEXT, BYTEA, JSON, JSONB, CLOB, BLOB, and arrays, such as INT[]"
)
_SINGLE_BITS, _DOUBLE_BITS = 24, 53


def _floating(numbers: Sequence[int], node: exp.DataType) -> ColumnType:
    """REAL and FLOAT(n), which sqlglot takes for one: the number is that of the bits."""
    bits = numbers[0] if numbers else _SINGLE_BITS
    if len(numbers) > 1 or not 1 <= bits <= _DOUBLE_BITS:
        raise UnsupportedExpression(f"a FLOAT has 1 to {_DOUBLE_BITS} bits", *place(node))
    return REAL if bits <= _SINGLE_BITS else DOUBLE
