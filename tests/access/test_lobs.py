"""Large objects: BLOB and CLOB columns of any length."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.database.copies import restore
from gmdb.errors import (
    CursorInvalid,
    DataError,
    InterfaceError,
    NoSuchRow,
    NullNotAllowed,
    SchemaError,
    TypeMismatch,
    UniqueViolation,
    ValueTooLong,
)
from gmdb.format.lob import INLINE_MAX, capacity, fan_out
from gmdb.tables.access.heap import Heap
from tests.integrity import assert_sound

PAGE = capacity(8192)
SIZES = [0, 1, 2, INLINE_MAX - 1, INLINE_MAX, INLINE_MAX + 1]
SIZES += [n * PAGE + d for n in (1, 2, 9, 10) for d in (-1, 0, 1)]
SIZES += [PAGE * fan_out(8192) + d for d in (-1, 0, 1)]  # where a level more begins


def some_bytes(size: int, seed: int = 1) -> bytes:
    return Random(seed * 1_000_003 + size).randbytes(size)


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.create_table("t", {"k": "INT NOT NULL", "b": "BLOB", "c": "CLOB"})
    db.commit()
    return db.heap("t")


def pages(db: Connection) -> int:
    """Data pages of the table's large objects."""
    rows = db.system_view("sys_segments").to_pylist()
    return sum(row["page_count"] for row in rows if row["kind"] == "lob")


# ---- values


