"""Many databases as one DataFrame: all rows, and which database each is of; what is broken is left out whole."""

from __future__ import annotations

import json
import os
import random
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import gmdb
import gmdb.spark
from gmdb.errors import (
    Error,
    InterfaceError,
    NotADatabase,
    OperationalError,
    SchemaMismatch,
    SnapshotExpired,
)
from gmdb.spark import fleet_reader
from gmdb.spark.fleet import find_members, read_report
from gmdb.spark.fleet_reader import FleetReader, fleet_schema
from gmdb.spark.options import parse_options
from gmdb.storage.pins import drop_closed, pin_path, read_pins
from gmdb.tables.arrow import scan
from tests.server.peer import Peer
from tests.spark.fleets import (
    DAMAGES,
    ROWS,
    copy,
    data_page,
    flip_bytes,
    lose_control,
    make_database,
    make_fleet,
    zero_catalog,
)

pytestmark = pytest.mark.spark
DATABASES = 200
FEW = 4
FUZZED = 60


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of 200 databases with 10,000 rows each, two of which have changed since they were copied."""
    folder = tmp_path_factory.mktemp("large") / "fleet"
    paths = make_fleet(folder, DATABASES)
    for number in (7, 150):
        with gmdb.connect(paths[number]) as db:
            db.execute("update tbl set s = ?", (f"of {number}",))
            db.commit()
    return folder


@pytest.fixture
def few(tmp_path: Path) -> list[Path]:
    return make_fleet(tmp_path / "fleet", FEW, 1000)


def load(spark: SparkSession, fleet: object, **options: object) -> DataFrame:
    """``fleet`` is a pattern, or a list."""
    given = {"table": "tbl", **options}
    paths = [str(path) for path in fleet] if isinstance(fleet, list) else str(fleet)
    return spark.read.format("gmdb").options(**given).load(paths)


def here(fleet: object, **options: object) -> list[pa.RecordBatch]:
    """What tasks would answer, without Spark."""
    parsed = parse_options({"path": str(fleet), "table": "tbl", **{k: str(v) for k, v in options.items()}})
    reader = FleetReader(parsed, fleet_schema(parsed))
    return [batch for part in reader.partitions() for batch in reader.read(part)]


def counts(batches: list[pa.RecordBatch]) -> dict[str, int]:
    found: dict[str, int] = {}
    for batch in batches:
        (name,) = set(batch["_database"].to_pylist())
        found[name] = found.get(name, 0) + batch.num_rows
    return found


def refusal(action: Callable[[], object]) -> str:
    with pytest.raises(PySparkException) as caught:
        action()
    return str(caught.value)


# ---- two hundred databases


def test_two_hundred_databases_are_one_dataframe(spark, large: Path):
    frame = load(spark, large / "*")
    assert frame.columns == ["i", "s", "_database"]
    assert frame.rdd.getNumPartitions() <= 20
    found = frame.groupBy("_database").agg({"*": "count", "i": "sum", "s": "max"}).collect()
    expected = {str(large / f"db{n:03}.gmdb"): (ROWS, sum(range(ROWS)), "text 9999") for n in range(DATABASES)}
    for number in (7, 150):
        expected[str(large / f"db{number:03}.gmdb")] = (ROWS, sum(range(ROWS)), f"of {number}")
    assert {row[0]: (row["count(1)"], row["sum(i)"], row["max(s)"]) for row in found} == expected


def test_three_that_are_damaged_are_reported_and_the_rest_is_right(spark, large: Path, tmp_path: Path):
    broken = dict(zip(("db003", "db099", "db199"), DAMAGES.values(), strict=True))
    said = {}
    fleet = tmp_path / "fleet"
    fleet.mkdir()
    for path in sorted(large.iterdir()):
        if path.stem in broken:
            said[str(fleet / path.name)] = broken[path.stem](copy(path, fleet / path.name))
        else:
            (fleet / path.name).symlink_to(path)
    read = gmdb.spark.read_fleet(spark, fleet / "*", "tbl", on_error="skip")
    for _ in range(2):  # and again, by the same plan
        found = dict(read.frame.groupBy("_database").count().collect())
        names = [path.name for path in large.iterdir()]
        assert found == {str(fleet / name): ROWS for name in names if str(fleet / name) not in said}
        assert len(found) == DATABASES - 3
        assert [one.database for one in read.skipped] == sorted(said)
        assert [one.page for one in read.skipped] == [None] * 3
        for one in read.skipped:
            assert said[one.database] in one.error
    told = refusal(load(spark, fleet / "*").count)
    assert "gmdb.errors." in told
    assert any(database in told for database in said)


# ---- what is damaged


@pytest.mark.parametrize("damage", [*DAMAGES.values(), zero_catalog], ids=lambda damage: damage.__name__)
def test_a_damaged_database_fails_the_read_or_is_left_out_whole(few: list[Path], tmp_path: Path, damage):
    fleet, report = few[0].parent / "*", tmp_path / "report"
    said = damage(few[2])
    with pytest.raises(Error) as caught:
        here(fleet)
    assert said in str(caught.value)
    assert str(few[2]) in str(caught.value)
    assert counts(here(fleet, onError="skip", reportTo=report)) == {str(path): 1000 for path in few if path != few[2]}
    (told,) = read_report(report)
    assert (told.database, told.page) == (str(few[2]), None)
    assert said in told.error


def test_a_damaged_page_alone_is_left_out_if_that_is_asked_for(few: list[Path], tmp_path: Path):
    fleet, report = few[0].parent / "*", tmp_path / "report"
    said = flip_bytes(few[1])
    lose_control(few[3])
    found = counts(here(fleet, onError="skip", onCorruption="skip", reportTo=report, maxPartitionBytes="8k"))
    assert (found[str(few[0])], found[str(few[2])], str(few[3]) in found) == (1000, 1000, False)
    assert 0 < found[str(few[1])] < 1000
    page, whole = read_report(report)
    assert (page.database, page.page is None, whole.database, whole.page) == (str(few[1]), False, str(few[3]), None)
    assert said in page.error
    [line] = (report / name for name in [sorted(p.name for p in report.iterdir())[0]])
    assert set(json.loads(line.read_text())) == {"database", "page", "kind", "error"}


@pytest.mark.parametrize("held", [100, 1 << 20])
def test_rows_wait_for_their_database_to_be_found_sound_and_come_once(
    few: list[Path], tmp_path: Path, monkeypatch, held: int
):
    monkeypatch.setattr(scan, "RANGE_SIZE", 1)  # a batch for each page
    monkeypatch.setattr(fleet_reader, "HELD_MAX", held)
    flip_bytes(few[1], -1)  # behind pages whose rows have been read by then
    batches = here(few[0].parent / "*", onError="skip", reportTo=tmp_path / "report")
    assert len(batches) > 2 * FEW
    assert counts(batches) == {str(path): 1000 for path in few if path != few[1]}


def test_an_instant_that_is_over_is_no_damage(few: list[Path]):
    options = parse_options({"path": str(few[0].parent / "*"), "table": "tbl", "onError": "skip"})
    reader = FleetReader(options, fleet_schema(options))
    (part,) = reader.partitions()
    (pin,) = read_pins(few[1])
    drop_closed(few[1], pin.name)
    with pytest.raises(SnapshotExpired, match="load again"):
        list(reader.read(part))
    shutil.rmtree(few[1])  # and so it cannot be read any more
    assert counts(list(reader.read(part))) == {str(path): 1000 for path in few if path != few[1]}


def test_with_nothing_left_the_first_error_is_told(few: list[Path]):
    for path in few:
        zero_catalog(path)
    with pytest.raises(OperationalError, match=r"none of these databases can be read; the first: .*db000.gmdb"):
        here(few[0].parent / "*", onError="skip")


def test_a_report_that_cannot_be_written_fails_the_read(few: list[Path], tmp_path: Path):
    lose_control(few[1])
    (tmp_path / "report").write_text("a file")
    with pytest.raises(Error, match=r"reportTo: .*report: File exists"):
        here(few[0].parent / "*", onError="skip", reportTo=tmp_path / "report")


def test_random_damage_is_either_harmless_or_told_of(tmp_path: Path):
    sound = make_database(tmp_path / "fleet" / "a.gmdb", 300)
    chance = random.Random(5)
    for number in range(FUZZED):
        broken = copy(sound, tmp_path / "fleet" / "b.gmdb")
        for _ in range(chance.choice((1, 1, 20))):
            target = chance.choice([p for p in sorted(broken.iterdir()) if p.is_file() and p.stat().st_size])
            data = bytearray(target.read_bytes())
            at = chance.randrange(min(len(data), 300_000))
            data[at : at + 8] = chance.randbytes(8)
            target.write_bytes(data[: chance.choice((len(data), len(data), at))])
        report = tmp_path / f"report{number}"
        found = counts(here(tmp_path / "fleet" / "*", onError="skip", reportTo=report))
        assert found.pop(str(sound)) == 300
        if found:
            assert found == {str(broken): 300}
        else:
            assert [one.database for one in read_report(report)] == [str(broken)]
        shutil.rmtree(broken)


# ---- which databases


def test_a_pattern_matches_databases_and_nothing_else(few: list[Path], tmp_path: Path, monkeypatch):
    folder = few[0].parent
    (folder / "db9.txt").write_text("no database")
    (folder / "db9").mkdir()
    (folder / "gone").symlink_to(folder / "nowhere")
    monkeypatch.chdir(tmp_path)
    assert [m.name for m in find_members(["fleet/*"])] == [f"fleet/{path.name}" for path in few]
    assert [m.path for m in find_members(["fleet/db00[12].gmdb", "fleet/db00?.gmdb"])] == [
        few[1], few[2], few[0], few[3],
    ]  # fmt: skip
    assert [m.name for m in find_members([f"file:{folder}/*1.gmdb", "fleet/none.gmdb"])] == [
        str(few[1]), "fleet/none.gmdb",
    ]  # fmt: skip
    with pytest.raises(NotADatabase, match=r"fleet/x\*: no database is there"):
        find_members(["fleet/x*"])


def test_a_path_that_is_there_is_no_pattern(spark, tmp_path: Path):
    frame = load(spark, make_database(tmp_path / "a[1].gmdb", 10))
    assert (frame.columns, frame.count()) == (["i", "s"], 10)


def test_several_paths_are_a_fleet(spark, few: list[Path]):
    frame = load(spark, [few[1], few[3], few[1]])
    assert dict(frame.groupBy("_database").count().collect()) == {str(few[1]): 1000, str(few[3]): 1000}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"onError": "ignore"}, "onError: 'ignore' is not one of fail, skip"),
        ({"snapshot": "0000000001-00000000"}, "snapshot is of one database"),
        ({"owner": "gmdb://host:7433"}, "owner is of one database"),
        ({"table": "tbi"}, "db000.gmdb has no table tbi; did you mean tbl?"),
        ({"columns": "i,j"}, "db000.gmdb: table tbl has no column j"),
        ({"columns": "i,_database,_DATABASE"}, "_database is asked for twice"),
    ],
)
def test_a_wrong_option_is_named(few: list[Path], options: dict[str, str], message: str):
    with pytest.raises(Error) as caught:
        here(few[0].parent / "*", **options)
    assert message in str(caught.value)


def test_options_of_fleets_are_refused_for_one_database(few: list[Path]):
    for options in ({"onError": "skip"}, {"reportTo": "/report"}):
        with pytest.raises(InterfaceError, match="is for several databases"):
            parse_options({"path": str(few[0]), "table": "tbl", **options})


@pytest.mark.parametrize("on_error", ["fail", "skip"])
def test_a_wrong_condition_is_refused_and_leaves_no_pin(few: list[Path], on_error: str):
    with pytest.raises(Error, match="is not a condition"):
        here(few[0].parent / "*", where="i <", onError=on_error)
    assert [read_pins(path) for path in few] == [[]] * FEW


def test_a_plan_that_fails_leaves_no_pin(few: list[Path]):
    lose_control(few[3])
    with pytest.raises(NotADatabase):
        here(few[0].parent / "*")
    assert [read_pins(path) for path in few] == [[]] * FEW
    assert len(here(few[0].parent / "*", onError="skip")) == FEW - 1
    assert [len(read_pins(path)) for path in few] == [1, 1, 1, 0]


# ---- columns


def test_which_database_it_is_stands_last_or_where_it_is_asked_for(few: list[Path]):
    fleet = few[0].parent / "*"
    assert here(fleet)[0].schema.names == ["i", "s", "_database"]
    assert here(fleet, columns="s")[0].schema.names == ["s", "_database"]
    batch = here(fleet, columns="_rowid, _Database,i,_page_id")[0]
    assert batch.schema.names == ["_rowid", "_database", "i", "_page_id"]
    assert batch["_page_id"][0].as_py() == data_page(few[0], 0)
    only = here(fleet, columns="_database")
    assert only[0].schema.names == ["_database"]
    assert counts(only) == {str(path): 1000 for path in few}


def test_a_schema_chooses_columns(spark, few: list[Path]):
    reader = spark.read.format("gmdb").option("table", "tbl")
    frame = reader.schema("_database STRING, I INT").load(str(few[0].parent / "*"))
    assert frame.columns == ["_database", "I"]
    assert frame.groupBy("_database").sum("I").distinct().count() == FEW
    assert reader.schema("s STRING").load(str(few[0].parent / "*")).count() == FEW * 1000
    assert "says int" in refusal(reader.schema("i INT, _database INT").load(str(few[0].parent / "*")).count)


def test_a_database_whose_table_differs_is_named_or_left_out(few: list[Path], tmp_path: Path):
    fleet = few[0].parent / "*"
    with gmdb.connect(few[1]) as db:
        db.execute("drop table tbl")
        db.execute("create table tbl (i bigint, s varchar(500), more int)")
        db.execute("insert into tbl values (1, 'one', 2)")
        db.commit()
    with gmdb.connect(few[2]) as db:
        db.execute("drop table tbl")
        db.execute("create table tbl (i int)")
        db.commit()
    with pytest.raises(
        SchemaMismatch, match=r"db001.gmdb: table tbl, column i is BIGINT, in Spark bigint, and not int"
    ):
        here(fleet)
    with pytest.raises(SchemaMismatch, match=r"db002.gmdb: table tbl has no column s.*option columns.*onError=skip"):
        here(fleet, columns="s")
    assert [read_pins(path) for path in few] == [[]] * FEW
    report = tmp_path / "report"
    assert counts(here(fleet, columns="s", onError="skip", reportTo=report)) == {
        str(few[0]): 1000, str(few[1]): 1, str(few[3]): 1000,
    }  # fmt: skip
    (told,) = read_report(report)
    assert (told.database, told.kind) == (str(few[2]), "SchemaMismatch")


def test_a_column_of_that_name_must_be_left_out(tmp_path: Path):
    with gmdb.connect(tmp_path / "a.gmdb") as db:
        db.execute("create table tbl (i int, _database int)")
        db.execute("insert into tbl values (1, 2)")
        db.commit()
    with pytest.raises(SchemaMismatch, match="has a column _database of its own"):
        here(tmp_path / "*")
    assert here(tmp_path / "*", columns="i")[0].to_pylist() == [{"i": 1, "_database": str(tmp_path / "a.gmdb")}]


# ---- how it is read


def test_a_condition_is_asked_in_each_database(few: list[Path]):
    with gmdb.connect(few[1]) as db:
        db.execute("delete from tbl where i < 500")
        db.commit()
    options = parse_options({"path": str(few[0].parent / "*"), "table": "tbl", "where": "i between 490 and 509"})
    reader = FleetReader(options, fleet_schema(options))
    parts = reader.partitions()
    assert max(sum(n for _, n in part.share.pages.runs) for range_ in parts for part in range_.parts) <= 2
    found = counts([batch for part in parts for batch in reader.read(part)])
    assert found == {str(few[0]): 20, str(few[1]): 10, str(few[2]): 20, str(few[3]): 20}


def test_a_large_database_is_divided_unless_one_task_must_see_all_of_it(spark, few: list[Path]):
    several = load(spark, few[0].parent / "*", maxPartitionBytes="16k")
    assert several.rdd.getNumPartitions() > FEW
    assert several.count() == FEW * 1000
    whole = load(spark, few[0].parent / "*", maxPartitionBytes="16k", onError="skip")
    assert whole.rdd.getNumPartitions() == FEW


def test_databases_that_others_have_open_are_read_at_one_instant(spark, few: list[Path], peer: Peer):
    peer("db = gmdb.connect(path)", path=str(few[1]))
    peer("db.execute('update tbl set i = i + 5000'); db.commit(); db.execute('delete from tbl')")
    try:
        frame = load(spark, few[0].parent / "*")
        right = {str(path): 6000 - 1 if path == few[1] else 999 for path in few}
        assert dict(frame.groupBy("_database").max("i").collect()) == right
        peer("db.commit()")
        assert dict(frame.groupBy("_database").max("i").collect()) == right
        assert load(spark, few[0].parent / "*").count() == (FEW - 1) * 1000
    finally:
        peer("db.close()")


def test_a_database_that_was_not_closed_is_recovered(few: list[Path]):
    owner = Peer()
    owner("db = gmdb.connect(path)", path=str(few[2]))
    owner("db.execute('update tbl set i = 1 where i = 2'); db.commit()")
    owner.kill()
    assert counts(here(few[0].parent / "*")) == {str(path): 1000 for path in few}


def test_databases_that_cannot_be_pinned_are_read_all_the_same(few: list[Path]):
    (few[1] / "snapshots").write_text("a file where the folder would be")
    assert counts(here(few[0].parent / "*", onError="skip")) == {str(path): 1000 for path in few}


def test_whoever_reads_one_database_keeps_the_pins_of_all(few: list[Path], monkeypatch):
    given = {"path": str(few[0].parent / "*"), "table": "tbl", "maxPartitionBytes": "8k", "lease": "30"}
    options = parse_options(given)
    reader = FleetReader(options, fleet_schema(options))
    parts = reader.partitions()
    (last,) = read_pins(few[-1])
    held = pin_path(few[-1], last.name)
    os.utime(held, (0, 0))
    list(reader.read(parts[0]))
    assert held.stat().st_mtime == 0  # it is not time yet
    monkeypatch.setattr(time, "time", lambda real=time.time: real() + 10.1)
    list(reader.read(parts[0]))
    assert held.stat().st_mtime > 0
    os.utime(held, (0, 0))
    list(reader.read(parts[0]))
    assert held.stat().st_mtime == 0


# ---- views


def test_views_are_of_all_databases(spark, few: list[Path], tmp_path: Path):
    flip_bytes(few[1])
    lose_control(few[2])
    report = tmp_path / "report"
    options = {"onError": "skip", "reportTo": str(report)}
    pages = load(spark, few[0].parent / "*", view="pages", **options)
    bad = pages.where("problem is not null").select("_database", "table").collect()
    assert [tuple(row) for row in bad] == [(str(few[1]), "tbl")]
    segments = load(spark, few[0].parent / "*", view="segments", columns="_database,live_rows", table="tbl", **options)
    found = dict(segments.groupBy("_database").max("live_rows").collect())
    assert (found[str(few[0])], found[str(few[1])] < 1000, found[str(few[3])]) == (1000, True, 1000)
    assert [one.database for one in read_report(report)] == [str(few[2])]
    redo = spark.read.format("gmdb").options(view="redo", **options).load(str(few[0].parent / "*"))
    assert (redo.columns[-1], redo.count()) == ("_database", 0)
    with pytest.raises(PySparkException, match="where is for rows of tables"):
        load(spark, few[0].parent / "*", view="pages", where="i = 1")
