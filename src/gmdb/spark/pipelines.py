"""From files into a table, and from a table into files."""

from __future__ import annotations

import glob
import re
import shutil
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gmdb
from gmdb.errors import (
    DataError,
    InterfaceError,
    NoSuchColumn,
    NoSuchTable,
    SchemaError,
    SchemaMismatch,
    TargetExists,
    TypeMismatch,
)
from gmdb.process.late_dataclasses import dataclass
from gmdb.spark import read_table
from gmdb.spark.options import local_path
from gmdb.tables.catalog.schema import TableDefinition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


# ---- Files that tables are loaded from, and directories that they are exported to.
#
# What is on this machine is looked at before Spark is: names that match nothing, kinds of files that are mixed, columns
# that differ from file to file.  Of files elsewhere (``s3a://…``), Spark tells.

FORMATS = ("parquet", "csv", "json", "orc")
COMPRESSIONS = ("zstd", "snappy")
_BY_ENDING = {
    ".parquet": "parquet", ".pq": "parquet", ".csv": "csv", ".tsv": "csv", ".json": "json", ".jsonl": "json",
    ".ndjson": "json", ".orc": "orc",
}  # fmt: skip
_PACKED = (".gz", ".bz2", ".zst", ".lz4", ".xz")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_EMPTY = "\ue000\ue001"  # a text of quotes alone, which Spark would take for NULL; no text has these
_NOT_DATA = ("_", ".")  # how names of files begin that Spark leaves beside data


@dataclass(frozen=True)
class Sources:
    """Files of one kind."""

    format: str
    paths: list[str]  # as Spark takes them
    size: int | None  # in bytes; None if they are not all on this machine
    delimiter: str = ","


def find_sources(names: Sequence[str], format: str | None = None) -> Sources:
    """Files, directories and patterns such as ``day-*.csv``; ``format`` if their names do not say it."""
    if any(_SCHEME.match(name) for name in names):
        kind = format or _one_kind({name: _kind(Path(name)) for name in names})
        return Sources(kind, list(names), None)
    paths = [path for name in names for path in _matches(name)]
    files = [file for path in paths for file in _files(path)]
    kind = format or _one_kind({str(file): _kind(file) for file in files})
    _require_one_schema(kind, files)
    endings = {file.name.lower().removesuffix(file.suffix.lower() if file.suffix in _PACKED else "") for file in files}
    delimiter = "\t" if kind == "csv" and all(name.endswith(".tsv") for name in endings) else ","
    return Sources(kind, [str(path.absolute()) for path in paths], sum(f.stat().st_size for f in files), delimiter)


def _matches(name: str) -> list[Path]:
    if Path(name).exists():
        return [Path(name)]
    files = [Path(match) for match in sorted(glob.glob(name))]
    if not files:
        raise InterfaceError(f"there is no file {name}")
    return files


def _files(path: Path) -> list[Path]:
    """The data files that a path stands for."""
    if not path.is_dir():
        return [path]
    files = [
        file
        for file in sorted(path.rglob("*"))
        if file.is_file() and not any(part.startswith(_NOT_DATA) for part in file.relative_to(path).parts)
    ]
    if not files:
        raise InterfaceError(f"{path} is a directory without files")
    return files


def _kind(path: Path) -> str | None:
    while path.suffix.lower() in _PACKED:
        path = path.with_suffix("")
    return _BY_ENDING.get(path.suffix.lower())


def _one_kind(kinds: dict[str, str | None]) -> str:
    distinct = set(kinds.values())
    if None in distinct:
        unknown = next(name for name, kind in kinds.items() if kind is None)
        raise InterfaceError(f"{unknown}: its name does not say what it is; say --format {', '.join(FORMATS)}")
    if len(distinct) > 1:
        pairs = ", ".join(
            f"{kind} ({next(n for n, k in kinds.items() if k == kind)})" for kind in sorted(map(str, distinct))
        )
        raise InterfaceError(f"files of one kind can be loaded at once, but these are {pairs}")
    return str(distinct.pop())


# ---- columns that differ from file to file


