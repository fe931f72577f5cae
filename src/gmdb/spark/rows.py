"""A DataFrame's batches as rows of a table, in a task: types, defaults, checks, then a staging file.

What only the database's owner can finish stays with it: large objects, and numbers of identity columns.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from gmdb.arrow.schema import arrow_schema, fit_batch
from gmdb.catalog.schema import CHECK, TableDefinition
from gmdb.errors import NotSupportedError
from gmdb.format.columns import Column

if TYPE_CHECKING:
    from gmdb.arrow.staging import PageFormat, StagedBatches, StagedPages
    from gmdb.sql.changes.bulk import BulkRows


def _later(column: Column, count: int) -> int:
    """Stands for numbers that the owner will give to rows."""
    del column, count
    return 0


@dataclass(frozen=True)
class RowMaker:
    """Makes rows of one table; the same for all tasks of a load."""

    table: TableDefinition
    form: PageFormat
    targets: tuple[int, ...]  # for each of the DataFrame's columns, which of the table's it is
    now: datetime  # for defaults and checks that ask for the time

    @property
    def left_to_owner(self) -> tuple[int, ...]:
        """Identity columns that the DataFrame does not have."""
        columns = enumerate(self.table.columns)
        return tuple(n for n, column in columns if column.identity is not None and n not in self.targets)

    @property
    def _has_checks(self) -> bool:
        return any(constraint.kind == CHECK for constraint in self.table.constraints)

    def require_checkable(self) -> None:
        """Refuse checks that ask for a number which a row gets only from the owner."""
        if not self._has_checks or not self.left_to_owner:
            return
        from gmdb.sql.changes.assignment import Checks  # brings the parser, which most loads can do without

        checks = Checks(self.table)
        for n in self.left_to_owner:
            if checks.use(n):
                said = f"a check asks for column {self.table.columns[n].name}, whose numbers come only later"
                raise NotSupportedError(f"table {self.table.name}: {said}; give them in the DataFrame")

    def require_checked_columns(self) -> None:
        """Refuse checks that ask for a column which a row that is there may have, and the DataFrame has not."""
        if not self._has_checks or len(self.targets) == len(self.table.columns):
            return
        from gmdb.sql.changes.assignment import Checks

        checks = Checks(self.table)
        for n, column in enumerate(self.table.columns):
            if n not in self.targets and checks.use(n):
                said = (
                    f"a check asks for column {column.name}, which rows that are there have and the DataFrame has not"
                )
                raise NotSupportedError(f"table {self.table.name}: {said}; give it in the DataFrame")

    def stage(self, path: Path, batches: Iterable[pa.RecordBatch]) -> int:
        """Write a staging file; answers how many rows it has."""
        staged = self._staging_file(path)
        try:
            rows = 0
            for batch in batches:
                staged.add(self.made(batch, rows))
                rows += len(batch)
            return staged.finish()
        finally:
            staged.close()

    def _staging_file(self, path: Path) -> StagedPages | StagedBatches:
        from gmdb.arrow.staging import StagedBatches, StagedPages, definition_digest

        table = self.table
        digest = definition_digest(table.columns, table.constraints)
        if not self.left_to_owner and not any(column.type.is_lob for column in table.columns):
            return StagedPages(path, table.name, table.columns, self.form, digest)
        columns = [column for n, column in enumerate(table.columns) if n not in self.left_to_owner]
        return StagedBatches(path, table.name, columns, arrow_schema(columns), digest)

    def made(self, batch: pa.RecordBatch, first_row: int) -> pa.RecordBatch:
        """The batch under the table's names, with all columns but those left to the owner, once checks hold."""
        columns = [self.table.columns[n] for n in self.targets]
        named = pa.RecordBatch.from_arrays(batch.columns, names=[column.name for column in columns])
        if self._bulk is None:
            return named
        fitted = fit_batch(self.table.name, columns, named, first_row)
        whole = self._bulk.whole(dict(zip(self.targets, fitted, strict=True)), len(batch), _later)
        return whole.drop_columns([self.table.columns[n].name for n in self.left_to_owner])

    @cached_property
    def _bulk(self) -> BulkRows | None:
        """What fills in defaults and checks rows; None if there is nothing to do."""
        if not self._has_checks and len(self.targets) == len(self.table.columns):
            return None
        from gmdb.sql.changes.assignment import Checks, Defaults
        from gmdb.sql.changes.bulk import BulkRows

        return BulkRows(self.table, {}, Defaults(self.table), Checks(self.table), self.now)
