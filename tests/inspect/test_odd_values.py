"""Listings show numbers and texts of damaged pages: what their columns cannot have is NULL, and told of."""

from __future__ import annotations

from gmdb.inspect.listing import BIGINT, TEXT, ListColumn, Listing


def test_a_value_that_does_not_fit_is_null_and_a_problem() -> None:
    listing = Listing("odd", [ListColumn("number", BIGINT, "a number"), ListColumn("text", TEXT, "a text")])
    listing.add(number=1 << 63, text="sound")
    listing.add(number=5, text="\ud800")
    table = listing.arrow()
    assert table.to_pylist() == [{"number": None, "text": "sound"}, {"number": 5, "text": None}]
    problems = Listing.from_arrow(table).problems
    assert [where for where, _ in problems] == ["number of row 0", "text of row 1"]
    assert "9223372036854775808" in problems[0][1]
