"""Connection and Heap for a client: the same methods, asked of the owner.

For the type checker they are a Connection and a Heap, so that it sees a method that differs.  At run time they are
not: a client needs none of the compiled code that comes with those.
"""

from __future__ import annotations

import io
import json
import os
import weakref
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from gmdb import dbapi
from gmdb.access.indexes import EVERYTHING, IndexDefinition, KeyRange, keys_without_index
from gmdb.access.lob_file import OpenLob, open_file
from gmdb.access.patches import Patches
from gmdb.access.statements import Condition, Row, delete_where, select_for_update, update_where
from gmdb.access.steps import Changes, RowChanged, Steps
from gmdb.arrow.schema import arrow_schema, batches_of, fit_batch
from gmdb.catalog.schema import ColumnsGiven, Constraint, TableDefinition, make_columns
from gmdb.errors import Error
from gmdb.format.address import RowId
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column, ColumnType
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.log.reports import BackupReport, CheckpointReport, Progress, Recovery
from gmdb.server.link import Link
from gmdb.server.lob_wire import LobPatches, LobRowCodec, row_codec, send_ahead
from gmdb.server.wire import (
    column_to_plain,
    constraint_to_plain,
    in_chunks,
    pack_parameters,
    pack_range,
    pack_rows,
    table_from_plain,
    unpack_rows,
    unpack_table,
)

if TYPE_CHECKING:
    from gmdb.access.heap import Heap as _Heap
    from gmdb.access.keyed import KeyedRows as _KeyedRows
    from gmdb.connection import Connection as _Connection
    from gmdb.cursor import Cursor as _Cursor
    from gmdb.verify.findings import Report
else:
    _Heap = _KeyedRows = _Connection = _Cursor = object

MAIN_SPACE, MAIN_PAGE_SIZE = "main", 8192
CHANGES_A_TIME = 1000


