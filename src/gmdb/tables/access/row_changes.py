"""Updates and deletes of a heap's rows, one or many; and watches, which are told of changes that concern others.

A table that has foreign keys, or that others refer to, has a watch.  It names columns: a change that leaves them alone
goes the usual ways.  Any other is made by itself, within a statement, so that the watch knows the values before and
after it, and what comes of them belongs to the same statement.
Not here: what a watch does (tables/catalog/foreign_keys.py).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from gmdb.format.address import RowId, place_of
from gmdb.format.codec import Unfinished
from gmdb.format.row import COL_COUNT_AT
from gmdb.kernel.change.dml import BATCH_HEAD, STATUS_BITS, change_rows, delete_row, update_row
from gmdb.kernel.runtime.call import SCN
from gmdb.kernel.runtime.status import CHANGED, NOT_FOUND, ROW_TOO_LARGE
from gmdb.storage.memory import numbers
from gmdb.tables.access.batches import Change, batch_of
from gmdb.tables.access.generated import GeneratedColumns
from gmdb.tables.access.lob_changes import try_update_apart, try_update_with_lobs
from gmdb.tables.access.lob_files import rereadable
from gmdb.transaction.interrupts import operation
from gmdb.transaction.session import Session

if TYPE_CHECKING:
    from gmdb.tables.access.heap import Heap

BUFFER_SIZE = 1 << 17  # a row's size is a u16, and a patch has its columns' numbers behind it
Values = tuple[Any, ...]


class Watch(Protocol):
    """Who is told of changes of a table's rows, once they are made."""

    @property
    def columns(self) -> Collection[int]:
        """Those whose new values it is to know of."""

    @property
    def inserts(self) -> bool:
        """Whether it is to know of new rows."""

    @property
    def deletes(self) -> bool: ...
    @property
    def foreign_keys(self) -> Sequence[Any]:
        """Those of the table itself, each with the ``positions`` of its columns."""

    def refers(self, foreign_key: Any, key: Values) -> None:
        """Some of the rows that are coming in bulk have this key."""

    def inserted(self, values: Values) -> None: ...
    def changed(self, old: Values, new: Values) -> None: ...
    def deleted(self, old: Values) -> None: ...


