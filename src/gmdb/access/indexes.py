"""What an index is: its name, its columns, where its segment begins; and its keys as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gmdb.errors import NoSuchIndex
from gmdb.format.btree import Order
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column, Kind

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
class IndexDefinition:
    name: str
    obj_id: int
    table_id: int
    entry_page: int
    unique: bool
    positions: tuple[int, ...]  # of its columns, in the table
    since: int = 0  # snapshots older than this commit cannot go by it


def no_such_index(table: str, index: str, known: Sequence[IndexDefinition]) -> NoSuchIndex:
    names = ", ".join(definition.name for definition in known) or "none yet"
    return NoSuchIndex(f"table {table} has no index {index}; its indexes are: {names}")


def order_of(column: Column) -> Order:
    """How the values of a key column are compared."""
    return Order.DOUBLE if column.type.name == "DOUBLE" else _ORDERS[column.type.kind]


class KeyCodec:
    """Keys, or their first columns, in a row's shape."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = [Column(column.name, column.type, True) for column in columns]
        self._codecs: dict[int, RowCodec] = {}

    def _codec(self, count: int) -> RowCodec:
        codec = self._codecs.get(count)
        if codec is None:
            codec = self._codecs[count] = RowCodec(self._columns[:count])
        return codec

    def encode(self, key: Sequence[Any]) -> bytes:
        return self._codec(len(key)).encode(key)

    def decode(self, row: bytes, count: int) -> tuple[Any, ...]:
        return self._codec(count).decode(row)
