"""SQLAlchemy's asyncio: engines and sessions over gmdb.aio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship, selectinload

import gmdb
from sqlalchemy import ForeignKey, exc, func, inspect, select, text
from tests.server.peer import PATIENCE


class Base(DeclarativeBase):
    pass


class Author(Base):
    __tablename__ = "author"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(unique=True)
    books: Mapped[list[Book]] = relationship(back_populates="author", cascade="all, delete-orphan")


class Book(Base):
    __tablename__ = "book"

    id: Mapped[int] = mapped_column(primary_key=True)
    title: Mapped[str]
    author_id: Mapped[int] = mapped_column(ForeignKey("author.id"))
    author: Mapped[Author] = relationship(back_populates="books")


@asynccontextmanager
async def _engine(path: Path, options: str = "") -> AsyncIterator[AsyncEngine]:
    engine = create_async_engine(f"gmdb+aio:///{path}{options}")
    try:
        async with asyncio.timeout(PATIENCE):
            yield engine
    finally:
        await engine.dispose()


def test_sessions_keep_objects_and_find_them(path: Path) -> None:
    async def work() -> None:
        async with _engine(path) as engine:
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)
            async with AsyncSession(engine) as session:
                session.add_all([Author(name=f"a{n}", books=[Book(title="x"), Book(title="y")]) for n in range(300)])
                await session.commit()
            async with AsyncSession(engine) as session:
                found = await session.scalars(select(Author).options(selectinload(Author.books)).order_by(Author.id))
                authors = found.all()
                assert [(author.id, len(author.books)) for author in authors] == [(n, 2) for n in range(1, 301)]
                await session.delete(authors[0])
                session.add(Author(name="a1"))
                with pytest.raises(exc.IntegrityError):
                    await session.flush()
                await session.rollback()
                rows = [row async for row in await session.stream(select(Book.id).order_by(Book.id))]
                assert [n for (n,) in rows] == list(range(1, 601))
            async with engine.connect() as connection:
                names = await connection.run_sync(lambda sync: inspect(sync).get_table_names())
                assert names == ["author", "book"]
                keys = await connection.run_sync(lambda sync: inspect(sync).get_foreign_keys("book"))
                assert keys[0]["referred_table"] == "author"
                await connection.execution_options(isolation_level="SERIALIZABLE")
                assert await connection.get_isolation_level() == "SERIALIZABLE"

    asyncio.run(work())


def test_many_tasks_have_a_connection_each(path: Path) -> None:
    async def work() -> None:
        async with _engine(path) as engine:
            async with engine.begin() as connection:
                await connection.run_sync(Base.metadata.create_all)

            async def write(n: int) -> None:
                async with AsyncSession(engine) as session, session.begin():
                    session.add(Author(name=f"t{n}"))

            await asyncio.gather(*(write(n) for n in range(40)))
            async with engine.connect() as connection:
                assert await connection.scalar(select(func.count()).select_from(Author)) == 40

    asyncio.run(work())


def test_a_task_that_is_cancelled_leaves_its_connection_to_others(path: Path) -> None:
    async def work() -> None:
        with gmdb.connect(path) as holder:
            holder.execute("create table t (i int primary key, n int)")
            holder.execute("insert into t values (1, 0)")
            holder.commit()
            holder.execute("update t set n = 1")
            async with _engine(path, f"?lock_timeout={2 * PATIENCE}") as engine:

                async def wait() -> None:
                    async with engine.begin() as connection:
                        await connection.execute(text("insert into t values (2, 2)"))
                        await connection.execute(text("update t set n = 2 where i = 1"))

                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(wait(), 0.2)
                holder.rollback()
                async with engine.begin() as connection:
                    await connection.execute(text("update t set n = n + 5"))
                    assert (await connection.execute(text("select i, n from t"))).all() == [(1, 5)]

    asyncio.run(work())
