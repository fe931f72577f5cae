"""What a client can ask of its session: one function an operation, named as messages name it.

An operation's parameters are the fields of the message's head, and ``body`` if it has one.  It answers a head, or a
head and a body.  The turn is held meanwhile.
"""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import Any

import gmdb.server.definitions
import gmdb.server.index_operations
import gmdb.server.load_operations
import gmdb.server.lob_operations
import gmdb.server.snapshot_operations  # noqa: F401  (as well)
from gmdb.access.heap import Heap
from gmdb.access.steps import RowChanged
from gmdb.catalog.plain import table_to_plain
from gmdb.copies import verify_copy
from gmdb.dbapi import Result
from gmdb.errors import InterfaceError
from gmdb.format.address import RowId
from gmdb.server.lob_wire import row_codec
from gmdb.server.registry import OPERATIONS, Answer, connection_of, operation, require_writable
from gmdb.server.session import Client, OpenStatement
from gmdb.server.wire import (
    CHUNK_SIZE,
    decode_patch,
    error_head,
    pack,
    pack_rows,
    pack_table,
    unpack,
    unpack_parameters,
    unpack_range,
    unpack_rows,
    unpack_table,
)

ROWS_A_TIME = 256
MESSAGE_SIZE = 4 << 20  # bytes of rows after which a message ends
WORK_SECONDS = 0.1


def answer(client: Client, message: Any) -> bytes:
    """Do what a message asks for; an exception becomes an answer, too."""
    try:
        head, body = unpack(message)
        name, dropped = str(head.pop("op", None)), head.pop("discard", ())
        client.begin(int(head.pop("asked", 0)))
        if name not in OPERATIONS:
            raise InterfaceError(f"the owner of the database knows no operation {name}; is it another version of gmdb?")
        if body:
            head["body"] = body
        with client.turn():
            _discard(client, dropped)
            made = OPERATIONS[name](client, **head)
        return pack(*made) if isinstance(made, tuple) else pack(made or {})
    except Exception as error:
        return pack(error_head(error))


def _discard(client: Client, numbers: Any) -> None:
    """Let go of reads that the client has dropped."""
    for number in numbers:
        client.scans.pop(number, None)
        cursor: Any = client.cursors.pop(number, None)
        if cursor is not None:
            cursor.close()


# ---- transactions


@operation
def begin(client: Client) -> None:
    client.session.begin()


@operation
def commit(client: Client) -> None:
    client.session.commit()


@operation
def rollback(client: Client) -> None:
    client.session.rollback()


@operation
def savepoint(client: Client, name: str) -> None:
    client.session.savepoint(name)


@operation
def rollback_to(client: Client, name: str) -> None:
    client.session.rollback_to(name)


@operation
def release_savepoint(client: Client, name: str) -> None:
    client.session.release_savepoint(name)


@operation
def set_autocommit(client: Client, on: bool) -> None:
    client.session.set_autocommit(on)


@operation
def set_isolation(client: Client, level: str) -> None:
    client.session.set_isolation(level)


@operation
def in_transaction(client: Client) -> Answer:
    return {"is": client.session.in_transaction}


# ---- tables


@operation
def tables(client: Client) -> Answer:
    return {"names": connection_of(client).tables()}


@operation
def table(client: Client, name: str) -> Answer:
    return {"table": table_to_plain(connection_of(client).table(name))}


@operation
def heap(client: Client, name: str) -> Answer:
    """A table's definition; the client may then work on its rows."""
    made = connection_of(client).heap(name)
    client.heaps.setdefault(made.obj_id, made)
    return table(client, name)


# ---- rows by their ids


@operation
def insert(client: Client, table: int, body: bytes) -> Answer:
    rows = client.heaps[table]
    try:
        return {"row": rows.insert(client.received.values(row_codec(rows.columns).decode(body)))}
    finally:
        client.received.close()


@operation
def fetch(client: Client, table: int, row: list[int]) -> Answer:
    rows = client.heaps[table]
    values = rows.fetch(RowId(*row))
    return {}, row_codec(rows.columns).encode(values)


@operation
def update(client: Client, table: int, row: list[int], body: bytes) -> None:
    rows = client.heaps[table]
    try:
        rows.update(RowId(*row), client.received.values(decode_patch(rows.columns, body)))
    finally:
        client.received.close()


@operation
def delete(client: Client, table: int, row: list[int]) -> None:
    client.heaps[table].delete(RowId(*row))


@operation
def lock(client: Client, table: int, row: list[int], nowait: bool) -> None:
    client.heaps[table].lock(RowId(*row), nowait)


