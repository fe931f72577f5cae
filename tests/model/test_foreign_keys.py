"""No orphan is ever committed, whatever sessions do at the same time, and whatever crashes."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

import pytest

from tests.integrity import assert_sound
from tests.model.foreign_keys import run
from tests.searches import extent


@pytest.mark.search
def test_no_orphan_is_committed_whatever_sessions_do_at_once(tmp_path: Path) -> None:
    counts = Counter[str]()
    for seed in range(extent(4, 200)):
        path = tmp_path / f"{seed}.gmdb"
        counts += run(path, seed, sessions=4, transactions=25)
        assert_sound(path)
        shutil.rmtree(path)
    assert counts["committed"] > 100, counts
    assert counts["ForeignKeyViolation"] > 50, counts
