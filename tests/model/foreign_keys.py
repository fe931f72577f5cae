"""Sessions in threads that change rows which refer to each other, beside a reader that looks for orphans.

``run(path, seed, ...)`` plays one history: the seed decides what the tables are like and what each session tries, not
how the threads meet.  Whatever is committed at any moment, a row that refers to another finds it there.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Error, IntegrityError, NoSuchRow, Transient

KEYS = 6
ACTIONS = ("no action", "restrict", "cascade", "set null", "set default")
ORPHANS = (
    ("c", "select count(*) from c where k is not null and not exists (select 1 from p where p.k = c.k)"),
    ("pair", "select count(*) from d where a is not null and b is not null "
     "and not exists (select 1 from q where q.a = d.a and q.b = d.b)"),
    ("self", "select count(*) from t where up is not null and not exists (select 1 from t u where u.id = t.up)"),
)  # fmt: skip


def make(db: Connection, chance: random.Random) -> None:
    """Tables that refer to others, by one column, by two, and to themselves."""

    def options() -> str:
        late = chance.choice(["", " deferrable", " deferrable initially deferred"])
        return f" on delete {chance.choice(ACTIONS)} on update {chance.choice(ACTIONS)}{late}"

    db.execute("create table p (k int primary key, s varchar(2000))")
    db.execute(f"create table c (i bigint, k int default 0 references p{options()}, s varchar(2000))")
    db.execute("create table q (a int, b varchar(10), unique (b, a))")
    key = f"foreign key (a, b) references q (a, b){options()}"
    db.execute(f"create table d (a int default 0, b varchar(20) default '0', {key})")
    db.execute(f"create table t (id int primary key, up int references t{options()})")
    if chance.random() < 0.5:
        db.execute("create index c_k on c (k)")
        db.execute(f"create index d_ab on d {chance.choice(['(a, b)', '(b, a)', 'using hash (b, a)'])}")
    for k in range(KEYS // 2):
        db.execute("insert into p values (?, 'x')", (k,))
        db.execute("insert into q values (?, ?)", (k, str(k)))
    db.commit()


def orphans(db: Connection) -> dict[str, int]:
    """What refers to nothing, of one instant."""
    with db.one_snapshot():
        found = {name: db.execute(text).fetchone() for name, text in ORPHANS}
    return {name: row[0] for name, row in found.items() if row is not None and row[0]}


class Player(threading.Thread):
    """One session, which tries random changes."""

    def __init__(self, path: Path, seed: int, transactions: int) -> None:
        super().__init__(daemon=True)
        self.random = random.Random(seed)
        isolation = self.random.choice(["read committed", "repeatable read"])
        self.db = gmdb.connect(path, isolation=isolation, lock_timeout=0.3, sync="off")  # type: ignore[arg-type]
        self.transactions, self.counts = transactions, Counter[str]()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(self.transactions):
                self.transaction()
        except BaseException as error:
            self.failure = error
        finally:
            self.db.close()

    def transaction(self) -> None:
        try:
            if self.random.random() < 0.2:
                self.db.set_constraints(None, deferred=self.random.random() < 0.5)
            for _ in range(self.random.randint(1, 4)):
                self.step()
            if self.random.random() < 0.15:
                self.db.rollback()
                return
            self.db.commit()
            self.counts["committed"] += 1
        except Error as error:
            if not isinstance(error, Transient | IntegrityError):
                raise
            self.counts[type(error).__name__] += 1
            self.db.rollback()

    def step(self) -> None:
        is_marked = self.random.random() < 0.3
        if is_marked:
            self.db.savepoint("s")
        try:
            self.change()
            self.counts["done"] += 1
        except (IntegrityError, NoSuchRow) as error:
            self.counts[type(error).__name__] += 1
        if is_marked and self.random.random() < 0.5:
            self.db.rollback_to("s")

    def change(self) -> None:
        chance, db = self.random, self.db
        key, other, number = chance.randrange(KEYS), chance.randrange(KEYS), chance.randrange(1 << 20)
        text = chance.choice(["x", "y" * 900])
        statements: list[tuple[str, Any]] = [
            ("insert into p values (?, ?)", (key, text)),
            ("insert into c values (?, ?, ?)", (number, key, text)),
            ("insert into c values (?, ?, ?)", (number, other, text)),
            ("insert into c (i) values (?)", (number,)),
            ("update c set k = ? where k = ?", (other, key)),
            ("update c set s = ? where k = ?", (text, key)),
            ("update p set k = ? where k = ?", (other, key)),
            ("update p set s = ? where k = ?", (text, key)),
            ("delete from p where k = ?", (key,)),
            ("delete from p where k >= ?", (key,)),
            ("delete from c where k = ?", (key,)),
            ("insert into p values (?, 'x') on conflict (k) do update set s = 'z'", (key,)),
            ("insert into q values (?, ?)", (key, str(key))),
            ("insert into d values (?, ?)", (key, str(key))),
            ("insert into d values (?, ?)", (key, None)),
            ("update d set a = ?, b = ? where a = ?", (other, str(other), key)),
            ("update q set a = ?, b = ? where a = ?", (other, str(other), key)),
            ("delete from q where a = ?", (key,)),
            ("delete from d where a = ?", (key,)),
            ("insert into t values (?, ?), (?, ?)", (key, other, other, key)),
            ("insert into t values (?, ?)", (key, other)),
            ("update t set up = ? where id = ?", (other, key)),
            ("update t set id = ? where id = ?", (other, key)),
            ("delete from t where id = ?", (key,)),
            ("insert into c select i, k + 1, s from c where k = ?", (key,)),
        ]
        kind = chance.random()
        if kind < 0.85:
            db.execute(*chance.choice(statements))
        elif kind < 0.9:
            db.append("c", pa.table({"i": [1, 2], "k": pa.array([key, other], pa.int32()), "s": ["a", "b"]}))
        elif kind < 0.95:
            db.executemany("insert into c values (?, ?, ?)", [(1, key, "m"), (2, other, "m")])
        else:
            self.by_row(key, other)

    def by_row(self, key: int, other: int) -> None:
        heap = self.db.heap(self.random.choice(["c", "p"]))
        rows = [(row_id, row) for row_id, row in heap.rows() if key in row]
        for row_id, _ in rows[:1]:  # it may be gone by now
            if self.random.random() < 0.5:
                heap.delete(row_id)
            else:
                heap.update(row_id, {"k": other})
        if not rows:
            self.db.insert("c", (0, key, "r"))


def run(path: Path, seed: int, sessions: int, transactions: int) -> Counter[str]:
    """Play the history of a seed; returns how often changes ended in which way."""
    with gmdb.connect(path, sync="off", isolation="repeatable read") as db:
        make(db, random.Random(seed))
        players = [Player(path, seed * 100 + n, transactions) for n in range(sessions)]
        for player in players:
            player.start()
        while any(player.is_alive() for player in players):
            found = orphans(db)
            db.commit()
            assert not found, f"run(seed={seed}): {found}"
        counts = Counter[str]()
        for player in players:
            player.join()
            if player.failure is not None:
                raise AssertionError(f"run(seed={seed})") from player.failure
            counts += player.counts
        found = orphans(db)
        assert not found, f"run(seed={seed}): {found} at the end"
        db.commit()
        assert not list(db._database.transactions.tables._sides), "keys are still held"
        return counts
