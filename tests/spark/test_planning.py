"""Planning a read, without Spark running."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.datasource import DataSourceReader

import gmdb
from gmdb.errors import InterfaceError, OperationalError
from gmdb.spark.jobs import require_java
from gmdb.spark.options import local_path, parse_options, parse_size
from gmdb.spark.table_reader import TableReader, divide

PLAN = """
import sys
from pyspark_gmdb import DefaultSource
source = DefaultSource({"path": sys.argv[1], "table": "t"})
ranges = source.reader(source.schema()).partitions()
assert sum(count for part in ranges for _, count in part.runs) == int(sys.argv[2]), ranges
print(sorted(name for name in ("numba", "llvmlite") if name in sys.modules))
"""


def test_planning_imports_no_compiler(path: Path):
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT"})
        db.append("t", pa.table({"i": range(10_000)}))
        pages = len(db.heap("t").segment.page_ids())
    told = subprocess.run(
        [sys.executable, "-c", PLAN, str(path), str(pages)], capture_output=True, text=True, check=False
    )
    assert told.stdout == "[]\n", told.stderr


def test_filters_are_left_to_spark():
    assert TableReader.pushFilters is DataSourceReader.pushFilters


def test_ranges_cover_every_page_once_and_in_order():
    pages = [7, 8, 9, 11, 12, 3, 4_194_304]
    for most in range(1, 9):
        ranges = divide(pages, most)
        assert [page for part in ranges for page in part.page_ids().tolist()] == pages
        assert all(1 <= len(part.page_ids()) <= most for part in ranges)


def test_neighbouring_pages_take_no_more_room_in_a_partition_than_one():
    (part,) = divide(range(1_000_000, 2_000_000), 1_000_000)
    assert part.runs == ((1_000_000, 1_000_000),)
    assert pickle.loads(pickle.dumps(part)) == part


def test_a_table_without_pages_is_one_empty_range():
    (part,) = divide([], 10)
    assert part.page_ids().tolist() == []


@pytest.mark.parametrize(
    ("text", "size"),
    [("1", 1), ("65536", 65536), ("64k", 65536), ("16m", 16 << 20), ("16MiB", 16 << 20), (" 1 GB ", 1 << 30)],
)
def test_a_size_is_read_with_and_without_a_unit(text: str, size: int):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "-1", "m", "1.5m", "16 parsecs"])
def test_a_size_that_is_none_is_refused(text: str):
    with pytest.raises(InterfaceError, match="is not a size"):
        parse_size(text)


def test_options_have_names_in_any_case_and_defaults():
    options = parse_options({"PATH": "/shop.gmdb", "Table": "tbl", "COLUMNS": "i, s"})
    assert (options.table, options.columns, options.max_partition_bytes) == ("tbl", ("i", "s"), None)


def test_a_path_is_absolute_before_it_leaves_the_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert local_path("shop.gmdb") == tmp_path / "shop.gmdb"
    assert local_path(f"file://{tmp_path}/shop.gmdb") == local_path(f"file:{tmp_path}/shop.gmdb")
    with pytest.raises(InterfaceError, match="s3a"):
        local_path("s3a://bucket/shop.gmdb")


def test_without_java_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(OperationalError, match="needs Java 17"):
        require_java()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(OperationalError, match=r"JAVA_HOME is .*needs Java 17"):
        require_java()
