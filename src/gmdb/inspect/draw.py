"""A page drawn as text, the way engineers draw it on paper: boxes from the first byte down to the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from itertools import cycle, groupby
from typing import Any

from gmdb.format import anatomy, btree, device, hash, heap, segment, undo
from gmdb.format.address import NO_PAGE, NO_SLOT, page_name
from gmdb.format.anatomy import regions
from gmdb.format.btree import ENTRIES_AT, POINTER_SIZE, entry_extents
from gmdb.format.hash import HASH_NODE, HashPageType, slot_pages
from gmdb.format.layout import Layout, Record, Region
from gmdb.format.page import PAGE_HEAD, PAGE_TAIL, TAIL_SIZE, PageType, SegmentType, stored_crc
from gmdb.format.row import BITS_AT, COL_COUNT_AT, NO_LOCK, SIZE_AT, header_size
from gmdb.format.segment import (
    EMPTY_LIST,
    FREE_LISTS,
    FREE_MAP_LIST,
    MAP_ENTRY,
    MAP_HEAD,
    MAP_LINK,
    NO_LIST,
    SEGMENT_HEAD,
    SEGMENT_HEAD_AT,
    map_entry_at,
    map_head_at,
    map_room,
)
from gmdb.format.slotted import SLOT_FREED, bounded, slot_room, slots
from gmdb.format.undo import UNDO_RECORD, UndoOperation
from gmdb.inspect.canvas import (
    BYTES_PER_LINE,
    PLAIN,
    RULE,
    Block,
    Line,
    Paint,
    byte_lines,
    printable,
    render,
    section_line,
)
from gmdb.inspect.report import index_entry, leads_to_rows
from gmdb.tables.files.page_view import (
    NO_LOCK_BEFORE,
    PageView,
    RowView,
    UndoRecordView,
    title,
    view_row,
    view_undo_records,
)

# ---- The fields of a structure, one line each: name, value, the value in words, what the field means.

_PAGE_IDS = {
    "page_id", "map_page_id", "map_page", "next_ckpt_page", "next", "prev", "prior", "last_map_page", "first_data_page",
    "last_page", "child_seg", "first_free_page", "seg_entry",
}  # fmt: skip
_ENUMS: dict[str, type[IntEnum]] = {
    "seg_type": SegmentType,
    "type": SegmentType,
    "page_type": PageType,
    "hash_page_type": HashPageType,
    "op_type": UndoOperation,
}
_BULK_RESERVE = 2 * 15  # hexadecimal digits of the page head's reserve


def in_words(field: str, value: Any) -> str:
    """What a field's number stands for; empty if it is only a number."""
    if field in _PAGE_IDS:
        return page_name(value)
    if field in _ENUMS:
        kinds = _ENUMS[field]
        return kinds(value).name if value in list(kinds) else "unknown"
    if (field == "mirror_page" and value == NO_PAGE) or (field == "free_slot" and value == NO_SLOT):
        return "none"
    if field == "reserve" and len(value) == _BULK_RESERVE and value_text(value) != "0":
        return f"transaction {int.from_bytes(bytes.fromhex(value)[:8], 'little')}"
    return ""


def value_text(value: Any) -> str:
    """A value as text; byte arrays come as hexadecimal, and one that is all zero is shown as 0."""
    if isinstance(value, str) and value and not value.strip("0"):
        return "0"
    return str(value)


def field_lines(
    layout: Layout, page: bytes, at: int, section: str, groups: Mapping[str, str] | None = None
) -> Iterator[Line]:
    """One line per field; nested structures in braces; ``groups`` has headings to put before some fields."""
    nested: list[Region] = []
    for region in layout.regions(page, at):
        outer, _, inner = region.name.partition(".")
        if nested and nested[0].name.partition(".")[0] != outer:
            yield _braces(nested, section)
            nested, section = [], ""
        if inner:
            nested.append(region)
            continue
        if groups and outer in groups:
            yield section_line(None, "", groups[outer])
        yield field_line(region, section)
        section = ""
    if nested:
        yield _braces(nested, section)


def field_line(region: Region, section: str) -> Line:
    value = value_text(region.value)
    meaning = region.meaning if region.meaning != value else ""
    return section_line(region.offset, section, region.name, value, in_words(region.name, region.value), meaning)


