"""Serializable transactions: what each of the known anomalies comes to, in this process and through an owner.

Sessions take turns in one thread.  Random histories are in test_serializable_histories.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import SerializationFailure, Transient, UniqueViolation, WriteConflict
from gmdb.tables.access.indexes import KeyRange
from gmdb.transaction import marks
from gmdb.transaction.serializable import ENDED_MAX
from tests.server.peer import Peer
from tests.sessions import PATIENCE, answer, in_thread

Sessions = Callable[..., list[Connection]]
PLACES = ["here", "client"]


@pytest.fixture(params=PLACES)
def sessions(request: pytest.FixtureRequest, path: Path) -> Iterator[Sessions]:
    """Opens sessions of one database, in this process or through the one that has it open."""
    opened: list[Connection] = []
    if request.param == "client":
        request.getfixturevalue("peer")("db = gmdb.connect(path)", path=str(path))

    def open_sessions(count: int, isolation: str = "serializable", **options: Any) -> list[Connection]:
        some = [gmdb.connect(path, isolation=isolation, lock_timeout=0.0, **options) for _ in range(count)]
        opened.extend(some)
        return some

    yield open_sessions
    for session in opened:
        session.close()
    if request.param == "client":
        request.getfixturevalue("peer")("db.close()")


@pytest.fixture
def here(connect: Callable[..., Connection], db: Connection) -> Connection:
    """The test's database, with the table of ``account``."""
    del connect
    _make(db)
    return db


def _make(db: Connection) -> None:
    db.execute("create table account (id int primary key, owner int, balance int)")
    db.execute("create index account_owner on account (owner)")
    db.execute("insert into account values (1, 1, 10), (2, 1, 20), (3, 2, 30), (4, 2, 40)")
    db.commit()


def commits(*steps: Callable[[], Any]) -> list[bool]:
    """Do each step; whether it went through, or was refused so that it can be tried again."""
    done = []
    for step in steps:
        try:
            step()
            done.append(True)
        except Transient:
            done.append(False)
    return done


# ---- every way of reading, in a write skew: both read both rows, each changes another one

ID_1, BOTH = KeyRange((1,), (1,)), KeyRange((1,), (2,))


def _places(db: Connection) -> list[Any]:
    return [row_id for row_id, row in db.heap("account").rows() if row[0] in (1, 2)]


READS: dict[str, Callable[[Connection, list[Any]], Any]] = {
    "fetch": lambda db, ids: [db.heap("account").fetch(one) for one in ids],
    "row ids": lambda db, ids: list(db.select("account", row_ids=ids).rows()),
    "row ids as Arrow": lambda db, ids: db.select("account", row_ids=ids).arrow().read_all(),
    "row ids in SQL": lambda db, ids: db.execute(
        "select * from account where rowid in (?, ?)", tuple(map(str, ids))
    ).fetchall(),
    "find": lambda db, _: [db.heap("account").by("account_pkey").find((n,)) for n in (1, 2)],
    "range": lambda db, _: list(db.heap("account").by("account_pkey").range((1,), (2,))),
    "range, the wrong way round": lambda db, _: list(db.heap("account").by("account_pkey").range(backwards=True)),
    "first columns of a key": lambda db, _: list(db.heap("account").by("account_owner").range((1,), (1,))),
    "heap": lambda db, _: list(db.heap("account").rows()),
    "keys": lambda db, _: list(db.select("account", by="account_pkey", keys=BOTH).rows()),
    "keys as Arrow": lambda db, _: db.select("account", by="account_pkey", keys=BOTH).arrow().read_all(),
    "all as Arrow": lambda db, _: db.arrow("account").read_all(),
    "where": lambda db, _: db.select_for_update("account", where=lambda row: row["id"] > 900),
    "SQL, one key": lambda db, _: [
        db.execute("select balance from account where id = ?", (n,)).fetchall() for n in (1, 2)
    ],
    "SQL, keys": lambda db, _: db.execute("select balance from account where id in (1, 2)").fetchall(),
    "SQL, or": lambda db, _: db.execute("select balance from account where id = 1 or id = 2").fetchall(),
    "SQL, range": lambda db, _: db.execute("select balance from account where id between 1 and 2").fetchall(),
    "SQL, all": lambda db, _: db.execute("select sum(balance) from account").fetchall(),
    "SQL, count": lambda db, _: db.execute("select count(*) from account where owner = 1").fetchall(),
    "SQL, minimum": lambda db, _: db.execute("select min(id), max(id) from account where id < 3").fetchall(),
    "SQL, subquery": lambda db, _: db.execute(
        "select 1 where exists (select 1 from account where id = 1) and (select balance from account where id = 2) > 0"
    ).fetchall(),
    "SQL, joined": lambda db, _: db.execute(
        "select b.balance from account a join account b on b.owner = a.owner where a.id = 1"
    ).fetchall(),
    "DuckDB": lambda db, _: db.execute("select owner, sum(balance) from account group by rollup (owner)").fetchall(),
    "DuckDB, by keys": lambda db, _: db.execute(
        "select owner, sum(balance) from account where id in (1, 2) group by rollup (owner)"
    ).fetchall(),
    "insert from a query": lambda db, _: db.execute("insert into other select balance from account where id < 3"),
    "update": lambda db, _: db.execute("update other set n = (select sum(balance) from account where owner = 1)"),
    "delete": lambda db, _: db.execute("delete from other where n in (select balance from account where id < 3)"),
}


