"""Heap, KeyedRows, cursors and statements' steps for a client: the same methods, asked of the owner.

For the type checker they are the local classes; at run time they are not, so that a client needs none of
the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from gmdb.errors import Error
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.format.columns import as_given
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.process.late_imports import pyarrow as pa
from gmdb.process.signals import Flattened, HeldIterator
from gmdb.server.channel import Channel
from gmdb.server.link import Link
from gmdb.server.wire import (
    LobPatches,
    LobRowCodec,
    TableThere,
    all_sent_ahead,
    form_of,
    in_chunks,
    pack_rows,
    row_codec,
    unpack_rows,
)
from gmdb.tables.access.indexes import EVERYTHING, IndexDefinition, KeyRange
from gmdb.tables.access.lob_files import OpenLob
from gmdb.tables.access.patches import Patches
from gmdb.tables.access.statements import Changes, RowChanged, Steps
from gmdb.tables.arrow.arrow_types import arrow_schema, batches_of, fit_batch, with_generated
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.transaction.interrupts import operation

if TYPE_CHECKING:
    from gmdb.database.cursor import RowCursor as _Cursor
    from gmdb.tables.access.heap import Heap as _Heap
    from gmdb.tables.access.keyed import KeyedRows as _KeyedRows
else:
    _Heap = _KeyedRows = _Cursor = object

CHANGES_A_TIME = 1000


class RemoteHeap(_Heap):
    """A table's rows, by row id."""

    def __init__(self, link: Link, table: TableDefinition) -> None:
        self.name = table.name
        self.obj_id = table.obj_id
        self.columns = table.columns
        self._link = self.session = link  # type: ignore[assignment]
        columns = table.columns
        self._table: TableThere = (table.obj_id, table.name, table.number, len(columns), form_of(columns))
        self._codec = row_codec(as_given(table.columns))
        self._has_lobs = table.lobs is not None
        self.encode_patch: Callable[..., bytes] = Patches(table.name, as_given(table.columns)).encode
        if self._has_lobs:
            encode = LobPatches(table.name, as_given(table.columns)).encode
            self.encode_patch = lambda values: encode(all_sent_ahead(self._link, values))

    def _ask(self, op: str, *arguments: Any) -> Any:
        return self._link.ask(op, self._table, *arguments)

    def wanting(self, positions: Container[int] | None) -> RemoteHeap:
        """Large objects come with their rows, whether or not they are looked at."""
        del positions
        return self

    @operation
    def open_lob(self, column: str, row_id: RowId) -> OpenLob:
        link = self._link
        there, (number, length, is_text) = link.ask_for("lob_open", self._table, column, _row_id(row_id))

        def read_at(at: int, size: int) -> bytes:
            data: bytes = link.ask_there(there, "lob_read", number, at, size)
            return data

        return OpenLob(read_at, length, lambda: there.drop(number), is_text)

    @operation
    def insert(self, values: Sequence[Any]) -> RowId:
        values = all_sent_ahead(self._link, values) if self._has_lobs else values
        row_id: RowId = self._ask("insert", self._codec.encode(values))
        return row_id

    @operation
    def fetch(self, row_id: RowId) -> tuple[Any, ...]:
        return self._codec.decode(self._ask("fetch", _row_id(row_id)))

    @operation
    def update(self, row_id: RowId, values: Sequence[Any] | Mapping[str, Any]) -> None:
        self._ask("update", _row_id(row_id), self.encode_patch(values))

    @operation
    def delete(self, row_id: RowId) -> None:
        self._ask("delete", _row_id(row_id))

    @operation
    def lock(self, row_id: RowId, nowait: bool = False) -> None:
        self._ask("lock", _row_id(row_id), nowait)

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        return self.read("rows")

    def read(self, op: str, *arguments: Any) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows that an operation gives out some at a time."""
        return read_rows(self._link, self._codec, op, self._table, *arguments)

    @operation
    def by(self, index: str) -> RemoteKeyedRows:
        table = self._link.ask("heap", self.name)
        if not any(known.name == index for known in table.indexes):
            self._ask("rows_by_key", index, EVERYTHING)  # the owner says why it is not there
        return RemoteKeyedRows(self, table.index(index))

    @operation
    def share(self) -> None:
        self._ask("share")

    def encode(self, values: Sequence[Any]) -> bytes:
        return self._codec.encode(values)

    def decode(self, row: bytes) -> tuple[Any, ...]:
        return self._codec.decode(row)

    @operation
    def append(self, data: Any) -> int:
        """Append Arrow data; it is brought into the table's types here, so that errors name the caller's rows."""
        self._link.ask("require_writable")
        batches = batches_of(data)
        return int(self._link.send(self._table, arrow_schema(as_given(self.columns)), self._fitted(batches))["rows"])

    def _fitted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows, columns = 0, as_given(self.columns)
        schema = arrow_schema(columns)
        for batch in batches:
            arrays = fit_batch(self.name, columns, with_generated(columns, batch), rows)
            rows += len(batch)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def statement(self) -> Iterator[Steps]:
        there, number = self._link.ask_for("statement", self._table)
        with leaving(self._link, there, number):
            yield RemoteSteps(self, self._link, there, number)


@contextmanager
def leaving(link: Link, there: Channel, number: int) -> Iterator[None]:
    """A context manager that the owner has entered for this client under a number: leave it as this block is left."""
    with link.block():
        try:
            yield
        except BaseException:
            with suppress(Error):  # if the owner is gone, so is what was entered; the first error says more
                link.ask_there(there, "leave", number, False)
            raise
        link.ask_there(there, "leave", number, True)


@dataclass(frozen=True)
class RemoteReading:
    """An instant that the owner holds for this client."""

    there: Channel
    number: int
    scn: int


class RemoteKeyedRows(_KeyedRows):
    """A heap's rows by one of its indexes."""

    def __init__(self, heap: RemoteHeap, index: IndexDefinition) -> None:
        self.index = index
        self._remote = heap

    def find(self, key: Sequence[Any]) -> list[tuple[RowId, tuple[Any, ...]]]:
        self.index.require_columns(len(key))
        return list(self.range(key, key))

    def range(
        self,
        low: Sequence[Any] = (),
        high: Sequence[Any] = (),
        *,
        low_open: bool = False,
        high_open: bool = False,
        backwards: bool = False,
    ) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        return self.walk(KeyRange(low, high, low_open, high_open, backwards))

    def walk(self, keys: KeyRange) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        self.index.require(keys)
        return self._remote.read("rows_by_key", self.index.name, _key_range(keys))


