"""The prose of docs/file_format.md, a chapter for each module of format/.  Numbers in braces are filled in."""

from __future__ import annotations

INTRODUCTION = """\
# The file format

Every byte that gmdb writes. This document is made from the layouts in `src/gmdb/format/` by `make docs`; edit those,
not this. All integers are little-endian, and structures are packed without padding.

A database is a directory:

| file | holds |
|---|---|
| `{control_name}` | which state of the database is valid: the control record, twice |
| `{lock_name}` | nothing that lasts: the owner's process number; the file is there to be locked |
| `device-0000`, `device-0001`, … | the pages of a device, side by side, page 0 first |
| `redo-0000000001`, … | the log of what was changed since the last checkpoint; none in a database that was closed |
| `gmdb.mirror` | pages that a checkpoint is writing to their places; none in a database that was closed |
| `archive/` | redo files that are needed no more, if archiving is on |
| `snapshots/` | pinned instants, and pages as they were then; none if nobody has pinned one |
| `loads/` | a folder for each bulk load, or index that Spark builds, with its staging files; no part of the database |

To look at a database's bytes, use `gmstat`: `gmstat spaces DB`, `gmstat segments DB`, `gmstat page DB 4:7`.
"""

CHAPTERS: dict[str, tuple[str, str]] = {
    "address": (
        "Addresses",
        """\
A page id is a device and a place in it, `device << {offset_bits} | offset`: {devices} devices of {pages_per_device}
pages, which at 8 KiB a page are {device_gib} GiB a device and {database_tib} TiB a database. People write it
`device:offset`: page {example_id} is {example_name}. A page starts at byte `offset * page_size` of its device's file.

No page is {no_page}, no slot {no_slot}. Devices 0 to 3 are the system's, undo, temporary data and large objects;
users' tablespaces start at device 4. The page size is a property of the tablespace: {page_sizes} bytes.

A row id is a page and a slot of its directory. It stays the same while its row is updated, moved within the page,
or moved to another page.
""",
    ),
    "page": (
        "Page head and tail",
        """\
Every page begins with a head of {head_size} bytes and ends in a tail of {tail_size}. The tail holds the CRC32C
(Castagnoli) of all bytes before it. A page is written with latch, mutex and dirty flag zero and with no next page of
the dirty chain, so that all of its bytes count.

`free_begin` and `free_end` bound the free bytes: entries grow up from below, the slot directory down from the tail.
Slot *n* is the u16 at `page_size - {tail_size} - 2(n + 1)`; it holds the offset of its entry from the page's start.
A slot with its high bit set was freed; its other bits are the number of the next freed slot.
""",
    ),
    "device": (
        "Devices and tablespaces",
        """\
Page 0 of a device holds the page head, the device head and the space head. A tablespace has the number of its first
device, which also keeps the tablespace's counts. Pages from the high-water mark on have never been used; a page below
it that was given back is on the device's list of free pages, linked through the free pages themselves.
""",
    ),
    "segment": (
        "Segments and their maps",
        """\
A table, an index or an undo log is a segment. It is known by its entry page, which has the segment head and, at
{entry_map_at}, the first part of the map; further map pages are chained both ways. A map entry names a data page, and
the data page's head names its map entry. `sys_tables`, which lists all tables, has its entry page at {sys_tables}.

A data page with room is on one of {free_lists} free lists: the pages of list *n* let an insert put at least
(*n* + 1)/{room_steps} of the bytes for rows into them. A page without any row is on the empty list. Map entries that
name no page are on a list of their own. Each list is linked through the map entries, across map pages.
""",
    ),
    "row": (
        "Rows",
        """\
A row is a header, size bits and values. The header's first word holds the number of the row's lock in its low three
bytes ({no_lock} is none) and the row's flags in its high byte. `size` counts everything, from the header on.

The size bits are two for each column, in whole 32-bit words of {columns_per_word} columns, the first column lowest:
they say how many bytes the value has. So the header with its size bits takes {header_16} bytes for up to 16 columns,
{header_17} for up to 32, {header_1024} for {columns_max}, the most that a table can have. Values follow one another
without padding. A null has no bytes. Columns that were added to a table after a row was written are null in it.

A deleted row has the DELETE flag until it is cleaned away. A row that moved to another page leaves an ENTRY row behind:
one 8-byte column, the row id of the LINK row that holds the values.
""",
    ),
    "heap": (
        "Heap pages",
        """\
The rows of a table, appended from {rows_at} on in order of arrival. Every row takes at least {min_occupied} bytes of
the page, so that an ENTRY row fits where any row was.

The fill rule: an insert leaves `pct_free` per cent of the bytes for rows and slots free, so that updates find room.
In a page of 8 KiB these are {usable} bytes, of which {reserve} stay free at the default of {pct_free} per cent: rows of
24 bytes stop at {rows_of_24} a page. An empty page takes any row that fits, up to {row_max} bytes.
""",
    ),
    "btree": (
        "B-tree pages",
        """\
Entries lie in order of arrival, the slot directory is in key order. An entry has a row's header, then 8 bytes (a row id
in a leaf, a child in a branch), then the key's columns by the row's two-bit rule. The last entry of a branch has a null
key and no upper bound. A branch of INT keys holds {branch_entries} entries in 8 KiB.
""",
    ),
    "hash": (
        "Hash index pages",
        """\
`hash_page_type` in the page head tells a directory page from a bucket page. An entry has an address of 64 bits: 40 that
hash its key, then 24 that hash its row id. From the top, each level of directories chooses by up to 10 bits of the
address, then of the row id, none across the border of the two; a slot names a bucket, a directory of the level below,
or no page if there is no entry with these bits. A bucket is in all slots of its directory with the bits that its
entries share. An entry is that of a B-tree's leaf with one more column, the address; the slot directory is in order
of address, then of row id.
""",
    ),
    "lob": (
        "Large objects",
        """\
A BLOB or CLOB cell of a row begins with a byte that says where the value is: 0, then its bytes, up to {inline_max} of
them; or 1, and the cell is a locator of the value's first page in the table's lob segment, which `sys_tables` names.

On pages a value is a tree of at most {lob_levels} levels. The first page, by which it is known, is its root; a value of
up to {lob_capacity} bytes (in pages of 8 KiB) is on that page alone. Else a page of a level above 0 lists up to
{lob_fan_out} pages of the level below, in order. All pages but the last of each level are full: the page of level 0
that has byte *n* is number *n* / {lob_capacity}. A value has at most {lob_max} bytes.
""",
    ),
    "undo": (
        "Undo pages",
        """\
Records of how rows and index entries were before a transaction changed them. HEAP_UPDATE_INC keeps only what changed:
a row image of those columns, then their numbers, a u16 each, filled up to 4 bytes. In an image the lock word
0xFFFFFFFF means that the row had no lock. LOB_INSERT and LOB_DELETE name a large object's first page instead of a row:
one that goes if the transaction is rolled back, one that goes when everybody sees that it has committed.

The records of one transaction that lie one behind the other are a run. The owner of a page's first run is in the page
head's reserve bytes; each later run begins with an OWNER record, whose body is an undo owner.
""",
    ),
    "transactions": (
        "The transaction table",
        """\
Which transactions have committed and still have undo records. A transaction that undo records name, but not this
table, had not committed; after a crash it is rolled back.
""",
    ),
    "redo": (
        "The redo log",
        """\
Files of one size hold an endless stream of bytes, each behind a head of its own. A place in the stream is an LSN; file
n starts at LSN n times its payload. The stream is a list of groups, each what one step of the engine changed: it is
replayed as a whole or not at all. A group's items follow its head, each with bytes for one page. They apply to a page
whose `page_create_no` is the item's and whose `chg_num` is one less, or the same; a page that is newer keeps what it
has. FORMAT and IMAGE apply to any page.
""",
    ),
    "mirror": (
        "The mirror file",
        """\
A round of a checkpoint: pages that are about to be written to their places. A page that a crash tears there is whole
here. It counts only for the checkpoint after the one that the control file names.
""",
    ),
    "images": (
        "Images of pinned snapshots",
        """\
`snapshots/NAME.pin` is a JSON document: which checkpoint and which commit the instant is of, how far each device is in
use, the tables, and for whom it is kept. `NAME.locks` has the locks of transactions that were under way. An image file
holds pages as they were when they were pinned, in batches: before a page is overwritten in its place its image is
written here. A reader takes the page in its place if its `ckpt_id` is not higher than the pin's, unless there is an
image with a higher one that is not higher than the pin's either.
""",
    ),
    "staging": (
        "Staging files",
        """\
A task of a bulk load writes one, in `loads/<load id>/`; the owner of the database takes it in and writes its pages to
their places. It holds heap pages one behind the other, whose heads say what is on them but not where they belong or to
which table, and whose tails are zero; or, for tables with large objects or with numbers that the owner hands out, a
stream of Arrow IPC. One that a task of building an index writes holds leaves of a B-tree, in the order of their
entries, without places either. Behind that, at the end of the file, is its seal: a file without one was not finished.
Beside the files lies `driver.json`, which says what process they belong to.
""",
    ),
    "control": (
        "The control file",
        """\
Two copies of the control record, {copy_distance} bytes apart and written in turn. Of the copies whose CRC is right,
the one with the higher sequence counts, so that a write that is cut short leaves the one before it.
""",
    ),
    "columns": (
        "Column types",
        """\
CHAR and VARCHAR have at most {varchar_max} bytes, BINARY and VARBINARY {binary_max}, as far as a page of the tablespace
holds them; BLOB and CLOB take any value of up to {lob_max} bytes. An empty string has a length of 1, its NUL; a null
has no length.
""",
    ),
}

