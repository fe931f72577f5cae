"""Listings of rows as they are on pages, including deleted, moved and unreadable ones; and of their versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gmdb.errors import Corruption, Error, InterfaceError
from gmdb.format import anatomy, heap
from gmdb.format.address import RowId, page_name, parse_page_id
from gmdb.format.columns import Column, ColumnType
from gmdb.format.lob import Locator
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import NO_LOCK, RowFlag
from gmdb.format.undo import UndoOperation
from gmdb.inspect.listing import BIGINT, BYTES, INT, TEXT, ListColumn, Listing, whole_number
from gmdb.inspect.objects import find_segment
from gmdb.inspect.page_lists import ALL_PAGES, PageSelection, data_pages
from gmdb.inspect.transaction_lists import COMMITTED, IN_FLIGHT, UndoRow, commits, undo_rows
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import RowView, findings_of, known_tables, view_row

ROW_PLACE = (
    ListColumn("_rowid", TEXT, "the place, as SQL's rowid"),
    ListColumn("_page_id", BIGINT, "the page's number", True),
    ListColumn("_slot", INT, "the slot on it", True),
    ListColumn("_offset", INT, "where on the page the row begins", True),
    ListColumn("_size", INT, "bytes of the row"),
    ListColumn("_lock_id", BIGINT, "its lock; NULL: none"),
    ListColumn(
        "_flags", TEXT, "`DELETE`: it is deleted; `ENTRY`: its values are elsewhere; `LINK`: it came from there"
    ),
    ListColumn("_moved_to", TEXT, "of `ENTRY` rows: where the values are"),
    ListColumn("_problem", TEXT, "why it has no values; NULL: nothing is wrong"),
)
_BYTES_COLUMN = ListColumn("_bytes", BYTES, "the values' bytes, where the row's table is not known")


def rows(files: DatabaseFiles, segment: str, pages: PageSelection = ALL_PAGES) -> Listing:
    """The rows of a table, one line per slot: where it is, then the values of the table's columns."""
    stored = find_segment(files, segment)
    if stored.kind not in ("table", "heap", "system"):
        raise InterfaceError(f"{stored.name} is not a table but {stored.kind}; its pages have no rows")
    table = stored.table
    listing = Listing("rows", row_columns(table))
    for page_id in pages.of(data_pages(files, stored.entry_page, listing.wrong)):
        try:
            page = files.page(page_id)
            for finding in findings_of(files, page_id, page)[:1]:
                listing.wrong(page_name(page_id), finding.message)
            add_rows(listing, page_id, page, table)
        except Error as error:
            listing.wrong(page_name(page_id), error)
    return listing


def row_columns(table: TableDefinition | None) -> tuple[ListColumn, ...]:
    if table is None:
        return (*ROW_PLACE, _BYTES_COLUMN)
    return (*ROW_PLACE, *(ListColumn(c.name, listed_type(c), f"column {c.name}") for c in table.columns))


def listed_type(column: Column) -> ColumnType:
    """The type that the listing has for a column: large objects are listed as text that says where they are, and
    arrays as text, too."""
    return TEXT if column.type.may_be_apart else column.type


def add_rows(listing: Listing, page_id: int, page: bytes, table: TableDefinition | None) -> None:
    """Add the rows of one page, as far as its bytes make sense."""
    if anatomy.structure_of(page) is not heap:
        return
    for view in views_of(page, table):
        place = RowId(page_id, view.slot)
        listing.rows.append((*place_values(place, view), *values_of(view, table)))
        if view.problem:
            listing.wrong(f"row {place}", view.problem)


def views_of(page: bytes, table: TableDefinition | None) -> Iterator[RowView]:
    columns = table.stored if table is not None else None
    return (view_row(page, slot, offset, columns) for offset, _, slot in heap.row_extents(page))


def place_values(place: RowId, view: RowView) -> tuple[Any, ...]:
    lock = None if view.lock_id == NO_LOCK else view.lock_id
    flags = " ".join(view.flag_names) or None
    moved = None if view.target is None else str(view.target)
    return (str(place), place.page_id, view.slot, view.offset, view.size, lock, flags, moved, view.problem or None)


def values_of(view: RowView, table: TableDefinition | None) -> tuple[Any, ...]:
    """The row's values in the order of the table's columns; NULLs if they cannot be read."""
    if table is None:
        return (view.raw,)
    if view.cells is None:
        return (None,) * len(table.columns)
    return tuple(listed_value(c, cell.value) for c, cell in zip(table.columns, view.cells, strict=False))


