"""Indexes against the catalog: each has its table, its segment, and a head that says what sys_indexes says.

What then is checked depends on the kind of the index, which is that of its segment; ``KINDS`` lists them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from gmdb.access.indexes import IndexDefinition, order_of
from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import page_name
from gmdb.format.btree import INDEX_AT, INDEX_HEAD, KEY_COLUMNS_MAX
from gmdb.format.columns import Column
from gmdb.format.page import SegmentType
from gmdb.verify.btrees import Tree
from gmdb.verify.catalog import Catalog, wrong_entry
from gmdb.verify.hashes import Hash
from gmdb.verify.index_pieces import NOTHING, Digest, EntriesFound, RowWords
from gmdb.verify.index_rows import check_rows, row_pieces
from gmdb.verify.keyed import KINDS_BY_NAME, Index
from gmdb.verify.mapping import MappedPages
from gmdb.verify.pieces import Piece
from gmdb.verify.segments import Segment
from gmdb.verify.survey import Survey
from gmdb.verify.undo import LiveRecord

KINDS: dict[SegmentType, type[Tree] | type[Hash]] = {SegmentType.BTREE: Tree, SegmentType.HASH: Hash}
"""By the type of an index's segment: what goes through its pages, and answers the entries that it found."""


@dataclass(frozen=True)
class _Names:
    """What indexes and tables that were looked at before are called, and their numbers."""

    numbers: set[int]
    names: set[str]


class Indexes:
    """All indexes: what is to be done about them in pieces, and then what is wrong with them.

    An index whose pieces are right, and whose rows have the same words as its entries, is right.  Any other is gone
    through as a whole.
    """

    def __init__(self, survey: Survey, catalog: Catalog, segments: list[Segment], pages_a_piece: int) -> None:
        self._survey = survey
        self._walks: list[_Walk] = []
        for index in _indexes(survey, catalog, segments):
            walk = KINDS[SegmentType(index.segment.seg_type)](survey, self._mapped, index)
            pieces = walk.pieces(pages_a_piece) if survey.files.is_settled and index.segment.whole else []
            self._walks.append(_Walk(index, walk, pieces))
        self._rows: dict[int, list[RowWords]] = {}
        for table_id, walks in self._by_table().items():
            self._rows[table_id] = row_pieces(survey, [walk.index for walk in walks], pages_a_piece)

    @cached_property
    def _mapped(self) -> MappedPages:
        return MappedPages(self._survey.files, self._survey.verdicts())

    def _by_table(self) -> dict[int, list[_Walk]]:
        """Of each table, the indexes that can be checked in pieces."""
        found: dict[int, list[_Walk]] = {}
        for walk in self._walks:
            if walk.pieces:
                found.setdefault(walk.index.table.obj_id, []).append(walk)
        return found

    def pieces(self) -> list[Piece]:
        entries: list[Piece] = [piece for walk in self._walks for piece in walk.pieces]
        return entries + [piece for pieces in self._rows.values() for piece in pieces]

    def check(self, results: Iterator[Any], records: list[LiveRecord]) -> None:
        """``results``: what came of the pieces; as many are taken as there are pieces."""
        for walk in self._walks:
            walk.found = [next(results) for _ in walk.pieces]
        for table_id, walks in self._by_table().items():
            for digests in [next(results) for _ in self._rows[table_id]]:
                for walk, digest in zip(walks, digests, strict=True):
                    walk.rows += digest
        for walk in self._walks:
            if not walk.is_right():
                self._mapped.forget_walks()
                again = type(walk.walk)(self._survey, self._mapped, walk.index)
                check_rows(self._survey, self._mapped, walk.index, again.check(), records)


@dataclass
class _Walk:
    """An index, and what is known of it."""

    index: Index
    walk: Tree | Hash
    pieces: Sequence[Piece]
    found: Sequence[EntriesFound] = ()
    rows: Digest = NOTHING

    def is_right(self) -> bool:
        entries = sum((one.digest for one in self.found), NOTHING)
        if not self.found or entries != self.rows or not all(one.right for one in self.found):
            return False
        return self.walk.is_reached(self.found)


