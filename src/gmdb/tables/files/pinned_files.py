"""A database's files as a pin has them, while others change them: for planning, and for looking.

Nothing here is compiled.  The pages of an instant come from the files, or from the pin's images where the files have
gone on since.
"""

from __future__ import annotations

import os
from pathlib import Path

from gmdb.format.address import NO_PAGE
from gmdb.format.checksum import page_crc
from gmdb.format.page import PAGE_HEAD, stored_crc
from gmdb.format.segment import LOADING
from gmdb.storage.pins import ImageIndex, Pin, read_pin
from gmdb.tables.catalog.definition_documents import table_from_plain
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles


class PinnedFiles(DatabaseFiles):
    """The pages and tables of one instant."""

    def __init__(self, path: str | Path, pin: Pin) -> None:
        super().__init__(path)
        self.pin = pin
        self._images = ImageIndex(self.path, pin)

    def close(self) -> None:
        super().close()
        self._images.close()

    def page(self, page_id: int) -> bytes:
        """A page as the pin has it; what is in neither place is returned as the file has it."""
        page = super().page(page_id)
        here = self._ckpt_id(page, page_id)
        if here < 0:
            self._images.refresh()
        image = self._images.newest.get(page_id)
        if image is not None and image.ckpt_id > here:
            return os.pread(image.file, image.size, image.offset)
        if here < 0 and self.pin.is_kept:
            read_pin(self.path, self.pin.name)  # if it is gone, that is the error
        return page

    def _ckpt_id(self, page: bytes, page_id: int) -> int:
        """The checkpoint of a page that the file has; -1 if it is newer than the pin, or not whole."""
        head = PAGE_HEAD.at(page)
        if head.page_id != page_id or head.ckpt_id > self.pin.ckpt_id or page_crc(page) != stored_crc(page):
            return -1
        return int(head.ckpt_id)

    def segment_pages(self, entry: int) -> list[int]:
        """The data pages of a segment, but for those that a bulk load had yet to write."""
        pages: list[int] = []
        for _, entries in self.maps(entry):
            there = (entries["page_id"] != NO_PAGE) & (entries["list_id"] != LOADING)
            pages.extend(entries["page_id"][there].tolist())
        return pages

    def loading_pages(self, entry: int) -> list[int]:
        """The data pages of a segment that a bulk load had yet to write."""
        pages: list[int] = []
        for _, entries in self.maps(entry):
            pages.extend(entries["page_id"][entries["list_id"] == LOADING].tolist())
        return pages

    def tables(self) -> list[TableDefinition]:
        return sorted(map(table_from_plain, self.pin.tables), key=lambda table: table.obj_id)
