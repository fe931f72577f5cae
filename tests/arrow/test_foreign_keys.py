"""Foreign keys of tables that are loaded in bulk, overwritten, or changed by their primary keys."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import ForeignKeyViolation
from gmdb.tables.arrow.load_kinds import Operation
from tests.arrow.staged import stage, stage_changes

ROWS = 3000
PUT, DELETE = int(Operation.PUT), int(Operation.DELETE)


@pytest.fixture
def tables(db: Connection) -> Connection:
    """Parents 0 to 2999, a table whose rows refer to them, and one whose rows refer to each other."""
    db.execute("create table p (i int primary key)")
    db.execute("create table c (i int primary key, p int references p, s varchar(10))")
    db.execute("create table t (i int primary key, up int references t)")
    db.append("p", pa.table({"i": pa.array(range(ROWS), pa.int32())}))
    db.append("c", children(range(10)))
    db.commit()
    return db


def children(numbers: Any, more: int = 0) -> pa.Table:
    keys = [n + more for n in numbers]
    return pa.table({"i": pa.array(numbers, pa.int32()), "p": pa.array(keys, pa.int32()), "s": ["x"] * len(keys)})


def counts(db: Connection) -> list[Any]:
    return [db.execute(f"select count(*) from {name}").fetchone()[0] for name in ("p", "c", "t")]


def attach(db: Connection, load: Any) -> None:
    db._attach_load(load)
    db.commit()


def refused(db: Connection, load: Any, said: str) -> None:
    before = counts(db)
    with pytest.raises(ForeignKeyViolation, match=said):
        db._attach_load(load)
    assert counts(db) == before
    db.rollback()


def test_pages_that_tasks_have_made_refer_to_what_is_there(tables: Connection) -> None:
    attach(tables, stage(tables, "c", children(range(100, 2100)), children(range(2100, 2900))))
    refused(tables, stage(tables, "c", children(range(3000, 4000), -2000), children(range(4000, 5002), -2001)), "3000")
    assert counts(tables)[1] == 2810


def test_a_table_with_large_objects_comes_in_batches(tables: Connection) -> None:
    tables.execute("create table b (i int, p int references p, o blob)")
    rows = pa.table({"i": pa.array([1, 2], pa.int32()), "p": pa.array([1, 2], pa.int32()), "o": [b"x" * 9000, b""]})
    attach(tables, stage(tables, "b", rows))
    refused(tables, stage(tables, "b", rows.set_column(1, "p", pa.array([1, -2], pa.int32()))), r"\(-2\)")


def test_rows_of_one_load_refer_to_each_other(tables: Connection) -> None:
    rows = pa.table({"i": pa.array(range(ROWS), pa.int32()), "up": pa.array(range(ROWS)[::-1], pa.int32())})
    attach(tables, stage(tables, "t", rows.slice(0, 1500), rows.slice(1500)))
    tables.append("t", pa.table({"i": pa.array([7000, 7001], pa.int32()), "up": pa.array([7001, 7000], pa.int32())}))
    refused(tables, stage(tables, "t", rows.slice(0, 1500), overwrite=True), "constraint t_up_fkey")
    attach(tables, stage(tables, "t", rows, overwrite=True))


def test_a_table_is_overwritten_if_both_sides_hold(tables: Connection) -> None:
    refused(tables, stage(tables, "c", children(range(5), 2998), overwrite=True), "3000")
    attach(tables, stage(tables, "c", children(range(5)), overwrite=True))
    few = pa.table({"i": pa.array([1, 2, 3, 4], pa.int32())})
    refused(tables, stage(tables, "p", few, overwrite=True), r"table p has no row with \(i\) = \(0\)")
    attach(tables, stage(tables, "p", pa.concat_tables([few, few.slice(0, 1).set_column(
        0, "i", pa.array([0], pa.int32()))]), overwrite=True))  # fmt: skip
    assert counts(tables) == [5, 5, 0]


def changes(rows: list[tuple[int, int, int | None]], column: str) -> pa.Table:
    operation, key, other = map(list, zip(*rows, strict=True))
    return pa.table(
        {
            "i": pa.array(key, pa.int32()),
            column: pa.array(other, pa.int32()),
            "#operation": pa.array(operation, pa.int8()),
        }
    )


def test_changes_by_primary_key_are_checked_when_all_are_made(tables: Connection) -> None:
    tables.execute("insert into t values (1, 2), (2, 1)")
    tables.commit()
    both = changes([(DELETE, 1, None), (DELETE, 2, None), (PUT, 3, 4), (PUT, 4, 3)], "up")
    attach(tables, stage_changes(tables, "t", both))
    assert sorted(tables.execute("select * from t").fetchall()) == [(3, 4), (4, 3)]
    refused(tables, stage_changes(tables, "t", changes([(DELETE, 3, None)], "up")), r"refer to \(i\) = \(3\)")
    refused(tables, stage_changes(tables, "t", changes([(PUT, 3, 9)], "up")), r"\(9\)")
    refused(
        tables, stage_changes(tables, "p", pa.table({"i": [1], "#operation": pa.array([DELETE], pa.int8())})), "c_p"
    )


def test_many_keys_are_compared_with_a_table_that_is_not_much_larger(tables: Connection) -> None:
    many = 40_000
    tables.append("p", pa.table({"i": pa.array(range(ROWS, many), pa.int32())}))
    tables.append("c", children(range(100, many)))
    with pytest.raises(ForeignKeyViolation, match=str(many)):
        tables.append("c", children(range(many, 2 * many), 1 - many))
    tables.execute("alter table c add constraint again foreign key (p) references p")
    with pytest.raises(ForeignKeyViolation):
        tables.execute("delete from p where i > 5")
    tables.execute("delete from c where i > 5")
    tables.execute("delete from p where i > 5")
    assert counts(tables)[:2] == [6, 6]
