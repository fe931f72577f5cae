"""Column types: what SQL calls them, and the bytes a value is stored as.

Each type is stored by the row's 2-bit rule: four bytes, eight bytes, or a length and bytes.

| type | stored as |
|---|---|
| SMALLINT, INT, REAL, DATE, BOOLEAN, DECIMAL to 9 digits | 4 bytes |
| BIGINT, DOUBLE, TIME, TIMESTAMP, TIMESTAMPTZ, DECIMAL to 18 digits | 8 bytes |
| DECIMAL to 38 digits, UUID, INTERVAL | length and 16 bytes |
| CHAR, VARCHAR | length and UTF-8 bytes with a trailing NUL that counts; CHAR is filled up with blanks |
| BINARY, VARBINARY | length and bytes; BINARY is filled up with zero bytes |
| TEXT, BYTEA, longer VARCHAR and VARBINARY | as VARCHAR and VARBINARY, or where the value is (lob.py) |
| JSON, JSONB | as TEXT; JSONB in the normal form of json_text.py |
| BLOB, CLOB | length and a byte that says what follows: the value, or where it is (lob.py); CLOB is UTF-8 |

TEXT is VARCHAR without a length, BYTEA VARBINARY without one.
``INT[]`` and the like are arrays: bytes as BYTEA has them (arrays.py).  An array's length and scale are its elements'.
A DATE is days and a TIMESTAMP microseconds since 1970, a TIMESTAMPTZ those since 1970 in UTC, a TIME those since
midnight; a DECIMAL is its digits as an integer, a UUID its bytes in order, an INTERVAL months (4 bytes), days (4) and
nanoseconds (8), which are whole microseconds.
Not here: Arrow types (tables/arrow/arrow_types.py).
"""

from __future__ import annotations

import re
import struct
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from decimal import Context, Decimal, InvalidOperation
from enum import IntEnum
from typing import Any, NamedTuple

from gmdb.errors import (
    DataError,
    DefinitionChanged,
    NullNotAllowed,
    SchemaError,
    TypeMismatch,
    ValueOutOfRange,
    ValueTooLong,
)
from gmdb.format.arrays import SUFFIX, EncodedArray, decode_array, encode_array
from gmdb.format.interval import Interval
from gmdb.format.json_text import JsonbText, JsonText, check, normal, written
from gmdb.format.lob import (
    CELL_MAX,
    TEXT_IN_ROW_MAX,
    Locator,
    decode_cell,
    encode_cell,
    encode_text_locator,
    is_text_locator,
    text_locator,
)
from gmdb.format.options import option
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.process.late_patterns import late_pattern

