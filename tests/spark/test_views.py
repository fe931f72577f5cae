"""Views of storage: what they say is what gmstat, SQL and the engine say; most of it needs no Spark to be shown."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

import gmdb
import gmdb.spark
from gmdb.database.connection import Connection
from gmdb.errors import Corruption, InterfaceError, NoSuchColumn, NoSuchTable, SchemaMismatch, SnapshotExpired
from gmdb.format import heap
from gmdb.format.address import NO_PAGE, NO_SLOT, device_of, offset_of, page_name
from gmdb.format.page import PAGE_HEAD
from gmdb.format.row import NO_LOCK, RowFlag
from gmdb.format.undo import UNDO_ENTRY
from gmdb.inspect.index_view import read_index, walk
from gmdb.inspect.space_lists import read_segments
from gmdb.spark.options import VIEWS, parse_options
from gmdb.spark.views import STORAGE_VIEWS
from gmdb.spark.views.view_reader import ViewReader, view_schema
from gmdb.storage.directory import device_path
from gmdb.tables.arrow import append
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import view_undo_records

Row = dict[str, Any]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "spark.md"


def read_view(path: Path, view: str, **options: str) -> pa.Table:
    """A view as Spark's tasks read it, one after the other."""
    wanted = parse_options({"path": str(path), "view": view, **options})
    schema = view_schema(wanted)
    reader = ViewReader(wanted, schema)
    batches = [batch for partition in reader.partitions() for batch in reader.read(partition)]
    empty = pa.schema([(c.name, c.type) for c in STORAGE_VIEWS[view].choose(schema.fieldNames())])
    return pa.Table.from_batches(batches, None if batches else empty)


def rows_of(path: Path, view: str, **options: str) -> list[Row]:
    return read_view(path, view, **options).to_pylist()


def total(table: pa.Table, column: str) -> int:
    return pc.sum(table[column]).as_py() or 0


def make(db: Connection) -> None:
    """A table with an index, large objects, deleted rows and rows that have moved."""
    db.execute("create table t (k int primary key, v varchar(300), b blob)")
    db.append("t", pa.table({"k": pa.array(range(1000), pa.int32()), "v": ["short"] * 1000, "b": [None] * 1000}))
    db.commit()
    db.execute("update t set v = ? where k between 100 and 199", ("long" * 70,))
    db.execute("insert into t values (5000, 'x', ?)", (b"large" * 5000,))
    db.execute("delete from t where k < 50")
    db.commit()


@pytest.fixture
def closed(path: Path) -> Path:
    with gmdb.connect(path) as db:
        make(db)
    return path


def damage(path: Path, page_id: int, at: int = 1000) -> None:
    with DatabaseFiles(path) as files:
        size = files.device(page_id).page_size
    with device_path(path, device_of(page_id)).open("r+b") as file:
        file.seek(offset_of(page_id) * size + at)
        byte = file.read(1)[0]
        file.seek(offset_of(page_id) * size + at)
        file.write(bytes([byte ^ 0x55]))


# ---- pages and segments


def test_every_page_in_use_is_there_once_and_as_its_head_says(closed: Path):
    found = {row["page_id"]: row for row in rows_of(closed, "pages", maxPartitionBytes="64k")}
    with DatabaseFiles(closed) as files:
        expected = {number << 22 | n for number, device in files.devices.items() for n in range(device.hwm)}
        assert set(found) == expected
        for page_id, row in found.items():
            head = PAGE_HEAD.at(files.page(page_id))
            assert (row["name"], row["obj_id"], row["chg_num"]) == (page_name(page_id), head.obj_id, head.chg_num)
            assert (row["ckpt_id"], row["page_create_no"]) == (head.ckpt_id, head.page_create_no)
            assert row["free_list"] == (head.fl_flag - 1 if head.fl_flag else None)
            assert (row["crc_ok"], row["problem"]) == (True, None)
    kinds = Counter((row["object"], row["object_kind"]) for row in found.values())
    assert {("t", "table"), ("t", "lobs"), ("t_pkey", "btree index"), ("undo", "undo")} <= set(kinds)


