"""The redo log: files of fixed size that hold one endless stream of groups.

A position in the stream is an LSN.  File n holds the stream's bytes from n × payload on, behind a head.
A group is what one kernel call changed: all of it counts or nothing.  Its items are bytes of pages, in the order in
which they were written.  Replaying an item on a page puts the bytes there and sets the page's ``chg_num``.

Invariants
 1. A group whose LSN is not its position, or whose CRC is wrong, does not count as a group: the log ends before it.
 2. After a crash the log goes on in a new file, which names the LSN at which the one before it ended.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gmdb.format.checksum import crc32c
from gmdb.format.layout import layout

MAGIC = b"GMDBREDO"

REDO_FILE = layout(
    "redo file head",
    64,
    magic=("S8", "GMDBREDO"),
    database_id=("16u1", "the database that it belongs to"),
    number=("<u8", "which file of the stream: it starts at LSN number × payload"),
    follows=("<u8", "the LSN at which the file before it ended"),
    file_size=("<u4", "bytes of the file, this head included"),
    reserved=("16u1", "0"),
    crc=("<u4", "CRC32C of all bytes before it"),
)

REDO_GROUP = layout(
    "redo group head",
    32,
    length=("<u4", "bytes of the group, this head and up to 7 zeros at the end included"),
    crc=("<u4", "CRC32C of all bytes of the group behind this field"),
    lsn=("<u8", "where in the stream the group begins"),
    durable=("<u8", "up to which LSN the log was on disk when the group was made"),
    transaction=("<u8", "the transaction's number; 0 = none"),
)

REDO_ITEM = layout(
    "redo item head",
    16,
    page_id=("<u4", "the page that it changes"),
    page_create_no=("<u4", "which formatting of that page it belongs to"),
    chg_num=("<u4", "the page's chg_num with the change"),
    offset=("<u2", "where in the page the bytes go; from 0xFF00 on, what the item means: see RedoItem"),
    length=("<u2", "bytes that follow"),
)

REDO_COMMIT = layout(
    "redo commit",
    24,
    scn=("<u8", "the commit's number"),
    time=("<u8", "when: microseconds since 1970"),
    began=("<u8", "LSN of the first group with a change item of the transaction; 0 = it has none"),
)


REDO_CHANGE = layout(
    "redo change",
    16,
    version=("<u4", "the definition of the row's table, which the folder feeds has"),
    undo_page=("<u4", "where its undo record is: the page; none for rows of a bulk load"),
    undo_slot=("<u2", "and the slot"),
    slot=("<u2", "the row's slot on the item's page"),
    operation=("<u1", "see ChangeOperation"),
    before_is_patch=("<u1", "1 = of the row before, only the columns that were changed follow"),
    row_size=("<u2", "bytes of the row that follows; behind it, the row before, if it was changed"),
)

REDO_TAKEN_BACK = layout(
    "redo taken back",
    16,
    undo_page=("<u4", "the undo record that was taken back: its page"),
    undo_slot=("<u2", "and its slot"),
    reserved=("<u2", "0"),
    first_page=("<u4", "of pages of a bulk load that went with it, the first; else NO_PAGE"),
    page_count=("<u4", "and how many"),
)


class RedoItem(IntEnum):
    """Items that are not bytes at an offset."""

    FORMAT = 0xFFFF  # the page starts over: all zero but for its head, which follows
    IMAGE = 0xFFFE  # the whole page, without its free bytes and its tail
    COMMIT = 0xFFFD  # the group's transaction committed
    CHANGE = 0xFFFC  # what a row of a table with a change feed is now, or what became of the table
    TAKEN_BACK = 0xFFFB  # the group's transaction has taken back what an undo record is about


class ChangeOperation(IntEnum):
    """What a change item says."""

    INSERT = 1
    UPDATE = 2
    DELETE = 3  # the row that follows is what it was
    LOAD = 4  # all rows of the page whose image is the item before
    TRUNCATE = 5  # the table has no rows any more
    DROP = 6  # the table was dropped
    STOP = 7  # the table's changes are logged no more
    START = 8  # the table's changes are logged from here on


HEAD_SPACE = 512  # a file's head has a sector of its own
FILE_SIZES = (1 << 20, 1 << 30)


def payload(file_size: int) -> int:
    """Bytes of the stream that a file holds."""
    return file_size - HEAD_SPACE


def pack_file_head(database_id: bytes, number: int, follows: int, file_size: int) -> bytes:
    fields = {"magic": MAGIC, "database_id": list(database_id), "number": number, "follows": follows}
    raw = REDO_FILE.pack(file_size=file_size, **fields)[:-4]
    return (raw + crc32c(raw).to_bytes(4, "little")).ljust(HEAD_SPACE, b"\0")


def read_file_head(data: bytes) -> dict[str, Any] | None:
    """A file's head; None if it is not whole."""
    raw = data[: REDO_FILE.size]
    if len(raw) < REDO_FILE.size or not raw.startswith(MAGIC):
        return None
    if crc32c(raw[:-4]) != int.from_bytes(raw[-4:], "little"):
        return None
    return REDO_FILE.values(raw)
