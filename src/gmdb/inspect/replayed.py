"""A database's pages as of a place in the log: the files, with the log replayed in memory.

Nothing is written: pages that the log changes are kept in memory, and so are torn pages, as the mirror has them.  So
the pages of a crashed database are seen as redo would leave them, uncommitted changes included, and one database can be
compared at two places of its log.
"""

from __future__ import annotations

from pathlib import Path

from gmdb.errors import Error, InterfaceError
from gmdb.format.address import device_of, page_id_of
from gmdb.format.page import HEAD_SIZE
from gmdb.inspect.listing import Listing
from gmdb.inspect.log_lists import CHANGES, items, replay_item, sealed
from gmdb.process.late_imports import numpy as np
from gmdb.storage.log.checkpoint import torn_pages
from gmdb.tables.files.database_files import DatabaseFiles

END = 1 << 62


class ReplayedFiles(DatabaseFiles):
    """A database's files; groups that begin before LSN ``upto`` are replayed."""

    def __init__(self, path: str | Path, upto: int = END) -> None:
        super().__init__(path)
        self.problems: list[tuple[str, str]] = []
        self._pages: dict[int, bytes] = {}
        try:
            self._mend()
            self._read_heads()
            self._replay(upto)
        except BaseException:
            self.close()
            raise
        self._read_heads()

    def _mend(self) -> None:
        """Take torn pages from the mirror, as recovery does."""
        if self.control["clean"]:
            return
        try:
            self._pages = torn_pages(self.path, bytes.fromhex(self.control["database_id"]), self.control["ckpt_id"] + 1)
        except Error as error:
            self.problems.append(("the mirror", str(error)))

    def _read_heads(self) -> None:
        for number, device in self.devices.items():
            head = self._pages.get(page_id_of(number, 0))
            if head is not None:
                device.read_head(head)

    def _replay(self, upto: int) -> None:
        log = Listing("log", ())
        changed: dict[int, bytes | None] = {**self._pages}
        for item in items(self, log):
            if item["lsn"] >= upto:
                break
            page_id = item["page_id"]
            if page_id is None or item["kind"] not in CHANGES or device_of(page_id) not in self.devices:
                continue
            if page_id not in changed:
                changed[page_id] = self._stored(page_id)
            after = replay_item(item, changed[page_id], self.devices[device_of(page_id)].page_size, log)
            changed[page_id] = after if after is not None else changed[page_id]
        self._pages = {page_id: sealed(page) for page_id, page in changed.items() if page is not None}
        self.problems += log.problems

    def _stored(self, page_id: int) -> bytes | None:
        try:
            return super().sound_page(page_id)
        except Error:
            return None  # the log may format it, or have an image of it

    def page(self, page_id: int) -> bytes:
        page = self._pages.get(page_id)
        return super().page(page_id) if page is None else page

    def head(self, page_id: int) -> bytes:
        page = self._pages.get(page_id)
        return super().head(page_id) if page is None else page[:HEAD_SIZE]

    def starts(self, page_ids: np.ndarray, size: int) -> np.ndarray:
        starts = super().starts(page_ids, size)
        for number, page_id in enumerate(page_ids.tolist()):
            if page_id in self._pages:
                starts[number] = np.frombuffer(self._pages[page_id], np.uint8, size)
        return starts


def parse_place(text: str) -> int:
    """A place in the log: an LSN, or ``end``."""
    if text == "end":
        return END
    if text.isdecimal():
        return int(text)
    raise InterfaceError(f"{text!r} is not a place in the log: write an LSN, as gmstat redo shows them, or end")
