"""A row's versions: what it is now, and what it was before each change that the undo log still knows of."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption, Error, InterfaceError
from gmdb.format import anatomy, heap
from gmdb.format.address import RowId, page_name, parse_page_id
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import RowFlag
from gmdb.format.undo import UndoOperation
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import BIGINT, INT, TEXT, ListColumn, Listing
from gmdb.inspect.page_view import known_tables
from gmdb.inspect.row_lists import listed_type, listed_value
from gmdb.inspect.row_view import RowView, view_row
from gmdb.inspect.undo_lists import COMMITTED, IN_FLIGHT, UndoRow, commits, undo_rows

VERSION = (
    ListColumn("_version", INT, "0: as the row is now; 1: as it was before the newest change…"),
    ListColumn("_state", TEXT, "`here`, `deleted`, `not yet there`; `unknown`: the version cannot be read"),
    ListColumn("_made_by", BIGINT, "the transaction that made the version; NULL: undo does not tell any more"),
    ListColumn("_operation", TEXT, "what that did, such as `HEAP_UPDATE`"),
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
    raise InterfaceError(f"{text!r} is no row id: write DEVICE:PAGE:SLOT, such as 4:7:12")


@dataclass(frozen=True)
class Version:
    """A row as it is or was: where its bytes are, and the change that made it; None: undo does not tell any more."""

    state: str
    where: str
    values: tuple[Any, ...]
    maker: UndoRow | None


def row(files: DatabaseFiles, row_id: str) -> Listing:
    """A row with its whole history, as far as undo has it: the newest version first."""
    place = parse_row_id(row_id)
    page = files.page(place.page_id)
    made = Listing("row", VERSION)
    table = known_tables(files).get(PAGE_HEAD.at(page).obj_id)
    made.columns = (*VERSION, *value_columns(table))
    for finding in anatomy.check(page, place.page_id)[:1]:
        made.wrong(page_name(place.page_id), finding.message)
    scns = commits(files, made)
    found = list(versions(files, page, place, table, changes_of(undo_rows(files, made), scns), made))
    if found[0].state == NOT_YET and len(found) == 1:
        raise InterfaceError(
            f"page {page_name(place.page_id)} has no row in slot {place.slot_id}, nor has undo one of it"
        )
    for number, one in enumerate(found):
        made.rows.append((number, one.state, *_made_by(one.maker, scns), one.where, _lock(one.maker), *one.values))
    return made


def value_columns(table: TableDefinition | None) -> tuple[ListColumn, ...]:
    """The columns of a table, as listings show their values."""
    return () if table is None else tuple(ListColumn(c.name, listed_type(c), f"column {c.name}") for c in table.columns)


def changes_of(records: Iterable[UndoRow], scns: dict[int, int]) -> list[UndoRow]:
    """Those records of the undo log that tell of rows, the newest change first."""
    found = [one for one in records if one.is_live and one.record.head["op_type"] in _HEAP]
    return sorted(found, key=lambda one: _age(one, scns), reverse=True)


def versions(
    files: DatabaseFiles,
    page: bytes,
    place: RowId,
    table: TableDefinition | None,
    changes: Iterable[UndoRow],
    made: Listing,
) -> Iterator[Version]:
    """A row's versions out of ``changes``, the newest first; ``made`` hears of what cannot be read."""
    state, where, values = _now(files, page, place, table, made)
    for maker in changes:
        if maker.record.is_about(place):
            yield Version(state, where, values, maker)
            state, where, values = _before(maker, table, values)
    yield Version(state, where, values, None)


def _age(found: UndoRow, scns: dict[int, int]) -> tuple[int, int, int, int]:
    """Later changes are more; one that has not committed is the newest."""
    return scns.get(found.owner.number, 1 << 64), found.owner.number, found.owner.run, found.record.offset


def _made_by(maker: UndoRow | None, scns: dict[int, int]) -> tuple[Any, ...]:
    if maker is None:
        return None, None, None, None
    scn = scns.get(maker.owner.number)
    return maker.owner.number or None, maker.record.operation, IN_FLIGHT if scn is None else COMMITTED, scn


def _lock(maker: UndoRow | None) -> int | None:
    return None if maker is None else maker.record.head["lock_id"]


def _now(
    files: DatabaseFiles, page: bytes, place: RowId, table: TableDefinition | None, made: Listing
) -> tuple[str, str, tuple[Any, ...]]:
    """The row as it is: its state, where it is, its values."""
    nothing = (None,) * (len(table.columns) if table is not None else 0)
    at = dict(heap.live_slots(page)).get(place.slot_id) if anatomy.structure_of(page) is heap else None
    if at is None:
        return NOT_YET, str(place), nothing
    try:
        view, where = _followed(files, page, place, at, table)
    except Error as error:
        made.wrong(f"row {place}", error)
        return UNKNOWN, str(place), nothing
    state = DELETED if heap.flags_of(page, at) & RowFlag.DELETE else HERE
    if view.problem:
        made.wrong(f"row {where}", view.problem)
        return UNKNOWN, str(where), nothing
    return state, str(where), _values(view, table)


def _followed(
    files: DatabaseFiles, page: bytes, place: RowId, at: int, table: TableDefinition | None
) -> tuple[RowView, RowId]:
    """The row at a place, or where it has moved to."""
    columns = table.columns if table is not None else None
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
    return tuple(listed_value(c, cell.value) for c, cell in zip(table.columns, view.cells, strict=True))


def _before(
    change: UndoRow, table: TableDefinition | None, values: tuple[Any, ...]
) -> tuple[str, str, tuple[Any, ...]]:
    """The version before a change, given the one behind it."""
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
        changed[number] = listed_value(table.columns[number], cell.value)
    return HERE, where, tuple(changed)