def test_rows_of_heap_pages_are_counted_as_the_inspector_shows_them(closed: Path):
    with DatabaseFiles(closed) as files:
        for row in rows_of(closed, "pages", table="t"):
            if (row["object_kind"], row["page_type"]) != ("table", "data"):
                assert row["live_rows"] is None
                continue
            page = files.page(row["page_id"])
            flags = [heap.flags_of(page, offset) for _, offset in heap.live_slots(page)]
            home = [flag for flag in flags if RowFlag.LINK not in flag]
            assert row["live_rows"] == sum(RowFlag.DELETE not in flag for flag in home)
            assert row["dead_rows"] == sum(RowFlag.DELETE in flag for flag in home)
            assert row["left_rows"] == sum(RowFlag.ENTRY in flag for flag in home)
            assert row["came_rows"] == len(flags) - len(home)
            free = PAGE_HEAD.at(page).free_end - PAGE_HEAD.at(page).free_begin
            assert row["free_bytes"] == free
            assert row["fill"] == pytest.approx(1 - free / heap.usable_size(len(page)))


def test_live_rows_are_what_sql_counts(closed: Path):
    pages, segments = read_view(closed, "pages", table="t"), read_view(closed, "segments", table="t")
    assert total(pages, "live_rows") == total(segments, "live_rows") == 951
    assert total(pages, "left_rows") == total(pages, "came_rows") > 0
    assert total(pages, "dead_bytes") == total(segments, "dead_bytes")


def test_segments_are_those_of_gmstat(closed: Path):
    found = {row["entry_page"]: row for row in rows_of(closed, "segments", maxPartitionBytes="64k")}
    with DatabaseFiles(closed) as files:
        listed = {segment.entry_page: segment for segment in read_segments(files)}
        spaces = {space.space_id: space.name for space in files.spaces()}
    assert set(found) == set(listed)
    for entry, segment in listed.items():
        row, head = found[entry], segment.head
        assert (row["obj_id"], row["pages"], row["map_pages"]) == (
            head["obj_id"],
            segment.data_pages,
            segment.map_pages,
        )
        assert (row["pct_free"], row["tablespace"]) == (head["pct_free"], spaces[head["space_id"]])
        assert (row["damaged_pages"], row["problem"]) == (0, None)
    by_object: Counter[int] = Counter()
    for page in rows_of(closed, "pages"):
        by_object[page["obj_id"]] += page["free_bytes"] or 0
    assert all(by_object[row["obj_id"]] == row["free_bytes"] for row in found.values())


def test_an_index_is_as_full_as_gmstat_says(closed: Path):
    """Gmstat counts the bytes of entries; what removed entries have left between them is in use here, too."""
    rows = {row["page_id"]: row for row in rows_of(closed, "pages", table="t") if row["object_kind"] == "btree index"}
    with DatabaseFiles(closed) as files:
        ((_, index),) = files.index_rows()
        nodes = list(walk(read_index(files.page, index, files.table("t")).root))
    assert {node.page_id for node in nodes} == {n for n, row in rows.items() if row["page_type"] == "data"}
    for node in nodes:
        row = rows[node.page_id]
        assert row["slots"] == node.entries
        assert row["fill"] == pytest.approx(1 - row["free_bytes"] / node.capacity)
        assert row["fill"] >= node.fill / 100 - 1e-9
    (segment,) = [row for row in rows_of(closed, "segments", table="t") if row["kind"] == "btree index"]
    assert (segment["pages"], segment["slots"]) == (len(nodes), sum(node.entries for node in nodes))


def test_a_damaged_page_is_a_row_that_says_so(closed: Path):
    with DatabaseFiles(closed) as files:
        page_id = files.segment_pages(files.table("t").entry_page)[1]
    whole = {row["page_id"]: row for row in rows_of(closed, "pages")}
    damage(closed, page_id)
    found = {row["page_id"]: row for row in rows_of(closed, "pages")}
    assert set(found) == set(whole)
    row = found[page_id]
    assert (row["crc_ok"], row["live_rows"], row["table"], row["page_type"]) == (False, None, "t", "data")
    assert f"page {page_name(page_id)} of {device_path(closed, 4)}" in row["problem"]
    assert "CRC" in row["problem"]
    assert [n for n, one in found.items() if one["problem"] is not None] == [page_id]
    (segment,) = [one for one in rows_of(closed, "segments", table="t") if one["kind"] == "table"]
    assert segment["damaged_pages"] == 1
    assert page_name(page_id) in segment["problem"]
    assert segment["live_rows"] == 951 - whole[page_id]["live_rows"]


