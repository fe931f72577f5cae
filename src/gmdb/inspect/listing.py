"""A listing: a table that the inspector makes, with the meanings of its columns and the problems met on the way.

Columns have the types of table columns, so that a listing converts to Arrow and can be queried in SQL like a table.
Arrow is imported only when it is used.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from gmdb.format.columns import Column, ColumnType, parse_column
from gmdb.process.late_dataclasses import dataclass, field

if TYPE_CHECKING:
    import pyarrow as pa

INT, BIGINT, DOUBLE = ColumnType("INT"), ColumnType("BIGINT"), ColumnType("DOUBLE")
BOOLEAN, TIMESTAMP = ColumnType("BOOLEAN"), ColumnType("TIMESTAMP")
TEXT, BYTES = ColumnType("VARCHAR"), ColumnType("VARBINARY")

_DIGITS_MAX = 20  # of a number of 8 bytes
_NAME, _PROBLEMS, _NOTES, _MEANING, _TYPE, _DETAIL = "listing", "problems", "notes", "meaning", "type", "detail"


@dataclass(frozen=True)
class ListColumn:
    """A column of a listing.  ``is_detail``: printed only on request."""

    name: str
    type: ColumnType
    meaning: str
    is_detail: bool = False


@dataclass
class Listing:
    """Rows, in the order of ``columns``; ``problems`` as (where, what); ``notes`` are printed below the table."""

    name: str
    columns: Sequence[ListColumn]
    rows: list[tuple[Any, ...]] = field(default_factory=list)
    problems: list[tuple[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def add(self, **values: Any) -> None:
        """Add a row, by column names; columns left out are NULL."""
        self.rows.append(tuple(values.pop(column.name, None) for column in self.columns))
        assert not values, f"{self.name} has no columns {', '.join(values)}"

    def wrong(self, where: str, what: object) -> None:
        self.problems.append((where, str(what)))

    def dicts(self) -> Iterable[dict[str, Any]]:
        names = [column.name for column in self.columns]
        return (dict(zip(names, row, strict=True)) for row in self.rows)

    def table_columns(self) -> list[Column]:
        return [Column(column.name, column.type) for column in self.columns]

    def arrow(self) -> pa.Table:
        """The listing as Arrow; meanings are in the fields' metadata, problems, as JSON, in the schema's."""
        import pyarrow as pa

        from gmdb.tables.arrow.arrow_types import arrow_type

        fields = [
            pa.field(c.name, arrow_type(c.type), metadata={_MEANING: c.meaning, _TYPE: str(c.type), _DETAIL: _flag(c)})
            for c in self.columns
        ]
        values = list(zip(*self.rows, strict=True)) or [()] * len(fields)
        problems = list(self.problems)
        arrays = [fitting_array(v, f, problems) for v, f in zip(values, fields, strict=True)]
        more = {_NAME: self.name, _PROBLEMS: json.dumps(problems), _NOTES: json.dumps(self.notes)}
        return pa.table(arrays, schema=pa.schema(fields, metadata=more))

    @classmethod
    def from_arrow(cls, table: pa.Table) -> Listing:
        """A listing from its Arrow form, as another process sends it."""
        columns = []
        for field_, column in zip(table.schema, columns_of(table.schema), strict=True):
            metadata = {key.decode(): value.decode() for key, value in field_.metadata.items()}
            columns.append(ListColumn(column.name, column.type, metadata[_MEANING], bool(metadata[_DETAIL])))
        more = {key.decode(): value.decode() for key, value in table.schema.metadata.items()}
        rows = list(zip(*(column.to_pylist() for column in table.columns), strict=True))
        problems = [(where, what) for where, what in json.loads(more[_PROBLEMS])]
        return cls(more[_NAME], columns, rows, problems, json.loads(more[_NOTES]))


def fitting_array(values: Sequence[Any], field_: pa.Field, problems: list[tuple[str, str]]) -> pa.Array:
    """The values as an array of the field's type.

    A value that does not fit, as damaged bytes may have, becomes NULL and is added to ``problems``.
    """
    import pyarrow as pa

    try:
        return pa.array(values, field_.type)
    except (OverflowError, TypeError, ValueError):
        pass
    fitting = []
    for number, value in enumerate(values):
        try:
            fitting.append(pa.scalar(value, field_.type))
        except (OverflowError, TypeError, ValueError) as error:
            fitting.append(None)
            what = f"{str(value)[:100]} is not a valid {field_.type}: {error}"
            problems.append((f"{field_.name} of row {number}", what))
    return pa.array(fitting, field_.type)


def whole_number(value: Any) -> int:
    """A whole number that is an argument of a listing, also as a string; -1 if it is not one."""
    if isinstance(value, int):
        return int(value)
    is_number = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
    return int(value) if is_number else -1


def columns_of(schema: pa.Schema) -> list[Column]:
    """The table columns of a listing, from the schema of its Arrow form."""
    return [parse_column(field_.name, field_.metadata[_TYPE.encode()].decode()) for field_ in schema]


def _flag(column: ListColumn) -> str:
    return "1" if column.is_detail else ""
