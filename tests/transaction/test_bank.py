"""Sixteen threads move money between accounts while a scan adds all of them up, again and again."""

from __future__ import annotations

import os
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow.compute as pc
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Deadlock, LockTimeout
from gmdb.format.address import RowId
from tests.model.checks import undo_is_empty
from tests.searches import extent
from tests.sessions import PATIENCE, until

THREADS = 16
ACCOUNTS = 1000
BUSY_ACCOUNTS = 8  # every tenth transfer is between these, so that tellers meet
OPENING = 100
SECONDS = float(os.environ.get("GMDB_BANK_SECONDS", extent(1, 4)))


@dataclass
class Bank:
    """What the threads share: the accounts, when to stop, and what went wrong."""

    path: Path
    accounts: list[RowId]
    stop: threading.Event = field(default_factory=threading.Event)
    failures: list[BaseException] = field(default_factory=list)


class Worker(threading.Thread, ABC):
    """A thread with a session of its own; what it raises fails the test."""

    def __init__(self, bank: Bank) -> None:
        super().__init__(daemon=True)
        self.bank = bank
        self.counts: Counter[str] = Counter()

    def run(self) -> None:
        try:
            with gmdb.connect(self.bank.path) as db:
                while not self.bank.stop.is_set():
                    self.work(db)
        except BaseException as error:
            self.bank.failures.append(error)
            self.bank.stop.set()

    @abstractmethod
    def work(self, db: Connection) -> None:
        """One transfer, or one audit."""


class Teller(Worker):
    """Moves money; keeps account of what each account gained by its own committed transfers."""

    def __init__(self, bank: Bank, seed: int) -> None:
        super().__init__(bank)
        self.random = random.Random(seed)
        self.gained: Counter[int] = Counter()

    def work(self, db: Connection) -> None:
        accounts = BUSY_ACCOUNTS if self.random.random() < 0.1 else ACCOUNTS
        payer, payee = self.random.sample(range(accounts), 2)
        amount = self.random.randint(1, 20)
        try:
            self.transfer(db, payer, payee, amount)
        except (Deadlock, LockTimeout) as error:
            db.rollback()
            self.counts[type(error).__name__] += 1
            return
        if self.random.random() < 0.05:
            db.rollback()
            self.counts["rolled back"] += 1
            return
        db.commit()
        self.counts["transfers"] += 1
        self.gained[payer] -= amount
        self.gained[payee] += amount

    def transfer(self, db: Connection, payer: int, payee: int, amount: int) -> None:
        accounts = db.heap("accounts")
        for account, change in ((payer, -amount), (payee, amount)):
            row_id = self.bank.accounts[account]
            accounts.lock(row_id)
            number, balance = accounts.fetch(row_id)
            assert number == account
            accounts.update(row_id, {"balance": balance + change})


class Auditor(Worker):
    """Adds up all accounts."""

    def work(self, db: Connection) -> None:
        table = db.arrow("accounts").read_all()
        assert (table.num_rows, pc.sum(table["balance"]).as_py()) == (ACCOUNTS, ACCOUNTS * OPENING)
        self.counts["scans"] += 1


def were_busy(auditor: Auditor, tellers: list[Teller]) -> bool:
    return auditor.counts["scans"] > 1 and sum(teller.counts["transfers"] for teller in tellers) > THREADS


@pytest.mark.search
def test_money_moves_but_is_never_made_or_lost(db: Connection, path: Path) -> None:
    db.create_table("accounts", {"number": "INT NOT NULL", "balance": "INT NOT NULL"})
    db.commit()
    heap = db.heap("accounts")
    bank = Bank(path, [heap.insert((n, OPENING)) for n in range(ACCOUNTS)])
    db.commit()
    db.gc()
    pages = heap.segment.head.page_count
    Teller(bank, 0).transfer(db, 0, 1, 0)  # so that the kernels are compiled before the clock starts
    Auditor(bank).work(db)
    db.rollback()
    tellers = [Teller(bank, seed) for seed in range(THREADS)]
    auditor = Auditor(bank)
    started = time.monotonic()
    for worker in (auditor, *tellers):
        worker.start()
    bank.stop.wait(SECONDS)
    until(lambda: bank.stop.is_set() or were_busy(auditor, tellers))  # however slow the machine is
    bank.stop.set()
    for worker in (auditor, *tellers):
        worker.join(PATIENCE)
        assert not worker.is_alive(), "a thread hangs"
    seconds = time.monotonic() - started
    if bank.failures:
        raise bank.failures[0]

    expected = {n: OPENING + sum(teller.gained[n] for teller in tellers) for n in range(ACCOUNTS)}
    assert {number: balance for _, (number, balance) in heap.rows()} == expected, "an update was lost"
    db.commit()
    db.gc()
    assert heap.segment.head.page_count == pages
    assert undo_is_empty(db)
    assert db.locks().num_rows == 0
    assert db.transactions().num_rows == 0
    counts = sum((worker.counts for worker in tellers), auditor.counts)
    print(f"{counts['transfers'] / seconds:,.0f} transfers/s in {seconds:.0f} s; {dict(counts)}")
