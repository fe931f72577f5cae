"""Whose undo records these are, and who has committed.

Undo pages name the transaction of each run of records, and the table of committed transactions those whose records
are kept for readers only.  Recovery goes by nothing else, so both must be right whatever the locks say.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby

from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.format.transactions import TRANSACTION_ENTRY, committed
from gmdb.format.undo import OWNER_SIZE, UNDO_RECORD, UndoOperation, record_extents, record_owners
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.verify.survey import Survey
from gmdb.verify.undo import NO_CHANGE, undo_pages


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
                said = f"transaction {number} committed and was not cleaned up after, but the database was closed"
                survey.findings.on_page(page_id, offset, said)
            elif number in seen:
                survey.findings.on_page(page_id, offset, f"transaction {number} is in the table twice")
            seen.add(number)
