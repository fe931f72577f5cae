"""The engine: wires store, catalog and heaps into a database that a program opens.

Invariants
 1. Every method that changes something leaves either all of its change or none.
 2. ``close``, which leaving a ``with`` block and the end of the program call too, writes every page.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa

from gmdb.access.heap import Heap
from gmdb.arrow.append import append
from gmdb.arrow.scan import Scan
from gmdb.catalog.schema import FIRST_USER_ID, TableDefinition, make_columns
from gmdb.catalog.tables import Catalog
from gmdb.errors import SchemaError
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.storage.directory import is_database, require_database
from gmdb.storage.store import MAIN_PAGE_SIZE, MAIN_SPACE, PageStore, create_store


def _close_store(store: PageStore) -> None:
    with store.guard:
        if store.devices:
            try:
                if not store.read_only:
                    store.flush()
            finally:
                store.close()


class Database:
    """An open database.  Threads may share it; processes may not."""

    def __init__(self, path: Any, *, read_only: bool = False) -> None:
        directory = Path(path)
        new = not is_database(directory)
        if new and read_only:
            require_database(directory)
        if new:
            create_store(directory, FIRST_USER_ID)
        self._store = PageStore(directory, read_only)
        try:
            if self._store.control["ckpt_id"] == 0 and not read_only:
                Catalog.create(self._store)
                self._store.flush()
            self._catalog = Catalog(self._store)
        except BaseException:
            self._store.close()
            raise
        self._finalizer = weakref.finalize(self, _close_store, self._store)

    @property
    def path(self) -> Path:
        return self._store.directory

    # ---- definitions

    def create_tablespace(
        self, name: str, *, page_size: int = MAIN_PAGE_SIZE, devices: int = 1, device_pages_max: int = 0
    ) -> None:
        """Add a tablespace of one or more devices, with pages of 8, 16 or 32 KiB."""
        with self._store.guard:
            self._store.create_tablespace(name, page_size, devices, device_pages_max)

    def create_table(
        self,
        name: str,
        columns: dict[str, str] | list[tuple[str, str]],
        *,
        tablespace: str = MAIN_SPACE,
        pct_free: int = DEFAULT_PCT_FREE,
    ) -> None:
        """Add a table: ``create_table("tbl", {"i": "INT NOT NULL", "s": "VARCHAR(10)"})``."""
        with self._store.guard:
            self._store.require_writable()
            space = self._store.space(tablespace)
            if space.name in ("system", "undo"):
                raise SchemaError(f"table {name}: tablespace {space.name} is gmdb's own; use {MAIN_SPACE} or your own")
            self._catalog.create_table(name, make_columns(name, columns), space, pct_free)

    def drop_table(self, name: str) -> None:
        """Remove a table; its pages are used again by others."""
        with self._store.guard:
            self._store.require_writable()
            self._catalog.drop_table(name)

    def tables(self) -> list[str]:
        """The names of the tables that were created here."""
        return self._catalog.user_tables()

    def table(self, name: str) -> TableDefinition:
        """A table's definition."""
        return self._catalog.table(name)

    # ---- rows

    def heap(self, name: str) -> Heap:
        """A table's rows one by one: insert, fetch, update, delete by row id."""
        with self._store.guard:
            self._store.require_open()
            return self._catalog.heap(name)

    def append(self, name: str, data: Any) -> int:
        """Append Arrow data (a Table, batches, a reader, …), all of it or nothing; answers the number of rows."""
        return append(self.heap(name), data)

    def arrow(self, name: str, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """A table's rows, or some of its columns, as a stream of record batches."""
        with self._store.guard:
            heap = self.heap(name)
            table = self._catalog.table(name)
            wanted = range(len(table.columns)) if columns is None else [table.position(c) for c in columns]
            if len(set(wanted)) < len(wanted):
                raise SchemaError(f"table {table.name}: a column is asked for twice in {', '.join(columns or ())}")
            page_ids = heap.segment.page_ids()
        return Scan(self._store, table.columns, list(wanted), page_ids, heap.segment.space.page_size).reader()

    # ---- the end

    def flush(self) -> None:
        """Write every changed page to disk."""
        with self._store.guard:
            self._store.flush()

    def close(self) -> None:
        """Write every page and let go of the files.  Closing twice does nothing."""
        self._finalizer()

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
