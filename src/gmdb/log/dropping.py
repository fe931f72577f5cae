"""Removing a tablespace that nothing lies in any more.

 1. A checkpoint: whatever the log says of its pages lies before where the log counts from.
 2. If nothing has been taken from or given back to it since, its devices are closed and their files removed, the first
    one last: that is the one by which the tablespace is found.

A crash leaves the tablespace, or some of its devices, empty as it was; dropping it again finishes the work.
"""

from __future__ import annotations

from collections.abc import Callable

from gmdb.errors import SchemaError
from gmdb.format.address import FIRST_USER_DEVICE
from gmdb.format.device import SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD
from gmdb.log.checkpoint import Checkpoints
from gmdb.log.redo import RedoLog
from gmdb.storage.store import PageStore
from gmdb.storage.tablespace import Tablespace


class Dropping:
    def __init__(
        self, store: PageStore, redo: RedoLog, checkpoints: Checkpoints, is_pinned: Callable[[], bool]
    ) -> None:
        self._store = store
        self._redo = redo
        self._checkpoints = checkpoints
        self._is_pinned = is_pinned

    def run(self, name: str) -> None:
        """Remove a tablespace.  Whoever calls sees to it that no file is made shorter meanwhile."""
        with self._store.guard:
            space = self._store.space(name)
            if space.space_id <= FIRST_USER_DEVICE:
                raise SchemaError(f"tablespace {name} is the database's own; it cannot be dropped")
            if self._is_pinned():
                raise SchemaError(
                    f"tablespace {name} may be read by snapshots: wait until they are over, or drop them "
                    "(gmdb snapshots list, gmdb snapshots drop)"
                )
            self._require_empty(space)
            before, redo_end = _changes(space), self._redo.end
        self._checkpoints.run()
        with self._checkpoints.none_running(), self._store.guard:
            self._require_empty(space)
            if _changes(space) != before or self._redo.files.oldest_held() <= redo_end:
                raise SchemaError(f"tablespace {name} is in use, or a backup is being made; try again")
            self._store.remove_tablespace(space)

    @staticmethod
    def _require_empty(space: Tablespace) -> None:
        segments = SPACE_HEAD.at(space.devices[0].memory(0), SPACE_HEAD_AT).seg_num
        if segments:
            raise SchemaError(
                f"tablespace {space.name} has {segments} segments: drop its tables first; "
                "those that are dropped stay for as long as somebody may read them"
            )


def _changes(space: Tablespace) -> list[int]:
    """Numbers that change whenever a page of the tablespace is taken or given back."""
    return [int(PAGE_HEAD.at(device.memory(0)).chg_num) for device in space.devices]
