"""The definition of an index: name, columns, where its segment begins; and its keys as bytes.

An index's columns are those of its key, then those that it only keeps (INCLUDE), so that readers need not visit rows
for them.  To kernels they are all columns of the key; a unique index tells rows apart by those of its key.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

from gmdb.errors import NoSuchIndex, NotSupportedError, SchemaError, UniqueViolation, ValueTooLong
from gmdb.format.btree import DESCENDING, KEY_BYTES_MAX, KEY_COLUMNS_MAX, NULLS_COUNT, NULLS_FIRST, IndexKind, Order
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column, Kind
from gmdb.format.key_program import PROGRAM_HEAD, program_at
from gmdb.format.lob import TEXT_IN_ROW_MAX
from gmdb.format.options import option
from gmdb.format.segment import PROGRAM_ROOM
from gmdb.process.late_dataclasses import dataclass

_ORDERS = {
    Kind.WORD: Order.WORD,
    Kind.SHORT: Order.WORD,
    Kind.BIT: Order.WORD,
    Kind.DECIMAL_WORD: Order.WORD,
    Kind.LONG: Order.LONG,
    Kind.DECIMAL_LONG: Order.LONG,
    Kind.DECIMAL_WIDE: Order.WIDE,
    Kind.TEXT: Order.BYTES,
    Kind.BYTES: Order.BYTES,
    Kind.WIDE: Order.BYTES,
}
_ORDERS_BY_NAME = {"DOUBLE": Order.DOUBLE, "REAL": Order.REAL, "INTERVAL": Order.INTERVAL}

HIDDEN = "\0"  # with which the names of columns begin that are expressions: no other column is called so
_TOO_LONG = bytes(2 * KEY_BYTES_MAX)  # instead of a key that is longer than any


class Direction(Enum):
    """How a column of an index's key is ordered, as SQL writes it."""

    ASCENDING = ""
    DESCENDING = "desc"
    ASCENDING_NULLS_FIRST = "nulls first"
    DESCENDING_NULLS_LAST = "desc nulls last"

    @classmethod
    def of(cls, descending: bool, nulls_first: bool) -> Direction:
        if descending:
            return cls.DESCENDING if nulls_first else cls.DESCENDING_NULLS_LAST
        return cls.ASCENDING_NULLS_FIRST if nulls_first else cls.ASCENDING

    @property
    def descending(self) -> bool:
        return self in (Direction.DESCENDING, Direction.DESCENDING_NULLS_LAST)

    @property
    def nulls_first(self) -> bool:
        return self in (Direction.DESCENDING, Direction.ASCENDING_NULLS_FIRST)

    @property
    def flags(self) -> int:
        """What an index head has of it."""
        return (DESCENDING if self.descending else 0) | (NULLS_FIRST if self.nulls_first else 0)


@dataclass(frozen=True)
class KeyRange:
    """Keys of an index from ``low`` to ``high``, each the first columns of a key; without them, from end to end.

    What is low comes first in the index: of a column that descends, it is the greater value.
    """

    low: Sequence[Any] = ()
    high: Sequence[Any] = ()
    low_open: bool = False
    high_open: bool = False
    backwards: bool = False


