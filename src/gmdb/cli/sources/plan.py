"""A table that is to be imported: its definition, and its rows as a stream; and what does not come over."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

import pyarrow as pa

from gmdb.errors import InterfaceError
from gmdb.format.columns import DECIMAL_DIGITS_MAX, LENGTH_MAX, Column, ColumnType
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.tables.arrow.arrow_types import arrow_type
from gmdb.tables.catalog.schema import Constraint


@dataclass(frozen=True)
class IndexPlan:
    name: str
    columns: tuple[str, ...]  # as they are written in CREATE INDEX: quoted, with their order
    unique: bool
    condition: str = ""  # of the rows that it has entries of; none: of all


@dataclass
class TablePlan:
    """``batches`` returns the rows from the beginning at each call."""

    name: str
    columns: list[Column]
    rows: int
    batches: Callable[[], Iterator[pa.RecordBatch]]
    keys: list[Constraint] = field(default_factory=list)  # primary key and unique constraints
    checks: list[str] = field(default_factory=list)
    indexes: list[IndexPlan] = field(default_factory=list)
    foreign_keys: list[Constraint] = field(default_factory=list)
    identity: tuple[str, int] | None = None  # a numbered column, and its last number


class Account:
    """What a file has, by kinds, and what of it is left out: what comes over is the difference.

    ``remarks``: everything that is left out or is not as it was, a line each.
    """

    def __init__(self) -> None:
        self.remarks: list[str] = []
        self._there: Counter[str] = Counter()
        self._left_out: Counter[str] = Counter()

    def has(self, kind: str, count: int = 1) -> None:
        self._there[kind] += count

    def leave_out(self, kind: str, what: str, count: int = 1) -> None:
        self._left_out[kind] += count
        self.remarks.append(f"left out: {what}")

    def remark(self, what: str) -> None:
        self.remarks.append(what)

    def rows(self) -> list[dict[str, Any]]:
        """For each kind of things how many are in the file, come over, and are left out."""
        return [
            {
                "what": kind,
                "in_file": count,
                "imported": count - self._left_out[kind],
                "left_out": self._left_out[kind],
            }
            for kind, count in self._there.items()
            if count
        ]


class ImportSource(Protocol):
    """A file with tables."""

    account: Account

    def plans(self) -> list[TablePlan]: ...

    def __enter__(self) -> ImportSource: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def table_name(path: Path, name: str | None) -> str:
    """The name of the one table of a file: what was given, or the file's own."""
    return name if name is not None else path.stem.lower()


def in_short(error: Exception) -> str:
    """The message without its position, which is in text that the user did not write, and without advice."""
    return re.sub(r"^line \d+, column \d+: ", "", str(error)).split(". ", 1)[0]


def require_file(path: Path) -> bytes:
    """The first bytes of a file that can be read."""
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise InterfaceError(f"{path} cannot be read: {error.strerror}") from None


# ---- Which type a column of SQLite's gets: by how it was declared and by what its values are.
#
# SQLite takes any value in any column; what counts is therefore what is there.  The first rule that takes every value
# of the column decides:
#
# | values | declared | type |
# |---|---|---|
# | 0 and 1 | BOOLEAN | BOOLEAN |
# | days, such as 2024-01-31 | DATE | DATE |
# | times, such as 2024-01-31 12:00:00.5 | DATETIME, TIMESTAMP | TIMESTAMP |
# | numbers of so many digits | DECIMAL(p,s), NUMERIC(p,s) | DECIMAL(p,s) |
# | integers | | BIGINT |
# | numbers that a double holds exactly | | DOUBLE |
# | texts | VARCHAR(n), if all fit | VARCHAR(n), else TEXT |
# | bytes | | BYTEA |
# | numbers and texts | | TEXT, numbers as SQL writes them; that is reported |
#
# A column without values goes by its declaration alone.  What no rule takes is refused, with the row.

TEXT, BYTES = ColumnType("VARCHAR"), ColumnType("VARBINARY")  # of any length
EXACT_MAX = 1 << 53  # integers up to here are doubles, too
_LENGTHS = re.compile(r"\(\s*(\d+)\s*(?:,\s*(\d+)\s*)?\)")
Convert = Callable[[Sequence[Any]], pa.Array]


@dataclass(frozen=True)
class Profile:
    """What the values of a column are: how many of each storage class, and how many are written in some ways."""

    integers: int
    reals: int
    texts: int
    blobs: int
    nulls: int
    low: int | None  # of the integers
    high: int | None
    bytes_max: int  # of texts and blobs
    booleans: int
    days: int
    times: int
    decimals: int

    @property
    def count(self) -> int:
        return self.integers + self.reals + self.texts + self.blobs


@dataclass(frozen=True)
class Chosen:
    """A type, a function that makes an Arrow column of the values, and a remark for the user."""

    type: ColumnType
    convert: Convert
    remark: str = ""


