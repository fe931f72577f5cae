"""What ``describe`` says of a table: its columns, and its indexes and constraints if it has any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from gmdb.catalog.schema import CHECK, TableDefinition
from gmdb.cli.shell.outputs import Found


def described_whole(table: TableDefinition) -> Found:
    """All of it as one result, for outputs that make one document of each."""
    parts = [dict(zip(found.names, row, strict=True)) for found in described(table) for row in _rows(found)]
    keys = list(dict.fromkeys(key for part in parts for key in part))
    return _found(keys, [[part.get(key) for key in keys] for part in parts])


def described(table: TableDefinition) -> Iterator[Found]:
    """A result for the columns, one for the indexes, one for the constraints."""
    columns = [
        (
            c.name,
            str(c.type),
            "yes" if c.nullable else "no",
            f"identity, {c.identity}" if c.identity else c.default or "",
        )
        for c in table.columns
    ]
    yield _found(("column", "type", "nullable", "default"), columns)
    names = [column.name for column in table.columns]
    indexes = [
        (i.name, ", ".join(names[n] for n in i.positions), i.using, "yes" if i.unique else "no") for i in table.indexes
    ]
    if indexes:
        yield _found(("index", "columns", "kind", "unique"), indexes)
    constraints = [(c.name, c.kind, c.text if c.kind == CHECK else ", ".join(c.columns)) for c in table.constraints]
    if constraints:
        yield _found(("constraint", "kind", "of"), constraints)


def _rows(found: Found) -> list[tuple[Any, ...]]:
    return [row for batch in found.batches for row in zip(*(c.to_pylist() for c in batch.columns), strict=True)]


def _found(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Found:
    data = pa.table(
        {name: pa.array(values, pa.string()) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    )
    return Found(names, [None] * len(names), data.schema, iter(data.to_batches()))
