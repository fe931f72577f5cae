"""Those who come from other processes while the town is busy: readers, Spark, backups.

Each does one thing again and again in a thread, until the life of the owner ends.  They may be turned away when
something was done to the owner; what they see must be right all the same.
"""

from __future__ import annotations

import shutil
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from pyspark.sql import SparkSession

import gmdb
import gmdb.spark
from gmdb.database.copies import restore
from gmdb.errors import Transient
from gmdb.verify import verify
from tests.soak.life import Life
from tests.soak.town import LOAD_ROWS, WAYS, Instant, look, rows_of

RESTORED = "restored"


@dataclass
class Loads:
    """What is known of Spark's loads: for each batch, how many rows it may have."""

    next: int = 1
    allowed: dict[int, set[int]] = field(default_factory=dict)

    def complaints(self, found: dict[int, int], is_quiet: bool) -> Iterable[str]:
        """Where batches are not whole, or not what was acknowledged; in a quiet moment, that is known from then on."""
        for batch, rows in found.items():
            if rows != LOAD_ROWS:
                yield f"load {batch} has {rows} rows instead of {LOAD_ROWS}"
        if not is_quiet:
            return
        for batch in found.keys() | self.allowed.keys():
            if found.get(batch, 0) not in self.allowed.get(batch, {0}):
                yield f"load {batch} has {found.get(batch, 0)} rows; allowed are {self.allowed.get(batch, {0})}"
        self.allowed = {batch: {rows} for batch, rows in found.items()}


class Visitors:
    def __init__(self, spark: SparkSession, database: Path, place: Path, seed: int) -> None:
        self.figures: Counter[str] = Counter()
        self.wrong: list[str] = []
        self.loads = Loads()
        self._spark, self._database, self._place = spark, database, place
        self._dice = Random(seed)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []

    def start(self, life: Life) -> None:
        self._stopping.clear()
        tasks = (self._read, self._read_by_spark, self._load_by_spark, self._back_up)
        self._threads = [
            threading.Thread(target=self._visit, args=(task, life, Random(self._dice.random()))) for task in tasks
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._stopping.set()
        for thread in self._threads:
            thread.join()

    def _visit(self, task: Callable[[Life, Random], None], life: Life, dice: Random) -> None:
        self._spark.createDataFrame([(1,)], "i int")  # so that Spark knows data sources in this thread
        while not self._stopping.is_set() and not self.wrong:  # else what is wrong would be tidied away
            try:
                task(life, dice)
            except Transient as error:
                self.figures[type(error).__name__] += 1
            except Exception as error:
                if not life.is_troubled:
                    self.wrong.append(f"{task.__name__}: {error!r} {traceback.format_exc()}")
                    return
                self.figures[f"turned away: {task.__name__.strip('_')}"] += 1
            self._stopping.wait(dice.uniform(0.05, 0.5))

    def _judge(self, what: str, instant: Instant, acknowledged: dict[int, int]) -> None:
        self.wrong += [f"{what}: {complaint}" for complaint in instant.complaints(acknowledged)[:5]]
        self.figures[what] += 1
        self.figures["rows"] += instant.rows

    # ---- visits

    def _read(self, life: Life, dice: Random) -> None:
        acknowledged = dict(life.acknowledged)
        with gmdb.connect(self._database, isolation="repeatable read") as db:
            instant = look(db, dice.choice(WAYS), with_files=dice.random() < 0.2)
        self._judge("reads from another process", instant, acknowledged)

    def _read_by_spark(self, life: Life, _dice: Random) -> None:
        """All tables of one snapshot."""
        acknowledged = dict(life.acknowledged)
        with gmdb.spark.snapshot(self._spark, self._database) as snapshot:
            tables = [rows_of(snapshot.read_table(name).toArrow()) for name in ("accounts", "books", "entries")]
            counts = snapshot.read_table("loads").groupBy("batch").count().collect()
        self._judge("reads by Spark", Instant(*tables), acknowledged)
        self.wrong += self.loads.complaints({row[0]: row[1] for row in counts}, is_quiet=False)

    def _load_by_spark(self, _life: Life, dice: Random) -> None:
        """Append a batch, and sometimes delete one; what was not acknowledged is there or is not."""
        batch, self.loads.next = self.loads.next, self.loads.next + 1
        self.loads.allowed[batch] = {0, LOAD_ROWS}
        rows = self._spark.range(LOAD_ROWS, numPartitions=2).selectExpr(
            f"{batch} as batch", "cast(id as int) as number", "concat('row ', id) as text"
        )
        rows.write.format("gmdb").option("table", "loads").mode("append").save(str(self._database))
        self.loads.allowed[batch] = {LOAD_ROWS}
        self.figures["loads by Spark"] += 1
        whole = [batch for batch, rows in self.loads.allowed.items() if rows == {LOAD_ROWS}]
        if len(whole) > 5:
            batch = dice.choice(whole)
            self.loads.allowed[batch] = {0, LOAD_ROWS}
            with gmdb.connect(self._database) as db:
                db.execute("delete from loads where batch = ?", (batch,))
                db.commit()
            self.loads.allowed[batch] = {0}

    def _back_up(self, life: Life, dice: Random) -> None:
        """A backup is an instant as well: restore it, read it, and check every byte of it."""
        backup, restored = self._place / "backup", self._place / RESTORED
        for leftover in (backup, restored):
            shutil.rmtree(leftover, ignore_errors=True)
        acknowledged = dict(life.acknowledged)
        with gmdb.connect(self._database) as db:
            db.backup(backup)
        restore(backup, restored)
        with gmdb.connect(restored, isolation="repeatable read") as db:
            self._judge("backups restored", look(db, "sql", with_files=True), acknowledged)
        report = verify(restored)
        self.wrong += [f"backup: {finding}" for finding in report.findings[:5]]
        self.figures["bytes verified"] += report.size
        self._stopping.wait(dice.uniform(0, 10))


def count_loads(db: Any) -> dict[int, int]:
    return dict(db.execute("select batch, count(*) from loads group by batch").fetchall())
