"""Generated columns: every way by which rows come and change gives them what their expressions say, or is refused."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
import sqlalchemy as sa
from gmdb.database.connection import Connection
from gmdb.database.copies import restore
from gmdb.errors import CheckViolation, GeneratedAlways, NullNotAllowed, SchemaError, UnsupportedExpression
from gmdb.format.columns import parse_column
from gmdb.process.late_dataclasses import replace
from tests.server.peer import Peer

TABLE = """create table t (id int primary key, a int, c char(4), x double precision, n decimal(9, 2),
    l text generated always as (lower(c) || '!') stored, g bigint generated always as (a * 2) stored not null,
    h double precision generated always as (x / 2 + n) stored, check (g <> 14))"""
WRONG = "select count(*) from t where l is distinct from lower(c) || '!' or g <> a * 2 or h is distinct from x / 2 + n"


@pytest.fixture(params=["here", "through an owner"])
def made(request: pytest.FixtureRequest, path: Path, peer: Peer) -> Any:
    """A database with the table, and one connection to it, which may be a client's."""
    if request.param != "here":
        peer("db = gmdb.connect(path)", path=str(path))
    with gmdb.connect(path) as db:
        db.execute(TABLE)
        db.commit()
        yield db
        db.commit()
        assert db.execute(WRONG).fetchall() == [(0,)]
        db.commit()
        assert not db.verify().findings
    if request.param != "here":
        peer("db.close()")


def whole(db: Connection, key: int) -> tuple[Any, ...] | None:
    return db.execute("select a, l, g, h from t where id = ?", (key,)).fetchone()


def test_rows_and_changes_by_row_id_are_completed_or_refused(made: Connection) -> None:
    heap = made.heap("t")
    row_id = heap.insert((1, 5, "AB", 3, 1, None, None, None))
    assert whole(made, 1) == (5, "ab!", 10, 2.5)
    heap.insert((2, *heap.fetch(row_id)[1:]))  # the right values may be there
    for place, value in ((5, "AB!"), (6, 11), (7, 2.25)):
        row = [3, 5, "AB", 3.0, 1, None, None, None]
        row[place] = value
        with pytest.raises(GeneratedAlways, match="is generated as"):
            heap.insert(row)
    with pytest.raises(NullNotAllowed):
        heap.insert((3, None, "AB", 3.0, 1, None, None, None))
    heap.update(row_id, {"a": 6, "g": None})
    heap.update(row_id, {"c": "XyZ"})
    assert whole(made, 1) == (6, "xyz!", 12, 2.5)
    heap.update(row_id, (1, 8, "q", None, 2, None, 16, None))
    assert whole(made, 1) == (8, "q!", 16, None)
    with pytest.raises(GeneratedAlways):
        heap.update(row_id, {"g": 17})
    made.update("t", lambda row: {"a": row["a"] + 1}, lambda row: row["id"] == 1)
    assert whole(made, 1) == (9, "q!", 18, None)


def test_arrow_batches_are_completed_or_refused_whole(made: Connection) -> None:
    keys, a = pa.array(range(3000), pa.int32()), pa.array(range(3000), pa.int32())
    base = {"id": keys, "a": a, "c": ["Ab"] * 3000, "x": [1.0] * 3000, "n": pa.array([2] * 3000, pa.int8())}
    assert made.append("t", pa.table(base)) == 3000
    copy = pa.table(made.arrow("t").read_all())
    moved = copy.set_column(0, "id", pa.array(range(3000, 6000), pa.int32()))
    assert made.append("t", moved) == 3000
    wrong = moved.set_column(6, "g", pa.array([2 * n + (n == 2500) for n in range(3000)], pa.int64()))
    with pytest.raises(GeneratedAlways, match="row 2500"):
        made.append("t", wrong.set_column(0, "id", pa.array(range(6000, 9000), pa.int32())))
    assert made.execute("select count(*), max(g) from t").fetchall() == [(6000, 5998)]


def test_statements_of_many_rows_compute_them_in_either_way(made: Connection) -> None:
    made.executemany("insert into t (id, a, c) values (?, ?, ?)", [(n, n, "Ab") for n in range(100, 1700)])
    made.execute("insert into t (id, a, c) select id + 5000, a + 1, 'Q' from t where id < 300")
    made.execute("update t set a = a + 10000, x = id, n = 1")
    assert whole(made, 101) == (10101, "ab!", 20202, 51.5)
    assert whole(made, 5101) == (10102, "q!", 20204, 2551.5)
    with pytest.raises(CheckViolation):
        made.execute("update t set a = 7 where id = 101")


