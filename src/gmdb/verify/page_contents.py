"""The contents of a page, checked with messages: nodes of indexes, and rows against their table."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from gmdb.errors import Corruption
from gmdb.format import heap, row, slotted, undo
from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, NODE_AT, POINTER_SIZE
from gmdb.format.columns import Column, Kind
from gmdb.format.hash import HASH_NODE, LEVEL_BITS, HashPageType
from gmdb.format.interval import DAY
from gmdb.format.layout import Finding, Layout
from gmdb.format.lob import CELL_MAX, TEXT_IN_ROW_MAX, is_text_locator
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, slot_offset
from gmdb.format.row import (
    BITS_AT,
    COL_COUNT_AT,
    COLUMNS_PER_WORD,
    MIN_OCCUPIED,
    NO_LOCK,
    ROW_HEAD,
    SIZE_AT,
    UNLOCKED,
    RowFlag,
    SizeCode,
    header_size,
    walk_cells,
)
from gmdb.kernel.checks.row_checks import COLUMN_RULE, SCHEMA, TABLE_RULE
from gmdb.kernel.page.soundness import LEVELS_MAX
from gmdb.tables.catalog.schema import TableDefinition

# ---- Pages of indexes, as far as the page alone shows.
#
# The plain twin of ``kernel/checks/page_checks.py``; it says what is wrong with pages that fail there.

_SHORTEST = ROW_HEAD.size + POINTER_SIZE


def node_findings(page: bytes) -> Iterator[Finding]:
    """What is wrong with a B-tree page beyond what ``format.btree.check`` says."""
    level = int(BTREE_NODE.at(page, NODE_AT).level)
    if level >= LEVELS_MAX:
        at = NODE_AT + BTREE_NODE.offset("level")
        yield Finding(at, f"level {level}; no tree has more than {LEVELS_MAX} levels")
    yield from _entry_findings(page, level == 0)


def hash_findings(page: bytes) -> Iterator[Finding]:
    """What is wrong with a page of a hash index beyond what ``format.hash.check`` says."""
    head: Any = PAGE_HEAD.at(page)
    node: Any = HASH_NODE.at(page, NODE_AT)
    if head.hash_tab_head.used_flag != 1:
        at = PAGE_HEAD.offset("hash_tab_head.used_flag")
        yield Finding(at, f"used_flag {head.hash_tab_head.used_flag}; every page of a hash index has 1")
    for name in ("next", "prev"):
        if getattr(node, name) != NO_PAGE:
            at = NODE_AT + HASH_NODE.offset(name)
            yield Finding(at, f"{name} is {page_name(getattr(node, name))}; pages of a hash index have no siblings")
    if head.hash_page_type != HashPageType.BUCKET:
        return
    if node.depth > LEVEL_BITS:
        at = NODE_AT + HASH_NODE.offset("depth")
        yield Finding(at, f"a bucket of depth {node.depth}; directories choose by {LEVEL_BITS} bits at most")
    if head.hash_tab_head.page_count:
        at = PAGE_HEAD.offset("hash_tab_head.page_count")
        yield Finding(at, f"page_count {head.hash_tab_head.page_count} in a bucket, which leads to no pages")
    yield from _entry_findings(page, True)


def _entry_findings(page: bytes, is_leaf: bool) -> Iterator[Finding]:
    node: Any = BTREE_NODE.at(page, NODE_AT)
    end = min(PAGE_HEAD.at(page).free_begin, len(page) - TAIL_SIZE)
    count = min(node.slot_count, slotted.slot_room(page, ENTRIES_AT))
    for slot, offset in enumerate(slotted.slots(page, count)):
        if offset & slotted.SLOT_FREED:
            message = f"slot {slot} is marked as freed; the slots of an index's pages never are"
            yield Finding(slot_offset(len(page), slot), message)
        elif ENTRIES_AT <= offset < end:
            for at, message in _wrong_entry(page, offset, end, is_leaf):
                yield Finding(at, f"slot {slot}: {message}")


def _wrong_entry(page: bytes, offset: int, end: int, is_leaf: bool) -> Iterator[tuple[int, str]]:
    if offset + _SHORTEST > end:
        yield offset, f"an entry takes {_SHORTEST} bytes at least, but the entries end at {end}"
        return
    head: Any = ROW_HEAD.at(page, offset)
    if head.size < _SHORTEST or offset + head.size > end:
        yield (
            offset + SIZE_AT,
            f"an entry of {head.size} bytes, but it has {_SHORTEST} at least and the entries end at {end}",
        )
        return
    if not 1 <= head.col_count <= COLUMNS_PER_WORD:
        yield offset + COL_COUNT_AT, f"an entry has 1 to {COLUMNS_PER_WORD} columns, this one {head.col_count}"
        return
    wrong = _wrong_values(page[offset : offset + head.size])
    if wrong:
        yield offset + BITS_AT, wrong
        return
    if head.bit_array >> 2 * head.col_count:
        yield offset + BITS_AT, f"size bits behind those of the {head.col_count} columns are set"
    yield from _wrong_head(page, offset, head, is_leaf)


def _wrong_values(entry: bytes) -> str:
    """Why the values of the key do not end where the entry does; empty if they do."""
    row = entry[: ROW_HEAD.size] + entry[_SHORTEST:]
    at = ROW_HEAD.size
    try:
        for _, start, length in walk_cells(row, 0, len(row)):
            at = start + length
    except Corruption as error:
        return f"the key is longer than its entry: {error}"
    return "" if at == len(row) else f"the entry has {len(entry)} bytes, but its key ends after {at + POINTER_SIZE}"


def _wrong_head(page: bytes, offset: int, head: Any, is_leaf: bool) -> Iterator[tuple[int, str]]:
    """The lock word, and the padding of the pointer."""
    at = offset + ROW_HEAD.size
    if is_leaf:
        flags = head.lock_id >> 24
        if flags & ~int(RowFlag.DELETE):
            yield offset, f"the entry's flags, 0x{flags:02x}, are not flags of an entry"
        if page[at + 6 : at + 8] != b"\xff\xff":
            yield at + 6, "the row id that an entry holds does not end in 65535"
    else:
        if head.lock_id != UNLOCKED:
            yield offset, "an entry of a branch has neither lock nor flags, but this one has"
        if any(page[at + 4 : at + 8]):
            yield at + 4, "the bytes behind the child page are not zero"


# ---- Rows against their table: the rules for the kernel, and the same checks with messages.
#
# ``row_findings`` is the plain twin of the row checks in ``kernel/checks/row_checks.py``; it says what is wrong with
# rows that fail there.

_KNOWN_FLAGS = int(RowFlag.DELETE | RowFlag.ENTRY | RowFlag.LINK | RowFlag.COMPACTING)
_ENTRY_HEAD = header_size(1)
_WIDTHS = ("NULL", "4 bytes", "8 bytes", "a length and bytes")


def stored_lengths(column: Column) -> tuple[int, int]:
    """The smallest and the largest stored size, in bytes, of a variable value of the column."""
    kind, length = column.type.kind, column.type.length
    if column.type.is_lob:
        return 1, CELL_MAX
    if kind in (Kind.DECIMAL_WIDE, Kind.WIDE):
        return 16, 16
    ending = 1 if kind is Kind.TEXT else 0
    if column.type.may_be_long:
        return ending, TEXT_IN_ROW_MAX + ending
    return (length if column.type.padding else 0) + ending, length + ending


class Rules:
    """The tables' columns as the kernel needs them.  Must be kept alive while ``address`` is in use."""

    def __init__(self, tables: Mapping[int, TableDefinition]) -> None:
        known = [tables[obj_id] for obj_id in sorted(tables)]
        self._columns = np.zeros(sum(len(table.stored) for table in known), COLUMN_RULE)
        self._tables = np.zeros(len(known), TABLE_RULE)
        done = 0
        for number, table in enumerate(known):
            at = self._columns.ctypes.data + done * COLUMN_RULE.itemsize
            self._tables[number] = (table.obj_id, at, len(table.stored))
            for column in table.stored:
                self._columns[done] = _rule(column)
                done += 1
        self._schema = np.array([(self._tables.ctypes.data, len(known))], SCHEMA)
        self.address: int = self._schema.ctypes.data


