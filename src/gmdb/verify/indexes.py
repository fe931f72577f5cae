"""Indexes against the catalog: each has its table, its segment, and a head that says what sys_indexes says.

What then is checked depends on the kind of the index, which is that of its segment; ``KINDS`` lists them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gmdb.access.indexes import IndexDefinition, order_of
from gmdb.catalog.schema import TableDefinition
from gmdb.format.address import page_name
from gmdb.format.btree import INDEX_AT, INDEX_HEAD, KEY_COLUMNS_MAX
from gmdb.format.columns import Column
from gmdb.format.page import SegmentType
from gmdb.verify.btrees import check_btree
from gmdb.verify.catalog import Catalog, wrong_entry
from gmdb.verify.hashes import check_hash
from gmdb.verify.index_rows import check_rows
from gmdb.verify.keyed import KINDS_BY_NAME, Index, IndexEntries
from gmdb.verify.mapping import MappedPages
from gmdb.verify.segments import Segment
from gmdb.verify.survey import Survey
from gmdb.verify.undo import LiveRecord

KINDS: dict[SegmentType, Callable[[Survey, MappedPages, Index], IndexEntries]] = {
    SegmentType.BTREE: check_btree,
    SegmentType.HASH: check_hash,
}
"""By the type of an index's segment: what checks its pages, and answers the entries that it found."""


@dataclass(frozen=True)
class _Names:
    """What indexes and tables that were looked at before are called, and their numbers."""

    numbers: set[int]
    names: set[str]


def check_indexes(survey: Survey, catalog: Catalog, segments: list[Segment], records: list[LiveRecord]) -> None:
    if not catalog.indexes:
        return
    by_entry = {segment.entry_page: segment for segment in segments}
    mapped = MappedPages(survey)
    before = _Names(set(catalog.tables), set())
    for place, definition in catalog.indexes:
        wrong = _wrong_definition(survey, catalog, definition, before)
        before.numbers.add(definition.obj_id)
        before.names.add(definition.name.lower())
        if wrong:
            survey.findings.on_page(*place, f"index {definition.name} {wrong}")
        elif definition.entry_page in by_entry:
            table = catalog.tables[definition.table_id]
            index = _read_head(survey, definition, table, by_entry[definition.entry_page])
            entries = KINDS[SegmentType(index.segment.seg_type)](survey, mapped, index)
            check_rows(survey, mapped, index, entries, records)


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
