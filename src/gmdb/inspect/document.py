"""docs/file_format.md, written from the layouts in format/.

``python -m gmdb.inspect.document > docs/file_format.md`` writes it again.  Offsets, sizes and capacities are computed
from the code that reads and writes the bytes; only the prose is written here.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum, IntFlag
from types import ModuleType

import numpy as np

from gmdb.catalog.schema import SYS_TABLES_ENTRY
from gmdb.format import (
    address,
    btree,
    columns,
    control,
    device,
    hash,
    heap,
    images,
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
from gmdb.inspect.document_prose import CHAPTERS, INTRODUCTION
from gmdb.storage.directory import CONTROL_NAME, LOCK_NAME

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
        hash,
        lob,
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
    "hash": (hash.HashPageType,),
    "lob": (lob.LobPlace,),
    "undo": (undo.UndoOperation,),
    "redo": (redo.RedoItem, redo.ChangeOperation),
    "staging": (staging.StagedKind,),
}
_EXAMPLE_TYPES = (
    "INT", "DATE", "BOOLEAN", "DECIMAL(9,2)", "BIGINT", "DOUBLE", "TIMESTAMP", "DECIMAL(18,2)", "DECIMAL(38,2)",
    "CHAR(10)", "VARCHAR(10)", "BINARY(10)", "VARBINARY(10)", "BLOB", "CLOB",
)  # fmt: skip
_STORED = {
    "INT": "two's complement",
    "BIGINT": "two's complement",
    "DATE": "days since 1970-01-01",
    "TIMESTAMP": "microseconds since 1970-01-01 00:00:00, no time zone",
    "BOOLEAN": "0 or 1",
    "DOUBLE": "IEEE 754",
    "DECIMAL": "the digits as one two's complement integer, the scale left out",
    "CHAR": "UTF-8, filled up with blanks, then a NUL that counts in the length",
    "VARCHAR": "UTF-8, then a NUL that counts in the length",
    "BINARY": "the bytes, filled up with zero bytes",
    "VARBINARY": "the bytes",
    "BLOB": "a byte that says where the value is, then the bytes or a locator",
    "CLOB": "a byte that says where the value is, then UTF-8 or a locator",
}
_BITS = ("no bytes", "4 bytes", "8 bytes", "u16 length, then the bytes")


def render() -> str:
    """The whole document."""
    return "\n".join([_filled(INTRODUCTION), *_chapters()]).rstrip() + "\n"


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
    """Each layout with the module that declares it.  A module imports only from those before it in the list."""
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
    usable, kept = heap.usable_size(size), heap.reserve_size(size, segment.DEFAULT_PCT_FREE)
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
        "reserve": f"{kept:,}",
        "pct_free": segment.DEFAULT_PCT_FREE,
        "row_max": f"{heap.row_size_max(size):,}",
        "rows_of_24": (usable - kept) // row_with_slot,
        "min_occupied": row.MIN_OCCUPIED,
        "columns_max": f"{row.MAX_COLUMNS:,}",
        "columns_per_word": row.COLUMNS_PER_WORD,
        "header_16": row.header_size(16),
        "header_17": row.header_size(17),
        "header_1024": row.header_size(row.MAX_COLUMNS),
        "no_lock": f"0x{row.NO_LOCK:X}",
        "varchar_max": f"{columns.VARCHAR_MAX:,}",
        "binary_max": f"{columns.BINARY_MAX:,}",
        "inline_max": f"{lob.INLINE_MAX:,}",
        "lob_levels": lob.LEVEL_MAX + 1,
        "lob_capacity": f"{lob.capacity(size):,}",
        "lob_fan_out": f"{lob.fan_out(size):,}",
        "lob_max": f"{lob.LOB_MAX:,}",
        "free_lists": segment.FREE_LISTS,
        "room_steps": segment.ROOM_STEPS,
        "entry_map_at": segment.ENTRY_MAP_AT,
        "sys_tables": page_name(SYS_TABLES_ENTRY),
        "control_name": CONTROL_NAME,
        "lock_name": LOCK_NAME,
        "copy_distance": f"{control.COPY_DISTANCE:,}",
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
    """A row a field; a structure of structures is one row, a plain one is spelled out."""
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
        made = parse_column("example", spelling).type
        yield f"| {made} | {made.size_code:02b} | {_BITS[made.size_code]} | {_STORED[made.name]} |"
    yield ""


def _capacities() -> Iterator[str]:
    yield "### Capacities\n"
    yield "| page size | entries: entry page | entries: further map page | bytes for rows and slots | largest row |"
    yield "|---:|---:|---:|---:|---:|"
    for size in page.PAGE_SIZES:
        maps = (segment.map_capacity(size, True), segment.map_capacity(size, False))
        yield "| " + " | ".join(f"{n:,}" for n in (size, *maps, heap.usable_size(size), heap.row_size_max(size))) + " |"
    yield ""


if __name__ == "__main__":
    print(render(), end="")