def _braces(regions: list[Region], section: str) -> Line:
    """``latch | {spinlock=0, latch_mode=0, latch_cnt=0}``."""
    outer = regions[0].name.partition(".")[0]
    inner = ", ".join(f"{region.name.partition('.')[2]}={region.value}" for region in regions)
    return section_line(regions[0].offset, section, outer, "{" + inner + "}")


# ---- The rows of a heap page, each with its header, its bytes and its values.

FLAGS_AT = 3
COLUMNS_NAMED = 8
TEXT_SHOWN = 60
_CODE_NAMES = ("null", "4 bytes", "8 bytes", "variable")


def row_blocks(view: PageView, full: bool) -> list[Block]:
    end = len(view.page) - TAIL_SIZE
    return [
        Block(row.offset, row.values_at + len(row.raw), list(row_lines(row, f"row {row.slot}", end, full)))
        for row in view.rows
    ]


def row_lines(row: RowView, section: str, page_end: int, full: bool) -> Iterator[Line]:
    yield from row_head_lines(row, section, full)
    raw = row.raw[: max(page_end - row.values_at, 0)]
    yield from byte_lines(raw, row.values_at, _values_beside(row), full)


def row_head_lines(row: RowView, section: str, full: bool) -> Iterator[Line]:
    at = row.offset
    yield section_line(at, section, "lock_id", str(row.lock_id), "none" if row.lock_id == NO_LOCK else "")
    if row.lock_word == NO_LOCK_BEFORE:
        yield section_line(at + FLAGS_AT, "", "flags", "255", "no lock before")
    else:
        yield section_line(at + FLAGS_AT, "", "flags", str(int(row.flags)), ", ".join(row.flag_names) or "none")
    yield section_line(at + SIZE_AT, "", "size", str(row.size))
    yield section_line(at + COL_COUNT_AT, "", "col_count", str(row.col_count))
    yield section_line(at + BITS_AT, "", "bit_array", str(row.bit_array), _bits_in_words(row))
    if row.further_bits:
        yield from byte_lines(row.further_bits, at + BITS_AT + 4, {0: "further size bits"}, full)


def _bits_in_words(row: RowView) -> str:
    codes = [row.bit_array >> 2 * n & 3 for n in range(min(row.col_count, COLUMNS_NAMED))]
    words = ", ".join(_CODE_NAMES[code] for code in codes)
    return words + (", …" if row.col_count > COLUMNS_NAMED else "")


