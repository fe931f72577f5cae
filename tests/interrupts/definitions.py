"""The operations that change definitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

from tests.interrupts.operations import a_table, add, statement
from tests.interrupts.plays import Play
from tests.interrupts.world import EXTRA, Model, TableState, World

COLUMNS_MAX = 6
INDEXES_MAX = 4


def define(model: Model, run: Callable[[], Any], name: str, table: TableState | None, *others: str) -> Play:
    play = statement(model, run, model.with_table(name, table, defined=True), name, *others)
    if not model.is_alone:
        play.models[0] = replace(model, defined=True)  # the table is locked until the transaction ends
    return play


def an_extra(model: Model, chance: Random) -> str | None:
    there = [name for name in EXTRA if name in model.current]
    return chance.choice(there) if there else None


@add("create table", weight=1.5)
def create_table(world: World, model: Model, chance: Random) -> Play | None:
    missing = [name for name in EXTRA if name not in model.current]
    if not missing:
        return None
    name = chance.choice(missing)
    if chance.random() < 0.5:
        run: Callable[[], Any] = lambda: world.db.create_table(  # noqa: E731
            name, {"id": "INT", "v": "INT", "s": "VARCHAR(300)"}
        )
        return define(model, run, name, TableState())
    run = lambda: world.db.execute(f"create table {name} (id int primary key, v int, s varchar(300))")  # noqa: E731
    return define(model, run, name, TableState(indexes=frozenset([f"{name}_pkey"])))


@add("drop table")
def drop_table(world: World, model: Model, chance: Random) -> Play | None:
    name = an_extra(model, chance)
    if name is None:
        return None
    return define(model, lambda: world.db.drop_table(name), name, None)


@add("truncate")
def truncate(world: World, model: Model, chance: Random) -> Play | None:
    name = an_extra(model, chance)
    if name is None:
        return None
    run = lambda: world.db.execute(f"truncate table {name}")  # noqa: E731
    return define(model, run, name, replace(model.current[name], rows={}))


@add("add column")
def add_column(world: World, model: Model, chance: Random) -> Play | None:
    name = an_extra(model, chance)
    if name is None or len(model.current[name].columns) >= COLUMNS_MAX:
        return None
    table, column = model.current[name], f"c{world.new_key()}"
    value = chance.choice((None, 7))
    rows = {key: (*row, value) for key, row in table.rows.items()}
    run = lambda: world.db.add_column(name, (column, "INT"), value)  # noqa: E731
    return define(model, run, name, replace(table, columns=(*table.columns, column), rows=rows))


@add("rename column")
def rename_column(world: World, model: Model, chance: Random) -> Play | None:
    name = an_extra(model, chance)
    if name is None or len(model.current[name].columns) < 4:
        return None
    table, column = model.current[name], f"c{world.new_key()}"
    old = table.columns[-1]
    run = lambda: world.db.execute(f"alter table {name} rename column {old} to {column}")  # noqa: E731
    return define(model, run, name, replace(table, columns=(*table.columns[:-1], column)))


@add("create index", weight=1.5)
def create_index(world: World, model: Model, chance: Random) -> Play | None:
    """Of either kind; with autocommit it is built beside others."""
    name = a_table(model, chance)
    table = model.current[name]
    if len(table.indexes) >= INDEXES_MAX:
        return None
    index, using = f"i{world.new_key()}", chance.choice(("btree", "hash"))
    if chance.random() < 0.5:
        run: Callable[[], Any] = lambda: world.db.create_index(index, name, ["v"], using=using)  # noqa: E731
    else:
        run = lambda: world.db.execute(f"create index {index} on {name} using {using} (v)")  # noqa: E731
    return define(model, run, name, replace(table, indexes=table.indexes | {index}))


@add("drop index")
def drop_index(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    table = model.current[name]
    loose = sorted(index for index in table.indexes if index.startswith("i"))
    if not loose:
        return None
    index = chance.choice(loose)
    after = replace(table, indexes=table.indexes - {index})
    return define(model, lambda: world.db.drop_index(index), name, after)


@add("analyze", weight=0.5)
def analyze(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    return statement(model, lambda: world.db.execute(f"analyze {name}"), model, name)