VARCHAR_MAX = TEXT_IN_ROW_MAX  # bytes of a VARCHAR that never leaves its row
BINARY_MAX = 32602  # of a VARBINARY
LENGTH_MAX = 10 << 20  # that VARCHAR and VARBINARY may have been given
TEXT_MAX = 1 << 30  # bytes of a TEXT or BYTEA
DECIMAL_DIGITS_MAX = 38
EPOCH_DATE = date(1970, 1, 1)
EPOCH = datetime(1970, 1, 1)
UTC_EPOCH = EPOCH.replace(tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
FIRST_MICROSECOND, LAST_MICROSECOND = ((end - EPOCH) // MICROSECOND for end in (datetime.min, datetime.max))
_EXACT = Context(prec=100)  # more digits than any DECIMAL has: nothing is rounded


class Kind(IntEnum):
    """How kernels move a value between a row and an Arrow column."""

    WORD = 0  # 4 bytes as they are
    LONG = 1  # 8 bytes as they are
    BIT = 2  # 4 bytes, one bit in Arrow
    DECIMAL_WORD = 3  # 4 bytes, 16 in Arrow
    DECIMAL_LONG = 4  # 8 bytes, 16 in Arrow
    DECIMAL_WIDE = 5  # length and 16 bytes, 16 in Arrow
    TEXT = 6  # length, bytes, NUL
    BYTES = 7  # length, bytes
    SHORT = 8  # 4 bytes, 2 in Arrow
    WIDE = 9  # length and 16 bytes, 16 in Arrow


LOBS = ("BLOB", "CLOB")
JSONS = ("JSON", "JSONB")
_ALIASES = {
    "INTEGER": "INT",
    "INT2": "SMALLINT",
    "INT4": "INT",
    "FLOAT4": "REAL",
    "TIME WITHOUT TIME ZONE": "TIME",
    "TIMESTAMP WITHOUT TIME ZONE": "TIMESTAMP",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "INT8": "BIGINT",
    "DOUBLE PRECISION": "DOUBLE",
    "FLOAT8": "DOUBLE",
    "BOOL": "BOOLEAN",
    "NUMERIC": "DECIMAL",
    "DEC": "DECIMAL",
    "CHARACTER": "CHAR",
    "CHARACTER VARYING": "VARCHAR",
    "BINARY LARGE OBJECT": "BLOB",
    "CHARACTER LARGE OBJECT": "CLOB",
    "CHAR LARGE OBJECT": "CLOB",
    "TEXT": "VARCHAR",
    "BYTEA": "VARBINARY",
}
_WITHOUT_LENGTH = {"VARCHAR": "TEXT", "VARBINARY": "BYTEA"}
_IN_ROW_ONLY = {"VARCHAR": VARCHAR_MAX, "VARBINARY": BINARY_MAX}  # lengths up to which values never leave their rows
_NO_ELEMENTS = {  # of arrays, and what is instead
    **{"CHAR": "TEXT", "BINARY": "BYTEA", "CLOB": "TEXT", "BLOB": "BYTEA", "JSON": "TEXT", "JSONB": "TEXT"},
    **{"TIMESTAMPTZ": "TIMESTAMP", "INTERVAL": "TEXT", "UUID": "TEXT"},
}
_VARIABLE = 3
_SIZE_CODES = {Kind.WORD: 1, Kind.SHORT: 1, Kind.BIT: 1, Kind.DECIMAL_WORD: 1, Kind.LONG: 2, Kind.DECIMAL_LONG: 2}
_SPELLING = late_pattern(
    r"\s*([a-z][a-z0-9 ]*?)\s*(?:\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\))?\s*(\[\])?\s*(not\s+null|null)?\s*", re.I
)


@dataclass(frozen=True)
class ColumnType:
    """A type with its length (bytes), or its precision and scale."""

    name: str
    length: int = 0
    scale: int = 0

    @property
    def kind(self) -> Kind:
        if self.name == "DECIMAL":
            return (
                Kind.DECIMAL_WORD if self.length <= 9 else Kind.DECIMAL_LONG if self.length <= 18 else Kind.DECIMAL_WIDE
            )
        return Kind.BYTES if self.is_array else _STORED[self.name].kind

    @property
    def is_array(self) -> bool:
        return self.name.endswith(SUFFIX)

    @property
    def element(self) -> ColumnType:
        """The type of an array's elements."""
        return ColumnType(self.name.removesuffix(SUFFIX), self.length, self.scale)

    @property
    def fixed_size(self) -> int:
        """The bytes of each value, if all have as many; else 0."""
        if self.kind is Kind.DECIMAL_WIDE:
            return 16
        return 0 if self.size_code == _VARIABLE else 4 * self.size_code

    @property
    def size_code(self) -> int:
        return _SIZE_CODES.get(self.kind, _VARIABLE)

    @property
    def is_lob(self) -> bool:
        """Whether its values may be large objects, on pages of their own."""
        return self.name in LOBS

    @property
    def is_json(self) -> bool:
        """Whether its values are texts of JSON, which are checked before they are stored."""
        return self.name in JSONS

    @property
    def may_be_key(self) -> bool:
        """Whether an index can have its values: equal ones have the same bytes, in the order of the values."""
        return not (self.is_lob or self.is_array or self.is_json)

    @property
    def may_be_long(self) -> bool:
        """Whether values that are too long for their rows go to pages by themselves."""
        is_any_length = self.is_array or self.is_json
        return is_any_length or (self.name in _IN_ROW_ONLY and not 0 < self.length <= _IN_ROW_ONLY[self.name])

    @property
    def may_be_apart(self) -> bool:
        """Whether its values may be on pages of their own, for either reason."""
        return self.is_lob or self.may_be_long

    @property
    def is_text(self) -> bool:
        return self.name in ("CHAR", "VARCHAR", "CLOB", *JSONS)

    @property
    def bytes_max(self) -> int:
        """The longest value's bytes, of a text, of bytes or of an array."""
        return TEXT_MAX if self.is_array else self.length or TEXT_MAX

    @property
    def in_row_max(self) -> int:
        """So many bytes at most has what a row keeps of a text or of bytes, a NUL left out."""
        return CELL_MAX if self.is_lob else TEXT_IN_ROW_MAX if self.may_be_long else self.length

    @property
    def has_likenesses(self) -> bool:
        """Whether values that are equal may have other bytes: zeros with signs, a month and 30 days."""
        return self.name in ("DOUBLE", "REAL", "INTERVAL")

    @property
    def padding(self) -> bytes:
        """What a shorter value is filled up with to the type's length, if it is."""
        return {"CHAR": b" ", "BINARY": b"\0"}.get(self.name, b"")

    def __str__(self) -> str:
        if self.is_array:
            return f"{self.element}{SUFFIX}"
        if self.name == "DECIMAL":
            return f"DECIMAL({self.length},{self.scale})"
        return f"{self.name}({self.length})" if self.length else _WITHOUT_LENGTH.get(self.name, self.name)

    def widens_to(self, other: ColumnType) -> bool:
        """Whether each value of this type is one of the other, and stored the same."""
        if self.is_array and other.is_array:
            return self.element.widens_to(other.element)
        if self.name == "DECIMAL" == other.name:
            return self.kind is other.kind and self.scale == other.scale and self.length <= other.length
        if self.name == "VARBINARY" and self.may_be_long != other.may_be_long:
            return False  # rows keep other values
        is_longer = self.name == other.name and self.name in _IN_ROW_ONLY and self.bytes_max <= other.bytes_max
        return self == other or is_longer

    def encode(self, value: Any) -> bytes:
        """The stored bytes of a value that is not None."""
        return _array(self, value) if self.is_array else _STORED[self.name].encode(self, value)

    def decode(self, raw: bytes) -> Any:
        """The value of stored bytes.  Raises DataError if they cannot be this type's."""
        try:
            return _decode_array(self, raw) if self.is_array else _STORED[self.name].decode(self, raw)
        except (ValueError, OverflowError, struct.error) as error:
            raise DataError(f"{raw[:40].hex()} is not a {self}: {error}") from None

    def encode_element(self, value: Any) -> bytes:
        """The bytes that an array has of a value of this type: of any length that the type allows, and no NUL."""
        if self.name == "VARCHAR":
            if not isinstance(value, str):
                raise TypeMismatch(f"{value!r} is not a str")
            raw = encode_text(value)
        elif self.name == "VARBINARY":
            if not isinstance(value, bytes | bytearray | memoryview):
                raise TypeMismatch(f"{value!r} is not bytes")
            raw = bytes(value)
        else:
            return self.encode(value)
        require_length(self, len(raw))
        return raw

    def decode_element(self, raw: bytes) -> Any:
        """The value of an element's bytes."""
        return raw.decode() if self.name == "VARCHAR" else raw if self.name == "VARBINARY" else self.decode(raw)


@dataclass(frozen=True)
class Column:
    """A column of a table."""

    name: str
    type: ColumnType
    nullable: bool = True
    default: str | None = None  # an expression, as SQL writes it, for rows that are given no value
    identity: str | None = None  # its values are numbered: "always", or "by default" if a row is given none
    identity_id: int = 0  # which counter numbers them; 0 before the column is a table's
    numbers: tuple[int, ...] = option(())  # how it counts: tables/catalog/counters.py; none: 1, 2, 3, ...
    sequence: str = option("")  # whose next number is the default, which says just that
    number: int | None = option(None)  # by which it is known for good, if that is not its position any more
    comment: str | None = option(None)
    generated: str | None = option(None)  # an expression of other columns, as SQL writes it, which all its values are

    @property
    def is_numbered(self) -> bool:
        """Whether it gets a number from a counter where a row has no value for it."""
        return self.identity is not None or bool(self.sequence)

    def encode(self, value: Any) -> bytes | None:
        if value is None:
            if not self.nullable:
                raise NullNotAllowed(f"column {self.name} is NOT NULL and was given no value")
            return None
        try:
            return self.type.encode(value)
        except DataError as error:
            raise type(error)(f"column {self.name}: {error}") from None

    def document(self, value: Any) -> Any:
        """The text that a column of JSON keeps of a value, which may be in its place already."""
        if value is None or isinstance(value, Locator):
            return value
        try:
            return json_of(self.type, value)
        except DataError as error:
            raise type(error)(f"column {self.name}: {error}") from None


def as_given(columns: Sequence[Column]) -> tuple[Column, ...]:
    """Columns as rows come in: a generated one may be left out, whatever it is in the table."""
    return tuple(column if column.generated is None else replace(column, nullable=True) for column in columns)


def has_cells(columns: Sequence[Column]) -> bool:
    """Whether rows have cells of BLOB or CLOB columns, which are never values themselves."""
    return any(column.type.is_lob for column in columns)


IDENTITIES = ("always", "by default")


def numbers_of(columns: Sequence[Column]) -> tuple[int, ...]:
    """By which a table's columns are known for good, whatever they are called and wherever they stand."""
    return tuple(n if column.number is None else column.number for n, column in enumerate(columns))


def require_same(table: str, known: Sequence[Column], now: Sequence[Column], positions: Sequence[int]) -> None:
    """Refuse to go on at these positions of a table that somebody knows by older columns, if others are there now."""
    if now is known:
        return
    before, after = numbers_of(known), numbers_of(now)
    for n in positions:
        if n >= len(now) or before[n] != after[n] or not known[n].type.widens_to(now[n].type):
            raise DefinitionChanged(f"table {table} has other columns by now; look it up again, and repeat")


def parse_column(name: str, spelling: str) -> Column:
    """A column from the way SQL writes its type: ``VARCHAR(10) NOT NULL``, ``INT[]``."""
    if not name or len(name.encode()) > 63 or "\0" in name:
        raise SchemaError(f"{name!r} is not a column name: it must have 1 to 63 bytes")
    match = _SPELLING.fullmatch(spelling)
    if match is None:
        raise SchemaError(f"column {name}: cannot read the type {spelling!r}")
    word, length, scale, suffix, null = match.groups()
    word = " ".join(word.upper().split())
    nullable = null is None or null.upper() == "NULL"
    numbers = [int(n) for n in (length, scale) if n is not None]
    return Column(name, make_type(_ALIASES.get(word, word) + (suffix or ""), numbers, f"column {name}: "), nullable)


def make_type(name: str, numbers: list[int], where: str = "") -> ColumnType:
    """A type with its numbers checked."""
    if name.endswith(SUFFIX):
        return array_of(make_type(name.removesuffix(SUFFIX), numbers, where), where)
    if name == "DECIMAL":
        precision, scale = (*numbers, 0)[:2] if numbers else (18, 0)
        if not 1 <= precision <= DECIMAL_DIGITS_MAX or scale > precision:
            raise SchemaError(
                f"{where}DECIMAL({precision},{scale}): 1 to 38 digits, of them at most all after the point"
            )
        return ColumnType(name, precision, scale)
    if name not in _STORED:
        raise SchemaError(f"{where}there is no type {name}; the types are {', '.join(TYPES)}")
    if _STORED[name].kind not in (Kind.TEXT, Kind.BYTES) or name in (*LOBS, *JSONS):
        if numbers:
            raise SchemaError(f"{where}{name} takes no length")
        return ColumnType(name)
    if not numbers and (name in _WITHOUT_LENGTH or name in JSONS):
        return ColumnType(name)
    limit = LENGTH_MAX if name in _WITHOUT_LENGTH else VARCHAR_MAX if name == "CHAR" else BINARY_MAX
    if not numbers:
        numbers = [1]
    if len(numbers) != 1 or not 1 <= numbers[0] <= limit:
        raise SchemaError(f"{where}{name} needs a length of 1 to {limit} bytes, such as {name}(10)")
    return ColumnType(name, numbers[0])


def array_of(element: ColumnType, where: str = "") -> ColumnType:
    """The type of arrays whose elements are of a type."""
    if element.is_array:
        raise SchemaError(f"{where}an array has one dimension: write {element}")
    if element.name in _NO_ELEMENTS:
        raise SchemaError(f"{where}there are no arrays of {element.name}; {_NO_ELEMENTS[element.name]}[] will do")
    return ColumnType(element.name + SUFFIX, element.length, element.scale)


def _integer(bits: int, width: int = 0) -> Any:
    low, high, size = -(1 << bits - 1), (1 << bits - 1) - 1, (width or bits) // 8

    def encode(type_: ColumnType, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeMismatch(f"{value!r} is not an integer")
        if not low <= value <= high:
            raise ValueOutOfRange(f"{value} is out of range for {type_}: it must lie between {low} and {high}")
        return value.to_bytes(size, "little", signed=True)

    return encode


def _decode_smallint(type_: ColumnType, raw: bytes) -> int:
    (value,) = struct.unpack("<i", raw)
    if not -(1 << 15) <= value < 1 << 15:
        raise ValueError(f"{value} is out of range for {type_}")
    return int(value)


def _floating(form: str) -> Any:
    def encode(type_: ColumnType, value: Any) -> bytes:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise TypeMismatch(f"{value!r} is not a number")
        try:
            return struct.pack(form, value)
        except OverflowError:
            raise ValueOutOfRange(f"{value} is out of range for {type_}") from None

    return encode


def _boolean(_: ColumnType, value: Any) -> bytes:
    if not isinstance(value, bool):
        raise TypeMismatch(f"{value!r} is neither True nor False")
    return struct.pack("<i", value)


def _date(_: ColumnType, value: Any) -> bytes:
    if isinstance(value, datetime) or not isinstance(value, date):
        raise TypeMismatch(f"{value!r} is not a date")
    return struct.pack("<i", (value - EPOCH_DATE).days)


def _timestamp(_: ColumnType, value: Any) -> bytes:
    if not isinstance(value, datetime) or value.tzinfo is not None:
        raise TypeMismatch(f"{value!r} is not a datetime without a time zone")
    return struct.pack("<q", (value - EPOCH) // MICROSECOND)


def _timestamp_with_zone(_: ColumnType, value: Any) -> bytes:
    if not isinstance(value, datetime) or value.utcoffset() is None:
        raise TypeMismatch(f"{value!r} is not a datetime with a time zone")
    microseconds = (value.replace(tzinfo=None) - EPOCH - _offset(value)) // MICROSECOND
    if not FIRST_MICROSECOND <= microseconds <= LAST_MICROSECOND:
        raise ValueOutOfRange(f"{value} is not in the years 1 to 9999 of UTC")
    return struct.pack("<q", microseconds)


def _offset(value: datetime) -> timedelta:
    return value.utcoffset() or timedelta(0)


def _decode_timestamp_with_zone(_: ColumnType, raw: bytes) -> datetime:
    return UTC_EPOCH + struct.unpack("<q", raw)[0] * MICROSECOND


def _time(_: ColumnType, value: Any) -> bytes:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise TypeMismatch(f"{value!r} is not a time without a time zone")
    return struct.pack("<q", microseconds_of(value))


def microseconds_of(value: time) -> int:
    """Those since midnight."""
    return ((value.hour * 60 + value.minute) * 60 + value.second) * 1_000_000 + value.microsecond


def time_of(microseconds: int) -> time:
    """The time of day so long after midnight."""
    seconds, microsecond = divmod(microseconds, 1_000_000)
    return time(seconds // 3600, seconds // 60 % 60, seconds % 60, microsecond)


def _uuid(_: ColumnType, value: Any) -> bytes:
    if not is_uuid(value):
        raise TypeMismatch(f"{value!r} is not a uuid.UUID")
    return bytes(value.bytes)


def is_uuid(value: Any) -> bool:
    """Whether it is a UUID; whoever has one has imported the module, too."""
    module = sys.modules.get("uuid")
    return module is not None and isinstance(value, module.UUID)


def _decode_uuid(_: ColumnType, raw: bytes) -> Any:
    from uuid import UUID  # which most programs do not need

    return UUID(bytes=raw)


def _interval(_: ColumnType, value: Any) -> bytes:
    if isinstance(value, timedelta):
        value = Interval.of(value)
    if not isinstance(value, Interval):
        raise TypeMismatch(f"{value!r} is neither an Interval nor a timedelta")
    return value.stored


def _decimal(type_: ColumnType, value: Any) -> bytes:
    if isinstance(value, bool) or not isinstance(value, int | Decimal):
        raise TypeMismatch(f"{value!r} is not a Decimal")
    try:
        scaled = Decimal(value).scaleb(type_.scale, _EXACT)
        digits = int(scaled)
    except (InvalidOperation, ValueError, OverflowError):
        raise ValueOutOfRange(f"{value} is out of range for {type_}") from None
    if digits != scaled or abs(digits) >= 10**type_.length:
        raise ValueOutOfRange(f"{value} does not fit {type_} without rounding")
    width = {Kind.DECIMAL_WORD: 4, Kind.DECIMAL_LONG: 8, Kind.DECIMAL_WIDE: 16}[type_.kind]
    return digits.to_bytes(width, "little", signed=True)


def _fill(type_: ColumnType, raw: bytes) -> bytes:
    if len(raw) > type_.length and type_.name == "CHAR":
        raw = raw.rstrip(b" ")  # blanks at its end do not count
    require_length(type_, len(raw))
    if len(raw) > type_.in_row_max:
        raise ValueTooLong(f"a row keeps {type_.in_row_max} bytes of a {type_}, not {len(raw)}")
    return raw.ljust(type_.length, type_.padding) if type_.padding else raw


def require_length(type_: ColumnType, size: int) -> None:
    """Refuse a value of so many bytes if it is longer than its type allows."""
    if size > type_.bytes_max:
        raise ValueTooLong(f"a value of {size} bytes is too long for {type_}")


def _text(type_: ColumnType, value: Any) -> bytes:
    if isinstance(value, Locator) and type_.may_be_long:
        return encode_text_locator(value) + b"\0"
    if not isinstance(value, str):
        raise TypeMismatch(f"{value!r} is not a str")
    try:
        return _fill(type_, value.encode()) + b"\0"
    except UnicodeEncodeError:
        raise TypeMismatch(f"{value!r} is not a text: it cannot be written as UTF-8") from None


def json_of(type_: ColumnType, value: Any) -> JsonText | JsonbText:
    """What a column of JSON keeps of a text, or of a dict or list: a text that was checked."""
    kind = _CHECKED[type_.name]
    if isinstance(value, kind):
        return value
    if isinstance(value, dict | list):
        value = written(value)
    if not isinstance(value, str):
        raise TypeMismatch(f"{value!r} is neither the text of a JSON value, nor a dict or a list")
    return check(value) if type_.name == "JSON" else normal(value)


_CHECKED: dict[str, type[JsonText] | type[JsonbText]] = {"JSON": JsonText, "JSONB": JsonbText}


def _json(type_: ColumnType, value: Any) -> bytes:
    return _text(type_, value if isinstance(value, Locator) else json_of(type_, value))


def _binary(type_: ColumnType, value: Any) -> bytes:
    if isinstance(value, Locator) and type_.may_be_long:
        return encode_text_locator(value)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeMismatch(f"{value!r} is not bytes")
    raw = _fill(type_, bytes(value))
    if type_.may_be_long and is_text_locator(raw):
        raise ValueTooLong(f"a row does not keep {raw.hex()} of a {type_}, which looks like the place of a value")
    return raw


def _array(type_: ColumnType, value: Any) -> bytes:
    if isinstance(value, Locator):
        return encode_text_locator(value)
    raw = value if isinstance(value, EncodedArray) else encode_array(type_.element, value)
    if len(raw) > type_.in_row_max:
        raise ValueTooLong(f"a row keeps {type_.in_row_max} bytes of a {type_}, not {len(raw)}")
    return raw


def _decode_array(type_: ColumnType, raw: bytes) -> list[Any] | Locator:
    return text_locator(raw) if is_text_locator(raw) else decode_array(type_.element, raw)


def _blob(_: ColumnType, value: Any) -> bytes:
    if isinstance(value, Locator):
        return encode_cell(value)
    if not isinstance(value, bytes | bytearray | memoryview):
        raise TypeMismatch(f"a {type(value).__name__} is not bytes")
    return encode_cell(bytes(value))


def _clob(_: ColumnType, value: Any) -> bytes:
    if isinstance(value, Locator):
        return encode_cell(value)
    if not isinstance(value, str):
        raise TypeMismatch(f"a {type(value).__name__} is not a str")
    return encode_cell(encode_text(value))


def encode_text(value: str) -> bytes:
    """A text as UTF-8."""
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise TypeMismatch(f"{value[:40]!r} is not a text: it cannot be written as UTF-8") from None


def _decode_varchar(type_: ColumnType, raw: bytes) -> str | Locator:
    if type_.may_be_long and is_text_locator(raw[:-1]):
        return text_locator(raw)
    return raw[:-1].decode()


def _decode_varbinary(type_: ColumnType, raw: bytes) -> bytes | Locator:
    return text_locator(raw) if type_.may_be_long and is_text_locator(raw) else raw


def _decode_clob(_: ColumnType, raw: bytes) -> str | Locator:
    value = decode_cell(raw)
    return value if isinstance(value, Locator) else value.decode()


def _decode_decimal(type_: ColumnType, raw: bytes) -> Decimal:
    digits = int.from_bytes(raw, "little", signed=True)
    if abs(digits) >= 10**type_.length:
        raise ValueError(f"it has more than {type_.length} digits")
    return Decimal(digits).scaleb(-type_.scale, _EXACT)


class _Stored(NamedTuple):
    """How values of a type are stored; of a DECIMAL its digits say how kernels move it."""

    kind: Kind
    encode: Callable[[ColumnType, Any], bytes]
    decode: Callable[[ColumnType, bytes], Any]


_STORED: dict[str, _Stored] = {
    "SMALLINT": _Stored(Kind.SHORT, _integer(16, 32), _decode_smallint),
    "INT": _Stored(Kind.WORD, _integer(32), lambda _, raw: struct.unpack("<i", raw)[0]),
    "BIGINT": _Stored(Kind.LONG, _integer(64), lambda _, raw: struct.unpack("<q", raw)[0]),
    "DECIMAL": _Stored(Kind.DECIMAL_WIDE, _decimal, _decode_decimal),
    "REAL": _Stored(Kind.WORD, _floating("<f"), lambda _, raw: struct.unpack("<f", raw)[0]),
    "DOUBLE": _Stored(Kind.LONG, _floating("<d"), lambda _, raw: struct.unpack("<d", raw)[0]),
    "BOOLEAN": _Stored(Kind.BIT, _boolean, lambda _, raw: bool(struct.unpack("<i", raw)[0])),
    "DATE": _Stored(Kind.WORD, _date, lambda _, raw: EPOCH_DATE + timedelta(days=struct.unpack("<i", raw)[0])),
    "TIME": _Stored(Kind.LONG, _time, lambda _, raw: time_of(struct.unpack("<q", raw)[0])),
    "TIMESTAMP": _Stored(Kind.LONG, _timestamp, lambda _, raw: EPOCH + struct.unpack("<q", raw)[0] * MICROSECOND),
    "TIMESTAMPTZ": _Stored(Kind.LONG, _timestamp_with_zone, _decode_timestamp_with_zone),
    "INTERVAL": _Stored(Kind.WIDE, _interval, lambda _, raw: Interval.of_stored(raw)),
    "UUID": _Stored(Kind.WIDE, _uuid, _decode_uuid),
    "CHAR": _Stored(Kind.TEXT, _text, lambda _, raw: raw[:-1].decode()),
    "VARCHAR": _Stored(Kind.TEXT, _text, _decode_varchar),
    "BINARY": _Stored(Kind.BYTES, _binary, lambda _, raw: raw),
    "VARBINARY": _Stored(Kind.BYTES, _binary, _decode_varbinary),
    "JSON": _Stored(Kind.TEXT, _json, _decode_varchar),
    "JSONB": _Stored(Kind.TEXT, _json, _decode_varchar),
    "BLOB": _Stored(Kind.BYTES, _blob, lambda _, raw: decode_cell(raw)),
    "CLOB": _Stored(Kind.BYTES, _clob, _decode_clob),
}
TYPES = tuple(_STORED)  # the names of all types; each layer has one table of them, and tests/test_types.py lists these
