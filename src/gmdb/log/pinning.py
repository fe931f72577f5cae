"""Pinning instants of a database that is in use, for readers in other processes, and letting them go.

Taking a pin: if much has changed, a checkpoint first.  Then, while the guard is held, the pages that are changed in
memory are copied there, and the locks of transactions under way are noted; nothing is written meanwhile.  From then on
files and copies hold the instant: the copies become its first images, and before any page is overwritten in its file,
the page is kept (images.py).  Writers, garbage collection and checkpoints go on as ever.

Invariants
 1. Checkpoints after the pin have higher numbers than it, and those before it lower ones, whatever crashes.
 2. A pin exists once its file does; by then all of its images are on disk, and so is the log up to it.
 3. While there are pins no device file gets shorter, and none is removed.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gmdb.errors import StorageError
from gmdb.format.address import OFFSET_BITS
from gmdb.kernel.area import STATE
from gmdb.kernel.checkpoint import copy_changed, seal_copies
from gmdb.log.checkpoint import Checkpoints
from gmdb.log.images import Images
from gmdb.log.redo import RedoLog
from gmdb.log.shrink import Shrinking
from gmdb.storage.holder import Holder
from gmdb.storage.pins import (
    Pin,
    expires_at,
    make_folder,
    new_name,
    note_fall,
    pin_path,
    read_pin,
    read_pins,
    remove_pin,
    require_lease,
    write_pin,
)
from gmdb.storage.store import PageStore

COPY_MAX = 16 << 20  # bytes of changed pages that are copied while writers wait; if there are more, a checkpoint first
SLACK = 8 << 20  # for what is changed until they wait
EXPIRY_INTERVAL = 1.0
_DIRTY_AT = STATE.fields["dirty_bytes"][1] // 8  # type: ignore[index]
_logger = logging.getLogger("gmdb")


@dataclass
class Instant:
    """What the transactions say of an instant: the newest commit, what of later ones is in the pages, the tables."""

    scn: int
    locks: bytes
    tables: list[Any]
    log_from: int


class Pins:
    """The pins of an open database."""

    def __init__(self, store: PageStore, redo: RedoLog, checkpoints: Checkpoints, shrinking: Shrinking) -> None:
        self._store = store
        self._redo = redo
        self._checkpoints = checkpoints
        self._shrinking = shrinking
        self._buffer = np.zeros(0, np.uint8)
        self._checked = 0.0
        self.images = Images(store)
        self._lock = self.images.lock
        self.images.give_up_oldest.connect(self._give_up_oldest)
        checkpoints.keep.connect(self.images.keep)
        store.keep_images.connect(self.images.keep)
        self._pins = self._found()
        shrinking.is_pinned.connect(lambda: bool(self._pins))
        self.images.follow(self._pins)

    def _found(self) -> list[Pin]:
        """The pins that an owner before has left; what is no pin of this database goes."""
        found, mine = [], self._store.control["database_id"]
        for pin in read_pins(self._store.directory):
            if pin.database_id == mine and pin.ckpt_id <= self._store.control["ckpt_id"] and not self._is_over(pin):
                found.append(pin)
            else:
                remove_pin(self._store.directory, pin.name)
        return found

    # ---- taking

    def take(self, capture: Callable[[], Instant], lease: float | None, holder: Holder) -> Pin:
        """Pin the instant of now.  ``capture`` is called while the guard is held."""
        lease = require_lease(lease)
        with self._shrinking.none_running():
            if self._store.state[_DIRTY_AT] > COPY_MAX:
                self._checkpoints.run()
            with self._checkpoints.none_running():
                return self._take(capture, lease, holder)

    def _take(self, capture: Callable[[], Instant], lease: float, holder: Holder) -> Pin:
        store = self._store
        store.require_healthy()
        while True:
            self._make_buffer(store.state[_DIRTY_AT] + SLACK)
            ids = np.zeros(len(self._buffer) >> 13, np.uint32)
            with store.guard:
                count = copy_changed(store.area, self._buffer.ctypes.data, len(self._buffer), ids.ctypes.data)
                if count >= 0:
                    instant, end = capture(), self._redo.end
                    devices = {number: int(device.head.hwm) for number, device in store.devices.items()}
                    break
        ckpt_id = store.control["ckpt_id"] + 2  # bulk loads stamp their pages with the number in between
        store.write_control(ckpt_id=ckpt_id)
        pages = ids[:count].astype(np.int64)
        sizes = np.array([store.devices[number].page_size for number in (pages >> OFFSET_BITS).tolist()], np.int64)
        seal_copies(self._buffer.ctypes.data, sizes.ctypes.data, count, ckpt_id)
        self._redo.write_through(end)
        pin = Pin(
            new_name(ckpt_id),
            store.control["database_id"],
            ckpt_id,
            instant.scn,
            time.time(),
            lease,
            holder,
            devices,
            instant.tables,
            log_from=instant.log_from,
        )
        make_folder(store.directory)
        with self._lock:
            try:
                self.images.begin(pin, self._pins, pages, sizes, self._buffer.data)
                write_pin(store.directory, pin, instant.locks)
            except BaseException:
                remove_pin(store.directory, pin.name)
                self.images.follow(self._pins)
                raise
            self._pins = [*self._pins, pin]
        return pin

    def _make_buffer(self, size: int) -> None:
        """Memory for copies that is there: touching it for the first time takes longer than copying."""
        if len(self._buffer) < size:
            self._buffer = np.empty(size + (-size & 0x1FFF), np.uint8)
            self._buffer[::4096] = 0

    # ---- letting go

    def listed(self) -> list[tuple[Pin, float]]:
        """Every pin, and when its lease runs out."""
        return [(pin, expires_at(self._store.directory, pin)) for pin in self._pins]

    def drop(self, name: str) -> None:
        """Let a pin go; whoever reads by it is told so."""
        read_pin(self._store.directory, name)
        self._drop([pin for pin in self._pins if pin.name == name])

    def _drop(self, gone: list[Pin]) -> None:
        with self._lock:
            names = {pin.name for pin in gone}
            for name in names:
                remove_pin(self._store.directory, name)
            self._pins = [pin for pin in self._pins if pin.name not in names]
            self.images.follow(self._pins)

    def _give_up_oldest(self, why: str) -> bool:
        """There is no room for its pages: let the oldest pin fall."""
        with self._lock:
            if not self._pins:
                return False
            oldest = self._pins[0]
            _logger.warning("%s: snapshot %s is given up: %s", self._store.directory, oldest.name, why)
            note_fall(self._store.directory, oldest.name, why)
            self._drop([oldest])
            return True

    def _is_over(self, pin: Pin) -> bool:
        over = pin.holder.is_gone or expires_at(self._store.directory, pin) < time.time()
        return over or not pin_path(self._store.directory, pin.name).exists()

    def expire(self) -> None:
        """Let go of pins that nobody needs any more; called now and then."""
        if not self._pins or time.monotonic() - self._checked < EXPIRY_INTERVAL:
            return
        self._checked = time.monotonic()
        gone = [pin for pin in self._pins if self._is_over(pin)]
        if gone:
            try:
                self._drop(gone)
            except StorageError as error:
                _logger.error("%s: a snapshot cannot be removed: %s", self._store.directory, error)

    def close(self) -> None:
        self.images.close()
