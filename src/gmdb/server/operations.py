"""What a client can ask for: every operation of a connection, and what its heaps, cursors and streams need.

Operations of connections are declared where they are done (database/operations.py); all of them are served.
The others are functions of this file, of a client and the arguments that it has sent.

Invariants
 1. What is not in ``OPERATIONS`` cannot be asked for.
 2. An operation that is declared to write is refused to a session for reading only, before it begins.
 3. The client's turn is held meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator
from itertools import islice
from typing import Any, TypeVar

from gmdb.database.connection import Connection
from gmdb.database.cursor import RowCursor
from gmdb.database.dbapi import Result, run_at_once
from gmdb.database.operations import Operation, declared_in
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId
from gmdb.process.late_dataclasses import dataclass
from gmdb.server.client_session import Client, OpenScope
from gmdb.server.wire import (
    CHUNK_SIZE,
    StepsThere,
    TableThere,
    decode_patch,
    error_head,
    pack,
    pack_rows,
    row_codec,
    to_plain,
    unpack,
    unpack_rows,
    value_of,
)
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import KeyRange
from gmdb.tables.access.lob_files import OpenLob
from gmdb.tables.access.statements import RowChanged
from gmdb.tables.catalog.schema import TableDefinition

ROWS_A_TIME = 256
MESSAGE_SIZE = 4 << 20  # bytes of rows after which a message ends
LOB_READ_MAX = 1 << 20
WORK_SECONDS = 0.1
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Served:
    """What a message can ask for: a function of the client and of what it sent."""

    run: Callable[..., Any]
    writes: bool


OPERATIONS: dict[str, Served] = {}


def served(*, writes: bool = False) -> Callable[[Function], Function]:
    """Let clients ask for a function by its name."""

    def declare(function: Function) -> Function:
        OPERATIONS[function.__name__] = Served(function, writes)
        return function

    return declare


def _of_connection(declared: Operation) -> Served:
    def run(client: Client, *arguments: Any, **options: Any) -> Any:
        result = declared.run(client.connection, *arguments, **options)
        if declared.is_scope:
            return _scope_result(client.enter(result))
        return _start_steps(client, result) if isinstance(result, Generator) else result

    return Served(run, declared.writes)


OPERATIONS.update({name: _of_connection(declared) for name, declared in declared_in(Connection).items()})


def answer(client: Client, message: Any) -> bytes:
    """Do what a message asks for; an exception becomes an answer, too, and says whether anything was begun."""
    begun = False
    try:
        head, body = unpack(message)
        client.begin(int(head.get("asked", 0)))
        name = str(head.get("op"))
        if name not in OPERATIONS:
            raise InterfaceError(f"the owner of the database knows no operation {name}; is it another version of gmdb?")
        with client.turn():
            client.session.require_open()
            begun = True
            _discard(client, head.get("discard", ()))
            arguments = [value_of(plain, body) for plain in head.get("arguments", ())]
            options = value_of(head["options"], body) if "options" in head else {}
            result = _run(client, OPERATIONS[name], arguments, options)
            told = state_told(client)
        sent = bytearray()
        return pack({"result": to_plain(result, sent), **told}, sent)
    except Exception as error:
        return pack({**error_head(error), **state_told(client), "begun": begun})


def state_told(client: Client) -> dict[str, Any]:
    """What an answer tells of the session."""
    state = None if client.connection is None or client.ended else client.state_to_tell()
    return {} if state is None else {"session": state}


def _run(client: Client, operation: Served, arguments: list[Any], options: dict[str, Any]) -> Any:
    if operation.writes:
        client.session.require_writable()
    received = client.received
    try:
        return operation.run(client, *received.values(arguments), **received.values(options))
    finally:
        if received.is_used:
            received.close()


def _discard(client: Client, numbers: Any) -> None:
    """Let go of reads that the client has dropped."""
    for number in numbers:
        client.scans.pop(number, None)
        cursor: Any = client.cursors.pop(number, None)
        if cursor is not None:
            cursor.close()


def _scope_result(entered: tuple[int, Any]) -> tuple[int, int | None]:
    """A scope's number, and the instant by which it reads, if it is one."""
    number, reading = entered
    return number, None if reading is None else reading.scn


@served()
def leave(client: Client, number: int, succeeded: bool) -> None:
    client.leave(number, succeeded)


@served(writes=True)
def require_writable(client: Client) -> None:
    """Refuse a change before its stream begins."""


# ---- rows by their ids


@served()
def heap(client: Client, name: str) -> TableDefinition:
    """A table's definition; the client may then work on its rows."""
    assert client.connection is not None
    opened = client.connection.heap(name)
    client.heaps.setdefault(opened.obj_id, opened)
    return client.connection.table(name)


