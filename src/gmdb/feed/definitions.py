"""Which tables changes are of: the definitions that the folder ``feeds`` keeps."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gmdb.catalog.plain import table_from_plain
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption, NoChangeFeed, NotSupportedError
from gmdb.log.changes import Committed
from gmdb.storage.feeds import LogPosition, definition_numbers, read_definition
from gmdb.storage.pins import Pin


@dataclass(frozen=True)
class ChangesOfTable:
    """Changes of rows of one definition, in the order of their commits."""

    table: TableDefinition
    changes: Committed
    places: np.ndarray  # which of the changes that were divided they are


class Definitions:
    """Definitions by the numbers that changes name."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._known: dict[int, TableDefinition] = {}

    def __getitem__(self, version: int) -> TableDefinition:
        if version not in self._known:
            self._known[version] = table_from_plain(read_definition(self._directory, version))
        return self._known[version]

    def of_feed(self, feed_id: int) -> Iterator[TableDefinition]:
        """All definitions that a feed's table has had, the newest first."""
        for version in sorted(definition_numbers(self._directory), reverse=True):
            if self.feed_of(version) == feed_id:
                yield self[version]

    def feed_of(self, version: int) -> int:
        table = self[version]
        if table.feed is None:
            said = f"{self._directory}: definition {version} of the change feeds, of table {table.name}, has no feed"
            raise Corruption(f"{said}; changes behind it cannot be read")
        return table.feed.feed_id

    def divide(self, committed: Committed, feeds: Collection[int] | None) -> Iterator[ChangesOfTable]:
        """The changes of each definition, of those feeds that are wanted."""
        versions = committed.changes["version"]
        for version in np.unique(versions).tolist():
            if feeds is None or self.feed_of(version) in feeds:
                places = np.flatnonzero(versions == version)
                yield ChangesOfTable(self[version], committed.part(places), places)


def require_feed(table: TableDefinition) -> int:
    """The number of a table's feed."""
    if table.feed is None:
        said = f"the changes of table {table.name} are not logged"
        raise NoChangeFeed(f"{said}; have them logged from now on: ALTER TABLE {table.name} SET (change_feed = true)")
    return table.feed.feed_id


def require_no_lobs(table: TableDefinition) -> None:
    """Refuse a table whose changes would lack some columns without a word."""
    for column in table.columns:
        if column.type.is_lob:
            said = f"table {table.name}: its changes cannot have column {column.name}, {column.type}"
            why = "the log says only where a large object was, and what was there may be gone"
            raise NotSupportedError(f"{said}: {why}; changes(..., without_lobs=True) leaves such columns out")


def position_of_pin(pin: Pin) -> LogPosition:
    """Behind all that a snapshot sees."""
    return LogPosition(pin.scn, 0, pin.log_from, pin.log_from)
