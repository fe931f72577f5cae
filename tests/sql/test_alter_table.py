"""ALTER TABLE: columns go, get other types, and come again; who looks on sees the table before or after."""

from __future__ import annotations

import subprocess
import sys
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.cli.shell.outputs import described
from gmdb.database.connection import Connection
from gmdb.errors import (
    CheckViolation,
    DataError,
    DefinitionChanged,
    Error,
    IllTyped,
    InvalidText,
    LockTimeout,
    NoSuchColumn,
    NoSuchIndex,
    NoSuchTable,
    NullNotAllowed,
    SchemaError,
    UniqueViolation,
    UnsupportedExpression,
    ValueTooLong,
    WriteConflict,
)
from gmdb.tables.access.indexes import KeyRange
from tests.integrity import assert_sound
from tests.server.peer import Peer
from tests.sessions import Connect, answer, connect, start_waiting

__all__ = ["connect"]


@pytest.fixture
def table(db: Connection) -> Connection:
    make(db)
    return db


def make(db: Connection) -> None:
    """Thirty rows of every kind of column, with keys and checks on some."""
    db.execute(
        "create table t (id int primary key, s varchar(10) default 'none', n int unique, d decimal(6,2), "
        "b boolean, constraint positive check (n > 0), constraint below check (n < id + 1000))"
    )
    db.execute("insert into t select i, 'r' || i, i * 2, i / 4.0, i % 2 = 0 from generate_series(1, 30) as g(i)")
    db.execute("create index t_s_n on t (s, n)")
    db.execute("create index t_d on t using hash (d)")
    db.commit()


def ask(db: Connection, text: str) -> list[Any]:
    return db.execute(text).fetchall()


def shape(db: Connection) -> list[tuple[str, str]]:
    return [(column.name, str(column.type)) for column in db.table("t").columns]


def kept(db: Connection) -> tuple[set[str], set[str]]:
    """The indexes and constraints that a table has."""
    definition = db.table("t")
    return {index.name for index in definition.indexes}, {one.name for one in definition.constraints}


def everything(db: Connection) -> Any:
    """The table by every way that leads to it."""
    found = ask(db, "select * from t order by id")
    names = [column.name for column in db.table("t").columns]
    by_arrow = db.arrow("t").read_all()
    assert by_arrow.column_names == names
    assert sorted(zip(*(column.to_pylist() for column in by_arrow.columns), strict=True), key=str) == sorted(
        found, key=str
    )
    for index in db.table("t").indexes:
        assert db.heap("t").by(index.name).tree is not None
        walked = [row for _, row in db.heap("t").by(index.name).walk(KeyRange())] if index.using == "btree" else found
        assert sorted(walked, key=str) == sorted(found, key=str)
    return shape(db), kept(db), found


# ---- dropping columns


def test_a_column_that_is_dropped_is_nowhere_any_more(table: Connection) -> None:
    table.execute("alter table t drop column d")
    assert shape(table) == [("id", "INT"), ("s", "VARCHAR(10)"), ("n", "INT"), ("b", "BOOLEAN")]
    assert everything(table)[2][0] == (1, "r1", 2, False)
    table.execute("insert into t values (31, 'new', 62, true)")
    assert ask(table, "select * from t where n = 62") == [(31, "new", 62, True)]
    with pytest.raises(NoSuchColumn):
        table.execute("select d from t")
    columns = ask(table, "select name from sys_columns where obj_id = (select obj_id from sys_tables where name = 't')")
    assert [name for (name,) in columns] == ["id", "s", "n", "b"]


def test_what_needs_a_column_goes_with_it(table: Connection) -> None:
    table.execute("alter table t drop column n cascade")
    assert kept(table) == ({"t_pkey", "t_d"}, {"t_pkey"})
    table.execute("alter table t drop column id restrict")
    assert kept(table) == ({"t_d"}, set())
    table.execute("insert into t (s) values (null)")
    table.execute("create index t_s_n on t (s)")  # the names are free
    table.execute("alter table t add constraint positive check (d > -1)")


