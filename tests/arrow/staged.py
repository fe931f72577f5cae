"""Staging files for tests, made as a task of a load makes them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from gmdb.database.connection import Connection
from gmdb.format.columns import Column
from gmdb.storage.documents import Holder
from gmdb.storage.loads import new_load, staged_path
from gmdb.tables.arrow.arrow_types import arrow_schema
from gmdb.tables.arrow.attach import Load
from gmdb.tables.arrow.load_kinds import Apply
from gmdb.tables.arrow.staging import StagedBatches, StagedPages, definition_digest


def stage(db: Connection, table: str, *parts: Any, **load: Any) -> Load:
    """A load of some Arrow tables, a file each, that is ready to be attached."""
    load_id = new_load(db.path, Holder.this_process())
    names = [f"part-{n:05d}" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        stage_file(db, table, staged_path(db.path, load_id, name), part)
    return Load(table, load_id, tuple(names), **load)


def stage_file(db: Connection, table: str, path: Path, rows: pa.Table) -> None:
    definition = db.table(table)
    digest = definition_digest(definition.columns, definition.constraints)
    given = [column for column in definition.columns if column.name in rows.column_names]
    staged: StagedPages | StagedBatches
    if len(given) == len(definition.columns) and definition.lobs is None:
        staged = StagedPages(path, table, given, db._page_format(table), digest)
    else:
        staged = StagedBatches(path, table, given, arrow_schema(given), digest)
    for batch in rows.to_batches():
        staged.add(batch)
    staged.finish()
    staged.close()


def stage_changes(db: Connection, table: str, *parts: pa.Table, order: Sequence[str] = (), **apply: Any) -> Load:
    """A load of changes by primary key: their columns, ``#operation`` if they say one, and those of ``order`` last."""
    definition = db.table(table)
    columns = [c for c in definition.columns if c.name in parts[0].column_names]
    said = ["#operation"] if "#operation" in parts[0].column_names else []
    given = apply.pop("given", tuple(column.name for column in columns))
    how = Apply(tuple(given), bool(said), len(order), **apply)
    load_id = new_load(db.path, Holder.this_process())
    names = [f"part-{n:05d}" for n in range(len(parts))]
    for name, part in zip(names, parts, strict=True):
        rows = part.select([column.name for column in columns]).cast(arrow_schema_of(columns))
        for extra in (*said, *order):
            rows = rows.append_column(f"#{extra}", part.column(extra))
        path = staged_path(db.path, load_id, name)
        staged = StagedBatches(path, table, columns, rows.schema, how.digest(definition))
        for batch in rows.to_batches():
            staged.put(batch)
        staged.finish()
        staged.close()
    return Load(table, load_id, tuple(names), apply=how)


def arrow_schema_of(columns: Sequence[Column]) -> pa.Schema:
    """Of staged changes, which may have no values where the table must."""
    return pa.schema([pa.field(field.name, field.type) for field in arrow_schema(columns)])
