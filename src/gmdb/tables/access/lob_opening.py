"""Opening a large object of a row for reading, by a snapshot that is held until it is closed."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from gmdb.errors import DataError, NoSuchColumn, SchemaError
from gmdb.format.address import RowId
from gmdb.kernel.runtime.status import NOT_FOUND
from gmdb.tables.access.lob_files import OpenLob
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.tables.access.heap import Heap


class LobOpening:
    def __init__(self, heap: Heap) -> None:
        self._heap = heap
        self.session = heap.session

    @operation
    def open(self, column: str, row_id: RowId) -> OpenLob:
        heap, holding = self._heap, ExitStack()
        holding.callback(self.session.finish_read)
        try:
            snapshot, form = holding.enter_context(self.session.cursor())
            heap.see(snapshot.scn)
            position = self._position(column)
            row = heap.encoded_row(row_id, form)
            if row is None:
                heap.refuse_if_failed(NOT_FOUND, row_id)
            assert row is not None
            value = heap.plain_decode(row)[position]
            if value is None:
                raise DataError(f"table {heap.name}, row {row_id}: column {column} is NULL")
            assert heap.lobs is not None
            return heap.lobs.open(heap.columns[position], value, snapshot.check, lambda: self._let_go(holding))
        except BaseException:
            holding.close()
            raise

    @operation
    def _let_go(self, holding: ExitStack) -> None:
        holding.close()

    def _position(self, column: str) -> int:
        heap = self._heap
        for n, known in enumerate(heap.columns):
            if known.name in (column, column.lower()):
                if not known.type.may_be_apart:
                    raise SchemaError(f"table {heap.name}: column {known.name} is {known.type}, not BLOB or CLOB")
                return n
        raise NoSuchColumn(f"table {heap.name} has no column {column}")
