"""Snapshots for Spark: pinned by the database's owner, or by the process that plans the read if none has it open.

    with gmdb.spark.snapshot(spark, "shop.gmdb") as instant:
        orders, lines = instant.read_table("orders"), instant.read_table("lines")

Invariants
 1. Planning needs no kernel unless a crash must be recovered from: it asks the owner, or reads a closed database.
 2. A snapshot of a closed database is pinned while no process can open it to change it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import gmdb
from gmdb.errors import DatabaseInUse, SnapshotExpired, StorageError
from gmdb.process.late_dataclasses import replace
from gmdb.server.connect import INTERVAL, OWNER_PATIENCE, connect_to_owner, is_open_here
from gmdb.spark.options import Owner, ReadOptions
from gmdb.storage.directory import DirectoryLock, require_database
from gmdb.storage.documents import Holder
from gmdb.storage.feeds import LogPosition
from gmdb.storage.pins import Pin, drop_closed, new_name, pin_closed, read_pin, renew, require_lease, skipped_path
from gmdb.tables.catalog.definition_documents import table_from_plain, table_to_plain
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles, choose_table

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from gmdb.database.connection import Connection


def take_pin(path: Path, lease: float, owner: Owner | None = None, holder: Holder | None = None) -> Pin:
    """Pin the database as it is now, for the driver unless ``holder`` is another process."""
    holder = holder or Holder.driver()
    with _access(path, owner) as opened:
        if not isinstance(opened, DatabaseFiles):
            return opened.take_snapshot(lease=lease, holder=holder)
        tables = [table_to_plain(table) for table in _tables_with_indexes(opened)]
        devices = {number: device.hwm for number, device in opened.devices.items()}
        try:
            return pin_closed(path, lease, holder, tables, devices)
        except StorageError:  # a directory that this user may not write to: good for as long as no one else does
            control = opened.control
            place = (new_name(control["ckpt_id"]), control["database_id"], control["ckpt_id"], control["scn"])
            return Pin(*place, time.time(), lease, holder, devices, tables, is_kept=False)


def position_now(path: Path, owner: Owner | None = None) -> LogPosition:
    """Where a feed of changes that begins now stands."""
    with _access(path, owner) as opened:
        if not isinstance(opened, DatabaseFiles):
            return opened._feed_position()
        scn, lsn = int(opened.control["scn"]), int(opened.control["redo_lsn"])
        return LogPosition(scn, 0, lsn, lsn)


@contextmanager
def pin_of(options: ReadOptions) -> Iterator[Pin]:
    """The instant that a read goes by: the one that it names, or one taken now, which is let go if planning fails."""
    if options.snapshot:
        yield read_pin(options.path, options.snapshot)
        return
    pin = take_pin(options.path, options.lease, options.owner)
    try:
        yield pin
    except BaseException:
        drop_pin(options.path, pin.name, options.owner)
        raise


def drop_pin(path: Path, name: str, owner: Owner | None = None) -> None:
    """Let a pin go, if it is still there."""
    try:
        with _access(path, owner) as opened:
            if not isinstance(opened, DatabaseFiles):
                opened.drop_snapshot(name)
                return
        drop_closed(path, name)
    except SnapshotExpired:
        pass


def describe(path: Path, table: str, snapshot: str, owner: Owner | None = None) -> TableDefinition:
    """A table's definition, as it is now or in a snapshot."""
    if snapshot:
        return table_of(read_pin(path, snapshot), table, path)
    with _access(path, owner) as opened:
        return opened.table(table)


def table_of(pin: Pin, name: str, path: Path) -> TableDefinition:
    """A table of a snapshot by its name, as it was given or in small letters."""
    return choose_table(name, [table_from_plain(plain) for plain in pin.tables], path)


@contextmanager
def _access(path: Path, owner: Owner | None) -> Iterator[DatabaseFiles | Connection]:
    """The owner of a database, or the files of a closed one, which no process changes meanwhile."""
    if owner is not None:
        with gmdb.connect(owner.url, token=owner.token, tls_ca=owner.tls_ca) as connection:
            yield connection
        return
    require_database(path)
    began = time.monotonic()
    while True:
        remote = gmdb.connect(path) if is_open_here(path) else connect_to_owner(path)
        if remote is not None:
            with remote:
                yield remote
            return
        try:
            lock = DirectoryLock(path, exclusive=False)
        except DatabaseInUse:
            if time.monotonic() - began > OWNER_PATIENCE:
                raise
            time.sleep(INTERVAL)
            continue
        try:
            with DatabaseFiles(path) as files:
                if files.control["clean"]:
                    yield files
                    return
        finally:
            lock.release()
        with gmdb.connect(path) as recovered:  # it was not closed
            yield recovered
        return


def _tables_with_indexes(files: DatabaseFiles) -> list[TableDefinition]:
    indexes = [index for _, index in files.index_rows()]
    tables = files.tables()
    return [replace(table, indexes=tuple(i for i in indexes if i.table_id == table.obj_id)) for table in tables]


def keep_pin(path: Path, pin: Pin, over: threading.Event) -> None:
    """Renew a pin's lease now and then, until ``over`` is set."""

    def keep() -> None:
        while not over.wait(pin.lease / 3):
            try:
                renew(path, pin.name)
            except StorageError:
                return

    threading.Thread(target=keep, name="gmdb-snapshot", daemon=True).start()


class SparkSnapshot:
    """One instant of a database, for as long as it is held: every DataFrame that it makes is of that instant."""

    def __init__(self, spark: SparkSession, path: str | Path, lease: float | None, owner: Owner | None = None) -> None:
        self._spark = spark
        self._path = Path(path).absolute()
        self._owner = owner
        self._pin = take_pin(self._path, require_lease(lease), owner)
        self._over = threading.Event()
        keep_pin(self._path, self._pin, self._over)

    @property
    def ticket(self) -> str:
        """The value for the option ``snapshot``."""
        return self._pin.name

    @property
    def scn(self) -> int:
        """The newest commit that it sees."""
        return self._pin.scn

    def read_table(
        self, table: str, columns: Sequence[str] | None = None, where: str | None = None, **options: Any
    ) -> DataFrame:
        """A table, as it was at the instant."""
        return read_frame(self._spark, self._path, table, columns, where, snapshot=self.ticket, **options)

    def skipped(self) -> list[str]:
        """Damaged pages that reads with ``onCorruption=skip`` have left out so far."""
        return skipped_pages(self._path, self.ticket)

    def release(self) -> None:
        """Let the instant go.  A second call does nothing."""
        if not self._over.is_set():
            self._over.set()
            drop_pin(self._path, self._pin.name, self._owner)

    def __enter__(self) -> SparkSnapshot:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.release()


def skipped_pages(path: Path, name: str) -> list[str]:
    """What tasks have noted of the damaged pages that they left out, each page once."""
    try:
        lines = skipped_path(path, name).read_text().splitlines()
    except FileNotFoundError:
        return []
    return sorted(set(lines))


def read_frame(
    spark: SparkSession, path: Path, table: str, columns: Sequence[str] | None, where: str | None, **options: Any
) -> DataFrame:
    """A DataFrame of a table, or of some of its columns and rows; ``options`` are those of the data source."""
    reader = spark.read.format("gmdb").option("table", table)
    if columns is not None:
        reader = reader.option("columns", ",".join(columns))
    if where is not None:
        reader = reader.option("where", where)
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))
