"""Who sees which version of a row, and the line of the visibility table that says so.

A reader is a transaction, or nobody, at a snapshot: the newest commit that it knows.  From the newest version back,
each is decided by the table (kernel/visibility.py), with the row's DELETE flag and what was done to the row: by the
reader itself or by somebody who committed by then, the version is the one that is seen or not; by another, the table
says whether it is hidden or the version before is asked.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from gmdb.errors import InterfaceError
from gmdb.format import anatomy, heap
from gmdb.format.address import RowId, page_name, parse_page_id
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import RowFlag
from gmdb.format.undo import UndoOperation
from gmdb.inspect.files import DatabaseFiles
from gmdb.inspect.listing import BIGINT, INT, TEXT, ListColumn, Listing, whole_number
from gmdb.inspect.page_view import known_tables
from gmdb.inspect.undo_lists import UndoRow, commits, undo_rows
from gmdb.inspect.version_lists import (
    DELETED,
    NOT_YET,
    UNKNOWN,
    Version,
    changes_of,
    parse_row_id,
    value_columns,
    versions,
)

SEEN = (
    ListColumn("_rowid", TEXT, "the row"),
    ListColumn("_sees", TEXT, "`visible`, `invisible` or `from undo`"),
    ListColumn("_version", INT, "which version is seen: 0 as the row is now, 1 as it was before the newest change…"),
    ListColumn("_line", TEXT, "the lines of the visibility table that say so, from the newest version back"),
    ListColumn("_changed_by", BIGINT, "the transaction that changed the row last; NULL: undo does not tell any more"),
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
    """The rows of a page, or one row, as a transaction sees them at a snapshot; 0: as somebody else would."""
    reader, newest = whole_number(transaction), whole_number(scn)
    if reader < 0:
        raise InterfaceError(f"{transaction!r} is no number of a transaction; 0 is a reader that has changed nothing")
    if newest < 0:
        raise InterfaceError(f"{scn!r} is no SCN, by which commits are numbered")
    row_ids, page_id = _places(files, str(place))
    page = files.page(page_id)
    table = known_tables(files).get(PAGE_HEAD.at(page).obj_id)
    made = Listing("seen", (*SEEN, *value_columns(table)))
    scns = commits(files, made)
    near = (one for one in undo_rows(files, made) if _is_near(one, page_id))
    changes = changes_of(near, scns)
    for row_id in row_ids:
        found = list(versions(files, page, row_id, table, changes, made))
        sees, number, lines = decide_versions(found, scns, reader, newest)
        shown = found[number] if number is not None else None
        maker = found[0].maker
        made.rows.append(
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
    return made


def _places(files: DatabaseFiles, place: str) -> tuple[list[RowId], int]:
    """The rows that are asked for, and their page."""
    row_id = parse_row_id(place) if place.count(":") == 2 else None
    page_id = parse_page_id(place) if row_id is None else row_id.page_id
    page = files.page(page_id)
    if anatomy.structure_of(page) is not heap:
        raise InterfaceError(f"page {page_name(page_id)} has no rows")
    if row_id is not None:
        return [row_id], page_id
    at_home = [slot for slot, at in heap.live_slots(page) if not heap.flags_of(page, at) & RowFlag.LINK]
    return [RowId(page_id, slot) for slot in at_home], page_id


def _is_near(found: UndoRow, page_id: int) -> bool:
    """Whether a record can be about a row of the page."""
    return found.record.row_id.page_id <= page_id and found.record.is_about(RowId(page_id, found.record.row_id.slot_id))


def decide_versions(
    found: Iterable[Version], scns: dict[int, int], transaction: int, scn: int
) -> tuple[str, int | None, list[str]]:
    """What is seen of a row's versions, newest first: the answer, the number of the version, and why."""
    from gmdb.kernel import visibility  # the table itself; it brings compiled code

    names = {visibility.VISIBLE: VISIBLE, visibility.HIDDEN: INVISIBLE, visibility.FROM_UNDO: FROM_UNDO}
    lines: list[str] = []
    for number, version in enumerate(found):
        if version.state == UNKNOWN:
            return INVISIBLE, None, [*lines, "the version cannot be read"]
        if version.state == NOT_YET:
            return INVISIBLE, None, lines or ["there is no row"]
        deleted = version.state == DELETED
        whose, action = _whose(version.maker, scns, transaction, scn)
        code = visibility.decide_visibility(deleted, action.value if whose == _OTHER else 0, whose == _OWN)
        decision = names[int(code)]
        is_asked_again = whose == _OTHER and decision != INVISIBLE
        lines.append(_line(deleted, action.name, whose, "as beneath" if is_asked_again and deleted else decision))
        if not is_asked_again:
            sees = decision if number == 0 or decision == INVISIBLE else FROM_UNDO
            return sees, number if decision == VISIBLE else None, lines
    return INVISIBLE, None, lines


def _whose(maker: UndoRow | None, scns: dict[int, int], transaction: int, scn: int) -> tuple[str, Any]:
    """Who did what to a version, to a reader's eyes."""
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
