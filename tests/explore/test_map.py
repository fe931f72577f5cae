"""The map in a browser: every page a cell, by keyboard and by mouse."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import gmdb
from gmdb.format.address import page_id_of, page_name
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT
from gmdb.inspect.page_lists import Strip
from gmdb.storage.directory import device_path
from gmdb.tables.files.database_files import DatabaseFiles
from tests.explore.conftest import page_of
from tests.explore.exploring import Exploring
from tests.inspect.build import build_database, change_page

Explorers = Callable[[str], Exploring]
MODES = ("segment", "fill", "dead", "age", "damage")
LARGE = 1 << 20  # pages


def pages_of(path: Path) -> int:
    with DatabaseFiles(path) as files:
        return Strip(files).total


def canvas(tab: Page) -> Locator:
    return tab.get_by_role("application")


def painted(tab: Page, mode: str, count: int) -> None:
    expect(canvas(tab)).to_have_attribute("data-painted", f"{mode} {count}")


def place_of(tab: Page, cell: int) -> tuple[float, float]:
    """The middle of a cell, in the map."""
    size, columns = (int(canvas(tab).get_attribute(name) or 0) for name in ("data-cell", "data-columns"))
    return (cell % columns + 0.5) * size, (cell // columns + 0.5) * size


def colours(tab: Page, count: int) -> list[tuple[int, ...]]:
    """The colours of the first cells, left of their middles, where neither a mark nor the chosen one's frame is."""
    script = """(map, count) => [...Array(count).keys()].map((n) => {
        const { cell, columns } = map.dataset;
        const [x, y] = [(n % columns + 0.25) * cell, (Math.floor(n / columns) + 0.5) * cell];
        return [...map.getContext("2d").getImageData(x * devicePixelRatio, y * devicePixelRatio, 1, 1).data];
    })"""
    return [tuple(one) for one in canvas(tab).evaluate(script, count)]


@pytest.fixture
def shown(tab: Page, explorers: Explorers, states: dict[str, Path]) -> tuple[Page, int]:
    """A map of all pages of a small database."""
    explorers("closed").show(tab)
    count = pages_of(states["closed"])
    painted(tab, "segment", count)
    return tab, count


def test_every_page_is_a_cell_and_the_legend_names_the_segments(shown: tuple[Page, int]) -> None:
    tab, count = shown
    legend = tab.get_by_role("list", name="Legend")
    for name in ("device head", "sys_tables", "undo", "transactions", "t", "t.lobs", "t_i", "t_h", "free"):
        expect(legend.get_by_text(name, exact=True)).to_be_visible()
    expect(tab.locator(".where")).to_contain_text(f"of {count} pages, 1 to a cell")
    expect(tab.locator("#told")).to_contain_text("page 0:0, device_head")
    assert tab.title() == "closed: map"


@pytest.mark.parametrize("mode", MODES)
def test_pages_are_coloured_by_what_is_chosen(shown: tuple[Page, int], mode: str) -> None:
    tab, count = shown
    tab.get_by_label("Colour by").select_option(mode)
    painted(tab, mode, count)
    explained = {
        "segment": "never written",
        "fill": "full",
        "dead": "no row is dead",
        "age": "checkpoint",
        "damage": "checksum and place are right",
    }
    expect(tab.get_by_role("list", name="Legend")).to_contain_text(explained[mode])
    found = colours(tab, count)
    least = {"segment": 10, "fill": 3, "dead": 2, "age": 1, "damage": 1}
    assert least[mode] <= len(set(found)) <= 60
    assert all(colour[3] == 255 for colour in found)


def test_arrow_keys_go_from_cell_to_cell(shown: tuple[Page, int], states: dict[str, Path]) -> None:
    tab, count = shown
    told = tab.locator("#told")
    expect(canvas(tab)).to_be_focused()
    for key, page in (("ArrowRight", "page 0:1"), ("ArrowRight", "page 0:2"), ("ArrowLeft", "page 0:1")):
        tab.keyboard.press(key)
        expect(told).to_contain_text(page)
    expect(told).to_contain_text("segment_entry of sys_tables")
    columns = int(canvas(tab).get_attribute("data-columns") or 0)
    tab.keyboard.press("ArrowDown")
    with DatabaseFiles(states["closed"]) as files:
        below = page_name(int(Strip(files).page_ids(np.array([columns + 1]))[0]))
    expect(told).to_contain_text(f"page {below},")
    for _ in range(3):
        tab.keyboard.press("ArrowUp")
    expect(told).to_contain_text("page 0:1")
    assert count > columns


def test_enter_opens_the_page(shown: tuple[Page, int]) -> None:
    tab, _ = shown
    tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=2)).to_contain_text("Page 0:1: segment_entry page of sys_tables")
    assert tab.url.endswith("#page/0:1")
    tab.go_back()
    painted(tab, "segment", shown[1])


def test_the_mouse_tells_and_opens(shown: tuple[Page, int]) -> None:
    tab, _ = shown
    x, y = place_of(tab, 3)
    canvas(tab).hover(position={"x": x, "y": y})
    expect(tab.locator("#told")).to_contain_text("page 0:3, segment_entry of sys_indexes")
    canvas(tab).click(position={"x": x, "y": y})
    expect(tab.get_by_role("heading", level=2)).to_contain_text("Page 0:3:")


def test_a_page_leads_back_to_its_cell(shown: tuple[Page, int], states: dict[str, Path]) -> None:
    tab, count = shown
    page = page_of(states["closed"], "btree")
    tab.goto(re.sub("#.*", "", tab.url) + f"#page/{page}")
    tab.get_by_role("link", name="on the map").click()
    painted(tab, "segment", count)
    expect(tab.locator("#told")).to_contain_text(f"page {page}, btree of t_i")


