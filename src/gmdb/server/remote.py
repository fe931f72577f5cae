"""Connection for a client: what is composed of operations it inherits, and operations it asks the owner for.

Each operation that ``Connection`` declares has a method here of the same name, signature and documentation, made from
the declaration.  What is written out are the objects that a client has in place of the owner's: heaps, cursors, what
runs SQL.  None of the compiled code that the owner needs is loaded, until this process becomes the owner: then
operations go to its own connection (``Link.local``).
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gmdb.database.connection import Connection
from gmdb.database.dbapi import Parameters, Result, documents_in, run_at_once, sets_of
from gmdb.database.operations import Again, Operation, composed, declarations_of, members_of
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId
from gmdb.process.late_imports import pyarrow as pa
from gmdb.server.channel import Channel
from gmdb.server.link import Link, again_of
from gmdb.server.remote_rows import RemoteCursor, RemoteHeap, RemoteReading, leaving
from gmdb.server.wire import Ahead, StepsThere, all_sent_ahead, send_ahead
from gmdb.storage.log.reports import Step
from gmdb.tables.access.indexes import KeyRange, keys_without_index

if TYPE_CHECKING:
    from gmdb.database.cursor import RowCursor
    from gmdb.tables.access.heap import Heap


class RemoteConnection(Connection):
    """One session of a database that another process has open."""

    def __init__(self, link: Link) -> None:
        self.path = link.route.directory
        self._link = self.session = link  # type: ignore[assignment]  # it has of a session what connections use
        self._statements = RemoteStatements(link)
        self._finalizer = weakref.finalize(self, link.close)

    def _whereabouts(self) -> str:
        return super()._whereabouts() if self._link.local is not None else f"through {self._link.route.owner}"

    def heap(self, name: str) -> Heap:
        link = self._link
        if link.local is None:
            table = link.ask("heap", name)
            if link.local is None:  # still
                return RemoteHeap(link, table)
        return link.local.heap(name)

    @composed
    def append(self, name: str, data: Any) -> int:
        heap = self.heap(name)
        return heap.append(data) if isinstance(heap, RemoteHeap) else super().append(name, data)

    def select(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        by: str | None = None,
        keys: KeyRange | None = None,
        row_ids: Sequence[RowId] | None = None,
    ) -> RowCursor:
        if by is None and keys is not None:
            raise keys_without_index(name)
        table, local = self.table(name), self._link.local
        if local is not None:
            return local.select(name, columns, by=by, keys=keys, row_ids=row_ids)
        return RemoteCursor(self._link, table, columns, by, keys, row_ids)

    def _path_there(self, path: Any) -> Path:
        """The owner's working directory is another, and so may its machine be."""
        if self._link.route.is_network and not os.path.isabs(path):
            raise InterfaceError(f"{path} is to be a path on the server's machine: give a whole one, from / on")
        return Path(os.path.abspath(path))

    def _require_files_here(self) -> None:
        if self._link.route.is_network:
            raise InterfaceError("changes are read out of the database's files, which are on the server's machine")


def _asking_method(declared: Operation) -> Callable[..., Any]:
    """The method that asks the owner for an operation."""
    if declared.is_scope:
        return _entering_method(declared)

    @composed
    @functools.wraps(declared.run)
    def ask(self: RemoteConnection, *arguments: Any, **options: Any) -> Any:
        link = self._link
        if link.local is not None:
            return declared.run(link.local, *arguments, **options)
        sent = {name: send_ahead(link, value) for name, value in options.items()}
        there, result = link.ask_for(declared.name, *(send_ahead(link, value) for value in arguments), **sent)
        return _steps(link, there, result.number) if isinstance(result, StepsThere) else result

    return ask


def _entering_method(declared: Operation) -> Callable[..., Any]:
    @functools.wraps(declared.run)
    @contextmanager
    def enter(self: RemoteConnection, *arguments: Any, **options: Any) -> Iterator[Any]:
        link = self._link
        if link.local is None:
            there, (number, scn) = link.ask_for(declared.name, *arguments, **options)
            if there.connection is None:
                with leaving(link, there, number):
                    yield None if scn is None else RemoteReading(there, number, scn)
                return
            link.ask_there(there, "leave", number, True)  # this process has become the owner just now
        with declared.run(link.local, *arguments, **options) as entered:
            yield entered

    return enter


def _steps(link: Link, there: Channel, number: int) -> Generator[Step, None, Any]:
    """Steps that the owner takes, some at a time: yields the progress, and returns the result."""
    is_over = False
    try:
        while True:
            is_over, value = link.ask_there(there, "work", number)
            if is_over:
                return value
            yield value
    finally:
        if not is_over:
            there.drop(number)


def _ask_for_operations() -> None:
    for name, member in members_of(Connection).items():
        if not declarations_of(member):
            continue
        functions: Any = [_asking_method(declared) for declared in declarations_of(member)]
        setattr(RemoteConnection, name, property(*functions) if isinstance(member, property) else functions[0])


_ask_for_operations()


_NOTHING_QUICK: Mapping[str, Any] = MappingProxyType({})  # the owner knows


class RemoteStatements:
    """Runs SQL for a client, in the owner."""

    def __init__(self, link: Link) -> None:
        self._link = self.session = link

    @property
    def quick(self) -> Mapping[str, Any]:
        local = self._link.local
        return _NOTHING_QUICK if local is None else local._statements.quick

    @composed
    def run(self, text: str, parameters: Parameters) -> Result:
        local = self._link.local
        if local is not None:
            return run_at_once(local._statements, text, parameters)
        sent = all_sent_ahead(self._link, parameters)
        there, fields = self._link.ask_for("execute", text, sent)
        scan = fields.pop("scan", None)
        result = Result(**fields, documents=documents_in(fields["types"]))
        if scan is None:
            return result
        is_ahead = any(isinstance(value, Ahead) for value in (sent.values() if isinstance(sent, dict) else sent))
        can_repeat = not is_ahead and again_of("execute", (text,)) is Again.ALWAYS
        again = functools.partial(self._again, text, parameters) if can_repeat else None
        return result._replace(reader=self._link.batches(there, scan, result.schema, again))

    def _again(self, text: str, parameters: Parameters) -> pa.RecordBatchReader:
        return self.run(text, parameters).as_reader()

    @composed
    def run_many(self, text: str, sets: Any) -> Result:
        local = self._link.local
        if local is not None:
            return local._statements.run_many(text, sets)
        if not hasattr(sets, "__arrow_c_stream__"):
            sets = [all_sent_ahead(self._link, one) for one in sets_of(sets)]
        there, fields = self._link.ask_for("execute_many", text, sets)
        scan = fields.pop("scan", None)
        result = Result(**fields, documents=documents_in(fields["types"]))
        return result if scan is None else result._replace(reader=self._link.batches(there, scan, result.schema))

    def split(self, script: str) -> list[str]:
        from gmdb.sql.parser import split  # brings the parser, which other clients do not need

        return split(script)

    def copy(self, connection: Any, text: str, file: Any) -> Result:
        """Carry out a COPY here, where its files are."""
        from gmdb.sql.copying import run_copy

        return run_copy(connection, text, file)
