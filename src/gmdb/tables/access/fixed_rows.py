"""Rows that all have the same size, many at once.

So are those of tables whose columns have fixed sizes, unless there are NULLs among them, or rows from before the table
got its last columns.  They are unpacked by one call, if only numbers are read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Sequence
from operator import itemgetter
from typing import Any

from gmdb.format.address import RowId
from gmdb.format.columns import Column
from gmdb.format.row import COLUMNS_PER_WORD, SizeCode, header_size

Split = Callable[[bytes], "Iterable[Any] | None"]
_FOUND = "IIq"  # kernel.index_read.FOUND
_NUMBERS = {"SMALLINT": "i", "INT": "i", "BIGINT": "q", "REAL": "f", "DOUBLE": "d"}
_ANY = {SizeCode.FOUR: "i", SizeCode.EIGHT: "q"}
_HEAD = 3  # where a row's head is among what was unpacked: its size, its number of columns and their size codes
_new = tuple.__new__
_head_of, _values_of = itemgetter(_HEAD), itemgetter(slice(_HEAD + 1, None))


def fixed_split(columns: Sequence[Column], wanted: Container[int], row_ids: bool) -> Split | None:
    """What makes rows of bytes that ``kernel.index_read.read_rows`` gives out, with their row ids if they are asked
    for; None for other bytes.  Columns that are not wanted have any number.

    None: the table has no such rows.
    """
    codes = [column.type.size_code for column in columns]
    if len(columns) > COLUMNS_PER_WORD or SizeCode.VARIABLE in codes:
        return None
    if any(n in wanted and column.type.name not in _NUMBERS for n, column in enumerate(columns)):
        return None
    forms = [_NUMBERS[c.type.name] if n in wanted else _ANY[SizeCode(codes[n])] for n, c in enumerate(columns)]
    layout = struct.Struct(f"<{_FOUND}4xQ{''.join(forms)}")
    size = header_size(len(columns)) + sum(4 * code for code in codes)
    head = size | len(columns) << 16 | sum(code << 2 * n for n, code in enumerate(codes)) << 32
    stride, unpack, heads = layout.size, layout.iter_unpack, {head}

    def split(data: bytes) -> Iterable[Any] | None:
        if len(data) % stride:
            return None
        rows = list(unpack(data))
        if rows and set(map(_head_of, rows)) != heads:
            return None
        if row_ids:
            return [(_new(RowId, row[:2]), row[_HEAD + 1 :]) for row in rows]
        return map(_values_of, rows)

    return split
