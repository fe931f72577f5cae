"""Where results go: the terminal or a file, as a table, CSV, JSON or Parquet.

A result is written some rows at a time.  A file that is named takes all results until another output is chosen.
"""

from __future__ import annotations

import shutil
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from gmdb.cli.output import paint
from gmdb.cli.shell.table_layout import Layout, Row, csv_of, json_of
from gmdb.errors import InterfaceError, SchemaError
from gmdb.format.columns import Column, ColumnType
from gmdb.inspect.canvas import PLAIN
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.access.indexes import written_columns
from gmdb.tables.catalog.schema import CHECK, FOREIGN_KEY, Constraint, TableDefinition
from gmdb.tables.catalog.view_definitions import ViewDefinition

if TYPE_CHECKING:
    from pyarrow.parquet import ParquetWriter


FORMATS = ("table", "csv", "json", "parquet")
PIECE = 4096  # rows that are written at a time; a first piece of fewer is the only one


@dataclass(frozen=True)
class QueryResult:
    """A result: its columns, and its rows as they come, some at a time; or, for who asks ``reader``, in batches."""

    names: Sequence[str]
    types: Sequence[ColumnType | None]
    pieces: Iterator[Sequence[Row]]
    reader: Callable[[], pa.RecordBatchReader]


class Output(ABC):
    """Writes results.  A file, if one was named, is created, or overwritten, with the first result."""

    is_for_people = False  # if not, results are documents for programs

    def __init__(self, path: Path | None = None) -> None:
        self._path = path
        self._file: TextIO | None = None

    @abstractmethod
    def write(self, result: QueryResult) -> int:
        """Write a result; returns its number of rows."""

    @property
    def file(self) -> TextIO:
        if self._path is None:
            return sys.stdout
        if self._file is None:
            try:
                self._file = self._path.open("w", encoding="utf-8", newline="")
            except OSError as error:
                raise InterfaceError(f"{self._path} cannot be written: {error.strerror}") from None
        return self._file

    @property
    def to_terminal(self) -> bool:
        return self._path is None and sys.stdout.isatty()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


class TableOutput(Output):
    is_for_people = True

    def write(self, result: QueryResult) -> int:
        known = next(result.pieces, ())
        others_follow = len(known) >= PIECE
        room = shutil.get_terminal_size().columns if self.to_terminal else None
        layout = Layout(result.names, result.types, known, room, paint() if self.to_terminal else PLAIN, others_follow)
        file, count = self.file, 0
        for line in layout.head():
            file.write(line + "\n")
        for piece in chain([known], result.pieces):
            for row in piece:
                for line in layout.lines(row):
                    file.write(line + "\n")
            count += len(piece)
        file.write("\n")
        return count


class CsvOutput(Output):
    def write(self, result: QueryResult) -> int:
        file, count = self.file, 0
        file.write(",".join(map(csv_of, result.names)) + "\n")
        for piece in result.pieces:
            for row in piece:
                file.write(",".join(map(csv_of, row)) + "\n")
            count += len(piece)
        return count


class JsonOutput(Output):
    """An array of objects, one a line."""

    def write(self, result: QueryResult) -> int:
        keys = [json_of(name) for name in distinct(result.names)]
        file, count = self.file, 0
        file.write("[")
        for piece in result.pieces:
            for row in piece:
                members = ", ".join(f"{key}: {json_of(value)}" for key, value in zip(keys, row, strict=True))
                file.write(("\n{" if count == 0 else ",\n{") + members + "}")
                count += 1
        file.write("\n]\n")
        return count


