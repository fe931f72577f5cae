"""The part of a connection that takes in what others have staged: bulk loads, and batches of streams."""

from __future__ import annotations

from gmdb.arrow.attach import Load, attach, take_batch
from gmdb.arrow.staging import PageFormat
from gmdb.catalog.streams import StreamBatch
from gmdb.engine import Database
from gmdb.format.segment import DEFAULT_PCT_FREE
from gmdb.storage.store import MAIN_SPACE
from gmdb.transaction.session import Session


class TakesLoads:
    _database: Database
    session: Session

    def page_format(self, table: str | None = None, tablespace: str = MAIN_SPACE) -> PageFormat:
        """What the pages of a table are like, or those of a new one in a tablespace."""
        self.session.require_open()
        if table is None:
            return PageFormat(self._database.store.space(tablespace).page_size, DEFAULT_PCT_FREE)
        segment = self._database.heap(table, self.session).segment
        return PageFormat(segment.space.page_size, int(segment.head.pct_free))

    def attach_load(self, load: Load) -> int:
        """Take the staging files of a bulk load into a table, all of them or nothing; answers the number of rows."""
        return attach(self._database.catalog, self.session, load)

    def take_batch(self, load: Load, batch: StreamBatch) -> int | None:
        """Take a batch of a stream in, in a transaction of its own, together with a note that it is here.

        Answers the number of its rows; None, and nothing happens, if it is one that was taken in before.
        """
        return take_batch(self._database.catalog, self.session, load, batch)

    def forget_stream(self, name: str) -> None:
        """Know nothing of a stream any more: whoever brings its name next begins anew."""
        self.session.require_open()
        catalog = self._database.catalog
        catalog.streams.forget(catalog.system(self.session), name)
