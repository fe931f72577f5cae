"""One row, taken apart for people: its header, its bytes, and its values where its table is known.

Undo images and B-tree entries begin like rows, so they are looked at through this too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from gmdb.errors import Corruption, DataError
from gmdb.format.address import RowId
from gmdb.format.columns import Column
from gmdb.format.row import BITS_AT, NO_LOCK, ROW_HEAD, RowFlag, SizeCode, header_size, walk_cells
from gmdb.inspect.files import entry_target

NO_LOCK_BEFORE = 0xFFFF_FFFF  # in an undo image: the row had no lock, and no flags


@dataclass(frozen=True)
class Cell:
    """A column's value in a row: where it starts (its length included), and what it is, if that is known."""

    name: str
    offset: int
    value: Any


@dataclass(frozen=True)
class RowView:
    slot: int
    offset: int
    lock_word: int
    size: int
    col_count: int
    bit_array: int
    further_bits: bytes
    values_at: int
    raw: bytes
    cells: tuple[Cell, ...] | None
    target: RowId | None
    problem: str = ""

    @property
    def lock_id(self) -> int:
        return self.lock_word & NO_LOCK

    @property
    def flags(self) -> RowFlag:
        return _flags(self.lock_word)

    @property
    def flag_names(self) -> list[str]:
        return flag_names(self.flags)

    def document(self) -> dict[str, Any]:
        """The row in plain values, for JSON."""
        document: dict[str, Any] = {
            "slot": self.slot,
            "offset": self.offset,
            "lock_id": self.lock_id,
            "flags": int(self.flags),
            "flag_names": self.flag_names,
            "size": self.size,
            "col_count": self.col_count,
            "bit_array": self.bit_array,
            "bytes": self.raw.hex(),
            "values": None if self.cells is None else [plain(cell.value) for cell in self.cells],
        }
        if self.further_bits:
            document["further_bits"] = self.further_bits.hex()
        if self.target is not None:
            document["moved_to"] = str(self.target)
        return document


def _flags(lock_word: int) -> RowFlag:
    return RowFlag(0 if lock_word == NO_LOCK_BEFORE else lock_word >> 24)


def flag_names(flags: int) -> list[str]:
    names = [str(flag.name) for flag in RowFlag if flags & flag]
    unknown = flags & ~int(RowFlag.DELETE | RowFlag.ENTRY | RowFlag.LINK | RowFlag.COMPACTING)
    return [*names, f"0x{unknown:02x}"] if unknown else names


def plain(value: Any) -> Any:
    """A value as JSON can hold it without loss: what JSON has no type for becomes a string."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal) or (isinstance(value, float) and not abs(value) < float("inf")):
        return str(value)
    return value


def view_row(page: bytes, slot: int, offset: int, columns: Sequence[Column] | None) -> RowView:
    """The row at ``offset``, whose header must lie in the page; of the rest, as much as does."""
    head = ROW_HEAD.at(page, offset)
    end = min(offset + head.size, len(page))
    values_at = min(offset + header_size(head.col_count), max(end, offset + ROW_HEAD.size))
    is_entry = bool(_flags(head.lock_id) & RowFlag.ENTRY) and values_at + 8 <= end
    cells, problem = None, ""
    if columns is not None and not is_entry:
        try:
            cells = view_cells(page, offset, end, columns)
        except (Corruption, DataError) as error:
            problem = "" if _is_dead(head.lock_id) else str(error)
    return RowView(
        slot=slot,
        offset=offset,
        lock_word=head.lock_id,
        size=head.size,
        col_count=head.col_count,
        bit_array=head.bit_array,
        further_bits=page[offset + BITS_AT + 4 : values_at],
        values_at=values_at,
        raw=page[values_at:end],
        cells=cells,
        target=entry_target(page, offset) if is_entry else None,
        problem=problem,
    )


def _is_dead(lock_word: int) -> bool:
    """Whether a row is gone for everybody: then its columns may be those of a definition that was rolled back."""
    return bool(_flags(lock_word) & RowFlag.DELETE) and lock_word & NO_LOCK == NO_LOCK


def view_cells(page: bytes, offset: int, end: int, columns: Sequence[Column]) -> tuple[Cell, ...]:
    """The row's values by column.  Raises Corruption or DataError if they cannot be these columns' values."""
    cells = []
    for number, (code, at, length) in enumerate(walk_cells(page, offset, end)):
        if number >= len(columns):
            if code == SizeCode.NULL:
                continue  # what is left of a column whose addition was rolled back
            raise Corruption(f"the row has more columns than its table, {len(columns)}", offset=offset)
        column = columns[number]
        start = at - 2 if code == SizeCode.VARIABLE else at
        if code not in (SizeCode.NULL, column.type.size_code):
            said = f"column {column.name}: its size bits are {code}, but {column.type} has {column.type.size_code}"
            raise DataError(said)
        value = None if code == SizeCode.NULL else column.type.decode(page[at : at + length])
        cells.append(Cell(column.name, start, value))
    return tuple(cells) + tuple(Cell(column.name, end, None) for column in columns[len(cells) :])
