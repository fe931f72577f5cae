"""The tutorials, run as they are written; what they say is printed, is printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.tutorial import matches, run, steps_of

TUTORIALS = Path(__file__).parents[2] / "docs" / "tutorials"


@pytest.mark.parametrize("name", ["application", pytest.param("data", marks=pytest.mark.spark), "storage"])
def test_a_tutorial_prints_what_it_says(name: str, tmp_path: Path):
    steps = steps_of((TUTORIALS / f"{name}.md").read_text(encoding="utf-8"))
    assert sum(step.expected is not None for step in steps) >= 5
    for step, printed in zip(steps, run(steps, tmp_path), strict=True):
        if step.expected is not None:
            assert matches(printed, step.expected), (
                f"{step.code}\nprinted:\n{printed}\nbut the tutorial says:\n{step.expected}"
            )


def test_every_tutorial_is_run():
    assert {path.stem for path in TUTORIALS.glob("*.md")} == {"application", "data", "storage"}


def test_what_is_printed_is_compared():
    assert matches("a 1 b\nc  \n", "a … b\nc")
    assert not matches("a 1 c\n", "a … b")
