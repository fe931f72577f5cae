"""Definitions in plain terms, lists and numbers and texts, for files and messages; and back."""

from __future__ import annotations

from typing import Any

from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.schema import Constraint, TableDefinition, make_columns, require_name
from gmdb.catalog.sense import reading_catalog
from gmdb.errors import SchemaError
from gmdb.format.columns import Column, ColumnType
from gmdb.format.lob import LobSegment
from gmdb.storage.documents import is_number
from gmdb.storage.feeds import Feed


def table_to_plain(table: TableDefinition) -> list[Any]:
    columns = [column_to_plain(column) for column in table.columns]
    indexes = [index_to_plain(index) for index in table.indexes]
    constraints = [constraint_to_plain(constraint) for constraint in table.constraints]
    place = [table.name, table.obj_id, table.space_id, table.entry_page]
    return [*place, columns, indexes, constraints, table.lobs, table.number, table.feed]


def table_from_plain(plain: list[Any]) -> TableDefinition:
    """What ``table_to_plain`` was given; Corruption if it was given something else."""
    with reading_catalog():
        table = _table_from_plain(plain)
        require_name("table", table.name)
        make_columns(table.name, table.columns)
        _require_numbers(table)
    return table


def _require_numbers(table: TableDefinition) -> None:
    """Refuse numbers of objects, pages and columns that are none."""
    numbers = [table.obj_id, table.space_id, table.entry_page, table.number, *(table.lobs or ()), *(table.feed or ())]
    for index in table.indexes:
        numbers += [index.obj_id, index.table_id, index.entry_page, *index.positions]
        is_sound = type(index.since) is int and isinstance(index.unique, bool) and index.using in ("btree", "hash")
        if not is_sound or not all(is_number(n) and n < len(table.columns) for n in index.positions):
            raise SchemaError(f"index {index.name} has columns that table {table.name} does not have")
    if not all(map(is_number, numbers)):
        raise SchemaError(f"table {table.name} has numbers that cannot be: {str(numbers)[:100]}")


def _table_from_plain(plain: list[Any]) -> TableDefinition:
    name, obj_id, space_id, entry_page, columns, indexes, constraints, lobs, number, feed = plain
    made = tuple(column_from_plain(column) for column in columns)
    kept = tuple(constraint_from_plain(constraint) for constraint in constraints)
    known = (index_from_plain(index) for index in indexes)
    own = LobSegment(*lobs) if lobs else None
    logged = Feed(*feed) if feed else None
    return TableDefinition(name, obj_id, space_id, entry_page, made, tuple(known), kept, own, number, logged)


def index_to_plain(index: IndexDefinition) -> list[Any]:
    place = [index.name, index.obj_id, index.table_id, index.entry_page]
    return [*place, index.unique, list(index.positions), index.since, index.using]


def index_from_plain(plain: list[Any]) -> IndexDefinition:
    name, obj_id, table_id, entry_page, unique, positions, since, using = plain
    return IndexDefinition(name, obj_id, table_id, entry_page, unique, tuple(positions), since, using)


def column_to_plain(column: Column) -> list[Any]:
    type_ = column.type
    shape = [column.name, type_.name, type_.length, type_.scale, column.nullable]
    return [*shape, column.default, column.identity, column.identity_id]


def column_from_plain(plain: list[Any]) -> Column:
    name, type_, length, scale, *more = plain
    return Column(name, ColumnType(type_, length, scale), *more)


def constraint_to_plain(constraint: Constraint) -> list[Any]:
    return [constraint.kind, list(constraint.columns), constraint.text, constraint.name]


def constraint_from_plain(plain: list[Any]) -> Constraint:
    kind, columns, text, name = plain
    return Constraint(kind, tuple(columns), text, name)
