"""Staging files for tests, made as a task of a load makes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from gmdb.arrow.attach import Load
from gmdb.arrow.schema import arrow_schema
from gmdb.arrow.staging import StagedBatches, StagedPages, definition_digest
from gmdb.connection import Connection
from gmdb.storage.holder import Holder
from gmdb.storage.loads import new_load, staged_path


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
        staged = StagedPages(path, table, given, db.page_format(table), digest)
    else:
        staged = StagedBatches(path, table, given, arrow_schema(given), digest)
    for batch in rows.to_batches():
        staged.add(batch)
    staged.finish()
    staged.close()
