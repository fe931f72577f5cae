"""Accounts among which threads move money: whatever is read of one instant, the sum is the same."""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Transient

ACCOUNTS, BALANCE = 60, 1000
TOTAL = ACCOUNTS * BALANCE


def open_bank(path: Path) -> Connection:
    db = gmdb.connect(path)
    db.create_table("accounts", {"i": "INT NOT NULL", "money": "BIGINT", "note": "VARCHAR(500)"})
    db.commit()
    for n in range(ACCOUNTS):
        db.insert("accounts", (n, BALANCE, None))
    db.commit()
    return db


def balances(db: Connection) -> dict[int, int]:
    return {i: money for _, (i, money, _) in db.heap("accounts").rows()}


def total_of(path: Path, read_only: bool = False) -> int:
    with gmdb.connect(path, read_only=read_only) as db:
        found = balances(db)
        assert len(found) == ACCOUNTS
        return sum(found.values())


class Tellers:
    """Threads that move money, now and then not for good, until the block ends."""

    def __init__(self, path: Path, count: int = 4) -> None:
        self._path = path
        self._ended = threading.Event()
        self.errors: list[BaseException] = []
        self.transfers = 0
        self._threads = [threading.Thread(target=self._run, args=(n,)) for n in range(count)]

    def __enter__(self) -> Tellers:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        assert not self.errors

    def _run(self, seed: int) -> None:
        random = Random(seed)
        try:
            with gmdb.connect(self._path) as db:
                heap = db.heap("accounts")
                ids = {values[0]: row_id for row_id, values in heap.rows()}
                db.commit()
                while not self._ended.is_set():
                    self._transfer(db, ids, random)
        except BaseException as error:
            self.errors.append(error)

    def _transfer(self, db: Connection, ids: dict, random: Random) -> None:
        heap = db.heap("accounts")
        giver, taker = random.sample(range(ACCOUNTS), 2)
        amount = random.randrange(100)
        try:
            for account, change in ((giver, -amount), (taker, amount)):
                heap.lock(ids[account])
                note = "x" * random.choice([0, 10, 480])
                heap.update(ids[account], {"money": heap.fetch(ids[account])[1] + change, "note": note})
            if random.random() < 0.2:
                db.rollback()
            else:
                db.commit()
                self.transfers += 1
        except gmdb.Error as error:
            if not isinstance(error, Transient):
                raise
            db.rollback()
