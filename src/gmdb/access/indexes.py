"""What an index is: its name, its columns, where its segment begins; and its keys as bytes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from gmdb.errors import NoSuchIndex, NotSupportedError
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column


@dataclass(frozen=True)
class IndexDefinition:
    name: str
    obj_id: int
    table_id: int
    entry_page: int
    unique: bool
    positions: tuple[int, ...]  # of its columns, in the table
    since: int = 0  # snapshots older than this commit cannot go by it
    using: str = "btree"  # or "hash", which finds whole keys only

    def require_order(self) -> None:
        """Refuse a range of keys if the index has them in no order."""
        if self.using != "btree":
            raise NotSupportedError(
                f"index {self.name} finds single keys only; for a range of keys, use a B-tree index"
            )

    def require_key(self, key: Sequence[Any]) -> None:
        """Refuse a key of fewer columns than the index can go by, or of more than it has."""
        if len(key) != len(self.positions) and self.using != "btree":
            raise NotSupportedError(
                f"index {self.name} finds keys by all of its {len(self.positions)} columns, not by {len(key)}; "
                "for the first columns of a key, use a B-tree index"
            )


def no_such_index(table: str, index: str, known: Sequence[IndexDefinition]) -> NoSuchIndex:
    names = ", ".join(definition.name for definition in known) or "none yet"
    return NoSuchIndex(f"table {table} has no index {index}; its indexes are: {names}")


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
