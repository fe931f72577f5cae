"""Definitions in plain terms, for files and messages, and back; what was read is checked before it is used."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from gmdb.errors import Corruption, SchemaError
from gmdb.format.address import device_of, offset_of, page_name
from gmdb.format.columns import Column, ColumnType
from gmdb.format.lob import LobSegment
from gmdb.format.options import options_of, with_option_values
from gmdb.storage.documents import is_number
from gmdb.storage.feeds import Feed
from gmdb.tables.access.indexes import IndexDefinition, require_parts
from gmdb.tables.catalog.names import PUBLIC, is_temporary
from gmdb.tables.catalog.schema import (
    FOREIGN_KEY,
    SYS_TABLES_ENTRY,
    Constraint,
    SchemaDefinition,
    TableDefinition,
    key_constraint,
    make_columns,
    require_expressions,
    require_foreign_key,
    require_name,
)

if TYPE_CHECKING:
    from gmdb.storage.store import PageStore

T = TypeVar("T")


# ---- Whether definitions that were read make sense: what others rely on without asking, as they would of their own.
#
# A catalog can say what cannot be only if something other than gmdb wrote it; see docs/security.md.

_NONSENSE = (AttributeError, IndexError, KeyError, OverflowError, SchemaError, TypeError, UnicodeError, ValueError)


@contextmanager
def reading_catalog() -> Iterator[None]:
    """Whatever goes wrong while rows of the catalog are made into definitions is the catalog's fault."""
    try:
        yield
    except _NONSENSE as error:
        message = f"the catalog makes no sense: {type(error).__name__}: {error}; see gmdb verify"
        raise Corruption(message, SYS_TABLES_ENTRY) from error


def require_place(store: PageStore, what: str, entry_page: int, space_id: int) -> None:
    """Refuse an entry page that is not in its tablespace."""
    device = store.devices.get(device_of(entry_page)) if entry_page >= 0 else None
    if device is None or device.space_id != space_id or not 0 < offset_of(entry_page) < device.page_count:
        raise SchemaError(f"{what} begins at page {page_name(entry_page)}, which tablespace {space_id} does not have")


def require_sense(store: PageStore, tables: Sequence[TableDefinition], schemas: Sequence[SchemaDefinition]) -> None:
    names, known = set[str](), _names_of(schemas)
    for table in tables:
        _require_own_name(table, known)
        if table.name in names:
            raise SchemaError(f"there are two tables {table.name}")
        names.add(table.name)
        make_columns(table.name, table.columns)
        require_expressions(table)
        require_place(store, f"table {table.name}", table.entry_page, table.space_id)
        if table.lobs is not None:
            require_place(store, f"what table {table.name} keeps apart", table.lobs.entry_page, table.space_id)
        elif any(column.type.may_be_apart for column in table.columns):
            raise SchemaError(f"table {table.name} has no segment for its large objects")
        _check_options(table)
        _check_indexes(store, table)
    by_name = {table.name: table for table in tables}
    for table in tables:
        for constraint in table.constraints:
            _check_constraint(table, constraint, by_name)


def _names_of(schemas: Sequence[SchemaDefinition]) -> set[str]:
    names = {PUBLIC}
    for schema in schemas:
        require_name("schema", schema.name)
        if schema.name in names or "." in schema.name:
            raise SchemaError(f"a schema cannot be called {schema.name}, or there are two")
        if schema.comment is not None and not isinstance(schema.comment, str):
            raise SchemaError(f"the comment on schema {schema.name} is not a text")
        names.add(schema.name)
    return names


def _require_own_name(table: TableDefinition, schemas: Container[str]) -> None:
    require_name("table", table.own_name)
    if table.schema not in schemas and not is_temporary(table.schema):
        raise SchemaError(f"table {table.name} is in schema {table.schema}, which there is not")


def _check_options(table: TableDefinition) -> None:
    """Refuse numbers of columns that are none, or that two have, and comments that are no texts."""
    numbers = table.numbers
    if not all(map(is_number, (*numbers, table.columns_ever))) or len(set(numbers)) < len(numbers):
        raise SchemaError(f"table {table.name} has columns with the numbers {str(numbers)[:100]}")
    for one in (table, *table.columns, *table.indexes, *table.constraints):
        comment = one.comment  # type: ignore[attr-defined]
        if comment is not None and not isinstance(comment, str):
            raise SchemaError(f"the comment on {one.name} of table {table.name} is not a text")  # type: ignore[attr-defined]


def _check_indexes(store: PageStore, table: TableDefinition) -> None:
    for index in table.indexes:
        require_name("index", index.name)
        count = len(table.stored)
        if index.using not in ("btree", "hash"):
            raise SchemaError(f"index {index.name} is a {index.using}")
        require_parts(index)
        if not all(0 <= position < count and table.stored[position].type.may_be_key for position in index.positions):
            raise SchemaError(f"index {index.name} has columns that table {table.name} does not have")
        device = store.devices.get(device_of(index.entry_page)) if index.entry_page >= 0 else None
        require_place(store, f"index {index.name}", index.entry_page, device.space_id if device else -1)


