"""Patches: new values for some of a row's columns, as the bytes that an update takes.

A patch is a row of those columns alone, in the table's order, with their numbers behind it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from operator import itemgetter
from typing import Any

from gmdb.errors import DataError, NoSuchColumn
from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column
from gmdb.format.row import COL_COUNT_AT, SIZE_AT
from gmdb.tables.access.indexes import HIDDEN
from gmdb.tables.access.shapes import Shape, patch_shape


class Patches:
    """Makes patches for one table; what depends on the chosen columns alone is worked out once."""

    def __init__(self, table: str, columns: Sequence[Column], watched: Container[int] = ()) -> None:
        """``watched``: the numbers of columns whose changes somebody is to know of, which kernels do not tell."""
        self._table = table
        self._columns = tuple(columns)
        self._watched = watched
        self._codecs: dict[tuple[str, ...], tuple[Callable[[Any], bytes], list[str]]] = {}
        self.shapes: dict[tuple[str, ...], int] = {}  # what ``shape`` has returned
        self._memory: list[Shape] = []  # that they lead to

    def encode(self, values: Sequence[Any] | Mapping[str, Any]) -> bytes:
        """A patch out of all values in column order, or of some by column name."""
        by_name = values if isinstance(values, dict) else self._by_name(values)
        columns = tuple(by_name)
        encode, names = self._codecs.get(columns) or self._codec(columns)
        if len(names) == 1:
            return encode(by_name[names[0]])
        return encode([by_name[name] for name in names])

    def encoder(self, names: Sequence[str], first: int = 0) -> Callable[[Sequence[Any]], bytes]:
        """A function that encodes patches of these columns from values, in their order from number ``first`` on."""
        columns = tuple(names)
        encode, ordered = self._codecs.get(columns) or self._codec(columns)
        if len(ordered) == 1:
            return lambda values: encode(values[first])
        if list(names) == ordered and not first:
            return encode
        pick = itemgetter(*(first + list(names).index(name) for name in ordered))
        return lambda values: encode(pick(values))

    def decode(self, patch: bytes) -> dict[str, Any]:
        """The values of a patch by column name."""
        size, count = (int.from_bytes(patch[at : at + 2], "little") for at in (SIZE_AT, COL_COUNT_AT))
        numbers = struct.unpack_from(f"<{count}H", patch, size)
        chosen = [self._columns[number] for number in numbers]
        return dict(zip((column.name for column in chosen), RowCodec(chosen).decode(patch[:size]), strict=True))

    def shape(self, names: tuple[str, ...]) -> int:
        """The address of the shape of patches of these columns; 0 if kernels do not know all their types, if one of
        them is watched, or if they are not in the table's order."""
        address = self.shapes.get(names)
        if address is None:
            numbers, address = self.numbers(names), 0
            columns = [self._columns[n] for n in numbers]
            in_order = [column.name for column in columns] == list(names)
            in_order = in_order and not any(n in self._watched for n in numbers)
            if in_order and (shape := patch_shape(columns, numbers)) is not None:
                self._memory.append(shape)
                address = shape.address
            self.shapes[names] = address
        return address

    def _by_name(self, values: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
        if isinstance(values, Mapping):
            return dict(values)
        if len(values) != len(self._columns):
            raise DataError(f"{len(values)} values for {len(self._columns)} columns")
        return {column.name: value for column, value in zip(self._columns, values, strict=True)}

    def numbers(self, names: Iterable[str]) -> list[int]:
        """The numbers of some columns, in the table's order."""
        positions = {column.name: n for n, column in enumerate(self._columns)}
        for name in names:
            if name not in positions:
                known = ", ".join(one for one in positions if not one.startswith(HIDDEN))
                raise NoSuchColumn(
                    f"table {self._table} has no column {name.removeprefix(HIDDEN)}; its columns are {known}"
                )
        return sorted(positions[name] for name in names)

    def _codec(self, columns: tuple[str, ...]) -> tuple[Callable[[Any], bytes], list[str]]:
        """A function that encodes patches of these columns, and their order in the table."""
        numbers = self.numbers(columns)
        names = [self._columns[n].name for n in numbers]
        codec = RowCodec([self._columns[n] for n in numbers], numbers)
        entry = codec.encode_only() if len(names) == 1 else codec.encode, names
        self._codecs[columns] = entry
        return entry