def test_a_column_of_the_same_name_can_come_again(table: Connection) -> None:
    table.execute("alter table t drop column n, add column n varchar(5)")
    assert ask(table, "select distinct n from t") == [(None,)]
    assert shape(table)[-1] == ("n", "VARCHAR(5)")
    assert table.table("t").numbers == (0, 1, 3, 4, 5)
    table.execute("alter table t drop n")
    table.execute("alter table t add z int")
    assert table.table("t").numbers == (0, 1, 3, 4, 6)  # no number is another column's later
    table.truncate_table("t")
    assert table.table("t").numbers == (0, 1, 3, 4, 6)


def test_columns_that_cannot_be_dropped(table: Connection) -> None:
    table.execute("alter table t drop column if exists nope")
    table.execute('alter table t drop column if exists "S"')
    for text, error in [
        ("alter table t drop column nope", NoSuchColumn),
        ('alter table t drop column "S"', NoSuchColumn),
        ('alter table t rename column "S" to x', NoSuchColumn),
        ('alter table t alter column "S" drop default', NoSuchColumn),
        ("alter table t drop column s, rename to u", UnsupportedExpression),
        ("alter table t rename column n to m, drop column s", UnsupportedExpression),
        ("alter table t drop column s, drop column s", SchemaError),
        ("alter table t drop id, drop s, drop n, drop d, drop b", SchemaError),
        ("alter table t drop column s, alter column s type int", SchemaError),
        ("alter table sys_tables drop column name", SchemaError),
    ]:
        before = everything(table)
        with pytest.raises(error):
            table.execute(text)
        assert everything(table) == before


# ---- other types


@pytest.mark.parametrize(
    "change",
    ["s type varchar(4000)", "s set data type text", "d type numeric(9, 2)", "n type int", "d type decimal(7,2)"],
)
def test_a_wider_type_changes_the_catalog_only(table: Connection, change: str) -> None:
    before, rows = table.table("t").obj_id, ask(table, "select * from t order by id")
    table.execute(f"alter table t alter column {change}")
    assert table.table("t").obj_id == before
    assert everything(table)[2] == rows
    table.execute("update t set s = s || 'x', d = d + 1")
    everything(table)


def test_every_type_becomes_what_it_can_become(table: Connection) -> None:
    table.execute("alter table t alter n type bigint, alter d type double precision, alter b type text")
    assert everything(table)[2][0] == (1, "r1", 2, 0.25, "false")
    assert kept(table) == ({"t_pkey", "t_n_key", "t_s_n", "t_d"}, {"t_pkey", "t_n_key", "positive", "below"})
    table.execute("alter table t alter d type decimal(4,1), alter s type char(12)")
    assert everything(table)[2][1][:4] == (2, "r2".ljust(12), 4, Decimal("0.5"))
    table.execute("insert into t values (99999999, 'x', 12345678, 1.5, 'x')")
    with pytest.raises(UniqueViolation):
        table.execute("insert into t values (100, 'x', 4, 1.5, 'x')")


def test_using_says_what_values_become_by_the_columns_of_before(table: Connection) -> None:
    table.execute("alter table t drop constraint positive, drop constraint below, alter s drop default")
    table.execute("alter table t alter s type int using substr(s, 2)::int + n, alter n type text")
    assert ask(table, "select s, n from t where id = 3") == [(9, "6")]
    assert ask(table, "select id from t where s = 9") == [(3,)]


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ("alter s type int", IllTyped, "column s, VARCHAR.10., does not become INT by itself.*USING s::INT"),
        ("alter s drop default, alter s type int using s::int", InvalidText, "'r1'"),
        ("alter s type int using substr(s, 2)::int", SchemaError, "the default of column s, 'none', is none for INT"),
        ("alter s drop default, alter s type varchar(2)", ValueTooLong, "'r10' has 3 bytes"),
        ("alter d type decimal(2,2)", Error, "7.50|1.00"),
        ("alter n type int using n / 4", UniqueViolation, "t_n_key"),
        ("alter n type int using 0 - n", CheckViolation, "positive|n > 0"),
        ("alter n type text", SchemaError, "constraint positive: CHECK .n > 0. has no meaning any more"),
        ("alter n type boolean using n > 3", SchemaError, "constraint positive"),
        ("alter n type int using nullif(n, n), alter n set not null", NullNotAllowed, "n"),
        ("alter id type int using nullif(id, 7)", NullNotAllowed, "id"),
        ("alter n type int, alter n type bigint", SchemaError, "changed twice"),
        ("alter n type int using (select 1)", UnsupportedExpression, "a query cannot stand in USING"),
        ("alter n type int using sum(n)", Error, "aggregate"),
        ("alter n type int using ?", Error, "parameter"),
        ("alter n type numeric", UnsupportedExpression, "how many digits"),
        ("alter d type blob using s::bytea", SchemaError, "index t_d: column d cannot be a BLOB in a key"),
        ('alter s type text collate "C"', UnsupportedExpression, "collate|COLLATE"),
        ("add column x int default 3, alter column nope type int", NoSuchColumn, "nope"),
        ("add column x int default 3, add constraint x check (x > 5)", CheckViolation, "x > 5"),
    ],
)
def test_what_cannot_be_leaves_nothing(table: Connection, text: str, error: type[Error], said: str) -> None:
    before = everything(table)
    table.execute("insert into t (id, n) values (50, 500)")
    with pytest.raises(error, match=said):
        table.execute(f"alter table t {text}")
    table.execute("delete from t where id = 50")
    assert everything(table) == before
    table.commit()
    assert table.verify().findings == []


