"""An index whose leaves are made by others, outside of this process, while transactions go on.

The owner begins: it plants the index, lets writers know, and pins the table as the build's snapshot sees it.  The
caller makes leaves out of the pinned pages, in staging files.  The owner takes them in, in the order of their
entries, catches up with what was committed since, and makes the index everyone's.

Invariants
 1. However a build ends, also with its client gone, the pin and the folder of staging files go with it; and, unless it
    has made the index, the planted one once its last writers have ended.
 2. Nothing of a staging file is in the tree before it is known to be sound, in order and unique as the index must be.
    No reader uses the tree before all files are known to be whole.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress

from gmdb.database.engine import Database
from gmdb.errors import InterfaceError, SnapshotExpired, StorageError
from gmdb.format.staging import StagedKind
from gmdb.kernel.change.bulk_pages import crc_of_more
from gmdb.kernel.change.index_fill import check_leaves
from gmdb.kernel.row import ENTRY_BUFFER
from gmdb.process.late_imports import numpy as np
from gmdb.storage.documents import Holder
from gmdb.storage.loads import remove_load, staged_path
from gmdb.storage.pins import Pin
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.arrow.staging import BUFFER_SIZE, StagedFile, index_digest
from gmdb.tables.catalog.index_creation import IndexMaking
from gmdb.transaction.session import Session


class StagedIndex:
    """One build, from its beginning to ``finish`` or ``abandon``."""

    def __init__(
        self,
        database: Database,
        session: Session,
        index: tuple[str, str, Sequence[str], bool],
        load_id: str,
        lease: float | None,
        holder: Holder,
    ) -> None:
        """Begin.  ``index``: its name, table, columns, and whether it is unique; ``load_id``: the files' folder."""
        session.require_open()
        database.store.require_writable()
        if session.in_transaction:
            raise InterfaceError("an index is built outside of transactions; commit or roll back first")
        self._database, self._session, self._load_id = database, session, load_id
        self._worker = database.new_session("read committed", False, session.lock_timeout)
        self._making = IndexMaking(database.catalog, self._worker)
        self._is_over, self._hurry = False, threading.Event()
        self._worker.begin_work()
        session.watch(self._worker)
        try:
            self._build = self._making.begin(*index, "btree")
        except BaseException:
            self._worker.close()
            raise
        self.pin: Pin | None = None
        try:
            self._build.let_others_in()
            self.pin = database.take_snapshot(lease, holder, scn=self._build.scn)
        except BaseException:
            self.abandon()
            raise

    @property
    def index(self) -> IndexDefinition:
        return self._build.index

    # ---- the leaves are made

    def finish(self, names: Sequence[str]) -> int:
        """Take in the leaves of some staging files and make the index everyone's; returns how many entries it got."""
        try:
            self._drop_pin()
            entries = self._build.attach(self._leaves(names))
            self._build.finish()
            self._session.unwatch(self._worker)  # what follows is done whole
            self._making.finish(self._build)
        except BaseException:
            self.abandon()
            raise
        self._is_over = True
        self._build.end()
        remove_load(self._database.store.directory, self._load_id)
        return entries

    def _leaves(self, names: Sequence[str]) -> Iterator[tuple[np.ndarray, int]]:
        buffer, previous = np.zeros(BUFFER_SIZE, np.uint8), np.zeros(ENTRY_BUFFER, np.uint8)
        for name in names:
            path = staged_path(self._database.store.directory, self._load_id, name)
            file = StagedFile(path, index_digest(self.index))
            try:
                for count in self._checked(file, buffer, previous):
                    yield buffer, count
            finally:
                file.close()

    def _checked(self, file: StagedFile, buffer: np.ndarray, previous: np.ndarray) -> Iterator[int]:
        """Read a file's leaves into a buffer, again and again; yields how many are in it."""
        store, entry_page = self._database.store, self.index.entry_page
        page_size, crc, done = store.space_of(entry_page).page_size, 0, 0
        if not file.fits or file.seal["kind"] != StagedKind.LEAVES or file.seal["page_size"] != page_size:
            raise file.damage(f"it has no leaves of index {self.index.name}")
        for count in file.pages(buffer):
            self._session.require_open()  # a client that is gone wants no index any more
            crc = crc_of_more(buffer.ctypes.data, count * page_size, crc)
            pages = (buffer.ctypes.data, page_size, count, previous.ctypes.data)
            unsound = check_leaves(store.area, entry_page, *pages)
            if unsound < 0:
                raise file.damage(f"its page {done - unsound - 1} is unsound, or not behind the one before")
            done += count
            yield count
        if crc != file.seal["content_crc"]:
            raise file.damage("its bytes are not those that were written")

    # ---- there will be no index

    def abandon(self, patience: float | None = None) -> None:
        """Take back what was built; a second call does nothing.

        The planted index goes when the last writer has ended that knows it: another thread waits for that.  With
        ``patience``, so does this, for that many seconds at most.
        """
        if self._is_over:
            return
        self._is_over = True
        self._session.unwatch(self._worker)
        self._worker.end_work()
        self._worker.forget_interrupt()
        self._making.abandon(self._build)
        with suppress(StorageError):  # the lease ends it, and the next opening of the database removes the files
            self._drop_pin()
        remove_load(self._database.store.directory, self._load_id)
        ending = threading.Thread(target=self._build.give_up, args=(self._hurry,), name="gmdb-index-gone", daemon=True)

        def end_now() -> None:
            self._hurry.set()
            ending.join()

        self._database.before_close.append(end_now)
        ending.start()
        if patience is not None:
            ending.join(patience)

    def _drop_pin(self) -> None:
        pin, self.pin = self.pin, None
        if pin is not None:
            with suppress(SnapshotExpired):
                self._database.drop_snapshot(pin.name)
