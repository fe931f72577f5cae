"""Alembic: the life of a program's tables, up and down and up again, with rows in them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent
from typing import Any

import alembic
import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.operations import Operations

import sqlalchemy as sa
from sqlalchemy import Connection, Engine, create_engine
from tests.sqlalchemy.shop import STEPS, metadata

ENVIRONMENT = """
    from alembic import context
    from tests.sqlalchemy.shop import metadata

    options = dict(target_metadata=metadata, compare_server_default=True, transaction_per_migration=True)
    connection = context.config.attributes.get("connection")
    if context.is_offline_mode():
        context.configure(dialect_name="gmdb", literal_binds=True, **options)
    else:
        context.configure(connection=connection, **options)
    with context.begin_transaction():
        context.run_migrations()
"""


class Migrations:
    """An Alembic environment over an engine."""

    def __init__(self, engine: Engine, folder: Path, steps: int = len(STEPS)) -> None:
        self.engine = engine
        self.config = Config(stdout=io.StringIO(), output_buffer=io.StringIO())
        self.config.set_main_option("script_location", str(folder))
        self.config.set_main_option("path_separator", "os")
        (folder / "versions").mkdir(parents=True)
        (folder / "env.py").write_text(dedent(ENVIRONMENT), encoding="utf-8")
        template = Path(alembic.__file__).with_name("templates") / "generic" / "script.py.mako"
        (folder / "script.py.mako").write_text(template.read_text(encoding="utf-8"), encoding="utf-8")
        for n in range(steps):
            before = repr(f"{n:02}") if n else None
            text = f"""
                from tests.sqlalchemy.shop import STEPS

                revision, down_revision = "{n + 1:02}", {before}
                upgrade, downgrade = STEPS[{n}]
            """
            (folder / "versions" / f"{n + 1:02}.py").write_text(dedent(text), encoding="utf-8")

    def __call__(self, name: str, *arguments: Any, **options: Any) -> Any:
        with self.engine.connect() as connection:
            self.config.attributes["connection"] = connection
            return getattr(command, name)(self.config, *arguments, **options)


@pytest.fixture
def migrations(engine: Engine, tmp_path: Path) -> Migrations:
    return Migrations(engine, tmp_path / "alembic")


def _content(engine: Engine) -> dict[str, list[str]]:
    """All rows of all tables, whatever the order of rows and columns."""
    with engine.connect() as connection:
        return {
            name: sorted(
                str(sorted(row.items()))
                for row in connection.execute(sa.text(f"select * from {name}")).mappings().all()
            )
            for name in sa.inspect(connection).get_table_names()
            if name != "alembic_version"
        }


def test_twelve_migrations_up_and_down_with_rows_and_nothing_is_left_to_do(migrations: Migrations) -> None:
    engine = migrations.engine
    contents = [_content(engine)]
    for _ in STEPS:
        migrations("upgrade", "+1")
        contents.append(_content(engine))
    migrations("check")
    assert {name: len(rows) for name, rows in contents[-1].items()} == {
        "article": 2, "customer": 40, "order_line": 40, "town": 3,
    }  # fmt: skip
    for before in reversed(contents[:-1]):
        migrations("downgrade", "-1")
        assert _content(engine) == before
    migrations("upgrade", "head")
    migrations("check")


def test_migrations_as_a_script_do_the_same(migrations: Migrations) -> None:
    migrations("upgrade", "head", sql=True)
    script = migrations.config.output_buffer.getvalue()
    assert script.count("COMMIT;") == len(STEPS)
    with migrations.engine.connect() as connection:
        connection.connection.driver_connection.executescript(script)  # type: ignore[union-attr]
    migrations("check")
    migrations("downgrade", "base")
    assert not _content(migrations.engine)


def test_a_migration_that_fails_leaves_nothing(migrations: Migrations) -> None:
    migrations("upgrade", "head")
    before = _content(migrations.engine)
    text = """
        from alembic import op

        revision, down_revision = "13", "12"

        def upgrade():
            op.drop_column("order_line", "amount")
            op.rename_table("customer", "somebody")
            op.execute("delete from article")
            op.execute("insert into town (name) values ('x'), ('x')")
    """
    path = Path(migrations.config.get_main_option("script_location") or "") / "versions" / "13.py"
    path.write_text(dedent(text), encoding="utf-8")
    with pytest.raises(sa.exc.IntegrityError):
        migrations("upgrade", "head")
    assert _content(migrations.engine) == before
    path.unlink()
    migrations("check")


def test_a_first_migration_that_alembic_writes_makes_all_tables(engine: Engine, tmp_path: Path) -> None:
    migrations = Migrations(engine, tmp_path / "alembic", steps=0)
    migrations("revision", "all", autogenerate=True)
    migrations("upgrade", "head")
    migrations("check")
    migrations("downgrade", "base")
    assert not _content(engine)


def test_a_copy_of_a_table_goes_on_counting_and_a_table_stays_in_its_schema(engine: Engine) -> None:
    with engine.begin() as connection:
        op = Operations(MigrationContext.configure(connection))
        op.execute("create schema s")
        counted = sa.Identity(start=7, increment=-3, maxvalue=7)
        op.create_table(
            "t", sa.Column("id", sa.Integer, counted, primary_key=True), sa.Column("n", sa.Integer), schema="s"
        )
        op.execute("insert into s.t (n) values (1), (2)")
        with op.batch_alter_table("t", schema="s", recreate="always") as batch:
            batch.alter_column("n", type_=sa.Text())
        op.rename_table("t", "u", schema="s")
        op.execute("insert into s.u (n) values ('x')")
        assert connection.execute(sa.text("select * from s.u order by id")).all() == [(1, "x"), (4, "2"), (7, "1")]


CHANGES = [
    ("alter table customer alter column credit set default 1", "modify_default"),
    ("alter table article alter column weight drop default", "modify_default"),
    ("alter table town alter column name type varchar(70)", "modify_type"),
    ("alter table order_line alter column amount drop not null", "modify_nullable"),
    ("comment on column customer.is_active is 'another'", "modify_comment"),
    ("comment on table customer is null", "add_table_comment"),
    (
        "drop index order_line_one_open; create unique index order_line_one_open on order_line (customer_id)",
        "add_index",
    ),
    (
        "drop index order_line_by_day; "
        "create index order_line_by_day on order_line (ordered desc nulls last, customer_id) include (amount)",
        "add_index",
    ),
    (
        "drop index order_line_by_day; create index order_line_by_day on order_line (ordered desc, customer_id)",
        "add_index",
    ),
    ("drop index order_line_state; create index order_line_state on order_line (state)", "add_index"),
    ("alter table town drop constraint town_name_key", "add_constraint"),
    ("alter table order_line drop constraint order_line_customer_id_fkey", "add_fk"),
    (
        "alter table customer drop constraint customer_town_id_fkey; "
        "alter table customer add constraint customer_town_id_fkey foreign key (town_id) references town",
        "add_fk",
    ),
    ("alter table article drop column note", "add_column"),
    ("alter table article add column more int", "remove_column"),
    ("create table more (i int)", "remove_table"),
]


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    engine = create_engine(f"gmdb:///{tmp_path_factory.mktemp('shop')}/shop.gmdb")
    metadata.create_all(engine)
    yield engine
    engine.dispose()


def _differences(connection: Connection, declared: sa.MetaData, **options: Any) -> list[Any]:
    context = MigrationContext.configure(connection, opts={"compare_server_default": True, **options})
    return list(compare_metadata(context, declared))


@pytest.mark.parametrize(("change", "expected"), CHANGES)
def test_what_differs_is_noticed(shop: Engine, change: str, expected: str) -> None:
    with shop.connect() as connection:
        for statement in change.split("; "):
            connection.execute(sa.text(statement))
        differences = [one[0][0] if isinstance(one, list) else one[0] for one in _differences(connection, metadata)]
        assert expected in differences
        assert len(differences) <= 2
        connection.rollback()
        assert _differences(connection, metadata) == []


@pytest.mark.parametrize(
    ("column", "default"),
    [
        (sa.Integer(), "7"), (sa.Integer(), sa.text("007")), (sa.String(9), "a'b"), (sa.String(9), "7"),
        (sa.Numeric(8, 2), "1.50"), (sa.Numeric(8, 2), sa.text("1.5")), (sa.Boolean(), sa.false()),
        (sa.DateTime(), sa.func.current_timestamp()), (sa.Date(), "2024-02-29"), (sa.Float(), sa.text("-1e3")),
        (sa.Integer(), sa.text("(3 + 4) * 2")), (sa.Text(), sa.text("'x' || 'y'")), (sa.BigInteger(), None),
    ],
)  # fmt: skip
def test_a_default_is_what_it_was_declared_to_be(shop: Engine, column: Any, default: Any) -> None:
    declared = sa.MetaData()
    sa.Table("with_default", declared, sa.Column("c", column, server_default=default))
    with shop.connect() as connection:
        declared.create_all(connection)
        assert (
            _differences(connection, declared, include_name=lambda name, *_: name in (None, "with_default", "c")) == []
        )