REGIONS = """\
## Names of bytes

`gmstat page`, `gmstat hex` and `gmstat diff` name every byte of a page. A field of a structure above has the
structure's place before it: `head.chg_num`, `rows[3].lock_id`, `segment.free_lists[0].first.page_id`. What is no
field of a structure has one of these names.
"""
REGION_NAMES: dict[str, str] = {
    "head": "the page head",
    "tail": "the page tail",
    "device": "the device head",
    "space": "the space head, behind it",
    "segment": "the segment head of an entry page",
    "map": "the map head",
    "node": "the node head of a page of rows, entries, records or a large object, or of a free page",
    "entries[n]": "a map entry, a transaction entry, or entry n of an index page",
    "entries[n].pointer": "of an index: the row id or the child page",
    "entries[n].key": "of an index: the columns of the key; of a hash index also the address behind them",
    "rows[n]": "the row in slot n",
    "rows[n].bit_array[1:]": "size bits of columns behind the first 16",
    "rows[n].column[m].length": "the length of a value that has one",
    "rows[n].column[m]": "the bytes of a value",
    "records[n]": "the undo record in slot n",
    "records[n].image": "what was there before",
    "slots[n]": "slot n of the slot directory; slots of a hash directory: pages",
    "pages[n]": "of a large object: a page of the level below",
    "value": "of a large object: bytes of the value",
    "free": "free bytes",
    "unused": "left behind by a row that moved, or never used",
}