@pytest.mark.parametrize("size", SIZES)
def test_a_value_of_any_length_comes_back(db: Connection, heap: Heap, size: int) -> None:
    data, text = some_bytes(size), "ä€x"[size % 3] * (size // 3)
    row_id = heap.insert((1, data, text))
    assert heap.fetch(row_id) == (1, data, text)
    db.commit()
    assert list(heap.rows()) == [(row_id, (1, data, text))]
    assert db.arrow("t").read_all().to_pylist() == [{"k": 1, "b": data, "c": text}]


def test_nothing_and_an_empty_value_are_two_things(heap: Heap) -> None:
    row_id = heap.insert((1, None, ""))
    assert heap.fetch(row_id) == (1, None, "")
    heap.update(row_id, {"b": b"", "c": None})
    assert heap.fetch(row_id) == (1, b"", None)


def test_a_value_is_read_from_a_file_of_any_kind(heap: Heap, tmp_path: Path) -> None:
    data, text = some_bytes(100_000), "Grüße\r\n" * 9000
    (tmp_path / "bytes").write_bytes(data)
    (tmp_path / "text").write_text(text, newline="")
    with open(tmp_path / "bytes", "rb") as one, open(tmp_path / "text", encoding="utf-8", newline="") as other:
        first = heap.insert((1, one, other))
    second = heap.insert((2, io.BytesIO(b"short"), io.BytesIO(text.encode())))
    assert heap.fetch(first) == (1, data, text)
    assert heap.fetch(second) == (2, b"short", text)


def test_a_page_of_any_size_takes_its_part(db: Connection) -> None:
    for size in (16384, 32768):
        db.create_tablespace(f"s{size}", page_size=size)
        db.create_table(f"t{size}", {"b": "BLOB"}, tablespace=f"s{size}")
        rows = [some_bytes(capacity(size) * 3 + d) for d in (-1, 0, 1)]
        ids = [db.insert(f"t{size}", (row,)) for row in rows]
        assert [db.heap(f"t{size}").fetch(row_id)[0] for row_id in ids] == rows


def test_a_row_of_many_large_objects_fits_its_page(db: Connection) -> None:
    db.create_table("wide", {f"b{n}": "BLOB" for n in range(40)})
    row = [some_bytes(INLINE_MAX, n) for n in range(40)]
    row_id = db.insert("wide", row)
    assert db.heap("wide").fetch(row_id) == tuple(row)


@pytest.mark.parametrize(
    ("row", "error", "said"),
    [
        ((1, "text", None), TypeMismatch, "column b: a str is not bytes"),
        ((1, "text" * 1000, None), TypeMismatch, "column b: a str is not bytes"),
        ((1, None, b"bytes"), TypeMismatch, "column c: a bytes is not a str"),
        ((1, 7, None), TypeMismatch, "column b: a int is not bytes"),
        ((1, io.StringIO("text"), None), TypeMismatch, "column b: the file gives str"),
        ((1, None, io.BytesIO(b"\xff" * 10)), DataError, "column c: what the file gives is not UTF-8"),
        ((1, None, io.BytesIO("é".encode()[:1])), DataError, "column c: what the file gives is not UTF-8"),
        ((1, None, "\ud800" * 2000), TypeMismatch, "cannot be written as UTF-8"),
        ((None, b"x" * 5000, None), NullNotAllowed, "column k is NOT NULL"),
        ((1, b"x" * 5000), DataError, "2 values for 3 columns"),
    ],
)
def test_what_is_no_value_is_refused_and_leaves_nothing(
    db: Connection, heap: Heap, row: tuple[object, ...], error: type[Exception], said: str
) -> None:
    with pytest.raises(error, match=said):
        heap.insert(row)
    assert pages(db) == 0
    assert list(heap.rows()) == []


def test_a_value_that_is_too_long_is_refused_and_leaves_nothing(
    db: Connection, heap: Heap, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gmdb.tables.access.lobs.LOB_MAX", 1 << 20)
    with pytest.raises(ValueTooLong, match=r"t\.b: a large object has at most 1048576 bytes"):
        heap.insert((1, b"x" * ((1 << 20) + 1), None))
    assert pages(db) == 0


# ---- transactions


def test_a_rollback_gives_all_pages_back(db: Connection, heap: Heap) -> None:
    heap.insert((1, some_bytes(3 << 20), "x" * 100_000))
    assert pages(db) > 380
    db.rollback()
    assert pages(db) == 0


def test_a_savepoint_takes_values_back(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, some_bytes(50_000), None))
    db.savepoint("s")
    heap.update(row_id, {"b": some_bytes(60_000)})
    heap.insert((2, some_bytes(70_000), None))
    before = pages(db)
    db.rollback_to("s")
    assert heap.fetch(row_id)[1] == some_bytes(50_000)
    assert pages(db) == before - 8 - 1 - 9 - 1


def test_a_row_that_is_refused_leaves_no_value(db: Connection, heap: Heap) -> None:
    db.create_index("t_k", "t", ["k"], unique=True)
    heap.insert((1, None, None))
    with pytest.raises(UniqueViolation):
        heap.insert((1, some_bytes(50_000), None))
    other = heap.insert((2, b"kept" * 1000, None))
    with pytest.raises(UniqueViolation):
        heap.update(other, {"k": 1, "b": some_bytes(50_000)})
    heap.delete(other)
    with pytest.raises(NoSuchRow):
        heap.update(other, {"b": some_bytes(50_000)})
    db.commit()
    db.gc()
    assert pages(db) == 0


def test_pages_are_free_when_nobody_needs_the_value(db: Connection, heap: Heap, path: Path) -> None:
    old, new = some_bytes(200_000, 1), some_bytes(300_000, 2)
    row_id = heap.insert((1, old, None))
    db.commit()
    with gmdb.connect(path, isolation="repeatable read") as reader:
        assert reader.heap("t").fetch(row_id)[1] == old
        heap.update(row_id, {"b": new})
        db.commit()
        db.gc()
        assert reader.heap("t").fetch(row_id)[1] == old
        assert reader.arrow("t").read_all()["b"].to_pylist() == [old]
        assert heap.fetch(row_id)[1] == new
        heap.delete(row_id)
        db.commit()
        db.gc()
        assert reader.heap("t").fetch(row_id)[1] == old
        reader.rollback()
    db.gc()
    assert pages(db) == 0


def test_an_update_of_other_columns_leaves_the_value_where_it_is(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, some_bytes(50_000), "x" * 5000))
    db.commit()
    before = pages(db)
    heap.update(row_id, {"k": 2})
    db.update("t", {"k": 3})
    db.commit()
    db.gc()
    assert pages(db) == before
    assert heap.fetch(row_id) == (3, some_bytes(50_000), "x" * 5000)


