"""One pass over every page in use: each is checked for itself, and what others must agree with is noted.

Threads read runs of pages and give them to the compiled check, which runs without the GIL.  Pages that it finds fault
with, and kinds of pages that it does not know, go through the plain checks, which say what is wrong.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np

from gmdb.catalog.schema import TableDefinition
from gmdb.format import anatomy, btree, hash, heap, undo
from gmdb.format.address import PAGES_PER_DEVICE, device_of, offset_of, page_id_of
from gmdb.format.layout import Finding
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, slot_offset
from gmdb.format.row import MIN_OCCUPIED
from gmdb.kernel.verify import NOTE, PAGE_FACTS, check_pages
from gmdb.kernel.verify_rows import ASK, BROKEN, GOOD, SUSPECT, UNWRITTEN
from gmdb.verify.findings import Findings
from gmdb.verify.nodes import hash_findings, node_findings
from gmdb.verify.reader import VerifiedFiles
from gmdb.verify.rows import Rules, record_findings, row_findings

RUN_SIZE = 1 << 20
INLINE_RUNS = 8  # up to so many, threads cost more than they bring
MISSING = 5  # the verdict on a page that is not there, or not in use
Progress = Callable[[int], AbstractContextManager[Callable[[int], None]]]

_NOTHING = np.zeros(1, PAGE_FACTS)
_NOTHING["verdict"] = MISSING


@dataclass
class Survey:
    """What is known of all pages once each was looked at."""

    files: VerifiedFiles
    findings: Findings
    tables: Mapping[int, TableDefinition]
    facts: dict[int, np.ndarray] = field(default_factory=dict)  # by device; PAGE_FACTS
    notes: np.ndarray = field(default_factory=lambda: np.empty(0, NOTE))

    def gather(self, page_ids: np.ndarray) -> np.ndarray:
        """The facts of many pages; with the verdict MISSING for those that are not in use."""
        ids = page_ids.astype(np.int64)
        gathered = np.repeat(_NOTHING, len(ids))
        for device, facts in self.facts.items():
            here = np.flatnonzero(ids >> 22 == device)
            offsets = ids[here] & (PAGES_PER_DEVICE - 1)
            inside = offsets < len(facts)
            gathered[here[inside]] = facts[offsets[inside]]
        return gathered

    def fact(self, page_id: int) -> np.void:
        """The facts of one page."""
        facts = self.facts.get(device_of(page_id))
        return _NOTHING[0] if facts is None or offset_of(page_id) >= len(facts) else facts[offset_of(page_id)]

    def can_follow(self, page_id: int) -> bool:
        """Whether the page is there, and what it says can be followed."""
        return int(self.fact(page_id)["verdict"]) <= SUSPECT

    def is_doubtful(self, device: int) -> bool:
        """Whether the device's head is damaged, so that nobody knows how many of its pages are in use."""
        return not self.can_follow(page_id_of(device, 0)) or not self.files.devices[device].has_head

    def row_offset(self, page_id: int, slot: int) -> int:
        """Where a row that was noted lies on its page."""
        page = self.files.page(page_id)
        at = slot_offset(len(page), slot)
        return int.from_bytes(page[at : at + 2], "little")

    def noted(self, kind: int) -> np.ndarray:
        return self.notes[self.notes["kind"] == kind]

    def pages_where(self, chosen: Callable[[np.ndarray], np.ndarray]) -> list[int]:
        """The pages whose facts are chosen, by a mask, in order of address."""
        return [
            page_id_of(device, int(offset))
            for device, facts in self.facts.items()
            for offset in np.flatnonzero(chosen(facts))
        ]


@dataclass(frozen=True)
class _Run:
    device: int
    first: int
    count: int
    page_size: int


