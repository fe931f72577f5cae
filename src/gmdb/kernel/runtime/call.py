"""The record through which a session and its kernels talk: whose call it is, and what it is about."""

from __future__ import annotations

from gmdb.format.layout import Structure
from gmdb.kernel.runtime.memory import records

# ---- The records of a call and of the table that it is about.

CALL = Structure(
    [
        ("scn", "<i8"),  # the statement's snapshot: the fields of visibility.SNAPSHOT come first
        ("transaction", "<i8"),
        ("statement", "<i8"),
        ("insert_lock", "<i8"),  # lock of the rows that this statement inserted; -1 = none yet
        ("undo", "<i8"),  # place of the newest undo record of the call; -1 = none was written
        ("blocker", "<i8"),  # out: the transaction that holds the row
        ("size", "<i8"),  # out: bytes of a row that is too large
        ("alone", "<i8"),  # 1: each change is a statement of its own
        ("latest", "<i8"),  # 1: a statement's snapshot is the newest commit
        ("undo_page", "<i8"),  # the undo page that the transaction writes to; -1 = none yet
        ("undo_runs", "<i8"),  # on how many undo pages it began
        ("commit", "<i8"),  # out: its SCN
        ("blocked", "<i8"),  # out: place of the row that has a key or may have it; -1 = none
        ("index", "<i8"),  # out: which of the table's indexes that was about
        ("first_index", "<i8"),  # which of them is asked first whether it takes a row's key
        ("lob_roots", "<i8"),  # address of room for the first pages (i64s) of large objects that a row no longer has
        ("records", "<i8"),  # address of the places (i64s) of the transaction's undo records, oldest first
        ("record_count", "<i8"),  # kernels count it up as they write records
        ("record_limit", "<i8"),  # no call begins with more than these, so that there is room for what it writes
        ("is_sought", "<i8"),  # 1: the last search in the table's only index was for the key of the row that goes in
        ("is_unordered", "<i8"),  # 1: records of index entries are among those of rows
        ("plain", "<i8"),  # 1: the transaction is open, and a change is a single call under read committed
        ("stamp", "<i8"),  # another number whenever definitions may have to be looked up again
        ("read_lsn", "<i8"),  # where the log ended when a kernel last read a key's rows
        ("read_scn", "<i8"),  # which commit was the newest then
        ("feed_from", "<i8"),  # LSN of the first group that has a change of the transaction for readers; 0 = none
    ]
)
TARGET = Structure(
    [
        ("call", "<i8"),  # address of the session's CALL
        ("obj_id", "<i8"),
        ("entry_id", "<i8"),
        ("buffer", "<i8"),  # address of a row or patch that goes in, or of a row that comes out
        ("indexes", "<i8"),  # address of the entry pages (i64s) of the table's indexes
        ("index_count", "<i8"),
        ("lobs", "<i8"),  # address of the numbers (i64s) of the columns that are large objects, in order
        ("lob_count", "<i8"),
        ("lob_id", "<i8"),  # the obj_id of the table's lob segment
        ("lob_entry", "<i8"),  # its entry page
        ("held", "<i8"),  # the call's stamp when the table was last seen to be locked, by the definition told here
        ("seen", "<i8"),  # the call's stamp when reads were last seen to go by this definition
        ("feed", "<i8"),  # the version of its definition, if the table's changes are logged for readers; else 0
    ]
)
RECORDS_A_CALL = 2048  # undo records that one call writes at most
LOB_ROOTS_MAX = 2048  # large objects that a row has at most: a locator takes more than 16 bytes of a page
call_at = records(CALL)
target_at = records(TARGET)


# ---- The fields of the record through which a session and its kernels talk (``kernel.call.CALL``), by position.

_POSITIONS = {name: n for n, name in enumerate(CALL.names)}
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
FIRST_INDEX = _POSITIONS["first_index"]
LOB_ROOTS = _POSITIONS["lob_roots"]
RECORDS = _POSITIONS["records"]
RECORD_COUNT = _POSITIONS["record_count"]
RECORD_LIMIT = _POSITIONS["record_limit"]
IS_UNORDERED = _POSITIONS["is_unordered"]
PLAIN = _POSITIONS["plain"]
STAMP = _POSITIONS["stamp"]
FEED_FROM = _POSITIONS["feed_from"]
_TARGET_POSITIONS = {name: n for n, name in enumerate(TARGET.names)}
HELD, SEEN = _TARGET_POSITIONS["held"], _TARGET_POSITIONS["seen"]