@operation
def share(client: Client, table: int) -> None:
    client.heaps[table].share()


@operation
def rows(client: Client, table: int, cursor: int = 0) -> Answer:
    """The first or the next rows of a read of the whole table."""
    if not cursor:
        cursor = client.new_number()
        heap = client.heaps[table]
        client.cursors[cursor] = heap.encoded_rows() if heap.lobs is None else _encoded(heap, heap.rows())
    return _next_rows(client, cursor)


def _encoded(heap: Heap, rows: Iterator[tuple[RowId, tuple[Any, ...]]]) -> Iterator[tuple[RowId, bytes]]:
    """Rows as a client gets them, by the columns that the read sees once it has begun."""
    encode = None
    for row_id, values in rows:
        encode = encode or row_codec(heap.columns).encode
        yield row_id, encode(values)


def _next_rows(client: Client, cursor: int) -> Answer:
    reading = client.cursors.pop(cursor)
    found: list[tuple[RowId, bytes]] = []
    size = 0
    for row_id, row in islice(reading, ROWS_A_TIME):
        found.append((row_id, row))
        size += len(row)
        if size >= MESSAGE_SIZE:
            break
    more = len(found) == ROWS_A_TIME or size >= MESSAGE_SIZE
    if more:
        client.cursors[cursor] = reading
    return {"cursor": cursor, "more": more}, pack_rows(found)


@operation
def rows_by_key(client: Client, table: int, index: str = "", cursor: int = 0, body: bytes = b"", **ends: Any) -> Answer:
    """The first or the next rows of a range of keys."""
    if not cursor:
        keyed = client.heaps[table].by(index)
        cursor = client.new_number()
        found = keyed.walk(unpack_range(keyed.tree.columns, body, **ends))
        client.cursors[cursor] = _encoded(client.heaps[table], found)
    return _next_rows(client, cursor)


# ---- cursors: some columns, by any way of finding rows


def _cursor(
    client: Client,
    name: str,
    columns: list[str] | None,
    by: str | None,
    row_ids: list[list[int]] | None,
    body: bytes = b"",
    **ends: Any,
) -> Any:
    keys = None
    if by is not None:
        table = connection_of(client).table(name)
        keys = unpack_range([table.columns[n] for n in table.index(by).positions], body, **ends)
    places = None if row_ids is None else [RowId(*row_id) for row_id in row_ids]
    return connection_of(client).select(name, columns, by=by, keys=keys, row_ids=places)


@operation
def select(client: Client, **what: Any) -> Answer:
    """Begin a scan, on the snapshot of now; a stream of its own brings the batches."""
    reader = _cursor(client, **what).arrow()
    number = client.new_number()
    client.scans[number] = reader
    return {"scan": number}, reader.schema.serialize().to_pybytes()


@operation
def select_rows(client: Client, cursor: int = 0, **what: Any) -> Answer:
    """The first or the next rows of a cursor."""
    if not cursor:
        table = connection_of(client).table(what["name"])
        encode = row_codec([table.columns[n] for n in table.positions(what["columns"])]).encode
        cursor = client.new_number()
        found = _cursor(client, **what).rows()
        client.cursors[cursor] = ((row_id, encode(values)) for row_id, values in found)
    return _next_rows(client, cursor)


# ---- SQL


def _told(client: Client, result: Result) -> Answer:
    """What came of a statement; rows come by a stream of their own."""
    types = [None if type_ is None else [type_.name, type_.length, type_.scale] for type_ in result.types]
    head: dict[str, Any] = {"names": list(result.names), "types": types, "rowcount": result.rowcount}
    head |= {"last_id": result.last_id, "autocommit": client.session.is_autocommit}
    if result.has_rows:
        head["scan"] = client.new_number()
        client.scans[head["scan"]] = result.as_reader()
    return head


@operation
def execute(client: Client, statement: str, parameters: Any) -> Answer:
    client.session.require_open()
    try:
        given = client.received.values(unpack_parameters(parameters))
        return _told(client, connection_of(client).run(statement, given))
    finally:
        client.received.close()


@operation
def execute_many(client: Client, statement: str, is_arrow: bool, body: bytes = b"") -> Answer:
    client.session.require_open()
    if is_arrow:
        return _told(client, connection_of(client).run_many(statement, unpack_table(body)))
    try:
        sets = [client.received.values(unpack_parameters(given)) for given in json.loads(body or b"[]")]
        return _told(client, connection_of(client).run_many(statement, sets))
    finally:
        client.received.close()


# ---- statements over many rows


@operation
def statement(client: Client, table: int) -> Answer:
    return {"statement": client.open_statement(client.heaps[table])}