def _indexes(survey: Survey, catalog: Catalog, segments: list[Segment]) -> Iterator[Index]:
    """Those that can be looked at; what the catalog and their heads say of them is checked."""
    by_entry = {segment.entry_page: segment for segment in segments}
    before = _Names(set(catalog.tables), set())
    for place, definition in catalog.indexes:
        wrong = _wrong_definition(survey, catalog, definition, before)
        before.numbers.add(definition.obj_id)
        before.names.add(definition.name.lower())
        if wrong:
            survey.findings.on_page(*place, f"index {definition.name} {wrong}")
        elif definition.entry_page in by_entry:
            table = catalog.tables[definition.table_id]
            yield _read_head(survey, definition, table, by_entry[definition.entry_page])


def _wrong_definition(survey: Survey, catalog: Catalog, index: IndexDefinition, before: _Names) -> str:
    """What is wrong with a row of sys_indexes."""
    next_id = survey.files.control.get("next_obj_id", 0)
    if index.obj_id in before.numbers or index.name.lower() in before.names:
        return f"has a name, or a number ({index.obj_id}), that is there already"
    if next_id and index.obj_id >= next_id:
        return f"has number {index.obj_id}, which the next table or index would get ({next_id})"
    table = catalog.tables.get(index.table_id)
    if table is None:
        return f"is of object {index.table_id}, which is no table"
    positions = index.positions
    if len(set(positions)) < len(positions) or len(positions) > KEY_COLUMNS_MAX:
        return f"has the columns number {', '.join(map(str, positions))}; they are at most {KEY_COLUMNS_MAX}, each once"
    if not all(0 <= position < len(table.columns) for position in positions):
        return f"has a column number {max(positions)}, but table {table.name} has {len(table.columns)} columns"
    if index.using not in KINDS_BY_NAME:
        return f"is of kind {index.using!r}, but there are only {' and '.join(KINDS_BY_NAME)}"
    seg_type = SegmentType[KINDS_BY_NAME[index.using].name]
    wrong = wrong_entry(survey, index.entry_page, index.obj_id, table.space_id, (seg_type,))
    return wrong and f"starts at page {page_name(index.entry_page)}, {wrong}"


def _read_head(survey: Survey, definition: IndexDefinition, table: TableDefinition, segment: Segment) -> Index:
    """The index with the head that it should have: what the catalog says, and the root that its page names."""
    columns = tuple(table.columns[position] for position in definition.positions)
    page = survey.files.page(definition.entry_page)
    found = INDEX_HEAD.values(page, INDEX_AT)
    right = _right_head(definition, columns)
    for name, value in right.items():
        stored = _field(page, name) if isinstance(value, list) else found[name]
        if stored != value:
            said = f"index {definition.name}: {name} {stored} in the index's head, but the catalog makes it {value}"
            survey.findings.on_page(definition.entry_page, INDEX_AT + INDEX_HEAD.offset(name), said)
    head = np.frombuffer(INDEX_HEAD.pack(root=found["root"], **right), np.uint8)
    return Index(definition, table, columns, segment, head)


def _right_head(definition: IndexDefinition, columns: tuple[Column, ...]) -> dict[str, Any]:
    spare = [0] * (16 - len(columns))
    positions = np.array([*definition.positions, *spare], "<u2").tobytes()
    orders = [*(int(order_of(column)) for column in columns), *spare]
    return {
        "unique": int(definition.unique),
        "column_count": len(columns),
        "kind": int(KINDS_BY_NAME[definition.using]),
        "orders": orders,
        "positions": list(positions),
    }


def _field(page: bytes, name: str) -> list[int]:
    """The bytes of a field of the index's head."""
    size = next(field.size for field in INDEX_HEAD.fields if field.name == name)
    at = INDEX_AT + INDEX_HEAD.offset(name)
    return list(page[at : at + size])
