"""Spark's Java classes as an archive that Java maps into memory, rather than to read, check and link each of them.

A process of Spark's takes 11 s of CPU time up to its first results with it, and 18 s without; the tests start dozens.
The archive is made once for a virtual environment, by ``python -m tests.java_classes``, and lies in it.  Java ignores
one that does not fit, and nothing but time depends on it.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

# Java that lives for minutes: compile quickly rather than well, and collect garbage without threads for it.
_HURRY = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
_PATIENCE = 600.0
_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # else Java says on its standard output that an archive does not fit


def options() -> str:
    """For Java processes of tests."""
    archive = _archive()
    there_is_one = archive is not None and archive.exists()
    return f"{_HURRY} -XX:SharedArchiveFile={archive} {_QUIET}" if there_is_one else _HURRY


def _archive() -> Path | None:
    """Where the archive of this Java and this Spark is."""
    home, spark = os.environ.get("JAVA_HOME"), find_spec("pyspark")
    java = f"{home}/bin/java" if home else shutil.which("java")
    if java is None or not os.access(java, os.X_OK) or spark is None or spark.origin is None:
        return None
    jars = sorted(Path(spark.origin).parent.glob("jars/*.jar"))
    parts = [str(Path(path).resolve()) for path in (java, *jars)] + [str(os.stat(java).st_mtime_ns)]
    return Path(sys.prefix) / f"spark-classes-{hashlib.sha256(' '.join(parts).encode()).hexdigest()[:12]}.jsa"


def make() -> None:
    """Make the archive unless it is there, out of the classes that a session loads to read and to write."""
    archive = _archive()
    if archive is None or archive.exists():
        return
    with tempfile.TemporaryDirectory(prefix=".java-classes-", dir=archive.parent) as folder:
        made = Path(folder) / archive.name
        environment = {**os.environ, "JDK_JAVA_OPTIONS": f"{_HURRY} -XX:ArchiveClassesAtExit={made} {_QUIET}"}
        command = [sys.executable, "-m", "tests.java_classes", "--load", folder]
        subprocess.run(command, env=environment, stdout=subprocess.DEVNULL, check=True, timeout=_PATIENCE)
        made.replace(archive)


def load(folder: Path) -> None:
    """Have Java load the classes that tests use."""
    import pyarrow as pa

    import gmdb
    from gmdb.spark.jobs import local_session

    spark = local_session(folder / "spark.log")
    java = spark.sparkContext._gateway.proc
    path = str(folder / "tables.gmdb")
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(10))")
        db.append("t", pa.table({"i": pa.array(range(100), pa.int32()), "s": ["x"] * 100}))
    rows = spark.read.format("gmdb").option("table", "t").load(path)
    rows.where("i > 3").groupBy("s").count().orderBy("s").collect()
    rows.write.format("gmdb").option("table", "u").option("createTable", "true").mode("append").save(path)
    rows.write.parquet(str(folder / "parquet"))
    spark.read.parquet(str(folder / "parquet")).count()
    spark.stop()
    java.stdin.close()  # then it ends, and writes the archive
    java.wait(_PATIENCE)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--load"]:
        load(Path(sys.argv[2]))
    else:
        make()
