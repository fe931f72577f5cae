"""Generated columns: their values, in rows and changes of rows that anybody brings.

Those that indexes on expressions need stand behind the others in rows, and nobody brings them.
Invariant: a row has in a generated column what the column's expression gives for it.  Whoever brings a row leaves the
column out (None), or has just that value there; anything else is refused.
Not here: what an expression means (sql/statements/generated.py), Arrow arrays (tables/arrow/generated_arrays.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from gmdb.errors import DataError, GeneratedAlways, ValueTooLong
from gmdb.format.btree import KEY_BYTES_MAX
from gmdb.format.columns import Column
from gmdb.tables.access.definition import Definition
from gmdb.tables.access.indexes import HIDDEN
from gmdb.tables.access.lob_files import is_file, pieces_of

_PLAIN = {"INT": int, "BIGINT": int, "DOUBLE": float, "BOOLEAN": bool, "VARCHAR": str, "VARBINARY": bytes}


class Generation(NamedTuple):
    """How a table's generated columns come about."""

    bases: Mapping[int, frozenset[int]]  # of each generated column, by its position: the columns that it is made of
    compute: Callable[[Sequence[Any]], Sequence[Any]]  # their values, of a row's


class GeneratedColumns:
    """The generated columns of a table as it is defined."""

    def __init__(self, table: Definition, generation_of: Callable[[Any], Generation]) -> None:
        """``generation_of`` is called when the first row comes."""
        self._table, self._generation_of = table, generation_of

    @cached_property
    def generation(self) -> Generation:
        return self._generation_of(self._table)

    @cached_property
    def bases(self) -> frozenset[int]:
        """All columns that generated ones are made of."""
        return frozenset().union(*self.generation.bases.values())

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {column.name: n for n, column in enumerate(self._table.stored)}

    def row(self, values: Sequence[Any]) -> Sequence[Any]:
        """A row with its generated columns."""
        stored, given = self._table.stored, len(values)
        if given != len(self._table.columns):
            raise DataError(f"{given} values for {len(self._table.columns)} columns")
        row = [*values, *[None] * (len(stored) - given)]
        for n, value in zip(self.generation.bases, self.computed(row), strict=True):
            self.require_same(n, row[n], value)
            row[n] = value
        return row

    def computed(self, row: list[Any]) -> Sequence[Any]:
        """The values of a row's generated columns; those that they are made of become what rows keep."""
        columns = self._table.stored
        for n in self.bases:
            row[n] = _stored(columns[n], row[n])
        values = self.generation.compute(row)
        for n, value in zip(self.generation.bases, values, strict=True):
            if n >= len(self._table.columns) and isinstance(value, str | bytes):
                require_short(self._table.name, columns[n], value)
        return values

    def concern(self, changes: Sequence[Any] | Mapping[str, Any]) -> bool:
        """Whether new values of a row, all or some by name, make a generated column another, or name one."""
        if not isinstance(changes, Mapping):
            return True
        positions = self._positions(changes)
        return not (positions.isdisjoint(self.bases) and positions.isdisjoint(self.generation.bases))

    def _positions(self, names: Iterable[str]) -> set[int]:
        return {self._numbers[name] for name in names if name in self._numbers}

    def changes(
        self, old: Sequence[Any], changes: Sequence[Any] | Mapping[str, Any]
    ) -> Sequence[Any] | Mapping[str, Any]:
        """New values of a row, with those that its generated columns get by them."""
        if not isinstance(changes, Mapping):
            return self.row(changes)
        columns, known, positions = self._table.stored, self._numbers, self._positions(changes)
        row = [changes[columns[n].name] if n in positions else value for n, value in enumerate(old)]
        computed = self.computed(row)
        new = {name: row[n] if (n := known.get(name)) in self.bases else value for name, value in changes.items()}
        for (n, bases), value in zip(self.generation.bases.items(), computed, strict=True):
            name = columns[n].name
            if name in changes:
                self.require_same(n, changes[name], value)
            if name in changes or not positions.isdisjoint(bases):
                new[name] = value
        return new

    def require_same(self, position: int, value: Any, computed: Any, place: str = "") -> None:
        """Refuse a value for a generated column that is not the one which it gets."""
        column = self._table.stored[position]
        if value is None or (type(value) is type(computed) and value == computed):
            return
        if computed is None or column.encode(value) != column.encode(computed):
            where = f"{place}table {self._table.name}, column {column.name.removeprefix(HIDDEN)}"
            advice = "leave it out, or give None"
            raise GeneratedAlways(
                f"{where}: it is generated as ({column.generated}), and cannot be {value!r}; {advice}"
            )


def require_short(table: str, hidden: Column, value: str | bytes) -> None:
    """Refuse what an index is on if rows do not keep it."""
    size = len(value.encode() if isinstance(value, str) else value)
    if size > hidden.type.length:
        where = f"table {table}, an index on {hidden.generated}"
        raise ValueTooLong(f"{where}: a key has at most {KEY_BYTES_MAX} bytes, and this one has {size}")


def _stored(column: Column, value: Any) -> Any:
    """A value as it is read again, which is what expressions know."""
    if value is None or type(value) is _PLAIN.get(column.type.name):
        return value
    if is_file(value):
        raw = b"".join(pieces_of(column, value))
        return raw.decode() if column.type.is_text else raw
    try:
        return column.type.decode(column.type.encode(value))
    except DataError as error:
        raise type(error)(f"column {column.name}: {error}") from None