@pytest.mark.parametrize("place", PLACES)
def test_each_way_of_reading_is_noted(place: str, path: Path, request: pytest.FixtureRequest) -> None:
    peer: Peer | None = request.getfixturevalue("peer") if place == "client" else None
    if peer is not None:
        peer("db = gmdb.connect(path)", path=str(path))
    with gmdb.connect(path) as db:
        _make(db)
        db.execute("create table other (n int)")
        db.commit()
        first, second = (gmdb.connect(path, isolation="serializable", lock_timeout=0.0) for _ in range(2))
        for name, read in READS.items():
            for changed, others in ((1, 2), (2, 1)):
                ids = _places(db)
                db.commit()
                read(first, ids)
                second.execute("select balance from account where id = ?", (others,)).fetchall()
                second.execute("update account set balance = balance + 1 where id = ?", (changed,))
                first.execute("update account set balance = balance + 1 where id = ?", (others,))
                done = commits(first.commit, second.commit)
                assert sorted(done) == [False, True], f"{name}: {done}"
                assert not first.in_transaction
                assert not second.in_transaction
        first.close()
        second.close()
    if peer is not None:
        peer("db.close()")


# ---- the classic anomalies


def test_write_skew(sessions: Sessions) -> None:
    """Two withdrawals, each allowed by the sum of both accounts."""
    first, second = sessions(2)
    _make(first)
    for db in (first, second):
        assert db.execute("select sum(balance) from account where owner = 1").fetchone() == (30,)
    first.execute("update account set balance = balance - 25 where id = 1")
    second.execute("update account set balance = balance - 25 where id = 2")
    first.commit()
    with pytest.raises(SerializationFailure, match="roll back and start over"):
        second.commit()
    assert second.execute("select id, balance from account where owner = 1").fetchall() == [(1, -15), (2, 20)]


def test_a_phantom(sessions: Sessions) -> None:
    """Each finds room for one more account of an owner, and adds it: rows that nobody has read."""
    first, second = sessions(2)
    _make(first)
    for db in (first, second):
        assert db.execute("select count(*) from account where owner = 3").fetchone() == (0,)
    first.execute("insert into account values (5, 3, 0)")
    second.execute("insert into account values (6, 3, 0)")
    assert sorted(commits(first.commit, second.commit)) == [False, True]


