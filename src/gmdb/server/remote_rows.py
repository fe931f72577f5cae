"""Heap, KeyedRows, cursors and statements' steps for a client: the same methods, asked of the owner.

For the type checker they are those of a process of its own; at run time they are not, so that a client needs none of
the compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from gmdb.access.indexes import EVERYTHING, IndexDefinition, KeyRange
from gmdb.access.lob_file import OpenLob
from gmdb.access.patches import Patches
from gmdb.access.steps import Changes, RowChanged, Steps
from gmdb.arrow.schema import arrow_schema, batches_of, fit_batch
from gmdb.catalog.plain import table_from_plain
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Error
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.late import pyarrow as pa
from gmdb.server.link import Link
from gmdb.server.lob_wire import LobPatches, LobRowCodec, row_codec, send_ahead
from gmdb.server.wire import in_chunks, pack_range, pack_rows, unpack_rows
from gmdb.signals import Flattened, HeldIterator
from gmdb.transaction.interrupts import operations

if TYPE_CHECKING:
    from gmdb.access.heap import Heap as _Heap
    from gmdb.access.keyed import KeyedRows as _KeyedRows
    from gmdb.cursor import Cursor as _Cursor
else:
    _Heap = _KeyedRows = _Cursor = object

CHANGES_A_TIME = 1000


@operations("decode", "encode", "read", "rows", "statement", "wanting")
class RemoteHeap(_Heap):
    """A table's rows, by row id."""

    def __init__(self, link: Link, table: TableDefinition) -> None:
        self.name = table.name
        self.obj_id = table.obj_id
        self.columns = table.columns
        self._link = self.session = link  # type: ignore[assignment]
        self._codec = row_codec(table.columns)
        self._has_lobs = table.lobs is not None
        self.encode_patch: Callable[..., bytes] = Patches(table.name, table.columns).encode
        if self._has_lobs:
            encode = LobPatches(table.name, table.columns).encode
            self.encode_patch = lambda values: encode(self._sent_ahead(values))

    def _ask(self, op: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        return self._link.ask(op, body, table=self.obj_id, **fields)

    def _sent_ahead(self, values: Any) -> Any:
        """Values, of which long ones and files are with the owner already."""
        if isinstance(values, Mapping):
            return {name: send_ahead(self._link, value) for name, value in values.items()}
        return [send_ahead(self._link, value) for value in values]

    def wanting(self, positions: Container[int] | None) -> RemoteHeap:
        """Large objects come with their rows, whoever looks at them."""
        del positions
        return self

    def open_lob(self, column: str, row_id: RowId) -> OpenLob:
        head, _ = self._ask("lob_open", column=column, row=_plain(row_id))
        link, number = self._link, head["lob"]

        def read_at(at: int, size: int) -> bytes:
            return link.ask("lob_read", lob=number, at=at, size=size)[1]

        return OpenLob(read_at, head["length"], lambda: link.drop(number), head["text"])

    def insert(self, values: Sequence[Any]) -> RowId:
        values = self._sent_ahead(values) if self._has_lobs else values
        return RowId(*self._ask("insert", self._codec.encode(values))[0]["row"])

    def fetch(self, row_id: RowId) -> tuple[Any, ...]:
        return self._codec.decode(self._ask("fetch", row=_plain(row_id))[1])

    def update(self, row_id: RowId, values: Sequence[Any] | Mapping[str, Any]) -> None:
        self._ask("update", self.encode_patch(values), row=_plain(row_id))

    def delete(self, row_id: RowId) -> None:
        self._ask("delete", row=_plain(row_id))

    def lock(self, row_id: RowId, nowait: bool = False) -> None:
        self._ask("lock", row=_plain(row_id), nowait=nowait)

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        return self.read("rows")

    def read(self, op: str, body: bytes = b"", **fields: Any) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The rows that an operation gives out some at a time."""
        return read_rows(self._link, self._codec, op, body, table=self.obj_id, **fields)

    def by(self, index: str) -> RemoteKeyedRows:
        table = table_from_plain(self._link.ask("heap", name=self.name)[0]["table"])
        if not any(known.name == index for known in table.indexes):
            self._ask("rows_by_key", index=index)  # the owner says why it is not there
        return RemoteKeyedRows(self, table.index(index))

    def share(self) -> None:
        self._ask("share")

    def encode(self, values: Sequence[Any]) -> bytes:
        return self._codec.encode(values)

    def decode(self, row: bytes) -> tuple[Any, ...]:
        return self._codec.decode(row)

    def append(self, data: Any) -> int:
        """Append Arrow data; it is brought into the table's types here, so that errors name the caller's rows."""
        self._link.ask("require_writable")
        batches = batches_of(data)
        return int(self._link.send(self.obj_id, arrow_schema(self.columns), self._fitted(batches))["rows"])

    def _fitted(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = 0
        schema = arrow_schema(self.columns)
        for batch in batches:
            arrays = fit_batch(self.name, self.columns, batch, rows)
            rows += len(batch)
            yield pa.RecordBatch.from_arrays(arrays, schema=schema)

    @contextmanager
    def statement(self) -> Iterator[Steps]:
        number = self._ask("statement")[0]["statement"]
        try:
            yield RemoteSteps(self, self._link, number)
        except BaseException:
            with suppress(Error):  # if the owner is gone, so is the statement; the first error says more
                self._link.ask("statement_end", statement=number, kept=False)
            raise
        self._link.ask("statement_end", statement=number, kept=True)


class RemoteKeyedRows(_KeyedRows):
    """A heap's rows by one of its indexes."""

    def __init__(self, heap: RemoteHeap, index: IndexDefinition) -> None:
        self.index = index
        self._remote = heap
        self._columns = [heap.columns[n] for n in index.positions]

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
        head, body = pack_range(self._columns, keys)
        return self._remote.read("rows_by_key", body, index=self.index.name, **head)


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
        self._what: dict[str, Any] = {"name": table.name, "columns": None if columns is None else list(columns)}
        self._what |= {"by": by, "row_ids": None if row_ids is None else [_plain(row_id) for row_id in row_ids]}
        self._body = b""
        if by is not None:
            index, keys = table.index(by), keys or EVERYTHING
            index.require(keys)
            head, self._body = pack_range([table.columns[n] for n in index.positions], keys)
            self._what |= head

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        return read_rows(self._link, row_codec(self._chosen), "select_rows", self._body, **self._what)

    def arrow(self) -> pa.RecordBatchReader:
        head, body = self._link.ask("select", self._body, **self._what)
        schema = pa.ipc.read_schema(pa.py_buffer(body))
        return pa.RecordBatchReader.from_batches(schema, self._link.batches(head["scan"]))


def read_rows(
    link: Link, codec: RowCodec | LobRowCodec, op: str, body: bytes = b"", **fields: Any
) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
    """The rows that an operation gives out some at a time."""
    return Flattened.of(HeldIterator(_read_pieces(link, codec, op, body, fields), link.held))


def _read_pieces(
    link: Link, codec: RowCodec | LobRowCodec, op: str, body: bytes, fields: dict[str, Any]
) -> Iterator[list[tuple[RowId, tuple[Any, ...]]]]:
    head, body = link.ask(op, body, **fields)
    again = {name: fields[name] for name in ("table",) if name in fields}
    try:
        while True:
            yield [(row_id, codec.decode(row)) for row_id, row in unpack_rows(body)]
            if not head["more"]:
                return
            head, body = link.ask(op, cursor=head["cursor"], **again)
    except GeneratorExit:
        link.drop(head["cursor"])
        raise


class RemoteSteps(Steps):
    """The steps of a statement, taken in the owner; many rows go in one message."""

    def __init__(self, heap: RemoteHeap, link: Link, number: int) -> None:
        self._remote = heap
        self._link = link
        self._number = number

    def _ask(self, op: str, body: bytes = b"", **fields: Any) -> tuple[dict[str, Any], bytes]:
        return self._link.ask(op, body, statement=self._number, **fields)

    def rows(self) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        first, more = True, True
        while more:
            head, body = self._ask("statement_rows", first=first)
            for row_id, row in unpack_rows(body):
                yield row_id, self._remote.decode(row)
            first, more = False, head["more"]

    def update(self, changes: Iterable[tuple[RowId, Changes]]) -> None:
        """Changes are collected, but whatever computes them finds those before done if it asks for anything."""
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
            head, _ = self._ask("statement_lock", chunk, nowait=nowait, skip=skip_locked)
            skipped.update(RowId(*row_id) for row_id in head["skipped"])
        return skipped

    def start_over(self, changed: RowChanged) -> None:
        self._ask("statement_start_over", changed=str(changed))


def _plain(row_id: RowId) -> list[int]:
    return [int(row_id[0]), int(row_id[1])]
