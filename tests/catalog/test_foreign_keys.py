"""Foreign keys: what rows refer to is there, by every way in which rows and definitions change."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb import Constraint
from gmdb.database.connection import Connection
from gmdb.errors import (
    CheckViolation,
    ForeignKeyViolation,
    InvalidSyntax,
    NoSuchConstraint,
    NoSuchTable,
    NullNotAllowed,
    SchemaError,
    UnsupportedExpression,
)
from tests.integrity import assert_sound
from tests.model.foreign_keys import make, orphans
from tests.searches import extent
from tests.server.peer import Peer
from tests.sessions import Connect, answer, start_waiting


def rows(db: Connection, query: str) -> list[Any]:
    return db.execute(query).fetchall()


def made(db: Connection, options: str = "", column: str = "") -> Connection:
    """Parents 1 to 3, and two rows that refer to 1 and one that refers to 2."""
    db.execute("create table p (id int primary key, s varchar(20) unique)")
    db.execute("insert into p values (1, 'a'), (2, 'b'), (3, 'c')")
    db.execute(f"create table c (i int, p int {column} references p {options})")
    db.execute("insert into c values (10, 1), (11, 1), (20, 2)")
    db.commit()
    return db


# ---- what is checked


def test_a_row_that_refers_to_nothing_is_refused_and_leaves_no_trace(db: Connection) -> None:
    made(db)
    said = r"table c, constraint c_p_fkey: table p has no row with \(id\) = \(9\)"
    for statement in (
        "insert into c values (1, 9)",
        "insert into c values (1, 1), (2, 9)",
        "insert into c select i, 9 from c",
        "update c set p = 9",
        "update c set p = p + 7 where p = 2",
        "insert into c values (1, 9) returning i",
    ):
        with pytest.raises(ForeignKeyViolation, match=said):
            db.execute(statement)
    for change in (
        lambda: db.insert("c", (1, 9)),
        lambda: db.append("c", pa.table({"i": [1], "p": pa.array([9], pa.int32())})),
        lambda: db.executemany("insert into c values (?, ?)", [(1, 1), (1, 9)]),
        lambda: db.executemany("insert into c values (?, ?)", [(n, 1 if n else 9) for n in range(2000)]),
        lambda: db.update("c", {"p": 9}),
        lambda: db.heap("c").update(next(iter(db.heap("c").rows()))[0], {"p": 9}),
        lambda: db.heap("c").update(next(iter(db.heap("c").rows()))[0], (1, 9)),
    ):
        with pytest.raises(ForeignKeyViolation, match=said):
            change()
    db.execute("insert into c values (1, null)")
    assert rows(db, "select p from c order by i") == [(None,), (1,), (1,), (2,)]


def test_a_row_that_others_refer_to_stays(db: Connection) -> None:
    made(db)
    said = r"table p: rows of table c refer to \(id\) = \(1\), constraint c_p_fkey"
    heap = db.heap("p")
    first = next(row_id for row_id, row in heap.rows() if row[0] == 1)
    for change in (
        lambda: db.execute("delete from p where id = 1"),
        lambda: db.execute("delete from p"),
        lambda: db.execute("update p set id = 7 where id = 1"),
        lambda: db.execute("update p set id = id + 10"),
        lambda: heap.delete(first),
        lambda: heap.update(first, {"id": 5}),
        lambda: db.delete("p", lambda row: row["id"] == 1),
        lambda: db.update("p", {"id": 8}, lambda row: row["id"] == 1),
    ):
        with pytest.raises(ForeignKeyViolation, match=said):
            change()
    db.execute("delete from p where id = 3")
    db.execute("update p set s = 'z', id = id where id = 1")
    db.execute("update p set id = 30 where id = 2 and false")
    assert rows(db, "select * from p order by id") == [(1, "z"), (2, "b")]


def test_checks_come_at_the_end_of_the_statement(db: Connection) -> None:
    db.execute("create table t (id int primary key, up int references t)")
    db.execute("insert into t values (1, 2), (2, 1), (3, 3)")
    db.append("t", pa.table({"id": pa.array([4, 5], pa.int32()), "up": pa.array([5, 4], pa.int32())}))
    db.execute("insert into t select n + 10, n + 11 from generate_series(1, 3000) g (n) union all select 3011, 1")
    with pytest.raises(ForeignKeyViolation, match=r"id\) = \(1"):
        db.execute("delete from t where id = 1")
    db.execute("delete from t where id in (1, 2) or id > 10")
    db.execute("update t set up = 4 where id = 3")
    assert rows(db, "select * from t order by id") == [(3, 4), (4, 5), (5, 4)]


def test_a_key_that_comes_back_within_the_statement_satisfies_no_action_but_not_restrict(db: Connection) -> None:
    for action, is_allowed in (("no action", True), ("restrict", False)):
        db.execute("create table p (id int primary key)")
        db.execute(f"create table c (p int references p on delete {action})")
        db.execute("insert into p values (1)")
        db.execute("insert into c values (1)")
        try:
            with db.all_or_nothing():
                db.execute("delete from p")
                db.execute("insert into p values (1)")
            assert is_allowed
        except ForeignKeyViolation:
            assert not is_allowed
        db.rollback()


def test_several_columns_refer_in_any_order_and_null_in_one_means_nothing(db: Connection) -> None:
    db.execute("create table q (a int, b varchar(5), n int, unique (b, a))")
    db.execute("create table simple (x varchar(9), y bigint, foreign key (y, x) references q (a, b))")
    db.execute("create table whole (x varchar(9), y int, foreign key (x, y) references q (b, a) match full)")
    db.execute("insert into q values (1, 'one', 0), (2, null, 0)")
    db.execute("insert into simple values ('one', 1), (null, 5), ('x', null)")
    db.execute("insert into whole values ('one', 1), (null, null)")
    with pytest.raises(ForeignKeyViolation, match="MATCH FULL"):
        db.execute("insert into whole values (null, 1)")
    for refused in ("'one', 2", "'much too long', 1", "'two', 1099511627776"):
        with pytest.raises((ForeignKeyViolation, gmdb.DataError)):
            db.execute(f"insert into simple values ({refused})")
    with pytest.raises(ForeignKeyViolation):
        db.execute("update q set b = 'uno' where a = 1")


# ---- actions


def test_cascade_takes_rows_along_to_any_depth(db: Connection) -> None:
    db.execute("create table t (id int primary key, up int references t on delete cascade on update cascade)")
    db.execute("create table leaf (t int references t on delete cascade on update cascade)")
    db.executemany("insert into t values (?, ?)", [(0, None), *((n, n - 1) for n in range(1, 300))])
    db.execute("insert into leaf select id from t")
    db.execute("update t set id = 1000 where id = 5")
    assert rows(db, "select up from t where id = 6") == [(1000,)]
    assert rows(db, "select count(*) from leaf where t = 1000") == [(1,)]
    assert db.execute("delete from t where id = 4").rowcount == 1
    assert rows(db, "select count(*) from t") == rows(db, "select count(*) from leaf") == [(4,)]
    db.rollback()


def test_set_null_and_set_default_keep_what_a_table_asks_of_its_rows(db: Connection) -> None:
    made(db, "on delete set null on update set default", "default 1 + 1")
    db.execute("delete from p where id = 1")
    assert rows(db, "select * from c order by i") == [(10, None), (11, None), (20, 2)]
    db.execute("update c set p = 3 where i = 10")
    db.execute("update p set id = 30 where id = 3")
    assert rows(db, "select * from c order by i") == [(10, 2), (11, None), (20, 2)]
    with pytest.raises(ForeignKeyViolation, match=r"= \(2"):
        db.execute("update p set id = 31 where id = 2")  # the default itself
    db.execute("alter table c add constraint low check (p < 100)")
    db.execute("alter table c alter column p set default 200")
    db.execute("insert into p values (200, 'd')")
    with pytest.raises(CheckViolation, match="low"):
        db.execute("update p set id = 31 where id = 2")
    db.execute("create table n (p int not null references p on delete set null)")
    db.execute("insert into n values (30)")
    with pytest.raises(NullNotAllowed, match="column p"):
        db.execute("delete from p where id = 30")
    db.execute("create table two (a int, b int default 7, foreign key (a) references p on delete set null (a))")
    with pytest.raises(SchemaError, match="only columns of the foreign key"):
        db.execute("create table x (a int, b int, foreign key (a) references p on delete set null (b))")


def test_a_cascade_changes_rows_that_came_after_the_statement_began(db: Connection, connect: Connect) -> None:
    made(db, "on delete cascade")
    other = connect()
    other.execute("insert into c values (99, 1)")
    deleting = start_waiting(db, lambda: db.execute("delete from p where id = 1"))
    other.commit()
    answer(deleting)
    db.commit()
    assert rows(other, "select i from c") == [(20,)]


# ---- deferred


def test_what_is_deferred_is_checked_at_the_commit(db: Connection, connect: Connect) -> None:
    made(db, "deferrable initially deferred")
    db.execute("insert into c values (1, 4)")
    with pytest.raises(ForeignKeyViolation, match=r"= \(4"):
        db.commit()
    assert rows(db, "select count(*) from c") == [(4,)]  # the transaction goes on, as after any statement that fails
    db.execute("insert into p values (4, 'd')")
    db.commit()
    db.execute("delete from p where id = 4")
    with pytest.raises(ForeignKeyViolation, match="refer to"):
        db.commit()
    db.execute("delete from c where p = 4")
    db.commit()
    alone = connect(autocommit=True)
    with pytest.raises(ForeignKeyViolation):
        alone.execute("insert into c values (1, 5)")
    assert rows(alone, "select count(*) from c where p = 5") == [(0,)]


def test_constraints_are_set_for_a_transaction(db: Connection) -> None:
    made(db, "deferrable")
    with pytest.raises(ForeignKeyViolation):
        db.execute("insert into c values (1, 4)")
    db.execute("set constraints c_p_fkey deferred")
    db.execute("insert into c values (1, 4)")
    with pytest.raises(ForeignKeyViolation):
        db.execute("set constraints all immediate")
    db.execute("savepoint s")
    db.execute("insert into p values (4, 'd')")
    db.execute("set constraints all immediate")
    db.execute("rollback to s")  # and with it, what the check has found
    with pytest.raises(ForeignKeyViolation):
        db.commit()
    db.rollback()
    with pytest.raises(ForeignKeyViolation):  # as it was before
        db.execute("insert into c values (1, 4)")
    with pytest.raises(NoSuchConstraint, match="nope"):
        db.execute("set constraints nope deferred")
    db.execute("create table strict (p int references p)")
    with pytest.raises(SchemaError, match="not deferrable"):
        db.execute("set constraints strict_p_fkey deferred")


def test_a_savepoint_takes_back_what_was_to_be_checked(db: Connection) -> None:
    made(db, "deferrable initially deferred")
    db.execute("savepoint s")
    db.execute("insert into c values (1, 77)")
    db.execute("delete from p where id = 2")
    db.execute("rollback to s")
    db.commit()
    assert rows(db, "select count(*) from p") == [(3,)]


# ---- two sessions


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_rows_that_refer_to_the_same_row_do_not_wait_for_each_other(
    db: Connection, connect: Connect, isolation: str
) -> None:
    made(db)
    first, second = connect(isolation), connect(isolation)
    first.execute("insert into c values (1, 1)")
    second.execute("insert into c values (2, 1)")
    db.execute("update p set s = 'x' where id = 1")  # the key stays, so that nobody waits
    first.commit()
    second.commit()


@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("comes_first", ["child", "parent"])
def test_whoever_comes_second_sees_what_the_first_has_done(
    db: Connection, connect: Connect, isolation: str, end: str, comes_first: str
) -> None:
    made(db)
    statements = ["insert into c values (1, 3)", "delete from p where id = 3"]
    first, second = connect(isolation), connect(isolation, 60)
    second.execute("select * from p").fetchall()  # a snapshot from before, under repeatable read
    own, others = statements if comes_first == "child" else reversed(statements)
    first.execute(own)
    waiting = start_waiting(second, lambda: second.execute(others))
    getattr(first, end)()
    if end == "rollback":
        answer(waiting)
        second.commit()
    else:
        with pytest.raises(ForeignKeyViolation):
            answer(waiting)
        second.rollback()
    assert not orphans_of(db)


def orphans_of(db: Connection) -> list[Any]:
    db.rollback()
    return rows(db, "select * from c where p is not null and not exists (select 1 from p where p.id = c.p)")


def test_a_parent_that_is_not_committed_counts_for_its_own_transaction_only(db: Connection, connect: Connect) -> None:
    made(db)
    db.execute("insert into p values (4, 'd')")
    db.execute("insert into c values (40, 4)")
    other = connect()
    with pytest.raises(ForeignKeyViolation):
        other.execute("insert into c values (41, 4)")
    db.commit()
    other.execute("insert into c values (41, 4)")


# ---- definitions


def test_a_foreign_key_is_kept_with_all_that_it_says(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table p (id int primary key, a int, b int, unique (a, b))")
        db.execute(
            "create table c (i int constraint one references p, x int, y int, constraint two foreign key (x, y) "
            "references p (a, b) match full on delete set null (x, y) on update cascade deferrable initially deferred)"
        )
        expected = (
            Constraint("foreign key", ("i",), name="one", references="p", key=("id",)),
            Constraint(
                "foreign key", ("x", "y"), name="two", references="p", key=("a", "b"), on_delete="set null",
                sets=("x", "y"), on_update="cascade", match_full=True, deferrable=True, deferred=True,
            ),
        )  # fmt: skip
        assert db.table("c").constraints == expected
    with gmdb.connect(path) as db:
        assert db.table("c").constraints == expected
        assert db.table("p").referenced == 2
        db.execute("alter table p rename to parents")
        db.execute("alter table parents rename column a to first")
        db.execute("alter table c rename column x to ex")
        two = db.table("c").constraint("two")
        assert (two.columns, two.references, two.key, two.sets) == (("ex", "y"), "parents", ("first", "b"), ("ex", "y"))
        db.execute("insert into parents values (1, 2, 3)")
        db.execute("insert into c values (1, 2, 3)")
        db.execute("update parents set first = 20")
        assert rows(db, "select * from c") == [(1, 20, 3)]
    with gmdb.connect(path) as db, pytest.raises(ForeignKeyViolation):
        db.execute("delete from parents")
    assert_sound(path)


def test_what_a_foreign_key_cannot_be(db: Connection) -> None:
    made(db)
    for statement, error, said in (
        ("create table x (a int references nope)", NoSuchTable, "nope"),
        ("create table x (a int references c)", SchemaError, "has no primary key"),
        ("create table x (a int references c (i))", SchemaError, "no primary key or unique constraint on .i"),
        ("create table x (a varchar(5) references p)", SchemaError, "column a is VARCHAR.5., and id of table p is INT"),
        ("create table x (a int, b int, foreign key (a, b) references p)", SchemaError, "2 columns refer to 1"),
        ("create table x (a int references sys_tables (obj_id))", SchemaError, "system table"),
        ("create table x (a int references p match partial)", UnsupportedExpression, "MATCH PARTIAL"),
        ("create table x (a int references p on delete cascade on delete restrict)", InvalidSyntax, "before"),
        ("create table x (a int references p not deferrable initially deferred)", InvalidSyntax, "must be DEFERRABLE"),
        ("create table x (a int references p on update set null (a))", InvalidSyntax, "ON DELETE only"),
        ("alter table c add primary key (i) not valid", UnsupportedExpression, "NOT VALID"),
        ("create index c_p_fkey on c (i)", None, ""),
    ):
        if error is None:
            db.execute(statement)
        else:
            with pytest.raises(error, match=said):
                db.execute(statement)
    with pytest.raises(SchemaError, match="is not one of no action"):
        db.add_constraint("c", Constraint("foreign key", ("i",), references="p", on_delete="explode"))
    with pytest.raises(SchemaError, match="to which table"):
        db.add_constraint("c", Constraint("foreign key", ("i",)))
    assert "x" not in db.tables()


def test_what_is_referred_to_goes_with_cascade_only(db: Connection) -> None:
    made(db)
    for statement in (
        "drop table p",
        "truncate p",
        "alter table p drop constraint p_pkey",
        "alter table p drop constraint p_pkey restrict",
    ):
        with pytest.raises(SchemaError, match="constraint c_p_fkey of table c refers to it"):
            db.execute(statement)
    db.execute("alter table p drop constraint p_s_key")  # nothing refers to that
    db.execute("savepoint s")
    db.execute("drop table p cascade")
    assert db.table("c").constraints == ()
    db.execute("insert into c values (1, 999)")
    db.execute("rollback to s")
    with pytest.raises(ForeignKeyViolation):
        db.execute("insert into c values (1, 999)")
    db.execute("truncate p cascade")
    assert rows(db, "select * from c") == []
    db.execute("rollback to s")
    db.execute("truncate c")
    db.execute("truncate p, c")
    db.execute("alter table p drop constraint p_pkey cascade")
    assert db.table("c").constraints == ()
    assert db.table("p").referenced == 0
    db.rollback()
    db.execute("drop table p, c")
    assert db.tables() == []


def test_a_child_that_is_dropped_sets_its_parent_free(db: Connection) -> None:
    made(db)
    db.execute("drop table c")
    db.execute("delete from p")
    assert db.table("p").referenced == 0
    db.execute("drop table p")


def test_tables_that_refer_to_each_other(db: Connection) -> None:
    db.execute("create table a (id int primary key, b int)")
    db.execute("create table b (id int primary key, a int references a)")
    db.execute("alter table a add foreign key (b) references b deferrable initially deferred")
    db.execute("insert into a values (1, 1)")
    db.execute("insert into b values (1, 1)")
    db.commit()
    with pytest.raises(SchemaError):
        db.execute("drop table a")
    db.execute("truncate a, b")
    db.execute("drop table a, b")
    assert db.tables() == []


def test_rows_from_before_are_looked_at_unless_it_is_not_valid(db: Connection) -> None:
    made(db)
    db.execute("alter table c drop constraint c_p_fkey")
    db.execute("insert into c values (1, 77)")
    db.commit()
    add = "alter table c add constraint f foreign key (p) references p on delete cascade"
    with pytest.raises(ForeignKeyViolation, match=r"constraint f: .*77"):
        db.execute(add)
    assert db.table("c").constraints == ()
    assert db.table("p").referenced == 0
    db.execute(f"{add} not valid")
    with pytest.raises(ForeignKeyViolation, match="78"):
        db.execute("insert into c values (1, 78)")
    with pytest.raises(ForeignKeyViolation, match="77"):
        db.execute("alter table c validate constraint f")
    assert not db.table("c").constraint("f").valid
    db.execute("delete from c where p = 77")
    db.execute("alter table c validate constraint f")
    assert db.table("c").constraint("f").valid


def test_a_check_can_be_not_valid_and_be_validated_later(db: Connection) -> None:
    db.execute("create table t (i int)")
    db.execute("insert into t values (1), (50)")
    with pytest.raises(CheckViolation):
        db.execute("alter table t add check (i < 10)")
    assert db.table("t").constraints == ()
    db.execute("alter table t add constraint low check (i < 10) not valid")
    with pytest.raises(CheckViolation):
        db.execute("insert into t values (51)")
    with pytest.raises(CheckViolation):
        db.execute("alter table only t validate constraint low")
    db.execute("delete from t where i = 50")
    db.execute("alter table if exists t validate constraint low")
    db.execute("alter table if exists nope validate constraint low")
    assert db.table("t").constraint("low").valid
    db.execute("alter table t add constraint u unique (i)")
    with pytest.raises(SchemaError, match="valid anyhow"):
        db.execute("alter table t validate constraint u")


def test_a_foreign_key_waits_for_those_who_change_either_table(db: Connection, connect: Connect) -> None:
    made(db)
    db.execute("create table late (p int)")
    db.commit()
    other = connect(lock_timeout=60)
    db.execute("delete from p where id = 3")
    adding = start_waiting(other, lambda: other.execute("alter table late add foreign key (p) references p"))
    db.commit()
    answer(adding)
    other.execute("insert into late values (1)")
    deleting = start_waiting(db, lambda: db.execute("delete from p where id = 1"))
    other.commit()
    with pytest.raises(ForeignKeyViolation):
        answer(deleting)


def test_an_old_snapshot_knows_of_foreign_keys_that_came_later(db: Connection, connect: Connect) -> None:
    made(db)
    old = connect("repeatable read")
    assert len(rows(old, "select * from p")) == 3
    db.execute("create table late (p int references p)")
    db.execute("insert into late values (3)")
    db.commit()
    with pytest.raises(ForeignKeyViolation, match="table late"):
        old.execute("delete from p where id = 3")


# ---- through an owner, and over crashes


def test_a_client_has_foreign_keys_too(path: Path, peer: Peer) -> None:
    peer(f"import gmdb; db = gmdb.connect({str(path)!r})")
    with gmdb.connect(path) as db:
        assert type(db) is not Connection
        made(db, "on delete cascade deferrable")
        key = Constraint("foreign key", ("i",), references="p", key=("id",), valid=False, deferrable=True)
        db.add_constraint("c", key)
        assert db.table("c").constraint("c_i_fkey").references == "p"
        with pytest.raises(ForeignKeyViolation, match=r"= \(9"):
            db.insert("c", (1, 9))
        with pytest.raises(ForeignKeyViolation, match=r"= \(10"):
            db.validate_constraint("c", "c_i_fkey")
        db.drop_constraint("c", "c_i_fkey")
        db.set_constraints(None, deferred=True)
        db.insert("c", (1, 9))
        with pytest.raises(ForeignKeyViolation):
            db.commit()
        db.rollback()
        heap = db.heap("p")
        heap.delete(next(row_id for row_id, row in heap.rows() if row[0] == 1))
        assert rows(db, "select i from c") == [(20,)]
        db.truncate_table("p", cascade=True)
        db.drop_table("p", "c")
    peer("db.close()")


VICTIM = """
import sys, time
from pathlib import Path
from tests.model.foreign_keys import Player
players = [Player(Path(sys.argv[1]), int(sys.argv[2]) + n, 1 << 30) for n in range(3)]
for player in players:
    player.start()
