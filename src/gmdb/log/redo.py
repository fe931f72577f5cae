"""The redo log of an open database: a buffer that kernels fill, written out and synced for commits.

Whoever wants to see its commit on disk either writes the buffer out, for all who have committed by then, or waits for
the one who is at it.  Each waits on a lock of its own; the writer, when it is done, lets go those whose commits it
carried, and hands the next round to one that came too late for it.

Invariants
 1. Bytes reach the files in the order of their LSNs; ``durable`` never runs ahead of what was synced.
 2. A sync that failed is final: what was in the system's cache may be gone, so nothing after it counts.
 3. ``on_durable`` is called with each LSN up to which commits may be shown to others.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import numpy as np

from gmdb.errors import DiskFull, Error, StorageError
from gmdb.kernel.area import STATE
from gmdb.kernel.redo import GROUP_MAX
from gmdb.log.files import RedoFiles
from gmdb.storage.store import PageStore

BUFFER_SIZE = 3 << 20
GATHER_SECONDS = 0.001  # how long the writer under sync="group" waits for others to join
SYNC_MODES = ("full", "group", "off")


class _Waiter:
    """A thread that waits for its commit, or for its turn to write."""

    def __init__(self, lsn: int) -> None:
        self.lsn = lsn
        self.leads = False
        self.failure: Error | None = None
        self.turn = threading.Lock()
        self.turn.acquire()


class RedoLog:
    def __init__(self, store: PageStore, files: RedoFiles, start: int, sync: str) -> None:
        """Begin logging at LSN ``start``, which ``files`` has room for."""
        self._store = store
        self.files = files
        self.sync_mode = sync
        self.on_durable: Callable[[int], None] = _nobody
        self._fields = {name: STATE.fields[name][1] // 8 for name in STATE.names or ()}  # type: ignore[index]
        self._buffer, self._spare = (np.zeros(BUFFER_SIZE + GROUP_MAX, np.uint8) for _ in range(2))
        self._lock = threading.Lock()
        self._writing = threading.Lock()  # taken with the guard held, never the other way round
        self._full = DiskFull("the disk has no space for the log")
        self._waiters: list[_Waiter] = []
        self._leading = False
        self._durable = start
        self._set("log_start", start)
        self._set("log_durable", start)
        self._set("log_end", 0)
        self._set("log_group", 0)
        self._set("log_limit", BUFFER_SIZE)
        self._set("log_buffer", self._buffer.ctypes.data)
        store.make_log_room = self.make_room
        self._provide()

    def _set(self, field: str, value: int) -> None:
        self._store.state[self._fields[field]] = value

    def _get(self, field: str) -> int:
        return self._store.state[self._fields[field]]

    @property
    def end(self) -> int:
        """The LSN of the next group.  The guard is held."""
        return self._get("log_start") + self._get("log_end")

    @property
    def durable(self) -> int:
        return self._durable

    # ---- commits

    def make_durable(self, lsn: int) -> None:
        """Return once the log is on disk up to ``lsn``; under sync="off", once the system has it."""
        waiter = None
        with self._lock:
            if self._durable >= lsn:
                return
            if self._leading:
                waiter = _Waiter(lsn)
                self._waiters.append(waiter)
            self._leading = True
        if waiter is not None:
            waiter.turn.acquire()
            if waiter.failure is not None:
                raise waiter.failure
            if not waiter.leads:
                return
        if self.sync_mode == "group":
            time.sleep(GATHER_SECONDS)
        self._lead(self.sync_mode != "off")

    def _lead(self, sync: bool) -> None:
        """Write the buffer out, for everyone who waits; then hand on."""
        try:
            self._store.require_healthy()
            end = self._write_out()
            if sync:
                self.files.sync(self._writing)
        except BaseException as error:
            self._fail(error)
            raise
        with self._lock:
            self._durable = max(self._durable, end)
            self._set("log_durable", self._durable)
        self.on_durable(end)
        self._hand_on(end)

    def _hand_on(self, end: int) -> None:
        """Let those go whose bytes were written, and one of the others lead."""
        with self._lock:
            done = [waiter for waiter in self._waiters if waiter.lsn <= end]
            self._waiters = [waiter for waiter in self._waiters if waiter.lsn > end]
            following = self._waiters.pop(0) if self._waiters else None
            self._leading = following is not None
        if following is not None:
            following.leads = True
            following.turn.release()
        for waiter in done:
            waiter.turn.release()

    def _fail(self, error: BaseException) -> None:
        failure = error if isinstance(error, StorageError) else StorageError(f"writing the log stopped: {error!r}")
        with self._store.guard:
            self._store.failure = self._store.failure or failure
        with self._lock:
            waiters, self._waiters, self._leading = self._waiters, [], False
        for waiter in waiters:
            waiter.failure = failure
            waiter.turn.release()

    def _write_out(self) -> int:
        """Hand what kernels have logged to the system; answers up to which LSN."""
        with self._store.guard:
            self._writing.acquire()  # whoever has it needs no guard to finish
            start, length = self._get("log_start"), self._get("log_end")
            full = self._buffer
            if length:
                self._buffer, self._spare = self._spare, full
                self._set("log_buffer", self._buffer.ctypes.data)
                self._set("log_start", start + length)
                self._set("log_end", 0)
                self._set("log_group", 0)
        try:
            self.files.write(start, full.data[:length])
            self._provide()
        finally:
            self._writing.release()
        return start + length

    # ---- room

    def _provide(self) -> None:
        """See that the files have room for all that the buffers may hold; if the disk has none, kernels must ask."""
        try:
            while self.files.room(self.end) < BUFFER_SIZE + 4 * GROUP_MAX:
                self.files.extend()
            self._set("log_limit", BUFFER_SIZE)
        except DiskFull as error:
            self._full = error
            self._set("log_limit", -1)

    def make_room(self, essential: bool) -> None:
        """A kernel found no room for another group: write the buffer out.  The guard may be held.

        If the disk has no space for another file, a statement is refused; what ends a transaction (``essential``)
        may use the last of what there is.
        """
        self._store.require_healthy()
        try:
            self._write_out()
        except StorageError as error:
            self._fail(error)
            raise
        if self._get("log_limit") < 0:
            if not essential or self.files.room(self.end) < 2 * GROUP_MAX:
                raise self._full
            self._set("log_limit", BUFFER_SIZE)

    def close(self) -> None:
        """Stop logging.  Nobody changes pages any more."""
        self._set("log_buffer", 0)
        self.files.close()


def _nobody(_: int) -> None:
    """Nobody waits for commits to become visible."""
