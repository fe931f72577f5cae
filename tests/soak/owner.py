"""The process that has the town open, until it is killed, its power is cut or its disk fails.

    python -m tests.soak.owner DIRECTORY SEED

It reads commands, a line each: ``go`` starts all its threads, ``rest`` stops those that write, ``power SEED`` cuts the
power, ``fault REQUEST NTH ERROR FILES`` lets the disk fail, ``end`` closes the database.  It tells what happens, a line
each: ``open``, ``ack WRITER STEPS`` after each commit, ``did WHAT COUNT``, ``wrong WHAT``, ``failed WHY``, ``resting``,
``ended``.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import DatabaseInUse, DiskFull, StorageError, Transient
from gmdb.server.connect import open_here
from gmdb.storage import disk
from tests.soak.definer import Definer
from tests.soak.disk import TownDisk
from tests.soak.town import WAYS, WRITERS, look
from tests.soak.writer import Writer

PATIENCE = 60.0  # seconds in which another process that has the database open for a moment will have closed it
PAUSE = 0.002  # seconds between two transactions of a writer: others want the processor, too


class Owner:
    def __init__(self, directory: Path, seed: int) -> None:
        self._directory, self._seed = directory, seed
        self._disk = TownDisk()
        self._said = threading.Lock()
        self._resting = threading.Event()
        self._acknowledged = dict.fromkeys(range(WRITERS), 0)
        self._threads: list[threading.Thread] = []

    def run(self) -> None:
        with disk.use(self._disk):
            db = self._open()
            self.say("open")
            if db.recovery is not None:
                self.say("did", "redo bytes replayed", db.recovery.redo_bytes)
                self.say("did", "torn pages mended", len(db.recovery.torn_pages))
            for line in sys.stdin:
                command, *arguments = line.split()
                if command == "end":
                    break
                getattr(self, f"_{command}")(*arguments)
            self._rest()
            db.close()
            self.say("ended")

    def _open(self) -> Connection:
        until = time.monotonic() + PATIENCE
        while True:
            try:
                options = {"isolation": "read committed", "autocommit": False, "lock_timeout": 5.0}
                return open_here(self._directory, **options, read_only=False, sync="full", progress=None)
            except DatabaseInUse:
                if time.monotonic() > until:
                    raise
                time.sleep(0.05)

    def say(self, *what: object) -> None:
        """One write, so that lines of threads do not mix; what is in the pipe outlives the process."""
        os.write(1, (" ".join(map(str, what)).replace("\n", " / ") + "\n").encode())

    # ---- commands

    def _go(self) -> None:
        tasks: list[tuple[Callable[[Connection, Random], None], dict[str, Any]]] = [
            *((self._write(number), {"lock_timeout": 20.0}) for number in range(WRITERS)),
            (self._define, {}),
            (self._index, {"autocommit": True}),
            (self._keep_house, {"autocommit": True}),
            *((self._read, {"isolation": "repeatable read"}) for _ in range(2)),
        ]
        for number, (task, options) in enumerate(tasks):
            dice = Random(self._seed * 100 + number)
            thread = threading.Thread(target=self._work, args=(task, dice, options), daemon=True)
            self._threads.append(thread)
            thread.start()

    def _rest(self) -> None:
        self._resting.set()
        for thread in self._threads:
            thread.join()
        self.say("resting")

    def _power(self, seed: str) -> None:
        self._disk.cut_power(int(seed))

    def _fault(self, request: str, nth: str, error: str, files: str) -> None:
        self._disk.fail(request, int(nth), int(error), files=files)

    # ---- threads

    def _work(self, task: Callable[[Connection, Random], None], dice: Random, options: dict[str, Any]) -> None:
        """Do something again and again.  Others may be in the way, or the disk full: nothing has changed then."""
        try:
            with gmdb.connect(self._directory, **options) as db:
                while not self._resting.is_set():
                    try:
                        task(db, dice)
                    except (Transient, DiskFull) as error:
                        db.rollback()
                        self.say("did", type(error).__name__, 1)
                    self._resting.wait(PAUSE)
        except StorageError as error:
            self.say("failed", error)  # the disk has: nothing more is changed in this life
        except BaseException as error:
            self.say("wrong", f"{task}: {error!r}: {traceback.format_exc()}")

    def _write(self, number: int) -> Callable[[Connection, Random], None]:
        writer = Writer(number)

        def step(db: Connection, dice: Random) -> None:
            steps = writer.step(db, dice)
            if steps is None:
                self.say("did", "rollback", 1)
            else:
                self.say("ack", number, steps)
                self._acknowledged[number] = steps

        return step

    def _define(self, db: Connection, dice: Random) -> None:
        self.say("did", Definer(db, dice).step(), 1)
        self._resting.wait(dice.uniform(0, 0.3))

    def _index(self, db: Connection, dice: Random) -> None:
        db.execute("drop index if exists entries_more")  # a life before may have ended with it
        kind = dice.choice(["", "using hash"])
        db.execute(f"create index concurrently entries_more on entries {kind} (version, writer)")
        self._resting.wait(dice.uniform(0, 2))
        db.execute("drop index entries_more")
        self.say("did", "concurrent index", 1)

    def _keep_house(self, db: Connection, dice: Random) -> None:
        what = dice.choice(["checkpoint", "checkpoint", "gc", "shrink", "analyze"])
        if what == "analyze":
            db.execute("analyze")
        else:
            getattr(db, what)()
        self.say("did", what, 1)
        self._resting.wait(dice.uniform(0, 1.5))

    def _read(self, db: Connection, dice: Random) -> None:
        acknowledged = dict(self._acknowledged)
        instant = look(db, dice.choice(WAYS), with_files=dice.random() < 0.2)
        for what in instant.complaints(acknowledged)[:5]:
            self.say("wrong", what)
        self.say("did", "read", 1)
        self.say("did", "rows", instant.rows)
        self._resting.wait(dice.uniform(0, 0.4))  # checking is Python's work, and so is writing


if __name__ == "__main__":
    Owner(Path(sys.argv[1]), int(sys.argv[2])).run()