def _require_one_schema(kind: str, files: Sequence[Path]) -> None:
    """Spark takes the columns of one file for those of all, and gives NULL where another lacks one."""
    if kind not in ("parquet", "orc") or len(files) < 2:
        return  # Spark holds headers of CSV against each other; JSON says of every row what it has
    first = _columns(kind, files[0])
    for file in files[1:]:
        columns = _columns(kind, file)
        if columns != first:
            differs = sorted(set(columns.items()) ^ set(first.items()))[0][0]
            of, here = first.get(differs, "no such column"), columns.get(differs, "no such column")
            message = f"{file} has other columns than {files[0]}: {differs} is {here} here, {of} there"
            raise SchemaMismatch(f"{message}; load them one after the other")


def _columns(kind: str, file: Path) -> dict[str, str]:
    import pyarrow as pa
    from pyarrow import orc, parquet

    try:
        schema = parquet.read_schema(file) if kind == "parquet" else orc.ORCFile(str(file)).schema
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{file} is not a {kind} file: {error}") from None
    return {field.name: str(field.type) for field in schema}


# ---- reading


def read_files(spark: SparkSession, sources: Sources, table: TableDefinition | None = None) -> DataFrame:
    """The files as one DataFrame, of types that tables have; what is written as text, of those of the table."""
    reader = spark.read
    if sources.format == "csv":
        # With enforceSchema, a column in another place in a further file would be taken for another one.
        options = {"header": True, "inferSchema": table is None, "enforceSchema": False, "sep": sources.delimiter}
        options |= {"mode": "FAILFAST", "emptyValue": _EMPTY}
        frame = reader.options(**options).csv(sources.paths)
        return _for_table(_as_tables_have(frame.replace(_EMPTY, "")), table)
    if sources.format == "json":
        return _for_table(_as_tables_have(reader.option("mode", "FAILFAST").json(sources.paths)), table)
    if sources.format == "parquet":
        return _as_tables_have(reader.option("mergeSchema", sources.size is None).parquet(*sources.paths))
    return _as_tables_have(reader.option("mergeSchema", sources.size is None).orc(sources.paths))


def _as_tables_have(frame: DataFrame) -> DataFrame:
    """Narrow numbers made wider, instants as what clocks show in the session's zone; names in small letters."""
    from pyspark.sql import functions as f

    wider: dict[str, str] = {"tinyint": "int", "smallint": "int", "float": "double", "timestamp": "timestamp_ntz"}
    wider["void"] = "string"
    columns = []
    for field in frame.schema.fields:
        kind = field.dataType.simpleString()
        if kind.startswith(("array", "map", "struct", "interval", "variant")):
            raise TypeMismatch(f"column {field.name}: a table has no type for {kind}")
        column: Any = f.col("`" + field.name.replace("`", "``") + "`")
        columns.append((column.cast(wider[kind]) if kind in wider else column).alias(field.name.strip().lower()))
    names = [field.name.strip().lower() for field in frame.schema.fields]
    for name in names:
        if not name or names.count(name) > 1:
            raise SchemaError(f"two columns are called {name}" if name else "a column has no name")
    return frame.select(*columns)


def _for_table(frame: DataFrame, table: TableDefinition | None) -> DataFrame:
    """Values as the table's columns have them; by way of texts, since Spark cuts off what a number is too small for."""
    if table is None:
        return frame
    from pyspark.sql import functions as f

    from gmdb.spark.spark_types import spark_type

    types = {column.name.lower(): spark_type(column.type) for column in table.columns}
    columns = []
    for field in frame.schema.fields:
        column: Any = f.col("`" + field.name.replace("`", "``") + "`")
        wanted = types.get(field.name)
        if wanted is not None and wanted != field.dataType:
            column = column.cast("string").cast(wanted).alias(field.name)
        columns.append(column)
    return frame.select(*columns)


# ---- targets


def require_target(target: str, database: Path, overwrite: bool) -> None:
    """Refuse a directory that is not empty, unless it may be overwritten; and one that is, or holds, the database."""
    if _SCHEME.match(target) and not target.lower().startswith("file:"):
        return
    path = local_path(target)
    here, there = path.resolve(), database.resolve()
    if here == there or here in there.parents or there in here.parents:
        raise InterfaceError(f"{target} is the database, or has it inside; choose a directory of its own")
    if path.is_file():
        raise TargetExists(f"{target} is a file; name a directory")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise TargetExists(f"{target} is not empty; choose another directory, or say --overwrite")


