"""Generates docs/file_format.md from the layouts in format/: ``python -m gmdb.inspect.document > docs/file_format.md``.

Offsets, sizes and capacities are computed from the code that reads and writes the bytes; only the prose is here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from types import ModuleType

from gmdb.format import (
    address,
    arrays,
    btree,
    columns,
    control,
    device,
    hash,
    heap,
    images,
    key_program,
    lob,
    mirror,
    page,
    redo,
    row,
    segment,
    staging,
    transactions,
    undo,
)
from gmdb.format.address import page_id_of, page_name
from gmdb.format.columns import parse_column
from gmdb.format.layout import Field, Layout
from gmdb.process.late_imports import numpy as np
from gmdb.storage.directory import CONTROL_NAME, LOCK_NAME
from gmdb.tables.catalog.schema import SYS_TABLES_ENTRY

# ---- The prose of docs/file_format.md, a chapter for each module of format/.  Numbers in braces are filled in.

INTRODUCTION = """\
# The file format

Every byte that gmdb writes. This document is generated from the layouts in `src/gmdb/format/` by `make docs`; edit
those, not this. All integers are little-endian, and structures are packed without padding.

A database is a directory:

| file | holds |
|---|---|
| `{control_name}` | which state of the database is valid: the control record, twice |
| `{lock_name}` | the owner's process number; the file is there to be locked |
| `device-0000`, `device-0001`, … | the pages of a device, one after the other, page 0 first |
| `redo-0000000001`, … | the log of changes since the last checkpoint; none in a database that was closed |
| `gmdb.mirror` | pages that a checkpoint is writing to their places; none in a database that was closed |
| `archive/` | redo files that are no longer needed, if archiving is on |
| `snapshots/` | pinned instants, and pages as they were then; not there if none was pinned |
| `loads/` | a folder for each bulk load, or index that Spark builds, with its staging files; not part of the database |

To look at a database's bytes, use `gmstat`: `gmstat spaces DB`, `gmstat segments DB`, `gmstat page DB 4:7`.
"""

CHAPTERS: dict[str, tuple[str, str]] = {
    "address": (
        "Addresses",
        """\
A page id is a device and a place in it, `device << {offset_bits} | offset`: {devices} devices of {pages_per_device}
pages, which at 8 KiB a page are {device_gib} GiB a device and {database_tib} TiB a database. People write it
`device:offset`: page {example_id} is {example_name}. A page starts at byte `offset * page_size` of its device's file.

{no_page} stands for no page, {no_slot} for no slot. Devices 0 to 3 are the system's, undo, temporary data and large
objects; users' tablespaces start at device 4. The page size is a property of the tablespace: {page_sizes} bytes.

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
A slot with its high bit set is free; its other bits are the number of the next free slot.
""",
    ),
    "device": (
        "Devices and tablespaces",
        """\
Page 0 of a device holds the page head, the device head and the space head. A tablespace has the number of its first
device, which also keeps the tablespace's counts. Pages from the high-water mark on have never been used; a free page
below it is on the device's list of free pages, which is linked through these pages.
""",
    ),
    "segment": (
        "Segments and their maps",
        """\
A table, an index or an undo log is a segment. It is known by its entry page, which has the segment head and, at
{entry_map_at}, the first part of the map; further map pages are chained both ways. A map entry names a data page, and
the data page's head names its map entry. `sys_tables`, which lists all tables, has its entry page at {sys_tables}.

A data page with room is on one of {free_lists} free lists: pages on list *n* have room for inserts of at least
(*n* + 1)/{room_steps} of the bytes for rows. A page without any row is on the empty list. Map entries that name no page
are on a list of their own. Each list is linked through the map entries, across map pages.
""",
    ),
    "row": (
        "Rows",
        """\
A row is a header, size bits and values. The header's first word holds the number of the row's lock in its low three
bytes ({no_lock} is none) and the row's flags in its high byte. `size` counts everything, from the header on.

Each column has two size bits, in 32-bit words of {columns_per_word} columns, the first column in the lowest bits; they
say how many bytes the value has. So the header with its size bits takes {header_16} bytes for up to 16 columns,
{header_17} for up to 32, {header_1024} for {columns_max}, the most that a table can have. Values follow one another
without padding. A null has no bytes. Columns that were added to a table after a row was written are null in it.

A deleted row has the DELETE flag until garbage collection removes it. A row that moved to another page leaves an ENTRY
row behind: one 8-byte column, the row id of the LINK row that holds the values.
""",
    ),
    "heap": (
        "Heap pages",
        """\
