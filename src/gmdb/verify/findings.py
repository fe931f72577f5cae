"""What a check has found: where, and what is wrong there."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from gmdb.format.address import device_of, page_name
from gmdb.storage.directory import device_path


class Finding(NamedTuple):
    """Something wrong on a page, or in a file where no page is meant."""

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
    """Findings as they come in."""

    def on_page(self, page_id: int, offset: int, message: str) -> None:
        file = device_path(Path(), device_of(int(page_id))).name
        self.append(Finding(file, int(page_id), int(offset), message))

    def in_file(self, file: str, message: str, offset: int | None = None) -> None:
        self.append(Finding(file, None, offset, message))
