"""A program that changes a database in every way there is, and knows at each moment what must be there.

Before each commit it tells the disk what will be there if that commit lasts, and after it what is there for sure.
Its tables have indexes, which come and go; a row's key columns follow from its other columns (indexed.py).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from random import Random
from typing import Any

import pyarrow as pa

from gmdb.database.connection import Connection
from gmdb.errors import UniqueViolation
from gmdb.format.address import RowId
from tests.crash.faults import RecordingDisk
from tests.crash.indexed import COLUMNS as INDEXED_COLUMNS
from tests.crash.indexed import INDEXES, UNIQUE, check_indexes, index_name, key_columns, to_arrow

COLUMNS = {"k": "INT NOT NULL", "s": "VARCHAR(3000)"}
SCHEMA = pa.schema([pa.field("k", pa.int32(), nullable=False), ("s", pa.string())])
Tables = dict[str, dict[int, str | None]]


class Workload:
    """Two sessions that take turns; the second one's transactions stay open for long."""

    def __init__(
        self,
        disk: RecordingDisk,
        db: Connection,
        other: Connection,
        seed: int,
        checkpoints: bool = True,
        large: bool = False,
    ) -> None:
        """``large``: tables grow to hundreds of pages and are dropped, and the files get shorter again."""
        self._disk = disk
        self._large = large
        self._checkpoints = checkpoints
        self._random = Random(seed)
        self._db, self._other = db, other
        self._durable: Tables = {}
        self._indexes: dict[str, str] = {}  # name: table
        self._changed: Tables = {}  # as the first session sees it
        self._row_ids: dict[str, dict[int, RowId]] = {}
        self._next_key = 0
        self._next_table = 0
        self._next_space = 0
        self._spaces = ["main"]
        self._on_large_pages: set[str] = set()  # tablespaces and tables
        self._others: set[tuple[str, int]] = set()  # rows that the other session holds
        self.tell()

    def tell(self) -> None:
        self._disk.mark(("done", whole(self._durable, self._indexes)))

    def _commit_to(self, state: Tables, commit: Callable[[], Any], indexes: dict[str, str] | None = None) -> None:
        indexes = self._indexes if indexes is None else indexes
        self._disk.mark(("trying", whole(state, indexes)))
        commit()
        self._durable = {name: dict(rows) for name, rows in state.items()}
        self._indexes = indexes
        self.tell()

    def go_on(self, db: Connection, other: Connection) -> None:
        """The database was closed and opened again."""
        self._db, self._other = db, other
        self._others.clear()
        self._forget()

    # ---- steps

    def step(self) -> None:
        weights = {
            self.insert: 6, self.update: 6, self.grow: 3, self.delete: 3, self.commit: 6, self.rollback: 2,
            self.savepoint: 1, self.append: 1, self.other_change: 2, self.other_rollback: 1, self.checkpoint: 1,
            self.collect: 1, self.create: 1, self.drop: 0.5, self.many: 0.5, self.create_space: 1,
            self.create_index: 2, self.drop_index: 0.5, self.insert_again: 1, self.change_key: 2,
            self.truncate: 0.3, self.define_in_vain: 0.7,
        }  # fmt: skip
        if self._large:
            weights |= {self.append: 5, self.drop: 4, self.shrink: 4, self.many: 0}
        self._random.choices(list(weights), list(weights.values()))[0]()

    def _table(self) -> str | None:
        return self._random.choice(sorted(self._changed)) if self._changed else None

    def _text(self, most: int) -> str | None:
        length = self._random.randint(0, most)
        return None if length == 0 else "x" * (length - 1)

    def _pick(self) -> tuple[str, int] | None:
        free = [(t, k) for t, rows in self._changed.items() for k in rows if (t, k) not in self._others]
        return self._random.choice(sorted(free)) if free else None

    def insert(self) -> None:
        table = self._table()
        if table is not None:
            self._next_key += 1
            values = (self._next_key, self._text(40))
            self._row_ids[table][values[0]] = self._db.heap(table).insert((*values, *key_columns(*values)))
            self._changed[table][values[0]] = values[1]

    def append(self) -> None:
        table = self._table()
        if table is None:
            return
        sizes = [30, 2000, 4000] if self._large else [2, 30, 150]
        rows = [(self._next_key + n, self._text(300)) for n in range(1, self._random.choice(sizes))]
        self._next_key += len(rows)
        self._db.append(table, to_arrow(rows))
        self._changed[table].update(rows)
        row_ids = self._row_ids[table]
        row_ids.update({k: row_id for row_id, (k, *_) in self._db.heap(table).rows() if k not in row_ids})

    def _update(self, most: int) -> None:
        found = self._pick()
        if found is not None:
            table, key = found
            text = self._text(most)
            number, tag, lob = key_columns(key, text)
            changes = {"s": text, "n": number, "tag": tag, "lob": lob}
            self._db.heap(table).update(self._row_ids[table][key], changes)
            self._changed[table][key] = text

    def update(self) -> None:
        self._update(40)

    def grow(self) -> None:
        """So much that rows leave their pages."""
        self._update(3000)

    def delete(self) -> None:
        found = self._pick()
        if found is not None:
            table, key = found
            self._db.heap(table).delete(self._row_ids[table][key])
            del self._changed[table][key], self._row_ids[table][key]

    def insert_again(self) -> None:
        """A key that is there is refused, if the table has an index for that."""
        found = self._pick()
        if found is not None and any(index_name(found[0], kind) in self._indexes for kind in UNIQUE):
            table, key = found
            try:
                self._db.heap(table).insert((key, "twice", None, None, b"in vain" * 1000))
            except UniqueViolation:
                return
            raise AssertionError(f"{table} has key {key} twice")

    def change_key(self) -> None:
        """A row gets another key, and another row the one that it had."""
        found = self._pick()
        if found is not None:
            table, key = found
            self._next_key += 1
            heap, row_id = self._db.heap(table), self._row_ids[table].pop(key)
            text = self._changed[table].pop(key)
            number, tag, lob = key_columns(self._next_key, text)
            heap.update(row_id, {"k": self._next_key, "n": number, "tag": tag, "lob": lob})
            self._row_ids[table][self._next_key], self._changed[table][self._next_key] = row_id, text
            self._row_ids[table][key] = heap.insert((key, text, *key_columns(key, text)))
            self._changed[table][key] = text

    def many(self) -> None:
        """More changes than one undo page takes, in one transaction."""
        for _ in range(self._random.choice([30, 300])):
            self._random.choice([self.insert, self.update, self.grow, self.delete, self.change_key])()

    def commit(self) -> None:
        if self._db.in_transaction:
            self._commit_to(self._changed, self._db.commit)

    def rollback(self) -> None:
        self._db.rollback()
        self._forget()

    def _forget(self) -> None:
        self._changed = {name: dict(rows) for name, rows in self._durable.items()}
        for table in self._changed:
            self._row_ids[table] = {k: row_id for row_id, (k, *_) in self._db.heap(table).rows()}

    def savepoint(self) -> None:
        """Some changes that are taken back at once."""
        before = {name: dict(rows) for name, rows in self._changed.items()}
        ids = {name: dict(rows) for name, rows in self._row_ids.items()}
        self._db.savepoint("s")
        for _ in range(self._random.randint(1, 4)):
            self._random.choice([self.insert, self.update, self.grow, self.delete, self.change_key])()
        self._db.rollback_to("s")
        self._changed, self._row_ids = before, ids

    # ---- the other session never commits: nothing that it does may ever be found

    def other_change(self) -> None:
        held = [(t, k) for t, rows in self._durable.items() for k in rows if k in self._changed.get(t, {})]
        same = [(t, k) for t, k in held if self._durable[t][k] == self._changed[t][k]]
        if same:
            self._commit_to(self._changed, self._db.commit)  # so that it holds no row that the other one wants
            table, key = self._random.choice(sorted(same))
            heap = self._other.heap(table)
            if self._random.random() < 0.3:
                heap.lock(self._row_ids[table][key])
            else:
                text = "never committed" * self._random.choice([1, 100])
                lob = b"never committed" * self._random.choice([1, 2000])
                heap.update(self._row_ids[table][key], {"s": text, "n": -1, "tag": text[:200], "lob": lob})
            self._others.add((table, key))

    def other_rollback(self) -> None:
        self._other.rollback()
        self._others.clear()

    # ---- what else goes on

    def checkpoint(self) -> None:
        if self._checkpoints:
            self._db.checkpoint()

    def shrink(self) -> None:
        self.commit()
        self._db.shrink()

    def collect(self) -> None:
        self._db.gc()

    def create(self) -> None:
        if len(self._changed) >= 4:
            return
        self.commit()
        self._next_table += 1
        name = f"t{self._next_table}"
        space = self._random.choice(self._spaces)
        state = {**self._changed, name: {}}
        self._define(state, lambda: self._db.create_table(name, INDEXED_COLUMNS, tablespace=space))
        if space in self._on_large_pages:
            self._on_large_pages.add(name)
        self._changed[name] = {}
        self._row_ids[name] = {}

    def create_index(self) -> None:
        table = self._table()
        kind = self._random.choice(list(INDEXES))
        if table is None or index_name(table, kind) in self._indexes:
            return
        if table in self._on_large_pages and table in self._indexes.values():
            return  # two large pages that split at once are too much for a small log
        self.commit()
        self.other_rollback()
        name, (columns, unique, using, where) = index_name(table, kind), INDEXES[kind]
        text = f"create {'unique ' if unique else ''}index {name} on {table} using {using} ({', '.join(columns)})"
        indexes = {**self._indexes, name: table}
        self._define(
            self._changed,
            lambda: self._db.execute(f"{text} where {where}" if where else text),
            indexes,
        )

    def drop_index(self) -> None:
        if not self._indexes:
            return
        self.commit()
        self.other_rollback()
        gone = self._random.choice(sorted(self._indexes))
        indexes = {name: table for name, table in self._indexes.items() if name != gone}
        self._define(self._changed, lambda: self._db.drop_index(gone), indexes)

    def create_space(self) -> None:
        if len(self._spaces) < 3:
            self._next_space += 1
            name = f"space{self._next_space}"
            page_size, devices = self._random.choice([(8192, 2), (16384, 1), (32768, 1)])
            self._db.create_tablespace(
                name, page_size=page_size, devices=devices, device_pages_max=0 if self._large else 1024
            )
            self._spaces.append(name)
            if page_size == 32768:
                self._on_large_pages.add(name)

    def drop(self) -> None:
        if len(self._changed) < 3:
            return
        self.commit()
        self.other_rollback()
        name = self._random.choice(sorted(self._changed))
        state = {table: rows for table, rows in self._changed.items() if table != name}
        indexes = {index: table for index, table in self._indexes.items() if table != name}
        self._define(state, lambda: self._db.drop_table(name), indexes)
        del self._changed[name], self._row_ids[name]

    def truncate(self) -> None:
        table = self._table()
        if table is None:
            return
        self.commit()
        self.other_rollback()
        self._define({**self._changed, table: {}}, lambda: self._db.truncate_table(table))
        self._changed[table], self._row_ids[table] = {}, {}

    def _define(self, state: Tables, change: Callable[[], Any], indexes: dict[str, str] | None = None) -> None:
        """Change a definition, as a transaction of its own or as the last step of one."""

        def alone() -> None:
            self._db.autocommit = True
            change()
            self._db.autocommit = False

        def in_transaction() -> None:
            change()
            self._db.commit()

        self._commit_to(state, self._random.choice([alone, in_transaction]), indexes)

    def define_in_vain(self) -> None:
        """Definitions and rows change in one transaction, of which nothing may be left, however it ends."""
        self.other_rollback()
        self._db.create_table("in_vain", INDEXED_COLUMNS)
        self._db.append("in_vain", to_arrow([(n, self._text(300)) for n in range(1, 60)]))
        self._db.create_index("in_vain_k", "in_vain", ["k"], unique=True)
        table = self._table()
        for _ in range(self._random.randint(0, 5) if table is not None else 0):
            assert table is not None
            self._random.choice([self._vain_index, self._vain_column, self._vain_truncation, self._vain_rows])(table)
        if table is not None and self._random.random() < 0.5:
            self._db.drop_table(table)
        self.rollback()

    def _vain_index(self, table: str) -> None:
        name = f"{table}_in_vain"
        if any(index.name == name for index in self._db.table(table).indexes):
            self._db.drop_index(name)
        elif table not in self._on_large_pages:
            self._db.create_index(name, table, ["tag"] if self._random.random() < 0.2 else ["n", "k"])

    def _vain_column(self, table: str) -> None:
        columns = self._db.table(table).columns
        type_, value = self._random.choice([("INT", None), ("INT", 5), ("BLOB", b"vain" * 1000)])
        self._db.add_column(table, (f"c{len(columns)}", type_), value)

    def _vain_truncation(self, table: str) -> None:
        self._db.truncate_table(table)

    def _vain_rows(self, table: str) -> None:
        heap = self._db.heap(table)
        more = [None] * (len(heap.columns) - 5)
        for _ in range(20):
            self._next_key += 1
            text = self._text(40)
            heap.insert((self._next_key, text, *key_columns(self._next_key, text), *more))


def allowed(told: list[Any]) -> list[Tables]:
    """What may be found after all that was told: what was acknowledged last, or what was tried since."""
    last = max((n for n, (kind, _) in enumerate(told) if kind == "done"), default=0)
    return [state for _, state in told[last:]]


def whole(tables: Tables, indexes: Iterable[str]) -> Tables:
    """A state with what belongs to it: an index is a table without rows of its own."""
    return {name: dict(rows) for name, rows in tables.items()} | {f"index {name}": {} for name in indexes}


def found(db: Connection, quiet: bool = True) -> Tables:
    """What is there; rows and the entries of their indexes must be in step.

    ``quiet``: nobody is at work, and garbage is collected.
    """
    tables = {}
    for name in db.tables():
        heap = db.heap(name)
        tables[name] = {values[0]: values[1] for _, values in heap.rows()}
        check_indexes(db, name, quiet)
    return whole(tables, [index.name for name in tables for index in db.table(name).indexes])
