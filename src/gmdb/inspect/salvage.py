"""Salvage: every row that can still be read from a damaged database, whatever its maps and catalog say.

Pages are read one by one, not through maps: a page whose CRC and place are right is trusted, and so is the table that
its head names.  Tables are defined by those rows of the catalog's pages that are still whole.  A row that has moved is
found where its values are, even if the place that led there is lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from gmdb.errors import Error, SchemaError
from gmdb.format import heap, lob
from gmdb.format.address import NO_PAGE, RowId, page_id_of, page_name
from gmdb.format.arrays import SUFFIX
from gmdb.format.columns import Column, make_type
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.row import RowFlag
from gmdb.format.segment import mapped_pages
from gmdb.format.undo import UndoOperation
from gmdb.inspect.listing import BIGINT, TEXT, ListColumn, Listing
from gmdb.inspect.transaction_lists import commits_of, rows_of
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.tables.catalog.schema import (
    SYS_COLUMNS_COLUMNS,
    SYS_COLUMNS_ID,
    SYS_TABLES_COLUMNS,
    SYS_TABLES_ID,
    SYSTEM_TABLES,
    TableDefinition,
    lob_segment,
)
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import RowView, view_row

SALVAGED = (
    ListColumn("table", TEXT, "the table, or object-N if its definition is lost"),
    ListColumn("file", TEXT, "the Parquet file with its rows"),
    ListColumn("rows", BIGINT, "rows that were written"),
    ListColumn("deleted", BIGINT, "those of them that were deleted and not yet removed"),
    ListColumn("uncommitted", BIGINT, "those of them changed by a transaction that never ended"),
    ListColumn("lost_rows", BIGINT, "rows that are known of and could not be read"),
    ListColumn("lost_values", BIGINT, "large objects of written rows that could not be read, and are NULL"),
    ListColumn("lost_pages", BIGINT, "pages that a map gives to the table and that cannot be read"),
)
_ROW_SEGMENTS = (SegmentType.HEAP, SegmentType.SYSTEM)
_IN_FLIGHT = (UndoOperation.HEAP_INSERT, UndoOperation.HEAP_UPDATE, UndoOperation.HEAP_UPDATE_INC)


@dataclass(frozen=True)
class SavedRow:
    """A row: its object, its row id, its values if the table is known, and all its bytes."""

    obj_id: int
    row_id: RowId
    values: tuple[Any, ...] | None
    raw: bytes
    is_deleted: bool
    is_uncommitted: bool


@dataclass
class Losses:
    """What could not be read."""

    pages: dict[int, str] = field(default_factory=dict)  # why not, by page id
    owners: dict[int, int] = field(default_factory=dict)  # the object, by page id, as maps say
    rows: Counter[int] = field(default_factory=Counter)  # by object
    values: Counter[int] = field(default_factory=Counter)
    problems: list[tuple[str, str]] = field(default_factory=list)  # where, what

    def pages_of(self, obj_id: int) -> int:
        return sum(self.owners.get(page_id) == obj_id for page_id in self.pages)


class Salvage:
    """Reads all pages once, to know where rows are; ``rows`` then yields them."""

    def __init__(self, files: DatabaseFiles) -> None:
        self._files = files
        self.losses = Losses()
        self._heap_pages: list[int] = []
        self._homes: dict[RowId, tuple[RowId, bool]] = {}  # by a moved row's place: its row id, whether it is deleted
        self._undeleted: set[RowId] = set()
        self._uncommitted: set[RowId] = set()
        self._survey()
        self.tables = self._known_tables()

    # ---- the pass over all pages

    def _survey(self) -> None:
        undo: list[int] = []
        transactions: list[bytes] = []
        for page_id, page in self._whole_pages():
            head = PAGE_HEAD.at(page)
            if head.page_type in (PageType.SEGMENT_ENTRY, PageType.MAP):
                self.losses.owners |= dict.fromkeys(mapped_pages(page), head.obj_id)
            elif head.page_type == PageType.TRANSACTIONS:
                transactions.append(page)
            elif head.page_type == PageType.DATA and head.seg_type == SegmentType.UNDO:
                undo.append(page_id)
            elif head.page_type == PageType.DATA and head.seg_type in _ROW_SEGMENTS:
                self._heap_pages.append(page_id)
                self._note_moved(page_id, page)
        self._note_in_flight(undo, commits_of(transactions))

    def _whole_pages(self) -> Iterator[tuple[int, bytes]]:
        for number, device in self._files.devices.items():
            used = device.hwm if device.has_head else device.file_pages
            for page_id in range(page_id_of(number, 0), page_id_of(number, used)):
                try:
                    yield page_id, self._files.sound_page(page_id)
                except Error as error:
                    self.losses.pages[page_id] = str(error)

    def _note_moved(self, page_id: int, page: bytes) -> None:
        for slot, offset in heap.live_slots(page):
            flags = heap.flags_of(page, offset)
            if flags & RowFlag.ENTRY:
                target = view_row(page, slot, offset, None).target
                if target is not None:
                    self._homes[target] = RowId(page_id, slot), bool(flags & RowFlag.DELETE)

    def _note_in_flight(self, undo: list[int], scns: dict[int, int]) -> None:
        """Note changes of transactions that never ended: rows they deleted are kept, rows they changed are marked."""
        for row in rows_of(((page_id, self._files.page(page_id)) for page_id in undo), {}):
            if row.is_live and row.owner.number not in scns:
                operation = row.record.head["op_type"]
                if operation == UndoOperation.HEAP_DELETE:
                    self._undeleted.add(row.record.row_id)
                elif operation in _IN_FLIGHT:
                    self._uncommitted.add(row.record.row_id)

    # ---- the catalog

    def _known_tables(self) -> dict[int, TableDefinition]:
        columns: dict[int, dict[int, Column]] = {}
        for values in self._catalog_rows(SYS_COLUMNS_ID, SYS_COLUMNS_COLUMNS):
            obj_id, position, name, type_name, length, scale, nullable, *_ = values
            numbers = [length, scale] if type_name.removesuffix(SUFFIX) == "DECIMAL" else [length] if length else []
            try:
                columns.setdefault(obj_id, {})[position] = Column(name, make_type(type_name, numbers), nullable)
            except SchemaError as error:
                self.losses.problems.append(("sys_columns", str(error)))
        tables = {}
        for obj_id, name, space_id, entry, *more in self._catalog_rows(SYS_TABLES_ID, SYS_TABLES_COLUMNS):
            own = columns.get(obj_id, {})
            if obj_id in _SYSTEM:
                own = dict(enumerate(_SYSTEM[obj_id]))
            if own and sorted(own) == list(range(len(own))):
                listed = tuple(own[position] for position in sorted(own))
                tables[obj_id] = TableDefinition(name, obj_id, space_id, entry, listed, lobs=lob_segment(*more[:2]))
            else:
                what = "columns of its definition are lost; its rows are written as bytes"
                self.losses.problems.append((f"table {name}", what))
        return tables

    def _catalog_rows(self, obj_id: int, columns: tuple[Column, ...]) -> Iterator[tuple[Any, ...]]:
        for page_id in self._heap_pages:
            page = self._files.page(page_id)
            if PAGE_HEAD.at(page).obj_id == obj_id:
                for row_id, view, is_deleted in self._views(page_id, page, columns):
                    if view.cells is None:
                        self.losses.problems.append((f"row {row_id}", view.problem))
                    elif not is_deleted:
                        yield tuple(cell.value for cell in view.cells)

    # ---- rows

    def rows(self, deleted: bool) -> Iterator[SavedRow]:
        """The rows of all user tables; ``deleted``: deleted ones too."""
        reached = set()
        for page_id in self._heap_pages:
            page = self._files.page(page_id)
            obj_id = PAGE_HEAD.at(page).obj_id
            if obj_id in _SYSTEM:
                continue
            table = self.tables.get(obj_id)
            for row_id, view, is_deleted in self._views(page_id, page, table.stored if table else None):
                reached.add(RowId(page_id, view.slot))
                if is_deleted and not deleted:
                    continue
                if table is not None and view.cells is None:
                    self.losses.rows[obj_id] += 1
                    self.losses.problems.append((f"row {row_id}", view.problem))
                    continue
                values = None if table is None or view.cells is None else self._values(table, view)
                raw = page[view.offset : view.offset + view.size]
                yield SavedRow(obj_id, row_id, values, raw, is_deleted, row_id in self._uncommitted)
        for target, (home, is_deleted) in self._homes.items():
            if target not in reached and (deleted or not is_deleted):
                obj_id = PAGE_HEAD.at(self._files.page(home.page_id)).obj_id
                if obj_id not in _SYSTEM:
                    self.losses.rows[obj_id] += 1
                    self.losses.problems.append((f"row {home}", f"its values were at {target}, which cannot be read"))

    def _views(
        self, page_id: int, page: bytes, columns: tuple[Column, ...] | None
    ) -> Iterator[tuple[RowId, RowView, bool]]:
        """The rows whose values are on a page, each with its row id and whether it is deleted."""
        for slot, offset in heap.live_slots(page):
            view = view_row(page, slot, offset, columns)
            if view.flags & RowFlag.ENTRY:
                continue
            here = RowId(page_id, slot)
            home, is_deleted = here, bool(view.flags & RowFlag.DELETE)
            if view.flags & RowFlag.LINK and here in self._homes:
                home, gone = self._homes[here]
                is_deleted = is_deleted or gone
            yield home, view, is_deleted and home not in self._undeleted

    def _values(self, table: TableDefinition, view: RowView) -> tuple[Any, ...]:
        assert view.cells is not None
        return tuple(
            self._lob(table, column, cell.value) if isinstance(cell.value, lob.Locator) else cell.value
            for column, cell in zip(table.columns, view.cells, strict=False)
        )

    def _lob(self, table: TableDefinition, column: Column, locator: lob.Locator) -> bytes | str | None:
        """A large object's value; None, and a loss is noted, if a page of it cannot be read."""
        try:
            raw = b"".join(self._lob_parts(locator.first_page, locator.first_page, lob.LEVEL_MAX))[: locator.length]
            if len(raw) == locator.length:
                return column.type.decode(raw) if column.type.is_array else raw.decode() if column.type.is_text else raw
            wrong = f"it has {len(raw)} of {locator.length} bytes"
        except (Error, UnicodeDecodeError) as error:
            wrong = str(error)
        self.losses.values[table.obj_id] += 1
        self.losses.problems.append((f"large object {page_name(locator.first_page)} of {table.name}", wrong))
        return None

    def _lob_parts(self, page_id: int, first: int, level_max: int) -> Iterator[bytes]:
        page = self._files.sound_page(page_id)
        head, node = PAGE_HEAD.at(page), lob.LOB_NODE.at(page, lob.NODE_AT)
        if head.seg_type != SegmentType.LOB or node.first_page != first or node.level > level_max:
            raise Error(f"page {page_name(page_id)} is not a page of it")
        if node.level == 0:
            yield page[lob.DATA_AT : max(head.free_begin, lob.DATA_AT)]
            return
        for below in lob.listed_pages(page).tolist():
            if below != NO_PAGE:
                yield from self._lob_parts(below, first, node.level - 1)

    # ---- the report

    def name_of(self, obj_id: int) -> str:
        return self.tables[obj_id].name if obj_id in self.tables else f"object-{obj_id}"

    def report(self, counts: dict[int, Counter[str]], files: dict[int, str]) -> Listing:
        """What was written and what was lost, by table."""
        listing = Listing("salvaged", SALVAGED)
        users = {obj_id for obj_id in self.tables if obj_id not in _SYSTEM}
        for obj_id in sorted(users | counts.keys() | self.losses.rows.keys()):
            count = counts.get(obj_id, Counter())
            listing.add(
                table=self.name_of(obj_id),
                file=files.get(obj_id),
                **{name: count[name] for name in ("rows", "deleted", "uncommitted")},
                lost_rows=self.losses.rows[obj_id],
                lost_values=self.losses.values[obj_id],
                lost_pages=self.losses.pages_of(obj_id),
            )
        for page_id, wrong in self.losses.pages.items():
            owner = self.losses.owners.get(page_id)
            whose = "of no known table" if owner is None else f"of {self.name_of(owner)}"
            listing.wrong(f"{page_name(page_id)}, {whose}", wrong)
        listing.problems += self.losses.problems
        return listing


_SYSTEM: dict[int, tuple[Column, ...]] = {number: tuple(columns) for number, columns in SYSTEM_TABLES.values()}
