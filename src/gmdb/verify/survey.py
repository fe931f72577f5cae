"""One pass over every page in use: each page is checked by itself, and what other pages must agree with is noted.

Runs of pages are read and passed to the compiled check.  Pages that fail it, and kinds of pages that it does not know,
go through the plain checks, which say what is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from gmdb.format import anatomy, btree, hash, heap, undo
from gmdb.format.address import PAGES_PER_DEVICE, RowId, device_of, offset_of, page_id_of, page_of, slot_of
from gmdb.format.layout import Finding
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PageType, slot_offset
from gmdb.format.row import ROW_HEAD
from gmdb.kernel.checks.page_checks import ENTRY, LINK, NOTE, PAGE_FACTS, check_pages
from gmdb.kernel.checks.row_checks import ASK, BROKEN, GOOD, SUSPECT, UNWRITTEN
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.verify.findings import Findings
from gmdb.verify.page_contents import hash_findings, node_findings, record_findings, row_findings
from gmdb.verify.page_reader import VerifiedFiles
from gmdb.verify.pieces import RUN_SIZE, Verdicts, Workplace

MISSING = 5  # the verdict on a page that is not there, or not in use

_NOTHING = np.zeros(1, PAGE_FACTS)
_NOTHING["verdict"] = MISSING
_WHOLE = np.dtype(
    (np.void, PAGE_FACTS.itemsize)
)  # facts are copied as bytes, since NumPy copies structures field by field


@dataclass
class Survey:
    """What is known of all pages once each was checked."""

    files: VerifiedFiles
    findings: Findings
    tables: Mapping[int, TableDefinition]
    facts: dict[int, np.ndarray] = field(default_factory=dict)  # by device; PAGE_FACTS
    notes: np.ndarray = field(default_factory=lambda: np.empty(0, NOTE))

    def verdicts(self) -> Verdicts:
        return {device: np.ascontiguousarray(facts["verdict"]) for device, facts in self.facts.items()}

    def gather(self, page_ids: np.ndarray) -> np.ndarray:
        """The facts of many pages; with the verdict MISSING for those that are not in use."""
        ids = page_ids.astype(np.int64)
        gathered = np.empty(len(ids), PAGE_FACTS)
        raw = gathered.view(_WHOLE)
        raw[:] = _NOTHING.view(_WHOLE)
        for device, facts in self.facts.items():
            here = np.flatnonzero(ids >> 22 == device)
            offsets = ids[here] & (PAGES_PER_DEVICE - 1)
            inside = offsets < len(facts)
            raw[here[inside]] = facts.view(_WHOLE)[offsets[inside]]
        return gathered

    def fact(self, page_id: int) -> np.void:
        """The facts of one page."""
        facts = self.facts.get(device_of(page_id))
        return _NOTHING[0] if facts is None or offset_of(page_id) >= len(facts) else facts[offset_of(page_id)]

    def can_follow(self, page_id: int) -> bool:
        """Whether the page is there and sound enough to follow its references."""
        return int(self.fact(page_id)["verdict"]) <= SUSPECT

    def is_doubtful(self, device: int) -> bool:
        """Whether the device's head is damaged, so that it is not known how many of its pages are in use."""
        return not self.can_follow(page_id_of(device, 0)) or not self.files.devices[device].has_head

    def row_offset(self, page_id: int, slot: int) -> int:
        """Where a row that was noted lies on its page."""
        page = self.files.page(page_id)
        at = slot_offset(len(page), slot)
        return int.from_bytes(page[at : at + 2], "little")

    def noted(self, kind: int) -> np.ndarray:
        return self.notes[self.notes["kind"] == kind]

    def pages_where(self, chosen: Callable[[np.ndarray], np.ndarray]) -> list[int]:
        """The pages whose facts meet a condition, in order of address."""
        return [
            page_id_of(device, int(offset))
            for device, facts in self.facts.items()
            for offset in np.flatnonzero(chosen(facts))
        ]