def _rule(column: Column) -> tuple[Any, ...]:
    kind = column.type.kind
    shortest, longest = stored_lengths(column)
    limit = 10**column.type.length if column.type.name == "DECIMAL" else 0
    limbs = [limit >> 32 * n & 0xFFFF_FFFF for n in range(4)]
    narrow = limit if kind in (Kind.DECIMAL_WORD, Kind.DECIMAL_LONG) else DAY if column.type.name == "TIME" else 0
    facts = int(kind), column.type.size_code, int(column.nullable), int(column.type.may_be_long)
    return *facts, shortest, longest, narrow, limbs


def row_findings(page: bytes, table: TableDefinition | None) -> Iterator[Finding]:
    """What is wrong with the rows of a heap page beyond what ``format.heap.check`` says."""
    end = min(PAGE_HEAD.at(page).free_begin, len(page) - TAIL_SIZE)
    for slot, offset in _entries(page, heap.HEAP_NODE, heap.ROWS_AT, end):
        if offset + MIN_OCCUPIED > end:
            yield Finding(offset, f"slot {slot}: a row takes {MIN_OCCUPIED} bytes at least, but the rows end at {end}")
        elif not any(row.check(page, offset, end, "")):
            for finding in _check_row(page, offset, table):
                yield Finding(finding.offset, f"slot {slot}: {finding.message}")


