"""Changes of rows by their keys, out of staging files: which of them count, of those that are about the same key.

A staging file of changes has the table's columns, as far as tasks could fill them; then, if rows say what is to be
done, an operation; then columns that say which of several rows with the same key is the last.

Invariants
 1. A row's last change alone counts, in the order that the changes say, whatever files and batches they came in.
 2. Memory holds keys and order of all changes, but their other columns a batch at a time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import NoReturn

import numpy as np

from gmdb.arrow.apply import Apply, Operation, require_key
from gmdb.arrow.staging import StagedFile
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption, UniqueViolation
from gmdb.format.columns import Column
from gmdb.late import compute as pc
from gmdb.late import pyarrow as pa


class KeyedChanges:
    """The changes of some staging files, each of which has a number; and what becomes of them."""

    def __init__(self, table: TableDefinition, apply: Apply, files: Sequence[StagedFile]) -> None:
        self._table, self._apply, self._files = table, apply, files
        self.key = require_key(table)
        self._key_names = [table.columns[n].name for n in self.key]

    # ---- which of them count

    @cached_property
    def _all(self) -> pa.Table:
        """The key, the operation and the order of all of them."""
        parts = [self._essence(batch) for file in self._files for batch in file.batches()]
        return pa.concat_tables(parts) if parts else pa.table({})

    def _essence(self, batch: pa.RecordBatch) -> pa.Table:
        apply = self._apply
        extra = batch.num_columns - apply.order_count - int(apply.has_operations)
        columns = {
            f"k{n}": _comparable(self._table.columns[p], batch.column(self._table.columns[p].name))
            for n, p in enumerate(self.key)
        }
        if apply.has_operations:
            columns["operation"] = batch.column(extra)
        for n in range(apply.order_count):
            columns[f"o{n}"] = batch.column(batch.num_columns - apply.order_count + n)
        return pa.table(columns)

    @cached_property
    def fates(self) -> np.ndarray:
        """Of each change, what is to be done: PUT, DELETE, or 0 if it does not count."""
        every = self._all
        fates = np.zeros(len(every), np.int8)
        if not len(every):
            return fates
        counted = self._after_truncating()
        last = self._last_of_keys(every.filter(pa.array(counted)))
        numbers = np.flatnonzero(counted)[last]
        fates[numbers] = self._operations[numbers]
        fates[fates == Operation.SNAPSHOT] = Operation.PUT
        return fates

    @cached_property
    def _operations(self) -> np.ndarray:
        if not self._apply.has_operations:
            return np.full(len(self._all), Operation.PUT, np.int8)
        return self._all.column("operation").to_numpy() if len(self._all) else np.zeros(0, np.int8)

    @property
    def truncates(self) -> bool:
        return bool((self._operations == Operation.TRUNCATE).any())

    @property
    def has_snapshot(self) -> bool:
        return bool((self._operations == Operation.SNAPSHOT).any())

    def _after_truncating(self) -> np.ndarray:
        """Which changes come after the last time that all rows went."""
        counted = np.ones(len(self._all), bool)
        if self.truncates:
            major, minor = (self._all.column(name).to_numpy() for name in ("o0", "o1"))
            gone = np.flatnonzero(self._operations == Operation.TRUNCATE)
            last = gone[np.lexsort((minor[gone], major[gone]))[-1]]
            counted = (major > major[last]) | ((major == major[last]) & (minor > minor[last]))
        return counted

    def _last_of_keys(self, changes: pa.Table) -> np.ndarray:
        """The place of the last change of each key; an error if that is not the only last one."""
        keys = [name for name in changes.column_names if name[0] == "k"]
        orders = [name for name in changes.column_names if name[:2] in ("o0", "o1")]
        places = np.arange(len(changes))
        if orders:
            places = pc.sort_indices(_sortable(changes, orders), sort_keys=_ascending(orders)).to_numpy()
            changes = changes.take(pa.array(places))
        changes = changes.select([*keys, *orders]).append_column("n", pa.array(np.arange(len(changes))))
        last = changes.group_by(keys).aggregate([("n", "max")]).column("n_max").to_numpy()
        if len(last) < len(changes):
            same = changes.group_by([*keys, *orders]).aggregate([("n", "max"), ("n", "count")])
            doubtful = same.filter(pc.greater(same.column("n_count"), 1)).column("n_max").to_numpy()
            doubtful = doubtful[np.isin(doubtful, last)]
            if len(doubtful):
                self._refuse(changes.slice(int(doubtful[0]), 1).select(keys).to_pylist()[0])
        return places[last]

    def _refuse(self, key: dict[str, object]) -> NoReturn:
        said = ", ".join(str(value) for value in key.values())
        where = f"table {self._table.name}, key ({', '.join(self._key_names)}): {said}"
        if self._apply.has_operations:
            raise Corruption(f"{where}: two changes have the same _scn and _sequence; are they of several databases?")
        if self._apply.order_count:
            raise UniqueViolation(f"{where}: it comes twice in the batch, with the same value of the column of orderBy")
        advice = 'leave one of them, or say which comes last: .option("orderBy", "...")'
        raise UniqueViolation(f"{where}: it comes twice in the batch; {advice}")

    # ---- their rows

    def batches(self, chosen: np.ndarray) -> Iterator[tuple[np.ndarray, pa.RecordBatch]]:
        """The numbers and rows of some changes, which a mask chooses; a batch at a time, in the order of keys."""
        done = 0
        for file in self._files:
            for batch in file.batches():
                numbers = np.flatnonzero(chosen[done : done + len(batch)])
                done += len(batch)
                if len(numbers):
                    rows = self._rows(batch).take(pa.array(numbers))
                    order = pc.sort_indices(rows, sort_keys=[(name, "ascending") for name in self._key_names])
                    yield done - len(batch) + numbers[order.to_numpy()], rows.take(order)

    def _rows(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The table's columns of a batch."""
        extra = self._apply.order_count + int(self._apply.has_operations)
        return batch.select(range(batch.num_columns - extra))

    def keys(self, rows: pa.RecordBatch) -> Iterator[tuple[object, ...]]:
        return zip(*(rows.column(name).to_pylist() for name in self._key_names), strict=True)


def _sortable(changes: pa.Table, orders: Sequence[str]) -> pa.Table:
    """With a column before each of the order that lets NULL come before all values."""
    for name in orders:
        changes = changes.append_column(f"has {name}", pc.cast(pc.is_valid(changes.column(name)), pa.int8()))
    return changes


def _ascending(orders: Sequence[str]) -> list[tuple[str, str]]:
    return [(key, "ascending") for name in orders for key in (f"has {name}", name)]


def _comparable(column: Column, values: pa.Array) -> pa.Array:
    """Key values that are the same if, and only if, the index takes them for the same."""
    if column.type.name == "CHAR":
        return pc.utf8_rtrim(values, characters=" ")
    if column.type.name == "BINARY":
        return pa.array([value and value.rstrip(b"\0") for value in values.to_pylist()], pa.binary())
    if column.type.name == "DOUBLE":
        return pc.add(values, 0.0)  # of which there are two zeros
    return values