def test_keys_that_were_not_found(sessions: Sessions) -> None:
    first, second = sessions(2)
    _make(first)
    assert first.execute("select * from account where id = 8").fetchall() == []
    assert second.execute("select * from account where id = 9").fetchall() == []
    first.execute("insert into account values (9, 0, 0)")
    second.execute("insert into account values (8, 0, 0)")
    assert sorted(commits(first.commit, second.commit)) == [False, True]


def test_a_row_that_moves_into_a_range_or_out_of_it(sessions: Sessions) -> None:
    first, second = sessions(2)
    _make(first)
    assert len(first.execute("select * from account where owner = 1").fetchall()) == 2
    assert len(second.execute("select * from account where owner = 7").fetchall()) == 0
    first.execute("update account set owner = 7 where id = 3")
    second.execute("update account set owner = 8 where id = 1")
    assert sorted(commits(first.commit, second.commit)) == [False, True]


def test_a_lost_update(sessions: Sessions) -> None:
    first, second = sessions(2)
    _make(first)
    seen = [db.execute("select balance from account where id = 1").fetchone()[0] for db in (first, second)]
    first.execute("update account set balance = ? where id = 1", (seen[0] + 1,))
    first.commit()
    with pytest.raises(WriteConflict):
        second.execute("update account set balance = ? where id = 1", (seen[1] + 1,))
    second.rollback()
    assert second.execute("select balance from account where id = 1").fetchone() == (11,)


def test_the_read_only_anomaly(sessions: Sessions) -> None:
    """Fekete: the writers alone have an order, but not with what a third has seen, that only reads."""
    withdrawal, deposit, report = sessions(3)
    _make(withdrawal)
    assert withdrawal.execute("select sum(balance) from account where owner = 1").fetchone() == (30,)
    deposit.execute("update account set balance = balance + 20 where id = 2")
    deposit.commit()
    assert report.execute("select id, balance from account where owner = 1").fetchall() == [(1, 10), (2, 40)]
    report.commit()
    done = commits(
        lambda: withdrawal.execute("update account set balance = balance - 31 where id = 1"), withdrawal.commit
    )
    assert not all(done)


def test_a_report_before_the_deposit_stands_in_nobodys_way(sessions: Sessions) -> None:
    """As above, but what only reads began before the deposit was committed: it comes first."""
    withdrawal, deposit, report = sessions(3)
    _make(withdrawal)
    assert withdrawal.execute("select sum(balance) from account where owner = 1").fetchone() == (30,)
    assert report.execute("select id, balance from account where owner = 1").fetchall() == [(1, 10), (2, 20)]
    deposit.execute("update account set balance = balance + 20 where id = 2")
    report.commit()
    deposit.commit()
    withdrawal.execute("update account set balance = balance - 31 where id = 1")
    withdrawal.commit()


def test_receipts(sessions: Sessions) -> None:
    """A receipt comes into a batch that was closed, and whose report was made, while it was written."""
    clerk, closing, report = sessions(3)
    clerk.execute("create table control (batch int)")
    clerk.execute("insert into control values (1)")
    clerk.execute("create table receipt (id int primary key, batch int, amount int)")
    clerk.execute("create index receipt_batch on receipt (batch)")
    clerk.commit()
    (batch,) = clerk.execute("select batch from control").fetchone()
    closing.execute("update control set batch = batch + 1")
    closing.commit()
    (current,) = report.execute("select batch from control").fetchone()
    assert report.execute("select sum(amount) from receipt where batch = ?", (current - 1,)).fetchone() == (None,)
    report.commit()
    done = commits(lambda: clerk.execute("insert into receipt values (1, ?, 100)", (batch,)), clerk.commit)
    assert not all(done)
    clerk.rollback()
    (batch,) = clerk.execute("select batch from control").fetchone()  # started over
    clerk.execute("insert into receipt values (1, ?, 100)", (batch,))
    clerk.commit()
    assert batch == 2


# ---- whole tables


