"""Whether the process lives that something is kept for: asked of real ones, in every state that they come to."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations_with_replacement

import pytest

from gmdb.storage.documents import Holder

STATES = ("alive", "zombie", "reaped")


class Child:
    """A process that is alive, then has ended and is a zombie, then is gone."""

    def __init__(self) -> None:
        self._process, self._state = subprocess.Popen(["cat"], stdin=subprocess.PIPE), 0
        self.pid = self._process.pid

    def become(self, state: str) -> None:
        while self._state < STATES.index(state):
            self._state += 1
            if STATES[self._state] == "zombie":
                self._process.kill()
                os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
            else:
                self._process.communicate()


@contextmanager
def child() -> Iterator[Child]:
    made = Child()
    try:
        yield made
    finally:
        made.become("reaped")


@pytest.mark.parametrize(("noted", "asked"), combinations_with_replacement(STATES, 2))
def test_a_process_that_has_ended_is_gone_whenever_it_was_noted(noted: str, asked: str) -> None:
    with child() as process:
        process.become(noted)
        holder = Holder.from_plain(Holder.of(process.pid).to_plain())
        process.become(asked)
        assert (holder.is_alive, holder.is_gone) == (asked == "alive", asked != "alive")


def test_a_process_of_the_same_number_is_another() -> None:
    assert replace(Holder.this_process(), started=1).is_gone


@pytest.mark.parametrize("elsewhere", [{"boot_id": "another"}, {"pid_namespace": "pid:[1]"}])
@pytest.mark.parametrize("started", [0, 1])
def test_of_a_process_elsewhere_nothing_is_known(elsewhere: dict[str, str], started: int) -> None:
    holder = replace(Holder.this_process(), **elsewhere, started=started)
    assert not holder.is_alive
    assert not holder.is_gone


def test_what_outlives_every_process_is_never_gone() -> None:
    assert not Holder.nobody().is_gone


def test_the_driver_is_the_java_process_above() -> None:
    """It is told by its name; a process below it asks, as those do that Spark plans with."""
    ask = "import os; from gmdb.storage.documents import Holder; print(Holder.driver().pid, os.getppid())"
    above = "import subprocess, sys; sys.exit(subprocess.run([sys.executable, '-c', sys.argv[1]]).returncode)"
    named = f"open('/proc/self/comm', 'w').write('java'); {above}"
    told = subprocess.run([sys.executable, "-c", named, ask], capture_output=True, text=True, check=True)
    driver, parent = told.stdout.split()
    assert driver == parent
