"""gmdb.aio: what tasks ask for, and what becomes of it when they are cancelled, or the connection is closed."""

from __future__ import annotations

import asyncio
import functools
import gc
import random
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb import aio
from gmdb.errors import InterfaceError, LostWithOwner, ReadOnlyTransaction, StatementInterrupted, UniqueViolation
from tests.searches import extent
from tests.server.peer import PATIENCE, SOON, Peer

LONG = "select count(*) from generate_series(1, 60000) a, generate_series(1, 60000) b where a * b % 7 = 3"


@pytest.fixture(params=["local", "owner"])
def place(request: pytest.FixtureRequest, path: Path) -> Iterator[Path]:
    """A database with an account table, which this process has open or another one."""
    with gmdb.connect(path) as db:
        db.execute("create table account (id int primary key, bal int)")
        db.executemany("insert into account values (?, ?)", [(n, 100) for n in range(10)])
    if request.param == "local":
        keeper = gmdb.connect(path)
        yield path
        keeper.close()
    else:
        peer: Peer = request.getfixturevalue("peer")
        peer("own = gmdb.connect(path)", path=str(path))
        yield path
        peer("own.close()")


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @functools.wraps(test)
    def run(*arguments: Any, **options: Any) -> None:
        async def whole() -> None:
            async with asyncio.timeout(PATIENCE):
                await test(*arguments, **options)

        asyncio.run(whole())

    return run


def _threads() -> int:
    return sum(thread.name.startswith("gmdb-aio") for thread in threading.enumerate())


@in_loop
async def test_statements_rows_and_arrow(place: Path) -> None:
    async with aio.connect(place) as db:
        cursor = await db.execute("select id, bal from account where id < ? order by id", (5,))
        assert [name for name, *_ in cursor.description or []] == ["id", "bal"]
        assert await cursor.fetchone() == (0, 100)
        assert await cursor.fetchmany(2) == [(1, 100), (2, 100)]
        assert await cursor.fetchall() == [(3, 100), (4, 100)]
        assert await cursor.fetchone() is None
        changed = await db.executemany("update account set bal = ? where id = ?", [(1, 1), (2, 2)])
        assert changed.rowcount == 2
        table = await (await db.execute("select sum(bal) as s from account")).arrow()
        assert table.to_pydict() == {"s": [803]}
        assert (await db.arrow("account", ["id"])).num_rows == 10
        assert (
            await db.append("account", pa.table({"id": pa.array([77], pa.int32()), "bal": pa.array([7], pa.int32())}))
            == 1
        )
        await db.executescript("create table other (i int); insert into other values (1)")
        assert await db.run(lambda connection: connection.tables()) == ["account", "other"]
    async with aio.connect(place) as db, await db.execute("select bal from account where id = 77") as cursor:
        assert await cursor.fetchall() == [(7,)]


@in_loop
async def test_rows_are_iterated_and_fetched_in_turns(place: Path) -> None:
    async with aio.connect(place) as db:
        cursor = await db.execute("select i from generate_series(1, 5000) as g(i) order by i")
        rows = []
        async for (i,) in cursor:
            rows.append(i)
            if i == 3:
                break
        rows += [
            i for (i,) in [await cursor.fetchone() or (0,), *await cursor.fetchmany(30), *await cursor.fetchmany(2)]
        ]
        async for (i,) in cursor:
            rows.append(i)
            if i == 4000:
                break
        rows += [i for (i,) in await cursor.fetchall()]
        assert rows == list(range(1, 5001))
        for text in ("select id from account order by id", "select i from generate_series(0, 9) as g(i) order by i"):
            cursor = await db.execute(text)
            assert await cursor.fetchone() == (0,)
            assert (await cursor.arrow()).column(0).to_pylist() == list(range(1, 10))
            assert await cursor.fetchall() == []
            await cursor.execute(text)
            assert len(await cursor.df()) == 10
            await cursor.close()
            with pytest.raises(InterfaceError, match="closed"):
                await cursor.fetchall()
        with pytest.raises(gmdb.ProgrammingError, match="no rows"):
            await (await db.execute("delete from account")).fetchall()


