"""Whether definitions that were read make sense: what others rely on without asking, as they would of their own.

A catalog can say what cannot be only if something other than gmdb wrote it; see docs/security.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gmdb.catalog.schema import SYS_TABLES_ENTRY, Constraint, TableDefinition, make_columns, require_name
from gmdb.errors import Corruption, SchemaError
from gmdb.format.address import device_of, offset_of, page_name
from gmdb.format.btree import KEY_COLUMNS_MAX

if TYPE_CHECKING:
    from gmdb.storage.store import PageStore

_NONSENSE = (AttributeError, IndexError, KeyError, OverflowError, SchemaError, TypeError, UnicodeError, ValueError)


@contextmanager
def reading_catalog() -> Iterator[None]:
    """Whatever goes wrong while rows of the catalog are made into definitions is the catalog's fault."""
    try:
        yield
    except _NONSENSE as error:
        said = f"the catalog makes no sense: {type(error).__name__}: {error}; see gmdb verify"
        raise Corruption(said, SYS_TABLES_ENTRY) from error


def require_place(store: PageStore, what: str, entry_page: int, space_id: int) -> None:
    """Refuse an entry page that is not in its tablespace."""
    device = store.devices.get(device_of(entry_page)) if entry_page >= 0 else None
    if device is None or device.space_id != space_id or not 0 < offset_of(entry_page) < device.page_count:
        raise SchemaError(f"{what} begins at page {page_name(entry_page)}, which tablespace {space_id} does not have")


def require_sense(store: PageStore, tables: Iterable[TableDefinition]) -> None:
    names: set[str] = set()
    for table in tables:
        require_name("table", table.name)
        if table.name in names:
            raise SchemaError(f"there are two tables {table.name}")
        names.add(table.name)
        make_columns(table.name, table.columns)
        require_place(store, f"table {table.name}", table.entry_page, table.space_id)
        if table.lobs is not None:
            require_place(store, f"what table {table.name} keeps apart", table.lobs.entry_page, table.space_id)
        elif any(column.type.is_lob for column in table.columns):
            raise SchemaError(f"table {table.name} has no segment for its large objects")
        _check_indexes(store, table)
        for constraint in table.constraints:
            _check_constraint(table, constraint)


def _check_indexes(store: PageStore, table: TableDefinition) -> None:
    for index in table.indexes:
        require_name("index", index.name)
        count = len(table.columns)
        if index.using not in ("btree", "hash") or not 1 <= len(index.positions) <= KEY_COLUMNS_MAX:
            raise SchemaError(f"index {index.name} is a {index.using} of {len(index.positions)} columns")
        if not all(0 <= position < count and not table.columns[position].type.is_lob for position in index.positions):
            raise SchemaError(f"index {index.name} has columns that table {table.name} does not have")
        device = store.devices.get(device_of(index.entry_page)) if index.entry_page >= 0 else None
        require_place(store, f"index {index.name}", index.entry_page, device.space_id if device else -1)


def _check_constraint(table: TableDefinition, constraint: Constraint) -> None:
    require_name("constraint", constraint.name)
    if not isinstance(constraint.kind, str) or not isinstance(constraint.text, str):
        raise SchemaError(f"constraint {constraint.name} of table {table.name} says nothing")
