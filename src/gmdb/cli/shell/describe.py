"""What ``describe`` says of a table: its columns, and its indexes and constraints if it has any."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from gmdb.catalog.schema import CHECK, TableDefinition
from gmdb.cli.shell.outputs import Found


def described(table: TableDefinition) -> Iterator[Found]:
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


def _found(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> Found:
    data = pa.table(
        {name: pa.array(values, pa.string()) for name, values in zip(names, zip(*rows, strict=True), strict=True)}
    )
    return Found(names, [None] * len(names), data.schema, iter(data.to_batches()))
