"""The order of the checks: files, the catalog, every page for itself, then pages against each other."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gmdb.format.address import page_id_of
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.kernel.verify_rows import SUSPECT
from gmdb.storage.directory import require_database
from gmdb.verify.catalog import check_catalog, read_catalog
from gmdb.verify.control import check_control
from gmdb.verify.findings import Finding, Findings
from gmdb.verify.free_lists import check_free_lists
from gmdb.verify.migration import check_migration
from gmdb.verify.ownership import Owners
from gmdb.verify.reader import VerifiedFiles, hold
from gmdb.verify.segments import check_segments
from gmdb.verify.spaces import check_device_heads, check_files, check_spaces
from gmdb.verify.survey import Progress, Survey, survey_pages
from gmdb.verify.undo import check_undo


@dataclass(frozen=True)
class Report:
    """What was looked at, and what is wrong with it."""

    directory: Path
    pages: int
    size: int
    tables: int
    rows: int
    findings: list[Finding]

    @property
    def clean(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        """The report in plain values, for JSON."""
        counts = {"pages": self.pages, "bytes": self.size, "tables": self.tables, "rows": self.rows}
        findings = [finding.document() for finding in self.findings]
        return {"database": str(self.directory), **counts, "clean": self.clean, "findings": findings}


def verify(directory: str | Path, progress: Progress | None = None) -> Report:
    """Check all files of a closed database.

    ``progress`` is called with the number of pages and answers a context that is told how many more are done.
    Raises NotADatabase, DatabaseInUse or another StorageError if the files cannot be read.
    """
    path = Path(directory)
    require_database(path)
    with hold(path), VerifiedFiles(path) as files:
        findings = Findings()
        check_control(files, findings)
        check_files(files, findings)
        catalog = read_catalog(files, findings)
        survey = survey_pages(files, catalog.tables, findings, progress)
        owners = Owners({device: len(facts) for device, facts in survey.facts.items()})
        check_device_heads(survey, owners)
        segments = check_segments(survey, owners)
        check_free_lists(survey, segments)
        check_spaces(survey, segments, owners)
        _check_heads(survey)
        check_catalog(survey, catalog, segments)
        check_migration(survey)
        check_undo(survey)
        return _report(survey)


def _check_heads(survey: Survey) -> None:
    """No page is newer than the control file."""
    ckpt_id, number = (survey.files.control.get(name, 0) for name in ("ckpt_id", "next_transaction"))
    for device, facts in survey.facts.items():
        sound = facts["verdict"] <= SUSPECT
        if ckpt_id and survey.files.is_settled:
            for offset in np.flatnonzero(sound & (facts["ckpt_id"] > ckpt_id)).tolist():
                said = f"checkpoint {facts['ckpt_id'][offset]} wrote the page, but the last that ended is {ckpt_id}"
                survey.findings.on_page(page_id_of(device, offset), PAGE_HEAD.offset("ckpt_id"), said)
        loaded = sound & (facts["page_type"] == PageType.DATA) & (facts["rows"] > 0)
        if number:
            for offset in np.flatnonzero(loaded & ((facts["load"] >= number) | (facts["load"] < 0))).tolist():
                said = f"transaction {facts['load'][offset]} loaded the page, but the next gets number {number}"
                survey.findings.on_page(page_id_of(device, offset), PAGE_HEAD.offset("reserve"), said)


def _report(survey: Survey) -> Report:
    pages = {device: len(facts) for device, facts in survey.facts.items()}
    size = sum(count * survey.files.devices[device].page_size for device, count in pages.items())
    rows = sum(int(facts["rows"].sum(dtype=np.int64)) for facts in survey.facts.values())
    findings = sorted(survey.findings, key=lambda finding: finding.order)
    return Report(survey.files.path, sum(pages.values()), size, len(survey.tables), rows, findings)
