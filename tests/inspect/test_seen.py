"""The listing ``seen`` beside the engine: whoever reads, it says visible of exactly the rows that the reader reads."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, LockTimeout, StorageError, WriteConflict
from tests.sessions import Connect

Seen = dict[str, tuple[Any, ...]]
TEXT_MAX, STEPS, EVERY = 1500, 36, 6
WORDS = ("visible", "invisible", "from undo")


def number_of(session: Connection) -> int:
    """The session's transaction; 0: it has changed nothing."""
    inner = session.session
    return inner.hub.memory.number(inner.slot) if inner.slot >= 0 else 0


def read_by(session: Connection) -> Seen:
    return {str(row[0]): tuple(row[1:]) for row in session.execute("select rowid, id, value, text from t").fetchall()}


def rows_seen(db: Connection, *reader: int) -> tuple[Seen, set[str]]:
    """What the listing says that a reader sees, and the rows that it says are invisible."""
    shown: Seen = {}
    hidden: set[str] = set()
    pages = db.inspect("pages", "t").to_pylist()
    for page in [one["name"] for one in pages if one["live_rows"] is not None]:
        for row in db.inspect("seen", page, *reader).to_pylist():
            assert row["_sees"] in WORDS
            assert row["_rowid"] not in shown
            if row["_sees"] == "invisible":
                assert row["_version"] is None
                hidden.add(row["_rowid"])
            else:
                assert (row["_version"] > 0) == (row["_sees"] == "from undo")
                shown[row["_rowid"]] = (row["id"], row["value"], row["text"])
    return shown, hidden


class History:
    """Sessions that take turns, as the seed decides."""

    def __init__(self, db: Connection, connect: Connect, seed: int) -> None:
        self.random, self.db, self.next_id = random.Random(seed), db, 0
        db.create_table("t", {"id": "INT", "value": "INT", "text": f"VARCHAR({TEXT_MAX})"}, pct_free=5)
        db.commit()
        self.sessions = [connect(lock_timeout=0.01) for _ in range(3)]
        self.steps: list[Callable[[Connection], Any]] = [
            self.insert, self.insert, self.insert_many, self.append, self.update, self.update, self.update,
            self.move, self.move, self.delete, self.delete, self.commit, self.commit, self.rollback, self.half,
        ]  # fmt: skip

    def step(self) -> None:
        session = self.random.choice(self.sessions)
        with suppress(LockTimeout, WriteConflict):  # another has the row: the statement has done nothing
            self.random.choice(self.steps)(session)
        if self.random.random() < 0.1:
            self.db.gc()

    def rows(self, count: int) -> list[tuple[int, int, str]]:
        self.next_id += count
        return [
            (self.next_id - n, self.random.randrange(9), "x" * self.random.randrange(60)) for n in range(count, 0, -1)
        ]

    def some_id(self) -> int:
        return self.random.randrange(max(self.next_id, 1))

    def insert(self, session: Connection) -> None:
        session.insert("t", self.rows(1)[0])

    def insert_many(self, session: Connection) -> None:
        rows = self.rows(self.random.randrange(2, 40))
        values = ", ".join(f"({i}, {value}, '{text}')" for i, value, text in rows)
        session.execute(f"insert into t values {values}")

    def append(self, session: Connection) -> None:
        columns = list(zip(*self.rows(self.random.choice([3, 40, 300])), strict=True))
        types = (pa.int32(), pa.int32(), pa.string())
        arrays = [pa.array(column, type_) for column, type_ in zip(columns, types, strict=True)]
        session.append("t", pa.table(arrays, names=["id", "value", "text"]))

    def update(self, session: Connection) -> None:
        low = self.some_id()
        session.execute(
            "update t set value = value + 1 where id between ? and ?", (low, low + self.random.randrange(8))
        )

    def move(self, session: Connection) -> None:
        """Make a row longer or shorter, so that it moves away or comes back."""
        text = "y" * self.random.choice([5, 400, TEXT_MAX])
        session.execute("update t set text = ? where id = ?", (text, self.some_id()))

    def delete(self, session: Connection) -> None:
        low = self.some_id()
        session.execute("delete from t where id between ? and ?", (low, low + self.random.randrange(4)))

    def commit(self, session: Connection) -> None:
        session.commit()

    def rollback(self, session: Connection) -> None:
        session.rollback()

    def half(self, session: Connection) -> None:
        """Take a part of a transaction back."""
        session.execute("savepoint here")
        self.update(session)
        self.insert_many(session)
        session.execute("rollback to savepoint here")

    def check(self) -> None:
        for session in (*self.sessions, self.db):
            shown, hidden = rows_seen(self.db, number_of(session))
            expected = read_by(session)
            assert shown == expected
            for row_id in self.random.sample(sorted(shown.keys() | hidden), min(3, len(shown) + len(hidden))):
                (alone,) = self.db.inspect("seen", row_id, number_of(session)).to_pylist()
                found = None if alone["_sees"] == "invisible" else (alone["id"], alone["value"], alone["text"])
                assert found == expected.get(row_id)