def size_of(target: str) -> int | None:
    """Bytes of the data files in a directory; None if it is not on this machine."""
    if _SCHEME.match(target) and not target.lower().startswith("file:"):
        return None
    path = local_path(target)
    return sum(file.stat().st_size for file in _files(path)) if any(path.rglob("*.parquet")) else 0


# ---- From files into a table, and from a table into files.


@dataclass(frozen=True)
class Moved:
    """How much was moved; ``size`` is None if the files cannot be counted from here."""

    rows: int
    size: int | None
    seconds: float

    def document(self) -> dict[str, Any]:
        return {"rows": self.rows, "bytes": self.size, "seconds": round(self.seconds, 3)}


def load_files(
    spark: SparkSession, database: Path, table: str, sources: Sources, *, create: bool = False, overwrite: bool = False
) -> Moved:
    """Bring files into a table, all in one transaction; with ``create``, a table and a database that are not there."""
    began, is_new = time.perf_counter(), not database.exists()
    frame, count = _counted(read_files(spark, sources, None if is_new else _table_if_any(database, table, create)))
    writer = frame.write.format("gmdb").option("table", table).mode("overwrite" if overwrite else "append")
    try:
        if create:
            writer = writer.option("createTable", "true")
        writer.save(str(database.absolute()))
    except BaseException:
        if is_new and create:
            shutil.rmtree(database, ignore_errors=True)
        raise
    return Moved(count(), sources.size, time.perf_counter() - began)


def _table_if_any(database: Path, table: str, create: bool) -> TableDefinition | None:
    """The table that is there; None if it is not, but may be made."""
    with gmdb.connect(database, read_only=True) as connection:
        try:
            return connection.table(table)
        except NoSuchTable as error:
            if create:
                return None
            raise NoSuchTable(f"{error}; --create makes one") from None


@dataclass(frozen=True)
class Wanted:
    """What of a table is exported, and how it is laid out; nothing given: all of it."""

    columns: Sequence[str] = ()
    where: str | None = None
    partition_by: Sequence[str] = ()
    files: int | None = None
    compression: str = "zstd"


def export_table(
    spark: SparkSession, database: Path, table: str, target: str, wanted: Wanted, *, overwrite: bool = False
) -> Moved:
    """Write a table's rows into a directory of Parquet files."""
    began = time.perf_counter()
    require_target(target, database, overwrite)
    lost = [name for name in wanted.partition_by if wanted.columns and name.lower() not in _lower(wanted.columns)]
    if lost:
        raise InterfaceError(f"files are to be divided by {', '.join(lost)}, which --columns leaves out")
    frame = read_table(spark, database, table)
    _require_columns(frame, table, [*wanted.columns, *wanted.partition_by])
    frame, count = _counted(_chosen(spark, database, table, wanted))
    if wanted.files is not None:
        frame = frame.repartition(wanted.files, *wanted.partition_by)
    writer = frame.write.mode("overwrite" if overwrite else "append").option("compression", wanted.compression)
    if wanted.partition_by:
        writer = writer.partitionBy(*wanted.partition_by)
    writer.parquet(target)
    return Moved(count(), size_of(target), time.perf_counter() - began)


def _chosen(spark: SparkSession, database: Path, table: str, wanted: Wanted) -> DataFrame:
    if wanted.where is None:
        return read_table(spark, database, table, wanted.columns or None)
    frame = read_table(spark, database, table).where(wanted.where)
    return frame.select(*wanted.columns) if wanted.columns else frame


def _require_columns(frame: DataFrame, table: str, names: Sequence[str]) -> None:
    known = _lower(frame.columns)
    for name in names:
        if name.lower() not in known:
            raise NoSuchColumn(f"table {table} has no column {name}; it has {', '.join(frame.columns)}")


def _lower(names: Sequence[str]) -> list[str]:
    return [name.lower() for name in names]


def _counted(frame: DataFrame) -> tuple[DataFrame, Any]:
    """The frame, and a function that says how many rows went through it in the one action on it."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as f

    observation = Observation()
    observed = frame.observe(observation, f.count(f.lit(1)).alias("rows"))
    return observed, lambda: int(observation.get["rows"])