def test_a_damaged_page_is_told_of(tab: Page, explorers: Explorers, states: dict[str, Path]) -> None:
    explorers("damaged").show(tab)
    count = pages_of(states["damaged"])
    painted(tab, "segment", count)
    tab.get_by_label("Colour by").select_option("damage")
    painted(tab, "damage", count)
    page = page_of(states["closed"], "heap")
    with gmdb.inspect.open(states["damaged"]) as inspector:
        cell = inspector.cells(0, 1, 1 << 14)["page"].to_pylist().index(page)
    found = colours(tab, count)
    assert [n for n in range(count) if found[n] != found[cell - 1]] == [cell]
    x, y = place_of(tab, cell)
    canvas(tab).hover(position={"x": x, "y": y})
    expect(tab.locator("#told")).to_contain_text(f"DAMAGED: page {page} is damaged: its CRC does not match its bytes")
    canvas(tab).click(position={"x": x, "y": y})
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {page}")


# ---- a map of more pages than are in sight


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exploring]:
    """A database of 8 GiB, of which nearly nothing was ever written."""
    database = build_database(tmp_path_factory.mktemp("large") / "large.gmdb")
    for field in ("hwm", "page_count"):
        at = DEVICE_HEAD_AT + DEVICE_HEAD.offset(field)
        change_page(database, page_id_of(4, 0), at, LARGE.to_bytes(4, "little"), sealed=True)
    os.truncate(device_path(database, 4), LARGE * 8192)
    explorer = Exploring(database)
    yield explorer
    assert explorer.end() == (0, "", "")


def each(tab: Page) -> int:
    expect(canvas(tab)).to_have_attribute("data-painted", re.compile("."))
    return int(canvas(tab).get_attribute("data-each") or 0)


def test_a_large_database_is_zoomed_into_from_all_of_it_to_one_page(tab: Page, large: Exploring) -> None:
    large.show(tab)
    sizes = [each(tab)]
    assert sizes[0] >= 256
    expect(tab.locator(".legend")).to_contain_text(re.compile(r"sampled: \d+ of the [\d,]+ pages of a cell"))
    while sizes[-1] > 1:
        tab.keyboard.press("+")
        expect(canvas(tab)).not_to_have_attribute("data-each", str(sizes[-1]))
        sizes.append(each(tab))
    assert sizes == sorted(sizes, reverse=True)
    assert all(before in (after * 4, after * 2) for before, after in pairwise(sizes))
    expect(tab.locator(".where")).to_contain_text("1 to a cell")
    expect(tab.locator("#told")).to_contain_text("page 0:0, device_head")
    for size in reversed(sizes[:-1]):
        tab.keyboard.press("-")
        expect(canvas(tab)).to_have_attribute("data-each", str(size))
    each(tab)


def test_the_chosen_cell_is_kept_in_sight_when_the_map_is_zoomed(tab: Page, large: Exploring) -> None:
    large.show(tab)
    whole = each(tab)
    for _ in range(3):
        tab.keyboard.press("ArrowDown")
    tab.keyboard.press("ArrowRight")
    told = tab.locator("#told")
    expect(told).to_contain_text("empty")
    found = re.search(r"pages 4:(\d+) and", told.inner_text())
    assert found is not None
    tab.keyboard.press("+")
    expect(canvas(tab)).to_have_attribute("data-each", str(whole // 4))
    each(tab)
    expect(told).to_contain_text(f"pages 4:{found[1]} and")
    tab.keyboard.press("Home")
    expect(canvas(tab)).to_have_attribute("data-each", str(whole))
    each(tab)
    expect(told).to_contain_text("pages 0:0 and")


def test_the_wheel_and_the_buttons_zoom_too(tab: Page, large: Exploring) -> None:
    large.show(tab)
    whole = each(tab)
    x, y = place_of(tab, 1)
    canvas(tab).hover(position={"x": x, "y": y})
    tab.mouse.wheel(0, -100)
    expect(canvas(tab)).to_have_attribute("data-each", str(whole // 4))
    each(tab)
    tab.get_by_role("button", name="Zoom in").click()
    expect(canvas(tab)).to_have_attribute("data-each", str(whole // 16))
    tab.get_by_role("button", name="Zoom out").click()
    expect(canvas(tab)).to_have_attribute("data-each", str(whole // 4))
    tab.get_by_role("button", name="Show all pages").click()
    expect(canvas(tab)).to_have_attribute("data-each", str(whole))
    each(tab)


def test_all_pages_stay_in_sight_when_the_window_gets_smaller(tab: Page, large: Exploring) -> None:
    large.show(tab)
    whole = each(tab)
    tab.set_viewport_size({"width": 600, "height": 500})
    expect(canvas(tab)).not_to_have_attribute("data-each", str(whole))
    smaller = each(tab)
    assert smaller > whole
    count = int((canvas(tab).get_attribute("data-painted") or "").split()[1])
    assert count * smaller >= LARGE


def test_what_comes_behind_the_last_line_is_reached_by_going_on(tab: Page, large: Exploring) -> None:
    large.show(tab, "map/4:600000")
    each(tab)
    told = tab.locator("#told")
    expect(told).to_contain_text("page 4:600000,")
    for _ in range(2):
        tab.keyboard.press("PageDown")
        each(tab)
    expect(told).not_to_contain_text("4:600000")
    page = int(re.search(r"page 4:(\d+)", told.inner_text())[1])  # type: ignore[index]
    assert page > 600_000