def test_a_damaged_map_is_shown_by_its_segment_and_refused_for_a_tables_pages(closed: Path):
    with DatabaseFiles(closed) as files:
        entry = files.table("t").entry_page
    damage(closed, entry)
    (segment,) = [one for one in rows_of(closed, "segments", table="t") if one["kind"] == "table"]
    assert page_name(entry) in segment["problem"]
    with pytest.raises(Corruption, match=page_name(entry)):
        read_view(closed, "pages", table="t")
    assert [row["page_id"] for row in rows_of(closed, "pages") if row["problem"]] == [entry]


# ---- what is under way


def test_locks_and_undo_of_a_transaction_under_way(path: Path):
    with gmdb.connect(path) as db:
        make(db)
        db.execute("create table other (i int)")
        db.commit()
        db.gc()
        assert rows_of(path, "locks") == []
        db.execute("insert into t values (7000, 'new', null), (7001, 'new', null)")
        db.execute("update t set v = 'changed' where k = 300")
        db.execute("delete from t where k = 301")
        db.execute("insert into other values (1)")
        ((number, _, _, count),) = [tuple(row.values()) for row in db.transactions().to_pylist()]
        locks = rows_of(path, "locks")
        assert count == len(locks) == 4

        def known(value: int | None, none: int) -> int:
            return none if value is None else value

        assert sorted(
            (
                row["lock_id"], row["transaction"], row["action"], known(row["row_page"], NO_PAGE),
                known(row["row_slot"], NO_SLOT), known(row["previous"], NO_LOCK),
                known(row["undo_page"], NO_PAGE), known(row["undo_slot"], NO_SLOT),
            )
            for row in locks
        ) == sorted(tuple(row.values()) for row in db.locks().to_pylist())  # fmt: skip
        assert Counter(row["table"] for row in locks) == {"t": 3, "other": 1}
        assert Counter(row["table"] for row in rows_of(path, "locks", table="other")) == {"other": 1}
        assert {row["kind"] for row in locks} == {"lock"}

        undo = [row for row in rows_of(path, "undo") if row["state"]]
        assert {(row["transaction"], row["state"], row["scn"]) for row in undo} == {(number, "in flight", None)}
        (update,) = [row for row in undo if row["operation"].startswith("HEAP_UPDATE")]
        assert json.loads(update["before"])["v"] == "short"
        assert update["row"] == db.execute("select rowid from t where k = 300").fetchall()[0][0]
        assert update["lock_id"] in {row["lock_id"] for row in locks if row["action"] == "UPDATE"}
        assert {row["object"] for row in rows_of(path, "undo", table="other")} == {"other"}
        pages = read_view(path, "pages", table="t")
        assert total(pages, "live_rows") == db.execute("select count(*) from t").fetchall()[0][0] == 952
        assert total(pages, "dead_rows") == 1
        assert total(pages, "dead_bytes") > 0
        db.rollback()


def test_undo_of_what_has_committed_is_kept_for_a_snapshot(path: Path):
    with gmdb.connect(path) as db, gmdb.connect(path, isolation="repeatable read") as reader:
        make(db)
        db.gc()
        reader.execute("select count(*) from t").fetchall()  # holds a snapshot
        db.execute("update t set v = 'changed' where k = 300")
        db.commit()
        undo = [row for row in rows_of(path, "undo", table="t") if row["operation"].startswith("HEAP_UPDATE")]
        assert [(row["state"], json.loads(row["before"])["v"]) for row in undo] == [("committed", "short")]
        assert undo[0]["scn"] is not None
        assert rows_of(path, "locks") == []


def test_undo_records_are_those_of_gmstat(path: Path, tmp_path: Path):
    with gmdb.connect(path) as db:
        make(db)
        db.gc()
        db.execute("update t set v = 'changed' where k between 300 and 340")
        db.dump(tmp_path / "dump")
        found = {(row["page_id"], row["slot"]): row for row in rows_of(path, "undo")}
        db.rollback()
    listed = {}
    with DatabaseFiles(tmp_path / "dump") as files:
        for page_id in files.segment_pages(UNDO_ENTRY):
            for record in view_undo_records(files.page(page_id), {}):
                listed[page_id, record.slot] = record
    assert set(found) == set(listed)
    for place, record in listed.items():
        row = found[place]
        assert (row["operation"], row["size"]) == (record.operation, record.head["size"])
        assert row["image"] == record.body


