"""A page drawn as text, the way engineers draw it on paper: boxes from the first byte down to the last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from gmdb.format import anatomy, btree, device, hash, heap, segment, undo
from gmdb.format.layout import Layout, Region
from gmdb.format.page import PAGE_HEAD, PAGE_TAIL, TAIL_SIZE, PageType, stored_crc
from gmdb.format.slotted import SLOT_FREED, slot_room, slots
from gmdb.inspect.canvas import PLAIN, RULE, Block, Line, Paint, byte_lines, printable, render, section_line
from gmdb.inspect.draw_fields import field_lines
from gmdb.inspect.draw_index import directory_lines, index_blocks
from gmdb.inspect.draw_map import map_lines, segment_head_lines
from gmdb.inspect.draw_rows import row_blocks
from gmdb.inspect.draw_undo import undo_blocks
from gmdb.inspect.page_view import PageView, title

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
    said = f"{count} problem{'s' if count != 1 else ''}"
    if count:
        yield f"{paint.red}damaged: {said}, listed at the end{paint.off}"
    yield ""
    yield from render(_lines(view, full), paint, (finding.offset for finding in view.findings))
    if count:
        yield ""
        yield f"{paint.red}{said}:{paint.off}"
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
    """Node head, entries in the order they lie in, the free bytes between, the slot directory."""
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
    """The slot directory, which grows down: the last slot lies first."""
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
    """A page without a drawing of its own: each region a line."""
    for region in anatomy.regions(page):
        if region.name in ("free", "unused"):
            yield from _gap(region.offset, page, region.length, region.name, full)
        elif not region.name.startswith(("head.", "tail.")):
            yield Line(region.offset, f" {region.name}", str(region.value), "", region.meaning)
