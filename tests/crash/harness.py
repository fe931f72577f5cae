"""What crash tests share: small logs, a fast place for states, and the check of what was found there."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from gmdb.database import engine
from gmdb.database.connection import Connection, open_connection
from gmdb.sql.runner import Runner
from gmdb.storage import disk
from gmdb.storage.disk import DiskFile
from gmdb.storage.log import durability, redo_buffer
from gmdb.verify import spaces
from tests.crash.faults import Journal, Mark, RecordingDisk, marks
from tests.crash.power_cut import PowerCut
from tests.crash.workload import Tables, allowed, found
from tests.integrity import problems
from tests.speed import MEMORY, MemoryDisk, ask_the_system_for_zeros

READ_ONLY_EVERY = 5  # how many states go by until one is first opened for reading alone
ask_the_system_for_zeros()


class QuickDisk(MemoryDisk):
    """For directories that nobody cuts the power of: what is written there need not last."""

    def raw_sync(self, file: DiskFile, everything: bool) -> None:
        pass

    def raw_sync_directory(self, directory: Path) -> None:
        pass


class QuickRecordingDisk(RecordingDisk, QuickDisk):
    """Keeps a journal of syncs, but does not wait for them."""


@contextmanager
def scratch() -> Iterator[Path]:
    """A place in memory, if there is one, for thousands of short-lived databases; a failure leaves it as it is."""
    place = Path(tempfile.mkdtemp(prefix="gmdb-crash-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    yield place
    shutil.rmtree(place)


@contextmanager
def small_log(group_max: int = 256 << 10) -> Iterator[None]:
    """Have buffers and files of the log so small that a short workload fills them.

    ``group_max``: no bulk append of the workload logs more at once; 640 KiB is enough for any.
    """
    with (
        patch.object(engine, "REDO_FILE_SIZE", group_max * 3 // 8),
        patch.object(redo_buffer, "BUFFER_SIZE", 32 << 10),
        patch.object(redo_buffer, "GROUP_MAX", group_max),
        patch.object(spaces, "FILE_SIZES", (64 << 10, 1 << 30)),
        patch.object(durability, "INTERVAL", 3600.0),  # checkpoints are the workload's to make
    ):
        yield


def connect(directory: Path, **options: Any) -> Connection:
    """A connection of this process alone: other processes are not what is tested here."""
    return open_connection(directory, **{"statements": Runner, **options})


def create(directory: Path) -> None:
    with disk.use(QuickDisk()):
        connect(directory).close()


def points_of(journal: Journal) -> list[int]:
    """After each operation from the first mark on; a mark is none."""
    told = [n for n, operation in enumerate(journal) if isinstance(operation, Mark)]
    return [n for n in range(told[0] + 1, len(journal) + 1) if not isinstance(journal[n - 1], Mark)]


def spread(points: list[int], count: int) -> list[int]:
    """``count`` of the points, evenly; if there are fewer, some more than once."""
    if count <= len(points):
        return [points[n * len(points) // count] for n in range(count)]
    return sorted(points * (count // len(points)) + spread(points, count % len(points)))


# (what was marked, the state that was found) -> what is wrong with it; "" if nothing is
MayFind = Callable[[list[Any], Tables], str]


def may_find_one_of(told: list[Any], state: Tables) -> str:
    """What was acknowledged, or what was tried since."""
    return differences(state, allowed(told))


def may_find_any_of(told: list[Any], state: Tables) -> str:
    """What was committed at some time: with sync="off" the last commits may be lost."""
    return differences(state, [what[1] for what in told])


class Cuts:
    """Power cuts of one journal: each builds a state, recovers it and looks at what is there."""

    def __init__(
        self, journal: Journal, base: Path, states: Path, random: Random, may_find: MayFind = may_find_one_of
    ) -> None:
        self._journal = journal
        self._may_find = may_find
        self._cut = PowerCut(journal, base)
        self._states = states
        self._random = random
        self.checked = 0

    def check_at(self, points: list[int]) -> None:
        """Cut the power at growing points; the state that fails stays, and the message says where."""
        for upto in points:
            directory = self._build(upto)
            self.check(upto, directory)
            shutil.rmtree(directory)

    def check_recovery_at(self, points: list[int], again: int) -> None:
        """Cut the power at growing points, and again at ``again`` points of each recovery from that."""
        for upto in points:
            directory = self._build(upto)
            base = directory.with_name(directory.name + "-base")
            shutil.copytree(directory, base)
            journal = self._record_recovery(upto, directory)
            inner = Cuts(journal, base, directory.with_name(directory.name + "-again"), self._random, self._may_find)
            inner.check_at(spread(points_of(journal), again))
            self.checked += inner.checked
            for gone in (directory, base, inner._states):
                shutil.rmtree(gone)

    def _build(self, upto: int) -> Path:
        self._cut.advance(upto)
        directory = self._states / f"state-{self.checked:06d}-{upto:06d}"
        self._cut.build(directory, self._random)
        return directory

    def _record_recovery(self, upto: int, directory: Path) -> Journal:
        recording = QuickRecordingDisk(directory)
        for what in marks(self._journal, upto):
            recording.mark(what)
        with disk.use(recording), connect(directory) as db:
            recording.mark(("recovered", found(db)))
        return recording.journal

    def check(self, upto: int, directory: Path) -> None:
        """Recover the state; what is found must be allowed, and every page sound."""
        where = f"{directory}, after {upto} of {len(self._journal)} operations"
        readers = [True, False] if self.checked % READ_ONLY_EVERY == 0 else [False]
        with disk.use(QuickDisk()):
            for read_only in readers:
                try:
                    with connect(directory, read_only=read_only) as db:
                        state = found(db)
                except Exception as error:
                    raise AssertionError(f"{where}: it does not open: {error!r}") from error
                self._check_contents(upto, state, f"{where}, read_only={read_only}")
        wrong = problems(directory)
        assert not wrong, f"{where}: {wrong[:10]}"
        self.checked += 1

    def _check_contents(self, upto: int, state: Tables, where: str) -> None:
        told = marks(self._journal, upto)
        again = [what[1] for what in told if what[0] == "recovered"]
        complaint = differences(state, again) if again else self._may_find(told, state)
        assert not complaint, f"{where}: {complaint}"


def differences(state: Tables, states: list[Tables]) -> str:
    """In which rows a state differs from each of those that were allowed; "" if it is one of them."""
    if state in states:
        return ""
    told = []
    for other in states:
        pairs = {(t, k, v) for t, rows in state.items() for k, v in rows.items()}
        others = {(t, k, v) for t, rows in other.items() for k, v in rows.items()}
        tables = sorted(set(state) ^ set(other))
        lost, invented = sorted(others - pairs, key=str)[:5], sorted(pairs - others, key=str)[:5]
        told.append(f"lost {lost}, invented {invented}, tables {tables}")
    return "; or ".join(told)
