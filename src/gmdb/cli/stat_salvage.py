"""``gmstat salvage``: every row that can still be read, into Parquet files, with a report of what was lost."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.cli.listings import add_output, document, show
from gmdb.errors import StorageError
from gmdb.inspect.inspector import open_files
from gmdb.inspect.salvage import Salvage, SavedRow

if TYPE_CHECKING:
    import pyarrow as pa

NAME = "salvage"
HELP = "every row that can still be read out of a damaged database, into Parquet files"
DESCRIPTION = (
    "Write the rows of every table that can still be read into OUT, a new folder: TABLE.parquet with the table's\n"
    "columns, _rowid, _deleted and _uncommitted (a transaction changed the row and never ended). Rows of tables whose\n"
    "definition is lost are written as bytes, from their headers on. report.json says what was lost and where.\n"
    "Pages are believed if their CRC and place are right; neither maps nor the catalog need be whole. The database is\n"
    "not changed."
)
EXAMPLE = (
    "examples:\n  gmstat salvage shop.gmdb rescued\n  gmstat salvage shop.gmdb rescued --deleted\n"
    "  gmstat salvage crashed.gmdb rescued --at end"
)
AT_ONCE = 4096  # rows of a table that are in memory


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("out", metavar="OUT", help="the folder to make")
    parser.add_argument("--deleted", action="store_true", help="also deleted rows that are not yet taken away")
    parser.add_argument("--at", metavar="LSN", help="replay the log beside the files, up to an LSN, or to its end")
    add_output(parser, None)


def run(arguments: argparse.Namespace) -> int:
    out = Path(arguments.out)
    with open_files(arguments.database, arguments.at) as files:
        try:
            out.mkdir(parents=True)
        except OSError as error:
            raise StorageError(f"{out}: {error.strerror}; name a folder that is not there yet") from None
        salvage = Salvage(files)
        with _Writers(out, salvage) as writers:
            for row in salvage.rows(arguments.deleted):
                writers.write(row)
        listing = salvage.report(writers.counts, writers.names)
    (out / "report.json").write_text(json.dumps(document(listing), indent=2, ensure_ascii=False))
    listing.notes.append(f"what was lost, and where, is in {out / 'report.json'}")
    return show(arguments, listing)


class _Writers:
    """A Parquet file for each table."""

    def __init__(self, out: Path, salvage: Salvage) -> None:
        self._out, self._salvage = out, salvage
        self._open: dict[int, Any] = {}
        self._rows: dict[int, list[tuple[Any, ...]]] = {}
        self.counts: dict[int, Counter[str]] = {}
        self.names: dict[int, str] = {}

    def __enter__(self) -> _Writers:
        return self

    def __exit__(self, *_: object) -> None:
        for obj_id in list(self._rows):
            self._flush(obj_id)
        for writer in self._open.values():
            writer.close()

    def write(self, row: SavedRow) -> None:
        count = self.counts.setdefault(row.obj_id, Counter())
        count.update(rows=1, deleted=int(row.is_deleted), uncommitted=int(row.is_uncommitted))
        values = (row.raw,) if row.values is None else row.values
        waiting = self._rows.setdefault(row.obj_id, [])
        waiting.append((*values, str(row.row_id), row.is_deleted, row.is_uncommitted))
        if len(waiting) >= AT_ONCE:
            self._flush(row.obj_id)

    def _flush(self, obj_id: int) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        schema = self._schema(obj_id)
        if obj_id not in self._open:
            self.names[obj_id] = self._file_name(obj_id)
            self._open[obj_id] = pq.ParquetWriter(self._out / self.names[obj_id], schema)
        rows, self._rows[obj_id] = self._rows[obj_id], []
        if rows:
            columns = zip(zip(*rows, strict=True), schema, strict=True)
            arrays = [pa.array(values, field.type) for values, field in columns]
            self._open[obj_id].write_table(pa.table(arrays, schema=schema))

    def _file_name(self, obj_id: int) -> str:
        """By the table's name, as far as a file can have it; two that would be alike are told apart."""
        name = "".join(c if c.isalnum() or c in "-_" else "_" for c in self._salvage.name_of(obj_id))
        taken = {other.lower() for other in self.names.values()}
        return f"{name}-{obj_id}.parquet" if f"{name}.parquet".lower() in taken else f"{name}.parquet"

    def _schema(self, obj_id: int) -> pa.Schema:
        import pyarrow as pa

        from gmdb.arrow.schema import arrow_type

        table = self._salvage.tables.get(obj_id)
        own = [("_bytes", pa.binary())] if table is None else [(c.name, arrow_type(c.type)) for c in table.columns]
        return pa.schema([*own, ("_rowid", pa.string()), ("_deleted", pa.bool_()), ("_uncommitted", pa.bool_())])
