"""Connection for a client: what is composed of operations it inherits, and operations it asks the owner for.

Each operation that ``Connection`` declares has a method here of the same name, signature and documentation, made from
the declaration.  What is written out are the objects that a client has in place of the owner's: heaps, cursors, what
runs SQL.  None of the compiled code that the owner needs is loaded.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.database.connection import Connection
from gmdb.database.dbapi import Parameters, Result, sets_of
from gmdb.database.operations import Operation, composed, declarations_of, members_of
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId
from gmdb.process.late_imports import pyarrow as pa
from gmdb.server.link import Link
from gmdb.server.remote_rows import RemoteCursor, RemoteHeap, RemoteReading, leaving
from gmdb.server.wire import StepsThere, all_sent_ahead, send_ahead
from gmdb.storage.log.reports import Step
from gmdb.tables.access.indexes import KeyRange, keys_without_index

if TYPE_CHECKING:
    from gmdb.database.cursor import RowCursor


class RemoteConnection(Connection):
    """One session of a database that another process has open."""

    def __init__(self, link: Link) -> None:
        self.path = link.route.directory
        self._link = self.session = link  # type: ignore[assignment]  # it has of a session what connections use
        self._statements = RemoteStatements(link)
        self._finalizer = weakref.finalize(self, link.close)

    def _whereabouts(self) -> str:
        return f"through {self._link.route.owner}"

    def heap(self, name: str) -> RemoteHeap:
        return RemoteHeap(self._link, self._link.ask("heap", name))

    @composed
    def append(self, name: str, data: Any) -> int:
        return self.heap(name).append(data)

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
        return RemoteCursor(self._link, self.table(name), columns, by, keys, row_ids)

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
        sent = {name: send_ahead(link, value) for name, value in options.items()}
        result = link.ask(declared.name, *(send_ahead(link, value) for value in arguments), **sent)
        return _steps(link, result.number) if isinstance(result, StepsThere) else result

    return ask


def _entering_method(declared: Operation) -> Callable[..., Any]:
    @functools.wraps(declared.run)
    @contextmanager
    def enter(self: RemoteConnection, *arguments: Any, **options: Any) -> Iterator[RemoteReading | None]:
        number, scn = self._link.ask(declared.name, *arguments, **options)
        with leaving(self._link, number):
            yield None if scn is None else RemoteReading(number, scn)

    return enter


def _steps(link: Link, number: int) -> Generator[Step, None, Any]:
    """Steps that the owner takes, some at a time: yields the progress, and returns the result."""
    is_over = False
    try:
        while True:
            is_over, value = link.ask("work", number)
            if is_over:
                return value
            yield value
    finally:
        if not is_over:
            link.drop(number)


def _ask_for_operations() -> None:
    for name, member in members_of(Connection).items():
        if not declarations_of(member):
            continue
        functions: Any = [_asking_method(declared) for declared in declarations_of(member)]
        setattr(RemoteConnection, name, property(*functions) if isinstance(member, property) else functions[0])


_ask_for_operations()


class RemoteStatements:
    """Runs SQL for a client, in the owner."""

    def __init__(self, link: Link) -> None:
        self._link = self.session = link

    @composed
    def run(self, text: str, parameters: Parameters) -> Result:
        return self._result(self._link.ask("execute", text, all_sent_ahead(self._link, parameters)))

    @composed
    def run_many(self, text: str, sets: Any) -> Result:
        if not hasattr(sets, "__arrow_c_stream__"):
            sets = [all_sent_ahead(self._link, one) for one in sets_of(sets)]
        return self._result(self._link.ask("execute_many", text, sets))

    def split(self, script: str) -> list[str]:
        from gmdb.sql.parser import split  # brings the parser, which other clients do not need

        return split(script)

    def _result(self, fields: dict[str, Any]) -> Result:
        scan = fields.pop("scan", None)
        result = Result(**fields)
        if scan is None:
            return result
        return result._replace(reader=pa.RecordBatchReader.from_batches(result.schema, self._link.batches(scan)))