def test_a_damaged_undo_page_fails_the_read_or_is_left_out(path: Path):
    with gmdb.connect(path) as db:
        make(db)
        db.gc()
        db.execute("update t set v = 'changed' where k between 300 and 340")
        db.checkpoint()
        pin = db.take_snapshot()
        place = next(row["page_id"] for row in rows_of(path, "undo", snapshot=pin.name) if row["state"])
        damage(path, place)
        for view in ("undo", "locks"):
            with pytest.raises(Corruption, match=f"page {page_name(place)} of .*device-0001"):
                read_view(path, view, snapshot=pin.name)
        left = rows_of(path, "undo", snapshot=pin.name, onCorruption="skip")
        assert place not in {row["page_id"] for row in left}
        assert {row["transaction"] for row in rows_of(path, "locks", snapshot=pin.name, onCorruption="skip")} == {None}
        damage(path, place)  # a second time: whole again
        assert place in {row["page_id"] for row in rows_of(path, "undo", snapshot=pin.name)}
        db.rollback()


def test_a_bulk_load_under_way_is_among_the_locks(path: Path):
    with gmdb.connect(path) as db:
        make(db)
        ids = pa.array(range(10_000, 30_000), pa.int32())
        db.append("t", pa.table({"k": ids, "v": ["new"] * len(ids), "b": pa.nulls(len(ids), pa.binary())}))
        ((number, *_),) = [tuple(row.values()) for row in db.transactions().to_pylist() if row["state"] == "active"]
        (load,) = [row for row in rows_of(path, "locks", table="t") if row["kind"] == "load"]
        assert (load["transaction"], load["table"], load["lock_id"]) == (number, "t", None)
        marked = read_view(path, "pages", table="t", columns="load,live_rows")
        loaded = marked.filter(pc.equal(marked["load"], load["load"]))
        assert 0 < total(loaded, "live_rows") <= 20_000
        db.rollback()


def test_a_page_that_a_bulk_load_has_yet_to_write_is_not_damaged(path: Path, monkeypatch: pytest.MonkeyPatch):
    """The instant is between giving pages places and writing them."""
    stamp_pages, pins = append.stamp_pages, []
    with gmdb.connect(path) as db:
        make(db)

        def pin_first(*arguments: int) -> int:
            if not pins:
                pins.append(db.take_snapshot().name)
            return stamp_pages(*arguments)

        monkeypatch.setattr(append, "stamp_pages", pin_first)
        ids = pa.array(range(10_000, 30_000), pa.int32())
        db.append("t", pa.table({"k": ids, "v": ["new"] * len(ids), "b": pa.nulls(len(ids), pa.binary())}))
        rows = rows_of(path, "pages", snapshot=pins[0])
        assert {row["problem"] for row in rows} == {None}
        loading = [row for row in rows if row["page_type"] == "loading"]
        assert {(row["crc_ok"], row["obj_id"], row["live_rows"]) for row in loading} == {(None, None, None)}
        pages = [row["page_id"] for row in rows_of(path, "pages", snapshot=pins[0], table="t")]
        assert not {row["page_id"] for row in loading} & set(pages)
        segments = rows_of(path, "segments", snapshot=pins[0], table="t")
        assert {(row["damaged_pages"], row["problem"]) for row in segments} == {(0, None)}
        db.rollback()


# ---- instants


def test_a_view_is_of_the_instant_of_its_snapshot(path: Path):
    with gmdb.connect(path) as db:
        make(db)
        db.execute("update t set v = 'changed' where k = 300")
        pin = db.take_snapshot()
        before = {view: rows_of(path, view, snapshot=pin.name) for view in ("pages", "segments", "undo", "locks")}
        db.execute("delete from t where k > 400")
        db.commit()
        db.execute("create table more (i int)")
        db.commit()
        db.gc()
        db.checkpoint()
        for view, rows in before.items():
            assert rows_of(path, view, snapshot=pin.name) == rows
        assert len(rows_of(path, "pages")) > len(before["pages"])
        assert rows_of(path, "locks") == []
        db.drop_snapshot(pin.name)
        with pytest.raises(SnapshotExpired, match="load again"):
            rows_of(path, "pages", snapshot=pin.name)