def test_a_new_column_has_its_default_in_rows_that_are_there(table: Connection) -> None:
    table.execute(
        "alter table t add column if not exists s text default 'other', add x text default 'new' not null, "
        "add at timestamp default now(), add u int default null, add column if not exists x int default 1"
    )
    assert shape(table)[5:] == [("x", "TEXT"), ("at", "TIMESTAMP"), ("u", "INT")]
    ((x, at, u),) = ask(table, "select distinct x, at, u from t")
    assert (x, at is None, u) == ("new", False, None)
    assert ask(table, "insert into t (id) values (99) returning x, s") == [("new", "none")]
    everything(table)
    for text, error in [
        ("add y int not null", NullNotAllowed),
        ("add y int, add y text default 'x'", SchemaError),
        ("add s int default 5", SchemaError),
        ("add y varchar(2) default 'long'", ValueTooLong),
        ("add y int default 5 unique", UniqueViolation),
        ("add y int default id", Error),
    ]:
        before = everything(table)
        with pytest.raises(error):
            table.execute(f"alter table t {text}")
        assert everything(table) == before


def test_an_identity_that_is_added_numbers_the_rows(table: Connection) -> None:
    table.execute(
        "alter table t drop column id, add k bigint generated always as identity primary key, add c clob default 'x'"
    )
    assert sorted(ask(table, "select k, c from t")) == [(k, "x") for k in range(1, 31)]
    table.execute("alter table t drop c, add j int generated by default as identity")
    assert sorted(j for (j,) in ask(table, "select j from t")) == list(range(1, 31))
    assert ask(table, "insert into t (s) values ('x') returning k, j") == [(31, 31)]
    table.commit()
    assert table.verify().findings == []


def test_actions_have_postgresqls_order(table: Connection) -> None:
    table.execute("alter table t add constraint c check (x > 2), add column x int default 3, drop column s")
    assert ask(table, "select distinct x from t") == [(3,)]
    table.execute("alter table t alter x set default 9, alter x type text, drop constraint c")
    assert ask(table, "insert into t (id) values (99) returning x") == [("9",)]


def test_large_objects_go_along(db: Connection) -> None:
    db.execute("create table t (id int, c clob, b blob, s varchar(100))")
    db.execute("insert into t values (1, repeat('long ', 20000), '\\x0102'::bytea, 'short'), (2, null, null, null)")
    db.execute("alter table t drop column s")
    db.execute("alter table t alter id type bigint, add column s clob")
    assert ask(db, "select id, length(c), b from t order by id") == [(1, 100000, b"\1\2"), (2, None, None)]
    db.execute("alter table t drop column c, drop column s")
    db.execute("alter table t alter b type varbinary(10)")
    assert db.table("t").lobs is None
    db.execute("alter table t alter b type blob")
    assert ask(db, "select * from t order by id") == [(1, b"\1\2"), (2, None)]


# ---- others