@pytest.mark.parametrize(
    "change",
    [
        lambda db: db.execute("truncate table account"),
        lambda db: db.execute("drop table account"),
        lambda db: db.execute("alter table account add column c int default 3"),
        lambda db: db.append("account", pa.table({n: pa.array([9], pa.int32()) for n in ("id", "owner", "balance")})),
    ],
    ids=["truncate", "drop", "alter", "append"],
)
def test_a_change_of_a_whole_table_is_one_of_all_that_was_read(sessions: Sessions, change: Any) -> None:
    first, second = sessions(2)
    _make(first)
    first.execute("create table other (n int)")
    first.commit()
    assert first.execute("select count(*) from account").fetchone() == (4,)
    assert second.execute("select count(*) from other").fetchone() == (0,)
    change(second)
    second.commit()
    assert not all(commits(lambda: first.execute("insert into other values (1)"), first.commit))


# ---- unique keys


def test_a_key_that_somebody_has_brought_since_says_start_over(sessions: Sessions) -> None:
    """Not that it is there: this transaction has seen that it is not."""
    first, second = sessions(2)
    _make(first)
    assert second.execute("select * from account where id = 5").fetchall() == []
    first.execute("insert into account values (5, 0, 0)")
    first.commit()
    with pytest.raises(SerializationFailure, match="account_pkey"):
        second.execute("insert into account values (5, 0, 0) on conflict do nothing")
    second.rollback()
    with pytest.raises(UniqueViolation):
        second.execute("insert into account values (5, 0, 0)")
    second.execute("insert into account values (6, 0, 0)")
    second.commit()


def test_a_key_that_somebody_has_given_up_since_says_start_over(sessions: Sessions) -> None:
    first, second = sessions(2)
    _make(first)
    assert second.execute("select count(*) from account where id = 1").fetchone() == (1,)
    first.execute("delete from account where id = 1")
    first.commit()
    with pytest.raises(SerializationFailure, match="given up"):
        second.execute("insert into account values (1, 5, 5)")
    second.rollback()
    second.execute("insert into account values (1, 5, 5)")
    second.commit()


def test_an_append_that_is_refused_leaves_nothing(here: Connection) -> None:
    first, second = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(2))
    rows = pa.table({name: pa.array(range(100, 2100), pa.int32()) for name in ("id", "owner", "balance")})
    for _ in range(2):
        for db in (first, second):
            db.execute("select sum(balance) from account where owner = 1").fetchall()
        second.append("account", rows)
        second.execute("update account set balance = 0 where id = 2")
        first.execute("update account set balance = 0 where id = 1")
        assert commits(first.commit, second.commit) == [True, False]
        here.gc()
    here.executemany("insert into account values (?, 1, 1)", [(n,) for n in range(100, 300)])
    here.commit()
    assert here.execute("select count(*) from account").fetchone() == (204,)
    assert len(list(here.heap("account").by("account_pkey").range())) == 204
    first.close()
    second.close()


# ---- when it is told, and what is left


def test_a_transaction_that_is_refused_commits_nothing_whatever_it_goes_on_with(here: Connection) -> None:
    first, second, third = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(3))
    second.execute("insert into account values (9, 9, 9)")
    for db in (first, second):
        db.execute("select sum(balance) from account where owner = 1").fetchall()
    first.execute("update account set balance = 0 where id = 1")
    second.savepoint("s")
    second.execute("update account set balance = 0 where id = 2")
    first.commit()
    statements = ("select * from account where id = 4", "update account set balance = 1 where id = 4")
    for statement in statements:
        with pytest.raises(SerializationFailure):
            second.execute(statement)
    second.rollback_to("s")
    with pytest.raises(SerializationFailure):
        second.commit()
    assert not second.in_transaction
    assert third.execute("select count(*) from account where id = 9").fetchone() == (0,)
    third.execute("update account set balance = 2 where id = 2")  # its locks are gone
    third.commit()
    for db in (first, second, third):
        db.close()


