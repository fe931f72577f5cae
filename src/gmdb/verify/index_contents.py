"""Heap against index: every row has its entry, every entry has its row.

Both sides are reduced to numbers, words (``kernel/checks/index_checks.py``).  If they differ, the rows and entries that
differ are examined one by one.

In a database at work, which a dump is a copy of, an entry may also stand for an older version of its row, and undo
records of entries say which.  Those from while the index was being built (SHADOW) say nothing about its contents.  A
row with a lock may be halfway through a rollback, so the undo records of its entries are checked instead.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from gmdb.errors import Corruption, DataError, SchemaError, StorageError
from gmdb.format import heap
from gmdb.format.address import RowId, device_of, page_name, page_of, slot_of
from gmdb.format.btree import INDEX_AT, INDEX_HEAD, KEY_COLUMNS_MAX, IndexKind, key_values
from gmdb.format.page import PageType, SegmentType
from gmdb.format.row import NO_LOCK, ROW_HEAD, UNLOCKED, RowFlag, decode_row
from gmdb.format.undo import UndoOperation
from gmdb.kernel.checks.index_checks import NO_WORD, SPECIAL, word_of_bytes, words_of_rows
from gmdb.kernel.checks.row_checks import SUSPECT
from gmdb.kernel.row import ENTRY_BUFFER
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.access.indexes import IndexDefinition, head_fields, require_parts
from gmdb.tables.catalog.names import full_name
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import entry_target
from gmdb.tables.files.page_view import view_undo_records
from gmdb.verify.catalog_against_segments import Catalog, wrong_entry
from gmdb.verify.index_structure import KINDS_BY_NAME, Hash, Index, IndexEntries, Tree, in_words, row_of
from gmdb.verify.page_reader import MappedPages
from gmdb.verify.pieces import NOTHING, Digest, EntriesFound, Piece, RowWords
from gmdb.verify.segments import CheckedSegment
from gmdb.verify.survey import MISSING, Survey
from gmdb.verify.undo_checks import LiveRecord

SHOWN_MAX = 20  # rows, and entries, of one index that are reported one by one
_OF_ENTRIES = {
    IndexKind.BTREE: (UndoOperation.BTREE_INSERT, UndoOperation.BTREE_DELETE),
    IndexKind.HASH: (UndoOperation.HASH_INSERT, UndoOperation.HASH_DELETE),
}
_SHADOWS = {
    IndexKind.BTREE: (UndoOperation.BTREE_INSERT_SHADOW, UndoOperation.BTREE_DELETE_SHADOW),
    IndexKind.HASH: (UndoOperation.HASH_INSERT_SHADOW, UndoOperation.HASH_DELETE_SHADOW),
}
_WITH_IMAGE = (UndoOperation.HEAP_UPDATE, UndoOperation.HEAP_UPDATE_INC)


def check_rows(
    survey: Survey, mapped: MappedPages, index: Index, entries: IndexEntries, records: list[LiveRecord]
) -> None:
    words, places = _words_of_rows(survey, mapped, index)
    comparison = _Comparison(survey, index, entries, records)
    if survey.files.is_settled:
        comparison.report_marked()
    else:
        comparison.check_records()
    if not np.array_equal(np.sort(words), np.sort(entries.words)):
        comparison.report_differences(words, places)


def row_pieces(survey: Survey, indexes: Sequence[Index], pages_a_piece: int) -> list[RowWords]:
    """The rows of a table, in pieces, for all of its indexes; none if the database was not closed."""
    if not survey.files.is_settled:
        return []
    obj_id, heads = indexes[0].table.obj_id, tuple(index.head.tobytes() for index in indexes)
    pages = heap_pages(survey, obj_id)
    counts = survey.gather(pages)["rows"]
    parts = (slice(n, n + pages_a_piece) for n in range(0, len(pages), pages_a_piece))
    return [RowWords(heads, obj_id, pages[part], counts[part]) for part in parts]


def heap_pages(survey: Survey, obj_id: int) -> np.ndarray:
    """The pages with rows of a table that can be followed."""
    return np.array(survey.pages_where(lambda facts: _is_heap(facts, obj_id)), np.int64)


def _words_of_rows(survey: Survey, mapped: MappedPages, index: Index) -> tuple[np.ndarray, np.ndarray]:
    """The words of all rows of the index's table, and their places."""
    obj_id = index.table.obj_id
    pages = heap_pages(survey, obj_id)
    room = int(survey.gather(pages)["rows"].sum(dtype=np.int64)) + 1
    words, places, buffer = np.empty(room, np.int64), np.empty(room, np.int64), np.empty(ENTRY_BUFFER, np.uint8)
    addresses = (memory.ctypes.data for memory in (words, places, buffer))
    count = words_of_rows(mapped.address, index.head.ctypes.data, obj_id, pages.ctypes.data, len(pages), *addresses)
    return words[:count], places[:count]


