"""The order of the checks: files, the catalog, every page by itself, then pages against each other."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from gmdb.errors import NotClosed
from gmdb.format.address import page_id_of
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PageType
from gmdb.kernel.checks.row_checks import SUSPECT
from gmdb.storage.directory import require_database
from gmdb.verify.catalog_against_segments import check_catalog, read_catalog
from gmdb.verify.findings import Findings, Report
from gmdb.verify.index_contents import Indexes
from gmdb.verify.lob_checks import LargeObjects
from gmdb.verify.page_reader import VerifiedFiles, hold
from gmdb.verify.pieces import RUN_SIZE, Progress, Round, run_on_threads
from gmdb.verify.segments import Owners, check_free_lists, check_segments
from gmdb.verify.spaces import check_control, check_device_heads, check_files, check_spaces
from gmdb.verify.survey import Survey, check_migration, merge_ranges, page_ranges
from gmdb.verify.undo_checks import check_committed, check_runs, check_undo, live_records, segments_in_between


def verify(directory: str | Path, progress: Progress | None = None) -> Report:
    """Check all files of a closed database.

    ``progress`` is called with the number of pages; it returns a context manager whose function is called with the
    number of pages done since its last call.
    Raises NotADatabase, DatabaseInUse, NotClosed or another StorageError if the files cannot be read.
    """
    with closed_files(Path(directory)) as files:
        rounds = checks(files, RUN_SIZE)
        results: list[Any] | None = None
        bar = progress
        while True:
            try:
                work = next(rounds) if results is None else rounds.send(results)
            except StopIteration as end:
                report: Report = end.value
                return report
            results = run_on_threads(files, work, bar)
            bar = None  # later rounds take little time, and are about the same pages


@contextmanager
def closed_files(path: Path) -> Iterator[VerifiedFiles]:
    """The files of a database that was closed properly; it is locked, so that no process opens it meanwhile."""
    require_database(path)
    with hold(path), VerifiedFiles(path) as files:
        if not files.control.get("clean", 1):
            problem = "was not closed properly, so that its files alone say little; open it once, which recovers it"
            raise NotClosed(f"{path} {problem}")
        yield files


def checks(files: VerifiedFiles, piece_size: int) -> Generator[Round, list[Any], Report]:
    """All checks, as a generator: yields rounds of work, is sent their results, and returns the report.

    ``piece_size``: about how many bytes of pages a piece checks.
    """
    findings = Findings()
    check_control(files, findings)
    check_files(files, findings)
    catalog = read_catalog(files, findings)
    survey = Survey(files, findings, catalog.tables)
    ranges = page_ranges(files, piece_size)
    merge_ranges(survey, ranges, (yield Round(ranges, catalog.tables)))
    owners = Owners({device: len(facts) for device, facts in survey.facts.items()})
    check_device_heads(survey, owners)
    segments = check_segments(survey, owners)
    check_free_lists(survey, segments)
    check_spaces(survey, segments, owners)
    _check_heads(survey)
    records = live_records(survey)
    check_catalog(survey, catalog, segments, segments_in_between(records))
    check_migration(survey)
    check_runs(survey)
    check_committed(survey)
    check_undo(survey, records, {index.obj_id: index.entry_page for _, index in catalog.indexes})
    pages_a_piece = max(piece_size // PAGE_SIZES[0], 1)
    indexes, lobs = Indexes(survey, catalog, segments, pages_a_piece), LargeObjects(survey, pages_a_piece)
    pieces = indexes.pieces() + lobs.pieces()
    results = iter((yield Round(pieces, catalog.tables, survey.verdicts())) if pieces else ())
    indexes.check(results, records)
    lobs.check(results, records)
    return _report(survey)


def _check_heads(survey: Survey) -> None:
    """No page is newer than the control file."""
    ckpt_id, number = (survey.files.control.get(name, 0) for name in ("ckpt_id", "next_transaction"))
    for device, facts in survey.facts.items():
        sound = facts["verdict"] <= SUSPECT
        if ckpt_id and survey.files.is_settled:
            for offset in np.flatnonzero(sound & (facts["ckpt_id"] > ckpt_id)).tolist():
                message = f"checkpoint {facts['ckpt_id'][offset]} wrote the page, but the last that ended is {ckpt_id}"
                survey.findings.on_page(page_id_of(device, offset), PAGE_HEAD.offset("ckpt_id"), message)
        loaded = sound & (facts["page_type"] == PageType.DATA) & (facts["rows"] > 0)
        if number and survey.files.is_settled:
            for offset in np.flatnonzero(loaded & ((facts["load"] >= number) | (facts["load"] < 0))).tolist():
                message = f"transaction {facts['load'][offset]} loaded the page, but the next gets number {number}"
                survey.findings.on_page(page_id_of(device, offset), PAGE_HEAD.offset("reserve"), message)


def _report(survey: Survey) -> Report:
    pages = {device: len(facts) for device, facts in survey.facts.items()}
    size = sum(count * survey.files.devices[device].page_size for device, count in pages.items())
    rows = sum(int(facts["rows"].sum(dtype=np.int64)) for facts in survey.facts.values())
    findings = sorted(survey.findings, key=lambda finding: finding.order)
    return Report(survey.files.path, sum(pages.values()), size, len(survey.tables), rows, findings)