def _check_constraint(table: TableDefinition, constraint: Constraint, tables: Mapping[str, TableDefinition]) -> None:
    require_name("constraint", constraint.name)
    if not isinstance(constraint.kind, str) or not isinstance(constraint.text, str):
        raise SchemaError(f"constraint {constraint.name} of table {table.name} has no kind or no text")
    if constraint.kind == FOREIGN_KEY:
        _check_foreign_key(table, constraint, tables[constraint.references])


def _check_foreign_key(table: TableDefinition, constraint: Constraint, parent: TableDefinition) -> None:
    key_constraint(parent, [parent.column(name).name for name in constraint.key])
    require_foreign_key(f"table {table.name}, constraint {constraint.name}", constraint)
    flags = (constraint.valid, constraint.match_full, constraint.deferrable, constraint.deferred)
    if len(constraint.key) != len(constraint.columns) or not all(isinstance(flag, bool) for flag in flags):
        raise SchemaError(f"foreign key {constraint.name} of table {table.name} makes no sense")
    if parent.referenced < 1:
        raise SchemaError(f"table {parent.name} does not know of foreign key {constraint.name}")


# ---- Definitions in plain terms, lists and numbers and texts, for files and messages; and back.


def table_to_plain(table: TableDefinition) -> list[Any]:
    columns = [column_to_plain(column) for column in table.columns]
    indexes = [index_to_plain(index) for index in table.indexes]
    constraints = [constraint_to_plain(constraint) for constraint in table.constraints]
    place = [table.name, table.obj_id, table.space_id, table.entry_page]
    return [*place, columns, indexes, constraints, table.lobs, table.number, table.feed, options_of(table)]


def table_from_plain(plain: list[Any]) -> TableDefinition:
    """The definition that ``table_to_plain`` wrote; Corruption if it is something else."""
    with reading_catalog():
        table = _table_from_plain(plain)
        if not isinstance(table.schema, str):
            raise SchemaError(f"table {table.name} is in a schema without a name")
        require_name("table", table.own_name)
        make_columns(table.name, table.columns)
        require_expressions(table)
        _require_numbers(table)
        _check_options(table)
    return table


def _require_numbers(table: TableDefinition) -> None:
    """Refuse invalid numbers of objects, pages and columns."""
    numbers = [table.obj_id, table.space_id, table.entry_page, table.number, *(table.lobs or ()), *(table.feed or ())]
    for index in table.indexes:
        numbers += [index.obj_id, index.table_id, index.entry_page, *index.positions]
        is_sound = type(index.since) is int and isinstance(index.unique, bool) and index.using in ("btree", "hash")
        if not is_sound or not all(is_number(n) and n < len(table.stored) for n in index.positions):
            raise SchemaError(f"index {index.name} has columns that table {table.name} does not have")
        require_parts(index)
    if not all(map(is_number, numbers)):
        raise SchemaError(f"table {table.name} has numbers that cannot be: {str(numbers)[:100]}")


def _table_from_plain(plain: list[Any]) -> TableDefinition:
    name, obj_id, space_id, entry_page, columns, indexes, constraints, lobs, number, feed, *more = plain
    shape = tuple(column_from_plain(column) for column in columns)
    checks = tuple(constraint_from_plain(constraint) for constraint in constraints)
    entries = (index_from_plain(index) for index in indexes)
    large_objects = LobSegment(*lobs) if lobs else None
    changes = Feed(*feed) if feed else None
    table = TableDefinition(
        name, obj_id, space_id, entry_page, shape, tuple(entries), checks, large_objects, number, changes
    )
    return _with_options(table, more)


def index_to_plain(index: IndexDefinition) -> list[Any]:
    place = [index.name, index.obj_id, index.table_id, index.entry_page]
    return [*place, index.unique, list(index.positions), index.since, index.using, options_of(index)]


def index_from_plain(plain: list[Any]) -> IndexDefinition:
    name, obj_id, table_id, entry_page, unique, positions, since, using, *more = plain
    index = IndexDefinition(name, obj_id, table_id, entry_page, unique, tuple(positions), since, using)
    return _with_options(index, more)


def column_to_plain(column: Column) -> list[Any]:
    type_ = column.type
    shape = [column.name, type_.name, type_.length, type_.scale, column.nullable]
    return [*shape, column.default, column.identity, column.identity_id, options_of(column)]


def column_from_plain(plain: list[Any]) -> Column:
    name, type_, length, scale, nullable, default, identity, identity_id, *more = plain
    column = Column(name, ColumnType(type_, length, scale), nullable, default, identity, identity_id)
    return _with_options(column, more)


def constraint_to_plain(constraint: Constraint) -> list[Any]:
    return [constraint.kind, list(constraint.columns), constraint.text, constraint.name, options_of(constraint)]


def constraint_from_plain(plain: list[Any]) -> Constraint:
    kind, columns, text, name, *more = plain
    return _with_options(Constraint(kind, tuple(columns), text, name), more)


def _with_options(definition: T, more: list[Any]) -> T:
    """A definition with its options, if they stand behind the rest: in documents of older versions they do not."""
    return with_option_values(definition, *more) if more else definition