def test_what_was_read_before_a_savepoint_or_after_it_stays_read(here: Connection) -> None:
    first, second = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(2))
    first.savepoint("s")
    first.execute("select * from account where id = 2").fetchall()
    first.rollback_to("s")
    second.execute("select * from account where id = 1").fetchall()
    first.execute("update account set balance = 0 where id = 1")
    second.execute("update account set balance = 0 where id = 2")
    assert sorted(commits(first.commit, second.commit)) == [False, True]
    first.close()
    second.close()


def test_rows_that_are_still_to_come_at_the_commit_are_read_by_it(here: Connection) -> None:
    here.executemany("insert into account values (?, 5, 0)", [(n,) for n in range(100, 3100)])
    here.commit()
    first, second = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(2))
    text = "select a.id, b.balance from account a join account b on b.id = a.id + 1 where a.id >= 100"
    half = first.execute(text)
    assert len(half.fetchmany(10)) == 10
    first.execute("update account set balance = 7 where id = 1")
    second.execute("select * from account where id = 1").fetchall()
    second.execute("update account set balance = 7 where id = 3050")
    assert sorted(commits(first.commit, second.commit)) == [False, True]
    half.close()
    first.close()
    second.close()


def test_a_statement_of_its_own_is_a_transaction_as_well(here: Connection) -> None:
    """The report of the read-only anomaly, in one statement under autocommit."""
    options = {"isolation": "serializable", "lock_timeout": 0.0}
    withdrawal, deposit = (gmdb.connect(here.path, **options) for _ in range(2))
    report = gmdb.connect(here.path, autocommit=True, **options)
    withdrawal.execute("select sum(balance) from account where owner = 1").fetchall()
    deposit.execute("update account set balance = balance + 20 where id = 2")
    deposit.commit()
    assert report.execute("select sum(balance) from account where owner = 1").fetchone() == (50,)
    assert not report.in_transaction
    done = commits(lambda: withdrawal.execute("update account set balance = 0 where id = 1"), withdrawal.commit)
    assert not all(done)
    report.execute("update account set balance = 1 where id = 4")
    assert here.execute("select balance from account where id = 4").fetchone() == (1,)
    for db in (withdrawal, deposit, report):
        db.close()


@pytest.mark.parametrize(
    "index",
    [
        "create index k on account (owner desc)",
        "create index k on account (owner) include (balance)",
        "create index k on account (owner) where balance >= 0",
        "create index k on account using hash (owner)",
    ],
)
def test_each_kind_of_index_tells_of_what_comes_into_a_range(here: Connection, index: str) -> None:
    here.execute("drop index account_owner")
    here.execute(index)
    here.commit()
    first, second = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(2))
    text = "select count(*) from account where owner = ? and balance >= 0"
    assert first.execute(text, (8,)).fetchone() == (0,)
    assert len(list(second.heap("account").by("k").range((9,), (9,)))) == 0
    first.execute("insert into account values (11, 9, 0)")
    second.execute("update account set owner = 8 where id = 4")
    assert sorted(commits(first.commit, second.commit)) == [False, True]
    first.close()
    second.close()


def test_unique_keys_come_and_go_with_the_condition_of_their_index(here: Connection) -> None:
    here.execute("create unique index u on account (owner) where balance > 1000")
    here.execute("insert into account values (5, 5, 2000), (6, 6, 0)")
    here.commit()
    first, *others = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(3))
    for other in others:
        assert other.execute("select owner from account where balance > 1000").fetchall() == [(5,)]
    first.execute("update account set balance = 0 where id = 5")
    first.execute("update account set balance = 2000 where id = 6")
    first.commit()
    for other, row in zip(others, ((7, 5, 2000), (8, 6, 2000)), strict=True):
        with pytest.raises(SerializationFailure):
            other.execute("insert into account values (?, ?, ?)", row)
        other.close()
    first.close()


