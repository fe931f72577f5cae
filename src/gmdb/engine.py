"""The engine: wires store, transactions and catalog into a database, which connections share.

A process has a database open once, however many connections it makes to it.

Invariants
 1. When the last connection closes, every page is written; no page on disk holds a lock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa

from gmdb.access.heap import Heap
from gmdb.catalog.schema import FIRST_USER_ID, TableDefinition, make_columns
from gmdb.catalog.tables import Catalog
from gmdb.errors import DatabaseClosed, DatabaseInUse, SchemaError
from gmdb.kernel.locks import LockAction
from gmdb.storage.directory import is_database, require_database
from gmdb.storage.store import MAIN_SPACE, PageStore, create_store
from gmdb.transaction.hub import Transactions, create_undo_segment
from gmdb.transaction.session import Session

_open_databases: dict[Path, Database] = {}
_opening = threading.Lock()


class Database:
    """One open database directory."""

    def __init__(self, directory: Path, read_only: bool) -> None:
        new = not is_database(directory)
        if new and read_only:
            require_database(directory)
        if new:
            create_store(directory, FIRST_USER_ID)
        self.read_only = read_only
        self.connections = 0
        self.before_close: list[Callable[[], None]] = []
        self.store = PageStore(directory, read_only)
        try:
            fresh = self.store.control["ckpt_id"] == 0 and not read_only
            if fresh:
                create_undo_segment(self.store)
            self.transactions = Transactions(self.store)
            system = self.new_session("read committed", False, 5.0)
            if fresh:
                Catalog.create(self.store, system)
            self.catalog = Catalog(self.store, system)
            system.commit()
            if fresh:
                self.flush()
        except BaseException:
            self._stop()
            self.store.close()
            raise

    def new_session(self, isolation: str, autocommit: bool, lock_timeout: float) -> Session:
        return Session(self.transactions, isolation, autocommit, lock_timeout)

    # ---- definitions: each change is a transaction of its own

    def create_table(
        self, name: str, columns: dict[str, str] | list[tuple[str, str]], tablespace: str, pct_free: int
    ) -> None:
        with self.store.guard:
            self.store.require_writable()
            space = self.store.space(tablespace)
            if space.name in ("system", "undo"):
                raise SchemaError(f"table {name}: tablespace {space.name} is gmdb's own; use {MAIN_SPACE} or your own")
            self.catalog.create_table(name, make_columns(name, columns), space, pct_free)

    def drop_table(self, name: str, session: Session) -> None:
        self.store.require_writable()
        table = self.catalog.table(name)
        session.commit()  # what it changed in the table could not be taken back any more
        session.take_table_alone(table.obj_id)
        with self.store.guard:
            self.catalog.drop_table(self.catalog.table(name))

    def heap(self, name: str, session: Session) -> Heap:
        with self.store.guard:
            session.require_open()
            return self.catalog.heap(name, session)

    def table(self, name: str) -> TableDefinition:
        return self.catalog.table(name)

    # ---- what is going on

    def locks(self) -> pa.Table:
        """Every lock in use: its transaction, action and row, and the lock beneath it."""
        with self.store.guard:
            memory = self.transactions.memory
            used = memory.locks[: memory.get("lock_high")]
            ids = (used["action"] != 0).nonzero()[0]
            rows = used[ids]
            transactions = memory.transactions[rows["transaction"]]
            return pa.table(
                {
                    "lock_id": pa.array(ids, pa.uint32()),
                    "transaction": pa.array(transactions["number"], pa.int64()),
                    "action": [LockAction(int(action)).name for action in rows["action"]],
                    "page_id": pa.array(rows["row_page"], pa.uint32()),
                    "slot_id": pa.array(rows["row_slot"].astype("uint32"), pa.uint32()),
                    "previous": pa.array(rows["previous"], pa.uint32()),
                    "undo_page": pa.array(rows["undo_page"], pa.uint32()),
                    "undo_slot": pa.array(rows["undo_slot"], pa.uint32()),
                }
            )

    def transaction_table(self) -> pa.Table:
        """Every transaction that is open, or has ended and is not yet purged."""
        with self.store.guard:
            memory = self.transactions.memory
            ended = {e.slot: "rolled back" if e.scn == 0 else "committed" for e in self.transactions.collector.history}
            states = {**dict.fromkeys(self.transactions.active, "active"), **ended}
            slots = sorted(states)
            rows = memory.transactions[slots]
            return pa.table(
                {
                    "transaction": pa.array(rows["number"], pa.int64()),
                    "state": [states[slot] for slot in slots],
                    "scn": pa.array([int(s) if s > 0 else None for s in rows["scn"]], pa.int64()),
                    "locks": pa.array(rows["locks"], pa.int64()),
                }
            )

    # ---- the end

    def flush(self) -> None:
        """Write every changed page, at a moment when no transaction is open."""
        self.store.require_writable()
        self.transactions.collector.collect()  # without the guard, which it takes in small bites
        with self.store.guard:
            self.transactions.require_settled()
            self.store.control["next_transaction"] = self.transactions.memory.next_number
            self.store.flush()

    def _stop(self) -> None:
        if hasattr(self, "transactions"):
            self.transactions.stop()

    def close(self) -> None:
        """Write every page and let go of the files."""
        for leave in self.before_close:
            leave()
        self._stop()
        try:
            if self.store.devices and not self.read_only:
                for session in list(self.transactions.active.values()):
                    session.close()
                for snapshot in self.transactions.snapshots.held():
                    snapshot.cancel(DatabaseClosed(f"{self.store.directory} is closed"))
                self.flush()
        finally:
            self.store.close()


def open_database(path: Any, read_only: bool) -> Database:
    """The process's database at ``path``: the one that is open already, or one opened now."""
    directory = Path(path).absolute()
    with _opening:
        database = _open_databases.get(directory)
        if database is not None and not database.store.devices:
            del _open_databases[directory]  # a forked child's copy of its parent's
            database = None
        if database is None:
            database = _open_databases[directory] = Database(directory, read_only)
        elif database.read_only != read_only:
            how = "reading only" if database.read_only else "writing"
            raise DatabaseInUse(f"{directory} is open for {how} in this process already; close that first")
        database.connections += 1
        return database


def is_open_here(directory: Path) -> bool:
    """Whether this process has the database open."""
    database = _open_databases.get(directory)
    return database is not None and bool(database.store.devices)


def release_database(database: Database) -> None:
    """A connection is done with its database; the last one closes it."""
    with _opening:
        database.connections -= 1
        if database.connections == 0:
            directory = database.store.directory
            if _open_databases.get(directory) is database:
                del _open_databases[directory]
            database.close()
