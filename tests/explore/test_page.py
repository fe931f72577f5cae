"""A page in a browser: fields beside bytes, either lighting up the other."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import gmdb
from tests.explore.conftest import page_of
from tests.explore.exploring import Exploring

Explorers = Callable[[str], Exploring]
DOCUMENT = Path(__file__).parents[2] / "docs" / "file_format.md"
KINDS = ("device_head", "segment_entry", "system", "heap", "btree", "hash", "lob", "undo", "transactions", "free")


def regions_of(path: Path, page: str) -> list[dict[str, Any]]:
    with gmdb.inspect.open(path) as inspector:
        return inspector.regions(page).to_pylist()


def lit_bytes(tab: Page, name: str = "lit") -> list[int]:
    return tab.eval_on_selector_all(f".hex span.{name}", "found => found.map((one) => Number(one.dataset.at))")


def shown_bytes(tab: Page) -> bytes:
    texts = tab.eval_on_selector_all(".hex span", "found => found.map((one) => one.textContent)")
    return bytes.fromhex("".join(texts))


@pytest.fixture
def heap_page(tab: Page, explorers: Explorers, states: dict[str, Path]) -> tuple[Page, list[dict[str, Any]]]:
    page = page_of(states["closed"], "heap")
    explorers("closed").show(tab, f"page/{page}")
    return tab, regions_of(states["closed"], page)


@pytest.mark.parametrize("kind", KINDS)
def test_a_page_of_every_kind_shows_its_fields_and_its_bytes(
    tab: Page, explorers: Explorers, states: dict[str, Path], kind: str
) -> None:
    state = "closed" if kind == "free" else "crashed"  # undo pages are given back when it is closed
    page = page_of(states[state], kind)
    explorers(state).show(tab, f"page/{page}")
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {page}: {kind} page")
    regions = regions_of(states[state], page)
    names = tab.eval_on_selector_all(".fields tbody code", "found => found.map((one) => one.textContent)")
    assert names == [one["name"] for one in regions]
    offsets = tab.eval_on_selector_all(".fields tbody td:first-child", "found => found.map((one) => one.textContent)")
    assert offsets == [str(one["offset"]) for one in regions]
    with gmdb.inspect.open(states[state]) as inspector:
        assert shown_bytes(tab) == inspector.image(page)["bytes"][0].as_py()
    expect(tab.locator("p.quiet").first).to_contain_text("checksum right")
    expect(tab.locator(".damage")).to_have_count(0)


def test_the_names_are_those_of_the_document(heap_page: tuple[Page, list[dict[str, Any]]]) -> None:
    tab, _ = heap_page
    text = DOCUMENT.read_text(encoding="utf-8")
    names = tab.eval_on_selector_all(".fields tbody code", "found => found.map((one) => one.textContent)")
    assert len(names) > 50
    for name in set(re.sub(r"\[\d+\]", "", one).split(".")[-1] for one in names):
        assert f"`{name}" in text or f".{name}`" in text or name in text, name


def test_a_field_lights_up_its_bytes(heap_page: tuple[Page, list[dict[str, Any]]]) -> None:
    tab, regions = heap_page
    for name in ("head.page_id", "node.slot_count", "rows[0].size"):
        number, region = next((n, one) for n, one in enumerate(regions) if one["name"] == name)
        tab.locator(f"#field-{number} code").hover()
        expect(tab.locator(f"#field-{number}")).to_have_class(re.compile(r"\blit\b"))
        assert lit_bytes(tab) == list(range(region["offset"], region["offset"] + region["length"]))
        expect(tab.locator(".fields tr.lit")).to_have_count(1)
        expect(tab.locator(".readout")).to_contain_text(name)
        expect(tab.locator(".readout")).to_contain_text(f"{region['length']} bytes at {region['offset']}")
        expect(tab.locator(f".hex span[data-at='{region['offset']}']")).to_be_in_viewport()


def test_a_byte_lights_up_its_field(heap_page: tuple[Page, list[dict[str, Any]]]) -> None:
    tab, regions = heap_page
    for at in (13, 37, 100, 8191):
        number, region = next(
            (n, one) for n, one in enumerate(regions) if one["offset"] <= at < one["offset"] + one["length"]
        )
        tab.locator(f".hex span[data-at='{at}']").hover()
        expect(tab.locator(f"#field-{number}")).to_have_class(re.compile(r"\blit\b"))
        expect(tab.locator(f"#field-{number}")).to_be_in_viewport()
        assert lit_bytes(tab) == list(range(region["offset"], region["offset"] + region["length"]))
        expect(tab.locator("#told")).to_contain_text(region["name"])


def test_a_slot_lights_up_the_row_that_it_leads_to(heap_page: tuple[Page, list[dict[str, Any]]]) -> None:
    tab, regions = heap_page
    number = next(n for n, one in enumerate(regions) if one["name"] == "slots[2]")
    tab.locator(f"#field-{number} code").hover()
    expect(tab.locator(".arc.lit")).to_have_count(1)
    row = [one for one in regions if one["name"].startswith("rows[2].") or one["name"] == "rows[2]"]
    expected = [at for one in row for at in range(one["offset"], one["offset"] + one["length"])]
    assert lit_bytes(tab, "target") == sorted(expected)
    tab.locator("#field-0 code").hover()
    expect(tab.locator(".arc.lit")).to_have_count(0)
    assert lit_bytes(tab, "target") == []


def test_arrow_keys_go_from_field_to_field(heap_page: tuple[Page, list[dict[str, Any]]]) -> None:
    tab, regions = heap_page
    told = tab.locator("#told")
    fields = tab.get_by_role("listbox", name="Fields of the page")
    fields.focus()
    for n in (1, 2, 3):
        tab.keyboard.press("ArrowDown")
        expect(told).to_contain_text(regions[n]["name"])
        expect(fields).to_have_attribute("aria-activedescendant", f"field-{n}")
    tab.keyboard.press("End")
    expect(told).to_contain_text(regions[-1]["name"])
    expect(tab.locator(f"#field-{len(regions) - 1}")).to_be_in_viewport()
    tab.get_by_role("group", name="Bytes of the page").focus()
    tab.keyboard.press("ArrowLeft")
    expect(told).to_contain_text(regions[-2]["name"])
    tab.keyboard.press("Home")
    expect(told).to_contain_text(regions[0]["name"])
    assert lit_bytes(tab) == list(range(regions[0]["length"]))


def test_what_the_log_did_to_it_unfolds(tab: Page, explorers: Explorers, states: dict[str, Path]) -> None:
    page = page_of(states["crashed"], "heap")
    explorers("crashed").show(tab, f"page/{page}")
    steps = tab.locator("details.history tbody tr")
    expect(steps).to_have_count(0)
    tab.locator("details.history summary").press("Enter")
    with gmdb.inspect.open(states["crashed"]) as inspector:
        found = inspector.history(page).to_pylist()
    expect(steps).to_have_count(min(len(found), 200))
    expect(steps.first.locator("td").first).to_have_text(str(found[-1]["step"]))


def test_one_page_leads_to_the_next_and_to_its_map_page(heap_page: tuple[Page, list[dict[str, Any]]]) -> None:
    tab, regions = heap_page
    before = tab.get_by_role("heading", level=2).inner_text().split()[1].rstrip(":")
    device, number = map(int, before.split(":"))
    tab.get_by_role("link", name="The next page").click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {device}:{number + 1}")
    tab.get_by_role("link", name="The page before").click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {device}:{number}:")
    line = next(n for n, one in enumerate(regions) if one["name"] == "head.map_page_id")
    tab.locator(f"#field-{line} a").click()
    expect(tab.get_by_role("heading", level=2)).to_contain_text("segment_entry page of t")


def test_a_damaged_page_says_what_is_wrong_and_is_shown(
    tab: Page, explorers: Explorers, states: dict[str, Path]
) -> None:
    page = page_of(states["closed"], "heap")
    explorers("damaged").show(tab, f"page/{page}")
    expect(tab.locator(".damage").first).to_contain_text("Damaged")
    expect(tab.locator(".damage").first).to_contain_text(re.compile("CRC|checksum"))
    expect(tab.locator("p.quiet").first).to_contain_text("CHECKSUM WRONG")
    assert shown_bytes(tab)[200:204] == b"\xff\xfe\xfd\xfc"
    expect(tab.locator(".fields tbody tr")).not_to_have_count(0)


# ---- in which state


def test_a_state_is_chosen_and_shown(tab: Page, explorers: Explorers, states: dict[str, Path]) -> None:
    """The crashed database has changes in its log that are not in its files."""
    with gmdb.inspect.open(states["crashed"]) as inspector:
        (found,) = [one for one in inspector.rows("t").to_pylist() if one["i"] == 100]
        page = found["_rowid"].rpartition(":")[0]
        records = [one for one in inspector.redo().to_pylist() if one["page"] == page]
        files_bytes = inspector.image(page)["bytes"][0].as_py()
    with gmdb.inspect.open(states["crashed"], at="end") as inspector:
        end_bytes = inspector.image(page)["bytes"][0].as_py()
    assert files_bytes != end_bytes
    explorers("crashed").show(tab, f"page/{page}")
    state = tab.get_by_label("State")
    assert state.locator("option").all_inner_texts() == [
        "as the files are", "with all of the log replayed", "up to an LSN of the log…"
    ]  # fmt: skip
    assert shown_bytes(tab) == files_bytes
    state.select_option("end")
    expect(tab.locator("#told")).to_have_text("")
    expect(tab.locator(".seen")).to_contain_text("thrice")
    assert shown_bytes(tab) == end_bytes
    last = max(one["lsn"] for one in records)
    tab.once("dialog", lambda dialog: dialog.accept(str(last)))
    state.select_option("at")
    expect(state.locator("option:checked")).to_have_text(f"up to LSN {last}")
    expect(tab.locator(".seen")).not_to_contain_text("thrice")
    state.select_option("files")
    expect(tab.locator("main .fields")).to_be_visible()
    tab.wait_for_function("() => document.querySelectorAll('.hex span').length === 8192")
    assert shown_bytes(tab) == files_bytes


def test_what_is_no_lsn_leaves_the_state_as_it_was(tab: Page, explorers: Explorers) -> None:
    explorers("crashed").show(tab, "segments")
    state = tab.get_by_label("State")
    for answer in ("soon", ""):
        tab.once("dialog", lambda dialog, answer=answer: dialog.accept(answer))
        state.select_option("at")
        expect(state).to_have_value("files")
    tab.once("dialog", lambda dialog: dialog.dismiss())
    state.select_option("at")
    expect(state).to_have_value("files")