def test_unique_keys_of_a_part_of_the_rows_say_start_over(here: Connection) -> None:
    here.execute("create unique index u on account (owner desc) where balance > 1000")
    here.execute("insert into account values (5, 5, 2000)")
    here.commit()
    first, second = (gmdb.connect(here.path, isolation="serializable", lock_timeout=0.0) for _ in range(2))
    assert second.execute("select count(*) from account where id = 5").fetchone() == (1,)
    first.execute("delete from account where id = 5")
    first.execute("insert into account values (6, 6, 2000)")
    first.commit()
    for row in ((7, 5, 2000), (8, 6, 2000)):
        with pytest.raises(SerializationFailure):
            second.execute("insert into account values (?, ?, ?)", row)
        second.rollback()
        if row[0] == 7:
            second.execute("select count(*) from account").fetchone()
            first.execute("delete from account where id = 6")
            first.execute("insert into account values (9, 6, 3000)")
            first.commit()
    first.close()
    second.close()


# ---- who is not refused


@pytest.mark.parametrize("level", ["read committed", "repeatable read"])
def test_other_levels_are_not_tracked(sessions: Sessions, level: str) -> None:
    first, second = sessions(2, level)
    _make(first)
    for db in (first, second):
        db.execute("select sum(balance) from account where owner = 1").fetchall()
    first.execute("update account set balance = 0 where id = 1")
    second.execute("update account set balance = 0 where id = 2")
    assert commits(first.commit, second.commit) == [True, True]