def test_a_long_text_is_computed_of_long_texts(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (id int, s text, k int, u text generated always as (upper(s) || k) stored)")
        row_id = db.heap("t").insert((1, "a" * 9000, 1, None))
        db.append("t", pa.table({"id": pa.array([2], pa.int32()), "s": ["b" * 9000], "k": pa.array([2], pa.int32())}))
        db.heap("t").update(row_id, {"k": 7})
        db.execute("update t set k = k + 1")
        assert db.execute("select u from t order by id").fetchall() == [("A" * 9000 + "8",), ("B" * 9000 + "3",)]


def test_a_change_waits_for_the_row_that_it_is_computed_of(path: Path) -> None:
    with gmdb.connect(path) as one, gmdb.connect(path) as other:
        one.execute("create table t (a int, b int, s bigint generated always as (a + b) stored)")
        row_id = one.heap("t").insert((1, 1, None))
        one.commit()
        one.heap("t").update(row_id, {"a": 100})
        changed = threading.Thread(target=lambda: (other.heap("t").update(row_id, {"b": 1000}), other.commit()))
        changed.start()
        while not one.system_view("sys_waits").num_rows:
            pass
        one.commit()
        changed.join()
        assert one.heap("t").fetch(row_id) == (100, 1000, 1100)


def test_what_a_savepoint_or_a_failed_statement_takes_back_takes_back_the_column(made: Connection) -> None:
    made.execute("insert into t (id, a, c) values (1, 1, 'a')")
    made.savepoint("s")
    made.execute("update t set a = 50")
    made.rollback_to("s")
    with pytest.raises(CheckViolation):
        made.execute("update t set a = case id when 1 then 7 end")
    assert whole(made, 1) == (1, "a!", 2, None)


def test_a_foreign_keys_action_changes_what_is_generated_of_it(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table p (k int primary key)")
        db.execute(
            "create table c (k int references p on update cascade on delete set null, s int generated always as"
            " (coalesce(k, 0) + 1) stored)"
        )
        db.execute("insert into p values (1), (2)")
        db.execute("insert into c values (1), (2)")
        db.execute("update p set k = 10 where k = 1")
        db.execute("delete from p where k = 2")
        assert db.execute("select k, s from c order by s").fetchall() == [(None, 1), (10, 11)]


def test_set_expression_computes_all_rows_anew_and_asks_the_checks_again(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (a int, g int generated always as (a) stored not null check (g < 100))")
        db.execute("insert into t values (1), (20)")
        db.execute("alter table t alter column g set expression as (a * 3)")
        assert db.execute("select g from t order by 1").fetchall() == [(3,), (60,)]
        with pytest.raises(CheckViolation):
            db.execute("alter table t alter column g set expression as (a * 30)")
        with pytest.raises(NullNotAllowed):
            db.execute("alter table t alter column g set expression as (nullif(a, 1))")
        assert db.execute("insert into t values (5) returning g").fetchall() == [(15,)]


@pytest.mark.parametrize(
    "column",
    ["g int generated always as (a) virtual", "g int generated always as (a)", "g clob generated always as (a) stored"],
)
def test_what_cannot_be_stored_so_is_refused(db: Connection, column: str) -> None:
    with pytest.raises((UnsupportedExpression, SchemaError)):
        db.execute(f"create table t (a int, {column})")


def test_a_program_defines_them_as_columns(db: Connection) -> None:
    generated = replace(parse_column("g", "INT"), generated="a + 1")
    db.create_table("t", [parse_column("a", "INT"), generated])
    row_id = db.heap("t").insert((1, None))
    assert db.heap("t").fetch(row_id) == (1, 2)
    with pytest.raises(SchemaError, match="has no meaning"):
        db.create_table("u", [replace(generated, generated="b + 1")])
    with pytest.raises(SchemaError, match="ALTER TABLE"):
        db.add_column("t", replace(generated, name="h"))


def test_batches_have_those_of_types_that_arrow_has_another_way(db: Connection) -> None:
    db.execute("""create table t (v interval, z timestamptz, a int[], u uuid,
        d interval generated always as (v * 2) stored,
        y timestamptz generated always as (coalesce(z, '2024-01-01 00:00+00')) stored,
        b int[] generated always as (a || 1) stored, w uuid generated always as (nullif(u, null)) stored)""")
    db.execute("insert into t (v, z, a, u) values ('1 day', null, '{2}', '12345678-1234-1234-1234-123456789abc')")
    db.append("t", db.execute("select * from t").arrow())
    db.execute("create index on t (cardinality(a))")  # which makes the rows anew
    assert db.execute("select count(*) from t where cardinality(a) = 1 group by d, y, b, w").fetchall() == [(2,)]
    with pytest.raises(GeneratedAlways, match="is generated as"):
        db.append("t", db.execute("select v, z, a, u, v as d, y, b, w from t").arrow())


def test_a_feed_a_backup_and_the_catalog_have_them(db: Connection, tmp_path: Path) -> None:
    db.execute("create table t (a int primary key, g int generated always as (a + 1) stored) with (change_feed = true)")
    db.commit()
    feed = db.changes(before=True)
    db.execute("insert into t values (1)")
    db.execute("update t set a = 5")
    db.commit()
    assert [change.row for change in feed] == [{"a": 1, "g": 2}, {"a": 5, "g": 6}]
    db.backup(tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored.gmdb")
    with gmdb.connect(tmp_path / "restored.gmdb") as restored:
        assert restored.execute("insert into t values (7) returning *").fetchall() == [(7, 8)]
    asked = "select is_generated, generation_expression from information_schema.columns where table_name = 't'"
    assert db.execute(asked).fetchall() == [("NEVER", None), ("ALWAYS", "a + 1")]


def test_sqlalchemy_makes_and_reflects_them(path: Path) -> None:
    engine = sa.create_engine(f"gmdb:///{path}")
    meta = sa.MetaData()
    table = sa.Table("t", meta, sa.Column("a", sa.Integer), sa.Column("g", sa.Integer, sa.Computed("a * 2")))
    meta.create_all(engine)
    with engine.begin() as connection:
        connection.execute(table.insert().values(a=4))
        assert connection.execute(sa.select(table.c.g)).scalar() == 8
        reflected = sa.Table("t", sa.MetaData(), autoload_with=connection)
    computed = reflected.c.g.computed
    assert computed is not None
    assert (str(computed.sqltext), computed.persisted) == ("a * 2", True)
    with pytest.raises(sa.exc.CompileError, match="persisted"):
        sa.Table("u", meta, sa.Column("g", sa.Integer, sa.Computed("1", persisted=False))).create(engine)
    engine.dispose()
