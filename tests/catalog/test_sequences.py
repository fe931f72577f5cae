"""Sequences, the numbers that they hand out, and columns that get them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    InterfaceError,
    InvalidSyntax,
    NoSuchSequence,
    NullNotAllowed,
    SchemaError,
    TableExists,
    UnsupportedExpression,
    ValueOutOfRange,
)
from tests.arrow.staged import stage
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import Connect


def values(db: Connection, query: str, *parameters: Any) -> list[Any]:
    return [row[0] for row in db.execute(query, *parameters).fetchall()]


def taken(db: Connection, name: str, count: int) -> list[int]:
    return [values(db, f"select nextval('{name}')")[0] for _ in range(count)]


@pytest.mark.parametrize(
    ("options", "numbers"),
    [
        ("", [1, 2, 3, 4]),
        ("start 5", [5, 6, 7, 8]),
        ("start with 5 increment by 3", [5, 8, 11, 14]),
        ("increment -1", [-1, -2, -3, -4]),
        ("increment -2 minvalue -10 maxvalue 3", [3, 1, -1, -3]),
        ("minvalue 1 maxvalue 3 cycle", [1, 2, 3, 1]),
        ("increment 2 maxvalue 4 minvalue 2 cycle start 4", [4, 2, 4, 2]),
        ("increment -1 minvalue 1 maxvalue 2 cycle", [2, 1, 2, 1]),
        ("minvalue -3 no maxvalue cache 2 no cycle", [-3, -2, -1, 0]),
        ("as smallint start 32760", [32760, 32761, 32762, 32763]),
    ],
)
def test_numbers_are_what_the_options_say(path: Path, options: str, numbers: list[int]) -> None:
    with gmdb.connect(path) as db:
        db.execute(f"create sequence s {options}")
        assert taken(db, "s", 3) == numbers[:3]
    with gmdb.connect(path) as db:
        assert taken(db, "s", 1) == numbers[3:]


def test_a_sequence_that_is_used_up_says_so(db: Connection) -> None:
    db.execute("create sequence s maxvalue 2")
    db.execute("create sequence large start 9223372036854775806")
    assert taken(db, "s", 2) == [1, 2]
    assert taken(db, "large", 1) == [(1 << 63) - 2]
    for name in ("s", "large", "s"):
        with pytest.raises(ValueOutOfRange, match="are used up"):
            taken(db, name, 1)


def test_what_functions_say_belongs_to_the_connection(db: Connection, connect: Connect) -> None:
    db.execute("create sequence s")
    db.execute('create sequence "Big" start 50')
    db.commit()
    other = connect()
    for query in ("select currval('s')", "select lastval()"):
        with pytest.raises(InterfaceError, match="has got no number"):
            db.execute(query)
    assert taken(db, "S", 2) == [1, 2]  # folded
    assert values(other, "select nextval('\"Big\"'::regclass)") == [50]
    assert values(other, "select nextval('s')") == [3]
    assert (values(db, "select currval('s')"), values(other, "select currval('\"Big\"')")) == ([2], [50])
    assert (values(db, "select lastval()"), values(other, "select lastval()")) == ([2], [3])
    db.rollback()
    assert taken(db, "s", 1) == [4]
    assert values(db, "select setval('s', 10)") == [10]
    assert values(db, "select currval('s')") == [10]
    assert taken(db, "s", 1) == [11]
    assert values(db, "select setval('s', 20, false)") == [20]
    assert (values(db, "select currval('s')"), taken(db, "s", 1)) == ([11], [20])
    assert values(db, "select nextval(null)") == [None]
    with pytest.raises(SchemaError, match="does not lie between"):
        db.execute("select setval('s', 0)")
    with pytest.raises(NoSuchSequence, match="the sequences are: Big, s"):
        taken(db, "nope", 1)


def test_numbers_come_within_queries_and_changes(db: Connection) -> None:
    db.execute("create sequence s")
    db.execute("create table t (i int primary key, n bigint)")
    db.execute("insert into t select n, nextval('s') from generate_series(1, 2500) g (n)")
    assert values(db, "select count(distinct n) from t") == [2500]
    assert sorted(values(db, "select nextval('s') from t where i <= 3")) == [2501, 2502, 2503]
    for n in range(3):  # by the key, when the statement has run before
        db.execute("update t set n = nextval('s') where i = ?", (n + 1,))
    assert values(db, "select count(distinct n) from t") == [2500]
    assert values(db, "select max(n) from t") >= [2506]
    assert values(db, "select nextval('s') from t where i = 7")[0] > 2506
    with pytest.raises(UnsupportedExpression, match="ask for it apart"):
        db.execute("select nextval('s'), rank() over (order by i) from t")


def test_a_sequence_keeps_its_bounds_but_for_those_of_its_type(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create sequence s as smallint minvalue 3 start 5")
        db.execute("alter sequence s increment -1 restart with 4")
        assert taken(db, "s", 2) == [4, 3]
        with pytest.raises(ValueOutOfRange):
            taken(db, "s", 1)
        db.execute("alter sequence s as int no minvalue")
        (row,) = db.execute("select * from sys_sequences").fetchall()
        assert row[4:6] == (-(1 << 31), (1 << 31) - 1)


def test_definitions_belong_to_the_transaction_and_numbers_do_not(path: Path) -> None:
    with gmdb.connect(path) as db, gmdb.connect(path) as other:
        db.execute("create sequence s")
        assert other.sequences() == []
        db.rollback()
        assert db.sequences() == []
        db.execute("create sequence s")
        taken(db, "s", 2)
        db.commit()
        db.execute("alter sequence s increment 10")
        db.rollback()
        assert taken(db, "s", 1) == [3]
        db.execute("alter sequence s increment 10 maxvalue 1000 restart 100")
        db.execute("alter sequence s rename to s2")
        db.commit()
        assert taken(other, "s2", 2) == [100, 110]
        db.execute("alter sequence s2 restart")
        assert taken(db, "s2", 1) == [1]
        with pytest.raises(SchemaError, match="goes on with 11, which does not lie"):
            db.execute("alter sequence s2 maxvalue 5")
        db.execute("alter sequence s2 as smallint no maxvalue")
        (row,) = db.execute("select * from sys_sequences").fetchall()
        assert row == ("s2", "SMALLINT", 1, 10, 1, 32767, False, 0, 11, None, None)
        db.execute("drop sequence s2")
        db.execute("savepoint a")
        db.execute("create sequence s2")
        db.execute("rollback to a")
        db.commit()
        assert other.sequences() == []
        other.rollback()
    assert_sound(path)


@pytest.mark.parametrize(
    ("statement", "error", "said"),
    [
        ("create sequence s", TableExists, "a table s already"),
        ("create sequence t", TableExists, "a table t already"),
        ("create table s (i int)", TableExists, "a table s already"),
        ("create sequence x increment 0", SchemaError, "cannot be 0"),
        ("create sequence x minvalue 5 maxvalue 5", SchemaError, "must be less"),
        ("create sequence x start 0", SchemaError, "does not lie between"),
        ("create sequence x as text", SchemaError, "smallint, integer or bigint"),
        ("create sequence x as smallint maxvalue 40000", SchemaError, "not all SMALLINT"),
        ("create sequence x cache 0", SchemaError, "one number aside"),
        ("create sequence x start 1 start 2", InvalidSyntax, "twice"),
        ("create sequence x fast", InvalidSyntax, "near 'fast'"),
        ("create sequence x start", InvalidSyntax, "a number must stand"),
        ("create sequence x restart", InvalidSyntax, "near 'restart'"),
        ("create sequence x owned by nope.i", SchemaError, "no table nope"),
        ("create sequence x owned by t.nope", SchemaError, "no column nope"),
        ("alter sequence s", InvalidSyntax, "needs an option"),
        ("alter sequence nope start 3", NoSuchSequence, "nope"),
        ("drop sequence nope", NoSuchSequence, "nope"),
        ("drop sequence t", NoSuchSequence, "no sequence t"),
        ("drop table s", SchemaError, "is a sequence"),
        ("truncate s", SchemaError, "is a sequence"),
        ("alter table s add column i int", SchemaError, "is a sequence"),
        ("create index x on s (last_value)", SchemaError, "is a sequence"),
        ("select * from s", UnsupportedExpression, "is a sequence"),
        ("insert into s values (1)", UnsupportedExpression, "is a sequence"),
        ("update t set i = default", UnsupportedExpression, "not again"),
        ("create table x (i varchar(5) default nextval('s'))", SchemaError, "is an integer"),
    ],
)
def test_what_cannot_be_is_refused(db: Connection, statement: str, error: type[Exception], said: str) -> None:
    db.execute("create sequence s")
    db.execute("create table t (i serial)")
    with pytest.raises(error, match=said):
        db.execute(statement)
    for use in (
        lambda: db.insert("s", (1,)),
        lambda: db.append("s", pa.table({"last_value": [1]})),
        lambda: db.select("s").arrow(),
    ):
        with pytest.raises(SchemaError, match="is a sequence"):
            use()
    assert (db.tables(), db.sequences()) == (["t"], ["s", "t_i_seq"])
    db.execute("create sequence if not exists s start 7")
    db.execute("alter sequence if exists nope start 3")
    db.execute("drop sequence if exists nope, s")


# ---- columns


def test_serial_columns_get_numbers_by_all_ways(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table t (id serial primary key, b bigserial, c smallserial, s varchar(9))")
        assert db.sequences() == ["t_b_seq", "t_c_seq", "t_id_seq"]
        assert db.execute("insert into t (s) values ('a'), ('b')").lastrowid == 2
        db.execute("insert into t values (default, 7, default, 'c')")
        assert db.execute("insert into t (s) values ('d') returning id, b, c").fetchall() == [(4, 3, 4)]
        db.executemany("insert into t (s) values (?)", [("m",)] * 3000)
        db.execute("insert into t (s) select 'q' from t limit 2000")
        load = stage(db, "t", pa.table({"s": ["staged"] * 5}))
        db._attach_load(load)
        assert values(db, "select count(distinct id) from t") == [5009]
        assert values(db, "select max(id) from t") == values(db, "select currval('t_id_seq')") == [5009]
        with pytest.raises(NullNotAllowed):
            db.execute("insert into t (id) values (null)")
        db.execute("alter table t add column again serial")
        assert values(db, "select count(distinct again) from t") == [5009]
        db.execute("alter table t rename to u")
        db.execute("alter table u rename column id to key")
        owned = db.execute("select table_name, column_name from sys_sequences where name = 't_id_seq'").fetchall()
        assert owned == [("u", "key")]
        db.execute("truncate u restart identity")
        db.execute("insert into u (s) values ('new')")
        assert db.execute("select key, b, c from u").fetchall() == [(1, 1, 1)]
        db.execute("drop table u")
        assert db.sequences() == []
    assert_sound(path)


def test_a_sequence_goes_with_its_owner_and_stays_for_its_users(db: Connection) -> None:
    db.execute("create table t (id serial, v int)")
    db.execute("create sequence mine start 100 owned by t.v")
    db.execute("create sequence free")
    db.execute("create table u (i int default nextval('free'), j int default nextval('t_id_seq'))")
    with pytest.raises(SchemaError, match="column i of table u gets its numbers"):
        db.execute("drop sequence free")
    db.execute("alter sequence free rename to other")
    assert db.table("u").column("i").default == "nextval('other')"
    db.execute("insert into u values (default, default)")
    db.execute("alter table t rename to t2")
    assert {row[:2] for row in db.execute("select table_name, name from sys_sequences").fetchall()} == {
        ("t2", "t_id_seq"), ("t2", "mine"), (None, "other")}  # fmt: skip
    db.execute("drop table t2")
    assert db.sequences() == ["other"]
    assert (db.table("u").column("j").default, db.table("u").column("i").sequence) == (None, "other")
    db.execute("alter table u alter column i set default 5")
    assert db.table("u").column("i").sequence == ""
    db.execute("alter table u alter column i set default nextval('other')")
    db.execute("drop sequence other cascade")
    db.execute("insert into u values (default, default)")
    assert db.execute("select * from u order by i").fetchall() == [(1, 1), (None, None)]


def test_identities_count_as_they_are_told(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute(
            "create table t (i int generated always as identity (start with 10 increment by 5 maxvalue 24), s int)"
        )
        down = "increment by -1 minvalue -5000 maxvalue -1"
        db.execute(f"create table d (i bigint generated by default as identity ({down}), s int)")
        db.executemany("insert into d (s) values (?)", [(n,) for n in range(2000)])
        assert values(db, "select min(i) from d") == [-2000]
        assert [values(db, "insert into t (s) values (1) returning i")[0] for _ in range(2)] == [10, 15]
    with gmdb.connect(path) as db:
        assert values(db, "insert into t (s) values (1) returning i") == [20]
        with pytest.raises(ValueOutOfRange, match="from 1 to 24 are used up"):
            db.execute("insert into t (s) values (1)")
        db.execute("truncate t restart identity")
        assert values(db, "insert into t (s) values (1) returning i") == [10]


# ---- several sessions, a client, a crash


def test_no_number_is_handed_out_twice_to_threads(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create sequence s cache 3")
        db.commit()
        found: list[int] = []

        def take() -> None:
            with gmdb.connect(path) as own:
                found.extend(own.nextval("s") for _ in range(100))

        threads = [threading.Thread(target=take) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(found) == list(range(1, 401))


def test_a_client_uses_sequences(path: Path, peer: Peer) -> None:
    peer(f"import gmdb; db = gmdb.connect({str(path)!r})")
    with gmdb.connect(path) as db:
        db.create_sequence("s", type="INT", start=5, increment=-5, low=-100, high=5, cycle=True, cache=2)
        assert [db.nextval("s"), values(db, "select nextval('s')")[0], db.currval("s"), db.lastval()] == [5, 0, 0, 0]
        assert db.setval("s", -95) == -95
        assert [db.nextval("s"), db.nextval("s")] == [-100, 5]
        db.alter_sequence("s", increment=1, restart=3, owner=())
        db.rename_sequence("s", "x")
        assert db.sequences() == ["x"]
        db.execute("create table t (i serial, s int)")
        assert db.execute("insert into t (s) values (1), (2)").lastrowid == 2
        db.drop_sequence("x", "t_i_seq", cascade=True)
        db.drop_table("t")
    peer("db.close()")


def test_no_number_comes_twice_after_a_crash(path: Path) -> None:
    program = f"""
import gmdb, os, signal
db = gmdb.connect({str(path)!r})
for name, options in (("s", ""), ("d", "increment -3 cache 10")):
    db.execute(f"create sequence {{name}} {{options}}")
db.commit()
print(max(db.nextval("s") for _ in range(1500)), min(db.nextval("d") for _ in range(55)), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    up, down = map(int, done.stdout.split())
    with gmdb.connect(path) as db:
        assert up < db.nextval("s") <= up + 1001
        assert down > db.nextval("d") >= down - 3 * 11
