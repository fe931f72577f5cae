"""Random histories of sessions that want the same unique keys: each change ends as the model says.

To see one again: ``run(World(path), seed, steps)`` with the seed and steps that a failure names.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from tests.integrity import assert_sound
from tests.model.members import World
from tests.model.unique_keys import run

HISTORIES, STEPS = 250, 80


def test_sessions_that_want_the_same_keys_get_them_as_the_model_says(path: Path) -> None:
    world = World(path)
    counts: Counter[str] = Counter()
    try:
        for seed in range(HISTORIES):
            counts.update(run(world, seed, STEPS))
    finally:
        world.close()
    assert_sound(path)
    assert min(counts[name] for name in ("done", "UniqueViolation", "LockTimeout", "NoSuchRow")) > HISTORIES