@operation
def statement_rows(client: Client, statement: int, first: bool) -> Answer:
    opened = client.statements[statement]
    if first or opened.pages is None:
        opened.pages = _pages(opened)
    found: list[tuple[RowId, bytes]] = []
    size = 0
    for page in opened.pages:
        found += page
        size += sum(len(row) for _, row in page)
        if size >= CHUNK_SIZE:
            return {"more": True}, pack_rows(found)
    return {"more": False}, pack_rows(found)


def _pages(opened: OpenStatement) -> Iterator[list[tuple[RowId, bytes]]]:
    """The rows that a statement sees, a page at a time, or one by one if they may be large."""
    if opened.heap.lobs is None:
        return opened.steps.encoded_pages()
    encode = row_codec(opened.heap.columns).encode
    return ([(row_id, encode(values))] for row_id, values in opened.steps.rows())


@operation
def statement_update(client: Client, statement: int, body: bytes) -> None:
    opened = client.statements[statement]
    columns, received = opened.heap.columns, client.received
    try:
        changes = ((row_id, decode_patch(columns, patch)) for row_id, patch in unpack_rows(body))
        opened.steps.update((row_id, received.values(values)) for row_id, values in changes)
    finally:
        received.close()


@operation
def statement_delete(client: Client, statement: int, body: bytes) -> None:
    client.statements[statement].steps.delete(row_id for row_id, _ in unpack_rows(body))


@operation
def statement_lock(client: Client, statement: int, nowait: bool, skip: bool, body: bytes) -> Answer:
    row_ids = (row_id for row_id, _ in unpack_rows(body))
    return {"skipped": list(client.statements[statement].steps.lock(row_ids, nowait, skip))}


@operation
def statement_start_over(client: Client, statement: int, changed: str) -> None:
    client.statements[statement].steps.start_over(RowChanged(changed))


@operation
def statement_end(client: Client, statement: int, kept: bool) -> None:
    client.close_statement(statement, kept)


# ---- what is going on, the end


@operation
def locks(client: Client) -> Answer:
    return {}, pack_table(connection_of(client).locks())


@operation
def transactions(client: Client) -> Answer:
    return {}, pack_table(connection_of(client).transactions())


@operation
def system_view(client: Client, name: str) -> Answer:
    return {}, pack_table(connection_of(client).system_view(name))


@operation
def inspect(client: Client, name: str, arguments: list[Any], options: dict[str, Any]) -> Answer:
    return {}, pack_table(connection_of(client).inspect(name, *arguments, **options))


@operation
def index_pages(client: Client, name: str) -> Answer:
    return {}, pack_table(connection_of(client).index_pages(name))


@operation
def gc(client: Client) -> Answer:
    return {"done": connection_of(client).gc()}


@operation
def checkpoint(client: Client) -> Answer:
    require_writable(client)
    return asdict(connection_of(client).checkpoint())


@operation
def shrink(client: Client) -> Answer:
    require_writable(client)
    return {"bytes": connection_of(client).shrink()}


@operation
def set_archiving(client: Client, on: bool) -> None:
    require_writable(client)
    connection_of(client).set_archiving(on)


@operation
def recovery(client: Client) -> Answer:
    found = connection_of(client).recovery
    return {"recovery": None if found is None else asdict(found)}


@operation
def dump(client: Client, path: str) -> None:
    connection_of(client).dump(Path(path))


# ---- what takes long: the client asks for a bit of it at a time, and so hears how far it is


def _begin_work(client: Client, steps: Generator[Any, None, Any]) -> Answer:
    number = client.new_number()
    client.cursors[number] = steps
    return {"work": number}


@operation
def backup(client: Client, path: str) -> Answer:
    """Begin a backup."""

    def steps() -> Generator[Any, None, Any]:
        return asdict((yield from client.database.backup(Path(path))))

    client.session.require_open()
    return _begin_work(client, steps())


@operation
def verify(client: Client) -> Answer:
    """Begin to verify the database."""

    def steps() -> Generator[Any, None, Any]:
        return (yield from verify_copy(client.database)).document()

    client.session.require_open()
    return _begin_work(client, steps())


@operation
def work(client: Client, number: int) -> Answer:
    """Go on for a moment; answers how far that came, or what came of it all."""
    client.session.require_open()
    steps: Any = client.cursors.pop(number)
    until = time.monotonic() + WORK_SECONDS
    try:
        while True:
            step = next(steps)
            if time.monotonic() > until:
                break
    except StopIteration as end:
        return {"result": end.value}
    client.cursors[number] = steps
    return {"step": step}


@operation
def close(client: Client) -> None:
    client.session.close()