@served(writes=True)
def insert(client: Client, table: TableThere, row: bytes) -> RowId:
    rows = client.heap(table)
    return rows.insert(client.received.values(row_codec(rows.columns).decode(row)))


@served()
def fetch(client: Client, table: TableThere, row_id: RowId) -> bytes:
    rows = client.heap(table)
    values = rows.fetch(row_id)
    return row_codec(rows.columns).encode(values)


@served(writes=True)
def update(client: Client, table: TableThere, row_id: RowId, patch: bytes) -> None:
    rows = client.heap(table)
    rows.update(row_id, client.received.values(decode_patch(rows.columns, patch)))


@served(writes=True)
def delete(client: Client, table: TableThere, row_id: RowId) -> None:
    client.heap(table).delete(row_id)


@served(writes=True)
def lock(client: Client, table: TableThere, row_id: RowId, nowait: bool) -> None:
    client.heap(table).lock(row_id, nowait)


@served()
def share(client: Client, table: TableThere) -> None:
    client.heap(table).share()


# ---- reads, some rows at a time


@served()
def rows(client: Client, table: TableThere) -> tuple[int | None, bytes]:
    """The first rows of a read of the whole table."""
    heap = client.heap(table)
    return _first_rows(client, heap.encoded_rows() if heap.lobs is None else _encoded(heap, heap.rows()))


@served()
def rows_by_key(client: Client, table: TableThere, index: str, keys: KeyRange) -> tuple[int | None, bytes]:
    """The first rows of a range of keys."""
    heap = client.heap(table)
    return _first_rows(client, _encoded(heap, heap.by(index).walk(keys)))


def _encoded(heap: Heap, rows: Iterator[tuple[RowId, tuple[Any, ...]]]) -> Iterator[tuple[RowId, bytes]]:
    """Rows as a client gets them, by the columns that the read sees once it has begun."""
    encode = None
    for row_id, values in rows:
        encode = encode or row_codec(heap.columns).encode
        yield row_id, encode(values)


@served()
def select_rows(client: Client, name: str, columns: list[str] | None, **which: Any) -> tuple[int | None, bytes]:
    """The first rows of a cursor."""
    assert client.connection is not None
    table = client.connection.table(name)
    encode = row_codec([table.columns[n] for n in table.positions(columns)]).encode
    rows = client.connection.select(name, columns, **which).rows()
    return _first_rows(client, ((row_id, encode(values)) for row_id, values in rows))


def _first_rows(client: Client, reading: Iterator[tuple[RowId, bytes]]) -> tuple[int | None, bytes]:
    number = client.new_number()
    client.cursors[number] = reading
    return next_rows(client, number)


@served()
def next_rows(client: Client, cursor: int) -> tuple[int | None, bytes]:
    """The next rows of a read; its number, if there may be more of them."""
    reading = client.cursors.pop(cursor)
    rows: list[tuple[RowId, bytes]] = []
    size = 0
    for row_id, row in islice(reading, ROWS_A_TIME):
        rows.append((row_id, row))
        size += len(row)
        if size >= MESSAGE_SIZE:
            break
    if len(rows) == ROWS_A_TIME or size >= MESSAGE_SIZE:
        client.cursors[cursor] = reading
        return cursor, pack_rows(rows)
    return None, pack_rows(rows)


@served()
def select(client: Client, name: str, columns: list[str] | None, **which: Any) -> tuple[int, bytes]:
    """Begin a scan, on the snapshot of now; a stream of its own brings the batches."""
    assert client.connection is not None
    return _scan(client, client.connection.select(name, columns, **which).arrow())


@served()
def select_by(
    client: Client, scope: int, places: bool, name: str, columns: list[str] | None, **which: Any
) -> tuple[int, bytes]:
    """Begin a scan by an instant that the client holds."""
    assert client.connection is not None
    cursor: RowCursor = client.connection.select(name, columns, **which)
    return _scan(client, cursor.read_by(client.scopes[scope].value, places))


def _scan(client: Client, reader: Any) -> tuple[int, bytes]:
    number = client.new_number()
    client.scans[number] = reader
    return number, reader.schema.serialize().to_pybytes()


# ---- SQL


@served()
def execute(client: Client, statement: str, parameters: Any) -> dict[str, Any]:
    assert client.connection is not None
    return _result_head(
        client, run_at_once(client.connection._statements, statement, client.received.values(parameters))
    )


