"""The system tables' own definitions, and the shape of a table's definition.

The system tables lie in device 0.  ``sys_tables`` is found without looking anything up: its entry page is 0:1.
It lists every table, itself included; ``sys_columns`` lists their columns.
Not here: reading or changing them (tables.py for an open database, inspect/ for one that is closed).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gmdb.access.indexes import IndexDefinition, no_such_index
from gmdb.errors import NoSuchColumn, SchemaError
from gmdb.format.address import SYSTEM_DEVICE, page_id_of
from gmdb.format.columns import Column, parse_column
from gmdb.format.row import MAX_COLUMNS

SYS_TABLES_ENTRY = page_id_of(SYSTEM_DEVICE, 1)
SYS_TABLES_ID, SYS_COLUMNS_ID, SYS_INDEXES_ID, FIRST_USER_ID = 1, 2, 5, 16


@dataclass(frozen=True)
class TableDefinition:
    """A table: its name and number, where its segment starts, and its columns in order."""

    name: str
    obj_id: int
    space_id: int
    entry_page: int
    columns: tuple[Column, ...]
    indexes: tuple[IndexDefinition, ...] = ()

    def column(self, name: str) -> Column:
        return self.columns[self.position(name)]

    def position(self, name: str) -> int:
        """A column's number; its name as it was given, or in small letters."""
        names = [column.name for column in self.columns]
        for spelling in (name, name.lower()):
            if spelling in names:
                return names.index(spelling)
        raise NoSuchColumn(f"table {self.name} has no column {name}; its columns are {', '.join(names)}")

    def positions(self, names: Sequence[str] | None) -> list[int]:
        """The numbers of some columns, each named once; None stands for all."""
        if names is None:
            return list(range(len(self.columns)))
        found = [self.position(name) for name in names]
        if len(set(found)) < len(found):
            raise SchemaError(f"table {self.name}: a column is asked for twice in {', '.join(names)}")
        return found

    def index(self, name: str) -> IndexDefinition:
        for index in self.indexes:
            if index.name == name:
                return index
        raise no_such_index(self.name, name, self.indexes)


def make_columns(table: str, columns: dict[str, str] | list[tuple[str, str]]) -> tuple[Column, ...]:
    """Columns as users write them, ``{"i": "INT", "s": "VARCHAR(10) NOT NULL"}``, checked."""
    pairs = list(columns.items()) if isinstance(columns, dict) else list(columns)
    made = tuple(parse_column(name, spelling) for name, spelling in pairs)
    if not 1 <= len(made) <= MAX_COLUMNS:
        raise SchemaError(f"table {table} has {len(made)} columns; it must have 1 to {MAX_COLUMNS}")
    seen: set[str] = set()
    for column in made:
        if column.name.lower() in seen:
            raise SchemaError(f"table {table} has two columns called {column.name}")
        seen.add(column.name.lower())
    return made


SYS_TABLES_COLUMNS = make_columns(
    "sys_tables",
    {
        "obj_id": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "space_id": "INT NOT NULL",
        "entry_page": "BIGINT NOT NULL",
    },
)

SYS_INDEXES_COLUMNS = make_columns(
    "sys_indexes",
    {
        "obj_id": "INT NOT NULL",
        "table_id": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "entry_page": "BIGINT NOT NULL",
        "is_unique": "BOOLEAN NOT NULL",
        "positions": "VARCHAR(100) NOT NULL",
        "kind": "VARCHAR(10)",  # NULL in rows from before there were hash indexes: a B-tree
    },
)

SYS_COLUMNS_COLUMNS = make_columns(
    "sys_columns",
    {
        "obj_id": "INT NOT NULL",
        "position": "INT NOT NULL",
        "name": "VARCHAR(63) NOT NULL",
        "type": "VARCHAR(20) NOT NULL",
        "length": "INT NOT NULL",
        "scale": "INT NOT NULL",
        "nullable": "BOOLEAN NOT NULL",
    },
)
