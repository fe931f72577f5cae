"""Memory that kernels decode columns into, and the Arrow arrays that it becomes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gmdb.arrow.schema import stored_type
from gmdb.format.columns import Column, Kind
from gmdb.format.lob import CELL_MAX
from gmdb.kernel.columns import ARROW_COLUMN
from gmdb.late import pyarrow as pa

_WIDTHS = {Kind.WORD: 4, Kind.LONG: 8, Kind.DECIMAL_WORD: 16, Kind.DECIMAL_LONG: 16, Kind.DECIMAL_WIDE: 16}


def plan_columns(columns: Sequence[Column]) -> np.ndarray:
    """The columns as kernels know them; those that are wanted get buffers."""
    plan = np.zeros(len(columns), ARROW_COLUMN)
    for entry, column in zip(plan, columns, strict=True):
        entry["kind"] = column.type.kind
    return plan


class ColumnBuffers:
    """The buffers of one column, as large as they may have to be, and the array that they become."""

    def __init__(self, entry: Any, column: Column, slots: int, row_bytes: int) -> None:
        self._entry = entry
        self._type = stored_type(column.type)
        self._variable = column.type.kind in (Kind.TEXT, Kind.BYTES)
        self._validity = _filled((slots + 7) // 8, 0xFF)
        if self._variable:
            longest = min(slots * (CELL_MAX if column.type.is_lob else column.type.length), row_bytes)
            self._offsets = pa.allocate_buffer(4 * (slots + 1), resizable=True)
            np.frombuffer(self._offsets, np.int32, 1)[0] = 0
            self._values = pa.allocate_buffer(max(longest, 1), resizable=True)
            entry["offsets"] = self._offsets.address
            entry["capacity"] = longest
        elif column.type.kind is Kind.BIT:
            self._values = _filled((slots + 7) // 8, 0)
        else:
            self._values = pa.allocate_buffer(max(slots * _WIDTHS[column.type.kind], 1), resizable=True)
        entry["wanted"] = 1
        entry["validity"] = self._validity.address
        entry["values"] = self._values.address

    def array(self, rows: int) -> pa.Array:
        nulls = int(self._entry["nulls"])
        validity = self._validity if nulls else None
        if self._variable:
            self._values.resize(int(self._entry["used"]), shrink_to_fit=True)
            buffers = [validity, self._offsets, self._values]
        else:
            buffers = [validity, self._values]
        return pa.Array.from_buffers(self._type, rows, buffers, nulls)


def _filled(size: int, byte: int) -> pa.Buffer:
    buffer = pa.allocate_buffer(max(size, 1), resizable=True)
    np.frombuffer(buffer, np.uint8)[:] = byte
    return buffer