class RemoteCursor(_Cursor):
    """Some columns of a table's rows, by one way of finding them."""

    def __init__(
        self,
        link: Link,
        table: TableDefinition,
        columns: Sequence[str] | None,
        by: str | None,
        keys: KeyRange | None,
        row_ids: Sequence[RowId] | None,
    ) -> None:
        self._link = link
        self._chosen = [table.columns[n] for n in table.positions(columns)]
        self._name, self._columns = table.name, None if columns is None else list(columns)
        self._which: dict[str, Any] = {}
        if by is not None:
            table.index(by).require(keys or EVERYTHING)
            self._which |= {"by": by, "keys": _key_range(keys or EVERYTHING)}
        if row_ids is not None:
            self._which["row_ids"] = [_row_id(row_id) for row_id in row_ids]

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        which = (self._name, self._columns, self._chosen)
        return read_rows(self._link, row_codec(self._chosen), "select_rows", *which, **self._which)

    def arrow(self) -> pa.RecordBatchReader:
        there, begun = self._link.ask_for("select", self._name, self._columns, **self._which)
        return self._reader(there, begun, self.arrow)

    def read_by(self, reading: Any, places: bool = False) -> pa.RecordBatchReader:
        if self._link.local is not None and not isinstance(reading, RemoteReading):
            return self._link.local.select(self._name, self._columns, **self._which).read_by(reading, places)
        how = (reading.number, places)
        begun = self._link.ask_there(reading.there, "select_by", *how, self._name, self._columns, **self._which)
        return self._reader(reading.there, begun)

    def _reader(
        self, there: Channel, begun: tuple[int, bytes], again: Callable[[], pa.RecordBatchReader] | None = None
    ) -> pa.RecordBatchReader:
        scan, schema = begun
        return self._link.batches(there, scan, pa.ipc.read_schema(pa.py_buffer(schema)), again)


def read_rows(
    link: Link, codec: RowCodec | LobRowCodec, op: str, *arguments: Any, **options: Any
) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
    """The rows that an operation gives out some at a time."""
    return Flattened.of(HeldIterator(_read_pieces(link, codec, op, arguments, options), link.held))


def _read_pieces(
    link: Link, codec: RowCodec | LobRowCodec, op: str, arguments: tuple[Any, ...], options: dict[str, Any]
) -> Iterator[list[tuple[RowId, tuple[Any, ...]]]]:
    there, (more, rows) = link.ask_for(op, *arguments, **options)
    try:
        while True:
            yield [(row_id, codec.decode(row)) for row_id, row in unpack_rows(rows)]
            if more is None:
                return
            more, rows = link.ask_there(there, "next_rows", more)
    except GeneratorExit:
        if more is not None:
            there.drop(more)
        raise


class RemoteSteps(Steps):
    """The steps of a statement, taken in the owner; many rows go in one message."""

    def __init__(self, heap: RemoteHeap, link: Link, there: Channel, number: int) -> None:
        self._remote = heap
        self._link = link
        self._there = there
        self._number = number

    def _ask(self, op: str, *arguments: Any) -> Any:
        return self._link.ask_there(self._there, op, self._number, *arguments)

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        first, more = True, True
        while more:
            more, rows = self._ask("statement_rows", first)
            for row_id, row in unpack_rows(rows):
                yield row_id, self._remote.decode(row)
            first = False

    def update(self, changes: Iterable[tuple[RowId, Changes]]) -> None:
        """Changes are collected and sent together, but before any other message, so that later reads see them."""
        encode = self._remote.encode_patch
        collected: list[tuple[RowId, bytes]] = []

        def send() -> None:
            if collected:
                chunk = pack_rows(collected)
                collected.clear()
                self._ask("statement_update", chunk)

        with self._link.holding_back(send):
            for row_id, values in changes:
                collected.append((row_id, encode(values)))
                if len(collected) >= CHANGES_A_TIME:
                    send()
            send()

    def delete(self, row_ids: Iterable[RowId]) -> None:
        for chunk in in_chunks((row_id, b"") for row_id in row_ids):
            self._ask("statement_delete", chunk)

    def lock(self, row_ids: Iterable[RowId], nowait: bool = False, skip_locked: bool = False) -> set[RowId]:
        skipped: set[RowId] = set()
        for chunk in in_chunks((row_id, b"") for row_id in row_ids):
            skipped.update(self._ask("statement_lock", chunk, nowait, skip_locked))
        return skipped

    def start_over(self, changed: RowChanged) -> None:
        self._ask("statement_start_over", str(changed))


def _row_id(row_id: Sequence[int]) -> RowId:
    """A row id, of which the program may have given the numbers only."""
    return RowId(*row_id)


def _key_range(keys: KeyRange) -> KeyRange:
    return replace(keys, low=tuple(keys.low), high=tuple(keys.high))
