"""Large objects through another process."""

from __future__ import annotations

import io
from random import Random

import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import DataError, NoSuchRow, TypeMismatch
from tests.server.peer import Peer

DATA = Random(1).randbytes(3_000_000)
TEXT = "Grüße, " * 100_000


@pytest.fixture
def table(db: Connection) -> Connection:
    db.create_table("l", {"i": "INT NOT NULL", "b": "BLOB", "c": "CLOB"})
    db.commit()
    return db


def test_values_go_both_ways(table: Connection, owner: Peer) -> None:
    heap = table.heap("l")
    rows = [(1, DATA, TEXT), (2, b"short", "kurz"), (3, None, None), (4, b"", "")]
    ids = [heap.insert(row) for row in rows]
    ids.append(heap.insert((5, io.BytesIO(DATA), io.StringIO(TEXT))))
    rows.append((5, DATA, TEXT))
    table.commit()
    assert [heap.fetch(row_id) for row_id in ids] == rows
    assert [row for _, row in heap.rows()] == rows
    assert [row for _, row in table.select("l", ["c", "i"]).rows()] == [(c, i) for i, _, c in rows]
    assert table.arrow("l").read_all().to_pylist() == [dict(zip("ibc", row, strict=True)) for row in rows]
    assert owner("len(db.heap('l').fetch(row_id)[1])", row_id=tuple(ids[0])) == len(DATA)


def test_statements_and_changes_take_values_and_files(table: Connection) -> None:
    table.execute("insert into l values (?, ?, ?), (2, null, null)", (1, io.BytesIO(DATA), TEXT))
    table.executemany("insert into l values (:i, :b, null)", [{"i": n, "b": DATA[:n]} for n in (3, 70_000)])
    table.commit()
    assert table.execute("select b, c from l where i = 1").fetchall() == [(DATA, TEXT)]
    assert table.execute("select length(b) from l order by i").fetchall() == [(len(DATA),), (None,), (3,), (70_000,)]
    assert table.update("l", {"b": io.BytesIO(b"x" * 9000)}, lambda row: row["i"] < 3) == 2
    heap = table.heap("l")
    row_id = next(heap.rows())[0]
    heap.update(row_id, {"c": TEXT[::-1]})
    assert heap.fetch(row_id) == (1, b"x" * 9000, TEXT[::-1])
    table.add_column("l", ("d", "BLOB"), DATA)
    assert table.execute("select count(*) from l where d = ?", (DATA,)).fetchone() == (4,)
    assert table.append("l", pa.table({"i": [9], "b": [DATA], "c": [None], "d": [None]})) == 1
    table.commit()


def test_a_large_object_is_read_as_a_file(table: Connection, owner: Peer) -> None:
    row_id = table.insert("l", (1, DATA, TEXT))
    table.commit()
    with table.open_lob("l", "b", row_id) as file:
        file.seek(2_000_000)
        assert file.read(100) == DATA[2_000_000:2_000_100]
        owner("db.delete('l'); db.commit(); db.gc()")
        file.seek(0)
        assert file.read() == DATA
    with pytest.raises(NoSuchRow):
        table.open_lob("l", "c", row_id)


def test_what_is_refused_leaves_nothing(table: Connection, owner: Peer) -> None:
    heap = table.heap("l")
    with pytest.raises(TypeMismatch, match="the file gives str"):
        heap.insert((1, io.StringIO(TEXT), None))
    with pytest.raises(TypeMismatch, match="column b: a str is not a BLOB"):
        heap.insert((1, "text", None))
    with pytest.raises(DataError, match="not UTF-8"):
        heap.insert((1, None, io.BytesIO(b"\xff" * 5000)))
    heap.insert((1, DATA, None))
    table.rollback()
    counted = "sum(r['page_count'] for r in db.system_view('sys_segments').to_pylist() if r['kind'] == 'lob')"
    assert owner(counted) == 0
