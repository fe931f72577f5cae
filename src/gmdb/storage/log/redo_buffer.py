"""The redo log of an open database: a buffer that kernels fill, written out and synced for commits.

A thread that wants its commit on disk either writes the buffer out, for all that have committed by then, or waits for
the thread that is writing.  Each waits on a lock of its own; the writer, when it is done, wakes the threads whose
commits it carried, and hands the next round to one that came too late for it.  Those that were woken are likely to be
back soon: the next writer waits for them, at most as long as a sync takes.  One sync for all costs less than two for
half of them each.

Invariants
 1. Bytes reach the files in the order of their LSNs; ``synced`` never runs ahead of what was synced.
 2. A write or sync that failed is final: what was in the system's cache may be gone, so nothing after it counts.
 3. ``on_durable`` is called with each LSN up to which commits may be shown to others, before any thread that
    waits for it goes on: a session that has committed releases its tables and its slot.
 4. A thread that is interrupted (by Ctrl-C, which may strike at any line) leaves nothing undone that others wait for:
    bytes that were taken from kernels are written by the next, and so is the next round led.
"""

from __future__ import annotations

import threading
import time

from gmdb.errors import DiskFull, Error, StorageError
from gmdb.kernel.page.area import STATE
from gmdb.kernel.page.redo import GROUP_MAX
from gmdb.process.hooks import Hook
from gmdb.storage.log.log_files import RedoFiles
from gmdb.storage.memory import address_of, untouched
from gmdb.storage.store import PageStore

BUFFER_SIZE = 3 << 20
GATHER_SECONDS = 0.001  # how long the writer under sync="group" waits for others to join, others at most
PATIENCE = 1.0  # seconds after which a waiting thread looks by itself: the one that should wake it may be gone
SYNC_MODES = ("full", "group", "off")


class _Turn:
    """A thread that wants the log on disk up to an LSN: it waits for the writer, or writes for all that wait."""

    def __init__(self, lsn: int, sync: bool) -> None:
        self.lsn = lsn
        self.sync = sync
        self.leads = False
        self.failure: Error | None = None
        self.call = threading.Lock()
        self.call.acquire()