def test_a_value_that_came_and_went_in_one_transaction_is_gone(db: Connection, heap: Heap) -> None:
    for end in (db.commit, db.rollback):
        row_id = heap.insert((1, some_bytes(50_000), None))
        heap.update(row_id, {"b": some_bytes(60_000)})
        heap.delete(row_id)
        end()
        db.gc()
        assert pages(db) == 0


def test_an_update_that_others_were_first_with_goes_by_what_they_committed(heap: Heap, path: Path) -> None:
    row_id = heap.insert((1, b"", None))
    heap.session.commit()
    with gmdb.connect(path) as other:
        heap.session.new_statement()
        other.heap("t").update(row_id, {"b": some_bytes(9000)})
        other.commit()
        heap.update(row_id, {"b": some_bytes(50_000)})
        heap.session.commit()
        assert other.heap("t").fetch(row_id)[1] == some_bytes(50_000)


def test_autocommit_makes_a_value_last(path: Path) -> None:
    with gmdb.connect(path, autocommit=True) as db:
        db.create_table("t", {"b": "BLOB"})
        row_id = db.insert("t", (some_bytes(100_000),))
        db.heap("t").update(row_id, {"b": some_bytes(50_000)})
        with pytest.raises(TypeMismatch):
            db.insert("t", (io.StringIO("x" * 5000),))
        assert not db.in_transaction
    with gmdb.connect(path) as db:
        assert db.heap("t").fetch(row_id) == (some_bytes(50_000),)
    assert_sound(path)


# ---- files


def test_a_large_object_is_read_as_a_file(db: Connection, heap: Heap) -> None:
    data, text = some_bytes(5 << 20), "Zeile äöü\n" * 50_000
    row_id = heap.insert((1, data, text))
    with db.open_lob("t", "b", row_id) as file:
        assert file.read(10) == data[:10]
        assert file.seek(-100, io.SEEK_END) == len(data) - 100
        assert file.read() == data[-100:]
        for at in (0, 1, PAGE - 1, PAGE, 3 << 20, len(data) - 1):
            file.seek(at)
            assert file.read(PAGE + 2) == data[at : at + PAGE + 2]
        file.seek(len(data) + 10)
        assert file.read() == b""
        with pytest.raises(ValueError, match="before the beginning"):
            file.raw.seek(-1)
    with db.open_lob("t", "c", row_id) as file:
        assert list(file) == ["Zeile äöü\n"] * 50_000
    with pytest.raises(ValueError, match="closed"):
        file.read()


def test_an_open_large_object_stays_what_it_was(db: Connection, heap: Heap) -> None:
    data = some_bytes(2 << 20)
    row_id, short = heap.insert((1, data, None)), heap.insert((2, b"short", "kurz"))
    db.commit()
    file = db.open_lob("t", "b", row_id)
    heap.delete(row_id)
    db.commit()
    db.gc()
    assert file.read() == data
    file.close()
    db.gc()
    assert pages(db) == 0
    with db.open_lob("t", "c", short) as text:
        assert text.read() == "kurz"


def test_an_open_large_object_tells_if_it_never_was(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, some_bytes(2 << 20), None))
    file = db.open_lob("t", "b", row_id)
    assert file.read(10) == some_bytes(2 << 20)[:10]
    db.rollback()
    file.raw.seek(1 << 20)
    with pytest.raises(CursorInvalid):
        file.raw.read(10)
    file.close()


