"""A process that writes to databases until it is killed.

``python -m tests.crash.killed`` loads all that it needs once, and then forks a child for each line that it reads:
directory, seed and whether the child makes checkpoints.  So a test can kill hundreds of processes without waiting
for each to start.  What the children say goes to the standard output, a line each:
``pid N`` at once, ``open`` when the database is, ``ack THREAD N`` after each commit, and ``ended N`` at their end.
"""

from __future__ import annotations

import os
import sys
import tempfile
import threading
from pathlib import Path
from random import Random

from gmdb.database.connection import Connection
from tests.crash.harness import connect
from tests.crash.writers import SHARE, move, prepare

THREADS = 8


def say(what: str) -> None:
    """One write, so that lines of many threads do not mix; what is in the pipe outlives the process."""
    os.write(1, f"{what}\n".encode())


def make(directory: Path) -> None:
    """A database with accounts, and a counter for each thread."""
    with connect(directory) as db:
        prepare(db)
        db.create_table("counters", {"k": "INT NOT NULL", "s": "INT NOT NULL"})
        db.commit()
        for thread in range(THREADS):
            db.insert("counters", (thread, 0))


def work(directory: Path, thread: int, random: Random, commits: int) -> None:
    """Count up, leave a row for each step, and move money, in one transaction each."""
    with connect(directory, lock_timeout=30.0) as db:
        for _ in range(commits):
            step(db, thread, random)


def step(db: Connection, thread: int, random: Random) -> None:
    counters, rows = db.heap("counters"), db.heap("rows")
    row_id = next(row_id for row_id, (k, _) in counters.rows() if k == thread)
    count = counters.fetch(row_id)[1] + 1
    counters.update(row_id, {"s": count})
    rows.insert((thread * SHARE + count, "x" * random.choice([10, 500, 2900])))
    move(db, random)
    if random.random() < 0.1:
        db.rollback()
        return
    db.commit()
    say(f"ack {thread} {count}")


def run(directory: Path, seed: int, checkpoints: bool, commits: int = 1 << 30) -> None:
    db = connect(directory, sync="full")
    say("open")
    arguments = [(directory, thread, Random(seed * THREADS + thread), commits) for thread in range(THREADS)]
    threads = [threading.Thread(target=work, args=a) for a in arguments]
    for thread in threads:
        thread.start()
    while checkpoints and any(thread.is_alive() for thread in threads):
        db.checkpoint()
    for thread in threads:
        thread.join()
    db.close()


def main() -> None:
    out = os.dup(1)
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as place:  # once through all that children will do, so that they find it ready
        make(Path(place) / "db")
        run(Path(place) / "db", 0, True, commits=3)
    os.dup2(out, 1)
    say("ready")
    for line in sys.stdin:
        directory, seed, checkpoints = line.split()
        child = os.fork()
        if child == 0:
            say(f"pid {os.getpid()}")
            run(Path(directory), int(seed), checkpoints == "True")
            os._exit(0)
        os.waitpid(child, 0)
        say(f"ended {child}")


if __name__ == "__main__":
    main()
