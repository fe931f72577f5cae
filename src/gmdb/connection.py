"""A connection: a program's way into a database, with one session.

Changes belong to a transaction until ``commit``; ``close`` without it rolls back.  As a context manager a
connection commits at the end of its block, rolls back if that fails, and closes.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from gmdb import dbapi, signals
from gmdb.access.heap import Heap
from gmdb.access.indexes import KeyRange
from gmdb.access.row_calls import ChangesRows
from gmdb.arrow.append import append
from gmdb.arrow.scan import Reading
from gmdb.catalog.schema import ColumnsGiven, Constraint, TableDefinition, make_columns
from gmdb.catalog.statistics import TableStatistics
from gmdb.copies import verify_copy
from gmdb.cursor import Cursor, open_cursor
from gmdb.engine import Database, open_database, release_database
from gmdb.feed.opening import ReadsChanges
from gmdb.format.address import RowId
from gmdb.format.columns import Column
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.late import pyarrow as pa
from gmdb.log.backup import finish
from gmdb.log.reports import BackupReport, CheckpointReport, Progress, Recovery
from gmdb.pep249 import HasErrors
from gmdb.signals import held, held_to_finalize
from gmdb.staged_index import BuildsIndexes, StagedIndex, abandon_all
from gmdb.staged_loads import TakesLoads
from gmdb.storage.holder import Holder
from gmdb.storage.pins import Pin
from gmdb.storage.store import MAIN_PAGE_SIZE, MAIN_SPACE
from gmdb.transaction.interrupts import operations
from gmdb.transaction.session import Session

if TYPE_CHECKING:
    from gmdb.verify import Report


def _close(database: Database, session: Session, builds: list[StagedIndex]) -> None:
    with held_to_finalize:
        try:
            if database.store.devices:
                with session.ended_soon():
                    abandon_all(builds)
                    session.close()
        finally:
            release_database(database)


class Statements(Protocol):
    """What runs SQL on a connection."""

    def run(self, text: str, parameters: dbapi.Parameters) -> dbapi.Result: ...

    def run_many(self, text: str, sets: Any) -> dbapi.Result: ...

    def split(self, script: str) -> list[str]: ...


# Not operations: what tells or hands out something only, and what runs statements, which are operations themselves.
@operations(
    "all_or_nothing", "arrow", "close", "cursor", "execute", "executemany", "executescript", "heap", "insert",
    "interrupt", "keep_statistics", "one_snapshot", "run", "run_many", "select", "split", "statistics", "table",
    "tables",
)  # fmt: skip
class Connection(ChangesRows, dbapi.RunsStatements, TakesLoads, BuildsIndexes, ReadsChanges, HasErrors):
    """One session of a database.  Threads may share it: their calls take turns, and so do their transactions' parts."""

    def __init__(
        self,
        path: Any,
        *,
        isolation: str,
        autocommit: bool,
        lock_timeout: float,
        read_only: bool,
        sync: str | None,
        progress: Progress | None,
        statements: Callable[[Connection], Statements],
    ) -> None:
        """``statements`` makes what runs SQL on the connection."""
        with held:
            self._open(path, isolation, autocommit, lock_timeout, read_only, sync, progress)
            self._heaps: dict[str, Heap] = {}
            self._use(statements(weakref.proxy(self)))
            self._builds = []
            self._finalizer = weakref.finalize(self, _close, self._database, self.session, self._builds)

    def _open(
        self,
        path: Any,
        isolation: str,
        autocommit: bool,
        lock_timeout: float,
        read_only: bool,
        sync: str | None,
        progress: Progress | None,
    ) -> None:
        self._database = open_database(path, read_only, sync, progress)
        try:
            self.session = self._database.new_session(isolation, autocommit, lock_timeout)
        except BaseException:
            release_database(self._database)
            raise

    def _use(self, statements: Statements) -> None:
        self._statements = statements
        self.run = statements.run  # type: ignore[assignment, method-assign]  # without a detour

    @property
    def path(self) -> Path:
        return self._database.store.directory

    @property
    def closed(self) -> bool:
        return self.session.closed

    # ---- transactions

    @property
    def autocommit(self) -> bool:
        """Whether a statement is a transaction of its own, unless one was begun."""
        return self.session.is_autocommit

    @autocommit.setter
    def autocommit(self, on: bool) -> None:
        self.session.set_autocommit(on)

    @property
    def isolation(self) -> str:
        """ "read committed" or "repeatable read"; it changes between transactions only."""
        return self.session.isolation

    @isolation.setter
    def isolation(self, level: str) -> None:
        self.session.set_isolation(level)

    @property
    def in_transaction(self) -> bool:
        return self.session.in_transaction

    def begin(self) -> None:
        self.session.begin()

    def commit(self) -> None:
        self.session.commit()

    def rollback(self) -> None:
        self.session.rollback()

    def savepoint(self, name: str) -> None:
        """Mark a place in the transaction to which ``rollback_to`` can return."""
        self.session.savepoint(name)

    def rollback_to(self, name: str) -> None:
        self.session.rollback_to(name)

    def release_savepoint(self, name: str) -> None:
        self.session.release_savepoint(name)

    # ---- definitions

    def create_tablespace(
        self, name: str, *, page_size: int = MAIN_PAGE_SIZE, devices: int = 1, device_pages_max: int = 0
    ) -> None:
        """Add a tablespace of one or more devices, with pages of 8, 16 or 32 KiB."""
        self.session.require_open()
        with self._database.store.guard:
            self._database.store.create_tablespace(name, page_size, devices, device_pages_max)

    def drop_tablespace(self, name: str) -> None:
        """Remove a tablespace that has no tables any more, and its files.  It is no part of the transaction."""
        self.session.require_open()
        self._database.drop_tablespace(name)

    def create_table(
        self,
        name: str,
        columns: ColumnsGiven,
        *,
        constraints: Sequence[Constraint] = (),
        tablespace: str = MAIN_SPACE,
        pct_free: int = DEFAULT_PCT_FREE,
    ) -> None:
        """Add a table: ``create_table("tbl", {"i": "INT NOT NULL", "s": "VARCHAR(10)"})``.

        This and the other changes of definitions belong to the transaction: others see them when it commits, and
        whoever changes a table has it alone until then.
        """
        with self._database.define(self.session) as change:
            change.create_table(name, make_columns(name, columns), constraints, tablespace, pct_free)

    def drop_table(self, name: str) -> None:
        """Remove a table, once no other transaction uses it."""
        with self._database.define(self.session) as change:
            change.drop_table(name)

    def truncate_table(self, name: str, *, restart_identity: bool = False) -> None:
        """Take all rows away at once, whatever their number."""
        with self._database.define(self.session) as change:
            change.truncate_table(name, restart_identity)

    def rename_table(self, name: str, new_name: str) -> None:
        with self._database.define(self.session) as change:
            change.rename_table(name, new_name)

    def add_column(self, table: str, column: Column | tuple[str, str], value: Any = None) -> None:
        """Add a last column, ``("c", "INT")``.  Rows that are there have NULL in it, at no cost, or get ``value``."""
        with self._database.define(self.session) as change:
            change.add_column(table, make_columns(table, [column])[0], value)

    def rename_column(self, table: str, column: str, new_name: str, *, checks: Mapping[str, str] | None = None) -> None:
        """Give a column another name; ``checks`` has, by their names, what the table's checks say from now on."""
        with self._database.define(self.session) as change:
            change.rename_column(table, column, new_name, checks or {})

    def alter_column(self, table: str, column: str, **changes: Any) -> None:
        """Change a column's ``default`` (None: it has none any more) or whether it is ``nullable``."""
        with self._database.define(self.session) as change:
            change.alter_column(table, column, changes)

    def add_constraint(self, table: str, constraint: Constraint) -> None:
        """Add a constraint; a primary key or a unique constraint brings an index of its name."""
        with self._database.define(self.session) as change:
            change.add_constraint(table, constraint)

    def drop_constraint(self, table: str, name: str) -> None:
        with self._database.define(self.session) as change:
            change.drop_constraint(table, name)

    def set_change_feed(self, table: str, on: bool) -> None:
        """Log a table's changes for readers from the transaction's commit on, or no more; see ``changes``."""
        with self._database.define(self.session) as change:
            change.set_change_feed(table, on)

    def next_identity(self, table: str, column: str, count: int = 1) -> int:
        """The first of ``count`` numbers of an identity column.  Nobody else gets them, also if they are not used."""
        return self._database.next_identity(table, column, count, self.session)

    def create_index(
        self, name: str, table: str, columns: Sequence[str], *, unique: bool = False, using: str = "btree"
    ) -> None:
        """Add an index on some columns of a table, once no other transaction uses it.

        A ``"btree"`` finds keys, ranges of them and their first columns; a ``"hash"`` index only whole keys.
        With autocommit, others go on using the table meanwhile, but for two moments.
        """
        self._database.create_index(name, table, columns, unique, using, self.session)

    def drop_index(self, name: str) -> None:
        """Remove an index, once no other transaction uses its table."""
        with self._database.define(self.session) as change:
            change.drop_index(name)

    def tables(self) -> list[str]:
        """The names of the tables that were created here."""
        self.session.require_open()
        return self._database.catalog.user_tables(self.session)

    def table(self, name: str) -> TableDefinition:
        """A table's definition."""
        return self._database.table(name, self.session)

    # ---- rows

    def heap(self, name: str) -> Heap:
        """A table's rows one by one: insert, fetch, update, delete by row id."""
        self.session.require_open()
        heap = self._heaps.get(name)
        if heap is None or heap.definition is not self._database.table(name, self.session):
            heap = self._heaps[name] = self._database.heap(name, self.session)
        return heap

    def append(self, name: str, data: Any) -> int:
        """Append Arrow data (a Table, batches, a reader, …), all of it or nothing; answers the number of rows."""
        return append(self.heap(name), data)

    def arrow(self, name: str, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """A table's rows, or some of its columns, as a stream of record batches, all of one instant."""
        return self.select(name, columns).arrow()

    def select(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        by: str | None = None,
        keys: KeyRange | None = None,
        row_ids: Sequence[RowId] | None = None,
    ) -> Cursor:
        """A cursor over a table's rows: all of them, a range of the keys of index ``by``, or those with some row ids.

        ``select("tbl", ["i"], by="tbl_i", keys=KeyRange((1,), (9,))).arrow()``, or ``.rows()`` for one at a time.
        """
        return open_cursor(self.heap(name), self._database.table(name, self.session), columns, by, keys, row_ids)

    # ---- SQL

    def _require_open(self) -> None:
        self.session.require_open()

    def run(self, statement: str, parameters: dbapi.Parameters) -> dbapi.Result:
        """Run a statement; what came of it is for a cursor to hand out."""
        return self._statements.run(statement, parameters)

    def run_many(self, statement: str, parameters: Any) -> dbapi.Result:
        return self._statements.run_many(statement, parameters)

    def interrupt(self) -> None:
        """End the statement that is running, or being read; it raises StatementInterrupted and has done nothing.

        For another thread, or a signal handler.  The transaction goes on; a commit is not interrupted.
        """
        self.session.interrupt()

    def split(self, script: str) -> list[str]:
        """The statements of a script."""
        return self._statements.split(script)

    def statistics(self, name: str) -> TableStatistics | None:
        """What ANALYZE found out about a table; None if nothing."""
        return self._database.catalog.statistics.of(self.table(name).number)

    def keep_statistics(self, name: str, found: TableStatistics) -> None:
        self._database.catalog.statistics.keep(self.table(name).number, found)

    @property
    def statistics_version(self) -> int:
        """Another number whenever statistics have changed."""
        return self._database.catalog.statistics.version

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """What happens within happens whole or, if it fails, not at all; the transaction goes on either way."""
        with self.session.statement():
            yield

    @contextmanager
    def one_snapshot(self, scn: int | None = None) -> Iterator[Reading]:
        """An instant by which several cursors read; ``scn``: that of a statement which is running."""
        try:
            with self.session.cursor(scn) as (snapshot, form):
                yield Reading(form, snapshot)
        except Exception:
            self.session.finish_read()  # with autocommit, a read that fails holds no table any more
            raise
        self.session.finish_read()

    # ---- what is going on

    def locks(self) -> pa.Table:
        """Every lock in use: its transaction, action and row, and the lock beneath it."""
        return self._database.locks()

    def transactions(self) -> pa.Table:
        """Every transaction that is open, or has ended and is not yet purged."""
        return self._database.transaction_table()

    def system_view(self, name: str) -> pa.Table:
        """What a system table would say of definitions as this session sees them, or of what is going on right now."""
        self.session.require_open()
        return self._database.system_view(name, self.session)

    def inspect(self, name: str, *arguments: Any, **options: Any) -> pa.Table:
        """What ``gmstat`` lists, by its name, of pages as they are in memory: ``inspect("rows", "tbl")``."""
        self.session.require_open()
        return self._database.inspect(name, *arguments, **options)

    def index_pages(self, name: str) -> pa.Table:
        """The pages of an index as they are in memory at one instant, the entry page of its segment first."""
        self.session.require_open()
        return self._database.index_pages(name)

    def gc(self) -> int:
        """Take away versions that no snapshot needs; answers how many transactions were cleaned up after."""
        self.session.require_open()
        return self._database.transactions.collector.collect()

    def dump(self, path: Any) -> None:
        """Write all pages as they are in memory, uncommitted changes and undo included, for gmstat to look at.

        The copy is not a backup: it cannot be opened.
        """
        self.session.require_open()
        with self._database.store.guard:
            self._database.store.dump(Path(path))

    # ---- what lasts

    @property
    def recovery(self) -> Recovery | None:
        """What opening the database had to do because it was not closed before; None: nothing."""
        return self._database.recovery

    def take_snapshot(self, *, lease: float | None = None, holder: Holder | None = None) -> Pin:
        """Pin the database as it is now, for readers in other processes: it stays readable while everybody goes on.

        It lasts for ``lease`` seconds behind the last read by it, and not longer than the process of ``holder`` lives.
        """
        pin = self._database.take_snapshot(lease, holder or Holder.this_process())
        try:
            signals.check()
        except BaseException:  # nobody learns its name
            self._database.drop_snapshot(pin.name)
            raise
        return pin

    def drop_snapshot(self, name: str) -> None:
        """Let a pinned snapshot go; whoever still reads by it is told that it has expired."""
        self._database.drop_snapshot(name)

    def checkpoint(self) -> CheckpointReport:
        """Write every changed page to its place, so that less has to be replayed after a crash."""
        self.session.require_open()
        return self._database.checkpoint()

    def shrink(self) -> int:
        """Give free pages at the end of the files back to the operating system; answers how many bytes."""
        self.session.require_open()
        return self._database.shrink()

    def backup(self, path: Any, progress: Progress | None = None) -> BackupReport:
        """Copy the database as it is at one instant to a new directory; everybody goes on meanwhile.

        Open transactions have left nothing in it.  ``gmdb restore`` makes a database out of it.
        """
        self.session.require_open()
        report: BackupReport = finish(self._database.backup(Path(path).absolute()), progress)
        return report

    def set_archiving(self, on: bool) -> None:
        """Keep the log in the folder archive when it is needed no more, so that backups can be brought to any time."""
        self.session.require_open()
        self._database.set_archiving(on)

    def verify(self, progress: Progress | None = None) -> Report:
        """Check everything about the database as it is at one instant; what is wrong is in the report's ``findings``.

        It is a backup that is checked, and removed afterwards: there must be room for it beside the database.
        """
        self.session.require_open()
        report: Report = finish(verify_copy(self._database), progress)
        return report

    # ---- the end

    def close(self) -> None:
        """Roll back what is not committed; the last connection writes every page.  Closing twice does nothing.

        What another thread does with the connection ends.
        """
        with held:
            self._finalizer()

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with held:
            try:
                if kind is None and not self.session.closed:
                    self.commit()
            finally:
                self.close()
