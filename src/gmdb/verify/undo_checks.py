"""Undo against locks: a live undo record names a row whose lock leads back to it, and a locked row has a record.

A database that was closed has neither.  ``kernel/undo.py`` describes the body of a record, by operation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby

from gmdb.format import undo
from gmdb.format.address import NO_PAGE, NO_SLOT, RowId, page_name, page_of, slot_of
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import NO_LOCK
from gmdb.format.slotted import SLOT_FREED
from gmdb.format.transactions import TRANSACTION_ENTRY, committed
from gmdb.format.undo import OWNER_SIZE, UNDO_RECORD, UndoOperation, record_extents, record_owners
from gmdb.kernel.checks.page_checks import LOCKED
from gmdb.kernel.checks.row_checks import SUSPECT, UNWRITTEN
from gmdb.process.late_dataclasses import dataclass
from gmdb.verify.survey import MISSING, Survey

NO_LOCK_BEFORE = 0xFFFF_FFFF
HEAP_LOCK = UndoOperation.HEAP_LOCK
NO_CHANGE = (UndoOperation.NONE, UndoOperation.OWNER)  # dead, or only names the transaction of the records that follow
PAGES_BODY = 12
LINK_SIZE = 8  # the link to the change before, at the end of a further record of the same lock
_WITH_WORD = (UndoOperation.HEAP_UPDATE, UndoOperation.HEAP_UPDATE_INC, UndoOperation.HEAP_DELETE, HEAP_LOCK)
_OF_ROWS = (UndoOperation.HEAP_INSERT, *_WITH_WORD)
_OF_SEGMENTS = (UndoOperation.CREATE_SEGMENT, UndoOperation.SET_DROP)


@dataclass(frozen=True)
class LiveRecord:
    page_id: int
    offset: int
    slot: int
    row_id: RowId
    lock_id: int
    obj_id: int
    seg_entry: int
    operation: int
    body: bytes

    @property
    def name(self) -> str:
        known = {int(kind): kind.name for kind in UndoOperation}
        return f"slot {self.slot}: {known.get(self.operation, f'operation {self.operation}')} of row {self.row_id}"

    @property
    def count(self) -> int:
        """Of an insert: the number of slots, or pages."""
        return int.from_bytes(self.body[: 4 if self.row_id.slot_id == NO_SLOT else 2], "little")

    @property
    def map_place(self) -> tuple[int, int]:
        """Of whole pages: map page and number of the entry that lists the first."""
        return int.from_bytes(self.body[4:8], "little"), int.from_bytes(self.body[8:12], "little")

    @property
    def word_before(self) -> int:
        """The lock word that the row had before; none for inserts."""
        return int.from_bytes(self.body[:4], "little") if self.operation in _WITH_WORD else NO_LOCK_BEFORE

    @property
    def follows_insert(self) -> bool:
        """Whether it is the first change of a row by the transaction that inserted it."""
        is_further = self.operation in _WITH_WORD and self.word_before == self.lock_id
        return is_further and self.body[-LINK_SIZE:][:4] == NO_PAGE.to_bytes(4, "little")

    def places(self) -> Iterator[int]:
        """The places of the rows that the record is about."""
        if self.row_id.slot_id == NO_SLOT:
            return iter(())
        rows = self.count if self.operation == UndoOperation.HEAP_INSERT else 1
        first = self.row_id.place
        return iter(range(first, first + min(rows, NO_SLOT - self.row_id.slot_id)))


def segments_in_between(records: list[LiveRecord]) -> set[int]:
    """Entry pages of segments that an open transaction creates, or that were dropped and are not yet removed."""
    return {record.seg_entry for record in records if record.operation in _OF_SEGMENTS}


def check_undo(survey: Survey, records: list[LiveRecord], indexes: Mapping[int, int]) -> None:
    """``indexes``: the entry page of each index, by its number."""
    if survey.files.is_settled:
        for record in records:
            message = f"{record.name}: the record is live, but the database was closed"
            survey.findings.on_page(record.page_id, record.offset, message)
        for note in survey.noted(LOCKED):
            _lock_finding(survey, note["place"], note["value"], "but the database was closed")
    else:
        _Locks(survey, records, indexes).check()


def undo_pages(survey: Survey, sound: bool) -> list[int]:
    return survey.pages_where(
        lambda facts: (
            (facts["page_type"] == PageType.DATA)
            & (facts["seg_type"] == SegmentType.UNDO)
            & ((facts["verdict"] <= SUSPECT) == sound)
        )
    )


def live_records(survey: Survey) -> list[LiveRecord]:
    return list(_read_records(survey))


def _read_records(survey: Survey) -> Iterator[LiveRecord]:
    for page_id in undo_pages(survey, sound=True):
        if not survey.fact(page_id)["slot_count"]:
            continue
        page = survey.files.page(page_id)
        for offset, end, slot in undo.record_extents(page):
            head = UNDO_RECORD.at(page, offset)
            if head.op_type not in NO_CHANGE:
                row_id = RowId(head.row_id.page_id, head.row_id.slot_id)
                owner = head.lock_id, head.obj_id, head.seg_entry, head.op_type
                yield LiveRecord(page_id, offset, slot, row_id, *owner, page[offset + UNDO_RECORD.size : end])


def _lock_finding(survey: Survey, place: int, lock_id: int, message: str) -> None:
    page_id, slot = page_of(int(place)), slot_of(int(place))
    message = f"slot {slot}: the row has lock {lock_id}, {message}"
    survey.findings.on_page(page_id, survey.row_offset(page_id, slot), message)


class _Locks:
    """The locks of rows, compared with live undo records."""

    def __init__(self, survey: Survey, records: list[LiveRecord], indexes: Mapping[int, int]) -> None:
        self._survey, self._records = survey, records
        self._entries = {table.obj_id: table.entry_page for table in survey.tables.values()} | dict(indexes)
        self._entries |= {table.lobs.obj_id: table.lobs.entry_page for table in survey.tables.values() if table.lobs}
        self._in_between = segments_in_between(records)
        notes = survey.noted(LOCKED)
        self._locks = dict(zip(notes["place"].tolist(), notes["value"].tolist(), strict=True))
        self._beneath: dict[int, set[int]] = {}  # locks that images keep of a row
        self._inserted_and_changed: set[int] = set()
        for record in records:
            for place in record.places() if record.operation in _WITH_WORD else ():
                if record.word_before != NO_LOCK_BEFORE:
                    self._beneath.setdefault(place, set()).add(record.word_before & NO_LOCK)
                if record.follows_insert:
                    self._inserted_and_changed.add(place)

    def check(self) -> None:
        named: set[tuple[int, int]] = set()
        for record in self._records:
            wrong = self._wrong_table(record)
            if not wrong and record.operation in _OF_SEGMENTS:
                wrong = self._wrong_segment(record)
            if not wrong and record.operation in _OF_ROWS:
                if not self._is_dropped(record):
                    wrong = self._wrong_pages(record) if record.row_id.slot_id == NO_SLOT else self._wrong_rows(record)
                named.update((place, record.lock_id) for place in record.places())
            if wrong:
                self._survey.findings.on_page(record.page_id, record.offset, f"{record.name}: {wrong}")
        if undo_pages(self._survey, sound=False):
            return  # a missing record may be on the damaged page
        for place, lock_id in self._locks.items():
            if (place, lock_id) not in named:
                _lock_finding(self._survey, place, lock_id, "which no live undo record of the row has")

    def _is_dropped(self, record: LiveRecord) -> bool:
        """Whether the record's table is gone, so that it only waits for garbage collection."""
        return record.obj_id not in self._survey.tables

    def _wrong_table(self, record: LiveRecord) -> str:
        entry = self._entries.get(record.obj_id)
        if entry is not None and entry != record.seg_entry:
            table = self._survey.tables.get(record.obj_id)
            what = f"index number {record.obj_id}" if table is None else f"table {table.name}"
            return f"seg_entry {page_name(record.seg_entry)} is not where {what} starts"
        fact = self._survey.fact(record.seg_entry)
        is_there = fact["page_type"] == PageType.SEGMENT_ENTRY and fact["obj_id"] == record.obj_id
        if entry is None and is_there and record.seg_entry not in self._in_between:
            return f"object {record.obj_id} is not a table or index"
        return ""

    def _wrong_segment(self, record: LiveRecord) -> str:
        """What is wrong with a record of a segment that was created or is to be dropped.

        The segment's entry page is removed last, with the record.
        """
        entry, fact = record.seg_entry, self._survey.fact(record.seg_entry)
        if record.row_id.page_id != entry or record.row_id.slot_id != NO_SLOT:
            return f"the record names another place than its segment's entry page, {page_name(entry)}"
        is_entry = fact["page_type"] == PageType.SEGMENT_ENTRY and fact["obj_id"] == record.obj_id
        if self._survey.can_follow(entry) and not is_entry:
            return f"page {page_name(entry)} is not the entry page of object {record.obj_id}"
        return "" if fact["verdict"] != MISSING else f"page {page_name(entry)} is not in use"

    def _wrong_pages(self, record: LiveRecord) -> str:
        first = record.row_id.page_id
        if len(record.body) < PAGES_BODY:
            return f"a record of whole pages has a body of {PAGES_BODY} bytes at least, this one of {len(record.body)}"
        map_page, number = record.map_place
        for page_id in range(first, first + record.count):
            fact = self._survey.fact(page_id)
            if fact["verdict"] == UNWRITTEN:
                continue
            if not self._survey.can_follow(page_id):
                return f"page {page_name(page_id)} is damaged, or not in use"
            if fact["obj_id"] != record.obj_id or fact["page_type"] != PageType.DATA:
                return f"page {page_name(page_id)} is not a data page of object {record.obj_id}"
            if (fact["map_page_id"], fact["map_offset"]) != (map_page, number + page_id - first):
                named = f"entry {number + page_id - first} of map page {page_name(map_page)}"
                return f"page {page_name(page_id)} is not listed by {named}, as the record has it"
        return ""

    def _wrong_rows(self, record: LiveRecord) -> str:
        page_id, fact = record.row_id.page_id, self._survey.fact(record.row_id.page_id)
        if not self._survey.can_follow(page_id):
            return f"page {page_name(page_id)} is damaged, or not in use"
        if fact["obj_id"] != record.obj_id or fact["page_type"] != PageType.DATA:
            at = PAGE_HEAD.offset("obj_id")
            return f"page {page_name(page_id)} is not a data page of object {record.obj_id} (see its offset {at})"
        for place in record.places():
            slot = slot_of(place)
            if slot >= fact["slot_count"] or self._survey.row_offset(page_id, slot) & SLOT_FREED:
                return f"there is no row {RowId(page_id, slot)}"
            if self._locks.get(place) != record.lock_id and not self._leads_back(record, place):
                return f"row {RowId(page_id, slot)} has lock {self._locks.get(place, 'none')}, not {record.lock_id}"
        return ""

    def _leads_back(self, record: LiveRecord, place: int) -> bool:
        """Whether the record's lock is beneath the lock that the row has now."""
        if record.lock_id in self._beneath.get(place, ()):
            return True
        return record.operation == UndoOperation.HEAP_INSERT and place in self._inserted_and_changed