The rows of a table, appended from offset {rows_at} on. Every row takes at least {min_occupied} bytes of the page, so
that an ENTRY row fits in the place of any row.

The fill rule: an insert leaves `pct_free` per cent of the bytes for rows and slots free, so that updates find room.
In a page of 8 KiB these are {usable} bytes, of which {reserve} stay free at the default of {pct_free} per cent: rows of
24 bytes stop at {rows_of_24} a page. An empty page takes any row that fits, up to {row_max} bytes.
""",
    ),
    "btree": (
        "B-tree pages",
        """\
Entries are in the order in which they were inserted, the slot directory is in key order. An entry has a row's header,
then 8 bytes (a row id in a leaf, a child in a branch), then the key's columns with size bits as in a row. The last
entry of a branch has a null key and no upper bound. A branch of INT keys holds {branch_entries} entries in 8 KiB.
""",
    ),
    "key_program": (
        "Key programs",
        """\
A partial index has entries of the rows that meet its condition. The condition is a key program in the last
{program_room} bytes of the entry page of the index's segment, whose map then has {program_entries} entries fewer.
Behind the head come the instructions, then the constants that they name. An instruction takes truths from a stack or
puts one there; a row has an entry if the last one is true. sys_indexes has the condition as text, and the program.
""",
    ),
    "hash": (
        "Hash index pages",
        """\
`hash_page_type` in the page head distinguishes directory and bucket pages. An entry has an address of 64 bits: 40 that
hash its key, then 24 that hash its row id. From the top, each level of directories chooses by up to 10 bits of the
address, then of the row id; no level uses bits of both. A slot names a bucket, a directory of the level below, or no
page if there is no entry with these bits. A bucket is in all slots of its directory with the bits that its entries
share. An entry is that of a B-tree's leaf with one more column, the address; the slot directory is in order
of address, then of row id.
""",
    ),
    "lob": (
        "Large objects",
        """\
A BLOB or CLOB cell of a row begins with a byte that says where the value is: 0, then its bytes, up to {inline_max} of
them; or 1, and the cell is a locator of the value's first page in the table's lob segment, which `sys_tables` names.

A TEXT or BYTEA (and a VARCHAR or VARBINARY that may be longer than rows keep) is in the row as it is, up to
{text_in_row_max} bytes of it. Of a longer one, and of one that its row has no room for, the row has a text locator. No
UTF-8 begins with its first byte; bytes that look like one are on pages, too.

On pages a value is a tree of at most {lob_levels} levels. The first page, by which it is known, is its root; a value of
up to {lob_capacity} bytes (in pages of 8 KiB) is on that page alone. Else a page of a level above 0 lists up to
{lob_fan_out} pages of the level below, in order. All pages but the last of each level are full: the page of level 0
that has byte *n* is number *n* / {lob_capacity}. A value has at most {lob_max} bytes.
""",
    ),
    "arrays": (
        "Arrays",
        """\
The value of an array column, such as INT[] or TEXT[], has one dimension. It is stored as a BYTEA is: in its row, or on
pages of its own. Behind its head, if `has_nulls` says so, are bits, {array_bits} elements to a byte; then the elements.
Of types whose values all have the same size, the elements follow each other as rows have them, NULL as zero bytes. Of
TEXT and BYTEA, VARCHAR and VARBINARY, there first is a u{array_end} for each element, the number of bytes of all
elements up to its end; then their bytes, without a NUL. A NULL has no bytes there.
""",
    ),
    "undo": (
        "Undo pages",
        """\
Records of how rows and index entries were before a transaction changed them. HEAP_UPDATE_INC keeps only what changed:
a row image of those columns, then their numbers, a u16 each, filled up to 4 bytes. In an image the lock word
0xFFFFFFFF means that the row had no lock. LOB_INSERT and LOB_DELETE name a large object's first page instead of a row:
the object of a LOB_INSERT is removed if the transaction is rolled back, that of a LOB_DELETE once every snapshot in use
sees the commit.

Consecutive records of one transaction are a run. The owner of a page's first run is in the page head's reserve bytes;
each later run begins with an OWNER record, whose body is an undo owner.
""",
    ),
    "transactions": (
        "The transaction table",
        """\
The transactions that have committed and still have undo records. A transaction that undo records name, but not this
table, has not committed; after a crash it is rolled back.
""",
    ),
    "redo": (
        "The redo log",
        """\