def test_columns_are_chosen_and_in_the_order_asked_for(closed: Path):
    whole = read_view(closed, "pages")
    some = read_view(closed, "pages", columns="Fill,name,load")
    assert some.column_names == ["fill", "name", "load"]
    assert some.to_pylist() == whole.select(["fill", "name", "load"]).to_pylist()
    assert read_view(closed, "segments", columns="name,pages").num_columns == 2


@pytest.mark.parametrize(
    ("view", "options", "error", "said"),
    [
        ("pagez", {}, InterfaceError, "'pagez' is not one of rows, pages"),
        (
            "pages",
            {"columns": "page_id,bytes"},
            NoSuchColumn,
            "view pages has no column bytes; its columns are page_id",
        ),
        ("pages", {"columns": "name,NAME"}, SchemaMismatch, "column name is asked for twice"),
        ("pages", {"where": "fill < 1"}, InterfaceError, "where is for rows of tables"),
        ("pages", {"table": "nope"}, NoSuchTable, "has no table nope"),
        ("redo", {"table": "t"}, InterfaceError, "takes no table and no snapshot"),
    ],
)
def test_what_a_view_does_not_take_is_refused(
    closed: Path, view: str, options: dict[str, str], error: type[Exception], said: str
):
    with pytest.raises(error, match=said):
        read_view(closed, view, **options)


def test_the_documentation_lists_every_view_and_column():
    text = DOCUMENT.read_text(encoding="utf-8")
    assert tuple(STORAGE_VIEWS) == VIEWS[1:]
    for name, view in STORAGE_VIEWS.items():
        assert f"### {name}\n" in text
        assert view.table_of_columns() in text


PLAN = """
import sys
from pyspark_gmdb import DefaultSource
for view in sys.argv[2:]:
    source = DefaultSource({"path": sys.argv[1], "view": view})
    assert source.reader(source.schema()).partitions()
print(sorted(name for name in ("numba", "llvmlite") if name in sys.modules))
"""


def test_planning_imports_no_compiler(closed: Path):
    command = [sys.executable, "-c", PLAN, str(closed), *STORAGE_VIEWS]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    assert told.stdout == "[]\n", told.stderr


# ---- with Spark


@pytest.mark.spark
def test_spark_shows_the_same(path: Path, spark: SparkSession):
    def frame(view: str, **options: Any) -> DataFrame:
        return spark.read.format("gmdb").options(view=view, **options).load(str(path))

    with gmdb.connect(path) as db:
        make(db)
        db.execute("update t set v = 'changed' where k between 300 and 310")
        with gmdb.spark.snapshot(spark, path) as instant:
            for view in ("pages", "segments", "undo", "locks"):
                found = frame(view, snapshot=instant.ticket, maxPartitionBytes="64k")
                assert found.columns == [column.name for column in STORAGE_VIEWS[view].columns]
                expected = read_view(path, view, snapshot=instant.ticket)
                assert _sorted(found.toArrow()) == _sorted(expected)
                assert found.count() == expected.num_rows
            pages = frame("pages", snapshot=instant.ticket, maxPartitionBytes="64k")
            assert pages.rdd.getNumPartitions() > 1
            summed = pages.where("table = 't'").groupBy("object_kind").sum("live_rows", "dead_bytes").collect()
            (segment,) = frame("segments", snapshot=instant.ticket, table="t").where("kind = 'table'").collect()
            assert {(row[0], row[1]) for row in summed if row[1]} == {("table", segment["live_rows"])}
        redo = frame("redo")
        assert redo.where("kind = 'COMMIT'").count() == redo.select("scn").where("scn is not null").distinct().count()
        db.rollback()


def _sorted(table: pa.Table) -> list[str]:
    return sorted(repr(row) for row in table.to_pylist())


@pytest.mark.spark
def test_spark_says_which_views_there_are(closed: Path, spark: SparkSession):
    reader: Callable[..., Any] = spark.read.format("gmdb").options(view="pagez").load
    with pytest.raises(PySparkException, match="'pagez' is not one of rows, pages, segments, undo, locks, redo"):
        reader(str(closed))
