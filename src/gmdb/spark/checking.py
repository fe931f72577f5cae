"""Verifying databases with Spark: the pieces of ``gmdb.verify``, done by the workers of a cluster.

The checks are those of ``gmdb verify``, and so are the findings and their order; only where they run differs.
Rounds of several databases are one job.

Not here: what is checked (verify/).
"""

from __future__ import annotations

import os
import pickle
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gmdb.errors import DatabaseInUse, Error, NotClosed, SnapshotExpired, StorageError
from gmdb.format.address import offset_of, page_id_of
from gmdb.format.control import Purpose
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.spark.fleet import Member, without_path
from gmdb.spark.jobs import in_own_words, was_interrupted
from gmdb.spark.pinned_snapshots import drop_pin, take_pin
from gmdb.storage.directory import (
    device_numbers,
    device_path,
    dropped_numbers,
    note_dropped,
    read_control,
    write_control,
)
from gmdb.storage.pins import LEASE, Pin
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.pinned_files import PinnedFiles
from gmdb.verify.findings import Report
from gmdb.verify.page_reader import VerifiedFiles
from gmdb.verify.pieces import RUN_SIZE, Round, Verdicts, Workplace
from gmdb.verify.verifier import checks, closed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gmdb.storage.log.reports import Recovery


# ---- A copy of a database's pages as a pin has them, made by the workers of a cluster: a dump, for those who verify
# it.
#
# Not here: copies that can be opened again, which are backups (storage/log/backup.py).

RANGE_SIZE = 8 << 20  # bytes of pages that a worker has in memory
_NOT_CARRIED = ("magic", "format_version", "reserved", "crc")
Range = tuple[int, int, int]  # device, first page, number of pages


@contextmanager
def pinned_copy(spark: SparkSession, path: Path) -> Iterator[Path]:
    """A copy of a database at one instant, beside it, for as long as it is used."""
    pin = take_pin(path, LEASE)
    try:
        folder = Path(tempfile.mkdtemp(prefix=f".{path.name}.copy-", dir=path.parent))
    except OSError as error:
        drop_pin(path, pin.name)
        raise StorageError(f"{path.parent}: {error.strerror}; its copy needs as much space there") from error
    try:
        target = folder / path.name
        target.mkdir()
        ranges = _prepare(path, pin, target)
        work = spark.sparkContext.parallelize(ranges, len(ranges))
        work.foreachPartition(lambda part: _copy(path, pin, target, part))
        drop_pin(path, pin.name)
        yield target
    finally:
        drop_pin(path, pin.name)
        shutil.rmtree(folder, ignore_errors=True)


def _prepare(path: Path, pin: Pin, target: Path) -> list[Range]:
    """Create the files of a dump, without pages; returns what is to be copied."""
    control = read_control(path)
    fields = {name: value for name, value in control.items() if name not in _NOT_CARRIED}
    fields |= {"database_id": list(bytes.fromhex(control["database_id"])), "purpose": Purpose.DUMP, "clean": 1}
    write_control(target, write_control(target, fields))  # both copies
    for number in dropped_numbers(path):
        note_dropped(target, number)
    ranges: list[Range] = []
    with PinnedFiles(path, pin) as files:
        for number, hwm in pin.devices.items():
            page_size = files.devices[number].page_size
            head = DEVICE_HEAD.at(files.page(page_id_of(number, 0)), DEVICE_HEAD_AT)
            with device_path(target, number).open("wb") as file:
                file.truncate(head.page_count * page_size)
            step = RANGE_SIZE // page_size
            ranges += [(number, first, min(step, hwm - first)) for first in range(0, hwm, step)]
    return ranges


def _copy(path: Path, pin: Pin, target: Path, ranges: Iterator[Range]) -> None:
    """On a worker: copy some pages; damaged ones as they are, since verifying is to find them."""
    from gmdb.spark.reading import kept_store

    with kept_store(path, pin) as store:
        store.skip = _ignore_damage
        for number, first, count in ranges:
            ids = np.arange(page_id_of(number, first), page_id_of(number, first) + count, dtype=np.uint32)
            store.read_ahead(ids)
            with device_path(target, number).open("r+b") as file:
                for page_id in ids.tolist():
                    page = store.page(page_id)
                    os.pwrite(file.fileno(), page, offset_of(page_id) * len(page))


