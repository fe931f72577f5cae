from __future__ import annotations

from pathlib import Path

import pytest
from bench.__main__ import main
from bench.undo import TARGET, UndoUse, measure, undo_line

from gmdb.storage.store import UNDO_PAGE_SIZE


def test_undo_space_is_used_again_while_the_same_rows_are_updated(tmp_path: Path):
    few, many = measure(tmp_path / "few", 5_000), measure(tmp_path / "many", 50_000)
    assert few.peak > 0
    assert many.peak < TARGET
    one_page = UNDO_PAGE_SIZE / (1 << 20)  # with room left: handed on to the next transaction, not given back
    assert few.left <= one_page
    assert many.left <= one_page < many.peak


@pytest.mark.parametrize(("peak", "outcome"), [(TARGET - 0.1, "met"), (TARGET, "missed")])
def test_the_line_says_whether_the_target_is_met(peak: float, outcome: str):
    assert outcome in undo_line(UndoUse(10, peak, 0.0))


def test_the_program_measures_undo_space(capsys):
    assert main(["undo", "--rows", "5000"]) == 0
    assert "1,000 updates of 1,000 rows" in capsys.readouterr().out