def listed_value(column: Column, value: Any) -> Any:
    """A value as a listing has it."""
    if isinstance(value, Locator):
        return f"{value.length} bytes on pages, from {page_name(value.first_page)} on"
    if isinstance(value, list):
        return str(value)
    return value.hex() if column.type.may_be_apart and isinstance(value, bytes) else value


# ---- A row's versions: as it is now, and as it was before each change that the undo log still has.

VERSION = (
    ListColumn("_version", INT, "0: as the row is now; 1: as it was before the newest change…"),
    ListColumn("_state", TEXT, "`here`, `deleted`, `not yet there`; `unknown`: the version cannot be read"),
    ListColumn("_made_by", BIGINT, "the transaction that made the version; NULL: undo no longer has it"),
    ListColumn("_operation", TEXT, "what it did, such as `HEAP_UPDATE`"),
    ListColumn("_commit", TEXT, "`committed` or `in flight`"),
    ListColumn("_scn", BIGINT, "when it committed"),
    ListColumn("_place", TEXT, "where the bytes of the version are: a row, or an undo record, as PAGE:SLOT"),
    ListColumn("_lock_id", BIGINT, "the lock of the change"),
)
HERE, DELETED, NOT_YET, UNKNOWN = "here", "deleted", "not yet there", "unknown"
_HEAP = (
    UndoOperation.HEAP_INSERT,
    UndoOperation.HEAP_UPDATE,
    UndoOperation.HEAP_UPDATE_INC,
    UndoOperation.HEAP_DELETE,
)


def parse_row_id(text: str) -> RowId:
    """A row id from ``4:7:12``, as SQL's rowid is written."""
    page, _, slot = text.rpartition(":")
    if page.count(":") == 1 and slot.isdecimal() and int(slot) < 0xFFFF:
        return RowId(parse_page_id(page), int(slot))
    raise InterfaceError(f"{text!r} is not a row id: write DEVICE:PAGE:SLOT, such as 4:7:12")


@dataclass(frozen=True)
class Version:
    """A row as it is or was: where its bytes are, and the change that made it, None if undo no longer has it."""

    state: str
    where: str
    values: tuple[Any, ...]
    maker: UndoRow | None


def row(files: DatabaseFiles, row_id: str) -> Listing:
    """A row with all of its versions that undo still has, newest first."""
    place = parse_row_id(row_id)
    page = files.page(place.page_id)
    listing = Listing("row", VERSION)
    table = known_tables(files).get(PAGE_HEAD.at(page).obj_id)
    listing.columns = (*VERSION, *value_columns(table))
    for finding in anatomy.check(page, place.page_id)[:1]:
        listing.wrong(page_name(place.page_id), finding.message)
    scns = commits(files, listing)
    history = list(versions(files, page, place, table, changes_of(undo_rows(files, listing), scns), listing))
    if history[0].state == NOT_YET and len(history) == 1:
        raise InterfaceError(
            f"page {page_name(place.page_id)} has no row in slot {place.slot_id}, and undo has no version of one"
        )
    for number, one in enumerate(history):
        listing.rows.append((number, one.state, *_made_by(one.maker, scns), one.where, _lock(one.maker), *one.values))
    return listing


def value_columns(table: TableDefinition | None) -> tuple[ListColumn, ...]:
    """The columns of a table, as listings show their values."""
    return () if table is None else tuple(ListColumn(c.name, listed_type(c), f"column {c.name}") for c in table.columns)


def changes_of(records: Iterable[UndoRow], scns: dict[int, int]) -> list[UndoRow]:
    """The undo records that are about rows, newest change first."""
    changes = [one for one in records if one.is_live and one.record.head["op_type"] in _HEAP]
    return sorted(changes, key=lambda one: _age(one, scns), reverse=True)


def versions(
    files: DatabaseFiles,
    page: bytes,
    place: RowId,
    table: TableDefinition | None,
    changes: Iterable[UndoRow],
    listing: Listing,
) -> Iterator[Version]:
    """A row's versions out of ``changes``, newest first; what cannot be read is noted in ``listing``."""
    state, where, values = _now(files, page, place, table, listing)
    for maker in changes:
        if maker.record.is_about(place):
            yield Version(state, where, values, maker)
            state, where, values = _before(maker, table, values)
    yield Version(state, where, values, None)


def _age(change: UndoRow, scns: dict[int, int]) -> tuple[int, int, int, int]:
    """A sort key: later changes are greater, and one that has not committed is the newest."""
    return scns.get(change.owner.number, 1 << 64), change.owner.number, change.owner.run, change.record.offset


def _made_by(maker: UndoRow | None, scns: dict[int, int]) -> tuple[Any, ...]:
    if maker is None:
        return None, None, None, None
    scn = scns.get(maker.owner.number)
    return maker.owner.number or None, maker.record.operation, IN_FLIGHT if scn is None else COMMITTED, scn


