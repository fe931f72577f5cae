"""What programs do with the ORM and with engines: sessions, identities, relationships, savepoints, isolation."""

from __future__ import annotations

import tomllib
import warnings
from importlib import import_module
from pathlib import Path

import pytest
from sqlalchemy.dialects import registry
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship, selectinload

import gmdb
from gmdb.errors import LockTimeout, LostWithOwner, UniqueViolation, WriteConflict
from gmdb.sqlalchemy import GmdbDialect, insert
from sqlalchemy import (
    CheckConstraint,
    Column,
    Engine,
    ForeignKey,
    Identity,
    Integer,
    MetaData,
    String,
    Table,
    create_engine,
    exc,
    func,
    select,
)  # fmt: skip
from sqlalchemy import inspect as sqlalchemy_inspect
from tests.server.peer import Peer


class Base(DeclarativeBase):
    pass


class User(Base):
    __tablename__ = "User"  # a name that must be quoted
    __table_args__ = (CheckConstraint("score >= 0", name="positive"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(String(30), unique=True)
    score: Mapped[int] = mapped_column(default=0)
    addresses: Mapped[list[Address]] = relationship(back_populates="user", cascade="all, delete-orphan")


class Address(Base):
    __tablename__ = "address"

    id: Mapped[int] = mapped_column(Integer, Identity(always=True), primary_key=True)
    email: Mapped[str | None]
    user_id: Mapped[int] = mapped_column(ForeignKey("User.id"))
    user: Mapped[User] = relationship(back_populates="addresses")


@pytest.fixture
def users(engine: Engine) -> Engine:
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add_all([User(name=f"u{n}", addresses=[Address(email=f"{n}@x"), Address()]) for n in range(3)])
        session.commit()
    return engine


def test_objects_get_their_identities_and_find_each_other(users: Engine) -> None:
    with Session(users) as session:
        found = session.scalars(select(User).options(selectinload(User.addresses)).order_by(User.id)).all()
        assert [(u.id, u.name, [a.email for a in u.addresses]) for u in found] == [
            (n + 1, f"u{n}", [f"{n}@x", None]) for n in range(3)
        ]
        counted = select(User.name, func.count(Address.email)).join(Address).group_by(User.name).order_by(User.name)
        assert session.execute(counted).all() == [("u0", 1), ("u1", 1), ("u2", 1)]
        found[0].score = 7
        found[0].addresses.pop()
        session.delete(found[2])
        session.commit()
        assert session.scalar(select(func.count()).select_from(Address)) == 3
        assert session.get(User, 1).score == 7  # type: ignore[union-attr]


def test_many_objects_are_flushed_in_the_order_in_which_they_were_added(users: Engine) -> None:
    with Session(users) as session:
        made = [User(name=f"many{n}") for n in range(450)]
        session.add_all(made)
        session.commit()
        assert [user.id for user in made] == list(range(4, 454))
        assert [session.get(User, 4 + n).name for n in (0, 199, 449)] == ["many0", "many199", "many449"]  # type: ignore[union-attr]


def test_a_savepoint_takes_back_what_came_after_it(users: Engine) -> None:
    with Session(users) as session:
        session.add(User(name="kept"))
        with pytest.raises(exc.IntegrityError) as raised, session.begin_nested():
            session.add(User(name="u0"))
        assert isinstance(raised.value.orig, UniqueViolation)
        with session.begin_nested() as point:
            session.add(User(name="gone"))
            session.flush()
            point.rollback()
        session.commit()
        names = session.scalars(select(User.name).where(User.id > 3)).all()
        assert names == ["kept"]


def test_a_check_is_kept(users: Engine) -> None:
    with Session(users) as session:
        session.add(User(name="bad", score=-1))
        with pytest.raises(exc.IntegrityError, match="positive"):
            session.flush()


def test_isolation_levels(users: Engine) -> None:
    table = User.__table__
    with (
        users.connect().execution_options(isolation_level="REPEATABLE READ") as steady,
        users.connect().execution_options(isolation_level="AUTOCOMMIT") as other,
    ):
        assert steady.get_isolation_level() == "REPEATABLE READ"
        assert steady.scalar(select(func.max(table.c.score))) == 0
        other.execute(table.update().values(score=9))
        assert steady.scalar(select(func.max(table.c.score))) == 0
        with pytest.raises(exc.OperationalError) as raised:
            steady.execute(table.update().values(score=1))
        assert isinstance(raised.value.orig, WriteConflict)
        steady.rollback()
        assert steady.scalar(select(func.max(table.c.score))) == 9
    with users.connect() as again:
        assert again.get_isolation_level() == "READ COMMITTED"


def test_rows_are_locked_for_update(users: Engine) -> None:
    impatient = create_engine(f"{users.url}?lock_timeout=0.1")
    with users.connect() as holder, impatient.connect() as waiter:
        holder.execute(select(User.__table__).where(User.id == 1).with_for_update())
        free = select(User.id).order_by(User.id).with_for_update(skip_locked=True)
        assert waiter.scalars(free).all() == [2, 3]
        with pytest.raises(exc.OperationalError) as raised:
            waiter.execute(User.__table__.update().where(User.id == 1).values(score=1))
        assert isinstance(raised.value.orig, LockTimeout)
    impatient.dispose()


def test_insert_on_conflict(users: Engine) -> None:
    with Session(users) as session:
        given = [{"id": 1, "name": "u0", "score": 5}, {"id": 9, "name": "new", "score": 6}]
        base = insert(User).values(given)
        session.execute(base.on_conflict_do_nothing())
        assert session.scalars(select(User.score).order_by(User.id)).all() == [0, 0, 0, 6]
        changed = base.on_conflict_do_update(
            index_elements=[User.id], set_={"score": User.score + base.excluded.score}, where=User.score < 6
        )
        assert session.scalars(changed.returning(User.id)).all() == [1]
        assert session.scalars(select(User.score).order_by(User.id)).all() == [5, 0, 0, 6]


def test_foreign_keys_are_kept_unless_they_are_to_be_left_out(path: Path) -> None:
    engine = create_engine(f"gmdb:///{path}")
    Base.metadata.create_all(engine)
    (key,) = sqlalchemy_inspect(engine).get_foreign_keys("address")
    assert (key["constrained_columns"], key["referred_table"], key["referred_columns"]) == (["user_id"], "User", ["id"])
    with Session(engine) as session:
        session.add(Address(user_id=77))
        with pytest.raises(exc.IntegrityError):
            session.commit()
    Base.metadata.drop_all(engine)
    engine.dispose()
    engine = create_engine(f"gmdb:///{path}?foreign_keys=left_out")
    Base.metadata.create_all(engine)
    assert sqlalchemy_inspect(engine).get_foreign_keys("address") == []
    Base.metadata.drop_all(engine)
    table = Table(
        "child", MetaData(), Column("id", Integer, primary_key=True),
        Column("up", ForeignKey("child.id", ondelete="SET NULL", onupdate="CASCADE", deferrable=True,
                                initially="DEFERRED", name="to_up")),
    )  # fmt: skip
    engine.dispose()
    engine = create_engine(f"gmdb:///{path}")
    table.create(engine)
    (key,) = sqlalchemy_inspect(engine).get_foreign_keys("child")
    expected = {"ondelete": "SET NULL", "onupdate": "CASCADE", "deferrable": True, "initially": "DEFERRED"}
    assert (key["name"], key.get("options")) == ("to_up", expected)
    engine.dispose()


def test_a_connection_that_was_closed_is_replaced(path: Path) -> None:
    engine = create_engine(f"gmdb:///{path}", pool_pre_ping=True)
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
    raw.close()  # type: ignore[union-attr]
    with engine.connect() as connection:
        assert connection.scalar(select(1)) == 1
        assert connection.connection.driver_connection is not raw
    engine.dispose()


def test_a_session_whose_owner_is_gone_goes_on_after_its_rollback(path: Path) -> None:
    owner = Peer("import os")
    owner("db = gmdb.connect(path)", path=path)
    engine = create_engine(f"gmdb:///{path}?foreign_keys=left_out")
    Base.metadata.create_all(engine)
    with Session(engine) as session:
        session.add(User(name="ann"))
        session.flush()
        owner.kill()
        session.add(User(name="bob"))
        with pytest.raises(exc.OperationalError) as raised:
            session.flush()
        assert isinstance(raised.value.orig, LostWithOwner)
        assert not raised.value.connection_invalidated
        session.rollback()
        session.add(User(name="cat"))
        session.commit()
        assert session.scalars(select(User.name)).all() == ["cat"]
    engine.dispose()
    owner.end()


@pytest.mark.parametrize(
    ("url", "said"), [("gmdb://", "names no database"), ("gmdb:///x?colour=red", "no option colour")]
)
def test_a_url_that_cannot_be_used_is_refused(url: str, said: str) -> None:
    with pytest.raises(gmdb.InterfaceError, match=said):
        create_engine(url).connect()


def test_the_entry_points_of_the_package_lead_to_the_dialect() -> None:
    project = tomllib.loads((Path(__file__).resolve().parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    points = project["project"]["entry-points"]["sqlalchemy.dialects"]
    assert set(points) == {"gmdb", "gmdb.gmdb", "gmdb.aio"}
    for name, target in points.items():
        module, _, attribute = target.partition(":")
        assert issubclass(getattr(import_module(module), attribute), GmdbDialect)
        assert registry.load(name) is getattr(import_module(module), attribute)


def test_what_gmdb_has_not_is_refused_when_a_statement_is_compiled() -> None:
    dialect = GmdbDialect()
    with pytest.raises(exc.CompileError, match="update only"):
        select(User.id).with_for_update(read=True).compile(dialect=dialect)
    assert str(select(User.id).with_for_update(of=User).compile(dialect=dialect)).endswith('FOR UPDATE OF "User"')
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert str(insert(User).values(name="x").on_conflict_do_nothing()).count("ON CONFLICT DO NOTHING") == 1
