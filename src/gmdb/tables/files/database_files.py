"""A database's files, opened for reading only: pages, segments, tables, rows.

Nothing here is compiled and nothing is locked, so it is quick to import, serves to plan a distributed read, and
opens what the engine would refuse.  It sees what is in the files: a running owner may hold newer pages in memory.

Invariants
 1. ``page`` returns any bytes that the file has; what follows a map or decodes rows reads only pages whose CRC
    and place are right, and raises Corruption naming the page otherwise.
 2. Following the map of a damaged segment ends.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from gmdb.errors import Corruption, DataError, NoSuchTable, SchemaError, StorageError
from gmdb.format import heap, segment
from gmdb.format.address import (
    DEVICES,
    NO_PAGE,
    OFFSET_BITS,
    PAGES_PER_DEVICE,
    SYSTEM_DEVICE,
    RowId,
    device_of,
    offset_of,
    page_id_of,
    page_name,
)
from gmdb.format.arrays import SUFFIX
from gmdb.format.checksum import page_crc
from gmdb.format.columns import Column, make_type
from gmdb.format.options import with_options
from gmdb.format.page import HEAD_SIZE, PAGE_HEAD, TAIL_SIZE, PageType, stored_crc
from gmdb.format.row import ROW_HEAD, RowFlag, decode_row, header_size
from gmdb.process.late_imports import numpy as np
from gmdb.storage.directory import device_numbers, device_path, read_control
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.schema import (
    FIRST_USER_ID,
    SYS_COLUMNS_COLUMNS,
    SYS_COLUMNS_ID,
    SYS_INDEXES_COLUMNS,
    SYS_INDEXES_ID,
    SYS_TABLES_COLUMNS,
    SYS_TABLES_ENTRY,
    SYS_TABLES_ID,
    TableDefinition,
    table_of_row,
)
from gmdb.tables.files.device_file import DeviceFile, Space, group_by_space

SYS_TABLES = TableDefinition("sys_tables", SYS_TABLES_ID, SYSTEM_DEVICE, SYS_TABLES_ENTRY, SYS_TABLES_COLUMNS)
HEADS_AT_ONCE = 1 << 16  # starts of pages that are in memory at a time


class DatabaseFiles:
    """A database directory; use it as a context manager, or call ``close()``."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.control: dict[str, Any] = read_control(self.path)
        self.devices: dict[int, DeviceFile] = {}
        for number in device_numbers(self.path):
            self.devices[number] = DeviceFile(device_path(self.path, number), number)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        for device in self.devices.values():
            device.close()

    # ---- pages

    def device(self, page_id: int) -> DeviceFile:
        """The device that a page lies on."""
        device = self.devices.get(device_of(page_id))
        if device is None:
            have = ", ".join(map(str, self.devices)) or "none"
            message = (
                f"page {page_name(page_id)}: {self.path} has no device {device_of(page_id)}; its devices are {have}"
            )
            raise StorageError(message)
        return device

    def page(self, page_id: int) -> bytes:
        """A page's bytes, unchecked."""
        return self.stored_page(page_id)

    def stored_page(self, page_id: int) -> bytes:
        """A page's bytes as the file has them, whatever else there is."""
        return self.device(page_id).page(offset_of(page_id))

    def head(self, page_id: int) -> bytes:
        """Only a page's head, to look through many pages; cut short where the file is."""
        return self.device(page_id).head(offset_of(page_id))

    def starts(self, page_ids: np.ndarray, size: int) -> np.ndarray:
        """The first ``size`` bytes of many pages, a row each; zeros where a file ends before."""
        starts = np.zeros((len(page_ids), size), np.uint8)
        owners = page_ids >> OFFSET_BITS
        for number in np.unique(owners).tolist():
            chosen = np.flatnonzero(owners == number)
            if number in self.devices:
                part = np.zeros((len(chosen), size), np.uint8)
                offsets = (page_ids[chosen] & (PAGES_PER_DEVICE - 1)).tolist()
                self.devices[number].starts(offsets, size, part)
                starts[chosen] = part
        return starts

    def page_sizes(self, page_ids: np.ndarray) -> np.ndarray:
        """The sizes of many pages; 0 where there is no such device."""
        sizes = np.zeros(DEVICES, np.int64)
        for number, device in self.devices.items():
            sizes[number] = device.page_size
        return sizes[page_ids >> OFFSET_BITS]

    def sound_page(self, page_id: int) -> bytes:
        """A page's bytes, after a check of its CRC and its place."""
        page = self.page(page_id)
        require_sound(page, page_id)
        return page

    def spaces(self) -> list[Space]:
        return group_by_space(self.devices.values())

    # ---- segments

    def segment_entries(self, device: int) -> list[int]:
        """The entry pages of the segments that start on a device, found by looking at every page in use."""
        file = self.devices[device]
        used = min(file.hwm, file.file_pages)
        entries: list[int] = []
        for first in range(0, used, HEADS_AT_ONCE):
            ids = page_id_of(device, first) + np.arange(min(HEADS_AT_ONCE, used - first))
            heads = self.starts(ids, HEAD_SIZE).view(PAGE_HEAD.dtype)[:, 0]
            entries += ids[heads["page_type"] == PageType.SEGMENT_ENTRY].tolist()
        return entries

    def map_pages(self, entry: int) -> list[int]:
        """The map pages of the segment at ``entry``, the entry page first."""
        return [page_id for page_id, _ in self._maps(entry)]

    def segment_pages(self, entry: int) -> list[int]:
        """The data pages of the segment at ``entry``, in the order of its map."""
        pages: list[int] = []
        for _, raw in self._maps(entry):
            listed = raw.cast("I")[:: segment.MAP_ENTRY.size // 4].tolist()  # page_id is the first field
            pages.extend(page_id for page_id in listed if page_id != NO_PAGE)
        return pages

    def maps(self, entry: int) -> Iterator[tuple[int, np.ndarray]]:
        """Each map page of a segment with its entries, as an array of the map entry's layout."""
        for page_id, raw in self._maps(entry):
            yield page_id, np.frombuffer(raw, segment.MAP_ENTRY.dtype)

    def _maps(self, entry: int) -> Iterator[tuple[int, memoryview]]:
        """Each map page of a segment with the bytes of its entries."""
        at, prior, owner = entry, NO_PAGE, -1
        seen: set[int] = set()
        while at != NO_PAGE:
            if at in seen:
                raise Corruption(f"map page {page_name(prior)} leads back to map page {page_name(at)}", prior)
            seen.add(at)
            page = self._map_page(at, prior)
            head, map_head = PAGE_HEAD.at(page), segment.MAP_HEAD.at(page, segment.map_head_at(page))
            owner = head.obj_id if owner < 0 else owner
            if map_head.prior != prior or head.obj_id != owner:
                place = f"map page {page_name(at)} belongs behind {page_name(map_head.prior)} of object {head.obj_id}"
                raise Corruption(f"{place}, but {page_name(prior)} of object {owner} leads to it", at)
            yield at, _map_entries(page, at)
            at, prior = map_head.next, at

    def _map_page(self, page_id: int, prior: int) -> bytes:
        wanted = PageType.SEGMENT_ENTRY if prior == NO_PAGE else PageType.MAP
        try:
            page = self.sound_page(page_id)
        except StorageError as error:
            if prior == NO_PAGE:
                raise
            raise Corruption(f"map page {page_name(prior)} leads on to a bad page: {error}", prior) from error
        page_type = PAGE_HEAD.at(page).page_type
        if page_type != wanted:
            message = f"page {page_name(page_id)} should be a {wanted.name} page, but its page_type is {page_type}"
            raise Corruption(message, page_id, PAGE_HEAD.offset("page_type"))
        return page

    # ---- tables

    def tables(self) -> list[TableDefinition]:
        """Every table, the system's included, in order of creation."""
        listed = [values for _, values in self.rows(SYS_TABLES)]
        entries = {obj_id: entry for obj_id, _, _, entry, *_ in listed}
        if SYS_COLUMNS_ID not in entries:
            raise Corruption(
                f"sys_tables, page {page_name(SYS_TABLES_ENTRY)}, does not list sys_columns", SYS_TABLES_ENTRY
            )
        columns = self._columns(entries[SYS_COLUMNS_ID])
        tables = []
        for row in sorted(listed, key=lambda values: values[0]):
            obj_id, name = row[:2]
            if not columns.get(obj_id):
                raise Corruption(f"sys_columns lists no column of table {name}", entries[SYS_COLUMNS_ID])
            try:
                tables.append(table_of_row(row, columns[obj_id]))
            except SchemaError as error:
                raise Corruption(f"sys_tables, table {name}: {error}", SYS_TABLES_ENTRY) from None
        return tables

    def _columns(self, entry: int) -> dict[int, tuple[Column, ...]]:
        source = TableDefinition("sys_columns", SYS_COLUMNS_ID, SYSTEM_DEVICE, entry, SYS_COLUMNS_COLUMNS)
        by_table: dict[int, list[tuple[int, Column]]] = {}
        for row_id, (obj_id, position, name, type_name, length, scale, nullable, *more) in self.rows(source):
            numbers = [length, scale] if type_name.removesuffix(SUFFIX) == "DECIMAL" else [length] if length else []
            try:
                column = Column(name, make_type(type_name, numbers), nullable, more[0], more[1], more[2] or 0)
                column = with_options(column, more[3])
            except SchemaError as error:
                raise Corruption(f"sys_columns, row {row_id}: {error}", row_id.page_id) from None
            by_table.setdefault(obj_id, []).append((position, column))
        return {obj_id: tuple(c for _, c in sorted(pairs, key=lambda p: p[0])) for obj_id, pairs in by_table.items()}

    def table(self, name: str) -> TableDefinition:
        """A table by its name, as it was given or in small letters."""
        return choose_table(name, self.tables(), self.path)

    def index_rows(self) -> Iterator[tuple[RowId, IndexDefinition]]:
        """Every index, and the row of sys_indexes that lists it; a database older than indexes has none."""
        entries = {obj_id: entry for _, (obj_id, _, _, entry, *_) in self.rows(SYS_TABLES)}
        if SYS_INDEXES_ID not in entries:
            return
        entry = entries[SYS_INDEXES_ID]
        source = TableDefinition("sys_indexes", SYS_INDEXES_ID, SYSTEM_DEVICE, entry, SYS_INDEXES_COLUMNS)
        for row_id, (obj_id, table_id, name, entry_page, unique, positions, kind, options) in self.rows(source):
            try:
                numbers = tuple(map(int, positions.split(",")))
                index = IndexDefinition(name, obj_id, table_id, entry_page, unique, numbers, using=kind or "btree")
                yield row_id, with_options(index, options)
            except ValueError:
                message = f"sys_indexes, row {row_id}: {positions!r} are not positions of columns"
                raise Corruption(message, row_id.page_id) from None
            except SchemaError as error:
                raise Corruption(f"sys_indexes, row {row_id}: {error}", row_id.page_id) from None

    # ---- rows

    def rows(self, table: TableDefinition) -> Iterator[tuple[RowId, tuple[Any, ...]]]:
        """The table's rows, found where their row ids say, migrated ones included."""
        for page_id in self.segment_pages(table.entry_page):
            page = self.sound_page(page_id)
            for slot, offset in heap.live_slots(page):
                flags = heap.flags_of(page, offset)
                if flags & (RowFlag.DELETE | RowFlag.LINK):
                    continue
                row_id = RowId(page_id, slot)
                try:
                    source, at = self._migrated(page, offset) if RowFlag.ENTRY in flags else (page, offset)
                    yield row_id, _decode(table.columns, source, at)
                except (Corruption, DataError) as error:
                    raise Corruption(f"table {table.name}, row {row_id}: {error}", page_id, offset) from error

    def _migrated(self, page: bytes, offset: int) -> tuple[bytes, int]:
        """The page and offset of the row that the ENTRY row at ``offset`` points to."""
        target = entry_target(page, offset)
        moved_to = self.sound_page(target.page_id)
        at = dict(heap.live_slots(moved_to)).get(target.slot_id)
        if at is None or RowFlag.LINK not in heap.flags_of(moved_to, at):
            raise Corruption(f"it has moved to {target}, where no migrated row is", target.page_id)
        return moved_to, at


def require_sound(page: bytes, page_id: int) -> None:
    """Raise if a page's CRC or its place is not right."""
    if page_crc(page) != stored_crc(page):
        message = f"page {page_name(page_id)} is damaged: its CRC does not match its bytes"
        raise Corruption(message, page_id, len(page) - TAIL_SIZE)
    named = PAGE_HEAD.at(page).page_id
    if named != page_id:
        message = f"page {page_name(page_id)} is damaged: its head says that it is page {page_name(named)}"
        raise Corruption(message, page_id, PAGE_HEAD.offset("page_id"))


def choose_table(name: str, listed: list[TableDefinition], path: Path) -> TableDefinition:
    """The table with a name, as it was given or in small letters."""
    tables = {table.name: table for table in listed}
    for spelling in (name, name.lower()):
        if spelling in tables:
            return tables[spelling]
    near = difflib.get_close_matches(name.lower(), tables, 1)
    users = [table.name for table in listed if table.obj_id >= FIRST_USER_ID]
    hint = f"did you mean {near[0]}?" if near else f"its tables are: {', '.join(users) or 'none'}"
    raise NoSuchTable(f"{path} has no table {name}; {hint}")


def _decode(columns: tuple[Column, ...], page: bytes, offset: int) -> tuple[Any, ...]:
    """A row's values, of which those that must be there are."""
    values = decode_row(columns, page, offset)
    if None in values:
        for column, value in zip(columns, values, strict=True):
            if value is None and not column.nullable:
                raise Corruption(f"column {column.name} is NOT NULL, but is NULL", offset=offset)
    return values


def entry_target(page: bytes, offset: int) -> RowId:
    """Where the ENTRY row at ``offset`` says that its data is."""
    at = offset + header_size(ROW_HEAD.at(page, offset).col_count)
    return RowId.from_word(int.from_bytes(page[at : at + 8], "little"))


def _map_entries(page: bytes, page_id: int) -> memoryview:
    head_at = segment.map_head_at(page)
    head = segment.MAP_HEAD.at(page, head_at)
    room = segment.map_room(page)
    if head.map_count > room:
        message = f"map page {page_name(page_id)} counts {head.map_count} entries, but has room for {room}"
        raise Corruption(message, page_id, head_at + segment.MAP_HEAD.offset("map_count"))
    first = segment.map_entry_at(page, 0)
    return memoryview(page)[first : first + head.map_count * segment.MAP_ENTRY.size]