class _Workspace(threading.local):
    """Memory that a thread uses again for each of its runs."""

    def __init__(self) -> None:
        self.pages = np.zeros(RUN_SIZE, np.uint8)
        self.notes = np.empty(2 * RUN_SIZE // MIN_OCCUPIED, NOTE)


def survey_pages(
    files: VerifiedFiles,
    tables: Mapping[int, TableDefinition],
    findings: Findings,
    progress: Progress | None = None,
) -> Survey:
    survey = Survey(files, findings, tables)
    for device in files.devices:
        survey.facts[device] = np.zeros(files.pages_in_use(device), PAGE_FACTS)
    runs = list(_runs(files))
    if progress is None:
        _look_at(survey, runs, lambda _: None)
    else:
        with progress(sum(run.count for run in runs)) as step:
            _look_at(survey, runs, step)
    return survey


def _runs(files: VerifiedFiles) -> Iterator[_Run]:
    for device, file in files.devices.items():
        used, length = files.pages_in_use(device), RUN_SIZE // file.page_size
        for first in range(0, used, length):
            yield _Run(device, first, min(length, used - first), file.page_size)


def _look_at(survey: Survey, runs: list[_Run], step: Callable[[int], None]) -> None:
    rules, workspace = Rules(survey.tables), _Workspace()
    noted = []

    def look(run: _Run) -> np.ndarray:
        return _check_run(survey, run, rules, workspace)

    threads = min(len(os.sched_getaffinity(0)), len(runs)) if len(runs) > INLINE_RUNS else 1
    with ThreadPoolExecutor(threads, "gmdb-verify") as pool:
        results = map(look, runs) if threads == 1 else pool.map(look, runs)
        for run, notes in zip(runs, results, strict=True):
            noted.append(notes)
            _word_findings(survey, run)
            step(run.count)
    if noted:
        survey.notes = np.concatenate(noted)


def _check_run(survey: Survey, run: _Run, rules: Rules, workspace: _Workspace) -> np.ndarray:
    """Check a run of pages; answers the notes about their rows."""
    memory = workspace.pages[: run.count * run.page_size]
    facts = survey.facts[run.device][run.first : run.first + run.count]
    first_id = page_id_of(run.device, run.first)
    try:
        read = survey.files.read_run(run.device, run.first, memory.data)
    except OSError:
        facts["verdict"] = BROKEN  # each is read again for the wording, which says which of them cannot be
        return workspace.notes[:0]
    memory[read:] = 0
    address, notes = memory.ctypes.data, workspace.notes
    count = check_pages(
        address, run.count, run.page_size, first_id, rules.address, facts.ctypes.data, notes.ctypes.data
    )
    return notes[:count].copy()


def _word_findings(survey: Survey, run: _Run) -> None:
    """Say what is wrong with the pages of a run that the compiled check did not find good."""
    facts = survey.facts[run.device]
    part = facts["verdict"][run.first : run.first + run.count]
    for offset in (np.flatnonzero(part != GOOD) + run.first).tolist():
        verdict, page_id = int(facts["verdict"][offset]), page_id_of(run.device, offset)
        if verdict == UNWRITTEN:
            continue  # whether that is wrong depends on who it belongs to
        try:
            found = page_findings(survey.files.page(page_id), page_id, survey.tables)
        except Exception as error:  # a page that cannot be read, or whose bytes no check was prepared for
            found = [Finding(0, f"the page cannot be checked: {error}")]
        if verdict == ASK:
            facts["verdict"][offset] = BROKEN if found else GOOD
        elif not found:
            found = [Finding(0, "the page is not sound, but no check can say why; this is a bug in gmdb")]
        for finding in found:
            survey.findings.on_page(page_id, finding.offset, finding.message)


def page_findings(page: bytes, page_id: int, tables: Mapping[int, TableDefinition]) -> list[Finding]:
    """What is wrong with a page, as far as the page alone tells."""
    found = anatomy.check(page, page_id)
    structure = anatomy.structure_of(page) if len(page) in PAGE_SIZES else None
    if structure is heap:
        found += row_findings(page, tables.get(PAGE_HEAD.at(page).obj_id))
    elif structure is undo:
        found += record_findings(page)
    elif structure is btree:
        found += node_findings(page)
    elif structure is hash:
        found += hash_findings(page)
    return found