def record_findings(page: bytes) -> Iterator[Finding]:
    """What is wrong with the records of an undo page beyond what ``format.undo.check`` says."""
    end = min(PAGE_HEAD.at(page).free_begin, len(page) - TAIL_SIZE)
    for slot, offset in _entries(page, undo.UNDO_HEAD, undo.RECORDS_AT, end):
        if offset + undo.UNDO_RECORD.size > end:
            yield Finding(offset, f"slot {slot}: the record's head reaches past the records' end, {end}")


def _entries(page: bytes, node: Layout, entries_at: int, end: int) -> Iterator[tuple[int, int]]:
    """(slot, offset) of the slots that lead into the entries."""
    count = min(node.at(page, PAGE_HEAD.size).slot_count, slotted.slot_room(page, entries_at))
    for slot, offset in enumerate(slotted.slots(page, count)):
        if not offset & slotted.SLOT_FREED and entries_at <= offset < end:
            yield slot, offset


def _check_row(page: bytes, offset: int, table: TableDefinition | None) -> Iterator[Finding]:
    """What is wrong with a row whose layout is sound."""
    head = ROW_HEAD.at(page, offset)
    flags = head.lock_id >> 24
    if flags & ~_KNOWN_FLAGS:
        yield Finding(offset, f"the row's flags, 0x{flags:02x}, are not flags of a row")
    if flags & RowFlag.LINK and head.lock_id & NO_LOCK != NO_LOCK:
        yield Finding(offset, f"a LINK row has lock {head.lock_id & NO_LOCK}; locks are kept at the row's home")
    spare = _spare_bits(page, offset, head.col_count)
    if flags & RowFlag.ENTRY:
        yield from _check_entry(page, offset, head)
    elif spare:
        yield Finding(offset + BITS_AT, f"size bits behind those of the {head.col_count} columns are set")
    # A row that is deleted for everyone may have the columns of a definition that was rolled back.
    is_dead = flags & RowFlag.DELETE and head.lock_id & NO_LOCK == NO_LOCK
    if table is not None and not flags & RowFlag.ENTRY and not is_dead:
        yield from _check_columns(page, offset, offset + head.size, table.stored)


