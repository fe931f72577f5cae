"""The one who knows what was acknowledged: gives the town one life after the other, and checks each quiet moment."""

from __future__ import annotations

import errno
import time
from collections import Counter
from pathlib import Path
from random import Random

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession
from pyspark.sql.streaming import StreamingQuery

import gmdb
import gmdb.spark
from gmdb.verify import verify
from tests.soak import definer, town
from tests.soak.life import Life, moment
from tests.soak.visitors import Visitors, count_loads

LIFE = (8.0, 35.0)  # seconds
FAULTS = [
    ("sync", errno.EIO, "redo-*"),
    ("write", errno.EIO, "redo-*"),
    ("write", errno.ENOSPC, "redo-*"),
    ("allocate", errno.ENOSPC, "*"),
    ("write", errno.EIO, "gmdb.mirror"),
    ("sync", errno.EIO, "gmdb.mirror"),
    ("write", errno.EIO, "device-*"),
    ("sync", errno.EIO, "device-*"),
    ("write", errno.EIO, "gmdb.control"),
    ("sync", errno.EIO, "gmdb.control"),
]


class Judge:
    def __init__(self, spark: SparkSession, place: Path, seed: int) -> None:
        self.figures: Counter[str] = Counter()
        self.violations: list[str] = []
        self._spark, self._place, self._dice = spark, place, Random(seed)
        self._database, self._copy = place / "town.gmdb", place / "copy.gmdb"
        self._acknowledged = dict.fromkeys(range(town.WRITERS), 0)
        self._visitors = Visitors(spark, self._database, place, seed)
        self._query: StreamingQuery | None = None
        self._lives = 0

    def run(self, minutes: float) -> None:
        """One life after the other until the time is up, or something is wrong."""
        with gmdb.connect(self._database) as db:
            town.found(db)
        until = time.monotonic() + 60 * minutes
        with gmdb.connect(self._copy) as copy:  # open all the while, for the stream to bring its batches to
            copy.execute(town.ENTRIES)
            copy.commit()
            while not self.violations:
                is_last = time.monotonic() > until
                self._live(is_last)
                if is_last:
                    break
        if not self.violations:
            self._check_closed()

    def _live(self, is_last: bool) -> None:
        self._lives += 1
        life = Life(self._database, self._dice.randrange(1 << 30), self._acknowledged, self._place / "owner.log")
        started = time.monotonic()
        if not is_last and self._dice.random() < 0.15:
            time.sleep(self._dice.uniform(0.5, 4))  # it may be opening, and recovering
            life.kill()
            self._count(life, "kills while opening", started)
            return
        life.await_opening()
        if life.wrong:
            life.kill()
            self._count(life, "not opened", started)
            return
        self._check_quiet()
        if is_last:
            life.end()
            self._count(life, "closed", started)
            return
        life.tell("go")
        self._visitors.start(life)
        self._start_stream()
        life.failed.wait(self._dice.uniform(*LIFE))
        self._count(life, self._crash(life), started)

    def _crash(self, life: Life) -> str:
        """Do something to the owner; answers what."""
        if life.failures:
            life.wrong.append(f"it failed by itself: {life.failures[0]}")
        what = self._dice.choice(["kills", "power cuts", "faults"])
        if what == "kills":
            life.kill()
        elif what == "power cuts":
            life.cut_power(self._dice.randrange(1 << 30))
        else:
            request, error, files = self._dice.choice(FAULTS)
            was_noticed = life.meet_fault(request, self._dice.choice([1, 2, 5, 20]), error, files, 15)
            what = f"faults: {request} {files} {errno.errorcode[error]}" + ("" if was_noticed else ", survived")
            life.kill()
        self._visitors.stop()
        return what

    def _count(self, life: Life, end: str, started: float) -> None:
        self.figures += life.figures
        self.figures[end] += 1
        self.violations += [f"life {self._lives}: {what}" for what in (*life.wrong, *self._visitors.wrong)]
        self.figures += self._visitors.figures
        commits, visits = life.figures["transactions"], sum(self._visitors.figures[k] for k in _VISITS)
        self._visitors.figures.clear()
        told = f"{commits:,} commits, {life.figures['read']:,} reads, {visits} visits"
        print(f"{moment()} life {self._lives}: {time.monotonic() - started:.0f} s, {told}; {end}", flush=True)

    # ---- in a quiet moment, when the owner is open and nobody writes

    def _check_quiet(self) -> None:
        wrong: list[str] = []
        with gmdb.connect(self._database, isolation="repeatable read") as db:
            instant = town.look(db, "sql", with_files=True)
            wrong += instant.complaints(self._acknowledged)
            for writer, steps in instant.steps.items():
                if steps > self._acknowledged[writer] + 1:
                    wrong.append(f"writer {writer} has {steps} commits, of {self._acknowledged[writer]} it was told")
            self._acknowledged.update(instant.steps)
            wrong += definer.complaints(db)
            wrong += self._visitors.loads.complaints(count_loads(db), is_quiet=True)
            db.rollback()
            report = db.verify()
        wrong += map(str, report.findings[:5])
        self.figures["bytes verified"] += report.size
        self.figures["quiet moments checked"] += 1
        self.figures["rows"] += instant.rows
        wrong += self._compare_copy(instant)
        self.violations += [f"before life {self._lives}: {what}" for what in wrong]

    def _check_closed(self) -> None:
        report = verify(self._database)
        self.violations += [f"at the end: {finding}" for finding in report.findings]
        self.figures["bytes verified"] += report.size

    # ---- the stream

    def _start_stream(self) -> None:
        self._query = self._stream(processingTime="200 milliseconds")

    def _stream(self, **trigger: object) -> StreamingQuery:
        changes = gmdb.spark.read_changes(self._spark, self._database, "entries", reader="copy")
        writing = changes.writeStream.format("gmdb").option("table", "entries").option("apply", "changes")
        writing = writing.option("checkpointLocation", str(self._place / "checkpoint"))
        return writing.trigger(**trigger).start(str(self._copy))  # type: ignore[arg-type]

    def _stop_stream(self) -> None:
        """It should have outlived what was done to the owner; if it did not, that is told, and another takes over."""
        if self._query is None:
            return
        self.figures["changes streamed"] += sum(progress["numInputRows"] for progress in self._query.recentProgress)
        try:
            self._query.stop()
            if self._query.exception() is not None:
                self.figures["streams that ended"] += 1
        except StreamingQueryException:
            self.figures["streams that ended"] += 1
        self._query = None

    def _compare_copy(self, instant: town.Instant) -> list[str]:
        self._stop_stream()
        query = self._stream(availableNow=True)
        query.awaitTermination()
        self.figures["changes streamed"] += sum(progress["numInputRows"] for progress in query.recentProgress)
        with gmdb.connect(self._copy) as copy:
            theirs = set(copy.execute("select * from entries").fetchall())
        mine = set(instant.entries)
        self.figures["copies compared"] += 1
        if mine == theirs:
            return []
        return [f"the copy lacks {sorted(mine - theirs)[:3]}, and has {sorted(theirs - mine)[:3]} too much"]


_VISITS = ("reads from another process", "reads by Spark", "loads by Spark", "backups restored")
