"""The engine: connects store, log, transactions and catalog into a database, which connections share.

A process has a database open once, however many connections it makes to it.

Invariants
 1. When the last connection closes, every page is written; no page on disk holds a lock, and no log is left.
 2. A database is created whole: under another name, and then renamed to its own.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from gmdb.database.views import SystemViews
from gmdb.errors import (
    DatabaseClosed,
    DatabaseInUse,
    Error,
    InterfaceError,
    NotADatabase,
    SchemaError,
    StorageError,
)
from gmdb.format.address import device_of, offset_of
from gmdb.kernel.change.shrink import trim_segment
from gmdb.process.late_dataclasses import replace
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage import disk
from gmdb.storage.directory import is_database, make_beside, require_database
from gmdb.storage.documents import Holder
from gmdb.storage.feeds import KEEP, LogPosition, keep_definition
from gmdb.storage.log.backup import Backup
from gmdb.storage.log.durability import REDO_FILE_SIZE, Durability, open_store
from gmdb.storage.log.pinning import Instant
from gmdb.storage.log.redo_buffer import SYNC_MODES, RedoLog
from gmdb.storage.log.reports import BackupReport, CheckpointReport, Progress, Step
from gmdb.storage.pins import Pin
from gmdb.storage.store import Segment, create_store
from gmdb.tables.access.indexes import NewIndex
from gmdb.tables.catalog.changes import DefinitionChanges
from gmdb.tables.catalog.counters import Counting, changed_counting
from gmdb.tables.catalog.definition_documents import table_to_plain
from gmdb.tables.catalog.names import is_temporary
from gmdb.tables.catalog.schema import FIRST_USER_ID
from gmdb.tables.catalog.system import create_system_tables
from gmdb.tables.catalog.tables import Catalog
from gmdb.transaction.hub import Transactions, create_undo_segment
from gmdb.transaction.lock_area import locks_in_flight
from gmdb.transaction.session import Session

_open_databases: dict[Path, Database] = {}
_opening = threading.Lock()
_released: deque[Database] = deque()  # whose connections finalizers have closed while it was held
_logger = logging.getLogger("gmdb")


class Database:
    """One open database directory."""

    def __init__(
        self,
        directory: Path,
        read_only: bool = False,
        sync: str = "full",
        progress: Progress | None = None,
        stop_time: int = 0,
        archive: Path | None = None,
    ) -> None:
        """Open a directory that holds a database; after a crash, recover it first.

        ``archive``: a folder with more of its log, which is replayed, too; ``stop_time`` (microseconds since 1970):
        but no commit after that.
        """
        self.read_only = read_only
        self.connections = 0
        self.before_close: list[Callable[[], None]] = []
        self.durability: Durability | None = None
        self.store, self.recovery = open_store(directory, read_only, stop_time, archive, progress)
        is_copy = self.recovery is not None and self.recovery.of_backup
        self._goes_another_way = is_copy or stop_time > 0 or archive is not None  # than the log in its folder does
        try:
            if not read_only:
                self.durability = Durability(self.store, self.recovery, sync)
            self._start(progress)
        except BaseException:
            self._stop()
            self._close_files(clean=False)
            raise

    def _start(self, progress: Progress | None) -> None:
        redo = self.durability.redo if self.durability else None
        fresh = self.store.control["ckpt_id"] == 0 and not self.store.read_only
        if fresh:
            create_undo_segment(self.store)
        self.transactions = Transactions(self.store, redo)
        if self.recovery is not None:
            self.transactions.recover(self.recovery, progress)
            if not self.recovery.of_backup:
                _logger.warning("%s was not closed: %s", self.store.directory, self.recovery)
        system = self.new_session("read committed", False, 5.0)
        if fresh:
            create_system_tables(self.store, system)
        self.catalog = Catalog(self.store, system)
        self.catalog.keys_of_rows.connect(_keys_of_rows)
        system.commit()
        if self.durability is not None:
            memory = self.transactions.memory
            self.durability.checkpoints.counters.connect(memory.counters)
            self.durability.shrinking.before.connect(self._trim_tables)
            self.store.throttle.connect(self.durability.wait_if_behind)
            self.store.limit_dirty.connect(self.durability.limit_dirty)
            self._keep_log_for_feeds(self.durability.redo)
            if fresh or self._goes_another_way:  # else what was replayed counts until the next checkpoint is due
                self.durability.checkpoint(**self._numbers_given())
            elif self.recovery is not None and (given := self._numbers_given()):
                self.store.write_control(**given)
            self.durability.start()
        self.transactions.start()
        self.drop_temporary()

    def _keep_log_for_feeds(self, redo: RedoLog) -> None:
        """Let readers of changes find the log that they need, also of transactions that have not ended."""
        readers = redo.files.needed.function

        def needed(end: int) -> int | None:
            wanted = readers(end)
            if any(table.feed is not None for table in self.catalog.tables.values()):
                began = self.transactions.log_from()
                if end - began <= KEEP:
                    return began if wanted is None else min(began, wanted)
            return wanted

        redo.files.needed.connect(needed)
        for table in self.catalog.tables.values():  # a copy of a database may lack the folder
            if table.feed is not None:
                keep_definition(self.store.directory, table.feed.version, table_to_plain(table))

    def _numbers_given(self) -> dict[str, int]:
        """The next number, if log that is newer than the control file has brought further tables or indexes."""
        following = self.catalog.numbers_used() + 1
        return {"next_obj_id": following} if following > self.store.control["next_obj_id"] else {}

    def new_session(self, isolation: str, autocommit: bool, lock_timeout: float) -> Session:
        return Session(self.transactions, isolation, autocommit, lock_timeout)

    def drop_temporary(self) -> None:
        """Remove the temporary tables of sessions that have ended, however they did."""
        left = self.catalog.temporary_schemas()
        if not left or self.store.read_only or self.store.failure is not None:
            return
        left -= {session.temporary_schema for session in list(self.transactions.sessions) if not session.closed}
        for schema in sorted(left):
            session = self.new_session("read committed", False, 5.0)
            session.temporary_schema = schema
            try:
                with self.define(session) as change:
                    change.schemas.empty(schema)
                session.commit()
            finally:
                session.close()

    # ---- definitions

    @contextmanager
    def define(self, session: Session) -> Iterator[DefinitionChanges]:
        """A statement that changes definitions, in the session's transaction; all of it happens or nothing."""
        session.require_open()
        self.store.require_writable()
        with session.defining():
            yield DefinitionChanges(self.catalog, session)
        if not session.in_transaction:
            self.transactions.collector.collect()  # what was dropped is free again, unless a reader still needs it

    def create_index(self, table: str, new: NewIndex, session: Session) -> None:
        """Add an index: within the session's transaction, or while others go on if it commits each statement."""
        is_own = is_temporary(self.catalog.table(table, session).schema)  # which no other session knows
        if session.autocommit and not session.in_transaction and not is_own:
            session.require_open()
            self._build_index(table, new, session)
            return
        with self.define(session) as change:
            change.create_index(table, new)

    def _build_index(self, table: str, new: NewIndex, session: Session) -> None:
        self.store.require_writable()
        worker = self.new_session("read committed", False, session.lock_timeout)
        from gmdb.tables.catalog.index_creation import IndexMaking

        making = IndexMaking(self.catalog, worker)
        worker.begin_work()
        session.watch(worker)
        try:
            build = making.begin(table, new)
        except BaseException:
            worker.close()
            raise
        try:
            build.fill()
            build.finish()
            session.unwatch(worker)  # what follows is done whole
            making.finish(build)
        except BaseException:
            session.unwatch(worker)
            worker.end_work()
            worker.forget_interrupt()
            making.abandon(build)
            build.give_up()
            raise
        build.end()

    def next_numbers(self, table: str, column: str, count: int, session: Session) -> list[int]:
        """Numbers for an identity column, or one with those of a sequence; others get other ones."""
        session.require_open()
        self.store.require_writable()
        known = self.catalog.table(table, session)
        definition = known.column(column)
        if not definition.is_numbered:
            raise SchemaError(f"column {column} of table {table} is not an identity column")
        if count < 1:
            raise SchemaError(f"column {column} of table {table}: {count} numbers are asked for; it must be 1 or more")
        return self.catalog.next_numbers(definition, count, session)

    def alter_sequence(
        self,
        change: DefinitionChanges,
        name: str,
        type_: str | None,
        owner: Sequence[str] | None,
        restart: int | bool,
        options: dict[str, Any],
    ) -> None:
        """Have a sequence count in another way, as ``Connection.alter_sequence`` says."""
        before = self.catalog.sequence(name, change.session).counts
        counting = changed_counting(before.type, Counting(*before.numbers), type_ or before.type, options)
        at: int | None = None
        if restart is not False:
            at = counting.start if restart is True else restart
        elif not counting.low <= (last := self.catalog.counters.following(before.counter)) <= counting.high:
            before_low, before_high = before.numbers[2], before.numbers[3]
            if before_low <= last <= before_high:
                raise SchemaError(f"sequence {name} goes on with {last}, which does not lie within its new bounds")
        if at is not None:
            counting.require(at, "the number to go on with")
        owned = None if owner is None else (tuple(owner) or ("", ""))
        change.sequences.alter(name, type_ or before.type, counting, owned, at)  # type: ignore[arg-type]

    def set_sequence(self, name: str, value: int, is_called: bool, session: Session) -> int:
        """Have a sequence go on with a number, or behind it."""
        session.require_open()
        self.store.require_writable()
        definition = self.catalog.sequence(name, session)
        counting = Counting(*definition.counts.numbers)
        counting.require(value, f"sequence {definition.name}: the number")
        self.catalog.counters.restart(definition.counts.counter, value + counting.increment * is_called)
        if is_called:
            session.last_values[definition.number] = value
        return value

    def require_sync(self, sync: str | None) -> None:
        """Refuse a connection whose ``sync`` is not that with which the database was opened."""
        if self.durability is not None and sync not in (None, self.durability.redo.sync_mode):
            raise InterfaceError(
                f"{self.store.directory} is open with sync={self.durability.redo.sync_mode!r} in this process already"
            )

    # ---- what is going on

    def system_view(self, name: str, session: Session | None = None) -> pa.Table:
        """A system view by its name; of definitions, as the session sees them."""
        return SystemViews(self.catalog, self.transactions, self.pinned).view(name, session)

    def inspect(self, name: str, /, *arguments: Any, **options: Any) -> pa.Table:
        """A listing of the inspector, of pages as they are in memory."""
        from gmdb.inspect.inspector import Inspector
        from gmdb.tables.files.live_pages import LivePages

        with Inspector(LivePages(self.store), self.system_view) as inspector:
            return inspector.listing(name, *arguments, **options).arrow()

    def index_pages(self, name: str) -> pa.Table:
        """The pages of an index as they are in memory at one instant, the entry page of its segment first."""
        with self.store.guard:
            _, index = self.catalog.index(name)
            devices = self.store.devices
            segment = Segment(self.store, self.store.space_of(index.entry_page), index.entry_page)
            ids = [index.entry_page, *segment.page_ids().tolist()]
            pages = [bytes(devices[device_of(page_id)].memory(offset_of(page_id))) for page_id in ids]
        return pa.table({"page_id": pa.array(ids, pa.uint32()), "page": pa.array(pages, pa.large_binary())})

    # ---- what lasts

    def _require_durability(self) -> Durability:
        """What writes the log and the pages; refused where the database is open for reading only."""
        self.store.require_writable()
        assert self.durability is not None
        return self.durability

    def checkpoint(self) -> CheckpointReport:
        """Write every page that has changed by now to its place; transactions go on meanwhile."""
        return self._require_durability().checkpoint()

    # ---- snapshots for other processes

    def take_snapshot(self, lease: float | None, holder: Holder, scn: int | None = None) -> Pin:
        """Pin the instant of now; or, of what its pages hold, only commits up to ``scn``, which a snapshot holds."""
        durability = self._require_durability()

        def capture() -> Instant:
            memory = self.transactions.memory
            seen = memory.scn if scn is None else scn
            tables = self.catalog.lasting.values()
            usable = [replace(t, indexes=tuple(i for i in t.indexes if not i.building)) for t in tables]
            plain = [table_to_plain(table) for table in usable]
            return Instant(seen, locks_in_flight(memory, seen), plain, self.transactions.log_from())

        return durability.pins.take(capture, lease, holder)

    def drop_snapshot(self, name: str) -> None:
        """Let a pinned snapshot go."""
        self._require_durability().pins.drop(name)

    def pinned(self) -> list[tuple[Pin, float]]:
        """Every pinned snapshot, and when its lease runs out."""
        return self.durability.pins.listed() if self.durability is not None else []

    # ---- change feeds

    def feed_position(self) -> LogPosition:
        """Where the feed of changes stands: behind the newest commit that others see."""
        with self.store.guard:
            needs = self.transactions.log_from()
            return LogPosition(self.transactions.memory.scn, 0, needs, needs)

    # ---- space

    def shrink(self) -> int:
        """Give free pages at the end of devices back to the operating system; returns how many bytes."""
        durability = self._require_durability()
        self.transactions.collector.collect()  # rows that were deleted hold their pages until then
        return durability.shrinking.run()

    def drop_tablespace(self, name: str) -> None:
        """Remove a tablespace without tables, and its files."""
        durability = self._require_durability()
        self.transactions.collector.collect()  # tables that were dropped keep their pages until then
        with durability.shrinking.none_running():
            durability.dropping.run(name)

    def _trim_tables(self) -> None:
        """Give back pages that tables no longer need at their ends."""
        for table in [self.catalog.table(name) for name in self.catalog.user_tables()]:
            for obj_id, entry_page in [(table.obj_id, table.entry_page), *([table.lobs] if table.lobs else [])]:
                trimmed = 1
                while trimmed:
                    with self.store.guard:  # while it is held, no committed definition changes, and no segment goes
                        if self.catalog.tables.get(table.name) is not table:
                            break
                        trimmed = self.store.call(trim_segment, table.space_id, obj_id, entry_page)

    def backup(self, target: Path) -> Generator[Step, None, BackupReport]:
        """Copy the database as it is at one instant, step by step, while others go on."""
        durability = self._require_durability()
        durability.checkpoint()  # so that the copy has little to replay
        return (yield from Backup(self.store, durability.redo, target).steps())

    def set_archiving(self, on: bool) -> None:
        """Keep log that is no longer needed in the folder archive, or stop keeping it."""
        durability = self._require_durability()
        self.store.write_control(archiving=int(on))
        durability.redo.files.archiving = bool(on)

    # ---- the end

    def _stop(self) -> None:
        if hasattr(self, "transactions"):
            self.transactions.stop()
        if self.durability is not None:
            self.durability.stop()

    def _close_files(self, clean: bool) -> None:
        try:
            if self.durability is not None:
                self.durability.close(clean)
        finally:
            self.store.close()

    def _drop_temporary_at_end(self) -> None:
        """Nobody has the database open any more.  What cannot go now goes when it is opened next."""
        for session in list(self.transactions.sessions):
            session.temporary_schema = ""
        with suppress(Error):
            self.drop_temporary()

    def close(self) -> None:
        """Write every page and let go of the files.  After a failure of the disk, write nothing more."""
        while self.before_close:
            self.before_close.pop(0)()
        self._stop()
        clean = bool(self.store.devices) and not self.read_only and self.store.failure is None
        try:
            if clean:
                for session in list(self.transactions.active.values()):
                    session.close()
                self._drop_temporary_at_end()
                self.catalog.counters.settle()
                for snapshot in self.transactions.snapshots.held():
                    snapshot.cancel(DatabaseClosed(f"{self.store.directory} is closed"))
                self.transactions.settle()
        except BaseException:
            clean = False
            raise
        finally:
            self._close_files(clean)


