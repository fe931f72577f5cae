"""The inspector: what its listings say of a closed, a crashed, a live and a damaged database."""

from __future__ import annotations

import re
from itertools import pairwise
from pathlib import Path
from threading import Thread

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import gmdb
import gmdb.inspect
from gmdb.errors import Error, InterfaceError, NoSuchTable
from gmdb.format.anatomy import regions
from gmdb.format.layout import LAYOUTS
from gmdb.inspect.document import REGION_NAMES
from gmdb.inspect.inspector import LISTINGS, arguments_of, open_inspector
from gmdb.inspect.listing import Listing
from gmdb.tables.files.database_files import DatabaseFiles
from tests.inspect.states import ALL_DAMAGE, ROWS, build, damaged, fill
from tests.sessions import until

ASKED = {"segment": "t", "name": "t_i", "table": "t", "page": "4:1", "row_id": "4:7:3", "first": "4:1", "second": "4:7"}


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("states"))


def arguments(name: str) -> list[str]:
    own = {"hash": ["t_h"], "cells": [], "seen": [ASKED["row_id"]]}
    return own[name] if name in own else [ASKED[one] for one in arguments_of(name) if one in ASKED]


def problems(table: pa.Table) -> list[tuple[str, str]]:
    return Listing.from_arrow(table).problems


@pytest.mark.parametrize("name", LISTINGS)
def test_every_listing_of_a_closed_database_is_an_arrow_table_that_means_something(
    states: dict[str, Path], name: str
) -> None:
    with gmdb.inspect.open(states["closed"]) as inspector:
        made = inspector.listing(name, *arguments(name))
    table = made.arrow()
    table.validate(full=True)
    assert made.problems == []
    assert all(field.metadata[b"meaning"] for field in table.schema)
    again = Listing.from_arrow(table)
    assert (again.rows, list(again.columns), again.notes) == (made.rows, list(made.columns), made.notes)


def test_a_page_may_be_given_by_its_number(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["closed"]) as inspector:
        assert inspector.listing("regions", 4 << 22 | 1).rows == inspector.listing("regions", "4:1").rows


def test_rows_are_there_with_their_values_wherever_they_lie(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["closed"]) as inspector:
        rows = inspector.rows("t")
        listed = rows.filter(pc.field("_moved_to").is_null()).filter(
            ~pc.field("_flags").is_valid() | (pc.field("_flags") == "LINK")
        )
        with gmdb.connect(states["closed"], read_only=True) as db:
            expected = db.execute("select i, s from t order by i").fetchall()
        assert sorted(zip(listed["i"].to_pylist(), listed["s"].to_pylist(), strict=True)) == expected
        moved = rows.filter(pc.field("_moved_to").is_valid())
        assert moved.num_rows > 0
        assert set(moved["_moved_to"].to_pylist()) <= set(rows["_rowid"].to_pylist())
        assert inspector.find("t", pc.field("i") == 50)["s"].to_pylist() == ["x" * 50]
        first = rows["_rowid"][0].as_py().rpartition(":")[0]
        some = inspector.rows("t", pages=first)
        assert {one.rpartition(":")[0] for one in some["_rowid"].to_pylist()} == {first}


def test_pages_fill_maps_and_segments_agree(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["closed"]) as inspector:
        segments = {one["object"]: one for one in inspector.segments().to_pylist()}
        assert {"t", "t.lobs", "t_i", "t_h", "undo", "sys_tables"} <= set(segments)
        for name in ("t", "t.lobs", "t_i", "t_h"):
            pages = [one for one in inspector.pages(name).to_pylist() if one["page_type"] == "data"]
            assert len(pages) == segments[name]["data_pages"] == sum(inspector.fill(name)["pages"].to_pylist())
            assert sum(one["free_bytes"] for one in pages) == sum(inspector.fill(name)["free_bytes"].to_pylist())
            listed = inspector.maps(name)
            assert set(listed["page"].drop_null().to_pylist()) == {one["name"] for one in pages}
            assert listed["problem"].null_count == listed.num_rows
            on_lists = inspector.freelists(name)
            assert sorted(on_lists["page"].drop_null().to_pylist()) == sorted(
                one["page"] for one in listed.to_pylist() if one["list"] is not None and one["page"]
            )
        of_all = inspector.pages()
        assert of_all.num_rows == sum(inspector.devices()["hwm"].to_pylist())
        assert of_all["crc_ok"].to_pylist() == [True] * of_all.num_rows