def _ignore_damage(page_id: int, what: str) -> None:
    """Verifying the copy says what is wrong with the page."""
    del page_id, what


# ---- Verifying databases with Spark.

PIECES_A_CORE = 4
PIECE_SIZES = (4 * RUN_SIZE, 128 * RUN_SIZE)


@contextmanager
def opened(spark: SparkSession, path: Path) -> Iterator[VerifiedFiles]:
    """A database's files, which no process changes meanwhile: its own if it is closed, else a copy of one instant."""
    with ExitStack() as stack:
        try:
            files = stack.enter_context(closed_files(path))
        except DatabaseInUse:
            files = stack.enter_context(closed_files(stack.enter_context(pinned_copy(spark, path))))
        yield files


def verify_databases(spark: SparkSession, paths: Sequence[Path]) -> list[Report]:
    """Check all files of some databases, which the workers must reach by the same paths."""
    with ExitStack() as stack:
        return _run(spark, [stack.enter_context(opened(spark, path.absolute())) for path in paths])


def _run(spark: SparkSession, files: Sequence[VerifiedFiles]) -> list[Report]:
    """Go through the checks of all databases side by side, a round of all of them at a time."""
    size = _piece_size(files, spark.sparkContext.defaultParallelism)
    running = {number: checks(one, size) for number, one in enumerate(files)}
    reports: dict[int, Report] = {}
    answers: dict[int, list[Any] | None] = dict.fromkeys(running)
    while running:
        rounds: dict[int, Round] = {}
        for number, one in list(running.items()):
            answer = answers[number]
            try:
                rounds[number] = next(one) if answer is None else one.send(answer)
            except StopIteration as end:
                reports[number] = end.value
                del running[number]
        answers = dict(_do(spark, {number: (files[number], work) for number, work in rounds.items()}))
    return [reports[number] for number in range(len(files))]


def _piece_size(files: Sequence[VerifiedFiles], cores: int) -> int:
    total = sum(one.pages_in_use(number) * file.page_size for one in files for number, file in one.devices.items())
    smallest, largest = PIECE_SIZES
    wanted = total // (cores * PIECES_A_CORE) // RUN_SIZE * RUN_SIZE
    return min(max(wanted, smallest), largest)


@dataclass(frozen=True)
class _Site:
    """What a worker needs of a database, besides the pieces."""

    path: Path
    control: dict[str, Any]
    tables: Mapping[int, TableDefinition]
    verdicts: Verdicts | None

    def open(self) -> VerifiedFiles:
        files = VerifiedFiles(self.path)
        if files.control != self.control:
            files.close()
            message = "has another control file here than where verifying began"
            raise SnapshotExpired(f"{self.path} {message}; workers must reach the same files, which nobody may change")
        return files


def _do(
    spark: SparkSession, rounds: Mapping[int, tuple[VerifiedFiles, Round]]
) -> Iterator[tuple[int, list[Any] | None]]:
    """The results of a round of each database, by the database's number."""
    pieces = [(number, piece) for number, (_, work) in rounds.items() for piece in work.pieces]
    sites = {n: _Site(files.path, files.control, work.tables, work.verdicts) for n, (files, work) in rounds.items()}
    if not pieces:
        yield from ((number, []) for number in rounds)
        return
    context = spark.sparkContext
    shared = context.broadcast(sites)
    try:
        packed = (
            context.parallelize(pieces, len(pieces)).mapPartitions(lambda part: _check(part, shared.value)).collect()
        )
    finally:
        shared.destroy()
    at = 0
    for number, (_, work) in rounds.items():
        count = len(work.pieces)
        yield number, [pickle.loads(zlib.decompress(one)) for one in packed[at : at + count]]
        at += count


