"""Unique indexes and constraints to which NULLs are equal to each other."""

from __future__ import annotations

import threading
from pathlib import Path

import pyarrow as pa
import pytest

import gmdb
import sqlalchemy as sa
from gmdb.database.connection import Connection
from gmdb.errors import InvalidSyntax, SerializationFailure, UniqueViolation

INT = pa.int32()
KINDS = ["unique nulls not distinct (a, b)", "", "using hash"]


@pytest.fixture(params=KINDS, ids=["constraint", "btree", "hash"])
def table(request: pytest.FixtureRequest, db: Connection) -> Connection:
    """A database with a table t (id, a, b), on whose columns a and b NULLs are equal."""
    constraint = request.param if request.param.startswith("unique") else ""
    db.execute(f"create table t (id int primary key, a int, b int{', ' + constraint if constraint else ''})")
    if not constraint:
        db.execute(f"create unique index t_a_b_key on t {request.param} (a, b) nulls not distinct")
    db.execute("insert into t values (1, null, 1), (2, 1, null), (3, null, null)")
    db.commit()
    return db


def test_a_key_with_nulls_is_there_once_whichever_way_rows_come(table: Connection) -> None:
    for a, b in ((None, 1), (1, None), (None, None)):
        for action in (
            lambda a=a, b=b: table.execute("insert into t values (9, ?, ?)", (a, b)),
            lambda a=a, b=b: table.heap("t").insert((9, a, b)),
            lambda a=a, b=b: table.append(
                "t", pa.table({"id": [9], "a": pa.array([a], pa.int32()), "b": pa.array([b], pa.int32())})
            ),
            lambda a=a, b=b: table.execute("update t set a = ?, b = ? where id = (select max(id) from t)", (a, b)),
        ):
            table.execute("insert into t values (8, 8, 8)")
            table.savepoint("s")
            with pytest.raises(UniqueViolation):
                action()
            table.rollback()
    table.execute("update t set a = 5 where id = 3")
    table.execute("insert into t values (4, null, null)")
    table.execute("delete from t where id = 4")
    table.execute("insert into t values (5, null, null)")
    table.commit()


def test_on_conflict_goes_by_it(table: Connection) -> None:
    table.execute("insert into t values (9, null, null) on conflict (a, b) do update set id = excluded.id + 100")
    table.execute("insert into t values (10, null, 1) on conflict do nothing")
    assert table.execute("select id from t order by id").fetchall() == [(1,), (2,), (109,)]


def test_an_index_is_not_built_over_two_such_rows(db: Connection) -> None:
    db.execute("create table t (a int, b int)")
    db.executemany("insert into t values (?, ?)", [(None, n) for n in range(3000)])
    db.execute("create unique index usual on t (a)")
    with pytest.raises(UniqueViolation):
        db.execute("create unique index other on t (a) nulls not distinct")
    db.execute("create unique index third on t (a, b) nulls not distinct where b > 10")
    with pytest.raises(InvalidSyntax):
        db.execute("create index i on t (a) nulls not distinct")
    db.commit()


def test_two_transactions_bring_the_same_nulls_one_after_the_other(path: Path) -> None:
    with gmdb.connect(path) as one, gmdb.connect(path) as other:
        one.execute("create table t (a int unique nulls not distinct)")
        one.commit()
        one.execute("insert into t values (null)")
        outcome: list[type[BaseException] | None] = []

        def insert() -> None:
            try:
                other.execute("insert into t values (null)")
            except UniqueViolation as error:
                outcome.append(type(error))

        waiting = threading.Thread(target=insert)
        waiting.start()
        while not one.system_view("sys_waits").num_rows:
            pass
        one.commit()
        waiting.join()
        assert outcome == [UniqueViolation]


def test_a_serializable_transaction_is_told_of_a_key_of_nulls_that_came_beside_it(path: Path) -> None:
    with gmdb.connect(path) as one, gmdb.connect(path) as other:
        one.execute("create table t (a int unique nulls not distinct)")
        one.commit()
        one.isolation = "serializable"
        assert one.execute("select count(*) from t").fetchall() == [(0,)]
        other.execute("insert into t values (null)")
        other.commit()
        with pytest.raises(SerializationFailure):
            one.execute("insert into t values (null)")
        one.rollback()


def test_sqlalchemy_makes_and_reflects_it(path: Path) -> None:
    engine = sa.create_engine(f"gmdb:///{path}")
    meta = sa.MetaData()
    table = sa.Table(
        "t", meta, sa.Column("a", sa.Integer), sa.UniqueConstraint("a", name="u", gmdb_nulls_not_distinct=True)
    )
    sa.Index("i", table.c.a, unique=True, gmdb_nulls_not_distinct=True)
    meta.create_all(engine)
    found = sa.inspect(engine)
    assert found.get_unique_constraints("t")[0]["dialect_options"] == {"gmdb_nulls_not_distinct": True}
    assert found.get_indexes("t")[0]["dialect_options"] == {"gmdb_nulls_not_distinct": True}
    engine.dispose()