def test_what_cannot_be_opened_is_named(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, None, None))
    with pytest.raises(DataError, match="column b is NULL"):
        db.open_lob("t", "b", row_id)
    with pytest.raises(SchemaError, match="column k is INT, not BLOB or CLOB"):
        db.open_lob("t", "k", row_id)
    with pytest.raises(SchemaError, match="no column x"):
        db.open_lob("t", "x", row_id)
    heap.delete(row_id)
    with pytest.raises(NoSuchRow):
        db.open_lob("t", "b", row_id)


def test_a_file_for_several_rows_is_read_again_or_refused(db: Connection, heap: Heap) -> None:
    for n in range(3):
        heap.insert((n, None, None))
    source = io.BytesIO(b"head" + some_bytes(9000))
    source.seek(4)
    assert db.update("t", {"b": source}) == 3
    assert [row[1] for _, row in heap.rows()] == [some_bytes(9000)] * 3

    class Pipe:
        def read(self, size: int) -> bytes:
            return b""[:size]

    with pytest.raises(InterfaceError, match="cannot be read twice"):
        db.update("t", {"b": Pipe()})


# ---- definitions


def test_large_objects_come_and_go_with_their_table(path: Path) -> None:
    db = gmdb.connect(path)
    db.create_table("t", {"k": "INT"})
    row_id = db.insert("t", (1,))
    db.commit()
    db.add_column("t", ("b", "BLOB"), some_bytes(20_000))
    db.rollback()
    assert db.table("t").lobs is None
    db.add_column("t", ("b", "BLOB"), some_bytes(20_000))
    db.add_column("t", ("c", "CLOB NOT NULL"), "x" * 20_000)
    db.commit()
    assert db.heap("t").fetch(row_id) == (1, some_bytes(20_000), "x" * 20_000)
    db.truncate_table("t")
    db.insert("t", (2, some_bytes(30_000), "y"))
    db.rollback()
    assert db.heap("t").fetch(row_id) == (1, some_bytes(20_000), "x" * 20_000)
    db.truncate_table("t")
    row_id = db.insert("t", (2, some_bytes(30_000), "y"))
    db.commit()
    db.gc()
    db.close()
    assert_sound(path)
    with gmdb.connect(path) as again:
        assert again.heap("t").fetch(row_id) == (2, some_bytes(30_000), "y")
        again.drop_table("t")
        again.commit()
        again.gc()
        assert pages(again) == 0
    assert_sound(path)


def test_a_large_object_is_no_key(db: Connection, heap: Heap) -> None:
    for using in ("btree", "hash"):
        with pytest.raises(SchemaError, match="column b is a BLOB, which cannot be part of a key"):
            db.create_index("t_b", "t", ["k", "b"], using=using)
    with pytest.raises(SchemaError, match="column c is a CLOB"):
        db.create_table("u", {"c": "CLOB"}, constraints=[gmdb.Constraint("primary key", ("c",))])
    db.create_index("t_k", "t", ["k"])
    row_id = heap.insert((1, some_bytes(9000), "c" * 9000))
    for rows in (heap.by("t_k").find((1,)), list(heap.by("t_k").range()), list(heap.rows_at([row_id]))):
        assert rows == [(row_id, (1, some_bytes(9000), "c" * 9000))]
    cursor = db.select("t", ["b"], by="t_k")
    assert list(cursor.rows()) == [(row_id, (some_bytes(9000),))]
    assert cursor.arrow().read_all().to_pylist() == [{"b": some_bytes(9000)}]
    assert list(db.select("t", ["k"]).rows()) == [(row_id, (1,))]


# ---- what lasts


def test_a_backup_has_them(db: Connection, heap: Heap, tmp_path: Path) -> None:
    row_id = heap.insert((1, some_bytes(100_000), "x" * 9000))
    db.commit()
    heap.insert((2, some_bytes(100_000), None))
    db.backup(tmp_path / "copy")
    db.rollback()
    restore(tmp_path / "copy", tmp_path / "restored")
    with gmdb.connect(tmp_path / "restored") as restored:
        assert list(restored.heap("t").rows()) == [(row_id, (1, some_bytes(100_000), "x" * 9000))]
    assert_sound(tmp_path / "restored")