class Unfit(Exception):
    """No type takes all values; ``condition`` finds a row with one that is in the way, as SQL over ``{column}``."""

    def __init__(self, message: str, condition: str) -> None:
        super().__init__(message)
        self.condition = condition


def declared_decimal(declared: str) -> tuple[int, int] | None:
    """The digits of a DECIMAL(p,s), if it is one that gmdb has."""
    match = _LENGTHS.search(declared)
    if match is None or not declared.upper().startswith(("DECIMAL", "NUMERIC", "DEC(")):
        return None
    digits, scale = int(match[1]), int(match[2] or 0)
    return (digits, scale) if 1 <= digits <= DECIMAL_DIGITS_MAX and scale <= min(digits, 15) else None


def choose(declared: str, profile: Profile) -> Chosen:
    """The type for a column."""
    if profile.blobs and profile.blobs < profile.count:
        raise Unfit("bytes among other values", "typeof({column}) = 'blob'")
    return _special(declared, profile) or _plain(declared, profile)


def _special(declared: str, profile: Profile) -> Chosen | None:
    """Types that SQLite has no storage class for."""
    upper, every = declared.upper(), profile.count
    if upper.startswith("BOOL") and profile.booleans == every:
        return Chosen(ColumnType("BOOLEAN"), lambda values: pa.array(map(_boolean, values), pa.bool_()))
    if upper == "DATE" and profile.days == every:
        return Chosen(ColumnType("DATE"), lambda values: pa.array(values, pa.string()).cast(pa.date32()))
    if upper.startswith(("DATETIME", "TIMESTAMP")) and profile.times == every:
        return Chosen(ColumnType("TIMESTAMP"), lambda values: pa.array(values, pa.string()).cast(pa.timestamp("us")))
    digits = declared_decimal(declared)
    if digits is not None and profile.decimals == every:
        type_ = ColumnType("DECIMAL", *digits)
        return Chosen(type_, lambda values: pa.array(map(_decimal, values), arrow_type(type_)))
    return None


def _plain(declared: str, profile: Profile) -> Chosen:
    if profile.count == 0:
        return _by_declaration(declared)
    if profile.blobs:
        return Chosen(BYTES, lambda values: pa.array(values, pa.binary()))
    if profile.texts:
        return _texts(declared, profile)
    if not profile.reals:
        remark = ""
        return Chosen(ColumnType("BIGINT"), lambda values: pa.array(values, pa.int64()), remark)
    if max(-(profile.low or 0), profile.high or 0) <= EXACT_MAX:
        remark = "has numbers with fractions: DOUBLE" if "INT" in declared.upper() else ""
        return Chosen(ColumnType("DOUBLE"), lambda values: pa.array(map(_float, values), pa.float64()), remark)
    return Chosen(TEXT, _as_texts, "has integers that no DOUBLE holds beside fractions: numbers are kept as texts")


def _texts(declared: str, profile: Profile) -> Chosen:
    match = _LENGTHS.search(declared)
    length = int(match[1]) if match is not None and "CHAR" in declared.upper() else 0
    type_ = ColumnType("VARCHAR", length) if 0 < profile.bytes_max <= length <= LENGTH_MAX else TEXT
    numbers = profile.integers + profile.reals
    if numbers:
        remark = f"has {profile.texts:,} texts and {numbers:,} numbers, which are kept as texts"
        return Chosen(TEXT, _as_texts, remark)
    return Chosen(type_, lambda values: pa.array(values, pa.string()))


def _by_declaration(declared: str) -> Chosen:
    """SQLite's rules of affinity, in their order."""
    upper = declared.upper()
    if "INT" in upper:
        return Chosen(ColumnType("BIGINT"), _nothing(pa.int64()))
    if any(part in upper for part in ("CHAR", "CLOB", "TEXT")):
        return _texts(declared, Profile(0, 0, 1, 0, 0, None, None, 1, 0, 0, 0, 0))
    if "BLOB" in upper:
        return Chosen(BYTES, _nothing(pa.binary()))
    if any(part in upper for part in ("REAL", "FLOA", "DOUB", "DEC", "NUM")):
        return Chosen(ColumnType("DOUBLE"), _nothing(pa.float64()))
    return Chosen(TEXT, _nothing(pa.string()))


def _nothing(type_: pa.DataType) -> Convert:
    return lambda values: pa.nulls(len(values), type_)


def _boolean(value: Any) -> bool | None:
    return None if value is None else bool(value)


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


def _decimal(value: Any) -> Decimal | None:
    return None if value is None else Decimal(repr(value))


def _as_texts(values: Sequence[Any]) -> pa.Array:
    texts = [value if value is None or isinstance(value, str) else repr(value) for value in values]
    return pa.array(texts, pa.string())