@in_loop
async def test_transactions_commit_roll_back_and_nest(place: Path) -> None:
    async with aio.connect(place) as db, aio.connect(place) as other:

        async def balances() -> list[int]:
            rows = await (await other.execute("select bal from account where id < 3 order by id")).fetchall()
            await other.rollback()
            return [bal for (bal,) in rows]

        async def within(*statements: str, **options: Any) -> None:
            async with db.transaction(**options):
                for statement in statements:
                    await db.execute(statement)

        async with db.transaction(isolation="repeatable read"):
            await db.execute("update account set bal = 1 where id = 1")
            with pytest.raises(UniqueViolation):
                await within("update account set bal = 2 where id = 2", "insert into account values (1, 1)")
            async with db.transaction():
                await db.execute("update account set bal = 3 where id = 0")
            with pytest.raises(InterfaceError, match="savepoint"):
                await within(isolation="serializable")
            assert await balances() == [100, 100, 100]
        assert await balances() == [3, 1, 100]
        with pytest.raises(ReadOnlyTransaction):
            await within("delete from account", read_only=True)
        with pytest.raises(gmdb.ProgrammingError):
            await within("delete from account", "select nothing")
        assert await balances() == [3, 1, 100]
        assert not await db.in_transaction()


@asynccontextmanager
async def _holding(place: Path) -> AsyncIterator[None]:
    """Another session that has changed the account 1."""
    async with aio.connect(place) as holder:
        await holder.execute("update account set bal = 5 where id = 1")
        yield
        await holder.rollback()


@in_loop
async def test_a_cancelled_wait_ends_and_leaves_the_transaction_as_it_was(place: Path) -> None:
    async with _holding(place), aio.connect(place, lock_timeout=2 * PATIENCE) as db:
        await db.execute("update account set bal = 7 where id = 2")
        started = time.monotonic()
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(db.execute("update account set bal = bal + 1 where id <= 1"), 0.1)
        assert time.monotonic() - started < SOON
        rows = await (await db.execute("select id, bal from account where id < 3 order by id")).fetchall()
        assert rows == [(0, 100), (1, 100), (2, 7)]
        await db.commit()


@in_loop
async def test_a_cancelled_query_ends(place: Path) -> None:
    async with aio.connect(place) as db:
        for _ in range(3):
            started = time.monotonic()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(db.execute(LONG), 0.2)
            assert time.monotonic() - started < SOON
            assert await (await db.execute("select count(*) from account")).fetchall() == [(10,)]


@in_loop
async def test_what_waits_behind_a_statement_is_dropped_alone_when_its_task_is_cancelled(place: Path) -> None:
    async with _holding(place), aio.connect(place, lock_timeout=2 * PATIENCE) as db:
        first = asyncio.create_task(db.execute("update account set bal = 9 where id = 1"))
        await asyncio.sleep(0.1)
        second = asyncio.create_task(db.execute("delete from account"))
        await asyncio.sleep(0.1)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert not first.done()
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert await (await db.execute("select count(*) from account")).fetchone() == (10,)


@in_loop
async def test_a_cancelled_block_rolls_back_and_a_second_cancel_does_not_keep_it_from_that(place: Path) -> None:
    async with aio.connect(place) as db:
        entered = asyncio.Event()

        async def work() -> None:
            async with db.transaction():
                await db.execute("delete from account")
                entered.set()
                await asyncio.sleep(PATIENCE)

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await db.in_transaction()
        assert await (await db.execute("select count(*) from account")).fetchone() == (10,)


@in_loop
async def test_a_commit_that_was_asked_for_is_done(place: Path) -> None:
    async with aio.connect(place) as db:
        for n in range(20, 40):
            await db.execute("insert into account values (?, 0)", (n,))
            task = asyncio.create_task(db.commit())
            await asyncio.sleep(0)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            assert not await db.in_transaction()
        await db.rollback()
        assert await (await db.execute("select count(*) from account where id >= 20")).fetchone() == (20,)


