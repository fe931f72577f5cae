"""The leases of a fleet's pins: whoever reads one database keeps the others as well, which wait for their turn."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from gmdb.errors import StorageError
from gmdb.storage.pins import renew

_last_time: dict[str, float] = {}  # of the fleet that this worker read last: when it renewed the leases


class Leases:
    """The pins of all databases that a DataFrame reads."""

    def __init__(self, pins: Sequence[tuple[Path, str]], lease: float) -> None:
        self._pins = list(pins)
        self._lease = lease
        self._began = time.time()

    def keep(self) -> None:
        """Start all leases over if a third of their time has passed."""
        fleet = self._pins[0][1] if self._pins else ""
        since = time.time() - _last_time.get(fleet, self._began)
        if not self._pins or since < self._lease / 3:
            return
        _last_time.clear()
        _last_time[fleet] = time.time()
        for path, name in self._pins:
            with suppress(StorageError):  # who comes to read it says what is wrong
                renew(path, name)
