"""An index that is being verified, and what was found in it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption, DataError
from gmdb.format.address import RowId
from gmdb.format.btree import POINTER_SIZE, IndexKind, key_values
from gmdb.format.columns import Column
from gmdb.format.row import ROW_HEAD
from gmdb.verify.segments import Segment

SHOWN_CHARACTERS = 80
KINDS_BY_NAME = {kind.name.lower(): kind for kind in IndexKind}  # as the catalog calls them


@dataclass(frozen=True)
class Index:
    definition: IndexDefinition
    table: TableDefinition
    columns: tuple[Column, ...]
    segment: Segment
    head: np.ndarray  # the bytes of the index head as it should be

    @property
    def name(self) -> str:
        return f"index {self.definition.name}"

    @property
    def kind(self) -> IndexKind:
        return KINDS_BY_NAME[self.definition.using]

    def key_at(self, page: bytes, offset: int) -> str:
        """An entry's key, for people."""
        try:
            return in_words(key_values(self.columns, page, offset))
        except (Corruption, DataError):
            return "that is no value of its columns"


@dataclass(frozen=True)
class IndexEntries:
    """The entries that lead to rows: their words, and where they are (page id << 16 | slot, and SPECIAL)."""

    words: np.ndarray
    spots: np.ndarray
    whole: bool  # whether all of the index could be looked at, so that what is missing is not there


def row_of(page: bytes, offset: int) -> RowId:
    """The row that the entry of a leaf leads to."""
    at = offset + ROW_HEAD.size
    return RowId.from_word(int.from_bytes(page[at : at + POINTER_SIZE], "little"))


def in_words(key: tuple[Any, ...]) -> str:
    text = f"({', '.join(map(repr, key))})"
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}…)"