def test_indexes_and_large_objects_are_listed(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["closed"]) as inspector, gmdb.connect(states["closed"], read_only=True) as db:
        (count,) = db.execute("select count(*) from t").fetchone()
        for name in ("t_i", "t_h"):
            entries = [one for one in inspector.entries(name).to_pylist() if one["flags"] is None]
            assert len(entries) == count
        keys = [int(one["key"][1:-1]) for one in inspector.entries("t_i").to_pylist()]
        assert keys == sorted(keys)
        leaves = [one for one in inspector.index("t_i").to_pylist() if one["level"] == 0]
        assert sum(one["entries"] for one in leaves) == len(keys)
        assert inspector.index("t_h").schema == inspector.hash("t_h").schema
        (large,) = db.execute("select count(*) from t where length(c) > 1000").fetchone()
        assert inspector.lobs().num_rows == inspector.lobs("t").num_rows == large
        with pytest.raises(InterfaceError, match="t_i is a B-tree"):
            inspector.hash("t_i")


@pytest.mark.parametrize(("state", "at", "newest"), [("checkpointed", None, "twice"), ("crashed", "end", "thrice")])
def test_a_row_is_shown_with_its_versions(states: dict[str, Path], state: str, at: str | None, newest: str) -> None:
    with gmdb.inspect.open(states[state], at=at) as inspector:
        (place,) = inspector.find("t", pc.field("i") == 100)["_rowid"].to_pylist()
        versions = inspector.row(place).to_pylist()
        older = ["twice", "once"] if newest == "thrice" else ["once"]
        assert [one["s"] for one in versions][: len(older) + 1] == [newest, *older]
        assert versions[0]["_commit"] == ("in flight" if newest == "twice" else "committed")
        deleted = inspector.find("t", pc.field("i") == 101).to_pylist()
        assert [one["_flags"] for one in deleted] == ["DELETE"]
        history = inspector.row(deleted[0]["_rowid"]).to_pylist()
        assert [one["_state"] for one in history][:2] == ["deleted", "here"]
        assert history[1]["s"] == "x" * 41


def test_undo_locks_and_transactions_out_of_files(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["checkpointed"]) as inspector:
        (open_one,) = [one for one in inspector.transactions().to_pylist() if one["state"] == "never ended"]
        locks = inspector.locks().to_pylist()
        assert {one["transaction"] for one in locks} == {open_one["transaction"]}
        assert open_one["locks"] == len(locks)
        in_flight = [one for one in inspector.undo().to_pylist() if one["state"] == "in flight"]
        assert {one["row"] for one in in_flight if one["object"] == "t"} >= {one["row"] for one in locks}
        assert '{"s": "once"}' in [one["before"] for one in in_flight]
    with gmdb.inspect.open(states["closed"]) as inspector:
        assert inspector.locks().num_rows == inspector.transactions().num_rows == 0


