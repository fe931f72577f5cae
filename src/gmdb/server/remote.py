"""Connection for a client: the same methods, asked of the owner.

For the type checker it is a Connection, so that it sees a method that differs.  At run time it is not: a client
needs none of the compiled code that comes with that.
"""

from __future__ import annotations

import json
import os
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from gmdb import dbapi
from gmdb.access.indexes import IndexDefinition, KeyRange, keys_without_index
from gmdb.access.row_calls import ChangesRows
from gmdb.catalog.plain import column_to_plain, constraint_to_plain, index_from_plain, table_from_plain
from gmdb.catalog.schema import ColumnsGiven, Constraint, TableDefinition, make_columns
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId
from gmdb.format.columns import Column, ColumnType
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.late import pyarrow as pa
from gmdb.log.reports import BackupReport, CheckpointReport, Progress, Recovery
from gmdb.pep249 import HasErrors
from gmdb.server.link import Link
from gmdb.server.lob_wire import row_codec, send_ahead
from gmdb.server.remote_rows import RemoteCursor, RemoteHeap
from gmdb.server.wire import pack_parameters, pack_table, unpack_table
from gmdb.storage.feeds import LogPosition
from gmdb.storage.holder import Holder
from gmdb.storage.pins import Pin
from gmdb.transaction.interrupts import operations

if TYPE_CHECKING:
    from gmdb.arrow.attach import Load
    from gmdb.arrow.staging import PageFormat
    from gmdb.catalog.streams import StreamBatch
    from gmdb.connection import Connection as _Connection
    from gmdb.feed import ChangeFeed
    from gmdb.verify.findings import Report
else:

    class _Connection(ChangesRows, dbapi.RunsStatements, HasErrors):
        """What connections have in common that needs no compiled code."""


MAIN_SPACE, MAIN_PAGE_SIZE = "main", 8192


