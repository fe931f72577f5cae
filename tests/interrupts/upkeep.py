"""The operations that take care of a database: none of them changes what anybody sees."""

from __future__ import annotations

import shutil
from random import Random
from typing import Any

import gmdb
from gmdb.database.copies import restore
from gmdb.errors import NotABackup, RestoreError
from tests.interrupts.operations import add
from tests.interrupts.plays import Play
from tests.interrupts.striking import Attempt
from tests.interrupts.world import FED, Broken, Model, World, differs, observe

READER = "hunt"


def harmless(world: World, model: Model, run: Any, settle: Any = None) -> Play:
    """After it the database must take changes, as it did before."""

    def look(attempt: Attempt) -> None:
        if settle is not None:
            settle(attempt)
        if attempt.interrupted:
            world.tick()

    return Play(run, [model, model], (), settle=look)


@add("checkpoint")
def checkpoint(world: World, model: Model, _chance: Random) -> Play | None:
    return harmless(world, model, world.db.checkpoint)


@add("gc", weight=2)
def collect(world: World, model: Model, _chance: Random) -> Play | None:
    return harmless(world, model, world.db.gc)


@add("shrink")
def shrink(world: World, model: Model, _chance: Random) -> Play | None:
    return harmless(world, model, world.db.shrink)


@add("backup", weight=0.3)
def backup(world: World, model: Model, _chance: Random) -> Play | None:
    """What is there of it afterwards is a whole backup, or refused."""
    folder = world.place / f"backup-{world.new_key()}"
    target, again = folder / "backup", folder / "restored"

    def settle(attempt: Attempt) -> None:
        left = [path.name for path in folder.iterdir()] if folder.exists() else []
        if set(left) - {"backup"}:
            raise Broken("litter", f"an interrupted backup left {left}")
        if left:
            try:
                restore(target, again)
            except (NotABackup, RestoreError):
                if not attempt.interrupted:
                    raise
            else:
                with gmdb.connect(again) as db:
                    difference = differs(observe(db, None), model.committed)
                if difference:
                    raise Broken("backup", difference)
        elif not attempt.interrupted:
            raise Broken("backup", "it is not there")
        shutil.rmtree(folder, ignore_errors=True)

    return harmless(world, model, lambda: world.db.backup(target), settle)


@add("dump", weight=0.3)
def dump(world: World, model: Model, _chance: Random) -> Play | None:
    target = world.place / f"dump-{world.new_key()}"
    return harmless(world, model, lambda: world.db.dump(target), lambda _: shutil.rmtree(target, ignore_errors=True))


@add("tablespace", weight=0.5)
def tablespace(world: World, model: Model, chance: Random) -> Play | None:
    """Create one, or drop it; after an interrupt it is there or not, and either can be changed."""
    name = "extra"

    def is_there() -> bool:
        return name in world.db.inspect("spaces").column("name").to_pylist()

    there = is_there()
    run = (lambda: world.db.drop_tablespace(name)) if there else (lambda: world.db.create_tablespace(name))

    def settle(attempt: Attempt) -> None:
        if attempt.interrupted and chance.random() < 0.5:
            world.db.drop_tablespace(name) if is_there() else world.db.create_tablespace(name)

    return harmless(world, model, run, settle)


@add("pin", weight=1)
def pin(world: World, model: Model, _chance: Random) -> Play | None:
    """Take a snapshot for other processes and let it go."""
    names: list[str] = []

    def run() -> None:
        names.append(world.db.take_snapshot(lease=60.0).name)
        world.db.drop_snapshot(names[0])

    def settle(attempt: Attempt) -> None:
        if attempt.interrupted:
            for name in world.db.system_view("sys_snapshots").column("pinned").to_pylist():
                if name is not None:
                    world.db.drop_snapshot(name)

    return harmless(world, model, run, settle)


@add("change feed")
def read_feed(world: World, model: Model, _chance: Random) -> Play | None:
    """A copy of a table that is made of its changes; it is read again from where it stood if it was interrupted."""
    since, rows = world.feed

    def read(start: str | None, into: dict[int, Any]) -> str:
        with world.db.changes(since=start, tables=[FED], reader=READER, snapshot=start is None) as feed:
            for change in feed:
                assert change.row is not None
                key = change.row["id"]
                if change.operation == "delete":
                    del into[key]
                else:
                    into[key] = tuple(change.row.values())
            feed.acknowledge()
            position: str = feed.position
            return position

    copy = dict(rows)

    def settle(attempt: Attempt) -> None:
        fresh, position = copy, attempt.result
        if attempt.interrupted:
            fresh = dict(rows)
            position = read(since, fresh)
        if fresh != model.committed[FED].rows:
            raise Broken("feed", f"{len(fresh)} rows in the copy, {len(model.committed[FED].rows)} in the table")
        world.feed = position, fresh

    return harmless(world, model, lambda: read(since, copy), settle)