Files of one size, each with a head, hold one endless stream of bytes. A place in the stream is an LSN; file n starts at
LSN n times its payload. The stream is a sequence of groups. A group is what one step of the engine changed, and is
replayed as a whole or not at all. Its items follow its head, each with bytes for one page. An item applies to a page
whose `page_create_no` is the item's and whose `chg_num` is one less, or the same; a newer page stays as it is. FORMAT
and IMAGE apply to any page.
""",
    ),
    "mirror": (
        "The mirror file",
        """\
The pages that a round of a checkpoint is about to write to their places. A page that a crash tears there is whole here.
The file counts only for the checkpoint after the one that the control file names.
""",
    ),
    "images": (
        "Images of pinned snapshots",
        """\
`snapshots/NAME.pin` is a JSON document: the checkpoint and the commit of the instant, how far each device is in use,
the tables, and the process that holds the pin. `NAME.locks` has the locks of transactions that were under way. An image
file holds pages as they were when they were pinned, in batches: before a page is overwritten in its place, its image is
written here. A reader takes the newest version of a page whose `ckpt_id` is not higher than the pin's, be it the page
in its place or an image.
""",
    ),
    "staging": (
        "Staging files",
        """\
Each task of a bulk load writes one, in `loads/<load id>/`; the owner of the database takes it in and writes its pages
to their places. It holds heap pages one after the other, whose heads do not yet say where they belong or to which
table, and whose tails are zero; or, for tables with large objects or identity columns, a stream of Arrow IPC. A task
that builds an index writes leaves of a B-tree, in the order of their entries, also without places. At the end of the
file is its seal; a file without one was not finished. `driver.json` beside the files names the process that they belong
to.
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
CHAR has at most {varchar_max} bytes, BINARY {binary_max}, as far as a page of the tablespace holds them. VARCHAR(n) and
VARBINARY(n) have up to {length_max} bytes, and without a length, as TEXT and BYTEA, {text_max}: from {varchar_max} and
{binary_max} on their values may be on pages of their own. BLOB and CLOB take any value of up to {lob_max} bytes. An
empty string has a length of 1, its NUL; a null
has no length.
""",
    ),
}

REGIONS = """\
## Names of bytes

`gmstat page`, `gmstat hex` and `gmstat diff` name every byte of a page. A field of a structure above has the
structure's name before it: `head.chg_num`, `rows[3].lock_id`, `segment.free_lists[0].first.page_id`. Bytes that are not
a field of a structure have one of these names.
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
    "records[n].image": "the row or entry before the change",
    "slots[n]": "slot n of the slot directory; slots of a hash directory: pages",
    "pages[n]": "of a large object: a page of the level below",
    "value": "of a large object: bytes of the value",
    "free": "free bytes",
    "unused": "left behind by a row that moved, or never used",
}


# ---- Generating the document.

_MODULES: dict[str, ModuleType] = {
    module.__name__.rpartition(".")[2]: module
    for module in (
        address,
        page,
        device,
        segment,
        row,
        heap,
        btree,
        key_program,
        hash,
        lob,
        arrays,
        undo,
        transactions,
        redo,
        mirror,
        images,
        staging,
        control,
        columns,
    )
}
_ENUMS: dict[str, tuple[type[IntEnum] | type[IntFlag], ...]] = {
    "page": (page.PageType, page.SegmentType),
    "row": (row.RowFlag, row.SizeCode),
    "btree": (btree.IndexKind, btree.Order),
    "key_program": (key_program.ProgramOperation, key_program.Truth),
    "hash": (hash.HashPageType,),
    "lob": (lob.LobPlace,),
    "undo": (undo.UndoOperation,),
    "redo": (redo.RedoItem, redo.ChangeOperation),
    "staging": (staging.StagedKind,),
}
_EXAMPLE_TYPES = (
    "SMALLINT", "INT", "REAL", "DATE", "BOOLEAN", "DECIMAL(9,2)", "BIGINT", "DOUBLE", "TIME", "TIMESTAMP",
    "TIMESTAMPTZ", "DECIMAL(18,2)", "DECIMAL(38,2)", "INTERVAL", "UUID", "CHAR(10)", "VARCHAR(10)", "TEXT",
    "BINARY(10)", "VARBINARY(10)", "BYTEA", "INT[]", "JSON", "JSONB", "BLOB", "CLOB",
)  # fmt: skip
_STORED = {
    "SMALLINT": "two's complement, of 16 bits",
    "INT": "two's complement",
    "BIGINT": "two's complement",
    "DATE": "days since 1970-01-01",
    "TIMESTAMP": "microseconds since 1970-01-01 00:00:00, no time zone",
    "BOOLEAN": "0 or 1",
    "REAL": "IEEE 754",
    "DOUBLE": "IEEE 754",
    "TIME": "microseconds since midnight",
    "TIMESTAMPTZ": "microseconds since 1970-01-01 00:00:00 UTC",
    "INTERVAL": "months and days, i32 each, then nanoseconds, i64, which are whole microseconds",
    "UUID": "its 16 bytes in order",
    "DECIMAL": "the digits as one two's complement integer, the scale left out",
    "CHAR": "UTF-8, filled up with blanks, then a NUL that counts in the length",
    "VARCHAR": "UTF-8, then a NUL that counts in the length",
    "TEXT": "UTF-8, or a text locator; then a NUL that counts in the length",
    "JSON": "UTF-8 as it was written, or a text locator; then a NUL that counts in the length",
    "JSONB": "UTF-8 in normal form, or a text locator; then a NUL that counts in the length",
    "BYTEA": "the bytes, or a text locator",
    "BINARY": "the bytes, filled up with zero bytes",
    "VARBINARY": "the bytes",
    "INT[]": "an array head, the elements, or a text locator",
    "BLOB": "a byte that says where the value is, then the bytes or a locator",
    "CLOB": "a byte that says where the value is, then UTF-8 or a locator",
}
_BITS = ("no bytes", "4 bytes", "8 bytes", "u16 length, then the bytes")


