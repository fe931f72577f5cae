"""A Spark of one's own: a session that this process starts, for commands, the demo and tests."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from gmdb.errors import OperationalError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
    """A process that is started meanwhile writes its standard error to ``log``, for as long as it lives."""
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
