from __future__ import annotations

from pathlib import Path

from bench.durability import checkpoint_line, measure_checkpoint, measure_recovery, recovery_line

from gmdb.storage.log import durability


def test_a_crash_leaves_about_as_much_redo_as_was_asked_for(tmp_path: Path):
    replay = measure_recovery(tmp_path, 1_000_000)
    assert replay.redo_bytes > 500_000  # what garbage collection logged after the last commit was not written
    assert replay.commits > 100
    assert "MB a second" in recovery_line(replay)


def test_updates_go_on_beside_a_checkpoint_and_limits_are_put_back(tmp_path: Path):
    before = durability.REDO_LIMIT, durability.DIRTY_LIMIT, durability.INTERVAL
    found = measure_checkpoint(tmp_path, 16 << 20)
    assert found.checkpoint_bytes >= 16 << 20
    assert found.updates > 0
    assert found.median <= found.percentile_99 <= found.longest
    assert "updates with a commit each" in checkpoint_line(found)
    assert before == (durability.REDO_LIMIT, durability.DIRTY_LIMIT, durability.INTERVAL)