class RedoLog:
    def __init__(self, store: PageStore, files: RedoFiles, start: int, sync: str) -> None:
        """Begin logging at LSN ``start``, which ``files`` has room for."""
        self._store = store
        self.files = files
        self.sync_mode = sync
        self.on_durable = Hook(_nobody)
        self._fields = {name: STATE.offset(name) // 8 for name in STATE.names}
        self._buffer, self._spare = (untouched(BUFFER_SIZE + GROUP_MAX) for _ in range(2))
        self._lock = threading.Lock()
        self._writing = threading.RLock()  # taken with the guard held, never the other way round
        self._unwritten: tuple[int, memoryview, int] | None = None  # LSN, buffer, length: taken, but not in a file yet
        self._full = DiskFull("the disk has no space for the log")
        self._turns: list[_Turn] = []
        self._leading = False
        self._company = 0  # how many others are likely to commit soon
        self._gathered: threading.Lock | None = None  # the writer waits at it for them
        self._sync_seconds = self._synced_at = 0.0  # how long the last sync took, and when it was done
        self._durable = self._synced = start
        self._set("log_start", start)
        self._set("log_durable", start)
        self._set("log_end", 0)
        self._set("log_group", 0)
        self._set("log_limit", BUFFER_SIZE)
        self._set("log_buffer", address_of(self._buffer))
        store.make_log_room.connect(self.make_room)
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
        """Up to where commits count: the log is on disk; under sync="off", the system has it."""
        return self._durable

    # ---- commits

    def make_durable(self, lsn: int) -> None:
        """Return once the log is on disk up to ``lsn``; under sync="off", once the system has it."""
        self._bring(lsn, self.sync_mode != "off")

    def write_through(self, lsn: int) -> None:
        """Return once the log is on disk up to ``lsn``, under sync="off", too."""
        self._bring(lsn, True)

    def _bring(self, lsn: int, sync: bool) -> None:
        turn = _Turn(lsn, sync)
        try:
            self._take_part(turn)
        except BaseException as error:
            self._step_back(turn, error)
            raise

    def _take_part(self, turn: _Turn) -> None:
        with self._lock:
            if self._is_reached(turn):
                return
            if self._leading:
                self._turns.append(turn)
                if self._gathered is not None and len(self._turns) >= self._company:
                    self._gathered.release()
                    self._gathered = None
            else:
                self._leading = turn.leads = True
        while not turn.leads:
            if turn.failure is not None:
                raise turn.failure
            if self._is_reached(turn):
                return
            turn.call.acquire(timeout=PATIENCE)
        self._gather()
        self._store.require_healthy()
        end = self._write_out()
        if turn.sync:
            started = time.monotonic()
            self.files.sync(self._writing)
            self._synced_at = time.monotonic()
            self._sync_seconds = self._synced_at - started
        self._advance(end, turn.sync)
        self._end_turn(turn)

    def _gather(self) -> None:
        """Wait for those who took part in the last round, or are about to commit under sync="group"."""
        if self.sync_mode == "group":
            time.sleep(GATHER_SECONDS)
            return
        patience = min(self._sync_seconds, GATHER_SECONDS)
        if not self._company or time.monotonic() - self._synced_at > patience:
            return
        gate = threading.Lock()
        gate.acquire()
        with self._lock:
            if len(self._turns) >= self._company:
                return
            self._gathered = gate
        gate.acquire(timeout=patience)
        with self._lock:
            self._gathered = None

    def _is_reached(self, turn: _Turn) -> bool:
        return (self._synced if turn.sync else self._durable) >= turn.lsn

    def _advance(self, end: int, synced: bool) -> None:
        self.on_durable(end)  # first: a thread that finds its LSN reached goes on as one whose commit others see
        with self._lock:
            self._durable = max(self._durable, end)
            if synced:
                self._synced = max(self._synced, end)
                self._set("log_durable", self._synced)

    def _end_turn(self, turn: _Turn) -> None:
        """Wake the threads whose bytes were written, and let one of the others lead."""
        with self._lock:
            woken = [waiting for waiting in self._turns if self._is_reached(waiting)]
            self._turns = [waiting for waiting in self._turns if not self._is_reached(waiting)]
            turn.leads = self._leading = False
            self._company = len(woken) + len(self._turns)
            if self._turns:
                following = self._turns.pop(0)
                self._leading = following.leads = True
                woken.insert(0, following)
        for waiting in woken:
            waiting.call.release()

    def _step_back(self, turn: _Turn, error: BaseException) -> None:
        """The thread leaves with an error: one of the disk concerns everyone, any other only the thread."""
        with self._lock:
            if turn in self._turns:
                self._turns.remove(turn)
        if not turn.leads:
            return
        if isinstance(error, StorageError):
            self._fail(error)
        else:
            self._end_turn(turn)

    def _fail(self, failure: StorageError) -> None:
        self._store.failure = self._store.failure or failure
        with self._lock:
            turns, self._turns, self._leading = self._turns, [], False
        for turn in turns:
            turn.failure = failure
            turn.call.release()

    def _write_out(self) -> int:
        """Hand what kernels have logged to the system; returns up to which LSN."""
        try:
            with self._store.guard:
                self._writing.acquire()  # a thread that has it needs no guard to finish
                self._store.require_healthy()  # a write that failed left a hole: nothing may be written behind it
                self._write_rest()
                end = self._take_buffer()
            self._write_rest()
            self._provide()
            return end
        finally:
            if self._writing._is_owned():  # type: ignore[attr-defined]
                self._writing.release()

    def _take_buffer(self) -> int:
        """Give kernels the other buffer; returns the LSN at which that begins."""
        state, fields = self._store.state, self._fields
        start_at, end_at, group_at, buffer_at = (fields[n] for n in ("log_start", "log_end", "log_group", "log_buffer"))
        full, spare = self._buffer, self._spare
        spare_address = address_of(spare)
        start, length = state[start_at], state[end_at]
        end = start + length
        unwritten = (start, full, length)
        # No call among these lines: an interrupt does not come between them.
        self._unwritten = unwritten
        self._buffer, self._spare = spare, full
        state[buffer_at] = spare_address
        state[start_at] = end
        state[end_at] = 0
        state[group_at] = 0
        return end

    def _write_rest(self) -> None:
        """Write the bytes that were taken; if an interrupt came in between before, they are written again."""
        if self._unwritten is None:
            return
        start, buffer, length = self._unwritten
        try:
            self.files.write(start, buffer[:length])
        except StorageError as error:
            self._store.failure = self._store.failure or error
            raise
        self._unwritten = None

    # ---- room

    def _provide(self) -> None:
        """Make sure that the files have room for all that the buffers may hold; without disk space kernels must ask."""
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
        """Stop logging.  Pages do not change any more."""
        self._set("log_buffer", 0)
        self.files.close()


def _nobody(_: int, /) -> None:
    """Nobody waits for commits to become visible."""
