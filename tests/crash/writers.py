"""Several threads that change one database at the same time, while it collects garbage and makes checkpoints.

Each keeps book of rows of its own, and all of them move money between accounts that they share.
"""

from __future__ import annotations

import threading
from pathlib import Path
from random import Random
from typing import Any

from gmdb.database.connection import Connection
from gmdb.errors import Transient
from tests.crash.faults import RecordingDisk
from tests.crash.harness import connect, differences
from tests.crash.workload import Tables

ACCOUNTS, BALANCE = 8, 1000
SHARE = 1_000_000  # keys of the first thread begin at 0, of the second here


def prepare(db: Connection) -> None:
    db.create_table("rows", {"k": "INT NOT NULL", "s": "VARCHAR(3000)"})
    db.create_table("accounts", {"k": "INT NOT NULL", "s": "INT NOT NULL"})
    db.commit()
    for k in range(ACCOUNTS):
        db.insert("accounts", (k, BALANCE))
    db.commit()
    db.create_index("rows_k", "rows", ["k"], unique=True)
    db.create_index("accounts_k", "accounts", ["k"], unique=True)
    db.create_index("accounts_s", "accounts", ["s", "k"])
    db.create_index("rows_hash", "rows", ["k"], unique=True, using="hash")
    db.create_index("accounts_hash", "accounts", ["s"], using="hash")
    db.commit()


class Writers:
    def __init__(self, disk: RecordingDisk, path: Path, threads: int, seed: int) -> None:
        self._disk = disk
        self._path = path
        self._failures: list[BaseException] = []
        self._stopping = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(n, Random(seed + n))) for n in range(threads)]

    def run(self, db: Connection, commits: int, checkpoints: int) -> None:
        """Have each thread commit so often, with checkpoints meanwhile."""
        self._commits = commits
        for thread in self._threads:
            thread.start()
        for _ in range(checkpoints):
            self._stopping.wait(0.02)
            db.checkpoint()
        for thread in self._threads:
            thread.join()
        if self._failures:
            raise self._failures[0]

    def _run(self, number: int, random: Random) -> None:
        try:
            with connect(self._path, lock_timeout=20.0) as db:
                rows: dict[int, str] = {}
                self._disk.mark(("done", number, dict(rows)))
                for commit in range(self._commits):
                    self._work(db, number, random, rows, number * SHARE + 10 * commit)
        except BaseException as error:
            self._failures.append(error)

    def _work(self, db: Connection, number: int, random: Random, rows: dict[int, str], key: int) -> None:
        heap = db.heap("rows")
        ids = {k: row_id for row_id, (k, _) in heap.rows() if k // SHARE == number}
        after = dict(rows)
        for n in range(random.randint(1, 3)):
            after[key + n] = "x" * random.choice([10, 100, 2500])
            heap.insert((key + n, after[key + n]))
        for k in random.sample(sorted(ids), min(len(ids), 3)):
            if random.random() < 0.5 and len(ids) > 6:
                heap.delete(ids[k])
                del after[k]
            else:
                after[k] = "y" * random.choice([5, 2500])
                heap.update(ids[k], {"s": after[k]})
        try:
            move(db, random)
        except Transient:
            db.rollback()
            return
        if random.random() < 0.15:
            db.rollback()
            return
        self._disk.mark(("trying", number, after))
        db.commit()
        self._disk.mark(("done", number, dict(after)))
        rows.clear()
        rows.update(after)


def move(db: Connection, random: Random) -> None:
    """Take money from one account and give it to another."""
    heap = db.heap("accounts")
    by_key = heap.by("accounts_k")
    [(first, _)], [(second, _)] = (by_key.find((k,)) for k in sorted(random.sample(range(ACCOUNTS), 2)))
    amount = random.randint(-50, 50)
    for row_id, change in ((first, -amount), (second, amount)):
        heap.lock(row_id)
        heap.update(row_id, {"s": heap.fetch(row_id)[1] + change})


def may_find(told: list[Any], state: Tables) -> str:
    """Of each thread what was acknowledged to it, or what it tried since; and no money made or lost."""
    total = sum(state["accounts"].values())  # type: ignore[misc]
    if total != ACCOUNTS * BALANCE:
        return f"the accounts have {total} in all"
    for number in {what[1] for what in told if what[0] != "recovered"}:
        mine = [what for what in told if what[1] == number]
        last = max(n for n, what in enumerate(mine) if what[0] == "done")
        rows = {k: s for k, s in state["rows"].items() if k // SHARE == number}
        complaint = differences({"rows": rows}, [{"rows": what[2]} for what in mine[last:]])
        if complaint:
            return f"thread {number}: {complaint}"
    return ""
