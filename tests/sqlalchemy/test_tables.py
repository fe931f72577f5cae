"""Types, reflection and DataFrames."""

from __future__ import annotations

import enum
import uuid
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from typing import Any

import pytest
from sqlalchemy.dialects import postgresql

import sqlalchemy as sa
from gmdb.sqlalchemy.reflection import INTERVAL
from sqlalchemy import Column, Engine, Index, MetaData, Table, select


class Colour(enum.Enum):
    RED = "r"
    GRÜN = "g"


MOMENT = datetime(2024, 2, 29, 12, 30, 15, 123456)
VALUES: dict[str, tuple[Any, Any, Any]] = {  # type, what goes in, what the column is found to be
    "small": (sa.SmallInteger(), 7, sa.SMALLINT),
    "whole": (sa.Integer(), -(2**31), sa.INTEGER),
    "big": (sa.BigInteger(), 2**62, sa.BIGINT),
    "real": (sa.Float(), 0.1, sa.DOUBLE_PRECISION),
    "double": (sa.Double(), 1e300, sa.DOUBLE_PRECISION),
    "exact": (sa.Numeric(12, 3), Decimal("12.345"), sa.NUMERIC),
    "loose": (sa.Numeric(), Decimal("0.0000000001"), sa.NUMERIC),
    "truth": (sa.Boolean(), True, sa.BOOLEAN),
    "day": (sa.Date(), date(1066, 10, 14), sa.DATE),
    "moment": (sa.DateTime(), MOMENT, sa.TIMESTAMP),
    "zoned": (sa.DateTime(timezone=True), MOMENT.replace(tzinfo=UTC), sa.TIMESTAMP),
    "hour": (sa.Time(), time(23, 59, 59, 1), sa.TIME),
    "span": (sa.Interval(), timedelta(days=3, microseconds=1), INTERVAL),
    "name": (sa.String(20), "grüß Gott", sa.VARCHAR),
    "code": (sa.CHAR(3), "abc", sa.CHAR),
    "text": (sa.Text(), "x" * 4000, sa.TEXT),
    "free": (sa.String(), "y", sa.TEXT),
    "bytes": (sa.LargeBinary(), b"\0\xff", sa.LargeBinary),
    "few": (sa.VARBINARY(9), b"\1", sa.VARBINARY),
    "colour": (sa.Enum(Colour, create_constraint=True, name="colours"), Colour.GRÜN, sa.VARCHAR),
    "key": (sa.Uuid(), uuid.UUID(int=5), sa.UUID),
    "numbers": (sa.ARRAY(sa.Integer), [1, None, 2], postgresql.ARRAY),
    "words": (postgresql.ARRAY(sa.String(9)), ["", "a,b"], sa.ARRAY),
    "tree": (sa.JSON(), {"a": [1, None, "ü"]}, sa.JSON),
    "object": (sa.PickleType(), {"a": {1, 2}}, sa.LargeBinary),
}


@pytest.fixture
def table(engine: Engine) -> Table:
    made = Table(
        "t", MetaData(), Column("id", sa.Integer, primary_key=True), *(Column(n, v[0]) for n, v in VALUES.items())
    )
    made.create(engine)
    return made


def test_values_of_every_type_go_in_and_come_out(engine: Engine, table: Table) -> None:
    given = {name: value for name, (_, value, _) in VALUES.items()}
    with engine.begin() as connection:
        key = connection.execute(table.insert().values(given)).inserted_primary_key
        connection.execute(table.insert(), [dict.fromkeys(VALUES)])
    with engine.connect() as connection:
        first, second = connection.execute(select(table).order_by(table.c.id)).mappings().all()
        assert key == (1,)
        assert dict(first) == {"id": 1, **given}
        assert dict(second) == {"id": 2, **dict.fromkeys(VALUES)}
        for name, value in given.items():
            if name not in ("tree", "object"):
                assert connection.scalars(select(table.c.id).where(table.c[name] == value)).all() == [1], name


def test_columns_are_found_with_their_types(engine: Engine, table: Table) -> None:
    del table
    found = {column["name"]: column for column in sa.inspect(engine).get_columns("t")}
    assert [name for name, (_, _, kind) in VALUES.items() if not isinstance(found[name]["type"], kind)] == []
    assert (found["exact"]["type"].precision, found["exact"]["type"].scale) == (12, 3)
    assert found["id"]["identity"]["always"] is False
    (check,) = sa.inspect(engine).get_check_constraints("t")
    assert check["name"] == "colours"