def _keys_of_rows(heap: Any, positions: Any, pages: Any, check: Any, form: Any) -> Iterator[tuple[Any, ...]]:
    from gmdb.tables.arrow.referring_keys import keys_of_rows

    return keys_of_rows(heap, positions, pages, check, form)


def create_database(directory: Path) -> None:
    """Create a database.  It gets its name only once it is whole; a process that comes second finds the first one's."""
    import shutil

    if directory.exists() and not directory.is_dir():
        require_database(directory)
    if directory.is_dir() and any(directory.iterdir()):
        raise NotADatabase(f"{directory} has files in it that are not a gmdb database; choose another path")
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        new = make_beside(directory)
    except OSError as error:
        raise StorageError(f"{directory}: {error.strerror}") from error
    try:
        create_store(new, FIRST_USER_ID, REDO_FILE_SIZE)
        Database(new).close()
        try:
            disk.current.replace(new, directory)
        except StorageError:
            if not is_database(directory):
                raise
        disk.current.sync_directory(directory.parent)
    finally:
        shutil.rmtree(new, ignore_errors=True)


def open_database(path: Any, read_only: bool, sync: str | None = None, progress: Progress | None = None) -> Database:
    """The process's database at ``path``: the one that is open already, or one opened now."""
    directory = Path(path).absolute()
    if sync is not None and sync not in SYNC_MODES:
        raise InterfaceError(f"sync {sync!r} is not one of {', '.join(SYNC_MODES)}")
    try:
        return _open(directory, read_only, sync, progress)
    finally:
        _release_noted()


