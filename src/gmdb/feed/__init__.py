"""Reading a database's changes: every committed insert, update and delete of tables with a change feed, in order.

    with db.changes(tables=["orders"], reader="copy") as feed:
        for change in feed:
            print(change.operation, change.table, change.row)
        feed.acknowledge()

The changes come out of the log's files (log/changes.py), by the definitions that their tables had at the time.
"""

from gmdb.feed.reading import ChangeFeed
from gmdb.feed.windows import Change

__all__ = ["Change", "ChangeFeed"]