def _is_heap(facts: Any, obj_id: int) -> np.ndarray:
    kind = (facts["page_type"] == PageType.DATA) & (facts["seg_type"] == SegmentType.HEAP)
    mask: np.ndarray = kind & (facts["obj_id"] == obj_id) & (facts["verdict"] <= SUSPECT)
    return mask


class _Comparison:
    """One index and its table."""

    def __init__(self, survey: Survey, index: Index, entries: IndexEntries, records: list[LiveRecord]) -> None:
        self._survey, self._index, self._entries = survey, index, entries
        self._settled = survey.files.is_settled
        own = [r for r in records if r.obj_id == index.definition.obj_id]
        self._records = [r for r in own if r.operation in _OF_ENTRIES[index.kind]]
        self._foreign = [r for r in own if r.operation in _foreign_operations(index.kind)]
        self._row_records = [r for r in records if r.obj_id == index.table.obj_id and r.operation in _WITH_IMAGE]
        self._recorded = np.array([self._word_of(record) for record in self._records], np.int64)

    def _word_of(self, record: LiveRecord) -> int:
        entry = np.frombuffer(record.body, np.uint8)
        return int(word_of_bytes(self._index.head.ctypes.data, entry.ctypes.data, len(entry)))

    # ---- marks and undo

    def report_marked(self) -> None:
        """Report entries with a lock, or marked as deleted, in a database that was closed."""
        for spot in _shown(self._entries.spots[self._entries.spots & SPECIAL != 0]):
            page, offset = self._entry(spot)
            word = ROW_HEAD.at(page, offset).lock_id
            what = "is marked as deleted" if word >> 24 & RowFlag.DELETE else f"has lock {word & NO_LOCK}"
            self._on_entry(spot, f"the entry of {self._name(page, offset)} {what}, but the database was closed")

    def check_records(self) -> None:
        """Each undo record of an entry must name an entry that the index has."""
        there = np.isin(self._recorded, self._entries.words)
        for record, word, is_there in zip(self._records, self._recorded.tolist(), there.tolist(), strict=True):
            message = "" if is_there else f"{self._index.name} has no such entry"
            if word == NO_WORD:
                message = f"it holds no entry of {self._index.name}"
            elif not self._entries.whole:
                continue
            if message:
                self._survey.findings.on_page(record.page_id, record.offset, f"{record.name}: {message}")
        for record in self._foreign:
            message = f"{record.name}: {self._index.name} is of another kind, {self._index.definition.using}"
            self._survey.findings.on_page(record.page_id, record.offset, message)

    # ---- differences

    def report_differences(self, words: np.ndarray, places: np.ndarray) -> None:
        explained = set()
        extra = ~np.isin(self._entries.words, words) & ~np.isin(self._entries.words, self._recorded)
        count = 0
        for spot in self._entries.spots[extra].tolist():
            spot &= ~SPECIAL
            page, offset = self._entry(spot)
            row_id = row_of(page, offset)
            wrong = self._wrong_target(page, offset, row_id)
            if wrong:
                count += 1
                explained.add(row_id.place)
                if count <= SHOWN_MAX:
                    self._on_entry(
                        spot, f"the entry of key {self._index.key_at(page, offset)} leads to row {row_id}, {wrong}"
                    )
        self._report_more(count, "entries lead to rows without their key")
        if self._entries.whole:
            self._report_missing(words, places, explained)

    def _report_missing(self, words: np.ndarray, places: np.ndarray, explained: set[int]) -> None:
        missing = places[~np.isin(words, self._entries.words)]
        if not self._settled:
            missing = missing[missing & SPECIAL == 0]
        count = 0
        for place in missing.tolist():
            place &= ~SPECIAL
            key = self._key_of_row(place)
            if place in explained or key is None:
                continue
            count += 1
            if count <= SHOWN_MAX:
                page_id, slot = page_of(place), slot_of(place)
                message = f"slot {slot}: {self._index.name} has no entry for the row's key, {in_words(key)}"
                self._survey.findings.on_page(page_id, self._survey.row_offset(page_id, slot), message)
        self._report_more(count, f"rows of table {self._index.table.name} have no entry")

    def _report_more(self, count: int, what: str) -> None:
        if count > SHOWN_MAX:
            message = f"{self._index.name}: {count - SHOWN_MAX} more {what}"
            self._survey.findings.on_page(self._index.definition.entry_page, 0, message)

    def _wrong_target(self, page: bytes, offset: int, row_id: RowId) -> str:
        """Why an entry cannot lead to a row; empty if it can, or if that cannot be known."""
        fact = self._survey.fact(row_id.page_id)
        if fact["verdict"] == MISSING:
            return "" if self._may_be_cut_off(row_id.page_id) else "whose page is not in use"
        if fact["verdict"] > SUSPECT:
            return ""
        if not _is_heap(fact, self._index.table.obj_id):
            return f"but page {page_name(row_id.page_id)} is not a page of rows of table {self._index.table.name}"
        row = self._row(row_id)
        if row is None:
            return "which is not there"
        home, at = row
        word = ROW_HEAD.at(home, at).lock_id
        if word >> 24 & RowFlag.LINK:
            return "which has moved there and is known by another row id"
        if word >> 24 & RowFlag.DELETE and (self._settled or word & NO_LOCK == UNLOCKED):
            return "which is deleted"
        place = row_id.place
        values = self._values_of_row(place)
        if values is None or (not self._settled and self._had(place, page, offset, values)):
            return ""
        return f"whose key is {in_words(self._key_in(values))}"

    def _may_be_cut_off(self, page_id: int) -> bool:
        device = self._survey.files.devices.get(device_of(page_id))
        return device is not None and (self._survey.is_doubtful(device.number) or device.file_pages < device.hwm)

    # ---- versions

    def _had(self, place: int, page: bytes, offset: int, newest: tuple[Any, ...]) -> bool:
        """Whether each key column once had the entry's value, by the versions of the row that undo has."""
        known = [{repr(value)} for value in newest]
        for record in self._row_records:
            if place in record.places():
                for number, value in self._image(record):
                    known[number].add(repr(value))
        try:
            key = key_values(self._index.columns, page, offset)
        except (Corruption, DataError):
            return False
        positions = self._index.definition.positions
        return all(repr(value) in known[number] for number, value in zip(positions, key, strict=True))

    def _image(self, record: LiveRecord) -> Iterator[tuple[int, Any]]:
        """(number of a column, value before the change) of an undo record."""
        views = view_undo_records(self._survey.files.page(record.page_id), self._survey.tables)
        image = next(view for view in views if view.slot == record.slot)
        if image.image is not None and image.image.cells is not None:
            numbers = image.changed or range(len(self._index.table.stored))
            yield from ((n, cell.value) for n, cell in zip(numbers, image.image.cells, strict=False))

    # ---- bytes

    def _entry(self, spot: int) -> tuple[bytes, int]:
        """The page of an entry, and the entry's offset on it."""
        page_id, slot = page_of(spot), slot_of(spot)
        return self._survey.files.page(page_id), self._survey.row_offset(page_id, slot)

    def _name(self, page: bytes, offset: int) -> str:
        return f"key {self._index.key_at(page, offset)} and row {row_of(page, offset)}"

    def _on_entry(self, spot: int, message: str) -> None:
        page_id, slot = page_of(spot), slot_of(spot)
        at = self._survey.row_offset(page_id, slot)
        self._survey.findings.on_page(page_id, at, f"{self._index.name}: slot {slot}: {message}")

    def _row(self, row_id: RowId) -> tuple[bytes, int] | None:
        page = self._survey.files.page(row_id.page_id)
        at = dict(heap.live_slots(page)).get(row_id.slot_id)
        return None if at is None else (page, at)

    def _values_of_row(self, place: int) -> tuple[Any, ...] | None:
        """A row's newest version; None if it cannot be read."""
        row = self._row(RowId.from_place(place))
        try:
            if row is not None and heap.flags_of(*row) & RowFlag.ENTRY:
                target = entry_target(*row)
                row = self._row(target) if self._survey.can_follow(target.page_id) else None
            return None if row is None else decode_row(self._index.table.stored, *row)
        except (Corruption, DataError, StorageError):
            return None

    def _key_in(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(values[position] for position in self._index.definition.positions)

    def _key_of_row(self, place: int) -> tuple[Any, ...] | None:
        values = self._values_of_row(place)
        return None if values is None else self._key_in(values)


def _foreign_operations(kind: IndexKind) -> list[UndoOperation]:
    """The undo operations on entries of other kinds of index."""
    return [op for known in (_OF_ENTRIES, _SHADOWS) for other, own in known.items() if other != kind for op in own]


def _shown(spots: np.ndarray) -> list[int]:
    shown: list[int] = (spots[:SHOWN_MAX] & ~SPECIAL).tolist()
    return shown


# ---- Indexes against the catalog: each has its table, its segment, and a head that agrees with sys_indexes.
#
# The checks that follow depend on the kind of the index, which is the type of its segment; ``KINDS`` lists them.

KINDS: dict[SegmentType, type[Tree] | type[Hash]] = {SegmentType.BTREE: Tree, SegmentType.HASH: Hash}
"""By the type of an index's segment: the class that checks its pages and returns its entries."""


@dataclass(frozen=True)
class _Names:
    """The names and numbers of the indexes and tables checked so far."""

    numbers: set[int]
    names: set[str]


class Indexes:
    """All indexes: the pieces of checking them, then what is wrong with them.

    An index whose pieces are right, and whose rows have the same words as its entries, is right.  Any other is checked
    as a whole.
    """

    def __init__(self, survey: Survey, catalog: Catalog, segments: list[CheckedSegment], pages_a_piece: int) -> None:
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
        """The indexes that can be checked in pieces, by table."""
        by_table: dict[int, list[_Walk]] = {}
        for walk in self._walks:
            if walk.pieces:
                by_table.setdefault(walk.index.table.obj_id, []).append(walk)
        return by_table

    def pieces(self) -> list[Piece]:
        entries: list[Piece] = [piece for walk in self._walks for piece in walk.pieces]
        return entries + [piece for pieces in self._rows.values() for piece in pieces]

    def check(self, results: Iterator[Any], records: list[LiveRecord]) -> None:
        """``results``: those of the pieces, in order; as many are taken as there are pieces."""
        for walk in self._walks:
            walk.results = [next(results) for _ in walk.pieces]
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
    """An index, its pieces and their results."""

    index: Index
    walk: Tree | Hash
    pieces: Sequence[Piece]
    results: Sequence[EntriesFound] = ()
    rows: Digest = NOTHING

    def is_right(self) -> bool:
        entries = sum((one.digest for one in self.results), NOTHING)
        if not self.results or entries != self.rows or not all(one.right for one in self.results):
            return False
        return self.walk.is_reached(self.results)


def _indexes(survey: Survey, catalog: Catalog, segments: list[CheckedSegment]) -> Iterator[Index]:
    """The indexes that can be checked further; what the catalog and their heads say is checked here."""
    by_entry = {segment.entry_page: segment for segment in segments}
    before = _Names(set(catalog.tables), set())
    for place, definition in catalog.indexes:
        wrong = _wrong_definition(survey, catalog, definition, before)
        before.numbers.add(definition.obj_id)
        before.names.add(_full_name(catalog, definition))
        if wrong:
            survey.findings.on_page(*place, f"index {definition.name} {wrong}")
        elif definition.entry_page in by_entry:
            table = catalog.tables[definition.table_id]
            yield _read_head(survey, definition, table, by_entry[definition.entry_page])


def _full_name(catalog: Catalog, index: IndexDefinition) -> str:
    """By which no other index is known, in small letters."""
    table = catalog.tables.get(index.table_id)
    return index.name.lower() if table is None else full_name(table.schema, index.name).lower()


def _wrong_definition(survey: Survey, catalog: Catalog, index: IndexDefinition, before: _Names) -> str:
    """What is wrong with a row of sys_indexes; empty if nothing."""
    next_id = survey.files.control.get("next_obj_id", 0)
    if index.obj_id in before.numbers or _full_name(catalog, index) in before.names:
        return f"has a name, or a number ({index.obj_id}), that is there already"
    if next_id and index.obj_id >= next_id:
        return f"has number {index.obj_id}, which the next table or index would get ({next_id})"
    table = catalog.tables.get(index.table_id)
    if table is None:
        return f"is of object {index.table_id}, which is not a table"
    positions = index.positions
    if len(set(positions)) < len(positions) or len(positions) > KEY_COLUMNS_MAX:
        return f"has the columns number {', '.join(map(str, positions))}; they are at most {KEY_COLUMNS_MAX}, each once"
    if not all(0 <= position < len(table.stored) for position in positions):
        return f"has a column number {max(positions)}, but table {table.name} has {len(table.columns)} columns"
    if index.using not in KINDS_BY_NAME:
        return f"is of kind {index.using!r}, but there are only {' and '.join(KINDS_BY_NAME)}"
    try:
        require_parts(index)
    except SchemaError as error:
        return f"makes no sense: {error}"
    seg_type = SegmentType[KINDS_BY_NAME[index.using].name]
    wrong = wrong_entry(survey, index.entry_page, index.obj_id, table.space_id, (seg_type,))
    return wrong and f"starts at page {page_name(index.entry_page)}, {wrong}"


def _read_head(survey: Survey, definition: IndexDefinition, table: TableDefinition, segment: CheckedSegment) -> Index:
    """The index, with the head that it should have: the catalog's fields, and the root from its page."""
    columns = tuple(table.stored[position] for position in definition.positions)
    page = survey.files.page(definition.entry_page)
    fields = INDEX_HEAD.values(page, INDEX_AT)
    right = head_fields(definition, columns, len(page))
    for name, value in right.items():
        stored = _field(page, name) if isinstance(value, list) else fields[name]
        if stored != value:
            message = f"index {definition.name}: {name} {stored} in the index's head, but the catalog makes it {value}"
            survey.findings.on_page(definition.entry_page, INDEX_AT + INDEX_HEAD.offset(name), message)
    head, program = INDEX_HEAD.pack(root=fields["root"], **right), definition.program_bytes
    if program:
        at = INDEX_AT + right["program_at"]
        if page[at : at + len(program)] != program:
            message = f"index {definition.name}: its key program is another one than the catalog's"
            survey.findings.on_page(definition.entry_page, at, message)
        head = head.ljust(right["program_at"], b"\0") + program
    return Index(definition, table, columns, segment, np.frombuffer(head, np.uint8))


def _field(page: bytes, name: str) -> list[int]:
    """The bytes of a field of the index's head."""
    size = next(field.size for field in INDEX_HEAD.fields if field.name == name)
    at = INDEX_AT + INDEX_HEAD.offset(name)
    return list(page[at : at + size])