def _open(directory: Path, read_only: bool, sync: str | None, progress: Progress | None) -> Database:
    with _opening:
        database = _open_databases.get(directory)
        if database is not None and not database.store.devices:
            del _open_databases[directory]  # a forked child's copy of its parent's
            database = None
        if database is None:
            if not is_database(directory) and not read_only:
                create_database(directory)
            require_database(directory)
            database = _open_databases[directory] = Database(directory, read_only, sync or "full", progress)
        elif database.read_only != read_only:
            how = "reading only" if database.read_only else "writing"
            raise DatabaseInUse(f"{directory} is open for {how} in this process already; close that first")
        database.require_sync(sync)
        database.connections += 1
        return database


def is_open_here(directory: Path) -> bool:
    """Whether this process has the database open."""
    database = _open_databases.get(directory)
    return database is not None and bool(database.store.devices)


def release_database(database: Database, waits: bool) -> None:
    """A connection is done with its database; the last one closes it.

    A caller that cannot wait while another thread opens or closes one leaves it to that thread.
    """
    if waits:
        with _opening:
            _release(database)
    else:
        _released.append(database)
    _release_noted()


def _release_noted() -> None:
    """Called by each holder of ``_opening`` afterwards, so that nothing that was noted meanwhile is left."""
    while _released and _opening.acquire(blocking=False):
        try:
            if _released:
                _release(_released.popleft())
        finally:
            _opening.release()


def _release(database: Database) -> None:
    database.connections -= 1
    if database.connections == 0:
        directory = database.store.directory
        if _open_databases.get(directory) is database:
            del _open_databases[directory]
        database.close()
