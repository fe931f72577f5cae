"""Names and values that look like code are names and values, wherever gmdb writes statements itself."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from pyarrow import csv

import gmdb
import gmdb.sqlalchemy
from gmdb.cli import gmstat, main
from gmdb.database.connection import Connection
from gmdb.errors import Error, InvalidSyntax
from gmdb.sql.filtering import RowFilter
from gmdb.tables.catalog.schema import Constraint
from sqlalchemy import Column, Integer, MetaData, String, Table, create_engine, inspect, select

NAMES = [
    'a"b',
    "a'b",
    'x"; drop table safe; --',
    "x'; drop table safe; --",
    "x`; drop table safe; --",
    "new\nline",
    "back\\slash",
    'back\\"',
    "per%cent %s %(x)s",
    "{0} {name}",
    "$1 :name ?",
    "/* */ -- #",
    "select",
    "Ünï ☃",
    "a b.c",
    "[x]",
    "..",
    "'",
    '"',
    "\t",
]


def quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Connection]:
    with gmdb.connect(tmp_path / "shop.gmdb") as made:
        made.execute("create table safe (i int)")
        made.execute("insert into safe values (1)")
        made.commit()
        yield made
        made.rollback()
        assert made.execute("select * from safe").fetchall() == [(1,)]


@pytest.mark.parametrize("name", NAMES)
def test_sql_takes_any_name_in_quotes(db: Connection, name: str) -> None:
    q = quoted(name)
    index, check, feed = quoted(name[:50] + "_i"), quoted(name[:50] + "_c"), name[:50]
    db.execute(f"create table {q} ({q} int not null, other varchar(200), constraint {check} check ({q} > 0))")
    db.execute(f"create unique index {index} on {q} ({q})")
    db.set_change_feed(name, True)
    db.commit()
    db.execute(f"insert into {q} ({q}, other) values (?, ?)", (1, name))
    db.execute(f"insert into {q} values (2, '{name.replace(chr(39), chr(39) * 2)}')")
    db.commit()
    assert db.execute(f"select {q}, other from {q} where {q} = 1").fetchall() == [(1, name)]
    assert db.execute(f"select a.{q}, count(*) from {q} a join {q} b on a.other = b.other group by a.{q}").fetchall()
    assert db.execute(f"select {q} as {q} from {q} where other = ? order by {q} desc", (name,)).fetchall() == [
        (2,),
        (1,),
    ]
    assert db.execute(f"select max({q}) from {q}").description[0][0] == "max"
    db.execute(f"update {q} set {q} = {q} + 10 where other = ?", (name,))
    db.execute(f"analyze {q}")
    with pytest.raises(Error):
        db.execute(f"insert into {q} values (-1, 'breaks the check')")
    db.commit()
    assert [change.table for change in db.changes(tables=[name], reader=None)] == [] or feed
    assert RowFilter(db.table(name), [name, "other"], f"{q} > 11").keys() is not None
    db.execute(f"alter table {q} add column {quoted(name[:50] + '_more')} int")
    db.execute(f"delete from {q} where {q} > 11")
    db.execute(f"drop index {index}")
    db.execute(f"drop table {q}")
    db.commit()
    assert db.tables() == ["safe"]


@pytest.mark.parametrize("name", NAMES)
def test_python_takes_any_name(db: Connection, name: str) -> None:
    db.create_table(name, {name: "INT", "s": "VARCHAR(100)"})
    db.create_index(f"{name}_i", name, [name])
    db.add_constraint(name, Constraint("unique", ("s",), "", f"{name}_u"))
    db.insert(name, (1, name))
    db.commit()
    assert db.arrow(name, [name]).read_all().to_pylist() == [{name: 1}]
    assert db.execute(f"select * from gm_rows('{name.replace(chr(39), chr(39) * 2)}')").fetchall()
    assert name in {row["name"] for row in db.system_view("sys_tables").to_pylist()}
    db.rename_table(name, "renamed")
    db.rename_column("renamed", name, "plain")
    db.commit()
    assert db.execute("select plain, s from renamed").fetchall() == [(1, name)]


CONDITIONS = [
    "1 = 1; drop table safe",
    "i = 1) or (1 = 1",
    "i = 1 union select 1",
    "i = 1 --\n; x",
    "i in (select i from safe)",
    "i = 1 limit 1",
    "true group by i",
    "",
]


@pytest.mark.parametrize("where", CONDITIONS)
def test_a_condition_is_a_condition_and_nothing_more(db: Connection, where: str) -> None:
    """What Spark's option ``where`` and others give."""
    with pytest.raises(InvalidSyntax):
        RowFilter(db.table("safe"), ["i"], where)


IN_FILES = [name.lower() for name in NAMES if name.strip() and "\n" not in name]  # what CSV's first line can say


@pytest.mark.parametrize("name", IN_FILES)
def test_files_to_import_may_have_any_names(tmp_path: Path, name: str) -> None:
    source, target = tmp_path / "source.sqlite", tmp_path / "imported.gmdb"
    connection = sqlite3.connect(source)
    connection.execute("create table safe (i integer)")
    connection.execute(f"create table {quoted(name)} ({quoted(name)} integer primary key, t text)")
    connection.execute(f"create index {quoted(name + 'i')} on {quoted(name)} (t)")
    connection.execute(f"insert into {quoted(name)} values (1, ?)", (name,))
    connection.commit()
    connection.close()
    assert main(["import", str(source), "--into", str(target)]) == 0
    file = tmp_path / "rows.csv"
    csv.write_csv(pa.table({name: [1, 2], "t": [name, "x"]}), file)
    assert main(["import", str(file), "--into", str(target), "--table", name + "2"]) == 0
    with gmdb.connect(target) as db:
        assert set(db.tables()) == {"safe", name, name + "2"}
        assert db.execute(f"select * from {quoted(name)}").fetchall() == [(1, name)]
        assert db.execute(f"select t from {quoted(name + '2')} where {quoted(name)} = 1").fetchall() == [(name,)]
    assert gmstat(["rows", str(target), name]) == 0


@pytest.mark.parametrize("name", NAMES)
def test_sqlalchemy_takes_any_name(tmp_path: Path, name: str) -> None:
    engine = create_engine(f"gmdb:///{tmp_path / 'shop.gmdb'}")
    metadata = MetaData()
    table = Table(name, metadata, Column(name, Integer, primary_key=True), Column("s", String(100), index=True))
    metadata.create_all(engine)
    with engine.begin() as connection:
        connection.execute(table.insert(), [{name: 1, "s": name}])
        found = connection.execute(select(table).where(table.c.s == name, table.c[name] == 1)).fetchall()
        assert [tuple(row) for row in found] == [(1, name)]
    assert inspect(engine).get_table_names() == [name]
    assert [column["name"] for column in inspect(engine).get_columns(name)] == [name, "s"]
    metadata.drop_all(engine)
    engine.dispose()
