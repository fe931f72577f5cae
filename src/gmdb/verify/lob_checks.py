"""Large objects against their pages and rows: each page belongs to one value, each value to one row.

A value is whole if its pages are all there, in order, full but for the last, and have as many bytes as its first page
says.  It belongs to a row whose cell leads to it and has the same length; or, while transactions are running, to an
undo record of its insertion or deletion.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from gmdb.errors import DataError
from gmdb.format import heap
from gmdb.format.address import page_name
from gmdb.format.lob import (
    DATA_AT,
    LOB_NODE,
    NODE_AT,
    Locator,
    capacity,
    fan_out,
    listed_pages,
    page_counts,
)
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import ROW_HEAD, RowFlag, SizeCode, walk_cells
from gmdb.format.undo import UndoOperation
from gmdb.kernel.checks.page_checks import LEVEL_SHIFT
from gmdb.kernel.checks.row_checks import SUSPECT
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.verify.findings import Findings
from gmdb.verify.index_contents import heap_pages
from gmdb.verify.pieces import Piece, Workplace
from gmdb.verify.survey import Survey
from gmdb.verify.undo_checks import LiveRecord

_OF_LOBS = (UndoOperation.LOB_INSERT, UndoOperation.LOB_DELETE)
_OF_VERSIONS = (UndoOperation.HEAP_UPDATE, UndoOperation.HEAP_UPDATE_INC)


@dataclass(frozen=True)
class _Reference:
    """A cell that leads to a value, and where it is."""

    page_id: int
    offset: int
    name: str
    locator: Locator


@dataclass(frozen=True)
class ReferenceRange:
    """Some pages of a table whose rows may lead to large objects."""

    table: TableDefinition
    pages: np.ndarray

    @property
    def page_count(self) -> int:
        return len(self.pages)

    def check(self, work: Workplace) -> ReferencesFound:
        findings = Findings()
        return ReferencesFound(list(self._references(work, findings)), findings)

    def _references(self, work: Workplace, findings: Findings) -> Iterator[_Reference]:
        """The cells of rows, deleted ones left out, that lead to values on pages."""
        for page_id in self.pages.tolist():
            page = work.files.page(page_id)
            for slot, offset in heap.live_slots(page):
                flags = heap.flags_of(page, offset)
                if not flags & (RowFlag.DELETE | RowFlag.ENTRY):
                    yield from self._cells(page, page_id, slot, offset, findings)

    def _cells(self, page: bytes, page_id: int, slot: int, offset: int, findings: Findings) -> Iterator[_Reference]:
        cells = walk_cells(page, offset, offset + ROW_HEAD.at(page, offset).size)
        for column, (code, at, length) in zip(self.table.columns, cells, strict=False):
            if not column.type.may_be_apart or code != SizeCode.VARIABLE:
                continue
            name = f"slot {slot}, column {column.name}"
            try:
                value = column.type.decode(page[at : at + length])
            except DataError as error:
                findings.on_page(page_id, at, f"table {self.table.name}: {name}: {error}")
                continue
            if isinstance(value, Locator):
                yield _Reference(page_id, at, name, value)


@dataclass(frozen=True)
class ReferencesFound:
    references: list[_Reference]
    findings: Findings


class LargeObjects:
    """The large objects of all tables: the rows that lead to them, in pieces, then what is wrong with them."""

    def __init__(self, survey: Survey, pages_a_piece: int) -> None:
        self._survey = survey
        self._pieces: dict[int, list[ReferenceRange]] = {}
        for table in survey.tables.values():
            if table.lobs is not None:
                pages = heap_pages(survey, table.obj_id)
                parts = (pages[n : n + pages_a_piece] for n in range(0, len(pages), pages_a_piece))
                self._pieces[table.obj_id] = [ReferenceRange(table, part) for part in parts]

    def pieces(self) -> list[Piece]:
        return [piece for pieces in self._pieces.values() for piece in pieces]

    def check(self, results: Iterator[Any], records: list[LiveRecord]) -> None:
        """``results``: those of the pieces, in order; as many are taken as there are pieces."""
        recorded: dict[int, set[int]] = {}
        for record in records:
            if record.operation in _OF_LOBS:
                recorded.setdefault(record.obj_id, set()).add(record.row_id.page_id)
        for obj_id, pieces in self._pieces.items():
            table = self._survey.tables[obj_id]
            assert table.lobs is not None
            own = [next(results) for _ in pieces]
            _Check(self._survey, table, recorded.get(table.lobs.obj_id, set())).run(own)


class _Check:
    """The large objects of one table."""

    def __init__(self, survey: Survey, table: TableDefinition, recorded: set[int]) -> None:
        assert table.lobs is not None
        self._survey, self._table, self._recorded = survey, table, recorded
        self._obj_id = table.lobs.obj_id
        self._owned: set[int] = set()

    def run(self, results: Sequence[ReferencesFound]) -> None:
        obj_id = self._obj_id
        mine = self._survey.pages_where(
            lambda facts: (
                (facts["page_type"] == PageType.DATA)
                & (facts["seg_type"] == SegmentType.LOB)
                & (facts["obj_id"] == obj_id)
                & (facts["verdict"] <= SUSPECT)
            )
        )
        facts = self._survey.gather(np.array(mine, np.int64))
        roots = {page_id for page_id, first in zip(mine, facts["next"].tolist(), strict=True) if page_id == first}
        lengths = {page_id: self._check_value(page_id) for page_id in sorted(roots)}
        for page_id in mine:
            if page_id not in self._owned and page_id not in self._recorded:
                self._report(page_id, NODE_AT, "a page of a large object that does not lead to it")
        self._check_references(lengths, results)

    def _report(self, page_id: int, offset: int, message: str) -> None:
        self._survey.findings.on_page(page_id, offset, f"table {self._table.name}: {message}")

    # ---- pages

    def _check_value(self, first: int) -> int:
        """Check the pages of a value; returns its length."""
        page = self._survey.files.page(first)
        node = LOB_NODE.at(page, NODE_AT)
        self._owned.add(first)
        counts = page_counts(node.length, len(page))
        if node.level != len(counts) - 1:
            message = f"level {node.level} of a large object of {node.length} bytes, which has {len(counts)} levels"
            self._report(first, NODE_AT + LOB_NODE.offset("level"), message)
            return int(node.length)
        above = np.array([first], np.int64)
        for level in range(node.level - 1, -1, -1):
            below = self._level_below(first, above, level, counts[level])
            if below is None:
                return int(node.length)
            above = below
        self._check_leaves(above, node.length, len(page))
        return int(node.length)

    def _level_below(self, first: int, above: np.ndarray, level: int, count: int) -> np.ndarray | None:
        """The pages of a level, as the level above lists them; None if one of them is wrong."""
        listed = [listed_pages(self._survey.files.page(int(page_id))) for page_id in above]
        ids = np.concatenate(listed).astype(np.int64) if listed else np.empty(0, np.int64)
        fan = fan_out(len(self._survey.files.page(first)))
        if len(ids) != count or any(len(part) != fan for part in listed[:-1]):
            message = f"the large object at {page_name(first)} has {len(ids)} pages of level {level}, but needs {count}"
            self._report(int(above[0]), DATA_AT, message)
            return None
        facts = self._survey.gather(ids)
        right = (facts["page_type"] == PageType.DATA) & (facts["seg_type"] == SegmentType.LOB)
        right &= (facts["verdict"] <= SUSPECT) & (facts["obj_id"] == self._obj_id) & (facts["next"] == first)
        right &= facts["load"] == (level << LEVEL_SHIFT | np.arange(len(ids)))
        for n in np.flatnonzero(~right).tolist():
            holder, at = int(above[n // fan]), DATA_AT + 4 * (n % fan)
            message = f"page {page_name(int(ids[n]))} is not page {n} of level {level} of the large object"
            self._report(holder, at, f"{message} at {page_name(first)}")
        self._owned.update(ids[right].tolist())
        return ids if right.all() else None

    def _check_leaves(self, leaves: np.ndarray, length: int, page_size: int) -> None:
        room, facts = capacity(page_size), self._survey.gather(leaves)
        wanted = np.full(len(leaves), DATA_AT + room)
        wanted[-1] = DATA_AT + length - (len(leaves) - 1) * room
        for n in np.flatnonzero(facts["free_begin"] != wanted).tolist():
            has, needs = int(facts["free_begin"][n]) - DATA_AT, int(wanted[n]) - DATA_AT
            message = f"the page has {has} bytes of a large object, not {needs}"
            self._report(int(leaves[n]), PAGE_HEAD.offset("free_begin"), message)

    # ---- rows

    def _check_references(self, lengths: dict[int, int], results: Sequence[ReferencesFound]) -> None:
        named: set[int] = set()
        for part in results:
            self._survey.findings.extend(part.findings)
        for one in (one for part in results for one in part.references):
            first, length = one.locator
            if first in named:
                self._report(one.page_id, one.offset, f"{one.name} leads to {page_name(first)}, as another row does")
            elif first not in lengths:
                if self._survey.can_follow(first):
                    message = f"{one.name} leads to {page_name(first)}, where no large object begins"
                    self._report(one.page_id, one.offset, message)
            elif lengths[first] != length and first not in self._recorded:
                message = (
                    f"{one.name} says {length} bytes, but the large object at {page_name(first)} has {lengths[first]}"
                )
                self._report(one.page_id, one.offset, message)
            named.add(first)
        for first in sorted(lengths.keys() - named - self._recorded):
            self._report(first, NODE_AT, "a large object that no row has")
