"""Staging files: a task of a bulk load makes rows ready in one; the owner of the database takes it in (attach.py).

A task needs no database for this, only what the pages of the table are like.  Tables whose rows only their owner can
finish, since they have large objects or numbers that it hands out, get their rows as Arrow batches.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from gmdb.errors import Corruption
from gmdb.format.columns import Column
from gmdb.format.options import options_of
from gmdb.format.staging import STAGED_SEAL, StagedKind, pack_seal, read_seal
from gmdb.kernel.change.bulk_pages import crc_of_more
from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.arrow.array_columns import as_cells
from gmdb.tables.arrow.arrow_types import fit_batch
from gmdb.tables.arrow.formatting import PageFormatter, new_page
from gmdb.tables.catalog.schema import CHECK, Constraint

BUFFER_SIZE = 1 << 20


@dataclass(frozen=True)
class PageFormat:
    """The shape of a table's pages: their size, and how many percent of it inserts leave free."""

    page_size: int
    pct_free: int


def definition_digest(columns: Sequence[Column], constraints: Sequence[Constraint]) -> bytes:
    """Rows staged for one definition fit another if, and only if, both have the same digest."""
    facts = [(column.name, str(column.type), column.nullable) for column in columns]
    checks = sorted(constraint.text for constraint in constraints if constraint.kind == CHECK)
    generated = [(column.name, column.generated) for column in columns if column.generated is not None]
    return hashlib.sha256(repr((facts, checks, *generated)).encode()).digest()[:16]


def index_digest(index: IndexDefinition) -> bytes:
    """Leaves staged for one index fit another if, and only if, both have the same digest."""
    place = (index.name, index.obj_id, index.table_id, index.entry_page)
    facts = (*place, index.unique, index.positions, *sorted(options_of(index).items()))
    return hashlib.sha256(repr(facts).encode()).digest()[:16]


class StagedPages:
    """A staging file of pages that is being written."""

    def __init__(self, path: Path, table: str, columns: Sequence[Column], form: PageFormat, definition: bytes) -> None:
        self._table, self._columns, self._definition = table, columns, definition
        self._formatter = PageFormatter(table, columns, form.page_size, form.pct_free, new_page(form.page_size))
        self._buffer = np.zeros(BUFFER_SIZE, np.uint8)
        self._length = self._crc = 0
        self._file = disk.current.open(path, create=True, exclusive=True)

    def add(self, batch: pa.RecordBatch) -> None:
        """Put a batch's rows, which have the table's columns, onto pages."""
        formatter, done = self._formatter, 0
        arrays = fit_batch(self._table, self._columns, batch, formatter.row_count)
        formatter.point_at(as_cells(self._columns, arrays))
        while done < len(batch):
            if not formatter.is_started:
                formatter.start(self._buffer)
            done += formatter.add(done, len(batch) - done)
            if done < len(batch):
                self._write()
        formatter.row_count += len(batch)

    def _write(self) -> None:
        size = self._formatter.end() * self._formatter.page_size
        self._crc = crc_of_more(self._buffer.ctypes.data, size, self._crc)
        self._file.write(self._buffer[:size], self._length)
        self._length += size

    def finish(self) -> int:
        """Seal the file; returns how many rows it has."""
        if self._formatter.is_started:
            self._write()
        page_size, rows = self._formatter.page_size, self._formatter.row_count
        pages = {"kind": StagedKind.PAGES, "page_size": page_size, "page_count": self._length // page_size}
        seal_file(self._file, self._definition, rows, self._length, self._crc, **pages)
        return rows

    def close(self) -> None:
        self._file.close()


class StagedBatches:
    """A staging file of Arrow batches that is being written; columns that the owner fills are not in them."""

    def __init__(self, path: Path, table: str, columns: Sequence[Column], schema: pa.Schema, definition: bytes) -> None:
        """``columns``: those that the batches have, and ``schema`` in Arrow's words."""
        self._table, self._columns, self._schema, self._definition = table, columns, schema, definition
        self._path, self._row_count = path, 0
        self._sink = pa.OSFile(str(path), "wb")
        self._writer = pa.ipc.new_stream(self._sink, schema)

    def add(self, batch: pa.RecordBatch) -> None:
        arrays = fit_batch(self._table, self._columns, batch, self._row_count)
        self.put(pa.RecordBatch.from_arrays(arrays, schema=self._schema))

    def put(self, batch: pa.RecordBatch) -> None:
        """Add a batch that has the file's schema."""
        self._writer.write_batch(batch)
        self._row_count += len(batch)

    def finish(self) -> int:
        self._writer.close()
        self._sink.close()
        with disk.current.open(self._path, writable=True) as file:
            length = file.size()
            crc = _crc_of(file, length, np.zeros(BUFFER_SIZE, np.uint8))
            kind = {"kind": StagedKind.ARROW, "page_size": 0, "page_count": 0}
            seal_file(file, self._definition, self._row_count, length, crc, **kind)
        return self._row_count

    def close(self) -> None:
        self._sink.close()


def seal_file(file: DiskFile, definition: bytes, rows: int, length: int, crc: int, **fields: int) -> None:
    seal = pack_seal(**fields, row_count=rows, length=length, definition=list(definition), content_crc=crc)
    file.write(seal, length)


def _crc_of(file: DiskFile, length: int, buffer: np.ndarray) -> int:
    crc = 0
    for at in range(0, length, len(buffer)):
        size = file.read_into(buffer[: min(len(buffer), length - at)], at)
        crc = crc_of_more(buffer.ctypes.data, size, crc)
    return crc


class StagedFile:
    """A staging file that was finished, to be read."""

    def __init__(self, path: Path, definition: bytes) -> None:
        """Open a file whose rows are to fit a definition; Corruption, naming it, if it is not whole."""
        self.path = path
        self._file = disk.current.open(path)
        try:
            self.seal = self._read_seal()
            self.fits = self.seal["definition"] == definition.hex()
        except BaseException:
            self._file.close()
            raise

    def _read_seal(self) -> dict[str, Any]:
        size = self._file.size()
        at = size - STAGED_SEAL.size
        seal = read_seal(self._file.read(STAGED_SEAL.size, at)) if at >= 0 else None
        if seal is None:
            raise self.damage("it does not end in a seal")
        paged = seal["kind"] != StagedKind.ARROW
        if seal["length"] != at or at % 8 or (paged and seal["page_size"] * seal["page_count"] != at):
            raise self.damage(f"it has {at} bytes before its seal, which says {seal['length']}")
        return seal

    def damage(self, what: str) -> Corruption:
        return Corruption(f"{self.path} is not a whole staging file: {what}; nothing was taken in, start over")

    def check(self, buffer: np.ndarray) -> None:
        """Read all of it, and compare its CRC."""
        if _crc_of(self._file, self.seal["length"], buffer) != self.seal["content_crc"]:
            raise self.damage("its bytes are not those that were written")

    def pages(self, buffer: np.ndarray) -> Iterator[int]:
        """Read the pages into a buffer, again and again; yields how many are in it."""
        page_size, length = self.seal["page_size"], self.seal["length"]
        step = len(buffer) // page_size * page_size
        for at in range(0, length, step):
            yield self._file.read_into(buffer[: min(step, length - at)], at) // page_size

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The batches, checked as any that come from elsewhere."""
        try:
            with pa.OSFile(str(self.path)) as source, pa.ipc.open_stream(source) as reader:
                for batch in reader:
                    batch.validate(full=True)
                    yield batch
        except (pa.ArrowException, OSError, UnicodeError) as error:
            raise self.damage(f"its batches cannot be read: {error}") from error

    def close(self) -> None:
        self._file.close()