def test_transactions_over_different_keys_are_never_refused(sessions: Sessions) -> None:
    players = sessions(4)
    db = players[0]
    _make(db)
    db.executemany("insert into account values (?, ?, 0)", [(n, n // 10) for n in range(100, 500)])
    db.commit()
    refused = 0
    for turn in range(25):
        keys = [100 + 100 * n + turn for n in range(4)]
        for player, key in zip(players, keys, strict=True):
            player.execute("select balance from account where id = ?", (key,)).fetchall()
            player.execute("select balance from account where id > ? and id < ?", (key + 50, key + 53)).fetchall()
        for player, key in zip(players, keys, strict=True):
            player.execute("update account set balance = balance + 1 where id = ?", (key,))
            player.execute("insert into account values (?, ?, 0)", (10_000 + key * 100 + turn, 1000 + key))
        refused += commits(*(player.commit for player in players)).count(False)
    assert refused == 0


def test_one_reader_and_one_writer_are_never_refused(sessions: Sessions) -> None:
    """A single conflict is an order."""
    reader, writer = sessions(2)
    _make(reader)
    for n in range(20):
        reader.execute("select sum(balance) from account").fetchall()
        writer.execute("update account set balance = ? where id = 1", (n,))
        assert commits(*((reader.commit, writer.commit) if n % 2 else (writer.commit, reader.commit))) == [True, True]


def test_threads_keep_what_each_transaction_keeps(here: Connection) -> None:
    """No owner's sum gets below zero, though each transaction reads both accounts and changes one of them."""

    def work(seed: int, read: Callable[[Connection], Any]) -> int:
        numbers, refused = random.Random(seed), 0
        with gmdb.connect(here.path, isolation="serializable", lock_timeout=PATIENCE) as db:
            for _ in range(150):
                try:
                    enough = sum(balance for (balance,) in read(db)) >= 25
                    change = -25 if enough else 50
                    text = "update account set balance = balance + ? where id = ?"
                    db.execute(text, (change, numbers.randint(1, 2)))
                    db.commit()
                except Transient:
                    refused += 1
                    db.rollback()
                    db.commit()
        return refused

    reads: list[Callable[[Connection], Any]] = [
        lambda db: db.execute("select balance from account where owner = 1").fetchall(),
        lambda db: [(row[2],) for _, row in db.heap("account").by("account_pkey").range((1,), (2,))],
        lambda db: [(row[2],) for _, row in db.heap("account").rows() if row[1] == 1],
    ]
    refused = [answer(one) for one in [in_thread(partial(work, n, read)) for n, read in enumerate(reads)]]
    sums = here.execute("select sum(balance) from account where owner = 1").fetchone()
    assert sums[0] >= 0
    assert sum(refused) > 0


def test_begin_may_name_the_level_that_the_connection_has(sessions: Sessions) -> None:
    (db,) = sessions(1)
    db.execute("begin isolation level serializable")
    db.execute("create table t (i int)")
    db.rollback()
    assert db.isolation == "serializable"


def test_who_can_only_read_is_no_danger(path: Path, peer: Peer) -> None:
    """A client that is open for reading only: the transaction in the midst commits."""
    peer("db = gmdb.connect(path)", path=str(path))
    with gmdb.connect(path, isolation="serializable") as first, gmdb.connect(path, isolation="serializable") as second:
        _make(first)
        report = gmdb.connect(path, isolation="serializable", read_only=True)
        assert report.execute("select count(*) from account").fetchone() == (4,)
        first.execute("select * from account where id = 2").fetchall()
        first.execute("update account set balance = 0 where id = 1")
        second.execute("update account set balance = 0 where id = 2")
        assert commits(second.commit, first.commit, report.commit) == [True, True, True]
        report.close()
    peer("db.close()")


# ---- memory


def test_what_has_ended_is_forgotten_or_taken_together(here: Connection) -> None:
    known = here._database.transactions.serializable
    long, short = (gmdb.connect(here.path, isolation="serializable") for _ in range(2))
    long.execute("select * from account where id = 1").fetchall()
    for n in range(ENDED_MAX + 50):
        short.execute("select * from account where id = 3").fetchall()
        if n % 2:
            short.execute("update account set balance = ? where id = 4", (n,))
        short.commit()
    assert known.known <= ENDED_MAX + 1
    assert max(len(one.ins) + len(one.outs) for one in known._ended) <= ENDED_MAX
    short.execute("select * from account where id = 1").fetchall()
    short.execute("update account set balance = 0 where id = 3")
    short.commit()
    long.execute("select * from account where id = 4").fetchall()  # changed by one of the oldest
    done = commits(lambda: long.execute("update account set balance = 0 where id = 1"), long.commit)
    assert not all(done)
    long.rollback()
    here.commit()
    short.execute("select 1 from account").fetchall()
    short.commit()
    assert known.known <= 2
    long.close()
    short.close()
    assert known.known <= 2


def test_many_reads_become_pages_and_then_the_table() -> None:
    reads = marks.Reads()
    for n in range(marks.ROWS_MAX + 1):
        reads.add_row(n % 7 << 16 | n)
    assert reads.pages == set(range(7))
    assert not reads.rows
    assert reads.meet_change(3 << 16 | 9999, {})
    assert not reads.meet_change(8 << 16, {})
    for n in range(marks.KEYS_MAX + 1):
        assert not reads.whole
        reads.add_span(marks.Span((0,), ((0, n),), ((0, n),)))
    assert reads.whole
    assert reads.meet_change(8 << 16, {})
    writes = marks.Writes()
    for n in range(marks.WRITES_MAX + 1):
        writes.add(n, {(0,): {((0, n),)}}, [((0,), ((0, n),))])
    assert writes.whole
    assert writes.may_have_freed
    assert not writes.rows
    assert not writes.freed


def test_ranges_hold_what_the_index_would_find() -> None:
    span = marks.Span((0, 1), ((0, 3),), ((0, 5),), True, False)
    inside = [((0, 5), (0, 9)), ((0, 4), (2,))]
    outside = [((0, 3), (0, 9)), ((0, 6), (0, 0)), ((2,), (0, 0)), ((1,), (0, 0))]
    assert all(key in span for key in inside)
    assert not any(key in span for key in outside)
    assert ((2,), (0, 1)) in marks.Span((0, 1), ((0, 3),))  # NULL is behind all values, and NaN before it
    assert ((0, "text"), (0, 1)) in span  # nobody knows: it may be