def _spare_bits(page: bytes, offset: int, column_count: int) -> int:
    bits = int.from_bytes(page[offset + BITS_AT : offset + header_size(column_count)], "little")
    return bits >> 2 * column_count


def _check_entry(page: bytes, offset: int, head: Any) -> Iterator[Finding]:
    shape = (head.size, head.col_count, head.bit_array)
    if shape != (_ENTRY_HEAD + 8, 1, SizeCode.EIGHT):
        message = f"an ENTRY row has one column of 8 bytes, this one has size {head.size}, {head.col_count} columns"
        yield Finding(offset + SIZE_AT, f"{message}, size bits {head.bit_array}")
    elif page[offset + _ENTRY_HEAD + 6 : offset + _ENTRY_HEAD + 8] != b"\xff\xff":
        yield Finding(offset + _ENTRY_HEAD + 6, "the row id that an ENTRY row holds does not end in 65535")


def _check_columns(page: bytes, offset: int, end: int, columns: Sequence[Column]) -> Iterator[Finding]:
    cells = list(walk_cells(page, offset, end))
    if any(code != SizeCode.NULL for code, _, _ in cells[len(columns) :]):  # rolled-back columns leave no value
        message = f"the row has {len(cells)} columns, its table {len(columns)}"
        yield Finding(offset + COL_COUNT_AT, message)
    for number, (column, (code, at, length)) in enumerate(zip(columns, cells, strict=False)):
        if code not in (SizeCode.NULL, column.type.size_code):
            message = f"column {column.name}, {column.type}, is stored as {_WIDTHS[code]}"
            yield Finding(_bits_at(offset, number), message)
        elif code == SizeCode.NULL:
            if not column.nullable:
                yield Finding(_bits_at(offset, number), f"column {column.name} is NOT NULL, but is NULL")
        else:
            wrong = _wrong_value(column, page[at : at + length])
            if wrong:
                yield Finding(at, f"column {column.name}, {column.type}: {wrong}")
    for column in columns[len(cells) :]:
        if not column.nullable:
            message = f"column {column.name} is NOT NULL, but the row has only {len(cells)} columns"
            yield Finding(offset + COL_COUNT_AT, message)


def _bits_at(offset: int, number: int) -> int:
    return offset + BITS_AT + 4 * (number // COLUMNS_PER_WORD)


def _wrong_value(column: Column, raw: bytes) -> str:
    """What is wrong with a value's bytes; empty if they are a valid value of the column."""
    type_ = column.type
    shortest, longest = stored_lengths(column)
    if type_.size_code == SizeCode.VARIABLE and not shortest <= len(raw) <= longest:
        wanted = f"{longest}" if shortest == longest else f"{shortest} to {longest}"
        return f"the value has {len(raw)} bytes as it is stored, not {wanted}"
    if type_.kind is Kind.TEXT:
        return "" if type_.may_be_long and is_text_locator(raw[:-1]) else _wrong_text(raw)
    number = int.from_bytes(raw, "little", signed=True)
    if type_.kind is Kind.BIT and number not in (0, 1):
        return f"{number} is neither 0 nor 1"
    if type_.kind is Kind.SHORT and not -(1 << 15) <= number < 1 << 15:
        return f"{number} is out of range for {type_}"
    if type_.name == "TIME" and not 0 <= number < DAY:
        return f"{number} microseconds are no time of a day"
    if type_.name == "DECIMAL" and abs(number) >= 10**type_.length:
        return f"{number} has more than {type_.length} digits"
    return ""


def _wrong_text(raw: bytes) -> str:
    if raw[-1]:
        return "the text does not end in NUL"
    try:
        raw[:-1].decode()
    except UnicodeDecodeError as error:
        return f"the text is not UTF-8: {error.reason} at byte {error.start}"
    return ""