class RemoteConnection(_Connection):
    """One session of a database that another process has open."""

    def __init__(self, link: Link, autocommit: bool) -> None:
        self._link = link
        self._autocommit = autocommit
        self._finalizer: Any = weakref.finalize(self, link.close)

    @property
    def path(self) -> Path:
        return self._link.directory

    # ---- transactions

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        self._link.ask("set_autocommit", on=bool(on))
        self._autocommit = on

    @property
    def in_transaction(self) -> bool:
        return not self._link.closed and bool(self._link.ask("in_transaction")[0]["is"])

    def begin(self) -> None:
        self._link.ask("begin")

    def commit(self) -> None:
        self._link.ask("commit")

    def rollback(self) -> None:
        self._link.ask("rollback")

    def savepoint(self, name: str) -> None:
        self._link.ask("savepoint", name=name)

    def rollback_to(self, name: str) -> None:
        self._link.ask("rollback_to", name=name)

    def release_savepoint(self, name: str) -> None:
        self._link.ask("release_savepoint", name=name)

    # ---- definitions

    def create_tablespace(
        self, name: str, *, page_size: int = MAIN_PAGE_SIZE, devices: int = 1, device_pages_max: int = 0
    ) -> None:
        self._link.ask(
            "create_tablespace", name=name, page_size=page_size, devices=devices, device_pages_max=device_pages_max
        )

    def create_table(
        self,
        name: str,
        columns: ColumnsGiven,
        *,
        constraints: Sequence[Constraint] = (),
        tablespace: str = MAIN_SPACE,
        pct_free: int = DEFAULT_PCT_FREE,
    ) -> None:
        given = list(columns.items()) if isinstance(columns, Mapping) else list(columns)
        plain = [_plain_column(column) for column in given]
        kept = [constraint_to_plain(constraint) for constraint in constraints]
        options: dict[str, Any] = {"tablespace": tablespace, "pct_free": pct_free}
        self._link.ask("create_table", name=name, columns=plain, constraints=kept, **options)

    def drop_table(self, name: str) -> None:
        self._link.ask("drop_table", name=name)

    def truncate_table(self, name: str, *, restart_identity: bool = False) -> None:
        self._link.ask("truncate_table", name=name, restart_identity=restart_identity)

    def rename_table(self, name: str, new_name: str) -> None:
        self._link.ask("rename_table", name=name, new_name=new_name)

    def add_column(self, table: str, column: Column | tuple[str, str], value: Any = None) -> None:
        (made,) = make_columns(table, [column])
        body = b"" if value is None else row_codec([made]).encode([send_ahead(self._link, value)])
        self._link.ask("add_column", body, table=table, column=column_to_plain(made))

    def rename_column(self, table: str, column: str, new_name: str, *, checks: Mapping[str, str] | None = None) -> None:
        self._link.ask("rename_column", table=table, column=column, new_name=new_name, checks=dict(checks or {}))

    def alter_column(self, table: str, column: str, **changes: Any) -> None:
        self._link.ask("alter_column", table=table, column=column, changes=changes)

    def add_constraint(self, table: str, constraint: Constraint) -> None:
        self._link.ask("add_constraint", table=table, constraint=constraint_to_plain(constraint))

    def drop_constraint(self, table: str, name: str) -> None:
        self._link.ask("drop_constraint", table=table, name=name)

    def next_identity(self, table: str, column: str, count: int = 1) -> int:
        return int(self._link.ask("next_identity", table=table, column=column, count=count)[0]["first"])

    def create_index(
        self, name: str, table: str, columns: Sequence[str], *, unique: bool = False, using: str = "btree"
    ) -> None:
        self._link.ask("create_index", name=name, table=table, columns=list(columns), unique=unique, using=using)

    def drop_index(self, name: str) -> None:
        self._link.ask("drop_index", name=name)

    def tables(self) -> list[str]:
        return list(self._link.ask("tables")[0]["names"])

    def table(self, name: str) -> TableDefinition:
        return table_from_plain(self._link.ask("table", name=name)[0]["table"])

    # ---- rows

    def heap(self, name: str) -> RemoteHeap:
        return RemoteHeap(self._link, table_from_plain(self._link.ask("heap", name=name)[0]["table"]))

    def open_lob(self, table: str, column: str, row_id: RowId) -> io.BufferedReader | io.TextIOWrapper:
        return open_file(self.heap(table).open_lob(column, row_id))

    def insert(self, name: str, values: Sequence[Any]) -> RowId:
        return self.heap(name).insert(values)

    def update(
        self, name: str, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]], where: Condition = None
    ) -> int:
        return update_where(self.heap(name), changes, where)

    def delete(self, name: str, where: Condition = None) -> int:
        return delete_where(self.heap(name), where)

    def select_for_update(
        self, name: str, where: Condition = None, *, nowait: bool = False, skip_locked: bool = False
    ) -> list[tuple[RowId, Row]]:
        return select_for_update(self.heap(name), where, nowait, skip_locked)

    def append(self, name: str, data: Any) -> int:
        return self.heap(name).append(data)

    def arrow(self, name: str, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        return self.select(name, columns).arrow()

    def select(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        by: str | None = None,
        keys: KeyRange | None = None,
        row_ids: Sequence[RowId] | None = None,
    ) -> RemoteCursor:
        if by is None and keys is not None:
            raise keys_without_index(name)
        return RemoteCursor(self._link, self.table(name), columns, by, keys, row_ids)

    # ---- SQL

    def cursor(self) -> dbapi.Cursor:
        self._link.require_open()
        return dbapi.Cursor(self)

    def execute(self, statement: str, parameters: dbapi.Parameters = ()) -> dbapi.Cursor:
        return self.cursor().execute(statement, parameters)

    def executemany(self, statement: str, parameters: Any) -> dbapi.Cursor:
        return self.cursor().executemany(statement, parameters)

    def run(self, statement: str, parameters: dbapi.Parameters) -> dbapi.Result:
        packed = pack_parameters(self._sent_ahead(parameters))
        head, _ = self._link.ask("execute", statement=statement, parameters=packed)
        return self._result(head)

    def run_many(self, statement: str, parameters: Any) -> dbapi.Result:
        given = [self._sent_ahead(one) for one in dbapi.sets_of(parameters)]
        sets = json.dumps([pack_parameters(one) for one in given]).encode()
        return self._result(self._link.ask("execute_many", sets, statement=statement)[0])

    def _sent_ahead(self, parameters: dbapi.Parameters) -> dbapi.Parameters:
        """Parameters, of which long ones and files are with the owner already."""
        if isinstance(parameters, Mapping):
            return {name: send_ahead(self._link, value) for name, value in parameters.items()}
        return [send_ahead(self._link, value) for value in parameters]

    def _result(self, head: dict[str, Any]) -> dbapi.Result:
        types = tuple(None if type_ is None else ColumnType(*type_) for type_ in head["types"])
        result = dbapi.Result(tuple(head["names"]), types, head["rowcount"])
        if "scan" in head:
            batches = self._link.batches(head["scan"])
            result.reader = pa.RecordBatchReader.from_batches(result.schema, batches)
        return result

    def split(self, script: str) -> list[str]:
        from gmdb.sql.parser import split  # brings the parser, which other clients do not need

        return split(script)

    # ---- what is going on

    def locks(self) -> pa.Table:
        return unpack_table(self._link.ask("locks")[1])

    def transactions(self) -> pa.Table:
        return unpack_table(self._link.ask("transactions")[1])

    def system_view(self, name: str) -> pa.Table:
        return unpack_table(self._link.ask("system_view", name=name)[1])

    def index_pages(self, name: str) -> pa.Table:
        return unpack_table(self._link.ask("index_pages", name=name)[1])

    def gc(self) -> int:
        return int(self._link.ask("gc")[0]["done"])

    def dump(self, path: Any) -> None:
        self._link.ask("dump", path=os.path.abspath(path))

    # ---- what lasts

    @property
    def recovery(self) -> Recovery | None:
        found = self._link.ask("recovery")[0]["recovery"]
        return None if found is None else Recovery(**found)

    def checkpoint(self) -> CheckpointReport:
        return CheckpointReport(**self._link.ask("checkpoint")[0])

    def shrink(self) -> int:
        return int(self._link.ask("shrink")[0]["bytes"])

    def backup(self, path: Any, progress: Progress | None = None) -> BackupReport:
        return BackupReport(**self._work(progress, "backup", path=os.path.abspath(path)))

    def set_archiving(self, on: bool) -> None:
        self._link.ask("set_archiving", on=bool(on))

    def verify(self, progress: Progress | None = None) -> Report:
        from gmdb.verify.findings import Report  # brings compiled code, which clients need for nothing else

        return Report.from_document(self._work(progress, "verify"))

    def _work(self, progress: Progress | None, op: str, **fields: Any) -> Any:
        """Have the owner do something that takes long, a bit at a time."""
        number = self._link.ask(op, **fields)[0]["work"]
        try:
            while True:
                head, _ = self._link.ask("work", number=number)
                if "result" in head:
                    return head["result"]
                if progress is not None:
                    progress(*head["step"])
        except BaseException:
            self._link.drop(number)
            raise

    # ---- the end

    def close(self) -> None:
        self._finalizer()

    def __enter__(self) -> RemoteConnection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None and not self._link.closed:
                self.commit()
        finally:
            self.close()


class RemoteHeap(_Heap):
    """A table's rows, by row id."""

    def __init__(self, link: Link, table: TableDefinition) -> None:
        self.name = table.name
        self.obj_id = table.obj_id
        self.columns = table.columns
        self._link = link
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

    def want_lobs(self, positions: Container[int] | None) -> None:
        """Large objects come with their rows."""

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
    head, body = link.ask(op, body, **fields)
    again = {name: fields[name] for name in ("table",) if name in fields}
    try:
        while True:
            for row_id, row in unpack_rows(body):
                yield row_id, codec.decode(row)
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


def _plain_column(column: tuple[str, str] | Column) -> list[Any]:
    return column_to_plain(column) if isinstance(column, Column) else list(column)


def _plain(row_id: RowId) -> list[int]:
    return [int(row_id[0]), int(row_id[1])]
