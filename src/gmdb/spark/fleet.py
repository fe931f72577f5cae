"""A fleet: the databases that a pattern matches, and what had to be left out of a read of all of them.

Invariants
 1. A directory that was a database and has lost its control file is a member still: one that cannot be read.
 2. What is left out is reported: in the log, and in the folder ``reportTo`` if there is one, once however often it
    is met.
"""

from __future__ import annotations

import glob
import hashlib
import json
import logging
import os
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb.errors import Error, InterfaceError, NotADatabase, StatementError, StorageError
from gmdb.process.late_dataclasses import asdict, dataclass
from gmdb.spark.jobs import is_local
from gmdb.spark.options import is_pattern, local_path
from gmdb.storage.directory import device_numbers, is_database
from gmdb.storage.pins import renew

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


_logger = logging.getLogger("gmdb")
_SUFFIX = ".json"


@dataclass(frozen=True)
class Member:
    """A database of a fleet.  ``name`` is its path as it was matched, which the column ``_database`` has."""

    name: str
    path: Path


def find_members(texts: Sequence[str]) -> list[Member]:
    """The databases of paths and patterns, each once; those of a pattern in the order of their names.

    What a pattern matches beside databases is passed over.  What a path names is taken for a database; reading it
    fails if it is not one.
    """
    members: dict[Path, Member] = {}
    for text in texts:
        for name in _matches(text) if is_pattern(text) else [text]:
            path = local_path(name)
            members.setdefault(path, Member(str(path) if name.startswith("file:") else name, path))
    if not members:
        raise NotADatabase(f"{', '.join(texts)}: no database is there; a pattern is for directories, such as fleet/*")
    return list(members.values())


def _matches(pattern: str) -> list[str]:
    plain = str(local_path(pattern)) if pattern.startswith("file:") else pattern
    names = sorted(name.rstrip("/") for name in glob.glob(plain))
    return [name for name in names if _is_member(local_path(name))]


def _is_member(path: Path) -> bool:
    if not path.is_dir():
        return False
    try:
        return is_database(path) or bool(device_numbers(path))
    except StorageError:  # it may not be looked into, which reading it will say
        return True


def name_member(error: Error, member: Member) -> Error:
    """The error, with the name of its database."""
    if isinstance(error, StatementError) or str(member.path) in str(error):
        return error
    return type(error)(f"{member.name}: {error}")


def without_path(text: str, path: Path) -> str:
    """What is said of a database, without its path, for a caller that names it."""
    return text.replace(f"{path}/", "").removeprefix(f"{path} ").removeprefix(f"{path}: ")


# ---- what was left out


@dataclass(frozen=True)
class LeftOut:
    """A database that a read has left out, or a damaged page of one; ``page`` is None if it is all of it."""

    database: str
    page: str | None
    kind: str
    error: str

    def __str__(self) -> str:
        return f"{self.database}{'' if self.page is None else ', a page'}: {self.error}"


def leave_out(report_to: Path | None, left_out: LeftOut) -> None:
    """Report what is left out, where the read is planned or in a task."""
    _logger.warning("left out: %s", left_out)
    if report_to is None:
        return
    text = json.dumps(asdict(left_out), ensure_ascii=False) + "\n"
    path = report_to / f"{hashlib.sha256(text.encode()).hexdigest()[:24]}{_SUFFIX}"
    new = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        report_to.mkdir(parents=True, exist_ok=True)
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    except OSError as error:
        message = f"reportTo: {report_to}: {error.strerror}; what is left out must be told of"
        raise StorageError(f"{message}: name a directory that the driver and all workers can write to") from error


def read_report(report_to: Path) -> list[LeftOut]:
    """What reads that reported to a folder have left out so far."""
    texts = [path.read_text(encoding="utf-8") for path in report_to.glob(f"*{_SUFFIX}")]
    entries = [LeftOut(**json.loads(text)) for text in texts]
    return sorted(entries, key=lambda one: (one.database, one.page or "", one.error))


# ---- The leases of a fleet's pins: reading one database renews the others as well, which wait for their turn.

_last_time: dict[str, float] = {}  # of the fleet that this worker read last: when it renewed the leases


class Leases:
    """The pins of all databases that a DataFrame reads."""

    def __init__(self, pins: Sequence[tuple[Path, str]], lease: float) -> None:
        self._pins = list(pins)
        self._lease = lease
        self._began = time.time()

    def keep(self) -> None:
        """Start all leases over if a third of their time has passed."""
        fleet = self._pins[0][1] if self._pins else ""
        since = time.time() - _last_time.get(fleet, self._began)
        if not self._pins or since < self._lease / 3:
            return
        _last_time.clear()
        _last_time[fleet] = time.time()
        for path, name in self._pins:
            with suppress(StorageError):  # who comes to read it says what is wrong
                renew(path, name)


# ---- A DataFrame of a fleet, with what reads of it had to leave out.


@dataclass(frozen=True)
class FleetRead:
    """A table of each database of a fleet as one DataFrame."""

    frame: DataFrame
    report_to: Path
    _folder: tempfile.TemporaryDirectory[str] | None  # goes with this, if the caller named none

    @property
    def skipped(self) -> list[LeftOut]:
        """Databases, or pages of them, that actions on the DataFrame have left out so far."""
        return read_report(self.report_to)


def read_fleet(
    spark: SparkSession,
    fleet: str | Path | Sequence[str],
    on_error: str,
    report_to: str | Path | None,
    options: dict[str, Any],
) -> FleetRead:
    """Load a pattern, or a list of paths and patterns; ``options`` are those of the data source."""
    folder = None
    if report_to is None:
        if not is_local(spark.sparkContext.master):
            message = "say where workers are to tell of what they leave out"
            raise InterfaceError(f"report_to: {message}: a directory that they and the driver can write to")
        folder = tempfile.TemporaryDirectory(prefix="gmdb-report-", ignore_cleanup_errors=True)
        report_to = folder.name
    target = Path(report_to).absolute()
    reader = spark.read.format("gmdb").options(onError=on_error, reportTo=str(target), **options)
    databases = [fleet] if isinstance(fleet, str | Path) else fleet
    paths = [str(local_path(str(path))) for path in databases]  # the planning process may be in another directory
    return FleetRead(reader.load(paths if len(paths) > 1 else paths[0]), target, folder)
