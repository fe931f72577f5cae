"""A column whose values have no room in any row is refused when it is defined, whichever way that is."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import SchemaError
from gmdb.format.columns import Column, ColumnType
from gmdb.format.heap import row_size_max
from gmdb.format.page import PAGE_SIZES
from gmdb.tables.catalog.schema import check_column

HEAD = 12 + 2  # of a row of up to 16 columns, and the length of a value


@pytest.mark.parametrize("page_size", PAGE_SIZES)
@pytest.mark.parametrize("nullable", ["", " not null"])
def test_the_longest_column_that_fits_is_taken_and_its_value_too(db: Connection, page_size: int, nullable: str) -> None:
    db.create_tablespace("other", page_size=page_size)
    length = min(row_size_max(page_size) - HEAD, 32602)
    db.execute(f"create table t (b binary({length}){nullable}) tablespace other")
    db.execute("insert into t values (?)", (b"x" * length,))
    assert db.execute("select b from t").fetchone() == (b"x" * length,)
    if length < 32602:
        with pytest.raises(SchemaError, match=rf"column b BINARY\({length + 1}\) has at least"):
            db.execute(f"create table u (b binary({length + 1}){nullable}) tablespace other")


def test_columns_that_fit_only_alone(db: Connection) -> None:
    db.create_table("t", {"a": "BINARY(8000)", "b": "BINARY(8000)"})  # one of them at a time
    db.execute("insert into t values (?, null)", (b"a",))
    with pytest.raises(SchemaError, match="has at least 16016 bytes, and a page of 8192 takes"):
        db.create_table("u", {"a": "BINARY(8000) NOT NULL", "b": "BINARY(8000) NOT NULL"})
    with pytest.raises(SchemaError, match=r"column c BINARY\(32602\).*use a tablespace of 32768-byte pages"):
        db.execute("alter table t add column c binary(32602)")
    with pytest.raises(SchemaError, match="CHAR"):
        db.create_table("v", {f"c{n}": "CHAR(4000) NOT NULL" for n in range(3)})
    db.create_table("w", {"v": "VARBINARY(32602)", "s": "VARCHAR(4000)"})  # shorter values fit
    db.execute("insert into w values (?, 'x')", (b"v" * 3000,))


@pytest.mark.parametrize("change", ["alter column a set not null", "add constraint k primary key (a)"])
def test_a_column_that_must_have_a_value_leaves_room_for_the_others(db: Connection, change: str) -> None:
    """Also where no row is there yet that would be in the way."""
    db.create_table("t", {"a": "BINARY(4000)", "b": "BINARY(8000)"})
    with pytest.raises(SchemaError, match=r"column b BINARY\(8000\) has at least 12016 bytes"):
        db.execute(f"alter table t {change}")
    db.rollback()


@pytest.mark.parametrize("type_", [ColumnType("cLOB"), ColumnType("INTEGER"), ColumnType("varchar", 5)], ids=str)
def test_a_type_by_another_name_is_refused(type_: ColumnType) -> None:
    """Out of a damaged catalog it would be found out only with the first value."""
    with pytest.raises(SchemaError, match="is not a type's name as gmdb has it"):
        check_column("t", Column("b", type_))
