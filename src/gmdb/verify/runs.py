"""Whose undo records these are, and who has committed.

Undo pages name the transaction of each run of records, and the table of committed transactions those whose records
are kept for readers only.  Recovery goes by nothing else, so both must be right whatever the locks say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.format.transactions import TRANSACTION_ENTRY, committed
from gmdb.format.undo import OWNER_AT, UNDO_OWNER, UNDO_RECORD, UndoOperation, record_extents
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.verify.survey import Survey
from gmdb.verify.undo import undo_pages

OWNER_SIZE = UNDO_RECORD.size + UNDO_OWNER.size + 1  # filled up to 8 bytes


@dataclass
class _Run:
    """Records of one transaction, one behind the other."""

    number: int
    run: int
    named_at: int  # where on the page the transaction is named
    live: int = 0


def check_runs(survey: Survey) -> None:
    """Each run has an owner, and no two are the same; dead records are counted right."""
    seen: set[tuple[int, int]] = set()
    for page_id in undo_pages(survey, sound=True):
        page = survey.files.page(page_id)
        extents = record_extents(page)
        operations = [UNDO_RECORD.at(page, offset).op_type for offset, _, _ in extents]
        dead = sum(operation in (UndoOperation.NONE, UndoOperation.OWNER) for operation in operations)
        counted = PAGE_HEAD.at(page).del_count
        if counted != dead:
            said = f"del_count {counted}, but {dead} records are dead or only name an owner"
            survey.findings.on_page(page_id, PAGE_HEAD.offset("del_count"), said)
        for offset, end, slot in extents:
            is_owner = UNDO_RECORD.at(page, offset).op_type == UndoOperation.OWNER
            if is_owner and end - offset != OWNER_SIZE:
                said = f"slot {slot}: an OWNER record has {OWNER_SIZE} bytes, this one {end - offset}"
                survey.findings.on_page(page_id, offset, said)
        for run in _runs(page, extents):
            if run.live and not run.number:
                said = f"{run.live} live records follow, but no transaction is named that made them"
                survey.findings.on_page(page_id, run.named_at, said)
            elif run.number and (run.number, run.run) in seen:
                said = f"run {run.run} of transaction {run.number} is there already"
                survey.findings.on_page(page_id, run.named_at, said)
            seen.add((run.number, run.run))


def _runs(page: bytes, extents: list[tuple[int, int, int]]) -> Iterator[_Run]:
    if not extents:
        return
    owner = UNDO_OWNER.at(page, OWNER_AT)
    run = _Run(owner.number, owner.run, OWNER_AT)
    for offset, _, _ in extents:
        operation = UNDO_RECORD.at(page, offset).op_type
        if operation == UndoOperation.OWNER and offset + OWNER_SIZE <= len(page):
            yield run
            owner = UNDO_OWNER.at(page, offset + UNDO_RECORD.size)
            run = _Run(owner.number, owner.run, offset)
        elif operation != UndoOperation.NONE:
            run.live += 1
    yield run


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
                said = f"transaction {number} committed and was not cleaned up after, but the database was closed"
                survey.findings.on_page(page_id, offset, said)
            elif number in seen:
                survey.findings.on_page(page_id, offset, f"transaction {number} is in the table twice")
            seen.add(number)
