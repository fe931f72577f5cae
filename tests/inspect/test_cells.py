"""The listing ``cells``: a database as a map, however large it is."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import gmdb
from gmdb.errors import Error, InterfaceError
from gmdb.format.address import page_name, parse_page_id
from gmdb.inspect import page_lists
from gmdb.inspect.page_lists import Strip, cells
from gmdb.storage.directory import device_path
from gmdb.tables.files.database_files import DatabaseFiles
from tests.inspect.build import TBL_FIRST, change_page
from tests.inspect.states import ALL_DAMAGE, build, damaged


@pytest.fixture(scope="module")
def states(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return build(tmp_path_factory.mktemp("cells"))


@pytest.fixture(scope="module")
def files(states: dict[str, Path]) -> Iterator[DatabaseFiles]:
    with DatabaseFiles(states["closed"]) as opened:
        yield opened


def listed(files: DatabaseFiles, *arguments: Any) -> list[dict[str, Any]]:
    return list(cells(files, *arguments).dicts())


def used_pages(files: DatabaseFiles) -> list[str]:
    return [f"{number}:{n}" for number in sorted(files.devices) for n in range(files.devices[number].hwm)]


def test_every_page_of_every_device_is_one_cell(files: DatabaseFiles) -> None:
    found = listed(files, 0, 1, 1 << 14)
    assert len(files.devices) == 3
    assert [one["page"] for one in found] == used_pages(files)
    assert [one["first"] for one in found] == list(range(len(found)))
    assert {(one["pages"], one["read"]) for one in found} == {(1, 1)}


@pytest.mark.parametrize("each", [1, 2, 3, 7, 64, 1 << 40])
@pytest.mark.parametrize("first", [0, 5])
def test_cells_of_any_size_have_each_page_once(files: DatabaseFiles, each: int, first: int) -> None:
    pages = used_pages(files)[first:]
    found = listed(files, first, each, 1 << 14)
    assert sum(one["pages"] for one in found) == len(pages)
    assert [one["page"] for one in found] == pages[::each]
    assert all(1 <= one["read"] <= one["pages"] for one in found)


def test_a_map_is_the_same_in_parts_and_at_once(files: DatabaseFiles) -> None:
    at_once = listed(files, 0, 1, 1 << 14, True)
    in_parts: list[dict[str, Any]] = []
    while len(in_parts) < len(at_once):
        in_parts += listed(files, len(in_parts), 1, 50, True)
    assert in_parts == at_once
    assert listed(files, len(at_once)) == []


def test_a_cell_says_what_the_pages_listing_says(states: dict[str, Path], files: DatabaseFiles) -> None:
    told = {one["page"]: one for one in listed(files, 0, 1, 1 << 14, True)}
    with gmdb.inspect.open(states["closed"]) as inspector:
        pages = inspector.pages().to_pylist()
    assert {one["name"] for one in pages} == told.keys()
    for page in pages:
        cell = told[page["name"]]
        assert cell["kind"] == (page["seg_type"] if page["page_type"] == "data" else page["page_type"])
        assert (cell["obj_id"], cell["object"], cell["ckpt_id"]) == (page["obj_id"], page["object"], page["ckpt_id"])
        assert cell["fill"] == (None if page["fill"] is None else pytest.approx(page["fill"], abs=1e-3))
        if page["live_rows"] is not None:
            assert (cell["rows"], cell["dead_rows"]) == (page["live_rows"] + page["dead_rows"], page["dead_rows"])


def test_of_a_large_database_no_more_than_the_bound_is_read(
    files: DatabaseFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    starts, whole = [], []
    monkeypatch.setattr(page_lists, "_READ_MAX", 40)
    monkeypatch.setattr(page_lists, "_WHOLE_MAX", 20)
    monkeypatch.setattr(files, "starts", lambda ids, size: starts.extend(ids) or DatabaseFiles.starts(files, ids, size))
    monkeypatch.setattr(
        files, "sound_page", lambda page_id: whole.append(page_id) or DatabaseFiles.sound_page(files, page_id)
    )
    found = listed(files, 0, 64, 10)
    assert len(starts) == sum(one["read"] for one in found) <= 40
    assert all(one["read"] < one["pages"] for one in found[:-1])
    starts.clear(), whole.clear()
    listed(files, 0, 64, 10, True)
    assert len(starts) <= 20


def test_damage_is_found_by_those_who_look_into_pages(database: Path) -> None:
    name = page_name(TBL_FIRST)
    change_page(database, TBL_FIRST, 4000, b"\xff\xfe\xfd")
    with DatabaseFiles(database) as opened:
        wrong = {one["page"]: one["problem"] for one in listed(opened, 0, 1, 1024, True) if one["problem"]}
        assert wrong == {name: f"page {name} is damaged: its CRC does not match its bytes"}
        assert all(one["problem"] is None and one["rows"] is None for one in listed(opened))
        (cell,) = [one for one in listed(opened, 0, 8, 1024, True) if one["problem"]]
        assert cell["first"] <= (Strip(opened).place_of(TBL_FIRST) or 0) < cell["first"] + 8


@pytest.mark.parametrize("kind", ALL_DAMAGE)
@pytest.mark.parametrize("each", [1, 16])
def test_a_damaged_database_has_a_map(states: dict[str, Path], tmp_path: Path, kind: str, each: int) -> None:
    with DatabaseFiles(damaged(states["closed"], tmp_path / "damaged", kind)) as opened:
        found = listed(opened, 0, each, 1 << 14, True)
        assert sum(one["pages"] for one in found) == Strip(opened).total
        assert any(one["problem"] for one in found) == (kind != "lost")


def test_pages_beyond_the_end_of_a_file_are_told_of(database: Path) -> None:
    path = device_path(database, 4)
    os.truncate(path, path.stat().st_size - 2 * 8192 - 100)
    with DatabaseFiles(database) as opened:
        found = [one for one in listed(opened, 0, 1, 1024, True) if one["page"].startswith("4:")]
        assert len(found) == opened.devices[4].hwm
        assert [bool(one["problem"]) for one in found] == [False] * (len(found) - 3) + [True] * 3


def test_a_place_on_the_map_is_a_page(files: DatabaseFiles) -> None:
    strip = Strip(files)
    for place, name in enumerate(used_pages(files)):
        assert strip.place_of(parse_page_id(name)) == place
    assert strip.place_of(parse_page_id("4:100000")) is None
    assert strip.place_of(parse_page_id("3:1")) is None
    assert strip.place_of(parse_page_id("900:1")) is None


@pytest.mark.parametrize(
    "arguments", [(-1,), (0, 0), (0, 1, 0), (0, 1, 1 << 20), ("x",), (0, "1.5"), (0, 1, None), (0, 1 << 70)]
)
def test_what_is_no_map_is_refused(files: DatabaseFiles, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InterfaceError, match="a map has 1 to"):
        cells(files, *arguments)


def test_what_a_client_asks_of_a_live_database_is_memory(db: gmdb.Connection) -> None:
    db.create_table("t", {"i": "INT", "s": "VARCHAR(900)"})
    for n in range(100):
        db.insert("t", (n, "x" * 900))
    found = db.inspect("cells", 0, 1, 1 << 14, True).to_pylist()
    with pytest.raises(Error):
        db.inspect("cells", 0, 1, 1 << 14, True, 5)
    assert sum(one["rows"] or 0 for one in found if one["object"] is None or one["object"] == "t") >= 100
    db.rollback()
