"""The operations on rows and transactions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from random import Random
from typing import Any

import pyarrow as pa

from gmdb.errors import LockTimeout, UniqueViolation
from tests.interrupts.plays import ANYTHING, OPERATIONS, Play
from tests.interrupts.world import (
    BASIC,
    BATCH_ROWS,
    BIG,
    EXTRA,
    LOBS,
    Model,
    TableState,
    World,
    batch_state,
    lob_of,
    plain,
)

ROWS_MAX = 30
add = OPERATIONS.add


def statement(model: Model, run: Callable[[], Any], after: Model, *tables: str, expected: Any = ANYTHING) -> Play:
    """One that belongs to the transaction, or is one."""
    opened = (False, False) if model.is_alone else ()
    return Play(run, [model, after], tables, opened, expected=expected, commits=model.is_alone)


def a_table(model: Model, chance: Random) -> str:
    return chance.choice([*BASIC, *(name for name in EXTRA if name in model.current)])


def a_row(table: TableState, key: int, chance: Random) -> tuple[Any, ...]:
    text = "x" * chance.choice((3, 30, 250))
    return (key, chance.randrange(7), text, *(None for _ in table.columns[3:]))


def a_key(world: World, model: Model, name: str, chance: Random) -> int | None:
    """One of a row that is committed, and that the session sees: its row id is known."""
    committed = world.model.committed.get(name)
    keys = [key for key in model.current[name].rows if committed is not None and key in committed.rows]
    return chance.choice(keys) if keys else None


def changed(table: TableState, key: int, v: int) -> tuple[Any, ...]:
    row = table.rows[key]
    return (row[0], v, *row[2:])


# ---- single rows


@add("heap insert", weight=4, is_statement=True)
def heap_insert(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    table = model.current[name]
    if len(table.rows) > 3 * ROWS_MAX:
        return None
    key = world.new_key()
    row = a_row(table, key, chance)
    return statement(model, lambda: world.db.heap(name).insert(row), model.with_rows(name, {key: row}), name)


@add("heap update", weight=4, is_statement=True)
def heap_update(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    key = a_key(world, model, name, chance)
    if key is None:
        return None
    row_id, table = world.row_id(name, key), model.current[name]
    if chance.random() < 0.5:
        row, change = changed(table, key, v := chance.randrange(7)), {"v": v}
    else:
        row = a_row(table, key, chance)
        change = dict(zip(table.columns, row, strict=True))
    after = model.with_rows(name, {key: row})
    return statement(model, lambda: world.db.heap(name).update(row_id, change), after, name)


@add("heap delete", weight=2, is_statement=True)
def heap_delete(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    key = a_key(world, model, name, chance)
    if key is None or len(model.current[name].rows) < 5:
        return None
    row_id = world.row_id(name, key)
    after = model.with_rows(name, {key: None})
    return statement(model, lambda: world.db.heap(name).delete(row_id), after, name)


@add("heap fetch", weight=2, is_statement=True)
def heap_fetch(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    key = a_key(world, model, name, chance)
    if key is None:
        return None
    row_id = world.row_id(name, key)
    row = model.current[name].rows[key]
    return statement(model, lambda: world.db.heap(name).fetch(row_id), model, name, expected=row)


@add("heap lock", is_statement=True)
def heap_lock(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    key = a_key(world, model, name, chance)
    if key is None:
        return None
    row_id = world.row_id(name, key)
    return statement(model, lambda: world.db.heap(name).lock(row_id), model, name)


@add("find by key", weight=2, is_statement=True)
def find_by_key(world: World, model: Model, chance: Random) -> Play | None:
    name = chance.choice(BASIC)
    rows = model.current[name].rows
    if not rows:
        return None
    key = chance.choice(list(rows))
    index = f"{name}_pkey"
    run = lambda: [values for _, values in world.db.heap(name).by(index).find((key,))]  # noqa: E731
    return statement(model, run, model, name, expected=[rows[key]])


# ---- SQL by key


@add("insert", weight=4, is_statement=True)
def sql_insert(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    table = model.current[name]
    if len(table.rows) > 3 * ROWS_MAX:
        return None
    key = world.new_key()
    row = a_row(table, key, chance)
    run = lambda: world.db.execute(f"insert into {name} (id, v, s) values (?, ?, ?)", row[:3]).rowcount  # noqa: E731
    return statement(model, run, model.with_rows(name, {key: row}), name, expected=1)


@add("update", weight=4, is_statement=True)
def sql_update(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    rows = model.current[name].rows
    if not rows:
        return None
    key, v = chance.choice(list(rows)), chance.randrange(7)
    after = model.with_rows(name, {key: changed(model.current[name], key, v)})
    run = lambda: world.db.execute(f"update {name} set v = ? where id = ?", (v, key)).rowcount  # noqa: E731
    return statement(model, run, after, name, expected=1)


@add("delete", weight=2, is_statement=True)
def sql_delete(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    rows = model.current[name].rows
    if len(rows) < 5:
        return None
    key = chance.choice(list(rows))
    run = lambda: world.db.execute(f"delete from {name} where id = ?", (key,)).rowcount  # noqa: E731
    return statement(model, run, model.with_rows(name, {key: None}), name, expected=1)


@add("select", weight=3, is_statement=True)
def sql_select(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    rows = model.current[name].rows
    if not rows:
        return None
    key = chance.choice(list(rows))
    run = lambda: world.db.execute(f"select id, v, s from {name} where id = ?", (key,)).fetchall()  # noqa: E731
    return statement(model, run, model, name, expected=[rows[key][:3]])


@add("fail", weight=2)
def fail(world: World, model: Model, chance: Random) -> Play | None:
    """A statement that violates a unique key, after it has changed something: a row of several."""
    name = chance.choice(BASIC)
    rows = model.current[name].rows
    if not rows:
        return None
    key = chance.choice(list(rows))
    if chance.random() < 0.3:
        run: Callable[[], Any] = lambda: world.db.heap(name).insert((key, 1, "twice"))  # noqa: E731
    else:
        sets = [(world.new_key(), 1, "a"), (world.new_key(), 2, "b"), (key, 3, "twice")]
        text = f"insert into {name} values " + ", ".join(["(?, ?, ?)"] * 3)
        run = lambda: world.db.execute(text, tuple(v for row in sets for v in row))  # noqa: E731
    play = statement(model, run, model, name)
    play.error = UniqueViolation
    return play


# ---- many rows


@add("scan")
def scan(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    expected = sorted(model.current[name].rows.values())
    run = lambda: sorted(values for _, values in world.db.heap(name).rows())  # noqa: E731
    return statement(model, run, model, name, expected=expected)


@add("scan arrow")
def scan_arrow(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    run = lambda: sorted(world.db.arrow(name, ["id"]).read_all()["id"].to_pylist())  # noqa: E731
    return statement(model, run, model, name, expected=sorted(model.current[name].rows))


@add("select range")
def select_range(world: World, model: Model, chance: Random) -> Play | None:
    name = chance.choice(BASIC)
    keys = sorted(model.current[name].rows)
    if not keys:
        return None
    low = chance.choice(keys)
    text = f"select id from {name} where id >= ? order by id"
    run = lambda: [key for (key,) in world.db.execute(text, (low,)).fetchall()]  # noqa: E731
    return statement(model, run, model, name, expected=[key for key in keys if key >= low])


@add("select for update")
def select_for_update(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    run = lambda: len(world.db.execute(f"select * from {name} where v >= 0 for update").fetchall())  # noqa: E731
    expected = sum(row[1] is not None for row in model.current[name].rows.values())
    return statement(model, run, model, name, expected=expected)


@add("aggregate in DuckDB", weight=2)
def aggregate(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    rows = model.current[name].rows
    text = f"select count(*) as a, count(distinct id) as b, max(id) as c from {name}"
    expected = (len(rows), len(rows), max(rows, default=None))
    how = chance.choice(("fetchone", "fetchall", "arrow"))

    def run() -> Any:
        cursor = world.db.execute(text)
        if how == "fetchone":
            return cursor.fetchone()
        return cursor.fetchall()[0] if how == "fetchall" else tuple(cursor.arrow().to_pylist()[0].values())

    return statement(model, run, model, name, expected=expected)


@add("join in DuckDB")
def join(world: World, model: Model, chance: Random) -> Play | None:
    text = "select a.id, b.id from t a join p b on a.v = b.v order by a.id, b.id"
    left, right = model.current["t"].rows.values(), model.current["p"].rows.values()
    expected = sorted((a[0], b[0]) for a in left for b in right if a[1] == b[1])
    count = chance.choice((0, 1, len(expected)))
    if count < len(expected):
        run: Callable[[], Any] = lambda: world.db.execute(text).fetchmany(count)  # noqa: E731
    else:
        run = lambda: world.db.execute(text).fetchall()  # noqa: E731
    return statement(model, run, model, "t", "p", expected=expected[:count])


@add("update many", weight=2)
def update_many(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    table, v = model.current[name], chance.randrange(7)
    after = model.with_rows(name, {key: changed(table, key, v) for key in table.rows})
    if chance.random() < 0.5:
        run: Callable[[], Any] = lambda: world.db.execute(f"update {name} set v = ?", (v,)).rowcount  # noqa: E731
    else:
        run = lambda: world.db.update(name, {"v": v})  # noqa: E731
    return statement(model, run, after, name, expected=len(table.rows))


@add("delete many")
def delete_many(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    table, v = model.current[name], chance.randrange(7)
    keys = [key for key, row in table.rows.items() if row[1] == v]
    if len(table.rows) < 2 * len(keys) + 4:
        return None
    run = lambda: world.db.execute(f"delete from {name} where v = ?", (v,)).rowcount  # noqa: E731
    return statement(model, run, model.with_rows(name, dict.fromkeys(keys)), name, expected=len(keys))


@add("executemany", weight=2)
def executemany(world: World, model: Model, chance: Random) -> Play | None:
    name = a_table(model, chance)
    table = model.current[name]
    if len(table.rows) > ROWS_MAX:
        keys = list(table.rows)[: len(table.rows) - 10]
        sets: list[tuple[Any, ...]] = [(key,) for key in keys]
        after = model.with_rows(name, dict.fromkeys(keys))
        text = f"delete from {name} where id = ?"
    else:
        rows = [a_row(table, world.new_key(), chance) for _ in range(chance.choice((2, 10, 40)))]
        sets, after = [row[:3] for row in rows], model.with_rows(name, {row[0]: row for row in rows})
        text = f"insert into {name} (id, v, s) values (?, ?, ?)"
    return statement(model, lambda: world.db.executemany(text, sets), after, name)


@add("append")
def append(world: World, model: Model, chance: Random) -> Play | None:
    """Some thousand rows, which get pages of their own; or away with them."""
    keys = list(model.current[BIG].rows)
    if len(keys) > 2 and chance.random() < 0.7:
        key = chance.choice(keys)
        run: Callable[[], Any] = lambda: world.db.execute(f"delete from {BIG} where id = ?", (key,)).rowcount  # noqa: E731
        return statement(model, run, model.with_rows(BIG, {key: None}), BIG, expected=BATCH_ROWS)
    key = world.new_key()
    columns = {"id": pa.array([key] * BATCH_ROWS, pa.int32()), "v": pa.array(range(BATCH_ROWS), pa.int32())}
    data = pa.table(columns)
    run = lambda: world.db.append(BIG, data)  # noqa: E731
    return statement(model, run, model.with_rows(BIG, {key: batch_state(key)}), BIG, expected=BATCH_ROWS)


# ---- large objects


@add("lob change", weight=2)
def lob_change(world: World, model: Model, chance: Random) -> Play | None:
    rows = model.current[LOBS].rows
    key = a_key(world, model, LOBS, chance)
    if len(rows) > 6 and key is not None:
        row_id = world.row_id(LOBS, key)
        if chance.random() < 0.5:
            run: Callable[[], Any] = lambda: world.db.heap(LOBS).delete(row_id)  # noqa: E731
            return statement(model, run, model.with_rows(LOBS, {key: None}), LOBS)
        value = lob_of(key, chance.randrange(100))
        run = lambda: world.db.heap(LOBS).update(row_id, {"b": value})  # noqa: E731
        return statement(model, run, model.with_rows(LOBS, {key: plain((key, value))}), LOBS)
    key = world.new_key()
    value = lob_of(key, 0)
    if chance.random() < 0.5:
        run = lambda: world.db.insert(LOBS, (key, value))  # noqa: E731
    else:
        run = lambda: world.db.execute(f"insert into {LOBS} values (?, ?)", (key, value))  # noqa: E731
    return statement(model, run, model.with_rows(LOBS, {key: plain((key, value))}), LOBS)


@add("lob read")
def lob_read(world: World, model: Model, chance: Random) -> Play | None:
    key = a_key(world, model, LOBS, chance)
    if key is None:
        return None
    row_id = world.row_id(LOBS, key)

    def run() -> tuple[Any, ...]:
        with world.db.open_lob(LOBS, "b", row_id) as file:
            return plain((key, file.read()))

    return statement(model, run, model, LOBS, expected=model.current[LOBS].rows[key])


# ---- transactions


def end(world: World, model: Model, run: Callable[[], None], after: Model) -> Play:
    was_open = world.db.in_transaction
    return Play(run, [model, after], None, (was_open, False), commits=True)


@add("commit", weight=4)
def commit(world: World, model: Model, _chance: Random) -> Play | None:
    return end(world, model, world.db.commit, model.ended(model.current))


@add("rollback", weight=2)
def rollback(world: World, model: Model, _chance: Random) -> Play | None:
    return end(world, model, world.db.rollback, model.ended(model.committed))


@add("begin")
def begin(world: World, model: Model, _chance: Random) -> Play | None:
    if not model.is_alone:
        return None
    return Play(world.db.begin, [model, replace(model, begun=True)], (), (False, True))


@add("savepoint", weight=4)
def savepoint(world: World, model: Model, _chance: Random) -> Play | None:
    """After an interrupt nobody can tell whether it is set; the model goes on without it."""
    if model.is_alone or len(model.savepoints) > 4:
        return None
    name = f"s{world.new_key()}"
    after = replace(model, savepoints=(*model.savepoints, (name, model.current)))
    models = [model, after]

    def settle(attempt: Any) -> None:
        if attempt.interrupted:
            models[1] = model

    return Play(lambda: world.db.savepoint(name), models, (), settle=settle)


@add("rollback to", weight=5)
def rollback_to(world: World, model: Model, chance: Random) -> Play | None:
    if not model.savepoints:
        return None
    at = chance.randrange(len(model.savepoints))
    name, state = model.savepoints[at]
    after = replace(model, current=state, savepoints=model.savepoints[: at + 1])
    return Play(lambda: world.db.rollback_to(name), [model, after], None)


@add("release savepoint")
def release(world: World, model: Model, chance: Random) -> Play | None:
    if not model.savepoints:
        return None
    at = chance.randrange(len(model.savepoints))
    after = replace(model, savepoints=model.savepoints[:at])
    return Play(lambda: world.db.release_savepoint(model.savepoints[at][0]), [model, after], ())


@add("set autocommit")
def set_autocommit(world: World, model: Model, _chance: Random) -> Play | None:
    """What is open is committed first."""
    on = not model.autocommit
    was_open = world.db.in_transaction
    committed = model.ended(model.current)
    models = [model, committed, replace(committed, autocommit=on)]

    def run() -> None:
        world.db.autocommit = on

    return Play(run, models, None, (was_open, False, False), commits=True)


@add("set isolation", weight=0.5)
def set_isolation(world: World, model: Model, _chance: Random) -> Play | None:
    if world.db.in_transaction:
        return None
    level = "repeatable read" if model.isolation == "read committed" else "read committed"
    models = [model, replace(model, isolation=level)]

    def run() -> None:
        world.db.isolation = level

    def settle(attempt: Any) -> None:
        if attempt.interrupted:
            models[:] = [replace(model, isolation=world.db.isolation)] * 2

    return Play(run, models, (), (False, False), settle=settle)


@add("wait for a row", weight=2)
def wait(world: World, model: Model, chance: Random) -> Play | None:
    """For one that another session has locked: the interrupt ends the wait, or the lock timeout does."""
    name = chance.choice(BASIC)
    key = a_key(world, model, name, chance)
    if key is None or model.defined or model.current != model.committed:
        return None
    world.db.rollback()  # else this session may have the row itself
    model = world.model = model.ended(model.committed)
    row_id = world.row_id(name, key)
    world.watch(lambda: world.watcher.heap(name).lock(row_id))

    def settle(attempt: Any) -> None:
        del attempt
        world.watch(world.watcher.rollback)

    run = lambda: world.db.execute(f"update {name} set v = ? where id = ?", (1, key))  # noqa: E731
    play = statement(model, run, model, name)
    play.error, play.settle = LockTimeout, settle
    return play
