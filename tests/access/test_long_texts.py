"""TEXT, BYTEA and long VARCHAR and VARBINARY: values of any length, in their row or on pages of their own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    DataError,
    ForeignKeyViolation,
    NoSuchRow,
    RowTooLarge,
    SchemaError,
    TypeMismatch,
    UniqueViolation,
    ValueTooLong,
)
from gmdb.format.columns import parse_column
from gmdb.format.lob import TEXT_IN_ROW_MAX, Locator, capacity, encode_text_locator, page_counts
from gmdb.tables.access.heap import Heap
from tests.access.test_lobs import pages, some_bytes
from tests.integrity import assert_sound
from tests.server.peer import Peer

PAGE = capacity(8192)
SIZES = [0, 1, TEXT_IN_ROW_MAX - 1, TEXT_IN_ROW_MAX, TEXT_IN_ROW_MAX + 1, PAGE, PAGE + 1, 300_000]
LOOKS_LIKE_A_PLACE = encode_text_locator(Locator(7, 3))


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.execute("create table t (k int, s text, b bytea)")
    db.commit()
    return db.heap("t")


def text_of(size: int) -> str:
    return ("ä€x" * (size // 6 + 1)).encode()[:size].decode(errors="ignore").ljust(size % 6, "y")


# ---- values


@pytest.mark.parametrize("size", SIZES)
def test_a_text_of_any_length_comes_back_every_way(db: Connection, heap: Heap, size: int) -> None:
    row = (1, text_of(size), some_bytes(size))
    row_id = heap.insert(row)
    assert heap.fetch(row_id) == row
    assert [values for _, values in heap.rows()] == [row]
    assert tuple(db.arrow("t").read_all().to_pylist()[0].values()) == row
    db.execute("create index t_k on t (k)")
    assert db.execute("select * from t where k = 1").fetchall() == [row]
    assert db.heap("t").by("t_k").find((1,)) == [(row_id, row)]
    assert db.execute("select b, s, k from t where k < 5 order by k").fetchall() == [row[::-1]]
    assert db.execute("select k from t where s = ? and b = ?", row[1:]).fetchall() == [(1,)]
    sizes = [len(value) for value in (row[1].encode(), row[2]) if len(value) > TEXT_IN_ROW_MAX]
    assert pages(db) == sum(sum(page_counts(size, 8192)) for size in sizes)


def test_expressions_take_long_texts_as_any(db: Connection, heap: Heap) -> None:
    texts = ["b" * 9000, "a" * 9000, "a" * 9000 + "b", "short", None, "a" * 9000]
    for n, text in enumerate(texts):
        heap.insert((n, text, None))
    for order in ("", " order by k"):  # by rows, and by DuckDB
        assert db.execute(f"select k from t where s like 'a%b'{order}").fetchall() == [(2,)]
    assert db.execute("select s, count(*) from t group by s order by s").fetchall() == [
        ("a" * 9000, 2),
        ("a" * 9000 + "b", 1),
        ("b" * 9000, 1),
        ("short", 1),
        (None, 1),
    ]
    assert db.execute("select min(s), max(s), count(distinct s) from t").fetchall() == [("a" * 9000, "short", 4)]
    found = db.execute("select a.k from t a join t b on a.s = b.s and a.k < b.k order by 1").fetchall()
    assert found == [(1,)]
    assert db.execute("select k, length(s || s) from t where upper(s) > 'B' order by 1").fetchall()[0] == (0, 18_000)


def test_bytes_that_look_like_a_place_are_bytes(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, None, LOOKS_LIKE_A_PLACE))
    assert pages(db) == 1
    assert heap.fetch(row_id) == (1, None, LOOKS_LIKE_A_PLACE)
    db.append("t", pa.table({"k": pa.array([2], pa.int32()), "s": ["x"], "b": [LOOKS_LIKE_A_PLACE]}))
    assert db.arrow("t").read_all()["b"].to_pylist() == [LOOKS_LIKE_A_PLACE] * 2
    heap.update(row_id, {"b": b"x" * 24})
    heap.update(row_id, {"b": LOOKS_LIKE_A_PLACE})
    assert db.execute("select count(*) from t where b = ?", (LOOKS_LIKE_A_PLACE,)).fetchone() == (2,)


@pytest.mark.usefixtures("heap")
def test_a_text_that_is_not_one_is_refused_before_it_is_taken_for_a_place(db: Connection) -> None:
    array = pa.Array.from_buffers(pa.string(), 1, pa.array([LOOKS_LIKE_A_PLACE]).buffers())
    with pytest.raises(DataError, match="not UTF-8"):
        db.append("t", pa.table({"k": pa.array([1], pa.int32()), "s": array, "b": pa.array([b""])}))
    assert db.execute("select count(*) from t").fetchone() == (0,)


@pytest.mark.parametrize("value", [b"x" * 5000, 7, ["x"]])
def test_what_is_no_text_is_refused(heap: Heap, value: Any) -> None:
    with pytest.raises(TypeMismatch):
        heap.insert((1, value, None))


def test_a_length_is_kept_to_up_to_ten_megabytes(db: Connection) -> None:
    db.execute("create table v (s varchar(100000), b varbinary(40000))")
    db.execute("insert into v values (?, ?)", ("x" * 100_000, b"y" * 40_000))
    assert db.execute("select length(s), length(b) from v").fetchone() == (100_000, 40_000)
    with pytest.raises(ValueTooLong, match=r"VARCHAR\(100000\)"):
        db.execute("insert into v values (?, null)", ("x" * 100_001,))
    with pytest.raises(ValueTooLong, match=r"VARBINARY\(40000\)"):
        db.append("v", pa.table({"s": ["a"], "b": [b"y" * 40_001]}))
    assert db.execute("select count(*) from v").fetchone() == (1,)
    with pytest.raises(SchemaError, match="1 to 10485760 bytes"):
        parse_column("c", "VARCHAR(10485761)")


# ---- rows that have no room


def test_values_that_an_update_leaves_alone_make_room_for_its_own(db: Connection) -> None:
    db.execute("create table wide (k int primary key, a text, b bytea, n varchar(4000), m int)")
    rows = [(k, "a" * 4000, b"b" * 4000, None, None) for k in range(4)]
    db.executemany("insert into wide values (?, ?, ?, ?, ?)", rows)
    db.commit()
    new = "n" * 4000
    db.execute("update wide set n = ? where k = 0", (new,))
    row_ids = dict(db.execute("select k, rowid from wide").fetchall())
    db.update("wide", {"n": new}, lambda row: row["k"] == 1)
    db.update("wide", {"n": new, "m": 7}, lambda row: row["k"] == 2)
    db.execute("savepoint s")
    db.execute("update wide set n = ?, a = a || b::text", (new,))
    db.execute("rollback to s")
    db.execute("update wide set n = ? where k = 3 returning m", (new,)).fetchall()
    changed = [(k, "a" * 4000, b"b" * 4000, new, 7 if k == 2 else None) for k in range(4)]
    assert db.execute("select * from wide order by k").fetchall() == changed
    assert dict(db.execute("select k, rowid from wide").fetchall()) == row_ids
    db.rollback()
    assert db.execute("select * from wide order by k").fetchall() == rows


def test_values_leave_a_row_that_has_no_room_for_them(db: Connection) -> None:
    db.execute("create table wide (k int primary key, a text, b text, c text, d text)")
    row = (1, "a" * 3000, "b" * 3900, "c" * 3000, "d" * 10)
    db.execute("insert into wide values (?, ?, ?, ?, ?)", row)
    assert pages(db) == 1
    db.append("wide", pa.table(dict(zip("kabcd", ([2], *([value] for value in row[1:])), strict=True))))
    assert pages(db) == 2
    db.execute("insert into wide values (3, 'a', 'b', 'c', 'd'), (4, 'a', 'b', 'c', 'd')")
    assert pages(db) == 2
    db.execute("update wide set a = ?, b = ?, c = ? where k = 3", row[1:4])
    assert db.execute("select * from wide where k = 3").fetchone() == (3, *row[1:4], "d")
    db.execute("update wide set d = repeat('e', 3990)")
    assert db.execute("select distinct a, b, c, d from wide where k < 4").fetchall() == [(*row[1:4], "e" * 3990)]
    db.commit()
    db.gc()


def test_a_foreign_key_finds_values_that_had_left_their_rows_before_it_came(db: Connection) -> None:
    db.execute("create table p (k text primary key)")
    filled = "a varchar(4000) default repeat('a', 3900), b varchar(4000) default repeat('b', 3900)"
    db.execute(f"create table c (i int, k text, {filled}, body text check (body like '%.'))")
    db.execute("insert into p values (repeat('k', 1000)), ('m')")
    db.execute("insert into c (i, k) values (1, repeat('k', 1000))")
    db.execute("insert into c values (2, 'm', 'a', 'b', repeat('x', 9000) || '.')")
    db.execute(
        "alter table c add constraint f foreign key (k) references p on delete cascade on update cascade not valid"
    )
    db.execute("alter table c validate constraint f")
    db.execute("update p set k = 'n' where k = 'm'")
    db.execute("delete from p where k <> 'n'")
    assert db.execute("select i, k from c").fetchall() == [(2, "n")]
    db.execute("create index c_k on c (k)")
    db.execute("update p set k = 'o'")
    assert db.execute("select i, k, length(body) from c").fetchall() == [(2, "o", 9001)]


def test_a_value_that_an_index_needs_stays_in_its_row(db: Connection) -> None:
    db.execute("create table wide (a text unique, b text, c text, d text, e text unique, f text unique)")
    with pytest.raises(RowTooLarge):
        db.execute("insert into wide (a, e, f, b) values (?, ?, ?, ?)", ("a" * 3000, "e" * 3900, "f" * 3900, "b"))
    row = ("a" * 1900, "b" * 3900, "c" * 3900, None, "e" * 1900, "f" * 1900)
    db.execute("insert into wide values (?, ?, ?, ?, ?, ?)", row)
    assert db.execute("select * from wide where a = ? and e = ?", (row[0], row[4])).fetchall() == [row]


# ---- keys


def test_a_key_that_is_too_long_is_refused_by_name(db: Connection, heap: Heap) -> None:
    heap.insert((1, "x" * 5000, None))
    db.commit()
    with pytest.raises(ValueTooLong, match="a key has at most 2000 bytes"):
        db.execute("create unique index t_s on t (s)")
    heap.delete(next(row_id for row_id, _ in heap.rows()))
    db.commit()
    db.gc()
    db.execute("create unique index t_s on t (s)")
    for size in (2001, 4001):
        with pytest.raises(ValueTooLong, match=r"index t_s \(s\): a key has at most 2000 bytes"):
            db.execute("insert into t values (2, ?, null)", ("x" * size,))
        assert db.execute("select k from t where s = ?", ("x" * size,)).fetchall() == []
        assert db.heap("t").by("t_s").find(("x" * size,)) == []
    db.execute("insert into t values (3, ?, null)", ("x" * 1990,))
    for size, found in ((1990, 1), (2500, 0), (5000, 0)):
        assert db.execute("select count(*) from t where s >= ?", ("x" * size,)).fetchone() == (found,)
        assert db.execute("select count(*) from t where s < ?", ("x" * size,)).fetchone() == (1 - found,)
    with pytest.raises(UniqueViolation):
        db.execute("insert into t values (4, ?, null)", ("x" * 1990,))
    assert pages(db) == 0


# ---- what is given back


@pytest.mark.usefixtures("heap")
def test_what_is_taken_back_leaves_no_pages(db: Connection) -> None:
    db.execute("insert into t values (1, ?, null)", ("kept" * 5000,))
    db.commit()
    before = pages(db)
    db.execute("savepoint a")
    db.execute("update t set s = repeat('n', 50000)")
    db.execute("insert into t select k + 1, s || s, null from t")
    db.execute("rollback to a")
    assert db.execute("select s from t").fetchall() == [("kept" * 5000,)]
    db.execute("create unique index t_k on t (k)")
    with pytest.raises(UniqueViolation):
        db.execute("insert into t values (2, ?, null), (1, ?, null)", ("x" * 9000, "y" * 9000))
    db.commit()
    db.gc()
    assert pages(db) == before
    db.execute("update t set s = 'short'")
    db.commit()
    db.gc()
    assert pages(db) == 0


def test_a_snapshot_reads_the_text_that_it_sees(db: Connection, heap: Heap, path: Path) -> None:
    row_id = heap.insert((1, "old" * 3000, None))
    db.commit()
    with gmdb.connect(path, isolation="repeatable read") as reader:
        assert reader.execute("select s from t").fetchone() == ("old" * 3000,)
        db.execute("update t set s = ?", ("new" * 3000,))
        db.commit()
        db.gc()
        assert reader.execute("select s from t where k = 1").fetchone() == ("old" * 3000,)
        assert reader.heap("t").fetch(row_id)[1] == "old" * 3000
        assert reader.arrow("t").read_all()["s"].to_pylist() == ["old" * 3000]
    assert heap.fetch(row_id)[1] == "new" * 3000
    db.execute("delete from t")
    db.commit()
    with pytest.raises(NoSuchRow):
        heap.fetch(row_id)
    db.gc()
    assert pages(db) == 0


# ---- short ones


def test_short_texts_go_the_way_of_single_kernel_calls(heap: Heap) -> None:
    assert heap.insert_at_once((1, "short", b"short")) < 0  # the table is not shared yet
    row_id = heap.insert((1, "short", b"short"))
    place = row_id[0] << 16 | row_id[1]
    assert heap.insert_at_once((2, "short", b"short")) >= 0
    assert heap._fetch_at_once(place) == (1, "short", b"short")
    change, shapes = heap._update_at_once

    def update(size: int) -> int:
        return change(0, place, shapes[("s",)], ("x" * size,))

    heap.update(row_id, {"s": "y"})  # from now on the shape of such patches is known
    assert update(TEXT_IN_ROW_MAX) >= 0
    assert update(TEXT_IN_ROW_MAX + 1) < 0
    heap.update(row_id, {"s": "x" * (TEXT_IN_ROW_MAX + 1)})
    assert isinstance(heap._fetch_at_once(place), int)
    assert heap.fetch(row_id)[1] == "x" * (TEXT_IN_ROW_MAX + 1)


# ---- change feeds


def test_a_table_whose_changes_are_logged_keeps_its_texts_in_rows(db: Connection, heap: Heap) -> None:
    heap.insert((1, "x" * 5000, None))
    db.commit()
    with pytest.raises(SchemaError, match="column s has 5000 bytes, but a change feed keeps what rows keep"):
        db.execute("alter table t set (change_feed = true)")
    db.rollback()
    db.execute("update t set s = 'short'")
    db.execute("alter table t set (change_feed = true)")
    db.commit()
    db.execute("update t set s = repeat('x', 4000)")
    with pytest.raises(ValueTooLong, match="a value of 4001 bytes leaves its row, but the table's changes are logged"):
        db.execute("update t set s = repeat('x', 4001)")
    with pytest.raises(ValueTooLong, match="changes are logged"):
        db.append("t", pa.table({"k": pa.array([2], pa.int32()), "s": ["y" * 5000], "b": pa.array([b""])}))
    db.commit()
    assert db.execute("select k, length(s) from t").fetchall() == [(1, 4000)]


def test_columns_of_older_databases_stay_as_they_are(db: Connection) -> None:
    """TEXT was VARCHAR(4000), and such a table has nothing but its rows."""
    db.create_table("older", {"s": "VARCHAR(4000)", "b": "VARBINARY(32000)"})
    assert db.table("older").lobs is None
    with pytest.raises(ValueTooLong):
        db.execute("insert into older values (repeat('x', 4001), null)")
    db.execute("insert into older values (repeat('x', 4000), null)")
    assert db.execute("select pg_typeof(s), pg_typeof(b) from older").fetchone() == ("character varying", "bytea")


# ---- the ways in and out that are not rows of one session


def test_a_client_writes_and_reads_long_texts(path: Path, peer: Peer) -> None:
    """Short ones travel in their rows, long ones behind them or ahead."""
    peer("db = gmdb.connect(path)", path=str(path))
    try:
        with gmdb.connect(path) as client:
            client.execute("create table t (k int primary key, s text, b bytea)")
            rows = [(size, text_of(size), some_bytes(size)) for size in SIZES] + [(-1, None, LOOKS_LIKE_A_PLACE)]
            for row in rows:
                client.insert("t", row)
            client.execute("update t set s = s || 'x' where k = 300000")
            assert client.execute("select length(b) from t where k = 300000").fetchone() == (300_000,)
            found = sorted(row for _, row in client.heap("t").rows() if row[0] != 300_000)
            assert found == sorted(row for row in rows if row[0] != 300_000)
            with pytest.raises(UniqueViolation):
                client.execute("insert into t values (0, ?, null)", ("y" * 9000,))
            client.commit()
            assert client.execute("select count(*) from t").fetchone() == (len(rows),)
    finally:
        peer("db.close()")
    assert_sound(path)


# ---- other definitions


def test_columns_become_long_and_short_again(db: Connection) -> None:
    db.execute("create table older (k int primary key, s varchar(20), b varbinary(30))")
    db.execute("insert into older values (1, 'short', ?)", (LOOKS_LIKE_A_PLACE,))
    db.execute("alter table older alter column s type text, alter column b type bytea")
    db.execute("update older set s = s || repeat('x', 9000)")
    db.execute("alter table older add column more text default repeat('y', 5000)")
    row = (1, "short" + "x" * 9000, LOOKS_LIKE_A_PLACE, "y" * 5000)
    assert db.execute("select * from older").fetchall() == [row]
    with pytest.raises(ValueTooLong):
        db.execute("alter table older alter column s type varchar(20)")
    db.execute("alter table older drop column more, alter column s type varchar(20) using substr(s, 1, 6)")
    assert db.execute("select * from older where k = 1").fetchall() == [(1, "shortx", LOOKS_LIKE_A_PLACE)]
    db.commit()
    db.gc()
    assert pages(db) == 1


def test_a_partial_index_needs_what_its_condition_compares(db: Connection, heap: Heap) -> None:
    db.execute("create index t_k on t (k) where s < 'm'")
    db.execute("insert into t values (1, 'a', null), (2, repeat('z', 4000), null)")
    with pytest.raises(ValueTooLong, match=r"index t_k \(k\): .* its condition compares up to 4000"):
        db.execute("insert into t values (3, repeat('a', 4001), null)")
    with pytest.raises(ValueTooLong, match="its condition compares"):
        db.execute("update t set s = repeat('a', 5000) where k = 2")
    assert db.execute("select k from t where s < 'm' order by k").fetchall() == [(1,)]
    db.execute("drop index t_k")
    db.execute("update t set s = repeat('a', 5000) where k = 2")
    with pytest.raises(ValueTooLong, match="its condition compares"):
        db.execute("create index t_k on t (k) where s < 'm'")
    db.execute("create index t_k on t (k) where s is not null")
    assert len(list(heap.rows())) == 2
    assert db.execute("select k from t where s is not null and k = 2").fetchall() == [(2,)]


def test_rows_that_refer_to_others_have_long_texts_beside_their_keys(db: Connection) -> None:
    db.execute("create table parent (s text primary key, doc text)")
    db.execute("create table child (k int, s text references parent on update cascade, doc text)")
    db.execute("insert into parent values (?, ?)", ("p" * 1500, "d" * 9000))
    db.execute("insert into child values (1, ?, ?)", ("p" * 1500, "c" * 9000))
    with pytest.raises(ForeignKeyViolation):
        db.execute("insert into child values (2, ?, null)", ("p" * 9000,))
    db.execute("update parent set s = 'new'")
    assert db.execute("select k, s, doc from child").fetchall() == [(1, "new", "c" * 9000)]
    with pytest.raises(ForeignKeyViolation):
        db.execute("delete from parent")
    db.execute("delete from child")
    db.execute("delete from parent")
    db.commit()
    db.gc()
    assert pages(db) == 0


def test_serializable_transactions_read_and_write_long_texts(db: Connection, heap: Heap, path: Path) -> None:
    heap.insert((1, "x" * 9000, None))
    db.execute("create index t_s on t (b)")
    db.commit()
    with gmdb.connect(path, isolation="serializable") as one:
        assert one.execute("select count(*) from t where b = ?", (b"y" * 9000,)).fetchone() == (0,)
        assert one.execute("select s from t where k = 1").fetchone() == ("x" * 9000,)
        one.execute("update t set s = s || 'y' where k = 1")
        one.execute("insert into t values (2, ?, ?)", ("z" * 5000, b"key"))
        one.commit()
        assert one.execute("select k, length(s) from t order by k").fetchall() == [(1, 9001), (2, 5000)]
