"""Take the staging files of a bulk load into a table, as one statement.

Invariants
 1. Every file is known to be whole before the first page of any is taken in.
 2. A table that is overwritten is nobody's alone while files are taken in: they go to pages of its remade twin, which
    is put in its place at the end.  No writer waits long behind a load that waits for the table.
 3. Memory is bounded by a buffer of some pages, or by a batch, and what indexes need.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gmdb.access.heap import Heap
from gmdb.arrow.append import append
from gmdb.arrow.apply import Apply, require_key
from gmdb.arrow.applying import all_or_nothing, apply_changes, with_numbers
from gmdb.arrow.placing import BUFFER_SIZE, PagePlacer
from gmdb.arrow.staging import StagedFile, definition_digest
from gmdb.catalog.changes import DefinitionChanges
from gmdb.catalog.schema import TableDefinition
from gmdb.catalog.streams import StreamBatch
from gmdb.catalog.tables import Catalog
from gmdb.errors import LockTimeout, SchemaMismatch
from gmdb.format.columns import Column
from gmdb.format.staging import StagedKind
from gmdb.kernel.staged import adopt_pages
from gmdb.storage.loads import staged_path
from gmdb.transaction.session import Session

MOMENT = 0.1  # seconds


@dataclass(frozen=True)
class NewTable:
    """A table that a load makes: its columns and where it lies."""

    columns: tuple[Column, ...]
    tablespace: str
    pct_free: int


@dataclass(frozen=True)
class Load:
    """What is to be taken in: finished staging files of a load, in the order of their rows."""

    table: str
    load_id: str
    files: tuple[str, ...]
    overwrite: bool = False  # the table has these rows and no others
    create: NewTable | None = None
    apply: Apply | None = None  # rows go by the primary key, instead of to those that are there


def take_batch(catalog: Catalog, session: Session, load: Load, batch: StreamBatch) -> int | None:
    """Take a batch of a stream in, in a transaction of its own; None if it was there already."""
    catalog.store.require_writable()
    session.begin()
    try:
        own = catalog.system(session)
        row_id, record = catalog.streams.hold(own, batch.stream)
        rows = None
        if not record.has(batch):
            rows = attach(catalog, session, load, is_first=record.row_count == 0)
            catalog.streams.note(own, row_id, record.with_batch(batch, load.table))
        session.commit()
        return rows
    except BaseException:
        if session.in_transaction and not session.closed:
            session.rollback()
        raise


def attach(catalog: Catalog, session: Session, load: Load, is_first: bool = True) -> int:
    """Take a load in, all of it or nothing; answers how many rows.

    ``is_first``: rows that are there come from elsewhere, and not from an earlier batch of the same stream.
    """
    session.require_open()
    catalog.store.require_writable()
    paths = [staged_path(catalog.store.directory, load.load_id, name) for name in load.files]
    if load.apply is not None:
        with all_or_nothing(session):
            return _apply(catalog, session, load.table, paths, load.apply, is_first)
    with session.statement():
        if load.create is not None:
            new = load.create
            with session.defining():
                changes = DefinitionChanges(catalog, session)
                changes.create_table(load.table, new.columns, (), new.tablespace, new.pct_free)
        elif load.overwrite:
            return _Attaching(catalog, session).overwrite(load.table, paths)
        return _Attaching(catalog, session).append(load.table, paths)


def _apply(catalog: Catalog, session: Session, name: str, paths: Sequence[Path], apply: Apply, is_first: bool) -> int:
    """Take changes of rows in, by their keys."""
    table = catalog.user_table(name, session)
    catalog.heap(table.name, session).share()
    table = catalog.current(table, session)
    require_key(table)
    buffer, digest = np.zeros(BUFFER_SIZE, np.uint8), apply.digest(table)
    with ExitStack() as opened:
        files = [StagedFile(path, digest) for path in paths]
        for file in files:
            opened.callback(file.close)
        for file in files:
            session.check_interrupted()
            if not file.fits:
                raise _made_for_another(table)
            file.check(buffer)
        return apply_changes(catalog, session, table.name, files, apply, is_first)


def _made_for_another(table: TableDefinition) -> SchemaMismatch:
    what = "its columns, checks or tablespace are not those that the rows were made for"
    return SchemaMismatch(f"table {table.name}: {what}; nothing was loaded, load again")


class _Attaching:
    def __init__(self, catalog: Catalog, session: Session) -> None:
        self._catalog, self._session = catalog, session
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)

    def append(self, name: str, paths: Sequence[Path]) -> int:
        """Add the rows to those of the table."""
        table = self._catalog.user_table(name, self._session)
        heap = self._catalog.heap(table.name, self._session)
        heap.share()  # so that its definition stays as it is
        return self._take_in(self._catalog.current(table, self._session), heap, paths)

    def overwrite(self, name: str, paths: Sequence[Path]) -> int:
        """Let the table have the rows instead of its own."""
        with self._session.defining():
            made = DefinitionChanges(self._catalog, self._session).remake(name)
        heap = Heap(self._catalog.store, self._session, lambda _: made)
        heap.share()
        rows = self._take_in(made, heap, paths)
        self._put_in_place(name, made)
        return rows

    def _put_in_place(self, name: str, made: TableDefinition) -> None:
        """Have the table alone and change it, when nobody changes it.

        A writer that comes while somebody waits for a table stands in line behind that.  So the load waits for a
        moment only, again and again, and writers go on in between.
        """
        session, patience = self._session, self._session.lock_timeout
        deadline = time.monotonic() + patience
        while True:
            session.lock_timeout = min(patience, MOMENT)
            try:
                with session.defining():
                    DefinitionChanges(self._catalog, session).put_in_place(name, made)
                return
            except LockTimeout:
                if time.monotonic() >= deadline:
                    raise LockTimeout(
                        f"table {name} was held by other transactions, which change its rows, for over {patience:g} s "
                        "(lock_timeout); nothing was loaded, try again"
                    ) from None
            finally:
                session.lock_timeout = patience
            time.sleep(min(MOMENT, max(deadline - time.monotonic(), 0)))

    def _take_in(self, table: TableDefinition, heap: Heap, paths: Sequence[Path]) -> int:
        definition = definition_digest(table.columns, table.constraints)
        with ExitStack() as opened:
            files = []
            for path in paths:
                self._session.check_interrupted()
                file = StagedFile(path, definition)
                opened.callback(file.close)
                self._require_fit(table, heap, file)
                file.check(self._buffer)
                files.append(file)
            paged = [file for file in files if file.seal["kind"] == StagedKind.PAGES]
            batched = [file for file in files if file.seal["kind"] == StagedKind.ARROW]
            rows = self._take_pages(heap, paged) if paged else 0
            for file in batched:
                rows += append(heap, (with_numbers(self._catalog, table, batch) for batch in file.batches()))
            return rows

    def _require_fit(self, table: TableDefinition, heap: Heap, file: StagedFile) -> None:
        page_size = file.seal["page_size"]
        is_paged = file.seal["kind"] == StagedKind.PAGES
        if not file.fits or (is_paged and (page_size != heap.segment.space.page_size or heap.lobs is not None)):
            raise _made_for_another(table)

    def _take_pages(self, heap: Heap, files: Sequence[StagedFile]) -> int:
        """Splice the pages of some files in behind the table's own."""
        buffer, rows = self._buffer, 0
        with self._session.statement():
            placer = PagePlacer(heap)
            for file in files:
                done = 0
                for count in file.pages(buffer):
                    place = (buffer.ctypes.data, placer.page_size, count, placer.template.ctypes.data)
                    adopted = adopt_pages(*place, len(heap.columns))
                    if adopted < 0:
                        raise file.damage(f"its page {done - adopted - 1} is unsound")
                    placer.place(buffer, count)
                    done += count
                    rows += adopted
                placer.end_run()
            placer.finish()
        return rows
