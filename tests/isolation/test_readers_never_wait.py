"""A reader waits for nobody, whatever becomes of the table meanwhile: it sees the old table or the new one, whole.

Every kind of read meets every change of a definition while that waits for a writer, while it is not committed, and
when it is: through connections of the process that has the database open, and of another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    CheckViolation,
    NoSuchColumn,
    NoSuchIndex,
    NoSuchRow,
    NoSuchTable,
    SnapshotTooOld,
    WriteConflict,
)
from gmdb.format.address import RowId
from gmdb.tables.access.indexes import KeyRange
from tests.arrow.staged import stage
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import PATIENCE, answer, in_thread, start_waiting, until

COUNT = 300  # rows, more than a remote cursor is sent at a time
OLD = [(n, f"row {n}", n % 7) for n in range(COUNT)]
KEY = 5
SOON = 30.0  # seconds that a change of a definition waits for writers; readers would be in its way for longer


# ---- who reads


class Table(NamedTuple):
    row_id: RowId  # of the row of KEY
    heap: Any  # of the reader, from before anything happened


def _sorted(batches: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(zip(*(column.to_pylist() for column in batches.columns), strict=True))


def _values(rows: Any) -> list[Any]:
    return [values for _, values in rows]


READS: dict[str, Callable[[Connection, Table], Any]] = {
    "fetch": lambda db, table: db.heap("t").fetch(table.row_id),
    "fetch, heap of before": lambda _, table: table.heap.fetch(table.row_id)[:3],
    "key": lambda db, _: _values(db.heap("t").by("t_i").find((KEY,))),
    "key, heap of before": lambda _, table: [row[:3] for row in _values(table.heap.by("t_i").find((KEY,)))],
    "range": lambda db, _: _values(db.heap("t").by("t_i").range((3,), (250,))),
    "scan": lambda db, _: _values(db.heap("t").rows()),
    "arrow": lambda db, _: _sorted(db.arrow("t").read_all()),
    "arrow by key": lambda db, _: _sorted(
        db.select("t", ["i"], by="t_i", keys=KeyRange((3,), (9,))).arrow().read_all()
    ),
    "row ids": lambda db, table: _values(db.select("t", row_ids=[table.row_id]).rows()),
    "sql point": lambda db, _: db.execute("select * from t where i = ?", (KEY,)).fetchall(),
    "sql range": lambda db, _: db.execute("select * from t where i between 3 and 280 order by i").fetchall(),
    "sql first rows": lambda db, _: len(db.execute("select * from t limit 10").fetchall()),
    "sql in DuckDB": lambda db, _: db.execute("select count(*), sum(i), max(s) from t").fetchall(),
    "sql join": lambda db, _: db.execute("select count(*) from t a, t b where a.k = b.k and a.i < 50").fetchall(),
    "sql everything": lambda db, _: sorted(db.execute("select * from t").fetchall()),
}
HALF_READ: dict[str, Callable[[Connection], Iterator[Any]]] = {
    "scan": lambda db: (values for _, values in db.heap("t").rows()),
    "range": lambda db: (values for _, values in db.heap("t").by("t_i").range((3,), (280,))),
    "covered": lambda db: (values for _, values in db.select("t", ["i"], by="t_i").rows()),
    "arrow": lambda db: chain.from_iterable(batch.to_pylist() for batch in db.arrow("t")),
    "sql range": lambda db: iter(db.execute("select * from t where i between 3 and 280 order by i")),
    "sql in DuckDB": lambda db: iter(db.execute("select i, k from t order by i")),
}


def outcome(read: Callable[..., Any], *given: Any) -> Any:
    """What is read, or what is not there."""
    try:
        return read(*given)
    except (NoSuchTable, NoSuchColumn, NoSuchIndex, NoSuchRow) as error:
        return type(error)


def outcomes(db: Connection, table: Table) -> dict[str, Any]:
    return {name: outcome(read, db, table) for name, read in READS.items()}


# ---- who changes the definition


class Definer(NamedTuple):
    change: Callable[[Connection, Any], Any]
    after: Callable[[], Any]  # what a scan reads when it is committed


NEW_ROWS = [(n, "new", 1) for n in range(3, 40)]


def _overwriting(db: Connection) -> Any:
    columns = {"i": pa.array([row[0] for row in NEW_ROWS], pa.int32()), "s": ["new"] * len(NEW_ROWS)}
    return stage(db, "t", pa.table({**columns, "k": pa.array([1] * len(NEW_ROWS), pa.int32())}), overwrite=True)


DEFINERS = {
    "add column": Definer(lambda db, _: db.add_column("t", ("c", "INT")), lambda: [(*row, None) for row in OLD]),
    "add filled column": Definer(
        lambda db, _: db.add_column(
            "t", gmdb.Column("c", gmdb.ColumnType("VARCHAR", 40), nullable=False), "a longer value for each"
        ),
        lambda: [(*row, "a longer value for each") for row in OLD],
    ),
    "add large objects": Definer(lambda db, _: db.add_column("t", ("c", "CLOB")), lambda: [(*r, None) for r in OLD]),
    "rename column": Definer(lambda db, _: db.rename_column("t", "s", "text"), lambda: OLD),
    "rename table": Definer(lambda db, _: db.rename_table("t", "u"), lambda: NoSuchTable),
    "drop": Definer(lambda db, _: db.drop_table("t"), lambda: NoSuchTable),
    "drop and make another": Definer(
        lambda db, _: (db.drop_table("t"), db.create_table("t", {"x": "VARCHAR(5)"}), db.insert("t", ("x",))),
        lambda: [("x",)],
    ),
    "truncate": Definer(lambda db, _: db.truncate_table("t"), lambda: []),
    "truncate and fill": Definer(
        lambda db, _: (db.truncate_table("t"), db.insert("t", (KEY, "new", 1))), lambda: [(KEY, "new", 1)]
    ),
    "create index": Definer(lambda db, _: db.create_index("t_k", "t", ["k", "i"]), lambda: OLD),
    "drop index": Definer(
        lambda db, _: (db.drop_index("t_i"), db.update("t", lambda row: {"i": row["i"] + 1000})),
        lambda: [(i + 1000, s, k) for i, s, k in OLD],
    ),
    "overwrite": Definer(lambda db, load: db._attach_load(load), lambda: NEW_ROWS),
}


CASES = [("local", name, "commit") for name in DEFINERS]
CASES += [("local", name, "rollback") for name in ("add filled column", "drop index", "truncate and fill")]
CASES += [
    ("remote", name, "commit") for name in ("add filled column", "drop and make another", "drop index", "overwrite")
]


@pytest.fixture
def connect(where: str, path: Path, peer: Peer) -> Iterator[Callable[..., Connection]]:
    """Makes connections to a database that this process has open, or another one."""
    opened: list[Connection] = []
    if where == "remote":
        peer("db = gmdb.connect(path)", path=str(path))

    def open_session(isolation: str = "read committed", lock_timeout: float = 0.01) -> Connection:
        opened.append(gmdb.connect(path, isolation=isolation, lock_timeout=lock_timeout))
        return opened[-1]

    yield open_session
    for session in opened:
        session.close()
    if where == "remote":
        peer("db.close()")
    assert_sound(path)


def _make_table(db: Connection) -> RowId:
    db.create_table("t", {"i": "INT", "s": "VARCHAR(20)", "k": "INT"})
    db.create_index("t_i", "t", ["i"])
    ids = [db.insert("t", row) for row in OLD]
    db.commit()
    return ids[KEY]


def _is_waited_for(db: Connection) -> bool:
    return bool(db.system_view("sys_waits").num_rows)


@pytest.mark.parametrize(("where", "name", "end"), CASES)
def test_readers_see_the_old_table_or_the_new_one_and_wait_for_nobody(
    name: str, end: str, connect: Callable[..., Connection]
) -> None:
    definer, (change, after) = connect(lock_timeout=SOON), DEFINERS[name]
    row_id = _make_table(definer)
    load = _overwriting(definer) if name == "overwrite" else None
    reader, same = connect(), connect("repeatable read")
    tables = {db: Table(row_id, db.heap("t")) for db in (reader, same)}
    before = outcomes(reader, tables[reader])
    assert before["scan"] == OLD
    assert outcomes(same, tables[same]) == before  # both are in a transaction from now on
    half = {name: read(reader) for name, read in HALF_READ.items()}
    begun = {name: [next(rows)] for name, rows in half.items()}
    expected = {name: list(read(reader)) for name, read in HALF_READ.items()}

    writer = connect()
    writer.heap("t").lock(row_id)
    changing = in_thread(lambda: change(definer, load))
    until(lambda: changing.done() or _is_waited_for(writer))
    assert not changing.done(), changing  # it waits for the writer
    assert outcomes(reader, tables[reader]) == before
    assert outcomes(same, tables[same]) == before

    writer.commit()
    answer(changing)  # readers are in nobody's way
    late = connect("repeatable read")
    for db in (reader, same, late):
        assert outcomes(db, tables.get(db, tables[reader])) == before
    half |= {f"{name}, begun late": read(reader) for name, read in HALF_READ.items()}
    begun |= {name: [next(rows)] for name, rows in half.items() if name.endswith("late")}

    getattr(definer, end)()
    definer.gc()
    fresh = connect()
    now = outcomes(fresh, Table(row_id, tables[reader].heap))
    assert now["scan"] == (after() if end == "commit" else OLD)
    if end == "rollback":
        assert now == before
    assert outcomes(reader, tables[reader]) == now
    for db in (same, late):
        assert outcomes(db, tables.get(db, Table(row_id, same.heap("t")))) == before
    for name, rows in half.items():
        assert begun[name] + list(rows) == expected[name.removesuffix(", begun late")], name
    same.rollback()
    assert outcomes(same, tables[same]) == now


# ---- who changes rows


@pytest.fixture
def local(path: Path) -> Iterator[tuple[Connection, Connection]]:
    """Two connections to a database with the table."""
    with gmdb.connect(path, lock_timeout=PATIENCE) as one, gmdb.connect(path, lock_timeout=PATIENCE) as other:
        _make_table(one)
        yield one, other
    assert_sound(path)


@pytest.mark.parametrize("is_prepared", [False, True], ids=["", "prepared"])
def test_a_statement_that_waited_for_a_definition_goes_by_it(
    local: tuple[Connection, Connection], is_prepared: bool
) -> None:
    definer, writer = local
    insert, update = "insert into t values (?, 'x', 1)", "update t set k = k + ? where i = 7"
    if is_prepared:
        writer.execute(insert, (1000,))
        writer.execute(update, (0,))
        writer.commit()
    definer.execute("alter table t add constraint small check (i < 1500)")
    definer.execute("alter table t add column c int default 3")
    waiting = start_waiting(writer, lambda: writer.execute(insert, (2000,)))
    definer.rollback()
    answer(waiting)
    writer.rollback()

    definer.execute("alter table t add column c int default 3")
    definer.execute("alter table t add constraint small check (k < 1000)")
    waiting = start_waiting(writer, lambda: writer.execute(update, (2000,)))
    definer.commit()
    with pytest.raises(CheckViolation):
        answer(waiting)
    writer.execute(insert, (2000,))
    assert writer.execute("select * from t where i = 2000").fetchall() == [(2000, "x", 1, 3)]
    writer.rollback()


@pytest.mark.parametrize(
    "definition", ["truncate table t", "alter table t add column c int default 3", "alter table t rename column s to r"]
)
@pytest.mark.parametrize("change", ["insert into t (i) values (1000)", "delete from t where i = 7", "drop table t"])
def test_a_table_that_is_another_than_in_the_snapshot_is_not_changed(
    local: tuple[Connection, Connection], definition: str, change: str
) -> None:
    definer, other = local
    other.isolation = "repeatable read"
    assert other.execute("select count(*) from t").fetchone() == (COUNT,)
    definer.execute(definition)
    definer.commit()
    with pytest.raises(WriteConflict, match="the definition of table t was changed by another transaction"):
        other.execute(change)
    assert other.execute("select count(*) from t").fetchone() == (COUNT,)
    other.rollback()
    other.execute(change)
    other.rollback()


def test_an_index_that_came_after_the_snapshot_is_kept_up_by_who_changes_rows(
    local: tuple[Connection, Connection],
) -> None:
    definer, other = local
    other.isolation = "repeatable read"
    assert other.execute("select k from t where i = 7").fetchone() == (0,)
    definer.create_index("t_k", "t", ["k"])
    definer.commit()
    other.execute("update t set k = 77 where i = 7")
    assert other.execute("select i from t where i = 7 and k = 77").fetchall() == [(7,)]
    with pytest.raises(SnapshotTooOld):
        other.heap("t").by("t_k").find((77,))
    other.commit()
    assert _values(other.heap("t").by("t_k").find((77,))) == [(7, "row 7", 77)]
