"""The operations that open and close databases, also after a crash."""

from __future__ import annotations

import shutil
from pathlib import Path
from random import Random
from typing import Any

import gmdb
from gmdb.database.engine import is_open_here
from tests.integrity import problems
from tests.interrupts.operations import add
from tests.interrupts.plays import Play
from tests.interrupts.striking import Attempt
from tests.interrupts.world import Broken, Model, World, differs, observe

OUTSIDER_EVERY, VERIFIED_EVERY = 8, 3


def check_side(world: World, path: Path, number: int) -> None:
    """A database that was opened or closed under fire: nobody has it open, and it can be opened."""
    if is_open_here(path):
        raise Broken("left open here", f"{path.name} is open, though nobody has a connection")
    if world.outsider is not None and number % OUTSIDER_EVERY == 0 and path.exists():
        kind = world.outsider("(db := gmdb.connect(path), type(db).__name__, db.close())[1]", path=str(path))
        if kind != "Connection":
            raise Broken("locked", f"another process got a {kind}: this one still has the database")
    left = {other.name for other in path.parent.iterdir()} - {path.name}
    if left:
        raise Broken("litter", f"beside the database there is {left}")


def finish_side(path: Path, number: int, expected: list[int] | None) -> None:
    with gmdb.connect(path) as db:
        if expected is None:
            db.execute("create table side (i int)")
        elif (rows := sorted(i for _, (i,) in db.heap("side").rows())) != expected:
            raise Broken("rows", f"{rows} instead of {expected}")
        db.execute("insert into side values (100)")
    remove_side(path, number)


def remove_side(path: Path, number: int) -> None:
    """Verify it, or some of them: that takes longest."""
    if number % VERIFIED_EVERY == 0 and (found := problems(path)):
        raise Broken("verify", "; ".join(found[:5]))
    shutil.rmtree(path.parent, ignore_errors=True)


def make_side(path: Path) -> list[int]:
    with gmdb.connect(path) as db:
        db.execute("create table side (i int)")
        for number in range(5):
            db.insert("side", (number,))
    return list(range(5))


def opening(world: World, model: Model, path: Path, number: int, expected: Any) -> Play:
    """``expected``: what is called to see whether all is there."""
    opened: list[Any] = []

    def settle(attempt: Attempt) -> None:
        del attempt
        for connection in opened:
            connection.close()
        check_side(world, path, number)
        expected()

    return Play(lambda: opened.append(gmdb.connect(path)), [model, model], (), settle=settle)


@add("connect to a new one", weight=0.1)
def connect_new(world: World, model: Model, _chance: Random) -> Play | None:
    number = world.new_key()
    path = world.place / f"side-{number}" / "db"
    path.parent.mkdir()
    return opening(world, model, path, number, lambda: finish_side(path, number, None))


@add("connect", weight=0.1)
def connect_closed(world: World, model: Model, _chance: Random) -> Play | None:
    number = world.new_key()
    path = world.place / f"side-{number}" / "db"
    rows = make_side(path)
    return opening(world, model, path, number, lambda: finish_side(path, number, rows))


@add("connect after a crash", weight=0.1, remote=False)
def connect_crashed(world: World, model: Model, _chance: Random) -> Play | None:
    """To what a crash would leave of the database as it is now, with a transaction open."""
    number = world.new_key()
    path = world.place / f"side-{number}" / "db"
    shutil.copytree(world.path, path)

    def look() -> None:
        with gmdb.connect(path) as db:
            difference = differs(observe(db, None), model.committed)
        if difference:
            raise Broken("recovery", difference)
        remove_side(path, number)

    return opening(world, model, path, number, look)


@add("close", weight=0.1)
def close_last(world: World, model: Model, chance: Random) -> Play | None:
    number = world.new_key()
    path = world.place / f"side-{number}" / "db"
    rows = make_side(path)
    side = gmdb.connect(path)
    if chance.random() < 0.5:
        side.insert("side", (50,))
        side.commit()
        rows.append(50)
    side.insert("side", (60,))  # which is never committed

    def settle(attempt: Attempt) -> None:
        del attempt
        side.close()
        check_side(world, path, number)
        finish_side(path, number, rows)

    return Play(side.close, [model, model], (), settle=settle)


@add("second connection", weight=0.7)
def connect_second(world: World, model: Model, _chance: Random) -> Play | None:
    opened: list[Any] = []
    count = world.connections()

    def run() -> None:
        opened.append(gmdb.connect(world.path))
        opened[0].execute("select count(*) from t")
        opened[0].close()

    def settle(attempt: Attempt) -> None:
        del attempt
        for connection in opened:
            connection.close()
        if world.connections() != count:
            raise Broken("left open here", f"{world.connections()} connections instead of {count}")

    if model.defined:
        return None
    return Play(run, [model, model], (), settle=settle)
