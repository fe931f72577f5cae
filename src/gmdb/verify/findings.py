"""Findings: where something is wrong, and what; and the report of all checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from gmdb.format.address import device_of, page_name
from gmdb.process.late_dataclasses import dataclass
from gmdb.storage.directory import device_path
from gmdb.storage.log.reports import Recovery


class Finding(NamedTuple):
    """Something wrong on a page, or in a file as a whole."""

    file: str
    page_id: int | None
    offset: int | None
    message: str

    def __str__(self) -> str:
        where = self.file if self.page_id is None else f"page {page_name(self.page_id)}"
        at = "" if self.offset is None else f", offset {self.offset}"
        return f"{where}{at}: {self.message}"

    @property
    def order(self) -> tuple[int, str, int]:
        """Files first, then pages by address; on a page, by offset."""
        return (
            -1 if self.page_id is None else self.page_id,
            self.file,
            -1 if self.offset is None else self.offset,
        )

    def document(self) -> dict[str, Any]:
        """The finding in plain values, for JSON."""
        page = None if self.page_id is None else page_name(self.page_id)
        place = {"file": self.file, "page_id": self.page_id, "page": page, "offset": self.offset}
        return {**place, "message": self.message}


class Findings(list[Finding]):
    """Findings in the order in which they are made."""

    def on_page(self, page_id: int, offset: int, message: str) -> None:
        file = device_path(Path(), device_of(int(page_id))).name
        self.append(Finding(file, int(page_id), int(offset), message))

    def in_file(self, file: str, message: str, offset: int | None = None) -> None:
        self.append(Finding(file, None, offset, message))


@dataclass(frozen=True)
class Report:
    """What was checked, and what is wrong with it."""

    directory: Path
    pages: int
    size: int
    tables: int
    rows: int
    findings: list[Finding]
    recovery: Recovery | None = None  # done first if the database was not closed

    @property
    def clean(self) -> bool:
        return not self.findings

    def document(self) -> dict[str, Any]:
        """The report in plain values, for JSON."""
        counts = {"pages": self.pages, "bytes": self.size, "tables": self.tables, "rows": self.rows}
        findings = [finding.document() for finding in self.findings]
        recovery = None if self.recovery is None else self.recovery.document()
        outcome = {"clean": self.clean, "findings": findings, "recovery": recovery}
        return {"database": str(self.directory), **counts, **outcome}

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Report:
        """A report that another process made, without its ``recovery``, which is that of a copy."""
        findings = [Finding(f["file"], f["page_id"], f["offset"], f["message"]) for f in document["findings"]]
        pages, size, tables, rows = (int(document[name]) for name in ("pages", "bytes", "tables", "rows"))
        return cls(Path(document["database"]), pages, size, tables, rows, findings)
