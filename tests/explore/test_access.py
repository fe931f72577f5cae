"""For everybody: names of all controls, the keyboard alone, light and dark, a narrow window."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.explore.conftest import page_of
from tests.explore.exploring import Exploring

Explorers = Callable[[str], Exploring]
VIEWS = ("map", "page/4:7", "segments", "segment/t", "index/t_i", "row/4:7:25", "live", "log", "compare")
CONTROLS = "a, button, input, select, summary, canvas[tabindex], [tabindex='0']"
CONTRAST = """() => {
  const brush = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const rgb = (colour) => {
    brush.clearRect(0, 0, 1, 1); brush.fillStyle = colour; brush.fillRect(0, 0, 1, 1);
    return [...brush.getImageData(0, 0, 1, 1).data];
  };
  const linear = (c) => (c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const ground = (one) => {
    for (let at = one; at; at = at.parentElement) {
      const found = rgb(getComputedStyle(at).backgroundColor);
      if (found[3] === 255) return found;
    }
    return rgb(getComputedStyle(document.body).backgroundColor);
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let text = walk.nextNode(); text; text = walk.nextNode()) {
    const one = text.parentElement;
    if (!text.data.trim() || !one.checkVisibility() || one.closest("option, .hex, svg, noscript")) continue;
    const [a, b] = [light(rgb(getComputedStyle(one).color)), light(ground(one))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    found.push([Math.round(100 * ratio) / 100, text.data.trim().slice(0, 40)]);
  }
  return found;
}"""


@pytest.mark.parametrize("view", VIEWS)
def test_every_control_has_a_name(tab: Page, explorers: Explorers, view: str) -> None:
    explorers("crashed").show(tab, view)
    for control in tab.locator(CONTROLS).all()[:150]:
        if control.is_visible():
            expect(control).to_have_accessible_name(re.compile(r"\S"))
    expect(tab.get_by_role("main")).to_be_visible()
    expect(tab.get_by_role("navigation", name="Views").get_by_role("link")).to_have_count(5)
    assert tab.locator("html").get_attribute("lang") == "en"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("view", VIEWS)
def test_texts_can_be_read_in_light_and_dark(tab: Page, explorers: Explorers, view: str, scheme: str) -> None:
    tab.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
    explorers("crashed").show(tab, view)
    found = tab.evaluate(CONTRAST)
    assert len(found) > 10
    assert [one for one in found if one[0] < 4.5] == []
    ground = tab.evaluate("getComputedStyle(document.body).backgroundColor")
    assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(13, 17, 23)")


@pytest.mark.parametrize("view", VIEWS)
def test_a_narrow_window_shows_all_of_it(tab: Page, explorers: Explorers, view: str) -> None:
    tab.set_viewport_size({"width": 700, "height": 800})
    explorers("crashed").show(tab, view)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = """[...document.querySelectorAll("header *, main > .view > *")].filter((one) => one.checkVisibility()
      && one.getBoundingClientRect().right > innerWidth + 1).map((one) => one.outerHTML.slice(0, 80))"""
    assert tab.evaluate(wide) == []
    assert tab.evaluate(
        "(() => { const m = document.getElementById('main'); return m.scrollWidth <= m.clientWidth; })()"
    )


def tab_to(tab: Page, wanted: str) -> None:
    """Press Tab until what a selector means has the focus."""
    for _ in range(300):
        tab.keyboard.press("Tab")
        if tab.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"Tab does not lead to {wanted}")


def test_the_keyboard_alone_leads_from_the_map_to_a_page_to_a_row(
    tab: Page, explorers: Explorers, states: dict[str, Path]
) -> None:
    explorers("closed").show(tab)
    expect(tab.get_by_role("application")).to_have_attribute("data-painted", re.compile("."))
    page = page_of(states["closed"], "heap")
    told = tab.locator("#told")
    for _ in range(60):
        if told.inner_text().startswith(f"page {page},"):
            break
        tab.keyboard.press("ArrowRight")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Page {page}: heap page of t")
    tab_to(tab, ".fields")
    tab.keyboard.press("ArrowDown")
    expect(told).not_to_be_empty()
    tab_to(tab, ".hex")
    tab_to(tab, "#reader")
    tab_to(tab, ".seen td a[href^='#row/']")
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("heading", level=2)).to_contain_text(f"Row {page}:")


def test_the_first_stop_of_tab_skips_to_the_content(tab: Page, explorers: Explorers) -> None:
    explorers("closed").show(tab, "segments")
    tab.reload()  # Tab goes on from where the map was, if that was shown before
    tab.locator("main > .view.segments").wait_for()
    tab.keyboard.press("Tab")
    skip = tab.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    expect(skip).to_be_in_viewport()
    tab.keyboard.press("Enter")
    expect(tab.get_by_role("main")).to_be_focused()
    expect(tab.get_by_role("heading", level=2)).to_have_text("Segments")


def test_views_are_said_to_be_the_current_one(tab: Page, explorers: Explorers) -> None:
    explorers("closed").show(tab, "segments")
    views = tab.get_by_role("navigation", name="Views")
    for name in ("Map", "Transactions", "Log", "Compare", "Segments"):
        views.get_by_role("link", name=name).click()
        expect(views.locator("[aria-current=page]")).to_have_text(name)
