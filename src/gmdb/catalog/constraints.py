"""Constraints as they are given, checked, with the names that they get if they have none."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import replace

from gmdb.catalog.schema import (
    CHECK,
    PRIMARY_KEY,
    UNIQUE,
    Constraint,
    TableDefinition,
    require_expression,
    require_name,
)
from gmdb.errors import SchemaError

_ENDINGS = {PRIMARY_KEY: "pkey", UNIQUE: "key", CHECK: "check"}


def named(table: TableDefinition, constraint: Constraint, index_names: Container[str]) -> Constraint:
    """A constraint that the table can have, with its name; ``index_names`` are taken, in small letters."""
    kind = constraint.kind
    if kind not in _ENDINGS:
        raise SchemaError(f"table {table.name}: {kind!r} is no kind of constraint, only {', '.join(_ENDINGS)} are")
    where = f"table {table.name}, {kind}"
    columns = tuple(table.column(name).name for name in constraint.columns)
    if kind == PRIMARY_KEY and table.primary_key:
        raise SchemaError(f"{where}: it has one already, on {', '.join(table.primary_key)}")
    if kind == CHECK:
        require_expression(where, constraint.text)
    elif not columns or constraint.text:
        raise SchemaError(f"{where}: it is about columns, and says nothing else")
    if len(set(columns)) < len(columns):
        raise SchemaError(f"{where}: a column is named twice in {', '.join(columns)}")
    name = constraint.name or _free_name(table, kind, columns, index_names)
    require_name("constraint", name)
    if any(other.name.lower() == name.lower() for other in table.constraints):
        raise SchemaError(f"table {table.name} has a constraint {name} already")
    return replace(constraint, columns=columns, name=name)


def _free_name(table: TableDefinition, kind: str, columns: tuple[str, ...], taken: Container[str]) -> str:
    """``t_pkey``, ``t_a_b_key``, ``t_a_check``; with a number behind it if that is something else's name."""
    own = {constraint.name.lower() for constraint in table.constraints}
    parts = (table.name, *(() if kind == PRIMARY_KEY else columns), _ENDINGS[kind])
    stem = "_".join(parts).encode()[:59].decode(errors="ignore")
    name, number = stem, 0
    while name.lower() in own or name.lower() in taken:
        number += 1
        name = f"{stem}{number}"
    return name