def test_arrays_are_asked_as_postgresql_has_them(engine: Engine, table: Table) -> None:
    numbers, words = table.c.numbers, table.c.words
    with engine.begin() as connection:
        rows = [{"numbers": [1, 2, 3], "words": ["x", "y"]}, {"numbers": [], "words": ["y"]}]
        connection.execute(table.insert(), [*rows, {"numbers": None, "words": None}])

        def found(condition: Any) -> list[int]:
            return list(connection.scalars(select(table.c.id).where(condition).order_by(table.c.id)))

        assert found(sa.any_(numbers) == 2) == [1]
        assert found(sa.all_(numbers) > 0) == [1, 2]
        assert found(table.c.id == sa.any_(sa.literal([3, 1], sa.ARRAY(sa.Integer)))) == [1, 3]
        assert found(words.contains(["y"])) == [1, 2]
        assert found(words.overlap(["x", "z"])) == [1]
        assert found(words.contained_by(["y"])) == [2]
        assert found(numbers[1] == 1) == [1]
        shown = select(numbers[2:3], words.concat(["z"]), sa.func.cardinality(numbers)).where(table.c.id == 1)
        assert connection.execute(shown).one() == ([2, 3], ["x", "y", "z"], 3)
        assert connection.scalar(select(sa.func.array_agg(table.c.id))) == [1, 2, 3]
        of_words = sa.func.unnest(words).table_valued("word", with_ordinality="n").render_derived()
        listed = select(table.c.id, of_words.c.word, of_words.c.n).select_from(table.join(of_words, sa.true()))
        assert connection.execute(listed).all() == [(1, "x", 1), (1, "y", 2), (2, "y", 1)]
        assert connection.scalar(select(postgresql.array([1, 2]))) == [1, 2]
    wide = Table("wide", MetaData(), Column("a", postgresql.ARRAY(sa.Integer, dimensions=2)))
    with pytest.raises(sa.exc.CompileError, match="one dimension"):
        wide.create(engine)


def test_a_time_of_another_zone_is_kept_as_utc(engine: Engine, table: Table) -> None:
    elsewhere = MOMENT.replace(tzinfo=timezone(timedelta(hours=2)))
    with engine.begin() as connection:
        connection.execute(table.insert().values(zoned=elsewhere, hour=time(1, 2)))
        assert connection.scalar(select(table.c.zoned)) == elsewhere
        assert connection.scalars(select(table.c.id).where(table.c.hour < time(9))).all() == [1]


def test_an_index_is_found_as_it_was_made(engine: Engine) -> None:
    made = MetaData()
    table = Table("t", made, Column("a", sa.Integer), Column("b", sa.String(10)), Column("c", sa.Integer))
    Index("parted", table.c.a.desc(), table.c.b, gmdb_include=["c"], gmdb_where=table.c.c > 5)
    Index("texted", table.c.a, unique=True, gmdb_where="b = 'x'")
    made.create_all(engine)
    parted, texted = sa.inspect(engine).get_indexes("t")
    assert parted["column_sorting"] == {"a": ("desc",)}
    assert parted["dialect_options"] == {"gmdb_include": ["c"], "gmdb_where": "c > 5"}
    assert (texted["unique"], texted["dialect_options"]) == (True, {"gmdb_where": "b = 'x'"})
    found = MetaData()
    found.reflect(engine)
    made.drop_all(engine)
    found.create_all(engine)
    assert sa.inspect(engine).get_indexes("t") == [parted, texted]


