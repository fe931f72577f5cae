"""Random histories of serializable transactions: those that have committed are always in some order."""

from __future__ import annotations

import random
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from gmdb.transaction import marks, serializable
from tests.integrity import assert_sound
from tests.isolation.serializable_histories import History, World, anomalies_of, play, require_order
from tests.isolation.serialization_graph import Played, circle_in, edges_of
from tests.searches import extent
from tests.server.peer import Peer

HISTORIES = extent(150, 10_000)
NARROW = extent(75, 2_000)
BY_CLIENTS = extent(15, 400)
CRASHES = extent(2, 30)


@pytest.fixture
def world(path: Path) -> Iterator[World]:
    world = World(path)
    yield world
    world.close()
    assert_sound(path)


@pytest.mark.search
def test_what_has_committed_is_in_an_order(world: World) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(HISTORIES):
        history = play(world, seed)
        require_order(history, seed)
        outcomes += history.outcomes
    assert outcomes["committed"] > 5 * outcomes["SerializationFailure"] > 0


@pytest.mark.search
@pytest.mark.parametrize("ended", [1, 3])
def test_it_is_in_an_order_however_little_is_known_by_itself(
    world: World, ended: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(serializable, "ENDED_MAX", ended)
    for name in ("ROWS_MAX", "PAGES_MAX", "KEYS_MAX", "RANGES_MAX", "WRITES_MAX"):
        monkeypatch.setattr(marks, name, 2)
    for seed in range(NARROW):
        require_order(play(world, seed), seed)


@pytest.mark.search
def test_it_is_in_an_order_through_an_owner(path: Path, peer: Peer) -> None:
    peer("db = gmdb.connect(path)", path=str(path))
    world = World(path)
    for seed in range(BY_CLIENTS):
        require_order(play(world, seed), seed)
    world.close()
    peer("db.close()")


@pytest.mark.search
def test_it_is_in_an_order_over_a_crash(path: Path) -> None:
    """The owner is killed while its clients work; others go on with what was committed."""
    for seed in range(CRASHES):
        directory = path / str(seed)
        directory.parent.mkdir(exist_ok=True)
        owner = Peer()
        try:
            owner("db = gmdb.connect(path)", path=str(directory))
            world = World(directory)
            history = History(world, seed, autocommit=0)
            threading.Timer(random.Random(seed).uniform(0.05, 0.4), owner.kill).start()
            history.play(1_000_000)
            before = len(history.committed)
        finally:
            owner.end()
        assert owner.process.returncode == -signal.SIGKILL, owner.process.returncode
        world.close()
        world = World(directory)
        history.go_on(world)
        history.play(20)
        assert len(history.committed) > before
        require_order(history, seed)
        world.close()
        assert_sound(directory)


# ---- the checker finds what there is to find


def test_without_conflicts_there_are_circles(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """Write skew and the read-only anomaly among them: the histories would notice."""
    monkeypatch.setattr(serializable.SerializableTransactions, "_note_conflict", lambda *_: None)
    found: Counter[str] = Counter()
    for seed in range(200):
        found.update(anomalies_of(play(world, seed)))
        if found["write skew"] and found["read-only anomaly"]:
            break
    assert min(found["write skew"], found["read-only anomaly"]) > 0, found


@pytest.mark.parametrize("rule", ["_has_pivot_in", "_is_pivot_before"])
def test_without_one_of_the_rules_there_are_circles(world: World, rule: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serializable, rule, lambda *_: False)
    assert any(circle_in(play(world, seed).edges()) for seed in range(400))


def test_a_circle_is_found_and_an_order_is_none() -> None:
    def of(item: int):  # type: ignore[no-untyped-def]
        return lambda one, row: one == item and row is not None

    beginning = {1: (0, 0), 2: (0, 0)}
    first = Played(1, 0, [(of(2), frozenset())], {1: (0, 1)})
    second = Played(2, 0, [(of(1), frozenset())], {2: (0, 2)})
    assert sorted(circle_in(edges_of(beginning, [first, second]))) == [1, 2]
    later = Played(2, 1, [(of(1), frozenset())], {2: (0, 2)})
    assert circle_in(edges_of(beginning, [first, later])) == []
    report = Played(3, 1, [(of(1), frozenset()), (of(2), frozenset())])
    withdrawal = Played(1, 0, [(of(1), frozenset()), (of(2), frozenset())], {1: (0, 3)})
    deposit = Played(2, 0, [(of(2), frozenset())], {2: (0, 4)})
    assert sorted(circle_in(edges_of(beginning, [deposit, report, withdrawal]))) == [1, 2, 3]
