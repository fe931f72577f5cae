"""Shapes: what kernels must know of columns to take their values from Python, and to give them (kernel/values.py).

There is none where a column's type is one that kernels do not know; format/codec.py does for all types.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gmdb.format.columns import Column
from gmdb.kernel.values import BIGINT, BOOLEAN, BYTES, DOUBLE, FORM, INT, OTHER, SHAPE, SMALLINT, TEXT
from gmdb.storage.memory import address_of, zeros

_KINDS = {
    **{"SMALLINT": SMALLINT, "INT": INT, "BIGINT": BIGINT, "DOUBLE": DOUBLE, "BOOLEAN": BOOLEAN},
    **dict.fromkeys(("CHAR", "VARCHAR"), TEXT),
    **dict.fromkeys(("BINARY", "VARBINARY"), BYTES),
}
_ROW_BYTES_MAX = 0xFFFF


class Shape:
    """The memory of a shape, at ``address``."""

    def __init__(
        self,
        columns: Sequence[Column],
        numbers: Sequence[int] | None,
        outputs: Sequence[int],
        key_room: int = 0,
        nulls: bool = False,
    ) -> None:
        """``numbers``: the columns' numbers in their table, for patches.  ``key_room``: bytes that a key may have.
        ``nulls``: of any column, whatever its definition says.

        ``outputs``: which columns whoever reads rows gets, in which order.
        """
        self._spare = zeros(1, "q")
        head = SHAPE.pack(
            count=len(columns),
            gap=key_room > 0,
            has_numbers=numbers is not None,
            room=key_room or _ROW_BYTES_MAX,
            outputs=len(outputs),
            spare=address_of(self._spare),
        )
        given = {column: n for n, column in enumerate(outputs)}
        forms = [
            FORM.pack(
                kind=_KINDS.get(column.type.name, OTHER),
                code=column.type.size_code,
                length_max=column.type.in_row_max,
                padding=column.type.padding[0] if column.type.padding else -1,
                number=n if numbers is None else numbers[n],
                output=given.get(n, -1),
                nullable=nulls or (not key_room and column.nullable),
            )
            for n, column in enumerate(columns)
        ]
        self._memory = bytearray(b"".join([head, *forms]))
        self.address = address_of(self._memory)


def row_shape(columns: Sequence[Column], outputs: Sequence[int] | None = None) -> Shape | None:
    """The shape of a table's rows, of which reads give some columns, or all.

    None if some of these have types that kernels do not know, or are there twice.
    """
    given = range(len(columns)) if outputs is None else outputs
    if len(set(given)) < len(given) or not are_known(columns[n] for n in given):
        return None
    return Shape(columns, None, given)


def patch_shape(columns: Sequence[Column], numbers: Sequence[int]) -> Shape | None:
    """The shape of patches of some columns, which have these numbers in their table."""
    return Shape(columns, numbers, ()) if are_known(columns) else None


def key_shape(columns: Sequence[Column], room: int, nulls: bool) -> Shape | None:
    """The shape of keys; ``nulls``: any of their values may be NULL."""
    return Shape(columns, None, (), room, nulls) if are_known(columns) else None


def are_known(columns: Iterable[Column]) -> bool:
    """Whether kernels know the types of some columns."""
    return all(column.type.name in _KINDS for column in columns)