class RowChanges:
    """The part of a heap that changes rows which are there."""

    session: Session
    name: str
    number: int
    definition: Any
    lobs: Any
    watch: Watch | None
    generated: GeneratedColumns | None
    plain_decode: Callable[[bytes], Values]
    encoded_row: Callable[..., bytes | None]
    refuse_if_failed: Callable[[int, RowId], None]
    share: Callable[[], None]
    try_at_once: Callable[..., int]
    _change_at_once: Callable[..., int]
    _change: Callable[..., int]
    encode_patch: Callable[[Any], bytes]
    _patches: Any
    _queues: Any
    _bytes: memoryview
    _area: int
    _target: int
    _space_id: int

    # ---- of one row

    @operation
    def _update_slowly(self, row_id: RowId, values: Sequence[Any] | Mapping[str, Any]) -> None:
        if self.lobs is not None and self.generated is not None:
            values = rereadable(values)  # they are stored again if the row has changed meanwhile
        self._finish(row_id, lambda: self.try_update(row_id, values))

    def delete(self, row_id: RowId) -> None:
        """Delete the row."""
        is_simple = self.session.plain and not self._watches(b"")
        if not is_simple or self._change_at_once(delete_row, b"", row_id[0] << 16 | row_id[1]) < 0:
            self._delete_with_patience(row_id)

    @operation
    def _delete_with_patience(self, row_id: RowId) -> None:
        self._finish(row_id, lambda: self.try_delete(row_id))

    def _finish(self, row_id: RowId, change: Callable[[], int]) -> None:
        """Make a change of a row, or raise; as a statement, if it needs the row, or ends by what comes of it."""
        session = self.session
        if (self.watch is None and self.generated is None) or session.depth:
            self.refuse_if_failed(change(), row_id)
            return
        with session.statement():
            while (status := change()) == CHANGED:
                session.see_newest()
            self.refuse_if_failed(status, row_id)

    def try_update(self, row_id: RowId, values: Sequence[Any] | Mapping[str, Any]) -> int:
        """``update`` that returns a status if there is no such row, or it has changed."""
        if self.session.tables_held.get(self.number) is not self.definition:
            self.share()
        if self.generated is not None and self.generated.concern(values):
            old = self._bases(row_id, self.generated.bases)
            if old is None:
                return NOT_FOUND
            values = self.generated.changes(old, values)
        if self.lobs is not None:
            return try_update_with_lobs(cast("Heap", self), row_id, values)
        return self.try_patch((row_id, self.encode_patch(values)))

    def try_delete(self, row_id: RowId) -> int:
        """``delete`` that returns a status."""
        self.share()
        return self.try_change((row_id, b""))

    def try_change(self, change: Change) -> int:
        """Update a row by a patch, or delete it if that is empty, waiting for it; returns a status."""
        status = self.try_patch(change)
        if status == ROW_TOO_LARGE and self.lobs is not None and change[1]:
            return try_update_apart(cast("Heap", self), change[0], self._patches.decode(change[1]))
        return status

    def try_patch(self, change: Change) -> int:
        """``try_change``; ROW_TOO_LARGE if the row has no room for the patch as it is."""
        row_id, patch = change
        watch = self.watch if self._watches(patch) else None
        old = self.as_it_is(row_id) if watch is not None else None
        status = self._change(update_row if patch else delete_row, row_id, patch, place_of(row_id[0], row_id[1]))
        if status >= 0 and watch is not None and old is not None:
            new = self.as_it_is(row_id) if patch else None
            if new is None:
                watch.deleted(old)
            else:
                watch.changed(old, new)
        return status

    def as_it_is(self, row_id: RowId) -> Values | None:
        """A row as the next change of it within the statement finds it, unless that one is refused."""
        session = self.session
        row = self.encoded_row(row_id, numbers((session.call[SCN], session.slot, session.statement_number)))
        return None if row is None else self.plain_decode(row)

    def _bases(self, row_id: RowId, wanted: Container[int]) -> Values | None:
        """``as_it_is``, with the values of some columns whole, wherever they are; others may be passed over."""
        old = self.as_it_is(row_id)
        if old.__class__ is not Unfinished:
            return old
        with self.session.cursor() as (snapshot, _):
            return self.lobs.finisher(snapshot.check, wanted)(old)

    def _watches(self, patch: bytes) -> bool:
        """Whether a change concerns others; its columns' numbers are at a patch's end."""
        watch = self.watch
        if watch is None:
            return False
        if not patch:
            return watch.deletes
        count = int.from_bytes(patch[COL_COUNT_AT : COL_COUNT_AT + 2], "little")
        return any(n in watch.columns for n in memoryview(patch)[-2 * count :].cast("H"))

    # ---- of several rows

    def try_change_at_once(self, row_id: RowId, patch: bytes) -> int:
        """Update a row, or delete it if the patch is empty, while the guard is held; less than 0: nothing was done."""
        if self.watch is not None and self._watches(patch):
            return -1
        kernel = update_row if patch else delete_row
        return self.try_at_once(kernel, patch, len(patch), row_id[0] << 16 | row_id[1])

    def try_changes_at_once(self, changes: Iterable[Change]) -> int:
        """``try_change_at_once`` of many, while signals are held; returns how many were changed.

        If they are fewer, the caller must take back what was done.
        """
        session = self.session
        if self._queues or not session.plain or session.tables_held.get(self.number) is not self.definition:
            return 0
        if self.watch is not None:
            changes = list(changes)
            if any(self._watches(patch) for _, patch in changes):
                return 0
        batch, count = batch_of(changes)
        if len(batch) > BUFFER_SIZE:
            return 0
        session.reserve_records()
        self._bytes[: len(batch)] = batch
        return change_rows(self._area, self._target, count) >> STATUS_BITS

    def change_some(self, changes: Sequence[Change]) -> int:
        """Update or delete the first of some rows within a statement; returns how many.

        They are fewer if the next one has to wait, or is to be changed by itself; in a serializable transaction all
        are.
        """
        if self.session.notes_changes:
            return 0
        size, count, is_watched = 0, 0, self.watch is not None
        for _, patch in changes:
            size += BATCH_HEAD + len(patch)
            if size > BUFFER_SIZE or (is_watched and self._watches(patch)):
                break
            count += 1
        if not count:
            return 0
        batch, _ = batch_of(changes[:count])
        self._bytes[: len(batch)] = batch
        return self.session.change(self._try_some, self._space_id, None, (self._target, count))

    def _try_some(self, area: int, target: int, count: int) -> int:
        return 0 if self._queues else change_rows(area, target, count) >> STATUS_BITS
