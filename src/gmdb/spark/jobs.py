"""A command's work in Spark: its progress, how to end it, and what went wrong in gmdb's words."""

from __future__ import annotations

import importlib.util
import logging
import os
import re
import shutil
import signal
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gmdb import errors
from gmdb.errors import Error, OperationalError
from gmdb.process.late_dataclasses import dataclass

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# ---- A Spark of one's own: a session that this process starts, for commands, the demo and tests.

JAVA_NEEDED = (
    "Spark needs Java 17 or later. On Debian and Ubuntu: sudo apt-get install openjdk-17-jre-headless; "
    "elsewhere install any JDK or JRE from 17 on, and point JAVA_HOME at it"
)
PYSPARK_NEEDED = "Spark is not installed; install gmdb with it: pip install 'gmdb[spark]'"
LOG_LINES_SHOWN = 5
_CONFIGURATION = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "100000",  # a load takes a fifth longer with Spark's 10,000
}


def local_session(log: Path, cores: int = 2, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark in this process and one Java process.  What Java says goes to the file ``log``."""
    return start_session(log, f"local[{cores}]", {"spark.sql.shuffle.partitions": str(cores), **(settings or {})})


def start_session(log: Path, master: str, settings: Mapping[str, str] | None = None) -> SparkSession:
    """Start Spark in this process, for work at ``master``.  What Java says goes to the file ``log``."""
    require_pyspark()
    require_java()
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException
    from pyspark.sql import SparkSession

    # Both are read when Java starts; without the first, workers run whatever python3 is on the path.
    os.environ["PYSPARK_PYTHON"] = sys.executable
    if master.startswith("local"):
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    builder = SparkSession.builder.appName("gmdb").master(master)
    settings = {**_CONFIGURATION, "spark.sql.warehouse.dir": str(log.parent / "spark-warehouse"), **(settings or {})}
    for name, value in settings.items():
        builder = builder.config(name, value)
    try:
        with _standard_error_into(log):
            return builder.getOrCreate()
    except (PySparkException, Py4JError) as error:
        last = " / ".join(log.read_text(errors="replace").split("\n")[-LOG_LINES_SHOWN:]).strip(" /")
        raise OperationalError(f"Spark did not start: {last or error}. {JAVA_NEEDED}") from error


def is_local(master: str) -> bool:
    """Whether workers are on this machine, and so have its files for temporary things."""
    return master.partition("[")[0] == "local"


def require_pyspark() -> None:
    if importlib.util.find_spec("pyspark") is None:
        raise OperationalError(PYSPARK_NEEDED)


def require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    if home and not os.access(Path(home) / "bin" / "java", os.X_OK):
        raise OperationalError(f"JAVA_HOME is {home}, where no bin/java is. {JAVA_NEEDED}")
    if not home and shutil.which("java") is None:
        raise OperationalError(f"no java is on PATH, and JAVA_HOME is not set. {JAVA_NEEDED}")


@contextmanager
def _standard_error_into(log: Path) -> Iterator[None]:
    """Within this, a process that is started writes its standard error to ``log``, for as long as it lives."""
    sys.stderr.flush()
    before = os.dup(2)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.dup2(file, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(file)
        os.close(before)


# ---- A piece of work in Spark, as a command sees it.

POLL_SECONDS = 0.2
CANCEL_SECONDS = 10.0
LOG_NAME = "spark.log"
SETTINGS = {
    "spark.sql.session.timeZone": "UTC",  # a TIMESTAMP has no zone: instants become what clocks show there
    "spark.driver.maxResultSize": "0",
}
_OWN = re.compile(r"gmdb\.errors\.(\w+): (.+)")
_STACK = re.compile(r"at [\w.$/]+\(|\.\.\. \d+ more|=+ |JVM stacktrace|'?[A-Z]\w+ \(|[+:]- ")
_ERROR_CLASS = re.compile(r"^(?:[\w.$]+: )?(?:\[[A-Z_.0-9]+\] )?")
_BEHIND = re.compile(r"\.? (?:SQLSTATE:|Correct the value as per).*")  # what Spark advises is no help here
LOGGERS = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "py4j.clientserver", "py4j.java_gateway", "")
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
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.default_int_handler)  # Spark's own asks Java amid another question
        try:
            yield session
        except KeyboardInterrupt:
            _on_another_thread(session.stop)
            raise
        except BaseException:
            session.stop()
            raise
        session.stop()


@contextmanager
def watched(spark: SparkSession, what: str, show: Show | None = None) -> Iterator[None]:
    """The jobs that the body starts: shown as they go on, cancelled if Ctrl-C comes, their errors in gmdb's words."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    context, group = spark.sparkContext, f"gmdb-{uuid.uuid4()}"
    context.setJobGroup(group, what, interruptOnCancel=True)
    try:
        with _Watch(context, group, show), _without_logging(LOGGERS):
            yield
    except KeyboardInterrupt:
        _on_another_thread(lambda: context.cancelJobGroup(group))
        raise
    except (PySparkException, Py4JError) as error:
        if was_interrupted(error):
            _on_another_thread(lambda: context.cancelJobGroup(group))
            raise KeyboardInterrupt from error
        context.setLocalProperty("spark.jobGroup.id", None)
        raise in_own_words(error) from error
    context.setLocalProperty("spark.jobGroup.id", None)


def was_interrupted(error: BaseException | None) -> bool:
    """Whether an error is what Py4J made of Ctrl-C, which struck while it read an answer."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def _on_another_thread(action: Callable[[], None]) -> None:
    """Ask Java something although this thread was interrupted, maybe while it waited for an answer of Java's."""
    thread = threading.Thread(target=action, name="gmdb-cancel", daemon=True)
    thread.start()
    thread.join(CANCEL_SECONDS)


@contextmanager
def _without_logging(names: Sequence[str]) -> Iterator[None]:
    """Keep loggers of PySpark and Py4J, which also uses the root's, from writing what is raised as well."""
    loggers = [logging.getLogger(name) for name in names]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, was in zip(loggers, before, strict=True):
            logger.disabled = was


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
                progress = tasks_done(self._tracker, self._group)
            except Exception:  # Spark is going away; the caller that waits for it is told why
                return
            if progress.total:
                self._show(progress)


def tasks_done(tracker: Any, group: str) -> TasksDone:
    """What Spark says of the stages of a group's jobs, without stages that it need not run again."""
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
    match = _OWN.search(text)
    if match is not None:
        kind = getattr(errors, match.group(1), None)
        message = match.group(2).strip()
        if isinstance(kind, type) and issubclass(kind, Error):
            try:
                return kind(message)
            except TypeError:
                return OperationalError(message)
        return OperationalError(message)
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(error).__name__]
    causes = [n for n, line in enumerate(lines) if line.startswith("Caused by:")]
    own = takewhile(lambda line: not _STACK.match(line), lines[causes[-1] if causes else 0 :])
    message = " ".join(own).removeprefix("Caused by:").strip()
    message = _BEHIND.sub("", _ERROR_CLASS.sub("", message)).rstrip(" .")
    return OperationalError(f"Spark: {message[:_TOLD_ENOUGH]}")
