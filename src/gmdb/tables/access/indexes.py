"""The definition of an index: name, columns, where its segment begins; and its keys as bytes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gmdb.errors import NoSuchIndex, NotSupportedError, SchemaError, UniqueViolation
from gmdb.format.btree import Order
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column, Kind
from gmdb.process.late_dataclasses import dataclass

_ORDERS = {
    Kind.WORD: Order.WORD,
    Kind.BIT: Order.WORD,
    Kind.DECIMAL_WORD: Order.WORD,
    Kind.LONG: Order.LONG,
    Kind.DECIMAL_LONG: Order.LONG,
    Kind.DECIMAL_WIDE: Order.WIDE,
    Kind.TEXT: Order.BYTES,
    Kind.BYTES: Order.BYTES,
}


@dataclass(frozen=True)
class KeyRange:
    """Keys of an index from ``low`` to ``high``, each the first columns of a key; without them, from end to end."""

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


EVERYTHING = KeyRange()


def no_such_index(table: str, index: str, known: Sequence[IndexDefinition]) -> NoSuchIndex:
    names = ", ".join(definition.name for definition in known) or "none yet"
    return NoSuchIndex(f"table {table} has no index {index}; its indexes are: {names}")


def keys_without_index(table: str) -> SchemaError:
    return SchemaError(f"table {table}: a range of keys needs the name of an index: by=...")


def order_of(column: Column) -> Order:
    """How the values of a key column are compared."""
    return Order.DOUBLE if column.type.name == "DOUBLE" else _ORDERS[column.type.kind]


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
        """``encode`` for keys of each number of columns."""
        return {count: self._codec(count).encode for count in range(1, len(self._columns) + 1)}

    def decode(self, row: bytes, count: int) -> tuple[Any, ...]:
        return self._codec(count).decode(row)


def name_key(violation: UniqueViolation, index: IndexDefinition, row: Sequence[Any]) -> UniqueViolation:
    """The error, with the key that a row would have had in the index."""
    key = ", ".join(str(row[n]) for n in index.positions)
    violation.args = (f"{violation}: {key[:100]}",)
    return violation