@in_loop
async def test_interrupt_ends_the_statement_of_another_task(place: Path) -> None:
    async with _holding(place), aio.connect(place, lock_timeout=2 * PATIENCE) as db:
        task = asyncio.create_task(db.execute("update account set bal = 9 where id = 1"))
        while not task.done():
            await asyncio.sleep(0.05)
            db.interrupt()
        with pytest.raises(StatementInterrupted):
            await task


@in_loop
async def test_closing_ends_what_other_tasks_do(place: Path) -> None:
    async with _holding(place):
        db = await aio.connect(place, lock_timeout=2 * PATIENCE)
        tasks = [asyncio.create_task(db.execute(f"update account set bal = {n} where id = 1")) for n in range(3)]
        await asyncio.sleep(0.1)
        await db.close()
        await db.close()
        for result in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(result, InterfaceError)
            assert "closed" in str(result)
        assert db.closed
        with pytest.raises(InterfaceError, match="closed"):
            await db.execute("select 1")


@in_loop
async def test_a_task_that_is_cancelled_while_it_connects_or_closes_leaves_nothing_open(place: Path) -> None:
    for delay in (0, 0.001, 0.01, 0.05):
        with suppress(TimeoutError):
            async with asyncio.timeout(delay):
                db = await aio.connect(place)
                await db.execute("update account set bal = 0 where id = 1")
                await db.close()
                await asyncio.sleep(PATIENCE)
        db = None  # type: ignore[assignment]
        gc.collect()
    async with aio.connect(place, lock_timeout=SOON) as db:
        await db.execute("update account set bal = 1 where id = 1")


def test_threads_go_with_their_connections_also_without_a_close(place: Path) -> None:
    async def leave() -> None:
        dropped = await aio.connect(place)
        await dropped.execute("update account set bal = 0 where id = 1")
        async with aio.connect(place) as closed:
            await closed.execute("select 1")

    before = _threads()
    asyncio.run(leave())
    gc.collect()
    with gmdb.connect(place, lock_timeout=SOON) as db:
        db.execute("update account set bal = 1 where id = 1")
    ends = time.monotonic() + SOON
    while _threads() > before and time.monotonic() < ends:
        time.sleep(0.01)
    assert _threads() == before


def test_a_task_whose_owner_dies_goes_on_after_a_rollback(path: Path, start_peer: Callable[[], Peer]) -> None:
    async def work() -> None:
        owner = start_peer()
        owner("db = gmdb.connect(path); db.execute('create table t (i int)'); db.commit()", path=str(path))
        async with aio.connect(path) as db:

            async def change() -> None:
                async with db.transaction():  # which rolls back
                    await db.execute("insert into t values (1)")
                    owner.kill()
                    await db.execute("insert into t values (2)")

            with pytest.raises(LostWithOwner):
                await change()
            await db.execute("insert into t values (3)")
        async with aio.connect(path) as db:
            assert await (await db.execute("select i from t")).fetchall() == [(3,)]

    asyncio.run(work())


@pytest.mark.search
def test_money_stays_whatever_is_cancelled_when(place: Path) -> None:
    """Transfers whose tasks are cancelled at any time: each has happened whole or not at all."""

    async def transfer(db: aio.AsyncConnection, chance: random.Random) -> None:
        one, other = chance.sample(range(10), 2)
        async with db.transaction():
            await db.execute("update account set bal = bal - 1 where id = ?", (one,))
            await (await db.execute("select sum(bal) from account")).fetchall()
            await db.execute("update account set bal = bal + 1 where id = ?", (other,))

    async def clerk(seed: int, rounds: int) -> None:
        chance = random.Random(seed)
        async with aio.connect(place, lock_timeout=PATIENCE) as db:
            for _ in range(rounds):
                with suppress(TimeoutError, gmdb.errors.Transient):
                    async with asyncio.timeout(chance.choice([0, 0.001, 0.003, 0.01, PATIENCE])):
                        await transfer(db, chance)
                assert not await db.in_transaction()

    async def whole() -> None:
        async with asyncio.TaskGroup() as group:
            for seed in range(4):
                group.create_task(clerk(seed, extent(15, 400)))

    asyncio.run(whole())
    with gmdb.connect(place) as db:
        assert db.execute("select sum(bal), count(*) from account").fetchone() == (1000, 10)
