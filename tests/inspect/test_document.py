"""docs/file_format.md: every structure is in it, and it is not out of date."""

from __future__ import annotations

from pathlib import Path

from gmdb.format.layout import LAYOUTS
from gmdb.inspect.document import layout_owners, render

DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "file_format.md"


def test_the_document_of_the_file_format_is_not_stale():
    assert DOCUMENT.read_text(encoding="utf-8") == render(), "docs/file_format.md is out of date: run make docs"


def test_every_structure_is_in_the_document():
    text = render()
    assert set(LAYOUTS) == set(layout_owners())
    for structure in LAYOUTS:
        assert f"### {structure.name}: {structure.size} bytes" in text


def test_capacities_in_the_document_are_computed():
    assert "| 8,192 | 235 | 252 | 8,080 | 8,078 |" in render()
    assert "| 32,768 | 1,003 | 1,020 |" in render()