def _lock(maker: UndoRow | None) -> int | None:
    return None if maker is None else maker.record.head["lock_id"]


def _now(
    files: DatabaseFiles, page: bytes, place: RowId, table: TableDefinition | None, listing: Listing
) -> tuple[str, str, tuple[Any, ...]]:
    """The row as it is: its state, where it is, its values."""
    nothing = (None,) * (len(table.columns) if table is not None else 0)
    at = dict(heap.live_slots(page)).get(place.slot_id) if anatomy.structure_of(page) is heap else None
    if at is None:
        return NOT_YET, str(place), nothing
    try:
        view, where = _followed(files, page, place, at, table)
    except Error as error:
        listing.wrong(f"row {place}", error)
        return UNKNOWN, str(place), nothing
    state = DELETED if heap.flags_of(page, at) & RowFlag.DELETE else HERE
    if view.problem:
        listing.wrong(f"row {where}", view.problem)
        return UNKNOWN, str(where), nothing
    return state, str(where), _values(view, table)


def _followed(
    files: DatabaseFiles, page: bytes, place: RowId, at: int, table: TableDefinition | None
) -> tuple[RowView, RowId]:
    """The row at a place, or where it has moved to."""
    columns = table.stored if table is not None else None
    view = view_row(page, place.slot_id, at, columns)
    if view.target is None:
        return view, place
    moved = files.sound_page(view.target.page_id)
    there = dict(heap.live_slots(moved)).get(view.target.slot_id) if anatomy.structure_of(moved) is heap else None
    if there is None:
        raise Corruption(f"it has moved to {view.target}, where no row is", view.target.page_id)
    return view_row(moved, view.target.slot_id, there, columns), view.target


def _values(view: RowView, table: TableDefinition | None) -> tuple[Any, ...]:
    if table is None or view.cells is None:
        return (None,) * (len(table.columns) if table is not None else 0)
    return tuple(listed_value(c, cell.value) for c, cell in zip(table.columns, view.cells, strict=False))


def _before(
    change: UndoRow, table: TableDefinition | None, values: tuple[Any, ...]
) -> tuple[str, str, tuple[Any, ...]]:
    """The version before a change; ``values`` are those of the version after it."""
    record = change.record
    where = f"{page_name(change.page_id)}:{record.slot}"
    if record.head["op_type"] == UndoOperation.HEAP_INSERT:
        return NOT_YET, where, (None,) * len(values)
    if record.head["op_type"] == UndoOperation.HEAP_DELETE:
        return HERE, where, values
    if record.image is None or record.image.cells is None or table is None:
        return UNKNOWN, where, (None,) * len(values)
    if record.head["op_type"] == UndoOperation.HEAP_UPDATE:
        return HERE, where, _values(record.image, table)
    changed = list(values)
    for number, cell in zip(record.changed, record.image.cells, strict=True):
        if number >= len(changed):
            break  # what indexes on expressions need
        changed[number] = listed_value(table.columns[number], cell.value)
    return HERE, where, tuple(changed)


# ---- Who sees which version of a row, and the line of the visibility table that says so.
#
# A reader is a transaction, or none, with a snapshot: the newest commit that it sees.  Versions are looked up in the
# table (kernel/read/visibility.py) from the newest back, by the row's DELETE flag and the last change to it.  If the
# reader itself made that change, or a transaction that its snapshot includes, this version decides: the row is visible
# or it is not.  If another transaction made it, the table says whether the row is invisible or the version before
# decides.

SEEN = (
    ListColumn("_rowid", TEXT, "the row"),
    ListColumn("_sees", TEXT, "`visible`, `invisible` or `from undo`"),
    ListColumn("_version", INT, "which version is seen: 0 as the row is now, 1 as it was before the newest change…"),
    ListColumn("_line", TEXT, "the lines of the visibility table that say so, from the newest version back"),
    ListColumn("_changed_by", BIGINT, "the transaction that changed the row last; NULL: undo no longer has it"),
    ListColumn("_place", TEXT, "where the bytes of the seen version are"),
)
_ACTIONS = {
    UndoOperation.HEAP_INSERT: "INSERT",
    UndoOperation.HEAP_UPDATE: "UPDATE",
    UndoOperation.HEAP_UPDATE_INC: "UPDATE",
    UndoOperation.HEAP_DELETE: "DELETE",
}
_OWN, _BEFORE, _OTHER = "own", "committed before", "other's"
VISIBLE, INVISIBLE, FROM_UNDO = "visible", "invisible", "from undo"
NEWEST = 1 << 62