def render() -> str:
    """The whole document."""
    return "\n".join([_filled(INTRODUCTION), *_chapters(), *_region_names()]).rstrip() + "\n"


def _chapters() -> Iterator[str]:
    owners = layout_owners()
    for name, (heading, prose) in CHAPTERS.items():
        yield f"## {heading}\n"
        yield _filled(prose)
        for layout in (layout for layout, owner in owners.items() if owner == name):
            yield from _structure(layout)
        for kinds in _ENUMS.get(name, ()):
            yield from _enumeration(kinds)
        if name == "columns":
            yield from _types()
        if name == "segment":
            yield from _capacities()


def layout_owners() -> dict[Layout, str]:
    """Each layout with the module that declares it; modules are listed before those that import them."""
    owners: dict[Layout, str] = {}
    for name, module in _MODULES.items():
        for value in vars(module).values():
            if isinstance(value, Layout) and value not in owners:
                owners[value] = name
    return owners


def _filled(prose: str) -> str:
    return prose.format(**_numbers())


def _numbers() -> dict[str, object]:
    size = page.PAGE_SIZES[0]
    usable, reserve = heap.usable_size(size), heap.reserve_size(size, segment.DEFAULT_PCT_FREE)
    row_with_slot = row.header_size(2) + 12 + 2
    return {
        "devices": f"{address.DEVICES:,}",
        "pages_per_device": f"{address.PAGES_PER_DEVICE:,}",
        "offset_bits": address.OFFSET_BITS,
        "device_gib": address.PAGES_PER_DEVICE * size >> 30,
        "database_tib": address.DEVICES * address.PAGES_PER_DEVICE * size >> 40,
        "example_id": page_id_of(4, 345),
        "example_name": page_name(page_id_of(4, 345)),
        "page_sizes": ", ".join(f"{n:,}" for n in page.PAGE_SIZES),
        "no_page": f"0x{address.NO_PAGE:X}",
        "no_slot": f"0x{address.NO_SLOT:X}",
        "head_size": page.HEAD_SIZE,
        "tail_size": page.TAIL_SIZE,
        "rows_at": heap.ROWS_AT,
        "usable": f"{usable:,}",
        "reserve": f"{reserve:,}",
        "pct_free": segment.DEFAULT_PCT_FREE,
        "row_max": f"{heap.row_size_max(size):,}",
        "rows_of_24": (usable - reserve) // row_with_slot,
        "min_occupied": row.MIN_OCCUPIED,
        "columns_max": f"{row.MAX_COLUMNS:,}",
        "columns_per_word": row.COLUMNS_PER_WORD,
        "header_16": row.header_size(16),
        "header_17": row.header_size(17),
        "header_1024": row.header_size(row.MAX_COLUMNS),
        "no_lock": f"0x{row.NO_LOCK:X}",
        "varchar_max": f"{columns.VARCHAR_MAX:,}",
        "binary_max": f"{columns.BINARY_MAX:,}",
        "length_max": f"{columns.LENGTH_MAX:,}",
        "text_max": f"{columns.TEXT_MAX:,}",
        "text_in_row_max": f"{lob.TEXT_IN_ROW_MAX:,}",
        "inline_max": f"{lob.INLINE_MAX:,}",
        "lob_levels": lob.LEVEL_MAX + 1,
        "lob_capacity": f"{lob.capacity(size):,}",
        "lob_fan_out": f"{lob.fan_out(size):,}",
        "lob_max": f"{lob.LOB_MAX:,}",
        "array_bits": 8,
        "array_end": 8 * arrays.END_SIZE,
        "free_lists": segment.FREE_LISTS,
        "room_steps": segment.ROOM_STEPS,
        "entry_map_at": segment.ENTRY_MAP_AT,
        "sys_tables": page_name(SYS_TABLES_ENTRY),
        "control_name": CONTROL_NAME,
        "lock_name": LOCK_NAME,
        "copy_distance": f"{control.COPY_DISTANCE:,}",
        "program_room": f"{segment.PROGRAM_ROOM:,}",
        "program_entries": segment.PROGRAM_ENTRIES,
        "branch_entries": (size - btree.ENTRIES_AT - page.TAIL_SIZE)
        // (row.header_size(1) + btree.POINTER_SIZE + 4 + 2),
    }


