"""The fields of the record through which a session and its kernels talk (``kernel.call.CALL``), by position."""

from __future__ import annotations

from gmdb.kernel.call import CALL

_POSITIONS = {name: n for n, name in enumerate(CALL.names or ())}
SCN = _POSITIONS["scn"]
TRANSACTION = _POSITIONS["transaction"]
STATEMENT = _POSITIONS["statement"]
INSERT_LOCK = _POSITIONS["insert_lock"]
BLOCKER = _POSITIONS["blocker"]
SIZE = _POSITIONS["size"]
ALONE = _POSITIONS["alone"]
LATEST = _POSITIONS["latest"]
UNDO_PAGE = _POSITIONS["undo_page"]
UNDO_RUNS = _POSITIONS["undo_runs"]
COMMIT = _POSITIONS["commit"]
BLOCKED = _POSITIONS["blocked"]
INDEX = _POSITIONS["index"]
LOB_ROOTS = _POSITIONS["lob_roots"]
RECORDS = _POSITIONS["records"]
RECORD_COUNT = _POSITIONS["record_count"]
RECORD_LIMIT = _POSITIONS["record_limit"]
IS_UNORDERED = _POSITIONS["is_unordered"]
FEED_FROM = _POSITIONS["feed_from"]
