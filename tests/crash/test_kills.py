"""Processes are killed at any moment: what they were told was committed is there, and nothing is half there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from tests.crash import killed
from tests.crash.harness import connect
from tests.crash.indexed import check_indexes
from tests.crash.writers import ACCOUNTS, BALANCE, SHARE
from tests.integrity import problems

KILLS = int(os.environ.get("GMDB_KILLS", "40"))
SEED = int(os.environ.get("GMDB_KILLS_SEED", "1"))


class Killer:
    """Starts children, kills them, and keeps book of what they were told."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.acknowledged = dict.fromkeys(range(killed.THREADS), 0)
        self.while_opening = self.while_writing = 0
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.crash.killed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        assert self._read() == ["ready"], self._complaint()

    def _read(self) -> list[str]:
        assert self._process.stdout is not None
        return self._process.stdout.readline().split()

    def _complaint(self) -> str:
        assert self._process.stderr is not None
        self._process.kill()
        return self._process.stderr.read()[-3000:]

    def kill(self, random: Random, number: int) -> None:
        """One child: every fourth is killed while it opens the database, and so recovers from the kill before."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self.directory} {number} {number % 2 == 0}\n")
        self._process.stdin.flush()
        said = self._read()
        assert said[:1] == ["pid"], self._complaint()
        pid = int(said[1])
        if number % 4 == 3:
            time.sleep(random.uniform(0, 0.06))
        else:
            self._await_first_commit()
            time.sleep(random.uniform(0, 0.15))
        os.kill(pid, signal.SIGKILL)
        self._read_to_the_end()

    def _await_first_commit(self) -> None:
        while (said := self._read())[:1] != ["ack"]:
            assert said == ["open"], self._complaint()
        self._note(said)

    def _read_to_the_end(self) -> None:
        opened = False
        while (said := self._read())[:1] != ["ended"]:
            assert said, self._complaint()
            opened = opened or said[0] in ("open", "ack")
            if said[0] == "ack":
                self._note(said)
        self.while_writing += opened
        self.while_opening += not opened

    def _note(self, said: list[str]) -> None:
        thread, count = int(said[1]), int(said[2])
        self.acknowledged[thread] = max(self.acknowledged[thread], count)

    def check(self) -> None:
        """Every acknowledged commit is there, as a whole; of each thread at most one more."""
        with connect(self.directory) as db:
            counters = {k: n for _, (k, n) in db.heap("counters").rows()}
            rows = [k for _, (k, _) in db.heap("rows").rows()]
            total = sum(n for _, (_, n) in db.heap("accounts").rows())
            for table in ("rows", "accounts"):
                check_indexes(db, table)
        for thread, count in counters.items():
            assert self.acknowledged[thread] <= count <= self.acknowledged[thread] + 1
            self.acknowledged[thread] = count
            assert sorted(k - thread * SHARE for k in rows if k // SHARE == thread) == list(range(1, count + 1))
        assert total == ACCOUNTS * BALANCE
        assert not problems(self.directory)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@pytest.fixture
def killer(tmp_path: Path) -> Iterator[Killer]:
    killed.make(tmp_path / "db")
    started = Killer(tmp_path / "db")
    yield started
    started.stop()


def test_what_was_acknowledged_outlives_kills_at_any_moment(killer: Killer) -> None:
    random = Random(SEED)
    for number in range(KILLS):
        killer.kill(random, number)
        if number % 4 != 2:  # so that the next one, which is killed while it opens, has something to recover
            killer.check()
    killer.check()
    assert killer.while_writing >= KILLS // 2
    assert KILLS < 20 or killer.while_opening >= 1
    assert sum(killer.acknowledged.values()) > KILLS