_KILLED = """
import os, signal, sys
import gmdb
class Endless:
    def __init__(self): self.left = 300
    def read(self, size):
        self.left -= 1
        if self.left == 0: os.kill(os.getpid(), signal.SIGKILL)
        return b"x" * size
db = gmdb.connect(sys.argv[1])
db.insert("t", (2, b"y" * 100000, None))
db.commit()
db.insert("t", (3, Endless(), None))
"""


def test_a_process_that_is_killed_within_a_value_leaves_nothing_of_it(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT NOT NULL", "b": "BLOB", "c": "CLOB"})
        db.insert("t", (1, b"x" * 100_000, None))
    run = subprocess.run([sys.executable, "-c", _KILLED, str(path)], env=_environment(), timeout=300, check=False)
    assert run.returncode == -9
    with gmdb.connect(path) as db:
        assert db.recovery is not None
        assert db.recovery.rolled_back == 1
        rows = sorted((k, b) for _, (k, b, _) in db.heap("t").rows())
        assert rows == [(1, b"x" * 100_000), (2, b"y" * 100_000)]
        assert pages(db) == 2 * 14
    assert_sound(path)


_STREAMED = """
import hashlib, sys
import gmdb
SIZE = 300 << 20
class Source:
    def __init__(self): self.left, self.hash, self.n = SIZE, hashlib.sha256(), 0
    def read(self, size):
        self.n += 1
        piece = (self.n.to_bytes(8, "little") * (size // 8 + 1))[: min(size, self.left)]
        self.left -= len(piece)
        self.hash.update(piece)
        return piece
def memory():
    with open("/proc/self/status") as status:
        return max(int(line.split()[1]) for line in status if line.startswith("RssAnon")) >> 10
db = gmdb.connect(sys.argv[1])
db.create_table("t", {"b": "BLOB"})
db.insert("t", (b"x" * 200_000,))  # so that what is needed for any value is there
db.commit()
db.gc()
before, most, source = memory(), 0, Source()
class Watched:
    def read(self, size):
        global most
        most = max(most, memory())
        return source.read(size)
row_id = db.insert("t", (Watched(),))
db.commit()
written = most - before
before, most, found = memory(), 0, hashlib.sha256()
with db.open_lob("t", "b", row_id) as file:
    while piece := file.read(1 << 20):
        found.update(piece)
        most = max(most, memory())
assert found.digest() == source.hash.digest()
print(written, most - before)
db.close()
"""


def test_a_value_is_streamed_in_and_out_in_bounded_memory(path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-c", _STREAMED, str(path)],
        env=_environment(),
        timeout=600,
        check=True,
        capture_output=True,
        text=True,
    )
    print(run.stdout)
    written, read = map(int, run.stdout.split())
    assert written < 64, f"{written} MiB while it was written"
    assert read < 64, f"{read} MiB while it was read"
    assert_sound(path)


def _environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def test_pages_are_used_again_in_the_order_of_the_map(db: Connection, heap: Heap) -> None:
    """Deleting from the front and inserting again: the segment always knows its first page."""
    random = Random(5)
    rows = []
    for step in range(120):
        if rows and random.random() < 0.5:
            heap.delete(rows.pop(random.choice([0, -1])))
            db.commit()
            db.gc()
        else:
            rows.append(heap.insert((step, some_bytes(random.choice([5000, 40_000, 3_000_000])), None)))
    db.commit()
    assert db.verify().findings == []


def test_a_shrink_gives_the_space_of_large_objects_back(db: Connection, heap: Heap, path: Path) -> None:
    row_id = heap.insert((1, some_bytes(8 << 20), None))
    db.commit()
    size = (path / "device-0004").stat().st_size
    heap.delete(row_id)
    db.commit()
    db.gc()
    db.shrink()
    assert (path / "device-0004").stat().st_size < size - (7 << 20)