def test_readers_go_on_with_the_old_table(table: Connection, connect: Connect) -> None:
    reader, other = connect("repeatable read"), connect()
    before = everything(reader)
    half_read = other.select("t", ["s", "d"]).rows()
    first = next(half_read)[1]
    table.execute("alter table t drop column n, alter s type char(20)")
    assert everything(reader) == before
    assert everything(connect()) == before
    table.commit()
    assert everything(reader) == before
    assert [first, *(row for _, row in half_read)] == [row[1:4:2] for row in before[2]]
    assert everything(connect()) == everything(table) != before
    with pytest.raises(WriteConflict):
        reader.execute("update t set s = 'x'")
    reader.rollback()
    assert everything(reader) == everything(table)


@pytest.mark.usefixtures("table")
def test_whoever_wrote_is_waited_for_and_is_in_it(connect: Connect) -> None:
    writer, changer = connect(), connect(lock_timeout=300)
    writer.execute("insert into t values (77, 'late', 777, 1, true)")
    with pytest.raises(LockTimeout):
        connect().execute("alter table t drop column b")
    altering = start_waiting(changer, lambda: changer.execute("alter table t alter n type bigint"))
    writer.commit()
    answer(altering)
    assert ask(changer, "select n from t where id = 77") == [(777,)]
    changer.commit()


def test_the_newest_rows_are_changed_whatever_the_transaction_has_seen(table: Connection, connect: Connect) -> None:
    old = connect("repeatable read")
    assert len(ask(old, "select * from t")) == 30
    table.execute("insert into t values (77, 'late', 777, 1, true)")
    table.commit()
    old.execute("alter table t drop column b")
    old.commit()
    assert len(ask(table, "select * from t")) == 31
    old.rollback()
    assert len(ask(old, "select * from t")) == 31


def test_a_check_is_asked_of_the_newest_rows(table: Connection, connect: Connect) -> None:
    old = connect("repeatable read")
    assert ask(old, "select count(*) from t") == [(30,)]
    table.execute("insert into t values (77, 'late', 777, 1, true)")
    table.commit()
    with pytest.raises(CheckViolation):
        old.execute("alter table t add constraint early check (id < 50)")


def test_a_savepoint_and_a_rollback_bring_everything_back(table: Connection) -> None:
    before = everything(table)
    table.execute("insert into t values (40, 'more', 400, 4, null)")
    table.savepoint("a")
    with_row = everything(table)
    table.execute("alter table t drop column s, alter d type double precision")
    table.execute("insert into t values (41, 410, 4.5, null)")
    table.execute("alter table t add column s int default 5")
    everything(table)
    table.rollback_to("a")
    assert everything(table) == with_row
    table.execute("alter table t drop column b")
    table.rollback()
    assert everything(table) == before


