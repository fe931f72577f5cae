"""Accounts whose balances always add up to the same: with an index, a join, and clerks who move money."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gmdb.cli.demo.reference import TABLE
from gmdb.cli.demo.steps import Story

ACCOUNTS, BALANCE, CLERKS = 1_000, 100, 2
PAUSE = 0.002  # seconds between two transfers, in which Spark's driver, in the same process, gets on
TOTAL = ACCOUNTS * BALANCE


def index_and_join(story: Story) -> None:
    import gmdb

    with gmdb.connect(story.database) as db:
        cursor = db.cursor()
        cursor.execute(
            "create table accounts (id int primary key, owner varchar(20), balance int not null) "
            "with (change_feed = true)"
        )
        rows = [(number, f"owner {number % 10}", BALANCE) for number in range(ACCOUNTS)]
        with story.step(f"insert {ACCOUNTS:,} accounts by SQL"):
            cursor.executemany("insert into accounts values (?, ?, ?)", rows)
            db.commit()
        with story.step(f"index {TABLE} by i"):
            cursor.execute(f"create index {TABLE}_i on {TABLE} (i)")
            db.commit()
        with story.step("find a row by the index"):
            found = cursor.execute(f"select count(*) from {TABLE} where i = 77777").fetchall()
        query = f"select count(*), sum(a.balance) from accounts a join {TABLE} t on t.i = a.id where t.s = 'hello'"
        with story.step("join it with accounts"):
            joined = cursor.execute(query).fetchall()
    story.expect("rows found by the index", 1, found[0][0])
    story.expect("rows of the join", ACCOUNTS, joined[0][0])
    story.expect("balances, by the join", TOTAL, int(joined[0][1]))


@contextmanager
def clerks_at_work(database: Path) -> Iterator[list[int]]:
    """Threads that move money between accounts, each move a transaction; gives how many each has committed."""
    moves = [0] * CLERKS
    leave = threading.Event()
    failures: list[BaseException] = []

    def work(number: int) -> None:
        import gmdb
        from gmdb.errors import Transient

        chance = random.Random(number)
        try:
            with gmdb.connect(database) as db:
                cursor = db.cursor()
                while not leave.is_set():
                    amount, one, other = chance.randint(1, 9), *chance.sample(range(ACCOUNTS), 2)
                    try:
                        cursor.execute("update accounts set balance = balance - ? where id = ?", (amount, one))
                        cursor.execute("update accounts set balance = balance + ? where id = ?", (amount, other))
                        db.commit()
                        moves[number] += 1
                        time.sleep(PAUSE)
                    except Transient:  # a deadlock, say: somebody has to give way, and try again
                        db.rollback()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(CLERKS)]
    for thread in threads:
        thread.start()
    try:
        yield moves
    finally:
        leave.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
