"""A piece of work in Spark, as a command sees it: how far it is, how to end it, and what went wrong in gmdb's words."""

from __future__ import annotations

import logging
import re
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb import errors
from gmdb.errors import Error, OperationalError
from gmdb.spark.local import require_pyspark, start_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POLL_SECONDS = 0.2
LOG_NAME = "spark.log"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # a TIMESTAMP has no zone: instants become what clocks show there
    "spark.driver.maxResultSize": "0",
}
_OWN = re.compile(r"gmdb\.errors\.(\w+): (.+)")
_ERROR_CLASS, _BEHIND = re.compile(r"^(?:[\w.$]+: )?\[[A-Z_.0-9]+\] "), re.compile(r"\.? SQLSTATE:.*")
QUERY_LOGGER = "SQLQueryContextLogger"  # of PySpark
_TOLD_ENOUGH = 600  # characters


@dataclass(frozen=True)
class TasksDone:
    """How far the jobs of a group are: tasks of all stages that Spark has begun."""

    done: int
    total: int
    active: int
    stages: int


Show = Callable[[TasksDone], None]


@contextmanager
def session_for(master: str) -> Iterator[SparkSession]:
    """The session that this process has already, which stays; or one at ``master``, which ends with the work."""
    require_pyspark()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        yield active
        return
    with tempfile.TemporaryDirectory(prefix="gmdb-spark-", ignore_cleanup_errors=True) as folder:
        session = start_session(Path(folder) / LOG_NAME, master, SETTINGS)
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def watched(spark: SparkSession, what: str, show: Show | None = None) -> Iterator[None]:
    """The jobs that the body starts: shown as they go on, cancelled if Ctrl-C comes, their errors in gmdb's words."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context, group = spark.sparkContext, f"gmdb-{uuid.uuid4()}"
    context.setJobGroup(group, what, interruptOnCancel=True)
    try:
        with _Watch(context, group, show), _silent(QUERY_LOGGER):
            yield
    except KeyboardInterrupt:
        context.cancelJobGroup(group)
        raise
    except (PySparkException, Py4JError) as error:
        raise in_own_words(error) from error
    finally:
        context.setLocalProperty("spark.jobGroup.id", None)


@contextmanager
def _silent(name: str) -> Iterator[None]:
    """Keep a logger from writing what is raised as well."""
    logger = logging.getLogger(name)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


class _Watch:
    """A thread that asks Spark how far it is."""

    def __init__(self, context: Any, group: str, show: Show | None) -> None:
        self._tracker, self._group, self._show = context.statusTracker(), group, show
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="gmdb-progress", daemon=True)

    def __enter__(self) -> None:
        if self._show is not None:
            self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._show is not None:
            self._thread.join()

    def _run(self) -> None:
        assert self._show is not None
        while not self._ended.wait(POLL_SECONDS):
            try:
                found = tasks_done(self._tracker, self._group)
            except Exception:  # Spark is going away; whoever waits for it is told why
                return
            if found.total:
                self._show(found)


def tasks_done(tracker: Any, group: str) -> TasksDone:
    """What Spark says of the stages of a group's jobs.  Stages that it need not run again are none of them."""
    done = total = active = stages = 0
    for job_id in tracker.getJobIdsForGroup(group):
        job = tracker.getJobInfo(job_id)
        is_over = job is None or job.status != "RUNNING"
        for stage_id in job.stageIds if job is not None else ():
            stage = tracker.getStageInfo(stage_id)
            if stage is None:
                continue
            stages += 1
            done += stage.numCompletedTasks
            total += stage.numCompletedTasks if is_over else stage.numTasks
            active += 0 if is_over else stage.numActiveTasks
    return TasksDone(done, total, active, stages)


def in_own_words(error: Exception) -> Error:
    """What Spark raised as an error of gmdb: the one that a worker raised, if it was one, else Spark's first words."""
    text = str(error)
    found = _OWN.search(text)
    if found is not None:
        kind = getattr(errors, found.group(1), None)
        said = found.group(2).strip()
        if isinstance(kind, type) and issubclass(kind, Error):
            try:
                return kind(said)
            except TypeError:
                return OperationalError(said)
        return OperationalError(said)
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    own = next((line for line in lines if line.startswith("Caused by:")), lines[0] if lines else type(error).__name__)
    said = _BEHIND.sub("", _ERROR_CLASS.sub("", own.removeprefix("Caused by:").strip()))
    return OperationalError(f"Spark: {said[:_TOLD_ENOUGH]}")
