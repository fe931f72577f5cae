"""A connection: a program's way into a database, with one session.

Changes belong to a transaction until ``commit``; ``close`` without it rolls back.  As a context manager a
connection commits at the end of its block, rolls back if that fails, and closes.

A method is an operation, which works on the database, or is composed of operations (database/operations.py says what
follows from that).  A client of another process inherits what is composed and asks for operations (server/remote.py),
so this module brings no compiled code: what needs it imports it when it is called.

Names with an underscore are for the server, SQL and Spark.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, cast

from gmdb.database import dbapi
from gmdb.database.alterations import Alterations
from gmdb.database.key_operations import KeyOperations
from gmdb.database.operations import Again, composed, operation, scope
from gmdb.database.pep249 import HasErrors
from gmdb.database.schema_operations import HasSchemas
from gmdb.database.transaction_modes import HasTransactionModes
from gmdb.database.view_operations import HasViews
from gmdb.errors import Error, InterfaceError
from gmdb.format.address import MAIN_PAGE_SIZE, MAIN_SPACE, RowId
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.process import signals
from gmdb.process.signals import held, held_to_finalize
from gmdb.storage.documents import Holder
from gmdb.storage.log.reports import BackupReport, CheckpointReport, Progress, Recovery, Step, finish
from gmdb.storage.pins import Pin
from gmdb.tables.access.indexes import NewIndex
from gmdb.tables.access.lob_files import File, open_file
from gmdb.tables.access.statements import Condition, Row, delete_where, select_for_update, update_where
from gmdb.tables.catalog.schema import ColumnsGiven, Constraint, TableDefinition, make_columns

if TYPE_CHECKING:
    import pyarrow as pa

    from gmdb.database.cursor import RowCursor
    from gmdb.database.engine import Database
    from gmdb.database.feed import ChangeFeed
    from gmdb.database.staged import StagedIndex
    from gmdb.storage.feeds import LogPosition
    from gmdb.tables.access.heap import Heap
    from gmdb.tables.access.indexes import IndexDefinition, KeyRange
    from gmdb.tables.arrow.attach import Load
    from gmdb.tables.arrow.scan import Reading
    from gmdb.tables.arrow.staging import PageFormat
    from gmdb.tables.catalog.system import StreamBatch, TableStatistics
    from gmdb.transaction.session import Session
    from gmdb.verify import Report

Isolation = Literal["read committed", "repeatable read", "serializable"]


class Connection(Alterations, KeyOperations, HasErrors, HasSchemas, HasViews, HasTransactionModes):
    """One session of a database.  Threads may share it: their calls take turns, all in one transaction."""

    def __init__(
        self,
        database: Database,
        session: Session,
        statements: Callable[[Connection], dbapi.Statements],
        release: Callable[[Database, bool], None] | None = None,
    ) -> None:
        """``statements`` makes what runs SQL on the connection; ``release`` lets go of the database at the end, and is
        told whether it may wait.

        Without ``release`` the connection is a client's, in the owner, and ends with the client.
        """
        self.path: Path = database.store.directory
        self.session = session
        self._database = database
        self._heaps: dict[str, Heap] = {}
        self._builds: list[StagedIndex] = []  # one at a time
        self._statements = statements(weakref.proxy(self))
        if release is not None:
            self._finalizer: Any = weakref.finalize(self, _close, database, session, self._builds, release, waits=False)

    def __repr__(self) -> str:
        state = "closed" if self.closed else self._whereabouts()
        return f"<gmdb.Connection to {self.path}, {state}>"

    def _whereabouts(self) -> str:
        return "open in this process"

    @property
    def closed(self) -> bool:
        return self.session.closed

    def interrupt(self) -> None:
        """End the statement that is running, or being read; it raises StatementInterrupted and has done nothing.

        For another thread, or a signal handler.  The transaction goes on; a commit is not interrupted.
        """
        self.session.interrupt()

    # ---- transactions

    @property
    @operation()
    def autocommit(self) -> bool:
        """Whether a statement is a transaction of its own, unless one was begun."""
        return self.session.is_autocommit

    @autocommit.setter
    @operation(name="set_autocommit", again=Again.COMMITS)
    def autocommit(self, on: bool) -> None:
        self.session.set_autocommit(bool(on))

    @property
    @operation()
    def isolation(self) -> Isolation:
        """ "read committed", "repeatable read" or "serializable"; it changes between transactions only."""
        return cast(Isolation, self.session.isolation)

    @isolation.setter
    @operation(name="set_isolation")
    def isolation(self, level: Isolation) -> None:
        self.session.set_isolation(level)

    @property
    def in_transaction(self) -> bool:
        """Whether something is open that ``commit`` would end."""
        return not self.closed and self._in_transaction()

    @operation()
    def _in_transaction(self) -> bool:
        return self.session.in_transaction

    @operation()
    def begin(self) -> None:
        """Begin a transaction, which also suspends ``autocommit``.  Without it one begins with the first statement."""
        self.session.begin()

    @operation(again=Again.COMMITS)
    def commit(self) -> None:
        """Make the transaction's changes permanent.  They are on disk when this returns, and others see them."""
        self.session.commit()

    @operation(again=Again.ROLLS_BACK)
    def rollback(self) -> None:
        """Take back what was changed since the transaction began."""
        self.session.rollback()

    @operation()
    def savepoint(self, name: str) -> None:
        """Mark a place in the transaction to which ``rollback_to`` can return."""
        self.session.savepoint(name)

    @operation()
    def rollback_to(self, name: str) -> None:
        """Take back what was changed since a savepoint, which stays."""
        self.session.rollback_to(name)

    @operation()
    def release_savepoint(self, name: str) -> None:
        """Forget a savepoint; what was changed since stays."""
        self.session.release_savepoint(name)

    @scope()
    def all_or_nothing(self) -> Iterator[None]:
        """What happens within happens whole or, if it fails, not at all; the transaction goes on either way."""
        with self.session.statement():
            yield

    @scope()
    def one_snapshot(self, scn: int | None = None, statement: int | None = None) -> Iterator[Reading]:
        """An instant to read by; ``scn``: that of a statement that is running, and ``statement``: the one before it."""
        from gmdb.tables.arrow.scan import Reading

        try:
            with self.session.cursor(scn, statement) as (snapshot, form):
                yield Reading(form, snapshot)
        except Exception:
            self.session.finish_read()  # with autocommit, a read that fails holds no table any more
            raise
        self.session.finish_read()

    # ---- definitions

    @operation(writes=True)
    def create_tablespace(
        self, name: str, *, page_size: int = MAIN_PAGE_SIZE, devices: int = 1, device_pages_max: int = 0
    ) -> None:
        """Add a tablespace of one or more devices, with pages of 8, 16 or 32 KiB."""
        with self._database.store.guard:
            self._database.store.create_tablespace(name, page_size, devices, device_pages_max)

    @operation(writes=True)
    def drop_tablespace(self, name: str) -> None:
        """Remove a tablespace that has no tables any more, and its files.  It is not part of the transaction."""
        self._database.drop_tablespace(name)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def create_table(
        self,
        name: str,
        columns: ColumnsGiven,
        *,
        constraints: Sequence[Constraint] = (),
        tablespace: str = MAIN_SPACE,
        pct_free: int = DEFAULT_PCT_FREE,
        on_commit: str = "",
    ) -> None:
        """Add a table: ``create_table("tbl", {"i": "INT NOT NULL", "s": "VARCHAR(10)"})``.

        One whose name begins with ``pg_temp.`` is temporary: only this connection knows it, and it goes with it;
        ``on_commit`` may "delete" its rows, or "drop" it, when a transaction commits.

        This and the other changes of definitions belong to the transaction: others see them when it commits, and
        a transaction that changes a table has it alone until then.
        """
        self._know_own_schema(name)
        with self._database.define(self.session) as change:
            checked = make_columns(name, columns)
            change.create_table(name, checked, constraints, tablespace, pct_free, on_commit=on_commit)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def drop_table(self, name: str, *more: str, cascade: bool = False) -> None:
        """Remove tables, once no other transaction uses them; with ``cascade``, what refers to them goes, too."""
        with self._database.define(self.session) as change:
            change.drop_tables([name, *more], cascade)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def truncate_table(self, name: str, *more: str, restart_identity: bool = False, cascade: bool = False) -> None:
        """Take all rows of tables away at once; with ``cascade``, those of tables that refer to them, too."""
        with self._database.define(self.session) as change:
            change.truncate_tables([name, *more], restart_identity, cascade)

    @operation(writes=True, again=Again.ALWAYS)
    def next_identity(self, table: str, column: str, count: int = 1) -> int:
        """The first of ``count`` numbers of an identity column.  Others get other ones, even if these are not used."""
        return self._database.next_numbers(table, column, count, self.session)[0]

    @operation(writes=True, again=Again.UNCOMMITTED)
    def create_index(
        self, name: str, table: str, columns: Sequence[str], *, unique: bool = False, using: str = "btree"
    ) -> None:
        """Add an index on some columns of a table, once no other transaction uses it.

        A ``"btree"`` finds keys, ranges of them and their first columns; a ``"hash"`` index only whole keys.
        With autocommit, others go on using the table meanwhile, but for two moments.
        """
        self._create_index(table, NewIndex(name, tuple(columns), unique, using))

    @operation(writes=True, again=Again.UNCOMMITTED)
    def _create_index(self, table: str, new: NewIndex) -> None:
        self._database.create_index(table, new, self.session)

    @operation(writes=True, again=Again.UNCOMMITTED)
    def drop_index(self, name: str) -> None:
        """Remove an index, once no other transaction uses its table."""
        with self._database.define(self.session) as change:
            change.drop_index(name)

    @operation()
    def table(self, name: str) -> TableDefinition:
        """A table's definition."""
        return self._database.catalog.table(name, self.session)

    @operation()
    def statistics(self, name: str) -> TableStatistics | None:
        """What ANALYZE has told about a table; None if it was not analyzed."""
        return self._database.catalog.statistics.of(self.table(name).number)

    def _keep_statistics(self, name: str, statistics: TableStatistics) -> None:
        self._database.catalog.statistics.keep(self.table(name).number, statistics)

    @property
    def _statistics_version(self) -> int:
        """Another number whenever statistics have changed."""
        return self._database.catalog.statistics.version

    # ---- rows

    def heap(self, name: str) -> Heap:
        """A table's rows one by one: insert, fetch, update, delete by row id."""
        self.session.require_open()
        heap = self._heaps.get(name)
        if heap is None or heap.definition is not self._database.catalog.table(name, self.session):
            heap = self._heaps[name] = self._database.catalog.heap(name, self.session)
        return heap

    def insert(self, name: str, values: Sequence[Any]) -> RowId:
        """Insert a row, with a value for each column."""
        return self.heap(name).insert(values)

    @composed
    def update(
        self, name: str, changes: Mapping[str, Any] | Callable[[Row], Mapping[str, Any]], where: Condition = None
    ) -> int:
        """Change the rows that meet ``where``; ``changes`` may be computed from a row.  Returns their number."""
        return update_where(self.heap(name), changes, where)

    @composed
    def delete(self, name: str, where: Condition = None) -> int:
        """Delete the rows that meet ``where``; returns their number."""
        return delete_where(self.heap(name), where)

    @composed
    def select_for_update(
        self, name: str, where: Condition = None, *, nowait: bool = False, skip_locked: bool = False
    ) -> list[tuple[RowId, Row]]:
        """Lock the rows that meet ``where`` until the transaction ends; returns them."""
        return select_for_update(self.heap(name), where, nowait, skip_locked)

    @composed
    def open_lob(self, table: str, column: str, row_id: RowId) -> File:
        """A value of a BLOB column as a file of bytes, of a CLOB column as one of text, which can be read from.

        It is what it was when it was opened, whatever others do meanwhile, until it is closed.
        """
        return open_file(self.heap(table).open_lob(column, row_id))

    @composed
    def append(self, name: str, data: Any) -> int:
        """Append Arrow data (a Table, batches, a reader, …), all of it or nothing; returns the number of rows."""
        from gmdb.tables.arrow.append import append

        return append(self.heap(name), data)

    def select(
        self,
        name: str,
        columns: Sequence[str] | None = None,
        *,
        by: str | None = None,
        keys: KeyRange | None = None,
        row_ids: Sequence[RowId] | None = None,
    ) -> RowCursor:
        """A cursor over a table's rows: all of them, a range of the keys of index ``by``, or those with some row ids.

        ``select("tbl", ["i"], by="tbl_i", keys=KeyRange((1,), (9,))).arrow()``, or ``.rows()`` for one at a time.
        """
        from gmdb.database.cursor import open_cursor

        table = self._database.catalog.table(name, self.session)
        return open_cursor(self.heap(name), table, columns, by, keys, row_ids)

    def arrow(self, name: str, columns: Sequence[str] | None = None) -> pa.RecordBatchReader:
        """A table's rows, or some of its columns, as a stream of record batches, all of one instant."""
        return self.select(name, columns).arrow()

    # ---- SQL

    def cursor(self) -> dbapi.Cursor:
        """A cursor for statements, as PEP 249 has it."""
        self.session.require_open()
        return dbapi.Cursor(self, self._statements)

    def execute(self, statement: str, parameters: dbapi.Parameters | None = ()) -> dbapi.Cursor:
        """Run a statement with a cursor of its own."""
        return dbapi.Cursor(self, self._statements).execute(statement, parameters)

    def executemany(self, statement: str, parameters: Any) -> dbapi.Cursor:
        """Run a statement for each of many sets of parameters, which may be the rows of Arrow data."""
        return self.cursor().executemany(statement, parameters)

    def executescript(self, script: str) -> dbapi.Cursor:
        """Run several statements, one after the other."""
        return self.cursor().executescript(script)

    # ---- what is going on

    @composed
    def locks(self) -> pa.Table:
        """Every lock in use: its transaction, action and row, and the lock beneath it."""
        return self.system_view("sys_locks")

    @composed
    def transactions(self) -> pa.Table:
        """Every transaction that is open, or has ended and is not yet purged."""
        return self.system_view("sys_transactions")

    @operation()
    def system_view(self, name: str) -> pa.Table:
        """A system table by its name: definitions as this session sees them, or what is going on right now."""
        return self._database.system_view(name, self.session)

    @operation()
    def inspect(self, name: str, /, *arguments: Any, **options: Any) -> pa.Table:
        """What ``gmstat`` lists, by its name, of pages as they are in memory: ``inspect("rows", "tbl")``."""
        return self._database.inspect(name, *arguments, **options)

    @operation()
    def _index_pages(self, name: str) -> pa.Table:
        """The pages of an index as they are in memory at one instant, the entry page of its segment first."""
        return self._database.index_pages(name)

    @operation()
    def gc(self) -> int:
        """Take away versions that no snapshot needs; returns how many transactions were cleaned up after."""
        return self._database.transactions.collector.collect()

    @composed
    def dump(self, path: Any) -> None:
        """Write all pages as they are in memory, uncommitted changes and undo included, for gmstat to look at.

        The copy is not a backup: it cannot be opened.
        """
        self._dump(self._path_there(path))

    @operation(again=Again.NEVER)
    def _dump(self, path: Path) -> None:
        with self._database.store.guard:
            self._database.store.dump(path)

    def _path_there(self, path: Any) -> Path:
        """A path of the program's as the process that has the database open must know it."""
        return Path(path).absolute()

    # ---- what lasts

    @property
    @operation()
    def recovery(self) -> Recovery | None:
        """What opening the database had to do because it was not closed before; None: nothing."""
        return self._database.recovery

    @operation(writes=True, again=Again.ALWAYS)
    def checkpoint(self) -> CheckpointReport:
        """Write every changed page to its place, so that less has to be replayed after a crash."""
        return self._database.checkpoint()

    @operation(writes=True, again=Again.ALWAYS)
    def shrink(self) -> int:
        """Give free pages at the end of the files back to the operating system; returns how many bytes."""
        return self._database.shrink()

    @composed
    def backup(self, path: Any, progress: Progress | None = None) -> BackupReport:
        """Copy the database as it is at one instant to a new directory, while others go on.

        Open transactions have left nothing in it.  ``gmdb restore`` makes a database out of it.
        """
        return finish(self._backup(self._path_there(path)), progress)

    @operation()
    def _backup(self, path: Path) -> Generator[Step, None, BackupReport]:
        return self._database.backup(path)

    @composed
    def verify(self, progress: Progress | None = None) -> Report:
        """Check everything about the database as it is at one instant; what is wrong is in the report's ``findings``.

        It is a backup that is checked, and removed afterwards: there must be room for it beside the database.
        """
        return finish(self._verify(), progress)

    @operation()
    def _verify(self) -> Generator[Step, None, Report]:
        from gmdb.database.copies import verify_copy

        return verify_copy(self._database)

    @operation(writes=True, again=Again.ALWAYS)
    def set_archiving(self, on: bool) -> None:
        """Keep the log in the folder archive when it is needed no more, so that backups can be brought to any time."""
        self._database.set_archiving(on)

    # ---- snapshots and changes, for readers of the files

    @composed
    def take_snapshot(self, *, lease: float | None = None, holder: Holder | None = None) -> Pin:
        """Pin the database as it is now, for readers in other processes: it stays readable while others go on.

        It lasts for ``lease`` seconds behind the last read by it, and not longer than the process of ``holder`` lives.
        """
        pin = self._take_snapshot(lease, holder or Holder.this_process())
        try:
            signals.check()
        except BaseException:  # the caller never gets its name
            self.drop_snapshot(pin.name)
            raise
        return pin

    @operation(again=Again.NEVER)
    def _take_snapshot(self, lease: float | None, holder: Holder) -> Pin:
        return self._database.take_snapshot(lease, holder)

    @operation(again=Again.NEVER)
    def drop_snapshot(self, name: str) -> None:
        """Let a pinned snapshot go; a reader that still uses it gets SnapshotExpired."""
        self._database.drop_snapshot(name)

    @composed
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
        """The committed changes of tables with a change feed, in the order of their commits.

        They begin behind ``since``: a feed's ``position``, or a time; if there is none, where the ``reader`` of that
        name stands, or now.  With ``snapshot``, the tables' rows come first, then all that was committed since.
        ``before``: updates have the rows' values before, too.  For a reader with a name the log is kept, up to
        ``keep`` bytes of it, from where it last acknowledged.  Changes cannot have large objects: a table with columns
        of them is refused, unless ``without_lobs`` leaves these columns out.
        """
        from gmdb.database.feed_opening import open_feed

        self._require_files_here()
        return open_feed(self, since, tables, before, reader, keep, snapshot, without_lobs)

    def _require_files_here(self) -> None:
        """Refuse to read the database's files where they are on another machine."""

    @operation()
    def _feed_position(self) -> LogPosition:
        """Where a feed of changes that begins now would stand."""
        return self._database.feed_position()

    @operation(writes=True)
    def forget_stream(self, name: str) -> None:
        """Forget a stream: a query that uses its name next begins anew."""
        catalog = self._database.catalog
        catalog.streams.forget(catalog.system(self.session), name)

    # ---- what Spark's tasks have made

    @operation()
    def _page_format(self, table: str | None = None, tablespace: str = MAIN_SPACE) -> PageFormat:
        """What the pages of a table are like, or those of a new one in a tablespace."""
        from gmdb.tables.arrow.staging import PageFormat

        if table is None:
            return PageFormat(self._database.store.space(tablespace).page_size, DEFAULT_PCT_FREE)
        segment = self._database.catalog.heap(table, self.session).segment
        return PageFormat(segment.space.page_size, int(segment.head.pct_free))

    @operation(writes=True)
    def _attach_load(self, load: Load) -> int:
        """Take the staging files of a bulk load into a table, all of them or nothing; returns the number of rows."""
        from gmdb.tables.arrow.attach import attach

        return attach(self._database.catalog, self.session, load)

    @operation(writes=True)
    def _take_batch(self, load: Load, batch: StreamBatch) -> int | None:
        """Take a batch of a stream in, in a transaction of its own, together with a note that it is here.

        Returns the number of its rows; None, and nothing happens, if it is one that was taken in before.
        """
        from gmdb.tables.arrow.attach import take_batch

        return take_batch(self._database.catalog, self.session, load, batch)

    @operation(writes=True)
    def _begin_index(
        self, table: str, new: NewIndex, *, load_id: str, holder: Holder, lease: float | None = None
    ) -> tuple[IndexDefinition, Pin]:
        """Begin to build a B-tree whose leaves others make, from the table as the snapshot that is returned has it.

        Their staging files are in the folder ``load_id``.  The build ends with ``_finish_index`` or ``_abandon_index``,
        or it is abandoned when the connection is closed, or its client gone.
        """
        from gmdb.database.staged import StagedIndex

        if self._builds:
            raise InterfaceError("this connection builds an index already; finish or abandon it first")
        build = StagedIndex(self._database, self.session, table, new, load_id, lease, holder)
        self._builds.append(build)
        assert build.pin is not None
        return build.index, build.pin

    @operation(writes=True)
    def _finish_index(self, files: Sequence[str]) -> int:
        """Take in the leaves of staging files, in the order of their keys, and make the index everyone's.

        Returns how many entries they had.  If it fails, the build is abandoned.
        """
        if not self._builds:
            raise InterfaceError("this connection builds no index")
        return self._builds.pop().finish(files)

    @operation(again=Again.NEVER)
    def _abandon_index(self) -> None:
        """End a build without an index."""
        if self._builds:
            self._builds.pop().abandon(self.session.lock_timeout)

    # ---- the end

    def close(self) -> None:
        """Roll back what is not committed; the last connection writes every page.  Closing twice does nothing.

        What another thread does with the connection ends.
        """
        with held:
            if finalizer := self._finalizer.detach():
                _, end, arguments, options = finalizer
                end(*arguments, **dict.fromkeys(options, True))  # it may wait

    def __enter__(self) -> Connection:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with held:
            try:
                if kind is None and not self.closed:
                    self.commit()
            finally:
                self.close()