def test_it_lasts(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        db.execute("alter table t drop column s, alter b type text, add column k int default 2")
        db.commit()
        after, numbers = everything(db), db.table("t").numbers
        db.checkpoint()
        assert db.verify().findings == []
    with gmdb.connect(path) as again:
        assert (everything(again), again.table("t").numbers) == (after, numbers)
        again.execute("alter table t add column z int")
        assert again.table("t").numbers[-1] == 6
    assert_sound(path)


def test_statistics_of_columns_are_not_taken_for_those_of_others(table: Connection) -> None:
    table.execute("analyze t")
    assert table.statistics("t") is not None
    table.execute("alter table t drop column id")
    assert table.statistics("t") is None


# ---- who kept something of the table


def test_a_cursor_from_before_refuses_to_read_something_else(table: Connection, connect: Connect) -> None:
    other = connect()
    cursors = [other.select("t", ["n"]), other.select("t", ["n"], row_ids=[])]
    same, by_key = other.select("t", ["id"]), other.select("t", ["id"], by="t_pkey", keys=KeyRange((3,), (3,)))
    table.execute("alter table t drop column s")
    table.commit()
    for cursor in cursors:
        with pytest.raises(DefinitionChanged, match="table t has other columns by now"):
            list(cursor.rows()) or cursor.arrow().read_all()
    assert [row for _, row in same.rows()] == [(n,) for n in range(1, 31)]
    assert [row for _, row in by_key.rows()] == [(3,)]


def test_a_client_that_kept_something_refuses_too(peer: Peer, path: Path) -> None:
    peer("db = gmdb.connect(path)", path=str(path))
    peer("(db.execute('create table t (a int, b varchar(10), c int)'), db.commit()) and None")
    with gmdb.connect(path) as db:
        heap = db.heap("t")
        row_id = heap.insert((1, "one", 2))
        db.commit()
        cursor = db.select("t", ["c", "b"])
        assert [row for _, row in cursor.rows()] == [(2, "one")]
        db.commit()
        peer("(db.execute('alter table t alter a type varchar(5), add column d int'), db.commit()) and None")
        for action in (
            lambda: heap.insert((2, "two", 3)),
            lambda: list(heap.rows()),
            lambda: heap.update(row_id, {"b": "x"}),
            lambda: heap.statement().__enter__(),
        ):
            with pytest.raises((DefinitionChanged, DataError), match=r"other columns by now|3 values for 4"):
                action()
        db.rollback()
        assert [row for _, row in db.heap("t").rows()] == [("1", "one", 2, None)]
        db.commit()
        peer("(db.execute('alter table t alter c type varchar(5)'), db.commit()) and None")
        with pytest.raises(DefinitionChanged):
            list(cursor.rows())
        db.execute("alter table t drop column a, alter c type int using c::int + 1")
        assert db.execute("select * from t").fetchall() == [("one", 3, None)]
        db.commit()
    peer("db.close()")


def test_an_index_that_is_kept_is_not_that_of_the_new_rows(table: Connection, connect: Connect) -> None:
    by = connect().heap("t").by("t_s_n")
    table.execute("alter table t drop column s")
    table.commit()
    with pytest.raises((NoSuchIndex, Error)):
        list(by.walk(KeyRange()))


# ---- the change feed


def short(change: Any) -> tuple[Any, ...]:
    return (change.operation, *(change.row.values() if change.row is not None else ()))


def test_a_feed_reads_what_was_before_by_the_definition_of_then(db: Connection) -> None:
    db.execute("create table t (i int primary key, s varchar(20), k int) with (change_feed = true)")
    db.commit()
    feed = db.changes()
    db.execute("insert into t values (1, 'one', 10), (2, 'two', 20)")
    db.commit()
    db.execute("alter table t drop column s, alter k type varchar(30)")
    db.execute("update t set k = 'x' where i = 2")
    db.commit()
    db.execute("alter table t alter k type text")
    db.execute("insert into t values (3, 'three')")
    db.commit()
    assert [short(change) for change in feed] == [
        *[("insert", 1, "one", 10), ("insert", 2, "two", 20)],
        *[("truncate",), ("insert", 1, "10"), ("insert", 2, "20"), ("update", 2, "x"), ("insert", 3, "three")],
    ]
    assert {change.table for change in db.changes(since=feed.position)} == set()


# ---- names and comments


def names(db: Connection, table: str) -> tuple[list[str], list[str]]:
    definition = db.table(table)
    return [index.name for index in definition.indexes], [one.name for one in definition.constraints]


def test_everything_gets_other_names(table: Connection, connect: Connect) -> None:
    before = everything(table)
    table.execute("alter table t rename constraint positive to above")
    table.execute("alter table t rename constraint t_n_key to once")
    table.execute("alter index t_pkey rename to key")
    table.execute('alter index t_d rename to "by D"')
    table.execute('alter table t rename column n to "N 1"')
    table.execute("alter table t rename to u")
    assert names(table, "u") == (["key", "once", "t_s_n", "by D"], ["key", "once", "above", "below"])
    assert [one.text for one in table.table("u").constraints[2:]] == ['"N 1" > 0', '"N 1" < id + 1000']
    with pytest.raises(CheckViolation, match="constraint above"):
        table.execute('insert into u (id, "N 1") values (99, -1)')
    with pytest.raises(UniqueViolation, match="index once"):
        table.execute('insert into u (id, "N 1") values (99, 4)')
    assert ask(table, 'select id from u where "N 1" = 4') == [(2,)]
    assert names(connect(), "t") == (["t_pkey", "t_n_key", "t_s_n", "t_d"], ["t_pkey", "t_n_key", "positive", "below"])
    table.rollback()
    assert everything(table) == before


def test_names_that_are_taken_or_not_there(table: Connection, connect: Connect) -> None:
    for text, error in [
        ("alter index t_d rename to t_s_n", SchemaError),
        ("alter index t_pkey rename to positive", SchemaError),
        ("alter index nope rename to x", NoSuchIndex),
        ("alter table t rename constraint nope to x", Error),
        ("alter table t rename constraint positive to below", SchemaError),
        ("alter table t rename constraint t_n_key to t_d", SchemaError),
        ("alter table t rename column n to s", SchemaError),
        ("alter table nope rename constraint a to b", NoSuchTable),
        (f"alter index t_d rename to {'x' * 64}", SchemaError),
        ("alter index t_d set (fillfactor = 50)", Error),
    ]:
        with pytest.raises(error):
            table.execute(text)
    table.execute("alter index if exists nope rename to x")
    table.execute("alter table if exists nope rename constraint a to b")
    other = connect()
    other.execute("create table v (i int)")
    table.execute("alter index t_d rename to other")
    with pytest.raises(LockTimeout):  # the names are held until it is known whether they are given
        other.execute("create index other on v (i)")
    table.rollback()


def test_comments_last_with_what_they_are_on(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        db.execute("comment on table t is 'it''s\nthe table'")
        db.execute("comment on column t.n is 'doubled'")
        db.execute("comment on index t_s_n is 'for the list'")
        db.execute("comment on constraint positive on t is '…'")
        db.execute("comment on constraint t_n_key on t is 'once'")
        db.execute("comment on column t.s is 'gone soon'")
        db.execute("comment on column t.s is null")
        db.savepoint("here")
        db.execute("comment on table t is ''")
        assert db.table("t").comment is None
        db.rollback_to("here")
        db.execute("alter table t drop column b, alter d type double precision")
        db.execute("alter table t rename constraint positive to above")
        for text, error in [
            ("comment on table t is 5", Error),
            ("comment on column n is 'x'", Error),
            ("comment on table nope is 'x'", NoSuchTable),
            ("comment on column t.nope is 'x'", NoSuchColumn),
            ("comment on table sys_tables is 'x'", SchemaError),
            (f"comment on table t is '{'x' * 5000}'", SchemaError),
        ]:
            with pytest.raises(error):
                db.execute(text)
        with pytest.raises(SchemaError, match="a comment is on a table"):
            db.comment("x", column="n")
    with gmdb.connect(path) as db:
        table = db.table("t")
        comments = {one.name: one.comment for one in (table, *table.columns, *table.indexes, *table.constraints)}
        assert {name: text for name, text in comments.items() if text is not None} == {
            **{"t": "it's\nthe table", "n": "doubled", "t_s_n": "for the list", "above": "…", "t_n_key": "once"},
        }
        shown = [row for piece in list(described(table))[-1].pieces for row in piece]
        assert ("column", "n", "doubled") in shown
        db.comment(None, table="t", column="n")
        assert db.table("t").column("n").comment is None


def test_a_default_may_call_a_function_in_the_first_statement_of_a_process(path: Path) -> None:
    code = "import gmdb, sys; gmdb.connect(sys.argv[1]).execute('create table t (i int, at timestamp default now())')"
    assert subprocess.run([sys.executable, "-c", code, str(path)], check=False).returncode == 0


def test_partial_indexes_stay_right_when_columns_move_or_go(db: Connection) -> None:
    db.execute("create table t (a integer, b integer, c integer, d varchar(10))")
    db.execute("create unique index t_part on t (c) where b > 10")
    db.execute("create index t_text on t (b) where d = 'x'")
    db.executemany("insert into t values (?, ?, ?, ?)", [(i, i, i % 11 if i <= 10 else i, "x") for i in range(40)])
    db.execute("alter table t drop column a")
    with pytest.raises(UniqueViolation):
        db.execute("insert into t values (11, 12, 'y')")
    db.execute("insert into t values (10, 12, 'y')")
    assert db.execute("select count(*) from t where c = 12 and b > 10").fetchone() == (1,)
    db.execute("alter table t alter column b type bigint")
    with pytest.raises(UniqueViolation):
        db.execute("update t set b = 11 where b = 10 and d = 'y'")
    db.execute("alter table t rename column b to bb")
    assert [one.condition for one in db.table("t").indexes if one.name == "t_part"] == ['"bb" > 10']
    db.execute("alter table t drop column d")
    assert [one.name for one in db.table("t").indexes] == ["t_part"]
    with pytest.raises(SchemaError, match="t_part"):
        db.execute("alter table t alter column bb type varchar(20)")
