"""The fields of the record through which a session and its kernels talk (``kernel.call.CALL``), by position."""

from __future__ import annotations

from gmdb.kernel.call import CALL

(
    SCN,
    TRANSACTION,
    STATEMENT,
    INSERT_LOCK,
    UNDO,
    BLOCKER,
    SIZE,
    ALONE,
    LATEST,
    UNDO_PAGE,
    UNDO_RUNS,
    COMMIT,
    BLOCKED,
    INDEX,
    MORE,
    MORE_COUNT,
    FEED_FROM,
) = range(17)
assert CALL.names is not None
assert [name.upper() for name in CALL.names] == [
    "SCN",
    "TRANSACTION",
    "STATEMENT",
    "INSERT_LOCK",
    "UNDO",
    "BLOCKER",
    "SIZE",
    "ALONE",
    "LATEST",
    "UNDO_PAGE",
    "UNDO_RUNS",
    "COMMIT",
    "BLOCKED",
    "INDEX",
    "MORE",
    "MORE_COUNT",
    "FEED_FROM",
]
