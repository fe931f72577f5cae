"""Verifying databases with Spark: the pieces of ``gmdb.verify``, done by the workers of a cluster.

The checks are those of ``gmdb verify``, and so are the findings and their order: only who does the pieces differs.
Rounds of several databases are one job.

Not here: what is checked (verify/).
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.catalog.schema import TableDefinition
from gmdb.errors import DatabaseInUse, SnapshotExpired
from gmdb.spark.pinned_copy import pinned_copy
from gmdb.verify.findings import Report
from gmdb.verify.pieces import RUN_SIZE, Round, Verdicts, Workplace
from gmdb.verify.reader import VerifiedFiles
from gmdb.verify.verifier import checks, closed_files

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PIECES_A_CORE = 4
PIECE_SIZES = (4 * RUN_SIZE, 128 * RUN_SIZE)


@contextmanager
def opened(spark: SparkSession, path: Path) -> Iterator[VerifiedFiles]:
    """A database's files, which nobody changes meanwhile: its own if it is closed, else a copy of one instant."""
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
            said = "has another control file here than where verifying began"
            raise SnapshotExpired(f"{self.path} {said}; workers must reach the same files, which nobody may change")
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
        made = context.parallelize(pieces, len(pieces)).mapPartitions(lambda part: _check(part, shared.value)).collect()
    finally:
        shared.destroy()
    at = 0
    for number, (_, work) in rounds.items():
        count = len(work.pieces)
        yield number, [pickle.loads(zlib.decompress(one)) for one in made[at : at + count]]
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