def test_a_table_is_found_as_it_was_made(engine: Engine) -> None:
    made = MetaData()
    table = Table(
        "Order",
        made,
        Column("a", sa.Integer, primary_key=True, autoincrement=False),
        Column("b", sa.String(10), primary_key=True),
        Column("c", sa.Integer, server_default=sa.text("1 + 1"), nullable=False),
        Column("D", sa.Integer, sa.CheckConstraint('"D" > 0', name="positive")),
        sa.UniqueConstraint("c", "D", name="c_and_d"),
        gmdb_pctfree=20,
    )
    Index("by_d", table.c.D, gmdb_using="hash")
    Index("by_c", table.c.c, table.c.b, unique=True)
    made.create_all(engine)
    found = MetaData()
    found.reflect(engine)
    again = found.tables["Order"]
    assert [(c.name, str(c.type), c.nullable, c.primary_key) for c in again.columns] == [
        ("a", "INTEGER", False, True),
        ("b", "VARCHAR(10)", False, True),
        ("c", "INTEGER", False, False),
        ("D", "INTEGER", True, False),
    ]
    assert str(again.c.c.server_default.arg) == "1 + 1"  # type: ignore[union-attr]
    indexes = sorted((i.name, [c.name for c in i.columns], i.unique) for i in again.indexes)  # type: ignore[type-var]
    assert indexes == [("by_c", ["c", "b"], True), ("by_d", ["D"], False)]
    inspector = sa.inspect(engine)
    assert inspector.get_pk_constraint("Order") == {"name": "Order_pkey", "constrained_columns": ["a", "b"]}
    assert inspector.get_unique_constraints("Order") == [{"name": "c_and_d", "column_names": ["c", "D"]}]
    assert inspector.get_check_constraints("Order") == [{"name": "positive", "sqltext": '"D" > 0'}]
    assert inspector.get_indexes("Order")[1]["dialect_options"] == {"gmdb_using": "hash"}
    assert not inspector.has_table("order")
    assert not inspector.has_table("sys_tables")
    with pytest.raises(sa.exc.NoSuchTableError):
        inspector.get_columns("nowhere")
    made.drop_all(engine)
    assert sa.inspect(engine).get_table_names() == []


def test_definitions_are_rolled_back_with_their_transaction(engine: Engine) -> None:
    table = Table("t", MetaData(), Column("i", sa.Integer))
    with engine.connect() as connection:
        table.create(connection)
        assert sa.inspect(connection).has_table("t")
        connection.rollback()
        assert not sa.inspect(connection).has_table("t")


def test_tables_of_schemas_and_temporary_ones_are_found_where_they_are(engine: Engine) -> None:
    made = MetaData()
    Table("up", made, Column("id", sa.Integer, primary_key=True), schema="s")
    Table("down", made, Column("up_id", sa.ForeignKey("s.up.id")), Column("own", sa.ForeignKey("level.id")))
    Table("level", made, Column("id", sa.Integer, primary_key=True))
    Table(
        "inner", made, Column("up_id", sa.ForeignKey("s.up.id")), Column("out", sa.ForeignKey("level.id")), schema="s"
    )
    with engine.begin() as connection:
        connection.execute(sa.schema.CreateSchema("s"))
        made.create_all(connection)
        connection.execute(sa.text("create view s.seen as select * from s.up"))
    with engine.connect() as connection:
        passing = Table("level", MetaData(), Column("other", sa.Text), prefixes=["TEMPORARY"], gmdb_on_commit="DROP")
        passing.create(connection)
        inspector = sa.inspect(connection)
        assert (inspector.default_schema_name, inspector.get_schema_names()) == ("public", ["public", "s"])
        assert (inspector.get_table_names(), inspector.get_table_names("s")) == (["down", "level"], ["inner", "up"])
        assert (inspector.get_view_names(), inspector.get_view_names("s")) == ([], ["seen"])
        assert inspector.get_temp_table_names() == ["level"]
        assert [column["name"] for column in inspector.get_columns("level")] == ["other"]
        assert [column["name"] for column in inspector.get_columns("level", schema="public")] == ["id"]
        keys = {
            (table, schema, key["constrained_columns"][0]): (key["referred_schema"], key["referred_table"])
            for table, schema in (("down", None), ("down", "public"), ("inner", "s"))
            for key in inspector.get_foreign_keys(table, schema)
        }
        assert keys == {
            ("down", None, "up_id"): ("s", "up"), ("down", None, "own"): (None, "level"),
            ("down", "public", "up_id"): ("s", "up"), ("down", "public", "own"): ("public", "level"),
            ("inner", "s", "up_id"): ("s", "up"), ("inner", "s", "out"): (None, "level"),
        }  # fmt: skip
        connection.commit()
        assert sa.inspect(connection).get_temp_table_names() == []
        assert not inspector.has_table("down", schema="s")