@pytest.mark.parametrize("seed", range(5))
def test_it_says_of_every_reader_what_the_reader_reads(db: Connection, connect: Connect, seed: int) -> None:
    history = History(db, connect, seed)
    for n in range(STEPS):
        history.step()
        if n % EVERY == 0:
            history.check()
    history.check()
    for session in history.sessions:
        session.rollback()


@pytest.mark.parametrize("seed", range(2))
def test_it_says_of_a_snapshot_what_a_repeatable_read_reads(db: Connection, connect: Connect, seed: int) -> None:
    history = History(db, connect, 100 + seed)
    for _ in range(STEPS // 2):
        history.step()
    reader = connect(isolation="repeatable read")
    expected = read_by(reader)
    scn = reader.session.hub.memory.scn
    for n in range(STEPS):
        history.step()
        if n % EVERY == 0:
            assert rows_seen(db, 0, scn)[0] == expected
    assert read_by(reader) == expected
    for session in (reader, *history.sessions):
        session.rollback()


def test_the_lines_are_those_of_the_visibility_table(db: Connection, connect: Connect) -> None:
    db.create_table("t", {"id": "INT", "value": "INT", "text": "VARCHAR(9)"})
    for n in range(4):
        db.insert("t", (n, n, "old"))
    db.commit()
    session = connect()
    session.execute("update t set text = 'new' where id = 1")
    session.execute("delete from t where id = 2")
    session.execute("insert into t values (9, 9, 'own')")
    (page,) = {row_id.rpartition(":")[0] for row_id in read_by(db)}
    own = {row["_rowid"]: row for row in db.inspect("seen", page, number_of(session)).to_pylist()}
    other = {row["_rowid"]: row for row in db.inspect("seen", page).to_pylist()}
    lines = {
        f"{page}:0": ("no flag, INSERT committed before: visible",) * 2,
        f"{page}:1": (
            "no flag, own UPDATE: visible",
            "no flag, other's UPDATE: from undo; no flag, INSERT committed before: visible",
        ),
        f"{page}:2": (
            "DELETE flag, own DELETE: invisible",
            "DELETE flag, other's DELETE: as beneath; no flag, INSERT committed before: visible",
        ),
        f"{page}:4": ("no flag, own INSERT: visible", "no flag, other's INSERT: invisible"),
    }
    assert {row_id: (own[row_id]["_line"], other[row_id]["_line"]) for row_id in lines} == lines
    assert [other[row_id]["_sees"] for row_id in lines] == ["visible", "from undo", "from undo", "invisible"]
    assert [own[row_id]["_sees"] for row_id in lines] == ["visible", "visible", "invisible", "visible"]
    assert other[f"{page}:1"]["text"] == "old"
    assert {row["_changed_by"] for row in own.values()} == {number_of(session), own[f"{page}:0"]["_changed_by"]}
    session.rollback()


def test_a_commit_is_seen_by_snapshots_from_it_on(db: Connection) -> None:
    db.create_table("t", {"id": "INT", "value": "INT", "text": "VARCHAR(9)"})
    db.insert("t", (1, 1, "first"))
    db.commit()
    keeper = gmdb.connect(db.path, isolation="repeatable read")
    (row_id,) = read_by(keeper)
    before = db.session.hub.memory.scn
    db.execute("update t set text = 'second'")
    db.commit()
    now = db.session.hub.memory.scn
    texts = {scn: db.inspect("seen", row_id, 0, scn)["text"].to_pylist() for scn in (0, before, now)}
    assert texts == {0: [None], before: ["first"], now: ["second"]}
    keeper.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "not a page id"),
        (("4:7:x",), "is not a row id"),
        (("4:7:1:1",), "not a page id"),
        (("4:1", "me"), "'me' is not the number of a transaction"),
        (("4:1", -1), "-1 is not the number of a transaction"),
        (("4:1", 0, "then"), "'then' is not an SCN"),
        (("0:0",), "page 0:0 has no rows"),
        (("0:0:1",), "page 0:0 has no rows"),
        ((1 << 40,), "not a page id"),
    ],
)
def test_what_is_no_place_and_no_reader_is_refused(db: Connection, arguments: tuple[Any, ...], said: str) -> None:
    db.create_table("t", {"id": "INT"})
    db.commit()
    with pytest.raises(InterfaceError, match=said):
        db.inspect("seen", *arguments)


def test_a_page_that_is_not_there_is_refused(db: Connection) -> None:
    with pytest.raises(StorageError, match="no device 77"):
        db.inspect("seen", "77:1")