@dataclass(frozen=True)
class IndexDefinition:
    name: str
    obj_id: int
    table_id: int
    entry_page: int
    unique: bool
    positions: tuple[int, ...]  # of its columns, in the table
    since: int = 0  # snapshots older than this commit cannot use it; ~scn if its own transaction is still open
    using: str = "btree"  # or "hash", which finds whole keys only
    building: bool = False  # readers do not use it yet, and writers record what they would do to it
    comment: str | None = option(None)
    directions: tuple[str, ...] = option(())  # of each column of its key, see Direction; none: all ascending
    included: int = option(0)  # how many of its last columns are not part of its key, only kept in it
    condition: str | None = option(None)  # it has entries of rows of which this is true, as SQL writes it; None: of all
    program: str | None = option(None)  # the condition as kernels evaluate it, in base 64
    nulls_distinct: bool = option(True)  # a unique one: keys with a NULL are never each other's duplicates

    @property
    def key(self) -> tuple[int, ...]:
        """The positions of the columns of its key."""
        return self.positions[: len(self.positions) - self.included]

    @property
    def program_bytes(self) -> bytes:
        """Its key program; empty if it has none."""
        return b64decode(self.program) if self.program else b""

    def direction(self, number: int) -> Direction:
        """Of a column of the index, counted from 0."""
        return Direction(self.directions[number]) if number < len(self.directions) else Direction.ASCENDING

    def require(self, keys: KeyRange) -> None:
        """Refuse keys that the index cannot look up: a hash index finds whole keys, one at a time."""
        if self.using == "btree":
            return
        if keys.low:
            self.require_columns(len(keys.low))
        if not keys.low or tuple(keys.low) != tuple(keys.high) or keys.low_open or keys.high_open:
            raise NotSupportedError(
                f"index {self.name} finds single keys only; for a range of keys, use a B-tree index"
            )

    def require_columns(self, count: int) -> None:
        """Refuse a key of so many columns if the index cannot look it up."""
        if self.using != "btree" and count != len(self.positions):
            raise NotSupportedError(
                f"index {self.name} finds keys by all of its {len(self.positions)} columns, not by {count}; "
                "for the first columns of a key, use a B-tree index"
            )


@dataclass(frozen=True)
class NewIndex:
    """An index as it is asked for: ``columns`` are those of its key, ``included`` those that it only keeps."""

    name: str
    columns: tuple[str, ...]
    unique: bool = False
    using: str = "btree"
    directions: tuple[str, ...] = ()  # of the columns of its key, see Direction; none: all ascending
    included: tuple[str, ...] = ()
    condition: str | None = None  # which rows it has entries of, see IndexDefinition
    program: str | None = None
    nulls_distinct: bool = True

    @property
    def definition(self) -> IndexDefinition:
        """What is known of it before it has a place."""
        is_usual = not any(self.directions)
        directions = () if is_usual else (*self.directions, *[""] * (len(self.columns) - len(self.directions)))
        options = {"directions": directions, "included": len(self.included), "nulls_distinct": self.nulls_distinct}
        rows = {"condition": self.condition, "program": self.program}
        return IndexDefinition(self.name, 0, 0, 0, self.unique, (), using=self.using, **options, **rows)  # type: ignore


EVERYTHING = KeyRange()


def written_columns(index: IndexDefinition, columns: Sequence[Column]) -> str:
    """What an index is on, as SQL writes it: ``a, b desc include (c)``; ``columns``: all that the table's rows have."""
    names = [columns[n].name.removeprefix(HIDDEN) for n in index.positions]
    count = len(index.key)
    parts = [" ".join(filter(None, (name, index.direction(n).value))) for n, name in enumerate(names[:count])]
    included = f" include ({', '.join(names[count:])})" if index.included else ""
    included += "" if index.nulls_distinct else " nulls not distinct"
    return ", ".join(parts) + included + (f" where {index.condition}" if index.condition else "")


def no_such_index(table: str, index: str, known: Sequence[IndexDefinition]) -> NoSuchIndex:
    names = ", ".join(definition.name for definition in known) or "none yet"
    return NoSuchIndex(f"table {table} has no index {index}; its indexes are: {names}")


def keys_without_index(table: str) -> SchemaError:
    return SchemaError(f"table {table}: a range of keys needs the name of an index: by=...")


def order_of(column: Column) -> Order:
    """How the values of a key column are compared."""
    return _ORDERS_BY_NAME.get(column.type.name) or _ORDERS[column.type.kind]


def head_fields(index: IndexDefinition, columns: Sequence[Column], page_size: int) -> dict[str, Any]:
    """The fields of an index's head that its definition decides; ``columns``: the index's own."""
    program_size = len(index.program_bytes)
    spare = [0] * (16 - len(columns))
    positions = b"".join(position.to_bytes(2, "little") for position in (*index.positions, *spare))
    return {
        "unique": NULLS_COUNT if not index.nulls_distinct else int(index.unique),
        "column_count": len(columns),
        "kind": int(IndexKind[index.using.upper()]),
        "orders": [*(int(order_of(one)) | index.direction(n).flags for n, one in enumerate(columns)), *spare],
        "positions": list(positions),
        "unique_columns": len(index.key) if index.included else 0,
        "program_at": program_at(page_size) if program_size else 0,
        "program_size": program_size,
    }


