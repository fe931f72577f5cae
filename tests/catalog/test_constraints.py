"""Defaults, identities, keys and checks: kept, named, enforced as far as indexes and NOT NULL go."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb
from gmdb import Column, ColumnType, Constraint
from gmdb.database.connection import Connection
from gmdb.errors import NoSuchConstraint, NullNotAllowed, SchemaError, UniqueViolation
from gmdb.format.codec import RowCodec
from gmdb.tables.catalog.schema import SYS_COLUMNS_COLUMNS, SYS_COLUMNS_ID, SYS_CONSTRAINTS_ID, SYS_IDENTITIES_ID
from tests.sessions import Connect

BIGINT, INT = ColumnType("BIGINT"), ColumnType("INT")
COLUMNS = [
    Column("id", BIGINT, False, identity="by default"),
    Column("a", INT, default="1 + 1"),
    ("b", "VARCHAR(20)"),
]
CONSTRAINTS = [
    Constraint("primary key", ("id",)),
    Constraint("unique", ("a", "b")),
    Constraint("unique", ("b",), name="only_b"),
    Constraint("check", ("a",), "a > 0"),
    Constraint("check", (), "a < 100"),
    Constraint("check", (), "b <> ''"),
]


def make(db: Connection) -> None:
    db.create_table("t", COLUMNS, constraints=CONSTRAINTS)


def test_a_definition_is_kept_with_all_that_belongs_to_it(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        made = db.table("t")
    assert [c.name for c in made.constraints] == ["t_pkey", "t_a_b_key", "only_b", "t_a_check", "t_check", "t_check1"]
    assert made.primary_key == ("id",)
    with gmdb.connect(path) as db:
        found = db.table("t")
        assert (found.columns, found.constraints) == (made.columns, made.constraints)
        assert found.column("a").default == "1 + 1"
        assert [(i.name, i.unique) for i in found.indexes] == [("t_pkey", True), ("t_a_b_key", True), ("only_b", True)]
        kinds = {row["name"]: row["kind"] for row in db.arrow("sys_constraints").read_all().to_pylist()}
        assert kinds["t_pkey"] == "primary key"
        assert kinds["t_check1"] == "check"


def test_keys_are_enforced(db: Connection) -> None:
    make(db)
    db.insert("t", (1, 1, "x"))
    with pytest.raises(UniqueViolation, match="t_pkey"):
        db.insert("t", (1, 2, "y"))
    with pytest.raises(UniqueViolation, match="only_b"):
        db.insert("t", (2, 2, "x"))
    with pytest.raises(NullNotAllowed, match="id"):
        db.insert("t", (None, 2, "y"))
    db.insert("t", (2, None, None))
    db.insert("t", (3, None, None))


def test_a_key_of_a_table_with_rows_needs_rows_that_fulfil_it(db: Connection) -> None:
    db.create_table("t", {"i": "INT", "s": "INT"})
    for row in ((1, 1), (2, 1), (3, None)):
        db.insert("t", row)
    with pytest.raises(UniqueViolation):
        db.add_constraint("t", Constraint("unique", ("s",)))
    with pytest.raises(NullNotAllowed, match="has no value"):
        db.add_constraint("t", Constraint("primary key", ("s",)))
    db.add_constraint("t", Constraint("primary key", ("i",)))
    assert not db.table("t").column("i").nullable
    with pytest.raises(SchemaError, match="primary key"):
        db.alter_column("t", "i", nullable=True)
    with pytest.raises(SchemaError, match="it has one already"):
        db.add_constraint("t", Constraint("primary key", ("s",)))


def test_a_renamed_column_is_renamed_in_its_constraints(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        db.rename_column("t", "a", "amount", checks={"t_a_check": "amount > 0"})
        db.rename_table("t", "u")
    with gmdb.connect(path) as db:
        table = db.table("u")
        assert table.constraint("t_a_b_key").columns == ("amount", "b")
        assert table.constraint("t_a_check") == Constraint("check", ("amount",), "amount > 0", "t_a_check")
        assert table.constraint("t_check").text == "a < 100"
        with pytest.raises(NoSuchConstraint, match="its constraints are: t_pkey"):
            table.constraint("nope")


def test_a_column_can_be_altered(db: Connection) -> None:
    make(db)
    db.alter_column("t", "a", default=None, nullable=False)
    db.alter_column("t", "b", default="'x'")
    column = db.table("t").column("a")
    assert (column.default, column.nullable, db.table("t").column("b").default) == (None, False, "'x'")
    with pytest.raises(SchemaError, match="column a INT cannot be BIGINT without new rows"):
        db.alter_column("t", "a", type="BIGINT")
    with pytest.raises(SchemaError, match="comment cannot be changed"):
        db.alter_column("t", "a", comment="what it is")
    db.alter_column("t", "b", type="VARCHAR(30)")
    assert db.table("t").column("b").type == ColumnType("VARCHAR", 30)
    db.insert("t", (1, 1, None))
    with pytest.raises(NullNotAllowed):
        db.alter_column("t", "b", nullable=False)


@pytest.mark.parametrize(
    ("column", "said"),
    [
        (Column("c", INT, True, identity="always"), "an identity column is SMALLINT, INT or BIGINT, NOT NULL"),
        (Column("c", ColumnType("DOUBLE"), False, identity="always"), "an identity column is SMALLINT"),
        (Column("c", INT, False, "1", "always"), "has no default"),
        (Column("c", INT, False, identity="sometimes"), "is not one of always, by default"),
        (Column("c", INT, default="x" * 3000), "an expression has 1 to"),
        (Column("c", ColumnType("VARCHAR", 90_000_000)), "needs a length"),
    ],
)
def test_a_column_that_cannot_be_is_refused(db: Connection, column: Column, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        db.create_table("t", [column])


@pytest.mark.parametrize(
    ("constraint", "said"),
    [
        (Constraint("exclude", ("i",)), "not a kind of constraint"),
        (Constraint("unique"), "is about columns"),
        (Constraint("unique", ("i", "i")), "named twice"),
        (Constraint("unique", ("z",)), "has no column z"),
        (Constraint("check"), "an expression has 1 to"),
    ],
)
def test_a_constraint_that_cannot_be_is_refused(db: Connection, constraint: Constraint, said: str) -> None:
    with pytest.raises(SchemaError, match=said):
        db.create_table("t", {"i": "INT"}, constraints=[constraint])
    assert db.tables() == []


# ---- identities


def test_numbers_go_on_whatever_becomes_of_transactions(db: Connection, connect: Connect) -> None:
    make(db)
    assert db.next_identity("t", "id") == 1
    db.savepoint("s")
    assert db.next_identity("t", "id", 2000) == 2
    db.rollback_to("s")
    assert db.next_identity("t", "id") == 2002
    db.commit()
    other = connect()
    assert other.next_identity("t", "id", 3) == 2003
    other.rollback()
    other.truncate_table("t")
    assert other.next_identity("t", "id") == 2006
    other.rollback()
    assert db.next_identity("t", "id") == 2007
    db.truncate_table("t", restart_identity=True)
    assert db.next_identity("t", "id") == 1
    with pytest.raises(SchemaError, match="not an identity column"):
        db.next_identity("t", "a")


def test_rows_that_are_there_get_numbers_of_an_identity_that_is_added(db: Connection) -> None:
    db.create_table("t", {"i": "INT"})
    for n in range(5):
        db.insert("t", (n,))
    db.add_column("t", Column("id", BIGINT, False, identity="always"))
    assert sorted(row[1] for _, row in db.heap("t").rows()) == [1, 2, 3, 4, 5]
    assert db.next_identity("t", "id") == 6


def test_a_database_that_was_closed_leaves_no_numbers_out(path: Path) -> None:
    with gmdb.connect(path) as db:
        make(db)
        db.next_identity("t", "id", 10)
    with gmdb.connect(path) as db:
        assert db.next_identity("t", "id") == 11
        db.drop_table("t")
    with gmdb.connect(path) as db:
        assert db.arrow("sys_identities").read_all().num_rows == 0


def test_no_number_comes_twice_after_a_crash(path: Path) -> None:
    program = f"""