class ParquetOutput(Output):
    def __init__(self, path: Path | None = None) -> None:
        if path is None:
            raise InterfaceError("Parquet needs a file: set output parquet FILE, or --output parquet --to FILE")
        super().__init__(path)
        self._writer: ParquetWriter | None = None

    def write(self, result: QueryResult) -> int:
        names, reader = distinct(result.names), result.reader()
        schema = pa.schema([field.with_name(name) for field, name in zip(reader.schema, names, strict=True)])
        writer, count = self._open(schema), 0
        for batch in reader:
            writer.write_batch(pa.RecordBatch.from_arrays(batch.columns, schema=schema))
            count += batch.num_rows
        return count

    def _open(self, schema: pa.Schema) -> Any:
        from pyarrow.parquet import ParquetWriter

        if self._writer is None:
            try:
                self._writer = ParquetWriter(str(self._path), schema)
            except OSError as error:
                raise InterfaceError(f"{self._path} cannot be written: {error}") from None
        elif self._writer.schema != schema:
            raise SchemaError(f"{self._path} has other columns already; choose another file for this result")
        return self._writer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
            self._writer = None


OUTPUTS: dict[str, type[Output]] = {
    "table": TableOutput,
    "csv": CsvOutput,
    "json": JsonOutput,
    "parquet": ParquetOutput,
}


def distinct(names: Sequence[str]) -> list[str]:
    """The names made unique: a second ``i`` becomes ``i_2``."""
    taken: list[str] = []
    for name in names:
        chosen, number = name, 2
        while chosen in taken:
            chosen, number = f"{name}_{number}", number + 1
        taken.append(chosen)
    return taken


# ---- The results of ``describe``: a table's columns, and its indexes and constraints if it has any.


def described_whole(table: TableDefinition | ViewDefinition) -> QueryResult:
    """The description as one result, for outputs that write one document for each result."""
    parts = [
        dict(zip(result.names, row, strict=True))
        for result in described(table)
        for piece in result.pieces
        for row in piece
    ]
    keys = list(dict.fromkeys(key for part in parts for key in part))
    return _text_result(keys, [[part.get(key) for key in keys] for part in parts])


def described(table: TableDefinition | ViewDefinition) -> Iterator[QueryResult]:
    """A result for the columns, and one for a view's query, or for the indexes, the constraints and comments."""
    columns = [
        (
            c.name,
            str(c.type),
            "yes" if c.nullable else "no",
            _filled_by(c),
        )
        for c in table.columns
    ]
    yield _text_result(("column", "type", "nullable", "default"), columns)
    if isinstance(table, ViewDefinition):
        yield _text_result(("view", "check option"), [(table.query, table.check_option)])
        return
    indexes = [(i.name, written_columns(i, table.stored), i.using, "yes" if i.unique else "no") for i in table.indexes]
    if indexes:
        yield _text_result(("index", "columns", "kind", "unique"), indexes)
    constraints = [(c.name, c.kind, _of(c)) for c in table.constraints]
    if constraints:
        yield _text_result(("constraint", "kind", "of"), constraints)
    parts = [
        ("table", (table,)),
        ("column", table.columns),
        ("index", table.indexes),
        ("constraint", table.constraints),
    ]
    comments = [(kind, one.name, one.comment) for kind, ones in parts for one in ones if one.comment is not None]  # type: ignore[attr-defined]
    if comments:
        yield _text_result(("what", "name", "comment"), comments)


def _filled_by(column: Column) -> str:
    """Where a column's values come from if a row has none for it."""
    if column.generated is not None:
        return f"generated always as ({column.generated}) stored"
    return f"identity, {column.identity}" if column.identity else column.default or ""


def _of(constraint: Constraint) -> str:
    """What a constraint is about."""
    columns = ", ".join(constraint.columns)
    if constraint.kind == FOREIGN_KEY:
        from gmdb.sql.statements.references import shown

        return f"({columns}) {shown(constraint)}"
    return constraint.text + ("" if constraint.valid else " NOT VALID") if constraint.kind == CHECK else columns


def _text_result(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> QueryResult:
    def reader() -> pa.RecordBatchReader:
        columns = zip(*rows, strict=True)
        return pa.table({n: pa.array(c, pa.string()) for n, c in zip(names, columns, strict=True)}).to_reader()

    return QueryResult(names, [None] * len(names), iter([[tuple(row) for row in rows]]), reader)