@dataclass(frozen=True)
class PageRange:
    """Neighbouring pages of a device, each to be checked by itself."""

    device: int
    first: int
    page_count: int

    def check(self, work: Workplace) -> PagesFound:
        size = work.files.devices[self.device].page_size
        facts, noted, findings = np.zeros(self.page_count, PAGE_FACTS), [], Findings()
        for at in range(0, self.page_count, RUN_SIZE // size):
            part = facts[at : at + RUN_SIZE // size]
            noted.append(_check_run(work, page_id_of(self.device, self.first + at), size, part))
        _explain(work, page_id_of(self.device, self.first), facts, findings)
        return PagesFound(facts, np.concatenate(noted), findings)


@dataclass(frozen=True)
class PagesFound:
    """What is known of the pages of a range."""

    facts: np.ndarray
    notes: np.ndarray
    findings: Findings


def page_ranges(files: VerifiedFiles, piece_size: int) -> list[PageRange]:
    """All pages in use, in ranges of at most ``piece_size`` bytes."""
    return [
        PageRange(device, first, min(length, used - first))
        for device, file in files.devices.items()
        for used, length in [(files.pages_in_use(device), max(piece_size // file.page_size, 1))]
        for first in range(0, used, length)
    ]


def merge_ranges(survey: Survey, ranges: Sequence[PageRange], results: Sequence[PagesFound]) -> None:
    """Merge what was found in all ranges into the survey."""
    for device in survey.files.devices:
        survey.facts[device] = np.zeros(survey.files.pages_in_use(device), PAGE_FACTS)
    for pages, result in zip(ranges, results, strict=True):
        all_facts = survey.facts[pages.device].view(_WHOLE)
        all_facts[pages.first : pages.first + pages.page_count] = result.facts.view(_WHOLE)
        survey.findings.extend(result.findings)
    if results:
        survey.notes = np.concatenate([result.notes for result in results])


def _check_run(work: Workplace, first_id: int, page_size: int, facts: np.ndarray) -> np.ndarray:
    """Check a run of pages; returns the notes about their rows."""
    memory, notes = work.memory.pages[: len(facts) * page_size], work.memory.notes
    try:
        read = work.files.read_run(device_of(first_id), offset_of(first_id), memory.data)
    except OSError:
        facts["verdict"] = BROKEN  # each is read again for its message, which shows which of them cannot be read
        return notes[:0]
    memory[read:] = 0
    rules = work.rules.address
    count = check_pages(
        memory.ctypes.data, len(facts), page_size, first_id, rules, facts.ctypes.data, notes.ctypes.data
    )
    return notes[:count].copy()


def _explain(work: Workplace, first_id: int, facts: np.ndarray, findings: Findings) -> None:
    """Say what is wrong with the pages of a range that the compiled check did not find good."""
    for number in np.flatnonzero(facts["verdict"] != GOOD).tolist():
        verdict, page_id = int(facts["verdict"][number]), first_id + number
        if verdict == UNWRITTEN:
            continue  # whether that is wrong depends on its owner
        try:
            page_problems = page_findings(work.files.page(page_id), page_id, work.tables)
        except Exception as error:  # a page that cannot be read, or whose bytes a check failed on
            page_problems = [Finding(0, f"the page cannot be checked: {error}")]
        if verdict == ASK:
            facts["verdict"][number] = BROKEN if page_problems else GOOD
        elif not page_problems:
            page_problems = [Finding(0, "the page is not sound, but no check can say why; this is a bug in gmdb")]
        for finding in page_problems:
            findings.on_page(page_id, finding.offset, finding.message)


def page_findings(page: bytes, page_id: int, tables: Mapping[int, TableDefinition]) -> list[Finding]:
    """What is wrong with a page, as far as the page alone shows."""
    problems = anatomy.check(page, page_id)
    structure = anatomy.structure_of(page) if len(page) in PAGE_SIZES else None
    if structure is heap:
        problems += row_findings(page, tables.get(PAGE_HEAD.at(page).obj_id))
    elif structure is undo:
        problems += record_findings(page)
    elif structure is btree:
        problems += node_findings(page)
    elif structure is hash:
        problems += hash_findings(page)
    return problems


# ---- Migrated rows: every ENTRY row leads to a LINK row of its table, and every LINK row has one ENTRY.


def check_migration(survey: Survey) -> None:
    entries, links = survey.noted(ENTRY), survey.noted(LINK)["place"]
    if not len(entries) and not len(links):
        return
    targets = entries["value"]
    _, first = np.unique(targets, return_index=True)
    is_first = np.zeros(len(targets), bool)
    is_first[first] = True
    for i in np.flatnonzero(~is_first):
        message = f"leads to {_row_name(targets[i])}, to which another ENTRY row leads already"
        _finding(survey, entries["place"][i], f"an ENTRY row {message}", ROW_HEAD.size)
    target_facts, own_facts = survey.gather(page_of(targets)), survey.gather(page_of(entries["place"]))
    damaged = (target_facts["verdict"] > SUSPECT) & (target_facts["page_type"] == PageType.DATA)
    there = np.isin(targets, links)
    for i in np.flatnonzero(~there & ~damaged):
        message = f"an ENTRY row leads to {_row_name(targets[i])}, where no LINK row is"
        _finding(survey, entries["place"][i], message, ROW_HEAD.size)
    for i in np.flatnonzero(there & (target_facts["obj_id"] != own_facts["obj_id"])):
        message = f"an ENTRY row leads to {_row_name(targets[i])}, a row of object {target_facts['obj_id'][i]}"
        _finding(survey, entries["place"][i], message, ROW_HEAD.size)
    _check_links(survey, targets, links)


def _check_links(survey: Survey, targets: np.ndarray, links: np.ndarray) -> None:
    """LINK rows without an ENTRY; not of tables with damaged pages, on which it may be."""
    doubtful: set[int] = set()
    for facts in survey.facts.values():
        doubtful.update(facts["obj_id"][facts["verdict"] > SUSPECT].tolist())
    orphans = links[~np.isin(links, targets)]
    objects = survey.gather(page_of(orphans))["obj_id"]
    for place in orphans[~np.isin(objects, list(doubtful))]:
        _finding(survey, place, "a LINK row to which no ENTRY row leads", 0)


def _row_name(place: int) -> str:
    return f"row {RowId.from_place(int(place))}"


def _finding(survey: Survey, place: int, message: str, behind: int) -> None:
    page_id, slot = page_of(int(place)), slot_of(int(place))
    survey.findings.on_page(page_id, survey.row_offset(page_id, slot) + behind, f"slot {slot}: {message}")