def require_parts(index: IndexDefinition) -> None:
    """Refuse an index whose columns and their directions do not fit together."""
    where = f"index {index.name}"
    if not 1 <= len(index.positions) <= KEY_COLUMNS_MAX:
        raise SchemaError(f"{where} has {len(index.positions)} columns; it must have 1 to {KEY_COLUMNS_MAX}")
    if type(index.included) is not int or not 0 <= index.included < len(index.positions):
        raise SchemaError(f"{where} includes {index.included} of its {len(index.positions)} columns")
    known = [one.value for one in Direction]
    if len(index.directions) > len(index.key) or not all(one in known for one in index.directions):
        raise SchemaError(f"{where}: {list(index.directions)[:20]} are not directions of its {len(index.key)} columns")
    if type(index.nulls_distinct) is not bool or not (index.nulls_distinct or index.unique):
        raise SchemaError(f"{where}: only a unique index has NULLs that are not distinct")
    if (index.condition is None) != (index.program is None):
        raise SchemaError(f"{where} has a condition without a program, or the other way round")
    if index.program is not None:
        _require_program(where, index.program)
    if index.using != "btree" and (index.included or any(index.directions)):
        raise SchemaError(f"{where}: only a btree has directions and includes columns")


def _require_program(where: str, program: str) -> None:
    try:
        size = len(b64decode(program, validate=True))
    except ValueError:
        size = 0
    if not PROGRAM_HEAD.size <= size <= PROGRAM_ROOM:
        raise SchemaError(f"{where} has a program that is none, or of more than {PROGRAM_ROOM} bytes: {program[:40]}")


class KeyCodec:
    """Keys, or their first columns, in a row's shape; with ``gap``, in an entry's."""

    def __init__(self, columns: Sequence[Column], gap: int = 0) -> None:
        self._columns = [Column(column.name, column.type, True) for column in columns]
        self._gap = gap
        self._codecs: dict[int, RowCodec] = {}

    def _codec(self, count: int) -> RowCodec:
        codec = self._codecs.get(count)
        if codec is None:
            codec = self._codecs[count] = RowCodec(self._columns[:count], gap=self._gap)
        return codec

    def encode(self, key: Sequence[Any]) -> bytes:
        return self._codec(len(key)).encode(key)

    def encoders(self) -> dict[int, Callable[[Sequence[Any]], bytes]]:
        """``encode`` for keys of each number of columns.

        Of a TEXT or BYTEA that no row keeps it gives something that is longer than any key.
        """
        encoders = {count: self._codec(count).encode for count in range(1, len(self._columns) + 1)}
        if not any(column.type.may_be_long for column in self._columns):
            return encoders
        return {count: _tolerant(encode) for count, encode in encoders.items()}

    def decode(self, row: bytes, count: int) -> tuple[Any, ...]:
        return self._codec(count).decode(row)


def _tolerant(encode: Callable[[Sequence[Any]], bytes]) -> Callable[[Sequence[Any]], bytes]:
    def encode_key(key: Sequence[Any]) -> bytes:
        try:
            return encode(key)
        except ValueTooLong:
            return _TOO_LONG

    return encode_key


def key_limit(index: IndexDefinition) -> str:
    """What an index takes of a row, for the error about one that has more."""
    compared = f", and its condition compares up to {TEXT_IN_ROW_MAX}" if index.condition is not None else ""
    return f"a key has at most {KEY_BYTES_MAX} bytes{compared}"


def name_key(violation: UniqueViolation, index: IndexDefinition, row: Sequence[Any]) -> UniqueViolation:
    """The error, with the key that a row would have had in the index."""
    if max(index.key) < len(row):  # the row may lack expressions, which the message tells anyhow
        key = ", ".join(str(row[n]) for n in index.key)
        violation.args = (f"{violation}: {key[:100]}",)
    return violation