@served()
def execute_many(client: Client, statement: str, sets: Any) -> dict[str, Any]:
    assert client.connection is not None
    if isinstance(sets, list):
        sets = [client.received.values(one) for one in sets]
    return _result_head(client, client.connection._statements.run_many(statement, sets))


def _result_head(client: Client, result: Result) -> dict[str, Any]:
    """The result of a statement; rows come by a stream of their own."""
    head: dict[str, Any] = {"names": result.names, "types": result.types, "rowcount": result.rowcount}
    head["last_id"] = result.last_id
    if result.has_rows:
        head["scan"] = client.new_number()
        client.scans[head["scan"]] = result.as_reader()
    return head


# ---- statements over many rows


@served()
def statement(client: Client, table: TableThere) -> int:
    heap = client.heap(table)
    return client.enter(heap.statement(), heap)[0]


@served()
def statement_rows(client: Client, statement: int, first: bool) -> tuple[bool, bytes]:
    opened = client.scopes[statement]
    if first or opened.pages is None:
        opened.pages = _pages(opened)
    rows: list[tuple[RowId, bytes]] = []
    size = 0
    for page in opened.pages:
        rows += page
        size += sum(len(row) for _, row in page)
        if size >= CHUNK_SIZE:
            return True, pack_rows(rows)
    return False, pack_rows(rows)


def _pages(opened: OpenScope) -> Iterator[list[tuple[RowId, bytes]]]:
    """The rows that a statement sees, a page at a time, or one by one if they may be large."""
    assert opened.heap is not None
    if opened.heap.lobs is None:
        pages: Iterator[list[tuple[RowId, bytes]]] = opened.value.encoded_pages()
        return pages
    encode = row_codec(opened.heap.columns).encode
    return ([(row_id, encode(values))] for row_id, values in opened.value.rows())


@served(writes=True)
def statement_update(client: Client, statement: int, changed: bytes) -> None:
    opened, received = client.scopes[statement], client.received
    assert opened.heap is not None
    columns = opened.heap.columns
    changes = ((row_id, decode_patch(columns, patch)) for row_id, patch in unpack_rows(changed))
    opened.value.update((row_id, received.values(values)) for row_id, values in changes)


@served(writes=True)
def statement_delete(client: Client, statement: int, row_ids: bytes) -> None:
    client.scopes[statement].value.delete(row_id for row_id, _ in unpack_rows(row_ids))


@served(writes=True)
def statement_lock(client: Client, statement: int, row_ids: bytes, nowait: bool, skip_locked: bool) -> list[RowId]:
    wanted = (row_id for row_id, _ in unpack_rows(row_ids))
    return list(client.scopes[statement].value.lock(wanted, nowait, skip_locked))


@served()
def statement_start_over(client: Client, statement: int, changed: str) -> None:
    client.scopes[statement].value.start_over(RowChanged(changed))


# ---- large objects


class OwnerLob:
    """A large object that a client reads from."""

    def __init__(self, opened: OpenLob) -> None:
        self.opened = opened

    def close(self) -> None:
        self.opened.release()


@served()
def send_ahead(client: Client) -> int:
    """Begin a value that a later message will name."""
    number = client.new_number()
    client.received.begin(number)
    return number


@served()
def send_piece(client: Client, number: int, piece: bytes) -> None:
    client.received.add(number, piece)


@served()
def lob_open(client: Client, table: TableThere, column: str, row_id: RowId) -> tuple[int, int, bool]:
    opened = client.heap(table).open_lob(column, row_id)
    number = client.new_number()
    client.cursors[number] = OwnerLob(opened)  # type: ignore[assignment]
    return number, opened.length, opened.is_text


@served()
def lob_read(client: Client, lob: int, at: int, size: int) -> bytes:
    value = client.cursors.get(lob)
    if not isinstance(value, OwnerLob):
        raise InterfaceError("no such large object is open")
    return value.opened.read_at(at, min(size, LOB_READ_MAX))


# ---- what takes long: the client asks for a bit of it at a time, and so hears how far it is


def _start_steps(client: Client, steps: Generator[Any, None, Any]) -> StepsThere:
    number = client.new_number()
    client.cursors[number] = steps
    return StepsThere(number)


@served()
def work(client: Client, number: int) -> tuple[bool, Any]:
    """Go on for a moment; returns whether that was the end, and the result, or the progress."""
    steps: Any = client.cursors.pop(number)
    until = time.monotonic() + WORK_SECONDS
    try:
        while True:
            step = next(steps)
            if time.monotonic() > until:
                break
    except StopIteration as end:
        return True, end.value
    client.cursors[number] = steps
    return False, step


@served()
def close(client: Client) -> None:
    client.session.close()
