"""The .slt files, each on a database of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integrity import problems
from tests.sql.slt import Player

FILES = sorted((Path(__file__).parent / "slt").glob("*.slt"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_statements_do_what_the_file_says(tmp_path: Path, file: Path) -> None:
    assert Player(tmp_path / "d.gmdb").play(file) > 0
    assert problems(tmp_path / "d.gmdb") == []
