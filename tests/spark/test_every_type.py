"""Every type, its extremes among its values, goes every way into a table and out of one, and stays what it is."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

import gmdb
import sqlalchemy as sa
from gmdb.cli import main
from gmdb.database.connection import Connection
from gmdb.database.copies import restore
from gmdb.format.columns import parse_column
from tests.column_values import VALUES as TYPES
from tests.column_values import as_stored, is_key
from tests.server.peer import Peer

pytestmark = pytest.mark.spark
COUNT = 2 + max(map(len, TYPES.values()))  # the first row has NULLs, and so has the last
NAMES = [f"c{n}" for n in range(len(TYPES))]
SPAN = NAMES[list(TYPES).index("INTERVAL")]
ROWS = [(k, *(([None, *values] + [None] * COUNT)[k] for values in TYPES.values())) for k in range(COUNT)]
SHORT = [name for name, spelling in zip(NAMES, TYPES, strict=True) if spelling not in ("CLOB", "BLOB")]


@pytest.fixture
def made(db: Connection) -> Connection:
    """A database with a table that has every type and every value, and one that has every type."""
    for name in ("every", "other"):
        columns = ", ".join(f"{name} {spelling}" for name, spelling in zip(NAMES, TYPES, strict=True))
        db.execute(f"create table {name} (k int primary key, {columns})")
    marks = ", ".join("?" * (len(TYPES) + 1))
    db.executemany(f"insert into every values ({marks})", ROWS)
    db.commit()
    return db


def rows_of(connection: Any, table: str = "other") -> list[tuple[Any, ...]]:
    cursor = connection.cursor()
    cursor.read_document = str  # JSON as the text that it is
    return [tuple(row) for row in cursor.execute(f"select * from {table} order by k").fetchall()]


def by_literals(db: Connection) -> None:
    """As SQL writes them: what a cast to text gives is what a cast from text reads."""
    shown = ", ".join(f"cast({name} as text)" for name in NAMES)
    for k, *texts in db.execute(f"select k, {shown} from every").fetchall():
        values = [
            "null" if text is None else f"cast('{text.replace(chr(39), chr(39) * 2)}' as {spelling})"
            for text, spelling in zip(texts, TYPES, strict=True)
        ]
        db.execute(f"insert into other values ({k}, {', '.join(values)})")


def by_query(db: Connection) -> None:
    db.execute("insert into other select * from every")


def by_rows(db: Connection) -> None:
    for _, row in db.heap("every").rows():
        db.insert("other", row)


def by_updates(db: Connection) -> None:
    db.executemany("insert into other (k) values (?)", [(k,) for k in range(COUNT)])
    for name in NAMES:
        db.execute(f"update other set {name} = (select e.{name} from every e where e.k = other.k)")


def by_arrow(db: Connection) -> None:
    db.append("other", db.arrow("every").read_all())


def by_polars(db: Connection) -> None:
    """polars has no intervals of months."""
    others = ", ".join(name for name in ("k", *NAMES) if name != SPAN)
    frame = pl.DataFrame(db.execute(f"select {others} from every"))
    spans = pa.table(db.execute(f"select {SPAN} from every")).column(0)
    db.append("other", frame.to_arrow().append_column(SPAN, spans))


def by_pandas(db: Connection) -> None:
    """With Arrow's types: NumPy's have no NULL among integers."""
    frame = pa.table(db.execute("select * from every")).to_pandas(types_mapper=pd.ArrowDtype)
    db.append("other", pa.Table.from_pandas(frame, preserve_index=False))


def by_sqlalchemy(db: Connection) -> None:
    db.commit()
    engine = sa.create_engine(f"gmdb:///{db.path}")
    every, other = (sa.Table(name, sa.MetaData(), autoload_with=engine) for name in ("every", "other"))
    for column in other.columns:
        if isinstance(column.type, sa.JSON):
            column.type.none_as_null = True
    with engine.begin() as connection:
        others = [column for column in every.columns if column.name != SPAN]  # a timedelta is no interval of months
        found = [row._asdict() for row in connection.execute(sa.select(*others))]
        connection.execute(sa.insert(other), found)
        same = sa.select(every.c[SPAN]).where(every.c.k == other.c.k).scalar_subquery()
        connection.execute(sa.update(other).values({SPAN: same}))
    engine.dispose()


@pytest.mark.parametrize(
    "way", [by_literals, by_query, by_rows, by_updates, by_arrow, by_polars, by_pandas, by_sqlalchemy]
)
def test_values_stay_what_they_are(made: Connection, way: Callable[[Connection], None]) -> None:
    expected = rows_of(made, "every")
    assert [row[1:] for row in expected] == [
        tuple(as_stored(spelling, value) for spelling, value in zip(TYPES, row[1:], strict=True)) for row in ROWS
    ]
    way(made)
    made.commit()
    assert rows_of(made) == expected


def test_they_are_found_sorted_and_grouped(made: Connection) -> None:
    """Each by an index if it can have one, by rows, and by DuckDB."""
    for name, (spelling, values) in zip(NAMES, TYPES.items(), strict=True):
        if spelling in ("JSON", "JSONB"):
            continue  # tests/sql/test_json.py
        fitting = [as_stored(spelling, value) for value in values if is_key(value)]
        ordered = sorted(fitting)
        made.execute("delete from other")
        made.executemany(f"insert into other (k, {name}) values (?, ?)", list(enumerate(fitting)))
        for index in (None, "btree", "hash")[: 3 if parse_column("c", spelling).type.may_be_key else 1]:
            if index is not None:
                made.execute(f"create index by_it on other using {index} ({name})")
            assert _firsts(made, f"select {name} from other order by {name}") == ordered, spelling
            assert _firsts(made, f"select {name} from other group by {name} order by 1") == ordered, spelling
            if spelling != "BOOLEAN":  # of which PostgreSQL has no least
                ends = made.execute(f"select min({name}), max({name}) from other").fetchone()
                assert ends == (ordered[0], ordered[-1]), spelling
            same = f"cast(? as {spelling})" if spelling.endswith("[]") else "?"  # a list of ints is an INT[]
            for n, value in enumerate(fitting):
                assert _firsts(made, f"select k from other where {name} = {same}", (value,)) == [n], spelling
                above = [one for one in ordered if one > value]
                assert _firsts(made, f"select {name} from other where {name} > {same} order by 1", (value,)) == above
            if index is not None:
                made.execute("drop index by_it")


def _firsts(db: Connection, text: str, parameters: Sequence[Any] = ()) -> list[Any]:
    return [row[0] for row in db.execute(text, parameters)]


def test_other_processes_backups_and_tools_have_them(
    made: Connection, peer: Peer, path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = rows_of(made, "every")
    made.backup(tmp_path / "copy")
    restore(tmp_path / "copy", tmp_path / "restored")
    with closing(gmdb.connect(tmp_path / "restored")) as restored:
        assert rows_of(restored, "every") == expected
    peer("db = gmdb.connect(path)", path=str(tmp_path / "restored"))
    with closing(gmdb.connect(tmp_path / "restored")) as client:
        assert rows_of(client, "every") == expected
        assert [row for _, row in client.heap("every").rows()] == expected
        for row in expected:
            client.insert("other", row)
        client.commit()
        assert rows_of(client) == expected
        by_updates_there(client)
        assert rows_of(client) == expected
    peer("db.close()")
    listed = made.inspect("rows", "every").to_pylist()
    for row, shown in zip(expected, listed, strict=True):
        assert shown["k"] == row[0]
        assert shown["_problem"] is None
        for name in NAMES:
            assert (shown[name] is None) == (row[1 + NAMES.index(name)] is None)
    made.commit()
    assert main(["sql", str(path), "-c", "select * from every where k = 1"]) == 0
    assert "0123456789"[:0] in capsys.readouterr().out


def by_updates_there(client: Any) -> None:
    """Rows changed by a client, one after the other."""
    heap = client.heap("other")
    for row_id, row in list(heap.rows()):
        heap.update(row_id, dict.fromkeys(NAMES))
        heap.update(row_id, dict(zip(NAMES, row[1:], strict=True)))
    client.commit()


def test_changes_have_them(made: Connection) -> None:
    """A feed has what rows keep: values that would leave them are refused there."""
    columns = ", ".join(f"{name} {TYPES_OF[name]}" for name in SHORT)
    made.execute(f"create table fed (k int primary key, {columns}) with (change_feed = true)")
    made.commit()
    feed = made.changes(tables=["fed"])
    fed = [(row[0], *(_short(row[1 + NAMES.index(name)]) for name in SHORT)) for row in ROWS]
    made.executemany(f"insert into fed values ({', '.join('?' * (len(SHORT) + 1))})", fed)
    made.commit()
    inserted = [tuple(change.row.values()) for change in feed if change.row is not None]
    assert inserted == rows_of(made, "fed")
    assert len(inserted) == COUNT


TYPES_OF = dict(zip(NAMES, TYPES, strict=True))


def _short(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(_short, value[:100]))
    return value[:98] + value[-2:] if isinstance(value, str | bytes) and len(value) > 100 else value


def test_spark_reads_and_writes_them(made: Connection, spark: SparkSession, path: Path) -> None:
    expected = rows_of(made, "every")
    made.commit()
    frame = spark.read.format("gmdb").option("table", "every").load(str(path))
    frame.write.format("gmdb").option("table", "other").mode("append").save(str(path))
    assert rows_of(made) == expected
    made.commit()
    created = frame.select("k", *SHORT).limit(2)
    created.write.format("gmdb").options(table="third", createTable="true").mode("append").save(str(path))
    assert made.execute("select count(*) from third").fetchone() == (2,)
    assert json.loads(frame.schema.json())["fields"][0]["name"] == "k"