while min(player.counts['committed'] for player in players) < 3:
    time.sleep(0.01)
print('on', flush=True)
for player in players:
    player.join()
"""


@pytest.mark.search
def test_no_crash_leaves_an_orphan(path: Path) -> None:
    chance = random.Random(5)
    with gmdb.connect(path) as db:
        make(db, chance)
    for seed in range(extent(2, 60)):
        victim = subprocess.Popen(
            [sys.executable, "-c", VICTIM, str(path), str(seed * 10)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert victim.stdout is not None
        assert victim.stdout.readline() == b"on\n"
        time.sleep(chance.uniform(0, 0.5))
        victim.send_signal(signal.SIGKILL)
        victim.wait()
        victim.stdout.close()
        with gmdb.connect(path) as db:
            assert not orphans(db)
    assert_sound(path)


# ---- ALTER TABLE of tables that refer to each other


def test_columns_of_foreign_keys_are_dropped_and_get_other_types(db: Connection) -> None:
    made(db, "on delete cascade")
    with pytest.raises(SchemaError, match="constraint c_p_fkey of table c refers to it"):
        db.execute("alter table p drop column id")
    with pytest.raises(SchemaError, match="column p is INT, and id of table p is VARCHAR"):
        db.execute("alter table p alter column id type varchar(20)")
    db.execute("alter table p alter column id type bigint")
    db.execute("alter table c add column more int, alter column p type bigint")
    with pytest.raises(ForeignKeyViolation):
        db.execute("insert into c values (1, 9, 9)")
    with pytest.raises(ForeignKeyViolation, match=r"= \(101"):
        db.execute("alter table c alter column p type bigint using p + 100")
    with pytest.raises(ForeignKeyViolation, match=r"= \(1"):
        db.execute("alter table p alter column id type int using id::int + 100")
    db.execute("alter table c rename constraint c_p_fkey to owner")
    db.execute("delete from p where id = 1")
    assert rows(db, "select i, p from c") == [(20, 2)]
    db.execute("savepoint s")
    db.execute("alter table c drop column p")
    assert db.table("p").referenced == 0
    db.execute("rollback to s")
    assert db.table("p").referenced == 1
    db.execute("alter table p drop column id cascade")
    assert db.table("c").constraints == ()
    assert db.table("p").referenced == 0


def test_definitions_wait_for_what_is_to_be_checked(db: Connection) -> None:
    made(db, "deferrable initially deferred")
    db.execute("insert into c values (1, 77)")
    for statement in ("alter table c rename constraint c_p_fkey to x", "drop table c", "truncate c"):
        with pytest.raises(SchemaError, match="yet to check"):
            db.execute(statement)
    db.execute("delete from c where p = 77")
    db.execute("set constraints all immediate")
    with pytest.raises(SchemaError, match="yet to check"):  # a savepoint might still take the deletion back
        db.execute("drop table c")
    db.commit()
    db.execute("drop table c")
