"""Rows, their versions and who sees which; segments, indexes, and the box that leads anywhere: in a browser."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

import gmdb
from tests.explore.conftest import Complaints
from tests.explore.exploring import Exploring

Explorers = Callable[[str], Exploring]
REFUSED = "the server responded with a status of 4"


def row_id_of(path: Path, key: int) -> str:
    with gmdb.inspect.open(path) as inspector:
        return next(one["_rowid"] for one in inspector.rows("t").to_pylist() if one["i"] == key)


def cells(table: Locator, row: int, column: int | None = None) -> list[str]:
    """The texts of a line of a table."""
    texts = table.locator("tbody tr").nth(row).locator("td").all_inner_texts()
    return texts if column is None else [texts[column]]


def table_named(tab: Page, caption: str) -> Locator:
    return tab.get_by_role("region", name=caption)


# ---- versions


def test_a_row_has_its_versions_and_who_sees_which(tab: Page, explorers: Explorers, states: dict[str, Path]) -> None:
    """Row 100 was updated once and committed, and again by a transaction that never ended."""
    row_id = row_id_of(states["checkpointed"], 100)
    explorers("checkpointed").show(tab, f"row/{row_id}")
    versions = table_named(tab, "Versions, the newest first")
    expect(versions.locator("tbody tr")).not_to_have_count(0)
    texts = ["\t".join(cells(versions, n)) for n in range(3)]
    assert ["in flight" in one for one in texts] == [True, False, False]
    assert "twice" in texts[0]
    assert "once" in texts[1]
    assert "committed" in texts[1]
    expect(versions.locator("tr.open")).to_have_count(1)
    versions.locator("tbody tr").nth(1).get_by_role("link").click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text("undo page of undo")


def test_the_reader_is_chosen_and_every_row_says_what_it_sees(
    tab: Page, explorers: Explorers, states: dict[str, Path]
) -> None:
    updated, deleted = (row_id_of(states["checkpointed"], key) for key in (100, 101))
    explorers("checkpointed").show(tab, f"page/{updated.rpartition(':')[0]}")
    seen = tab.locator(".seen")
    reader = tab.get_by_label("Rows, as they are seen by")
    of_updated = seen.locator("tbody tr", has=tab.get_by_role("link", name=updated, exact=True).first)
    of_deleted = seen.locator("tbody tr", has=tab.get_by_role("link", name=deleted, exact=True).first)
    expect(reader.locator("option:checked")).to_have_text("a new reader")
    expect(of_updated).to_contain_text("from undo")
    expect(of_updated).to_contain_text("no flag, other's UPDATE: from undo; no flag, UPDATE committed before: visible")
    expect(of_updated).to_contain_text("once")
    expect(of_deleted).to_contain_text("DELETE flag, other's DELETE: as beneath")
    expect(of_deleted).to_contain_text("from undo")
    reader.select_option(label=next(one for one in reader.locator("option").all_inner_texts() if "never ended" in one))
    expect(of_updated).to_contain_text("own UPDATE: visible")
    expect(of_updated).to_contain_text("twice")
    expect(of_deleted).to_contain_text("own DELETE: invisible")
    expect(of_deleted).to_have_class("unseen")
    assert seen.locator(".sees.visible").count() > 1


def test_a_snapshot_of_before_a_commit_sees_what_was_before(
    tab: Page, explorers: Explorers, states: dict[str, Path]
) -> None:
    row_id = row_id_of(states["checkpointed"], 100)
    explorers("checkpointed").show(tab, f"row/{row_id}")
    reader = tab.get_by_label("Rows, as they are seen by")
    offered = reader.locator("option").all_inner_texts()
    before = [one for one in offered if one.startswith("a snapshot before commit")]
    assert before
    reader.select_option(label=before[-1])
    expect(tab.locator(".seen tbody tr")).not_to_contain_text("once")
    expect(tab.locator(".seen tbody tr")).to_contain_text("from undo")


def test_a_row_leads_to_its_page_and_back(tab: Page, explorers: Explorers, states: dict[str, Path]) -> None:
    row_id = row_id_of(states["closed"], 50)
    explorers("closed").show(tab, f"row/{row_id}")
    page = row_id.rpartition(":")[0]
    tab.locator("main p").get_by_role("link", name=page, exact=True).click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {page}: heap page of t")
    tab.locator(".seen").get_by_role("link", name=row_id, exact=True).first.click()
    expect(tab.get_by_role("heading", level=2)).to_have_text(f"Row {row_id}")


# ---- segments and indexes


def test_a_segment_has_its_map_its_free_lists_and_how_full_it_is(tab: Page, explorers: Explorers) -> None:
    explorers("closed").show(tab, "segments")
    tab.get_by_role("link", name="t", exact=True).click()
    expect(tab.get_by_role("heading", level=2)).to_have_text("Segment t")
    with gmdb.inspect.open(explorers("closed").line.partition(" is at ")[0]) as inspector:
        maps, free = inspector.maps("t").to_pylist(), inspector.freelists("t").to_pylist()
        pages = sum(one["pages"] for one in inspector.fill("t").to_pylist())
    listed = table_named(tab, "Map: every data page of the segment")
    expect(listed.locator("tbody tr")).to_have_count(len(maps))
    expect(table_named(tab, "Free lists").locator("tbody tr")).to_have_count(len(free))
    expect(tab.locator("svg.histogram")).to_be_visible()
    titles = tab.locator("svg.histogram title").all_text_contents()
    assert sum(int(one.split(": ")[1].split()[0]) for one in titles) == pages
    listed.get_by_role("link", name=maps[0]["page"], exact=True).first.click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {maps[0]['page']}: heap page of t")


def test_an_index_unfolds_down_to_its_entries(tab: Page, explorers: Explorers) -> None:
    explorers("closed").show(tab, "segments")
    tab.get_by_role("link", name="t_i", exact=True).click()
    expect(tab.get_by_role("heading", level=2)).to_have_text("Index t_i")
    leaf = tab.locator(".tree details").first
    expect(leaf.locator("summary")).to_contain_text("level 0")
    entries = leaf.locator("tbody tr")
    expect(entries.nth(5)).to_contain_text("[5]")
    entries.nth(5).get_by_role("link").last.click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text("Row ")
    expect(table_named(tab, "Versions, the newest first").locator("tbody tr").first).to_contain_text("5")


def test_an_index_of_several_levels_unfolds_level_by_level(tab: Page, tmp_path: Path) -> None:
    with gmdb.connect(tmp_path / "deep.gmdb") as db:
        db.create_table("t", {"s": "VARCHAR(200)"})
        db.create_index("t_s", "t", ["s"])
        db.commit()
        for n in range(600):
            db.insert("t", (f"{n:04}" + "x" * 190,))
        db.commit()
    explorer = Exploring(tmp_path / "deep.gmdb")
    try:
        explorer.show(tab, "index/t_s")
        root = tab.locator(".tree > details")
        expect(root.locator("> summary")).to_contain_text("level 1")
        leaves = root.locator("> .below > details")
        expect(leaves.nth(2)).to_be_visible()
        expect(leaves.nth(1).locator("tbody tr")).to_have_count(0)
        leaves.nth(1).locator("summary").press("Enter")
        expect(leaves.nth(1).locator("tbody tr").first).to_contain_text("xxx")
        leaves.nth(1).locator("summary").press("Enter")
        expect(leaves.nth(1).locator("tbody tr").first).to_be_hidden()
        assert explorer.end() == (0, "", "")
    finally:
        explorer.kill()


def test_a_hash_index_is_the_list_of_its_pages(tab: Page, explorers: Explorers) -> None:
    explorers("closed").show(tab, "index/t_h")
    expect(table_named(tab, "Pages of the hash index").locator("tbody tr")).not_to_have_count(0)


# ---- the box that leads anywhere


@pytest.mark.parametrize(
    ("wanted", "heading"),
    [
        ("4:1", "Page 4:1: segment_entry page"),
        (str(4 << 22 | 1), "Page 4:1: segment_entry page"),
        ("4:7:1", "Row 4:7:1"),
        ("t", "Segment t"),
        ("T", "Segment t"),
        ("t_i", "Index t_i"),
        ("undo", "Segment undo"),
    ],
)
def test_the_box_leads_to_pages_rows_tables_and_indexes(
    tab: Page, explorers: Explorers, wanted: str, heading: str
) -> None:
    explorers("closed").show(tab, "segments")
    tab.keyboard.press("/")
    expect(tab.get_by_role("textbox", name="Go to")).to_be_focused()
    tab.keyboard.type(wanted)
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=2)).to_contain_text(heading)


def test_what_is_nowhere_is_told_of(tab: Page, explorers: Explorers, complaints: Complaints) -> None:
    explorers("closed").show(tab, "segments")
    trouble = tab.get_by_role("alert")
    box = tab.get_by_role("textbox", name="Go to")
    expect(tab.locator("#trouble")).to_be_hidden()
    box.fill("nothing")
    box.press("Enter")
    expect(trouble).to_have_text("there is no page, row, table or index nothing")
    assert complaints.unexpected == []
    complaints.expected = REFUSED
    box.fill("4:99999")
    box.press("Enter")
    expect(trouble).to_contain_text(re.compile(r"there is no page 4:99999"))
    box.fill("77:1")
    box.press("Enter")
    expect(trouble).to_contain_text("has no device 77")
    box.fill("4:1")
    box.press("Enter")
    expect(tab.get_by_role("heading", level=2)).to_contain_text("Page 4:1")
    expect(tab.locator("#trouble")).to_be_hidden()


@pytest.mark.parametrize("view", ["nothing", "segment/nothing", "index/nothing", "row/4:7:60000", "row/x", "map/x"])
def test_an_address_that_leads_nowhere_is_told_of(
    tab: Page, explorers: Explorers, complaints: Complaints, view: str
) -> None:
    complaints.expected = REFUSED
    explorers("closed").show(tab, "segments")
    tab.goto(f"{explorers('closed').base}#{view}")
    expect(tab.get_by_role("alert")).not_to_be_empty()
    expect(tab.get_by_role("alert")).not_to_contain_text("undefined")


def test_two_moments_differ_in_fields_rows_and_bytes(tab: Page, explorers: Explorers) -> None:
    explorers("crashed").show(tab, "compare")
    tab.get_by_role("button", name="Compare").click()
    result = tab.locator(".result")
    expect(result).to_contain_text(re.compile(r"[\d,]+ differences on \d+ pages"))
    expect(result.locator("td", has_text="thrice").first).to_be_visible()
    tab.get_by_role("textbox", name="From").or_(tab.get_by_role("combobox", name="From")).fill("end")
    tab.get_by_role("button", name="Compare").click()
    expect(result).to_contain_text("Nothing differs.")


def test_moments_that_cannot_be_compared_are_told_of(tab: Page, explorers: Explorers, complaints: Complaints) -> None:
    complaints.expected = REFUSED
    explorers("crashed").show(tab, "compare")
    tab.get_by_role("textbox", name="From").or_(tab.get_by_role("combobox", name="From")).fill("yesterday")
    tab.get_by_role("button", name="Compare").click()
    expect(tab.locator(".result .damage")).to_contain_text("yesterday")