def _check(pieces: Iterator[tuple[int, Any]], sites: Mapping[int, _Site]) -> Iterator[bytes]:
    """On a worker: do some pieces."""
    with ExitStack() as stack:
        places: dict[int, Workplace] = {}
        for number, piece in pieces:
            if number not in places:
                site = sites[number]
                places[number] = Workplace(stack.enter_context(site.open()), site.tables, site.verdicts)
            yield zlib.compress(pickle.dumps(piece.check(places[number])), 1)


# ---- Verifying a fleet: small databases each by one task, the others one after the other, each by all workers.
#
# The checks are those of ``gmdb verify``, and so are the findings.  A database that cannot be checked is told of, and
# the others are checked all the same.

WHOLE_MAX = 256 << 20  # bytes of a database that one task checks, in a second or two
Recover = Callable[[Path], "Recovery"]


@dataclass(frozen=True)
class Health:
    """The result for one database: a report, or why there is none."""

    member: Member
    report: Report | None = None
    error: str = ""

    @property
    def database(self) -> str:
        return self.member.name

    @property
    def is_well(self) -> bool:
        return self.report is not None and self.report.clean

    @property
    def status(self) -> str:
        if self.report is None:
            return "unreadable"
        count = len(self.report.findings)
        return f"{count:,} problem{'' if count == 1 else 's'}" if count else "ok"

    @property
    def problems(self) -> list[str]:
        """What is wrong, in few words; the caller says of which database they are."""
        if self.report is not None:
            return [str(finding) for finding in self.report.findings]
        return [without_path(self.error, self.member.path)]

    def document(self) -> dict[str, Any]:
        """In plain values, for JSON."""
        state = {"database": self.database, "status": self.status}
        if self.report is None:
            return {**state, "clean": False, "error": self.error}
        return {**self.report.document(), **state}


def verify_fleet(spark: SparkSession, members: Sequence[Member], recover: Recover) -> list[Health]:
    """Check all databases; ``recover`` opens one that was not closed, so that it is, and refuses backups."""
    sizes = {member: _size(member.path) for member in members}
    small = sorted((m for m in members if sizes[m] <= WHOLE_MAX), key=lambda member: -sizes[member])
    health = dict(_by_tasks(spark, small))
    for member in members:
        if member not in health:
            health[member] = _by_all(spark, member, recover)
    return [health[member] for member in members]


def _size(path: Path) -> int:
    try:
        return sum(device_path(path, number).stat().st_size for number in device_numbers(path))
    except OSError:
        return 0


# ---- databases that one task checks


def _by_tasks(spark: SparkSession, members: Sequence[Member]) -> Iterator[tuple[Member, Health]]:
    """The results of tasks; nothing for a database that is in use, or was not closed."""
    if not members:
        return
    context = spark.sparkContext
    count = min(len(members), context.defaultParallelism * PIECES_A_CORE)
    dealt = [list(members[n::count]) for n in range(count)]  # the largest first, one for each task, and so on
    results = context.parallelize(dealt, count).flatMap(_check_each).collect()
    for member, result in zip((member for hand in dealt for member in hand), results, strict=True):
        health = pickle.loads(result)
        if health is not None:
            yield member, health


def _check_each(members: Iterable[Member]) -> Iterator[bytes]:
    """On a worker: check some databases."""
    from gmdb.verify import verify

    for member in members:
        health: Health | None = None
        try:
            health = Health(member, verify(member.path))
        except (DatabaseInUse, NotClosed):
            pass
        except Error as error:
            health = Health(member, error=str(error))
        yield pickle.dumps(health)


# ---- the others


def _by_all(spark: SparkSession, member: Member, recover: Recover) -> Health:
    from pyspark.errors import PySparkException

    try:
        try:
            return Health(member, verify_databases(spark, [member.path])[0])
        except NotClosed:
            recovery = recover(member.path)
            return Health(member, replace(verify_databases(spark, [member.path])[0], recovery=recovery))
    except Error as error:
        return Health(member, error=str(error))
    except PySparkException as error:
        if was_interrupted(error):
            raise
        return Health(member, error=str(in_own_words(error)))
