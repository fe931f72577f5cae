"""Verifying a fleet: small databases each by one task, the others one after the other, each by all workers.

The checks are those of ``gmdb verify``, and so are the findings.  A database that cannot be checked is told of, and the
others are checked all the same.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.errors import DatabaseInUse, Error, NotClosed
from gmdb.spark.checking import PIECES_A_CORE, verify_databases
from gmdb.spark.fleet import Member, without_path
from gmdb.spark.jobs import in_own_words, was_interrupted
from gmdb.storage.directory import device_numbers, device_path
from gmdb.verify.findings import Report

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from gmdb.log.reports import Recovery

WHOLE_MAX = 256 << 20  # bytes of a database that one task checks, in a second or two
Recover = Callable[[Path], "Recovery"]


@dataclass(frozen=True)
class Health:
    """What was found of one database: a report, or why there is none."""

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
        """What is wrong, in few words: whoever prints them says of which database they are."""
        if self.report is not None:
            return [str(finding) for finding in self.report.findings]
        return [without_path(self.error, self.member.path)]

    def document(self) -> dict[str, Any]:
        """In plain values, for JSON."""
        told = {"database": self.database, "status": self.status}
        if self.report is None:
            return {**told, "clean": False, "error": self.error}
        return {**self.report.document(), **told}


def verify_fleet(spark: SparkSession, members: Sequence[Member], recover: Recover) -> list[Health]:
    """Check all databases; ``recover`` opens one that was not closed, so that it is, and refuses backups."""
    sizes = {member: _size(member.path) for member in members}
    small = sorted((m for m in members if sizes[m] <= WHOLE_MAX), key=lambda member: -sizes[member])
    found = dict(_by_tasks(spark, small))
    for member in members:
        if member not in found:
            found[member] = _by_all(spark, member, recover)
    return [found[member] for member in members]


def _size(path: Path) -> int:
    try:
        return sum(device_path(path, number).stat().st_size for number in device_numbers(path))
    except OSError:
        return 0


# ---- databases that one task checks


def _by_tasks(spark: SparkSession, members: Sequence[Member]) -> Iterator[tuple[Member, Health]]:
    """What tasks found; nothing of a database that is in use, or was not closed."""
    if not members:
        return
    context = spark.sparkContext
    count = min(len(members), context.defaultParallelism * PIECES_A_CORE)
    dealt = [list(members[n::count]) for n in range(count)]  # the largest first, one for each task, and so on
    made = context.parallelize(dealt, count).flatMap(_check_each).collect()
    for member, answer in zip((member for hand in dealt for member in hand), made, strict=True):
        health = pickle.loads(answer)
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
