"""PEP 249, and what people expect beside it: of a connection of this process, and of one through an owner."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, InvalidSyntax, ProgrammingError, UniqueViolation

TYPES = """i int primary key, b bigint, d double precision, n decimal(12,3), t boolean, day date, at timestamp,
           s varchar(20), x varbinary(9)"""
ROW = (1, 1 << 40, 0.5, Decimal("12.345"), True, date(2024, 2, 29), datetime(2024, 2, 29, 1, 2, 3, 4), "grüß", b"\0\1")


@pytest.fixture(params=["local", "remote"])
def db(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Connection]:
    path = tmp_path / "d.gmdb"
    is_remote = request.param == "remote"
    if is_remote:
        request.getfixturevalue("peer")("own = gmdb.connect(path)", path=str(path))
    try:
        with gmdb.connect(path) as connection:
            yield connection
    finally:
        if is_remote:
            request.getfixturevalue("peer")("own.close()")


# ---- the module


def test_module_attributes() -> None:
    assert (gmdb.apilevel, gmdb.threadsafety, gmdb.paramstyle) == ("2.0", 2, "qmark")
    assert callable(gmdb.connect)


TREE = {
    "Warning": Exception,
    "Error": Exception,
    "InterfaceError": gmdb.Error,
    "DatabaseError": gmdb.Error,
    "DataError": gmdb.DatabaseError,
    "OperationalError": gmdb.DatabaseError,
    "IntegrityError": gmdb.DatabaseError,
    "InternalError": gmdb.DatabaseError,
    "ProgrammingError": gmdb.DatabaseError,
    "NotSupportedError": gmdb.DatabaseError,
}


@pytest.mark.parametrize("name", TREE)
def test_exceptions_are_a_tree_and_attributes_of_connections(db: Connection, name: str) -> None:
    assert getattr(gmdb, name).__bases__ == (TREE[name],)
    assert getattr(db, name) is getattr(gmdb, name)


def test_constructors() -> None:
    assert gmdb.Date(2002, 12, 25) == date(2002, 12, 25)
    assert gmdb.Time(13, 45, 30) == time(13, 45, 30)
    assert gmdb.Timestamp(2002, 12, 25, 13, 45, 30) == datetime(2002, 12, 25, 13, 45, 30)
    moment = datetime(2002, 12, 25, 13, 45, 30)
    ticks = moment.timestamp()  # of the local time, as PEP 249 has it
    assert gmdb.DateFromTicks(ticks) == moment.date()
    assert gmdb.TimeFromTicks(ticks) == moment.time()
    assert gmdb.TimestampFromTicks(ticks) == moment
    assert gmdb.Binary(b"\0a") == b"\0a"


def test_type_objects_stand_for_the_types_of_columns(db: Connection) -> None:
    db.execute(f"create table t ({TYPES})")
    codes = [one[1] for one in db.execute("select * from t").description or ()]
    kinds = [gmdb.NUMBER] * 5 + [gmdb.DATETIME] * 2 + [gmdb.STRING, gmdb.BINARY]
    assert codes == kinds
    every = [gmdb.STRING, gmdb.BINARY, gmdb.NUMBER, gmdb.DATETIME, gmdb.ROWID]
    for code, kind in zip(codes, kinds, strict=True):
        assert [other for other in every if other == code] == [kind]
    assert len({*every, *every}) == 5


# ---- connections


def test_a_connection_has_what_pep_249_asks_for_and_not_what_it_may_leave_out(db: Connection) -> None:
    cursor = db.cursor()
    for name in ("close", "commit", "rollback", "cursor"):
        assert callable(getattr(db, name))
    for absent in ("messages", "errorhandler", "xid", "tpc_begin"):
        assert not hasattr(db, absent)
    for absent in ("callproc", "nextset", "messages", "scroll"):
        assert not hasattr(cursor, absent)
    assert cursor.connection is db


def test_a_block_commits_or_rolls_back_and_closes(db: Connection) -> None:
    with gmdb.connect(db.path) as one:
        one.execute("create table t (i int primary key)")
    assert one.closed
    with pytest.raises(UniqueViolation), gmdb.connect(db.path) as two:
        two.executescript("insert into t values (1); insert into t values (1)")
    assert two.closed
    assert db.execute("select count(*) from t").fetchone() == (0,)


def test_the_isolation_changes_between_transactions_only(db: Connection) -> None:
    assert db.isolation == "read committed"
    db.execute("create table t (i int)")
    with pytest.raises(InterfaceError, match="within a transaction"):
        db.isolation = "repeatable read"
    db.commit()
    db.isolation = "repeatable read"
    assert db.isolation == "repeatable read"
    assert db.execute("select count(*) from t").fetchone() == (0,)
    with gmdb.connect(db.path) as other:
        other.execute("insert into t values (1)")
    assert db.execute("select count(*) from t").fetchone() == (0,)
    db.rollback()
    assert db.execute("select count(*) from t").fetchone() == (1,)
    db.rollback()
    with pytest.raises(ProgrammingError, match="not one of"):
        db.isolation = "snapshot"


def test_a_connection_goes_from_thread_to_thread(db: Connection) -> None:
    """Threads may not use one at the same time, but one after the other, as pools have them do."""
    db.execute("create table t (i int primary key)")
    cursor = db.cursor()

    def insert(number: int) -> int:
        cursor.execute("insert into t values (?)", (number,))
        return threading.get_ident()

    with ThreadPoolExecutor(1) as one, ThreadPoolExecutor(1) as two:
        assert one.submit(insert, 1).result() != two.submit(insert, 2).result()
        assert one.submit(lambda: db.execute("select count(*) from t").fetchone()).result() == (2,)
        two.submit(db.commit).result()
        one.submit(db.rollback).result()
    assert db.execute("select count(*) from t").fetchone() == (2,)


def test_threads_share_the_module(db: Connection) -> None:
    db.execute("create table t (i int primary key)")
    db.commit()

    def work(start: int) -> int:
        with gmdb.connect(db.path) as own:
            for number in range(start, start + 20):
                own.execute("insert into t values (?)", (number,))
            return len(own.execute("select i from t where i >= ? and i < ?", (start, start + 20)).fetchall())

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, range(0, 80, 20))) == [20] * 4
    assert db.execute("select count(*) from t").fetchone() == (80,)


def test_nothing_works_once_the_connection_is_closed(db: Connection) -> None:
    cursor = db.execute("select 1 union all select 2")
    db.close()
    db.close()
    uses: list[Callable[[], Any]] = [
        db.commit,
        db.rollback,
        db.cursor,
        db.tables,
        lambda: db.execute("select 1"),
        lambda: cursor.execute("select 1"),
        lambda: cursor.executemany("select 1", []),
        cursor.fetchone,
        cursor.fetchmany,
        cursor.fetchall,
        cursor.arrow,
        lambda: list(cursor),
    ]
    for use in uses:
        with pytest.raises(gmdb.InterfaceError, match="closed"):
            use()
    assert db.closed


# ---- cursors


def test_before_the_first_statement_a_cursor_knows_nothing(db: Connection) -> None:
    cursor = db.cursor()
    assert cursor.description is None
    assert cursor.rowcount == -1
    assert cursor.lastrowid is None
    assert cursor.arraysize == 1
    for fetch in (cursor.fetchone, cursor.fetchmany, cursor.fetchall):
        with pytest.raises(ProgrammingError, match="nothing to fetch"):
            fetch()
    assert cursor.setinputsizes([gmdb.STRING, 10]) is None  # type: ignore[func-returns-value]
    assert cursor.setoutputsize(1000) is None  # type: ignore[func-returns-value]
    assert cursor.setoutputsize(1000, 1) is None  # type: ignore[func-returns-value]


def test_a_description_has_seven_items_a_column(db: Connection) -> None:
    db.execute("create table t (i int, n decimal(12,3), s varchar(20))")
    described = db.execute("select i, n, s, s || 'x' as longer, null as nothing from t").description
    assert described == [
        ("i", "INT", None, None, None, None, None),
        ("n", "DECIMAL", None, None, 12, 3, None),
        ("s", "VARCHAR", 20, 20, None, None, None),
        ("longer", "VARCHAR", None, None, None, None, None),
        ("nothing", "VARCHAR", None, None, None, None, None),
    ]
    assert db.execute("create table u (i int)").description is None
    assert db.execute("insert into u values (1)").description is None
    assert [one[0] for one in db.execute("insert into u values (2) returning i as j").description or ()] == ["j"]


def test_rowcount(db: Connection) -> None:
    cursor = db.cursor()
    assert cursor.execute("create table t (i int primary key)").rowcount == -1
    assert cursor.execute("insert into t values (1), (2), (3)").rowcount == 3
    assert cursor.execute("update t set i = i + 10 where i > 1").rowcount == 2
    assert cursor.execute("update t set i = 0 where i = 99").rowcount == 0
    assert cursor.executemany("delete from t where i = ?", [(1,), (99,), (12,)]).rowcount == 2
    assert cursor.executemany("delete from t where i = ?", []).rowcount == 0
    assert cursor.execute("select i from t").rowcount in (-1, 1)
    assert cursor.execute("delete from t returning i").rowcount == 1


def test_lastrowid_is_the_number_of_the_last_row_inserted(db: Connection) -> None:
    cursor = db.cursor()
    cursor.execute("create table t (s varchar(9), id int generated by default as identity primary key)")
    assert cursor.lastrowid is None
    assert cursor.execute("insert into t values ('a')").lastrowid == 1
    assert cursor.execute("insert into t values ('b'), ('c')").lastrowid == 3
    assert cursor.execute("insert into t values ('d') returning s").lastrowid == 4
    assert cursor.execute("insert into t (s, id) values ('e', 70)").lastrowid == 70
    assert cursor.execute("insert into t (s, id) values ('e', 70) on conflict do nothing").lastrowid is None
    assert cursor.execute("select 1").lastrowid is None
    assert cursor.execute("insert into t select 'f'").lastrowid == 5
    cursor.close()
    assert cursor.lastrowid == 5
    db.execute("create table u (a bigint primary key)")
    assert db.execute("insert into u values (?)", (1 << 40,)).lastrowid == 1 << 40
    db.execute("create table w (a varchar(3) primary key)")
    assert db.execute("insert into w values ('x')").lastrowid is None


def test_values_of_every_type_go_in_and_come_out(db: Connection) -> None:
    cursor = db.cursor()
    cursor.execute(f"create table t ({TYPES})")
    cursor.execute("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?)", ROW)
    assert cursor.rowcount == 1
    cursor.execute("select * from t where i = :i", {"i": 1})
    assert cursor.fetchone() == ROW
    assert cursor.fetchone() is None
    assert [one[0] for one in cursor.description or ()] == ["i", "b", "d", "n", "t", "day", "at", "s", "x"]
    assert [one[1] for one in cursor.description or ()][3] == gmdb.NUMBER
    nulls = (2, *[None] * 8)
    cursor.execute("insert into t values (?, ?, ?, ?, ?, ?, ?, ?, ?)", nulls)
    assert db.execute("select * from t order by i").fetchall() == [ROW, nulls]


def test_fetching(db: Connection) -> None:
    db.execute("create table t (i int primary key)")
    db.executemany("insert into t values (?)", [(n,) for n in range(250)])
    cursor = db.execute("select i from t order by i")
    assert cursor.fetchmany(3) == [(0,), (1,), (2,)]
    assert cursor.fetchone() == (3,)
    assert [row[0] for row in cursor] == list(range(4, 250))
    assert cursor.fetchall() == []
    assert db.execute("select i from t where i < 5").arrow().to_pydict() == {"i": [0, 1, 2, 3, 4]}
    reader = db.execute("select i from t").fetch_record_batch()
    assert sum(len(batch) for batch in reader) == 250
    cursor = db.execute("delete from t")
    assert cursor.rowcount == 250
    assert cursor.description is None
    with pytest.raises(ProgrammingError):
        cursor.fetchone()


def test_fetching_goes_on_where_it_stopped(db: Connection) -> None:
    db.execute("create table t (i int primary key)")
    db.executemany("insert into t values (?)", [(n,) for n in range(9)])
    cursor = db.execute("select i from t order by i")
    assert next(cursor) == (0,)
    assert cursor.fetchmany() == [(1,)]
    cursor.arraysize = 2
    assert cursor.fetchmany() == [(2,), (3,)]
    assert cursor.fetchmany(0) == []
    assert next(iter(cursor)) == (4,)
    assert cursor.fetchmany(100) == [(5,), (6,), (7,), (8,)]
    assert cursor.fetchmany(1) == []
    assert cursor.fetchone() is None
    assert list(cursor) == []
    with pytest.raises(StopIteration):
        next(cursor)
    with pytest.raises(ProgrammingError, match="-1 rows"):
        cursor.fetchmany(-1)
    assert db.execute("select i from t where i > 99").fetchall() == []


def test_cursors_of_a_connection_see_each_others_changes(db: Connection) -> None:
    one, two = db.cursor(), db.cursor()
    one.execute("create table t (i int)")
    two.execute("insert into t values (1)")
    one.execute("insert into t values (2)")
    assert two.execute("select sum(i) from t").fetchall() == [(3,)]


def test_many_sets_of_parameters(db: Connection) -> None:
    db.execute("create table t (i int primary key, s varchar(5) default 'x', n int)")
    assert db.executemany("insert into t (i, n) values (?, ?)", [(n, n * n) for n in range(300)]).rowcount == 300
    named = [{"a": n, "b": n} for n in range(300, 310)]
    assert db.executemany("insert into t (i, n) values (:a, :b)", named).rowcount == 10
    table = pa.table({"i": [1000, 1001], "n": [1, None]})
    assert db.executemany("insert into t (i, n) values (?, ?)", table).rowcount == 2
    assert db.execute("select count(*), count(n), min(s) from t").fetchone() == (312, 311, "x")
    assert db.executemany("update t set n = ? where i = ?", [(5, 0), (6, 1)]).rowcount == 2
    db.commit()
    with pytest.raises(UniqueViolation):
        db.executemany("insert into t (i) values (?)", [(n,) for n in range(5000, 5100)] + [(0,)])
    assert db.execute("select count(*) from t").fetchone() == (312,)


def test_numbered_parameters_may_stand_in_any_order_and_several_times(db: Connection) -> None:
    assert db.execute("select $2 - $1, $1 % $2, $2", (3, 10)).fetchall() == [(7, 3, 10)]
    db.execute("create table n (a int, b text)")
    db.executemany("insert into n values ($2, $1)", [("x", 1), ("y", 2)])
    assert db.execute("update n set b = $1 where a = $2 and b <> $1 returning b", ("z", 2)).fetchall() == [("z",)]
    assert db.execute("select a from n where b in ($1, $2, $1)", ("x", "z")).fetchall() == [(1,), (2,)]


@pytest.mark.parametrize(
    ("statement", "parameters", "said"),
    [
        ("select ?", (), "1 parameters, but 0"),
        ("select 1", (1,), "0 parameters, but 1"),
        ("select :a", (1,), "named parameters"),
        ("select :a", {"b": 1}, "no value for parameter :a"),
        ("select ?, :a", (1,), "either"),
        ("select $1, ?", (1, 2), "either"),
        ("select $2, $3", (1, 2, 3), r"there is no \$1"),
        ("select $1, $1", (1, 2), "1 parameters, but 2"),
        ("select $0", (), "from 1 to"),
        ("select %s", (1,), r"written as \?, \$1 or :name"),
        ("select 1 where 1 = %(a)s", {"a": 1}, r"written as \?, \$1 or :name"),
        ("", (), "no statement"),
        ("select 1; select 2", (), "more than one"),
        (None, (), "a statement is a str"),
        ("select ?", 5, "a sequence, such as a tuple"),
        ("select ?", "x", "a sequence, such as a tuple"),
    ],
)
def test_wrong_parameters_are_refused(db: Connection, statement: str, parameters: Any, said: str) -> None:
    with pytest.raises(ProgrammingError, match=said):
        db.execute(statement, parameters)


@pytest.mark.parametrize(
    ("statement", "sets", "said"),
    [
        ("insert into t values (?)", 5, "many sets"),
        ("insert into t values (?)", "ab", "many sets"),
        ("insert into t values (?)", [5], "a sequence, such as a tuple"),
        ("insert into t values (?)", [(1,), (1, 2)], "1 parameters, but 2"),
        ("select ?", [(1,)], "statements that change rows"),
    ],
)
def test_wrong_sets_of_parameters_are_refused(db: Connection, statement: str, sets: Any, said: str) -> None:
    db.execute("create table t (i int)")
    with pytest.raises(ProgrammingError, match=said):
        db.executemany(statement, sets)
    assert db.execute("select count(*) from t").fetchone() == (0,)


def test_none_is_no_parameters(db: Connection) -> None:
    assert db.execute("select 1", None).fetchall() == [(1,)]


def test_a_parameter_by_itself_comes_back_as_it_was_given(db: Connection) -> None:
    given = (5, 1 << 40, 0.5, Decimal("1.50"), True, date(2024, 1, 1), datetime(2024, 1, 1, 1), "grüß", b"\0", None)
    marks = ", ".join("?" * len(given))
    assert db.execute(f"select {marks}", given).fetchone() == given
    assert tuple(column[0].as_py() for column in db.execute(f"select {marks}", given).arrow().columns) == given


def test_errors_say_where_and_what(db: Connection) -> None:
    with pytest.raises(InvalidSyntax) as raised:
        db.execute("select 1 +\n  from")
    assert raised.value.line == 2
    db.execute("create table t (i int constraint one primary key)")
    db.execute("insert into t values (1)")
    with pytest.raises(UniqueViolation) as violated:
        db.execute("insert into t values (1)")
    assert violated.value.index == "one"


def test_transactions(db: Connection) -> None:
    db.execute("create table t (i int)")
    db.commit()
    db.execute("insert into t values (1)")
    db.rollback()
    assert db.execute("select count(*) from t").fetchone() == (0,)
    db.commit()
    db.autocommit = True
    db.execute("insert into t values (1)")
    db.execute("insert into t values (2)")
    with gmdb.connect(db.path) as other:
        assert other.execute("select count(*) from t").fetchone() == (2,)


def test_scripts(db: Connection) -> None:
    db.cursor().executescript("create table t (i int); insert into t values (1); -- a comment; with a semicolon\n;")
    assert db.execute("select i from t").fetchall() == [(1,)]
    assert db.executescript("insert into t values (2); select i from t order by i").fetchall() == [(1,), (2,)]


def test_a_closed_cursor_or_connection_says_so(db: Connection) -> None:
    cursor = db.execute("select 1")
    cursor.close()
    cursor.close()
    with pytest.raises(InterfaceError):
        cursor.fetchone()
    with pytest.raises(InterfaceError):
        cursor.execute("select 1")
    db.close()
    with pytest.raises(gmdb.Error):
        db.execute("select 1")


def test_a_default_may_ask_for_the_time(db: Connection) -> None:
    db.execute("create table stamped (i int, at timestamp default current_timestamp, check (at <= now()))")
    before = datetime.now(UTC).replace(tzinfo=None)
    db.execute("insert into stamped (i) values (1)")
    db.executemany("insert into stamped (i) values (?)", [(n,) for n in range(2000)])
    db.execute("update stamped set at = default where i = 1")
    (low, count) = db.execute("select min(at), count(*) from stamped").fetchall()[0]
    assert count == 2001
    assert before <= low <= datetime.now(UTC).replace(tzinfo=None)


# ---- what a person sees


def test_a_cursor_shows_its_next_rows_as_a_table_and_keeps_them(db: Connection) -> None:
    db.execute("create table p (i int, s varchar(300))")
    rows = [(1, "<b>"), (2, None), *((n, "x" * 250) for n in range(3, 30))]
    db.executemany("insert into p values (?, ?)", rows)
    cursor = db.execute("select * from p order by i")
    shown = cursor._repr_html_()
    assert "<th>i</th><th>s</th>" in shown
    assert "<td>1</td><td>&lt;b&gt;</td>" in shown
    assert "<td>2</td><td><i>NULL</i></td>" in shown
    assert shown.count("<tr>") == 1 + 20
    assert "x" * 201 not in shown
    assert cursor._repr_html_() == shown
    assert cursor.fetchmany(2) == rows[:2]
    assert cursor.arrow().to_pydict() == {"i": [row[0] for row in rows[2:]], "s": [row[1] for row in rows[2:]]}
    changed = db.execute("delete from p")
    assert "29 rows changed" in changed._repr_html_()
    changed.close()
    assert repr(changed) == "<gmdb.Cursor: closed>"


def test_what_is_printed_says_what_it_is(db: Connection) -> None:
    db.execute("create table p (i int primary key, s varchar(9))")
    row_id = db.insert("p", (1, "x"))
    assert repr(row_id) == f"<RowId {row_id}>"
    assert repr(db.table("p")) == "<TableDefinition p: i INT NOT NULL, s VARCHAR(9), index p_pkey>"
    assert repr(db.execute("select * from p")) == "<gmdb.Cursor: i INT, s VARCHAR(9)>"
    pin = db.take_snapshot(lease=60)
    assert repr(pin).startswith(f"<Pin {pin.name}: commit ")
    db.drop_snapshot(pin.name)
    assert isinstance(db, gmdb.Connection)
    assert repr(db).startswith(f"<gmdb.Connection to {db.path}, ")
    db.close()
    assert repr(db).endswith(", closed>")