def open_connection(
    path: Any,
    *,
    statements: Callable[[Connection], dbapi.Statements],
    isolation: str = "read committed",
    autocommit: bool = False,
    lock_timeout: float = 5.0,
    read_only: bool = False,
    sync: str | None = None,
    progress: Progress | None = None,
) -> Connection:
    """A connection to a database that this process has open, or opens now."""
    from gmdb.database.engine import open_database, release_database

    with held:
        database = open_database(path, read_only, sync, progress)
        try:
            session = database.new_session(isolation, autocommit, lock_timeout)
        except BaseException:
            release_database(database, True)
            raise
        return Connection(database, session, statements, release_database)


def _close(
    database: Database,
    session: Session,
    builds: list[StagedIndex],
    release: Callable[[Database, bool], None],
    waits: bool,
) -> None:
    """``waits``: not a finalizer, which may be run anywhere, in a thread for whose start another one waits."""
    with held_to_finalize:
        try:
            if database.store.devices:
                with session.ended_soon():
                    abandon_all(builds)
                    session.close()
                if session.temporary_schema and waits:  # else they go later
                    with suppress(Error):
                        database.drop_temporary()
        finally:
            release(database, waits)


def abandon_all(builds: list[StagedIndex]) -> None:
    while builds:
        builds.pop().abandon()