def _structure(layout: Layout) -> Iterator[str]:
    yield f"### {layout.name}: {layout.size} bytes\n"
    yield "| offset | size | type | field | meaning |"
    yield "|---:|---:|---|---|---|"
    for offset, size, kind, name, meaning in _field_rows(layout):
        yield f"| {offset} | {size} | {kind} | {name} | {meaning.replace('|', chr(92) + '|')} |"
    yield ""


def _field_rows(layout: Layout) -> Iterator[tuple[int, int, str, str, str]]:
    """One row per field; a nested structure is one row if it has structures of its own, else one row per field."""
    for name in layout.dtype.names or ():
        dtype, offset = layout.dtype.fields[name][:2]  # type: ignore[index]
        inner = _named_like(dtype.base)
        if inner is not None and any(_named_like(inner.dtype[n].base) for n in inner.dtype.names or ()):
            count = f"[{dtype.shape[0]}]" if dtype.shape else ""
            yield offset, dtype.itemsize, f"{inner.name}{count}", name, _meaning_of_lists(name)
            continue
        for field in layout.fields:
            if field.name == name or field.name.startswith(f"{name}."):
                yield field.offset, field.size, _type_name(field), field.name, field.meaning


def _named_like(dtype: np.dtype) -> Layout | None:
    if dtype.names is None:
        return None
    return next(layout for layout in layout_owners() if layout.dtype == dtype)


def _meaning_of_lists(name: str) -> str:
    return {
        "free_lists": "pages by the room that inserts may use",
        "empty_list": "pages without any row",
        "free_map_list": "map entries that list no page",
    }.get(name, "")


def _type_name(field: Field) -> str:
    dtype = np.dtype(field.type)
    if dtype.kind == "S":
        return f"text[{field.size}]"
    count = f"[{dtype.shape[0]}]" if dtype.shape else ""
    return f"u{8 * dtype.base.itemsize}{count}"


def _enumeration(kinds: type[IntEnum] | type[IntFlag]) -> Iterator[str]:
    yield f"### {kinds.__name__}\n"
    if kinds.__doc__:
        yield f"{kinds.__doc__}\n"
    yield "| value | name |"
    yield "|---:|---|"
    wide = issubclass(kinds, IntFlag) or max(kinds) > 9
    for member in kinds:
        yield f"| {f'0x{member.value:02X}' if wide else member.value} | {member.name} |"
    yield ""


def _types() -> Iterator[str]:
    yield "### Types\n"
    yield "| type | size bits | stored as | bytes |"
    yield "|---|---|---|---|"
    for spelling in _EXAMPLE_TYPES:
        type_ = parse_column("example", spelling).type
        yield f"| {type_} | {type_.size_code:02b} | {_BITS[type_.size_code]} | {_STORED[type_.name]} |"
    yield ""


def _capacities() -> Iterator[str]:
    yield "### Capacities\n"
    yield "| page size | entries: entry page | entries: further map page | bytes for rows and slots | largest row |"
    yield "|---:|---:|---:|---:|---:|"
    for size in page.PAGE_SIZES:
        maps = (segment.map_capacity(size, True), segment.map_capacity(size, False))
        yield "| " + " | ".join(f"{n:,}" for n in (size, *maps, heap.usable_size(size), heap.row_size_max(size))) + " |"
    yield ""


def _region_names() -> Iterator[str]:
    yield REGIONS
    yield "| name | bytes |"
    yield "|---|---|"
    for name, meaning in REGION_NAMES.items():
        yield f"| `{name}` | {meaning} |"
    yield ""


if __name__ == "__main__":
    print(render(), end="")
