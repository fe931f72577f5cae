"""Put the changes of staging files into a table by its primary key: update rows that are there, add others, delete.

Invariants
 1. All of it happens in the session's transaction, or nothing.
 2. A row that is there is updated where it is, unless a unique index stands in the way of the others' new values:
    then all rows that change go first, and come back as they are to be.
 3. Whoever else changes a row meanwhile is waited for; what this load brings comes after that.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from gmdb.access.indexes import name_key
from gmdb.arrow.append import append
from gmdb.arrow.apply import REFUSE, REPLACE, Apply, Operation, key_index
from gmdb.arrow.keyed_changes import KeyedChanges
from gmdb.arrow.schema import arrow_type
from gmdb.arrow.staging import StagedFile
from gmdb.catalog.changes import DefinitionChanges
from gmdb.catalog.schema import TableDefinition
from gmdb.catalog.tables import Catalog
from gmdb.errors import DataError, NoSuchRow, TableNotEmpty, UniqueViolation
from gmdb.format.address import RowId
from gmdb.late import pyarrow as pa
from gmdb.transaction.session import Session

ATTEMPTS = 5  # if others keep adding rows with the same keys
CHECKED_EVERY = 1024  # rows after which somebody may stop it


def with_numbers(catalog: Catalog, table: TableDefinition, batch: pa.RecordBatch) -> pa.RecordBatch:
    """A batch of new rows, with numbers in identity columns that were left to the owner."""
    for column in table.columns:
        if column.identity is not None and column.name not in batch.schema.names:
            first = catalog.identities.take(column.identity_id, max(len(batch), 1))
            numbers = np.arange(first, first + len(batch))
            batch = batch.append_column(column.name, pa.array(numbers).cast(arrow_type(column.type)))
    return batch


def apply_changes(
    catalog: Catalog, session: Session, name: str, files: Sequence[StagedFile], apply: Apply, is_first: bool
) -> int:
    """Do what the changes say; answers their number.  ``is_first``: rows that are there are none of theirs."""
    applying = _Applying(catalog, session, name, files, apply)
    if is_first:
        applying.settle_existing()
    applying.run()
    return len(applying.changes.fates)


@contextmanager
def all_or_nothing(session: Session) -> Iterator[None]:
    """Several statements that leave nothing behind if one fails."""
    is_own = session.autocommit
    if is_own:
        session.begin()
    mark = session.mark()
    session.begin_work()
    try:
        yield
        if is_own:
            session.commit()
    except BaseException:
        if is_own and session.in_transaction:
            session.rollback()
        elif not is_own:
            session.take_back_to(mark)
        raise
    finally:
        session.end_work()


class _Applying:
    def __init__(
        self, catalog: Catalog, session: Session, name: str, files: Sequence[StagedFile], apply: Apply
    ) -> None:
        self._catalog, self._session, self._apply = catalog, session, apply
        self._heap = catalog.heap(name, session)
        self._heap.share()
        self._table = catalog.table(name, session)
        self.changes = KeyedChanges(self._table, apply, files)
        self._by_key = self._heap.by(key_index(self._table))
        key = {self._table.columns[n].name for n in self.changes.key}
        self._updated = [column.name for column in self._table.columns if column.name in set(apply.given) - key]
        self._empties = self.changes.truncates

    def settle_existing(self) -> None:
        """Rows that were there before: refuse a snapshot that knows nothing of them, or let it take their place."""
        if self._apply.on_existing == REPLACE:
            self._empties = self._empties or self.changes.has_snapshot
        elif self._apply.on_existing == REFUSE and self.changes.has_snapshot and not self._is_empty():
            advice = '"upsert" keeps them, and changes those whose keys come; "replace" takes them away'
            said = f"table {self._table.name} has rows, but the changes begin with a snapshot of all rows"
            raise TableNotEmpty(f'{said}; .option("onExisting", ...) says what becomes of the others: {advice}')

    def _is_empty(self) -> bool:
        return next(self._heap.wanting(()).rows(), None) is None

    def run(self) -> None:
        """Put them in.  Somebody else may bring rows with the same keys meanwhile: then look again."""
        for left in reversed(range(ATTEMPTS)):
            mark = self._session.mark()
            try:
                self._run()
                return
            except UniqueViolation as violation:
                self._session.take_back_to(mark)
                if violation.index != self._by_key.index.name:
                    break
                if not left:
                    raise
        self._run_anew()

    # ---- where rows are

    def _run(self) -> None:
        missing = self.changes.fates == Operation.PUT
        if self._empties:
            self._truncate()
        elif not self._is_empty():
            self._delete(self.changes.fates == Operation.DELETE)
            missing = self._update(missing)
        table, catalog = self._table, self._catalog
        new = (with_numbers(catalog, table, rows) for _, rows in self.changes.batches(missing))
        append(self._heap, new)

    def _truncate(self) -> None:
        with self._session.defining():
            DefinitionChanges(self._catalog, self._session).truncate_table(self._table.name)
        self._heap.share()

    def _delete(self, chosen: np.ndarray) -> None:
        for _, rows in self.changes.batches(chosen):
            for key in self.changes.keys(rows):
                self._delete_row(key)

    def _delete_row(self, key: Sequence[Any]) -> None:
        for row_id, _ in self._held(key):
            self._heap.delete(row_id)

    def _held(self, key: Sequence[Any]) -> list[tuple[RowId, tuple[Any, ...]]]:
        """The row of a key, if there is one, which nobody else can change any more."""
        while True:
            found = self._by_key.find(key)
            if not found:
                return []
            try:
                self._heap.lock(found[0][0])
            except NoSuchRow:
                continue
            again = self._by_key.find(key)
            if [row_id for row_id, _ in again] == [found[0][0]]:
                return again

    def _update(self, chosen: np.ndarray) -> np.ndarray:
        """Update the rows that are there; answers which are not."""
        missing = np.zeros(len(chosen), bool)
        for numbers, rows in self.changes.batches(chosen):
            columns = [rows.column(name).to_pylist() for name in self._updated]
            values = zip(*columns, strict=True) if columns else iter([()] * len(rows))
            was_there = self._update_batch(zip(self.changes.keys(rows), values, strict=True))
            missing[numbers] = ~np.fromiter(was_there, bool, len(rows))
        return missing

    def _update_batch(self, changes: Iterator[tuple[Sequence[Any], Sequence[Any]]]) -> Iterator[bool]:
        """Whether each of some keys was there; if so, its row is updated."""
        names, heap, change = self._updated, self._heap, self._by_key.change_at_once
        encode = heap.patch_encoder(names) if names else None
        for n, (key, values) in enumerate(changes):
            if n % CHECKED_EVERY == 0:
                self._session.check_interrupted()
            if encode is None:
                yield bool(self._by_key.find(key))
                continue
            done = -1
            if heap.lobs is None:
                try:
                    patch = encode(values)
                except DataError as error:
                    raise type(error)(f"table {heap.name}, key {', '.join(map(str, key))}: {error}") from None
                done = change(key, lambda _, patch=patch: patch)  # type: ignore[misc]
            yield bool(done) if done >= 0 else self._update_row(key, dict(zip(names, values, strict=True)))

    def _update_row(self, key: Sequence[Any], values: dict[str, Any]) -> bool:
        """Update the row of a key, whatever has to be waited or made room for."""
        for row_id, _ in self._held(key):
            self._heap.update(row_id, values)
            return True
        return False

    # ---- all rows that change go, and come back

    def _run_anew(self) -> None:
        """Two rows may exchange their values of a unique index: each would stand in the other's way."""
        if self._empties:
            self._truncate()
        self._delete(self.changes.fates == Operation.DELETE)
        made: list[list[Any]] = []
        for _, rows in self.changes.batches(self.changes.fates == Operation.PUT):
            made += self._taken_away(rows)
        for row in made:
            self._insert(row)

    def _taken_away(self, rows: pa.RecordBatch) -> Iterator[list[Any]]:
        """The rows as they are to be; those that are there are gone by then."""
        columns = self._table.columns
        given = {name: rows.column(name).to_pylist() for name in rows.schema.names}
        for n, key in enumerate(self.changes.keys(rows)):
            found = self._held(key)
            for row_id, _ in found:
                self._heap.delete(row_id)
            if found:
                old = found[0][1]
                kept = [column.name not in self._apply.given for column in columns]
                yield [old[p] if kept[p] else given[c.name][n] for p, c in enumerate(columns)]
            else:
                numbered = with_numbers(self._catalog, self._table, rows.slice(n, 1))
                yield [numbered.column(column.name)[0].as_py() for column in columns]

    def _insert(self, row: Sequence[Any]) -> None:
        try:
            self._heap.insert(row)
        except UniqueViolation as violation:
            raise name_key(violation, self._table.index(violation.index), row) from None