@operations("cursor", "execute", "heap", "interrupt", "select", "split")
class RemoteConnection(_Connection):
    """One session of a database that another process has open."""

    def __init__(self, link: Link, isolation: str, autocommit: bool) -> None:
        self._link = self.session = link  # type: ignore[assignment]  # for operations: it has the lock of a session
        self._isolation = isolation
        self._autocommit = autocommit
        self._finalizer: Any = weakref.finalize(self, link.close)

    @property
    def path(self) -> Path:
        return self._link.route.directory

    @property
    def closed(self) -> bool:
        return self._link.closed

    # ---- transactions

    @property
    def autocommit(self) -> bool:
        return self._autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        self._link.ask("set_autocommit", on=bool(on))
        self._autocommit = bool(on)

    @property
    def isolation(self) -> str:
        return self._isolation

    @isolation.setter
    def isolation(self, level: str) -> None:
        self._link.ask("set_isolation", level=level)
        self._isolation = level

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

    def drop_tablespace(self, name: str) -> None:
        self._link.ask("drop_tablespace", name=name)

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

    def set_change_feed(self, table: str, on: bool) -> None:
        self._link.ask("set_change_feed", table=table, on=bool(on))

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

    def append(self, name: str, data: Any) -> int:
        return self.heap(name).append(data)

    def page_format(self, table: str | None = None, tablespace: str = MAIN_SPACE) -> PageFormat:
        from gmdb.arrow.staging import PageFormat  # brings compiled code, which other clients need for nothing

        return PageFormat(**self._link.ask("page_format", table=table, tablespace=tablespace)[0])

    def attach_load(self, load: Load) -> int:
        return int(self._link.ask("attach_load", load=load.to_plain())[0]["rows"])

    def take_batch(self, load: Load, batch: StreamBatch) -> int | None:
        rows = self._link.ask("take_batch", load=load.to_plain(), batch=list(astuple(batch)))[0]["rows"]
        return None if rows is None else int(rows)

    def forget_stream(self, name: str) -> None:
        self._link.ask("forget_stream", name=name)

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

    def _require_open(self) -> None:
        self._link.require_open()

    def run(self, statement: str, parameters: dbapi.Parameters) -> dbapi.Result:
        packed = pack_parameters(self._sent_ahead(parameters))
        head, _ = self._link.ask("execute", statement=statement, parameters=packed)
        return self._result(head)

    def run_many(self, statement: str, parameters: Any) -> dbapi.Result:
        is_arrow = hasattr(parameters, "__arrow_c_stream__")
        if is_arrow:
            sets = pack_table(pa.table(parameters))
        else:
            given = [self._sent_ahead(one) for one in dbapi.sets_of(parameters)]
            sets = json.dumps([pack_parameters(one) for one in given]).encode()
        return self._result(self._link.ask("execute_many", sets, statement=statement, is_arrow=is_arrow)[0])

    def _sent_ahead(self, parameters: dbapi.Parameters) -> dbapi.Parameters:
        """Parameters, of which long ones and files are with the owner already."""
        if isinstance(parameters, Mapping):
            return {name: send_ahead(self._link, value) for name, value in parameters.items()}
        return [send_ahead(self._link, value) for value in parameters]

    def _result(self, head: dict[str, Any]) -> dbapi.Result:
        self._autocommit = bool(head["autocommit"])  # which a statement may have set
        types = tuple(None if type_ is None else ColumnType(*type_) for type_ in head["types"])
        result = dbapi.Result(tuple(head["names"]), types, head["rowcount"], last_id=head["last_id"])
        if "scan" in head:
            batches = self._link.batches(head["scan"])
            result.reader = pa.RecordBatchReader.from_batches(result.schema, batches)
        return result

    def interrupt(self) -> None:
        self._link.interrupt()

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

    def inspect(self, name: str, *arguments: Any, **options: Any) -> pa.Table:
        asked: Any = list(arguments)
        return unpack_table(self._link.ask("inspect", name=name, arguments=asked, options=options)[1])

    def index_pages(self, name: str) -> pa.Table:
        return unpack_table(self._link.ask("index_pages", name=name)[1])

    def gc(self) -> int:
        return int(self._link.ask("gc")[0]["done"])

    def dump(self, path: Any) -> None:
        self._link.ask("dump", path=self._path_there(path))

    def _path_there(self, path: Any) -> str:
        """A path for the owner, whose working directory is another, and so may its machine be."""
        if self._link.route.is_network and not os.path.isabs(path):
            raise InterfaceError(f"{path} is to be a path on the server's machine: give a whole one, from / on")
        return os.path.abspath(path)

    # ---- what lasts

    @property
    def recovery(self) -> Recovery | None:
        found = self._link.ask("recovery")[0]["recovery"]
        return None if found is None else Recovery(**found)

    def begin_index(
        self,
        name: str,
        table: str,
        columns: Sequence[str],
        *,
        unique: bool,
        load_id: str,
        lease: float | None = None,
        holder: Holder | None = None,
    ) -> tuple[IndexDefinition, Pin]:
        what: dict[str, Any] = {"name": name, "table": table, "columns": list(columns), "unique": bool(unique)}
        held = (holder or Holder.this_process()).to_plain()
        head, body = self._link.ask("begin_index", **what, load_id=load_id, lease=lease, holder=held)
        return index_from_plain(head["index"]), Pin.from_json(body)

    def finish_index(self, files: Sequence[str]) -> int:
        return int(self._link.ask("finish_index", files=list(files))[0]["entries"])

    def abandon_index(self) -> None:
        self._link.ask("abandon_index")

    def take_snapshot(self, *, lease: float | None = None, holder: Holder | None = None) -> Pin:
        held = (holder or Holder.this_process()).to_plain()
        return Pin.from_json(self._link.ask("take_snapshot", lease=lease, holder=held)[1])

    def feed_position(self) -> LogPosition:
        return LogPosition(**self._link.ask("feed_position")[0])

    def changes(
        self,
        since: str | datetime | None = None,
        tables: Sequence[str] | None = None,
        *,
        before: bool = False,
        reader: str | None = None,
        keep: int | None = None,
        snapshot: bool = False,
        without_lobs: bool = False,
    ) -> ChangeFeed:
        from gmdb.feed.opening import open_feed  # brings compiled code, which clients need for little else

        if self._link.route.is_network:
            raise InterfaceError("changes are read out of the database's files, which are on the server's machine")
        return open_feed(self, since, tables, before, reader, keep, snapshot, without_lobs)

    def drop_snapshot(self, name: str) -> None:
        self._link.ask("drop_snapshot", name=name)

    def checkpoint(self) -> CheckpointReport:
        return CheckpointReport(**self._link.ask("checkpoint")[0])

    def shrink(self) -> int:
        return int(self._link.ask("shrink")[0]["bytes"])

    def backup(self, path: Any, progress: Progress | None = None) -> BackupReport:
        return BackupReport(**self._work(progress, "backup", path=self._path_there(path)))

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


def _plain_column(column: tuple[str, str] | Column) -> list[Any]:
    return column_to_plain(column) if isinstance(column, Column) else list(column)