# ---- Transactions of undo records, and which of them have committed.
#
# Undo pages name the transaction of each run of records; the table of committed transactions lists those whose records
# are kept only for readers.  Recovery relies on nothing else, so both must be right whatever the locks say.


@dataclass
class _Run:
    """Consecutive records of one transaction."""

    number: int
    run: int
    named_at: int  # where on the page the transaction is named
    live: int = 0


def check_runs(survey: Survey) -> None:
    """Each run has an owner, no run is there twice, and dead records are counted right."""
    seen: set[tuple[int, int]] = set()
    for page_id in undo_pages(survey, sound=True):
        page = survey.files.page(page_id)
        extents = record_extents(page)
        operations = [UNDO_RECORD.at(page, offset).op_type for offset, _, _ in extents]
        dead = sum(operation in (UndoOperation.NONE, UndoOperation.OWNER) for operation in operations)
        counted = PAGE_HEAD.at(page).del_count
        if counted != dead:
            message = f"del_count {counted}, but {dead} records are dead or only name an owner"
            survey.findings.on_page(page_id, PAGE_HEAD.offset("del_count"), message)
        for offset, end, slot in extents:
            is_owner = UNDO_RECORD.at(page, offset).op_type == UndoOperation.OWNER
            if is_owner and end - offset != OWNER_SIZE:
                message = f"slot {slot}: an OWNER record has {OWNER_SIZE} bytes, this one {end - offset}"
                survey.findings.on_page(page_id, offset, message)
        for run in _runs(page, extents):
            if run.live and not run.number:
                message = f"{run.live} live records follow, but their transaction is not named"
                survey.findings.on_page(page_id, run.named_at, message)
            elif run.number and (run.number, run.run) in seen:
                message = f"run {run.run} of transaction {run.number} is there already"
                survey.findings.on_page(page_id, run.named_at, message)
            seen.add((run.number, run.run))


def _runs(page: bytes, extents: list[tuple[int, int, int]]) -> Iterator[_Run]:
    owners = record_owners(page, extents)
    for owner, records in groupby(zip(owners, extents, strict=True), key=lambda pair: pair[0]):
        operations = [UNDO_RECORD.at(page, offset).op_type for _, (offset, _, _) in records]
        yield _Run(owner.number, owner.run, owner.named_at, sum(operation not in NO_CHANGE for operation in operations))


def check_committed(survey: Survey) -> None:
    """The table of committed transactions: each is there once, and none in a database that was closed."""
    pages = survey.pages_where(
        lambda facts: (facts["page_type"] == PageType.TRANSACTIONS) & (facts["verdict"] <= SUSPECT)
    )
    seen: set[int] = set()
    for page_id in pages:
        for at, number, _ in committed(survey.files.page(page_id)):
            offset = at + TRANSACTION_ENTRY.offset("number")
            if survey.files.is_settled:
                message = f"transaction {number} committed and was not cleaned up after, but the database was closed"
                survey.findings.on_page(page_id, offset, message)
            elif number in seen:
                survey.findings.on_page(page_id, offset, f"transaction {number} is in the table twice")
            seen.add(number)
