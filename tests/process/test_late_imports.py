"""Libraries that are read when they are first used, modules that others stand in for, late patterns."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from types import ModuleType

import pytest

from gmdb.process.late_imports import stood_in_for
from gmdb.process.late_patterns import late_pattern

STAND_IN = """
import sys
from gmdb.process.late_imports import stood_in_for

with stood_in_for({"calendar": ("monthrange",)}):
    from calendar import monthrange
    import calendar as within
assert "calendar" not in sys.modules
assert monthrange(2024, 2) == (3, 29)
import calendar
assert sys.modules["calendar"] is calendar and calendar.SUNDAY == 6
assert within.SUNDAY == 6  # what took the stand-in for the module gets the rest of it, too
"""


def test_a_stand_in_gives_way_to_the_module_when_it_is_called() -> None:
    ended = subprocess.run([sys.executable, "-c", STAND_IN], capture_output=True, text=True, timeout=60, check=False)
    assert ended.stderr == ""


def test_a_module_that_was_read_before_is_left_alone() -> None:
    with stood_in_for({"json": ("loads",)}):
        assert importlib.import_module("json").dumps([1]) == "[1]"


def test_a_late_library_becomes_like_the_module() -> None:
    from gmdb.process.late_imports import numpy as np

    assert np.zeros(2).tolist() == [0, 0]
    assert type(np) is ModuleType
    assert np.ndarray is sys.modules["numpy"].ndarray
    with pytest.raises(AttributeError):
        np.nothing  # noqa: B018


def test_a_late_pattern_matches_as_others_do() -> None:
    pattern = late_pattern(r"(\d+)-(x)?", re.I)
    match = pattern.fullmatch("12-X")
    assert match is not None
    assert (match.groups(), pattern.match("x"), pattern.sub("_", "1-2-")) == (("12", "X"), None, "__")