import gmdb, os, signal
db = gmdb.connect({str(path)!r})
db.create_table("t", [gmdb.Column("id", gmdb.ColumnType("BIGINT"), False, identity="always")])
db.commit()
print(max(db.next_identity("t", "id", 7) for _ in range(300)) + 6, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=os.environ, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    last = int(done.stdout)
    with gmdb.connect(path) as db:
        assert last < db.next_identity("t", "id") <= last + 1001


# ---- databases of before


def test_a_database_from_before_there_were_constraints_gets_them(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("old", {"i": "INT NOT NULL"})
        db.commit()
        columns = db.heap("sys_columns")
        shorter = RowCodec(SYS_COLUMNS_COLUMNS[:7]).encode
        for row_id, values in list(columns.rows()):
            columns.delete(row_id)
            columns.encode = shorter
            is_new = values[0] in (SYS_CONSTRAINTS_ID, SYS_IDENTITIES_ID) or (
                values[0] == SYS_COLUMNS_ID and values[1] > 6
            )
            if not is_new:
                columns.insert(values[:7])
        tables = db.heap("sys_tables")
        for row_id, values in list(tables.rows()):
            if values[0] in (SYS_CONSTRAINTS_ID, SYS_IDENTITIES_ID):
                tables.delete(row_id)
                segment = db.heap(values[1]).segment
                db.session.drop_segment(values[0], segment)
    with gmdb.connect(path, read_only=True) as db:
        assert db.table("old").columns == (Column("i", INT, False),)
        assert db.system_view("sys_constraints").num_rows == 0
    for n in range(2):
        with gmdb.connect(path) as db:
            names = [column.name for column in db.table("sys_columns").columns]
            assert names[-4:] == ["default_text", "identity", "identity_id", "options"]
            db.create_table(f"t{n}", COLUMNS, constraints=[Constraint("primary key", ("id",))])
            assert db.next_identity(f"t{n}", "id") == 1
    with gmdb.connect(path) as db:
        assert db.table("t0").primary_key == ("id",)
