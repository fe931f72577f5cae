"""docs/gmstat.md: every verb is there, and every column with its meaning."""

from __future__ import annotations

from pathlib import Path

import pytest

from gmdb.cli.stat import VERBS
from gmdb.inspect.inspector import LISTINGS
from gmdb.inspect.log_lists import REDO_MORE
from gmdb.inspect.redo_log import REDO

DOCUMENT = Path(__file__).parents[2] / "docs" / "gmstat.md"


def columns_as_markdown() -> str:
    """The part of the document behind its last heading."""
    listed = {name: listing.columns or (*REDO, *REDO_MORE) for name, listing in LISTINGS.items()}
    parts = []
    for name, columns in listed.items():
        behind = ["The table's columns follow.", ""] if name in ("rows", "row", "seen") else []
        lines = [f"| `{c.name}` | {c.type.name} | {c.meaning} |" for c in columns]
        parts.append("\n".join([f"### {name}", "", *behind, "| column | type | |", "|---|---|---|", *lines]))
    return "\n\n".join(parts) + "\n"


def test_the_columns_are_those_of_the_listings() -> None:
    _, _, written = DOCUMENT.read_text(encoding="utf-8").partition("\n## Columns\n\n")
    assert written == columns_as_markdown()


@pytest.mark.parametrize("verb", [verb.NAME for verb in VERBS])
def test_every_verb_is_told_of(verb: str) -> None:
    text = DOCUMENT.read_text(encoding="utf-8")
    assert f"`{verb}" in text or f"gmstat {verb} " in text