def _values_beside(row: RowView) -> dict[int, str]:
    """The values as text, by the line of hexadecimal that each starts on."""
    if row.target is not None:
        return {0: f"moved to {row.target}"}
    if row.problem:
        return {0: f"unreadable: {row.problem}"}
    last = max((len(row.raw) - 1) // BYTES_PER_LINE, 0)
    beside: dict[int, str] = {}
    for cell in row.cells or ():
        line = min((cell.offset - row.values_at) // BYTES_PER_LINE, last)
        text = f"{cell.name} = {row_value_text(cell.value)}"
        beside[line] = f"{beside[line]}, {text}" if line in beside else text
    return beside


def row_value_text(value: Any) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bytes):
        text = f"x'{value.hex()}'"
    else:
        text = repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= TEXT_SHOWN else f"{text[:TEXT_SHOWN]}…"


# ---- The entries of a B-tree page or a hash bucket, and the slots of a hash directory.


def index_blocks(view: PageView, full: bool) -> list[Block]:
    end = len(view.page) - TAIL_SIZE
    extents = bounded(view.page, entry_extents(view.page))
    return [
        Block(at, stop, list(_entry_lines(view.page, at, min(stop, end), slot, full))) for at, stop, slot in extents
    ]


def _entry_lines(page: bytes, offset: int, end: int, slot: int, full: bool) -> Iterator[Line]:
    yield from row_head_lines(view_row(page, slot, offset, None), f"entry {slot}", full)
    entry = index_entry(page, offset, end, slot)
    at = offset + header_size(entry["col_count"])
    if at + POINTER_SIZE > end:
        yield section_line(None, "", "(cut short)")
        return
    if leads_to_rows(page):
        yield section_line(at, "", "row_id", entry["row_id"])
    else:
        yield section_line(at, "", "child page", str(entry["child_page"]), page_name(entry["child_page"]))
    key = bytes.fromhex(entry["key"])
    yield from byte_lines(key, at + POINTER_SIZE, {0: "key columns"} if key else None, full)
    if "address" in entry:
        yield section_line(
            at + POINTER_SIZE + len(key), "", "address", entry["address"], "hash of the key | of the row id"
        )


def directory_lines(page: bytes) -> Iterator[Line]:
    """A hash directory's slots: one line for neighbours that lead to the same page."""
    number, depth = 0, HASH_NODE.at(page, PAGE_HEAD.size).depth
    for page_id, same in groupby(slot_pages(page)):
        count = len(list(same))
        name = f"slot {number}" if count == 1 else f"slots {number} … {number + count - 1}"
        target = ("", "nothing") if page_id == NO_PAGE else (str(page_id), page_name(page_id))
        bits = f"bits {number:0{depth}b} …" if depth else "all"
        yield section_line(ENTRIES_AT + 4 * number, "slots" if number == 0 else "", name, *target, bits)
        number += count


# ---- Segment heads and maps: each list by its first and last entry, map entries one line each.

_LIST_NAMES = {EMPTY_LIST: "empty", FREE_MAP_LIST: "unused", NO_LIST: "none"}


def segment_head_lines(page: bytes) -> Iterator[Line]:
    section, drawn = "segment head", set()
    for region in SEGMENT_HEAD.regions(page, SEGMENT_HEAD_AT):
        outer = region.name.partition(".")[0]
        if outer == region.name:
            yield field_line(region, section)
        elif outer not in drawn:
            drawn.add(outer)
            yield section_line(region.offset, section, outer, _ends(page, region.offset))
        section = ""


def _ends(page: bytes, at: int) -> str:
    """A list by its first and last entry."""
    first, last = (MAP_LINK.at(page, at + n * MAP_LINK.size) for n in range(2))
    return "empty" if first.map_page == last.map_page == NO_PAGE else f"{_link(first)} … {_link(last)}"


def _link(link: Record) -> str:
    """``4:9 (entry 2 of 4:6)``, or ``none``."""
    if link.map_page == NO_PAGE:
        return "none"
    return f"{page_name(link.page_id)} (entry {link.offset} of {page_name(link.map_page)})"


def list_name(list_id: int) -> str:
    known = _LIST_NAMES.get(list_id)
    return known if known else str(list_id) if list_id < FREE_LISTS else f"unknown {list_id}"


def map_lines(page: bytes) -> Iterator[Line]:
    at = map_head_at(page)
    yield from field_lines(MAP_HEAD, page, at, "map head")
    yield RULE
    room = map_room(page)
    for number in range(min(MAP_HEAD.at(page, at).map_count, room)):
        yield _entry_line(page, number)


def _entry_line(page: bytes, number: int) -> Line:
    at = map_entry_at(page, number)
    entry = MAP_ENTRY.at(page, at)
    words = f"list {list_name(entry.list_id)}"
    if entry.list_id != NO_LIST:
        words += f", prior {_link(entry.prior)}, next {_link(entry.next)}"
    return section_line(at, f"entry {number}", f"page {page_name(entry.page_id)}", str(entry.page_id), words)


# ---- The records of an undo page: what was done to which row, and how it was before.


def undo_blocks(view: PageView, full: bool) -> list[Block]:
    return [
        Block(record.offset, record.end, list(_record_lines(view.page, record, full)))
        for record in view_undo_records(view.page, view.tables)
    ]


def _record_lines(page: bytes, record: UndoRecordView, full: bool) -> Iterator[Line]:
    table = f" of table {record.table_name}" if record.table_name else ""
    row = f"row {record.row_id}{table}"
    yield section_line(None, f"record {record.slot}", record.operation.lower(), row)
    yield from field_lines(UNDO_RECORD, page, record.offset, "")
    body_at = record.offset + UNDO_RECORD.size
    if record.image is None:
        yield from byte_lines(record.body, body_at, full=full)
        return
    yield from row_lines(record.image, "  before", len(page) - TAIL_SIZE, full)
    rest_at = record.image.values_at + len(record.image.raw)
    rest = record.body[rest_at - body_at :]
    numbers = ", ".join(map(str, record.changed))
    beside = {0: f"changed columns, by number: {numbers}"} if numbers else {}
    yield from byte_lines(rest, rest_at, beside, full)


# ---- A page drawn as text, the way engineers draw it on paper.

SLOTS_PER_LINE = 5
HEAD_GROUPS = {
    "map_page_id": "(map info)",
    "free_begin": "(page usage info)",
    "ckpt_id": "(checkpoint info)",
    "flag": "(flag info)",
}
Blocks = Callable[[PageView, bool], list[Block]]


def draw_page(view: PageView, paint: Paint = PLAIN, full: bool = False) -> Iterator[str]:
    """The page from head to tail, then what is wrong with it."""
    yield f"{paint.bold}{printable(title(view))}{paint.off}"
    count = len(view.findings)
    problems = f"{count} problem{'s' if count != 1 else ''}"
    if count:
        yield f"{paint.red}damaged: {problems}, listed at the end{paint.off}"
    yield ""
    yield from render(_lines(view, full), paint, (finding.offset for finding in view.findings))
    if count:
        yield ""
        yield f"{paint.red}{problems}:{paint.off}"
        for finding in view.findings:
            yield f"  at {finding.offset}: {finding.message}"


def _lines(view: PageView, full: bool) -> Iterator[Line]:
    page = view.page
    yield RULE
    yield from field_lines(PAGE_HEAD, page, 0, "page head", HEAD_GROUPS)
    yield RULE
    yield from _body(view, full)
    yield RULE
    tail_at = len(page) - TAIL_SIZE
    right = "wrong" if any(f.offset == tail_at for f in view.findings) else "right" if any(page) else ""
    meaning = PAGE_TAIL.fields[0].meaning
    yield section_line(tail_at, "page tail", "crc", str(stored_crc(page)), f"{stored_crc(page):08x} {right}", meaning)
    yield from (line for line in field_lines(PAGE_TAIL, page, tail_at, "") if line.offset != tail_at)
    yield RULE


def _body(view: PageView, full: bool) -> Iterator[Line]:
    page, structure = view.page, anatomy.structure_of(view.page)
    if structure is heap:
        yield from _slotted(view, heap.HEAP_NODE, heap.ROWS_AT, row_blocks, full)
    elif structure is undo:
        yield from _slotted(view, undo.UNDO_HEAD, undo.RECORDS_AT, undo_blocks, full)
    elif structure is btree:
        yield from _slotted(view, btree.BTREE_NODE, btree.ENTRIES_AT, index_blocks, full)
    elif structure is hash and not hash.is_directory(page):
        yield from _slotted(view, hash.HASH_NODE, btree.ENTRIES_AT, index_blocks, full)
    elif structure is hash:
        yield from field_lines(hash.HASH_NODE, page, PAGE_HEAD.size, "node head")
        yield RULE
        yield from directory_lines(page)
        yield from _gaps(page, full)
    elif structure is device:
        yield from field_lines(device.DEVICE_HEAD, page, device.DEVICE_HEAD_AT, "device head")
        yield RULE
        yield from field_lines(device.SPACE_HEAD, page, device.SPACE_HEAD_AT, "space head")
        yield from _gaps(page, full)
    elif structure is segment:
        if PAGE_HEAD.at(page).page_type == PageType.SEGMENT_ENTRY:
            yield from segment_head_lines(page)
            yield RULE
        yield from map_lines(page)
        yield from _gaps(page, full)
    else:
        yield from _regions(page, full)


def _slotted(view: PageView, node: Layout, entries_at: int, blocks: Blocks, full: bool) -> Iterator[Line]:
    """Node head, entries in order of offset with the free bytes between them, slot directory."""
    page = view.page
    yield from field_lines(node, page, PAGE_HEAD.size, "node head")
    yield RULE
    drawn = sorted(blocks(view, full))
    taken = bytearray(len(page))
    for block in drawn:
        taken[block.start : block.end] = b"\1" * len(taken[block.start : block.end])
    for region in _unnamed(page):
        # Bytes of a damaged entry may have no name either; they are drawn with the entry.
        if not taken[region.offset]:
            gap = list(_gap(region.offset, page, region.length, region.name, full))
            drawn.append(Block(region.offset, region.end, gap))
    for block in sorted(drawn):
        yield from block.lines
    yield RULE
    count = node.at(page, PAGE_HEAD.size).slot_count
    yield from _directory(page, min(count, slot_room(page, entries_at)))


def _directory(page: bytes, count: int) -> Iterator[Line]:
    """The slot directory; it grows down, so the last slot comes first."""
    values = slots(page, count)
    yield section_line(None, "slots", "the last one first", f"{count} in all: where each one's entry starts")
    for last in range(count - 1, -1, -SLOTS_PER_LINE):
        first = max(last - SLOTS_PER_LINE + 1, 0)
        row = [_slot_text(values[n]) for n in range(last, first - 1, -1)]
        named = f"slot {last}" if last == first else f"slots {last} … {first}"
        yield Line(len(page) - TAIL_SIZE - 2 * (last + 1), " " + "|".join(f"{text:>5}" for text in row), named)


def _slot_text(value: int) -> str:
    return "free" if value & SLOT_FREED else str(value)


def _unnamed(page: bytes) -> Iterator[Region]:
    return (region for region in anatomy.regions(page) if region.name in ("free", "unused"))


def _gaps(page: bytes, full: bool) -> Iterator[Line]:
    for region in _unnamed(page):
        yield RULE
        yield from _gap(region.offset, page, region.length, region.name, full)


def _gap(offset: int, page: bytes, length: int, name: str, full: bool) -> Iterator[Line]:
    raw = page[offset : offset + length]
    content = "all zero" if not any(raw) else "with bytes left in them"
    yield section_line(offset, name, f"{length} bytes", content)
    if any(raw) and (full or name == "unused"):
        yield from byte_lines(raw, offset, full=full)


def _regions(page: bytes, full: bool) -> Iterator[Line]:
    """A page of a kind that has no drawing of its own: one line per region."""
    for region in anatomy.regions(page):
        if region.name in ("free", "unused"):
            yield from _gap(region.offset, page, region.length, region.name, full)
        elif not region.name.startswith(("head.", "tail.")):
            yield Line(region.offset, f" {region.name}", str(region.value), "", region.meaning)


# ---- A page's bytes in hexadecimal, beside what they are: the names and, on a terminal, the colours of its regions.

PER_LINE = 16
_NAMES_MAX = 60
_COLOURS = ("\033[36m", "\033[33m", "\033[32m", "\033[35m", "\033[34m", "\033[31m")
_DIM, _OFF = "\033[2m", "\033[0m"
_SHOWN = bytes(byte if 32 <= byte < 127 else ord("·") for byte in range(256))
_UNNAMED = ("free", "unused")


def hex_lines(page: bytes, coloured: bool, full: bool) -> Iterator[str]:
    """The page's lines; without ``full``, lines that repeat the one before and begin no region are left out."""
    parts = regions(page)
    paints = _paints(page, parts) if coloured else []
    begins: dict[int, list[Region]] = {}
    for region in parts:
        begins.setdefault(region.offset // PER_LINE * PER_LINE, []).append(region)
    left_out = 0
    previous = b""
    for start in range(0, len(page), PER_LINE):
        raw = page[start : start + PER_LINE]
        begun = begins.get(start, [])
        if not full and raw == previous and not begun:
            left_out += 1
            continue
        if left_out:
            yield f"       … {left_out} lines more like it"
            left_out = 0
        previous = raw
        yield _line(start, raw, begun, paints)
    if left_out:
        yield f"       … {left_out} lines more like it"


def _line(start: int, raw: bytes, begun: list[Region], paints: list[str]) -> str:
    cells = raw.hex(" ").split()
    if paints:
        cells = [f"{paint}{cell}{_OFF}" for paint, cell in zip(paints[start : start + PER_LINE], cells, strict=True)]
    shown = " ".join(cells[:8]) + "  " + " ".join(cells[8:])
    text = raw.translate(_SHOWN).decode("latin-1")
    return f"{start:>6}  {shown}  {text}  {_names(begun)}".rstrip()


def _names(begun: list[Region]) -> str:
    """The regions that begin on a line; the name of their structure is given once."""
    names: list[str] = []
    last = ""
    for region in begun:
        owner, dot, name = region.name.rpartition(".")
        shown = name if dot and owner == last else region.name
        last = owner if dot else ""
        names.append(shown)
    text = " ".join(names)
    return printable(text if len(text) <= _NAMES_MAX else text[: _NAMES_MAX - 1] + "…")


def _paints(page: bytes, parts: list[Region]) -> list[str]:
    """A colour for every byte; adjacent structures get different ones."""
    colours = cycle(_COLOURS)
    paints = [""] * len(page)
    owner, colour = "", ""
    for region in parts:
        own = region.name.rpartition(".")[0] or region.name
        if region.name in _UNNAMED:
            colour, owner = _DIM, own
        elif own != owner:
            colour, owner = next(colours), own
        for at in range(region.offset, region.end):
            paints[at] = colour
    return paints
