"""The harness itself: its signals come where signals come, and it sees what is half done."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from tests.interrupts import operations
from tests.interrupts.plays import Play, judge
from tests.interrupts.striking import AtOpcode, Strikes
from tests.interrupts.world import Broken, Model, World

POINTS_MAX = 5000


@pytest.fixture
def strikes() -> Iterator[Strikes]:
    made = Strikes()
    yield made
    made.close()


def every_point(strikes: Strikes, function: Callable[[], object], look: Callable[[], object]) -> list[object]:
    """What is seen after the function was hit, at one point after the other until there is none."""
    at = AtOpcode(strikes, lambda code: code is function.__code__)
    seen: list[object] = []
    for point in range(POINTS_MAX):
        attempt = at.run(function, point)
        if not at.is_sent:
            return seen
        assert attempt.interrupted, (point, attempt)
        seen.append(look())
    raise AssertionError("it does not end")


def test_a_lock_that_is_taken_by_with_is_never_left(strikes: Strikes) -> None:
    """A trace function that raises would hit between ``__enter__`` and the block, where no signal comes."""
    lock, items = threading.Lock(), [1]

    def work() -> int:
        with lock:
            items.append(1)
            return len(items)

    assert not any(every_point(strikes, work, lock.locked))


def test_a_lock_that_is_taken_in_front_of_try_may_be_left(strikes: Strikes) -> None:
    lock = threading.Lock()

    def work() -> None:
        lock.acquire()
        try:
            pass
        finally:
            lock.release()

    def look() -> bool:
        was_locked = lock.locked()
        if was_locked:
            lock.release()
        return was_locked

    assert set(every_point(strikes, work, look)) == {True, False}


def test_a_loop_is_hit_in_each_of_its_rounds(strikes: Strikes) -> None:
    done: list[int] = []

    def work() -> None:
        for number in range(4):
            done.append(number)

    def look() -> int:
        count = len(done)
        done.clear()
        return count

    assert {1, 2, 3, 4} <= set(every_point(strikes, work, look))


def insert_two(world: World, model: Model) -> Play:
    """Two statements that are said to be one."""
    first, second = world.new_key(), world.new_key()
    rows = {key: (key, 1, "x") for key in (first, second)}

    def run() -> None:
        world.db.insert("t", rows[first])
        world.db.insert("t", rows[second])

    return operations.statement(model, run, model.with_rows("t", rows), "t")


def lie_about_a_commit(world: World, model: Model) -> Play:
    """A change that is said to be committed when it is not."""
    play = operations.heap_insert(world, model, Random(1))
    assert play is not None
    return Play(play.run, [model, model.ended(play.models[-1].current)], play.touches, (None, False))


@pytest.mark.parametrize("build", [insert_two, lie_about_a_commit])
def test_what_is_half_done_is_noticed(strikes: Strikes, tmp_path: Path, build: Callable[[World, Model], Play]) -> None:
    world = World(tmp_path, "world")

    def run() -> None:
        play.run()
        mark()

    def mark() -> None:
        pass

    at = AtOpcode(strikes, lambda code: code.co_filename == __file__)
    kinds = set()
    for point in range(POINTS_MAX):
        play = build(world, world.model)
        attempt = at.run(run, point)
        if not at.is_sent:
            break
        try:
            judge(world, play, attempt, strikes)
        except Broken as error:
            kinds.add(error.args[0])
        world.db.rollback()
        world.model = world.model.ended(world.model.committed)
    assert kinds & {"half done", "left open"}
    world.close()
    world.remove()


def test_what_a_finalizer_forgets_is_noticed(strikes: Strikes, tmp_path: Path) -> None:
    world = World(tmp_path, "world")

    class Forgetful:
        def __del__(self) -> None:
            int("1")

    def work() -> None:
        Forgetful()

    at = AtOpcode(strikes, lambda code: code is Forgetful.__del__.__code__)
    attempt = at.run(work, 0)
    with pytest.raises(Broken, match="ignored"):
        judge(world, Play(work, [world.model]), attempt, strikes)
    world.close()
    world.remove()
