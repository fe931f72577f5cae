"""Where a feed begins: at a reader's place, a position, a time, a snapshot, or now."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from pathlib import Path

from gmdb.database.feed import (
    ChangeFeed,
    NamedReader,
    SnapshotRows,
    Source,
    Wanted,
    position_of_pin,
    require_feed,
    require_no_lobs,
)
from gmdb.errors import InterfaceError, NoChangeFeed, NoSuchTable
from gmdb.storage.feeds import (
    KEEP,
    LogPosition,
    Reader,
    read_reader,
    remove_reader,
    require_keep,
    require_reader_name,
    write_reader,
)
from gmdb.storage.log.committed_changes import ChangeLog


def open_feed(
    source: Source,
    since: str | datetime | None,
    tables: Sequence[str] | None,
    before: bool,
    reader: str | None,
    keep: int | None,
    snapshot: bool,
    without_lobs: bool,
) -> ChangeFeed:
    """A feed, from where its reader stands, or from a position or time, or from a snapshot that comes first."""
    log = ChangeLog(source.path)
    if snapshot and (since is not None or tables is None):
        raise InterfaceError("a feed that begins with a snapshot needs its tables, and begins nowhere else")
    known = read_reader(source.path, require_reader_name(reader)) if reader is not None else None
    goes_on = known is not None and not snapshot and since is None
    if not without_lobs:
        _require_no_lobs(source, tables or ())
    now = {} if tables is None else _feeds_of(source, tables, known.feeds if known is not None and goes_on else {})
    feeds = set(now.values())
    if known is not None and goes_on:
        feeds |= {known.feeds[name] for name in now if name in known.feeds}  # what came before its feed began anew
    wanted = Wanted(None if tables is None else feeds, () if goes_on else feeds, before, without_lobs)
    named = None
    if reader is not None:
        named = NamedReader(reader, require_keep(keep or (known.keep if known is not None else KEEP)), now)
    if known is not None and goes_on:
        return ChangeFeed(log, LogPosition.from_text(known.position, log.database_id), wanted, named)
    position = _first_position(source, log, since)
    log.require(position)
    try:
        if named is not None:
            named.register(log, position)
        if not snapshot:
            return ChangeFeed(log, position, wanted, named)
        pin = source.take_snapshot()
        rows = SnapshotRows(source, pin, feeds)
        try:
            return ChangeFeed(log, position_of_pin(pin), wanted, named, rows)
        except BaseException:
            rows.close()
            raise
    except BaseException:
        _put_back(source.path, reader, known)
        raise


def _feeds_of(source: Source, tables: Sequence[str], before: dict[str, int]) -> dict[str, int]:
    """The feeds of tables by name; of a table that has none any more, the one that a reader knew."""
    feeds = {}
    for name in tables:
        try:
            feeds[name] = require_feed(source.table(name))
        except (NoChangeFeed, NoSuchTable):
            if name not in before:
                raise
            feeds[name] = before[name]
    return feeds


def _require_no_lobs(source: Source, tables: Sequence[str]) -> None:
    for name in tables:
        with suppress(NoSuchTable):  # which a reader may still know
            require_no_lobs(source.table(name))


def _put_back(directory: Path, name: str | None, reader: Reader | None) -> None:
    if reader is not None:
        write_reader(directory, reader)
    elif name is not None and read_reader(directory, name) is not None:
        remove_reader(directory, name)


def _first_position(source: Source, log: ChangeLog, since: str | datetime | None) -> LogPosition:
    if since is None:
        return source._feed_position()
    if isinstance(since, datetime):
        return log.position_at(int(since.timestamp() * 1_000_000))
    return LogPosition.from_text(since, log.database_id)
