"""Workers that share a database, as those of a prefork server do, while its owner is killed: what each does, and keeps.

A worker has one connection for all of its life, and a log of its own outside of the database.  A request that was told
to be lost is made again under the same key, one whose outcome is unknown is looked for first.  So a key that is twice
in the ledger was done twice, and one that is missing was lost.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import LostWithOwner, OutcomeUnknown

KEYS_EACH = 1_000_000
ADD = "update account set n = n + 1 where worker = ?"


def create(path: Path, workers: int) -> None:
    with gmdb.connect(path) as db:
        db.execute("create table ledger (key bigint, worker int, counts boolean)")
        db.execute("create index ledger_key on ledger (key)")
        db.execute("create table account (worker int primary key, n int)")
        db.executemany("insert into account values (?, 0)", [(worker,) for worker in range(workers)])


class Worker:
    """Makes requests until there is a file ``stop``; its log has what it tried, and what was acknowledged."""

    def __init__(self, path: str, number: int, log: str) -> None:
        self.log = open(log, "a", buffering=1)  # noqa: SIM115
        self.db = gmdb.connect(path)
        self.heap = self.db.heap("ledger")
        self.number = number
        self.has_begun = False
        self.note(connected=os.getpid())

    def note(self, **what: Any) -> None:
        self.log.write(json.dumps(what) + "\n")

    def run(self, stop: str) -> None:
        requests = [self.by_default, self.begun, self.by_itself, self.by_heap]
        key = self.number * KEYS_EACH
        while not os.path.exists(stop):
            key += 1
            self.note(tries=key)
            began = time.monotonic()
            self.read()
            self.make(requests[key % len(requests)], key)
            self.note(done=key, seconds=time.monotonic() - began)
        self.db.close()

    def make(self, request: Callable[[Connection, int], None], key: int) -> None:
        """Make a request until it is done, as programs do."""
        while True:
            self.has_begun = False
            try:
                request(self.db, key)
                return
            except LostWithOwner as error:
                if not self.has_begun:
                    self.note(failed=f"{request.__name__}: {error}")
                self.db.rollback()
            except OutcomeUnknown:
                self.db.rollback()
                if self.db.execute("select key from ledger where key = ?", (key,)).fetchall():
                    self.db.rollback()
                    return

    def by_default(self, db: Connection, key: int) -> None:
        db.autocommit = False
        db.execute("insert into ledger values (?, ?, true)", (key, self.number))
        self.has_begun = True
        db.execute(ADD, (self.number,))
        db.commit()

    def begun(self, db: Connection, key: int) -> None:
        db.autocommit = True
        db.begin()
        db.insert("ledger", (key, self.number, True))
        self.has_begun = True
        db.update("account", lambda row: {"n": row["n"] + 1}, lambda row: row["worker"] == self.number)
        db.execute("commit")

    def by_itself(self, db: Connection, key: int) -> None:
        db.autocommit = True
        db.execute("insert into ledger values (?, ?, false)", (key, self.number))

    def by_heap(self, db: Connection, key: int) -> None:
        db.autocommit = False
        self.heap.insert((key, self.number, True))
        self.has_begun = True
        db.execute(ADD, (self.number,))
        db.commit()

    def read(self) -> None:
        """What changes nothing never fails, whichever process is the owner."""
        try:
            ((n,),) = self.db.execute("select n from account where worker = ?", (self.number,)).fetchall()
            numbers = self.db.arrow("account").read_all()["worker"].to_pylist()
            assert n >= 0
            assert sorted(numbers) == list(range(len(numbers)))
        except gmdb.Error as error:
            self.note(failed=f"read: {error!r}")
        self.db.rollback()


def check(path: Path, logs: list[Path]) -> list[float]:
    """Compare the ledger with the workers' logs; returns how long each request took."""
    tried: set[int] = set()
    done: set[int] = set()
    seconds: list[float] = []
    for log in logs:
        for line in log.read_text().splitlines():
            said = json.loads(line)
            assert "failed" not in said, said
            tried.update([said["tries"]] if "tries" in said else [])
            done.update([said["done"]] if "done" in said else [])
            seconds += [said["seconds"]] if "done" in said else []
    with gmdb.connect(path) as db:
        times = Counter(key for (key,) in db.execute("select key from ledger").fetchall())
        assert max(times.values()) == 1
        assert done <= times.keys() <= tried
        counted = Counter(worker for (worker,) in db.execute("select worker from ledger where counts").fetchall())
        assert dict(db.execute("select worker, n from account where n > 0").fetchall()) == counted
    return seconds
