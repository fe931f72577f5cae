"""All that makes one open database durable: its log, its mirror, its checkpoints and when they are made.

Invariants
 1. While a database is open for writing, its control file does not call it clean.
 2. Dirty memory and redo that would have to be replayed stay bounded: checkpoints start in the background, and
    writers who outrun them wait.
"""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

from gmdb.errors import StorageError
from gmdb.format.redo import payload
from gmdb.kernel.page.area import STATE
from gmdb.storage.feeds import log_needed
from gmdb.storage.loads import remove_litter
from gmdb.storage.log.backup import forget_note, is_backup
from gmdb.storage.log.checkpoint import Checkpoints, Mirror
from gmdb.storage.log.log_files import RedoFiles
from gmdb.storage.log.pinning import Pins
from gmdb.storage.log.redo_buffer import RedoLog
from gmdb.storage.log.replay import Replayer, database_id, mend
from gmdb.storage.log.reports import CheckpointReport, Progress, Recovery
from gmdb.storage.log.shrink import Dropping, Shrinking
from gmdb.storage.store import PageStore

REDO_FILE_SIZE = 16 << 20
REDO_LIMIT = 64 << 20  # so much redo starts a checkpoint
DIRTY_LIMIT = 256 << 20  # so do so many bytes of changed pages
INTERVAL = 60.0  # and so much time, if anything was changed
PATIENCE = 4  # writers wait if there is so many times as much
SWEEP_INTERVAL = 1.0  # seconds between two looks for what was left behind by processes that are gone
_POLL = 0.1
_DIRTY_AT = STATE.offset("dirty_bytes") // 8
_logger = logging.getLogger("gmdb")


def open_store(
    directory: Path, read_only: bool, stop_time: int = 0, archive: Path | None = None, progress: Progress | None = None
) -> tuple[PageStore, Recovery | None]:
    """Open a directory's pages as they were at the last whole group of the log; None: it had been closed properly."""
    recovery = Recovery()
    store = PageStore(directory, read_only, lambda opened: mend(opened, recovery))
    try:
        recovery.of_backup = is_backup(directory) if read_only else forget_note(directory)
        if store.control["clean"]:
            return store, None
        Replayer(store, recovery, archive).run(stop_time, progress)
    except BaseException:
        store.close()
        raise
    return store, recovery


class Durability:
    def __init__(self, store: PageStore, recovery: Recovery | None, sync: str) -> None:
        """Begin a new log file for a store that is open for writing."""
        self._store = store
        control = store.control
        file_size = control["redo_file_size"] or REDO_FILE_SIZE
        files = RedoFiles(store.directory, database_id(store), file_size, bool(control["archiving"]))
        files.needed.connect(lambda end: log_needed(store.directory, control["database_id"], end))
        self._mirror = Mirror(store.directory, database_id(store))
        follows = control["redo_lsn"] if recovery is None else recovery.end_lsn
        self._log_before = follows
        try:
            start = self._log_start = files.start(follows // payload(file_size) + 1, follows)
            self.redo = RedoLog(store, files, start, sync)
            self.checkpoints = Checkpoints(store, self.redo, self._mirror)
            self.shrinking = Shrinking(store, self.redo, self.checkpoint)
            self.pins = Pins(store, self.redo, self.checkpoints, self.shrinking)
            self.dropping = Dropping(store, self.redo, self.checkpoints, lambda: bool(self.pins.listed()))
            if recovery is None:  # else the log before is needed, until a checkpoint has been made
                next_device = control["next_device"] or max(store.devices) + 1
                store.write_control(clean=0, redo_lsn=start, redo_file_size=file_size, next_device=next_device)
                files.forget(start, start)
        except BaseException:
            files.close()
            self._mirror.close()
            raise
        self._checkpointed = self._swept = time.monotonic()
        self._sweep()
        self._wake = threading.Event()
        self._relief = threading.Condition()
        self._stopping = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Make checkpoints in the background from now on."""
        self._thread = threading.Thread(target=self._run, name="gmdb-checkpoint", daemon=True)
        self._thread.start()

    def checkpoint(self, **control: int) -> CheckpointReport:
        report = self.checkpoints.run(**control)
        self._checkpointed = time.monotonic()
        with self._relief:
            self._relief.notify_all()
        return report

    # ---- when

    def _load(self) -> float:
        """How much there is to write, as a share of what is allowed before a checkpoint begins."""
        redo = (self.redo.end - self._store.control["redo_lsn"]) / REDO_LIMIT
        return max(redo, self._store.state[_DIRTY_AT] / DIRTY_LIMIT)

    def _is_due(self) -> bool:
        if self._load() >= 1:
            return True
        idle = self.redo.end == self._store.control["redo_lsn"]
        return not idle and time.monotonic() - self._checkpointed >= INTERVAL

    def _run(self) -> None:
        while not self._stopping:
            self._wake.wait(_POLL)
            self._wake.clear()
            self.pins.expire()
            if time.monotonic() - self._swept >= SWEEP_INTERVAL:
                self._sweep()
            if self._stopping or not self._is_due():
                continue
            try:
                self.checkpoint()
                self.shrinking.run(only_if_worth_it=True)
            except StorageError as error:
                what = "the checkpoint failed" if self._store.failure else "its files cannot be made shorter"
                _logger.error("%s: %s: %s", self._store.directory, what, error)
            if self._store.failure is not None:
                with self._relief:
                    self._relief.notify_all()
                return

    def _sweep(self) -> None:
        """Remove what others have left in the directory who are gone."""
        directory = self._store.directory
        for load_id in remove_litter(directory):
            _logger.warning("%s: load %s was never finished; its files were removed", directory, load_id)
        self._swept = time.monotonic()

    def limit_dirty(self, size: int) -> None:
        """For a writer of many pages, while it holds nothing: have them written once that many bytes are changed."""
        if self._store.state[_DIRTY_AT] >= size:
            self.checkpoint()

    def wait_if_behind(self) -> None:
        """For writers, while they hold nothing: let checkpoints catch up."""
        if self._load() < PATIENCE:
            return
        self._wake.set()
        with self._relief:
            while self._load() >= PATIENCE and self._store.failure is None and not self._stopping:
                self._relief.wait(_POLL)

    # ---- the end

    def stop(self) -> None:
        """End the background work."""
        self._stopping = True
        self._wake.set()
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self, clean: bool) -> None:
        """Close the files.  ``clean``: after a last checkpoint, so that the log is not needed."""
        try:
            if clean:
                end = self.redo.end
                if end == self._log_start:  # nothing was logged: the log goes on where it ended before
                    end = self._log_before
                self.checkpoint(clean=1, redo_lsn=end)
                self.redo.files.forget_all(end)
                self._mirror.remove()
        finally:
            self.redo.close()
            self._mirror.close()
            self.pins.close()