def test_the_log_is_listed_and_pages_are_rebuilt_out_of_it(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["crashed"]) as inspector:
        redo = inspector.redo()
        assert redo.filter(pc.field("kind") == "COMMIT").num_rows > 0
        assert "t" in redo["object"].to_pylist()
        middle = redo["lsn"][redo.num_rows // 2].as_py()
        assert inspector.redo(since=middle)["lsn"].to_pylist() == [n for n in redo["lsn"].to_pylist() if n >= middle]
        page = redo.filter((pc.field("object") == "t") & (pc.field("kind") == "BYTES"))["page"][0].as_py()
        history = inspector.history(page)
        assert history.num_rows == redo.filter(pc.field("page") == page).num_rows
        assert inspector.checkpoints().filter(pc.field("is_newest")).num_rows >= 1
    with gmdb.inspect.open(states["crashed"], at="end") as replayed:
        assert replayed.pages("t")["problem"].null_count == replayed.pages("t").num_rows
        assert replayed.find("t", pc.field("i") == 1000)["s"].to_pylist() == ["new"]
    with gmdb.inspect.open(states["crashed"], at=0) as before:
        assert before.find("t", pc.field("i") == 1000).num_rows == 0


def test_a_live_database_is_listed_as_it_is_in_memory(tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "live.gmdb") as db:
        fill(db)
        db.execute("update t set s = 'mine' where i = 100")
        assert "mine" in db.inspect("rows", "t")["s"].to_pylist()
        assert problems(db.inspect("rows", "t")) == []
        assert db.inspect("locks").num_rows >= 1
        assert db.inspect("transactions")["state"].to_pylist().count("active") == 1
        assert sum(db.inspect("fill", "t")["pages"].to_pylist()) > 0
        assert problems(db.inspect("pages")) == []
        with gmdb.inspect.open(
            tmp_path / "live.gmdb", at="end"
        ) as inspector:  # what is not yet in the log is not there
            assert inspector.rows("t").num_rows >= ROWS - 11
        with pytest.raises(InterfaceError, match="there is no listing nothing"):
            db.inspect("nothing")
        with pytest.raises(InterfaceError, match="it takes segment"):
            db.inspect("rows")


def test_who_waits_is_listed(tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "live.gmdb") as db, gmdb.connect(db.path, lock_timeout=60) as other:
        db.execute("create table t (i int)")
        db.execute("insert into t values (1)")
        db.commit()
        db.execute("update t set i = 2")
        waiter = Thread(target=lambda: other.execute("update t set i = 3"))
        waiter.start()
        try:
            until(lambda: db.inspect("waits").num_rows)
            found = db.inspect("waits").to_pylist()
        finally:
            db.rollback()
            waiter.join()
            other.rollback()
        place = db.execute("select rowid from t").fetchone()[0]
        assert [(one["waits_for"], one["kind"]) for one in found] == [(place, "row")]
        assert db.inspect("waits").num_rows == 0


@pytest.mark.parametrize("kind", ALL_DAMAGE)
def test_damage_of_every_kind_is_a_problem_or_an_error_but_never_a_traceback(
    states: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    heard = 0
    for state, at in (("closed", None), ("crashed", "end")):
        place = damaged(states[state], tmp_path / state, kind)
        with open_inspector(place, at) as inspector:
            for name in LISTINGS:
                try:
                    table = inspector.listing(name, *arguments(name)).arrow()
                except Error:
                    heard += 1
                    continue
                table.validate(full=True)
                heard += len(problems(table))
    assert heard


@pytest.mark.parametrize("kind", ["flip", "wipe", "misdirect"])
def test_damage_of_a_tables_pages_leaves_the_others_readable(
    states: dict[str, Path], tmp_path: Path, kind: str
) -> None:
    place = damaged(states["closed"], tmp_path / "db", kind, devices=(4,))
    with gmdb.inspect.open(place) as inspector:
        said = {one["name"] for one in inspector.pages().to_pylist() if one["problem"]}
        assert said
        try:
            rows = inspector.rows("t")
        except NoSuchTable:
            return  # its entry page is gone
        assert rows.num_rows == 0 or rows["i"].null_count < rows.num_rows


def test_regions_name_every_byte_of_every_page(states: dict[str, Path]) -> None:
    kinds = set()
    with DatabaseFiles(states["checkpointed"]) as files:
        for number, device in files.devices.items():
            for offset in range(device.hwm):
                page = device.page(offset)
                found = regions(page)
                assert found[0].offset == 0
                assert all(a.end == b.offset for a, b in pairwise(found))
                assert found[-1].end == len(page)
                kinds |= {(number, region.name.split(".")[0].split("[")[0]) for region in found}
    assert {"node", "rows", "slots", "records", "segment", "map", "device", "entries"} <= {name for _, name in kinds}


def test_regions_have_the_names_of_the_document(states: dict[str, Path]) -> None:
    fields = {field.name.split("[")[0].split(".")[0] for layout in LAYOUTS for field in layout.fields}
    for state in ("closed", "checkpointed"):
        with gmdb.inspect.open(states[state]) as inspector:
            for place in inspector.pages()["name"].to_pylist():
                for name in inspector.regions(place)["name"].to_pylist():
                    plain = re.sub(r"\[\d+\]", "[n]", name).replace("column[n]", "column[m]")
                    owner, _, field = plain.partition(".")
                    assert owner in REGION_NAMES, name
                    assert not field or plain in REGION_NAMES or re.split(r"[.[]", field)[0] in fields, name


def test_what_differs_is_told_by_fields_rows_and_bytes(states: dict[str, Path]) -> None:
    with gmdb.inspect.open(states["crashed"], at=0) as before, gmdb.inspect.open(states["crashed"], at="end") as after:
        found = before.diff(after).to_pylist()
        rows = [one for one in found if one["what"] == "row" and one["page"].startswith("4:")]
        assert any("'new'" in (one["second"] or "") and one["first"] is None for one in rows)
        assert any("'twice'" in (one["first"] or "") and "'thrice'" in one["second"] for one in rows)
        assert any(one["name"] == "head.chg_num" for one in found)
        assert {one["what"] for one in found} == {"field", "row", "bytes"}
        assert after.diff(after).num_rows == 0
        page = rows[0]["page"]
        assert before.diff(page, page).num_rows == 0
        with pytest.raises(InterfaceError, match="differ in size"):
            before.diff("4:1", "1:1")