def seen(files: DatabaseFiles, place: str, transaction: int = 0, scn: int = NEWEST) -> Listing:
    """The rows of a page, or one row, as a transaction sees them at a snapshot; 0: a reader without a transaction."""
    reader, newest = whole_number(transaction), whole_number(scn)
    if reader < 0:
        raise InterfaceError(
            f"{transaction!r} is not the number of a transaction; 0 is a reader that has changed nothing"
        )
    if newest < 0:
        raise InterfaceError(f"{scn!r} is not an SCN, the number of a commit")
    row_ids, page_id = _places(files, str(place))
    page = files.page(page_id)
    table = known_tables(files).get(PAGE_HEAD.at(page).obj_id)
    listing = Listing("seen", (*SEEN, *value_columns(table)))
    scns = commits(files, listing)
    near = (one for one in undo_rows(files, listing) if _is_near(one, page_id))
    changes = changes_of(near, scns)
    for row_id in row_ids:
        history = list(versions(files, page, row_id, table, changes, listing))
        sees, number, lines = decide_versions(history, scns, reader, newest)
        shown = history[number] if number is not None else None
        maker = history[0].maker
        listing.rows.append(
            (
                str(row_id),
                sees,
                number,
                "; ".join(lines),
                maker.owner.number if maker is not None and maker.owner.number < 1 << 63 else None,
                shown.where if shown is not None else None,
                *(shown.values if shown is not None else (None,) * len(value_columns(table))),
            )
        )
    return listing


def _places(files: DatabaseFiles, place: str) -> tuple[list[RowId], int]:
    """The rows that ``place`` names, and their page."""
    row_id = parse_row_id(place) if place.count(":") == 2 else None
    page_id = parse_page_id(place) if row_id is None else row_id.page_id
    page = files.page(page_id)
    if anatomy.structure_of(page) is not heap:
        raise InterfaceError(f"page {page_name(page_id)} has no rows")
    if row_id is not None:
        return [row_id], page_id
    at_home = [slot for slot, at in heap.live_slots(page) if not heap.flags_of(page, at) & RowFlag.LINK]
    return [RowId(page_id, slot) for slot in at_home], page_id


def _is_near(change: UndoRow, page_id: int) -> bool:
    """Whether a record can be about a row of the page."""
    record = change.record
    return record.row_id.page_id <= page_id and record.is_about(RowId(page_id, record.row_id.slot_id))


def decide_versions(
    history: Iterable[Version], scns: dict[int, int], transaction: int, scn: int
) -> tuple[str, int | None, list[str]]:
    """Which of a row's versions, newest first, a reader sees: visibility, the version's number, and the reasons."""
    from gmdb.kernel.read import visibility  # the table itself; it brings compiled code

    names = {visibility.VISIBLE: VISIBLE, visibility.HIDDEN: INVISIBLE, visibility.FROM_UNDO: FROM_UNDO}
    lines: list[str] = []
    for number, version in enumerate(history):
        if version.state == UNKNOWN:
            return INVISIBLE, None, [*lines, "the version cannot be read"]
        if version.state == NOT_YET:
            return INVISIBLE, None, lines or ["there is no row"]
        deleted = version.state == DELETED
        whose, action = _whose(version.maker, scns, transaction, scn)
        code = visibility.decide_visibility(deleted, action.value if whose == _OTHER else 0, whose == _OWN)
        decision = names[int(code)]
        goes_on = whose == _OTHER and decision != INVISIBLE
        lines.append(_line(deleted, action.name, whose, "as beneath" if goes_on and deleted else decision))
        if not goes_on:
            sees = decision if number == 0 or decision == INVISIBLE else FROM_UNDO
            return sees, number if decision == VISIBLE else None, lines
    return INVISIBLE, None, lines


def _whose(maker: UndoRow | None, scns: dict[int, int], transaction: int, scn: int) -> tuple[str, Any]:
    """Who changed the version, from the reader's point of view, and what the change was."""
    from gmdb.kernel.locks import LockAction

    if maker is None:
        return _BEFORE, LockAction.NONE
    action = LockAction[_ACTIONS[UndoOperation(maker.record.head["op_type"])]]
    if maker.owner.number == transaction and transaction:
        return _OWN, action
    return (_BEFORE if scns.get(maker.owner.number, NEWEST + 1) <= scn else _OTHER), action


def _line(deleted: bool, action: str, whose: str, decision: str) -> str:
    flag = "DELETE flag" if deleted else "no flag"
    lock = "no lock" if action == "NONE" else f"{whose} {action}" if whose != _BEFORE else f"{action} {whose}"
    return f"{flag}, {lock}: {decision}"
