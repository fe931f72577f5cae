"""What definitions have beyond the columns of their rows in system tables."""

import pytest

from gmdb.errors import SchemaError
from gmdb.format.options import OPTIONS_MAX, option, options_of, options_text, with_option_values, with_options
from gmdb.process.late_dataclasses import dataclass


@dataclass(frozen=True)
class Thing:
    name: str
    is_odd: bool = option(False)
    note: str | None = option(None)
    pairs: tuple = option(())


def test_only_what_is_not_as_usual_is_kept():
    assert options_text(Thing("a")) is None
    assert options_of(Thing("a", note="x")) == {"note": "x"}


def test_options_come_back_as_they_were():
    for thing in (Thing("a"), Thing("a", True), Thing("a", note="ü", pairs=((1, "b"), (2, None)))):
        assert with_options(Thing("a"), options_text(thing)) == thing
        assert with_option_values(Thing("a"), options_of(thing)) == thing


@pytest.mark.parametrize("text", ['{"what":1}', "[]", "{", "[" * 100_000, '{"name":"b"}'])
def test_text_that_is_no_options_of_the_definition_is_refused(text):
    with pytest.raises(SchemaError, match="options that"):
        with_options(Thing("a"), text)


def test_more_than_the_catalog_keeps_is_refused():
    with pytest.raises(SchemaError, match=f"keeps {OPTIONS_MAX} bytes"):
        options_text(Thing("a", note="x" * OPTIONS_MAX))
