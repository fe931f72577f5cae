"""Staging files into tables: their rows are there as if they had been appended, all of them or none."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    Corruption,
    InterfaceError,
    LockTimeout,
    NoSuchTable,
    SchemaMismatch,
    TableExists,
    UniqueViolation,
)
from gmdb.format.checksum import crc32c
from gmdb.format.heap import HEAP_NODE, NODE_AT
from gmdb.format.staging import STAGED_SEAL, pack_seal
from gmdb.storage.loads import remove_load, staged_path
from gmdb.tables.arrow.attach import Load, NewTable
from tests.arrow.staged import stage, stage_file
from tests.arrow.test_roundtrip import as_arrow, new_table, shared  # noqa: F401
from tests.arrow.values import stored, tables
from tests.integrity import assert_sound

ROWS = 3000


def numbers(first: int, count: int) -> pa.Table:
    ids = range(first, first + count)
    return pa.table({"i": pa.array(ids, pa.int32()), "s": [f"text {n}" for n in ids]})


@pytest.fixture
def table(db: Connection) -> Connection:
    """A database whose table tbl has ten rows and two indexes."""
    db.create_table("tbl", {"i": "INT", "s": "VARCHAR(20)"})
    db.create_index("tbl_i", "tbl", ["i"], unique=True)
    db.create_index("tbl_s", "tbl", ["s"], using="hash")
    db.append("tbl", numbers(0, 10))
    db.commit()
    return db


def content(db: Connection) -> list[tuple[Any, ...]]:
    return db.execute("select i, s from tbl order by i").fetchall()


def expected(count: int, first: int = 0) -> list[tuple[int, str]]:
    return [(n, f"text {n}") for n in range(first, first + count)]


@given(table=tables())
@settings(max_examples=30, deadline=None)
def test_any_rows_of_any_types_come_through_a_staging_file(shared, table):  # noqa: F811
    columns, rows = table
    new_table(shared, columns)
    whole = as_arrow(columns, rows)
    load = stage(shared, "t", whole, whole.slice(0, 1))
    assert shared._attach_load(load) == len(rows) + min(len(rows), 1)
    shared.commit()
    remove_load(shared.path, load.load_id)
    found = [tuple(row.values()) for row in shared.arrow("t").read_all().to_pylist()]
    as_stored = [tuple(stored(c, v) for c, v in zip(columns, row, strict=True)) for row in rows]
    assert found == as_stored + as_stored[:1]


def test_rows_are_found_by_every_index_and_inserts_go_on_behind_them(table):
    load = stage(table, "tbl", numbers(10, ROWS), numbers(10 + ROWS, 7))
    assert table._attach_load(load) == ROWS + 7
    assert content(table) == expected(ROWS + 17)
    table.commit()
    assert [row for _, row in table.heap("tbl").by("tbl_i").find((12,))] == [(12, "text 12")]
    assert [row for _, row in table.heap("tbl").by("tbl_s").find((f"text {ROWS + 12}",))] == [
        (ROWS + 12, f"text {ROWS + 12}")
    ]
    pages = len(table.heap("tbl").segment.page_ids())
    for n in range(ROWS + 17, ROWS + 40):
        table.insert("tbl", (n, f"text {n}"))
    assert len(table.heap("tbl").segment.page_ids()) == pages
    assert content(table) == expected(ROWS + 40)


def test_nobody_sees_them_before_the_commit_and_a_rollback_leaves_nothing(table, path):
    pages = len(table.heap("tbl").segment.page_ids())
    with gmdb.connect(path) as other:
        table._attach_load(stage(table, "tbl", numbers(10, ROWS)))
        assert content(other) == expected(10)
        other.insert("tbl", (-1, "text -1"))  # neither the table nor its pages are the load's alone
        other.commit()
        table.rollback()
        assert content(other) == expected(11, -1)
        assert len(table.heap("tbl").segment.page_ids()) == pages


def test_a_duplicate_fails_the_whole_load_and_names_the_key(table):
    for parts in [(numbers(10, 5), numbers(7, 1)), (numbers(10, 5), numbers(12, 1))]:
        doubled = parts[1]["i"][0].as_py()
        with pytest.raises(UniqueViolation, match=rf"index tbl_i \(i\): row .* has the same key already: {doubled}$"):
            table._attach_load(stage(table, "tbl", *parts))
        table.commit()
        assert content(table) == expected(10)


def test_an_append_names_the_key_too(table):
    with pytest.raises(UniqueViolation, match=r"has the same key already: 3$"):
        table.append("tbl", numbers(3, 1))


def test_overwriting_leaves_readers_the_old_rows_until_the_commit(table, path):
    with gmdb.connect(path, lock_timeout=0.2) as other:
        assert table._attach_load(stage(table, "tbl", numbers(100, ROWS), overwrite=True)) == ROWS
        assert content(table) == expected(ROWS, 100)
        assert content(other) == expected(10)
        table.rollback()
        assert content(table) == content(other) == expected(10)
        other.commit()
        table._attach_load(stage(table, "tbl", numbers(100, ROWS), overwrite=True))
        table.commit()
        assert content(other) == expected(ROWS, 100)
        assert [row for _, row in other.heap("tbl").by("tbl_i").find((5,))] == []
        assert [row for _, row in other.heap("tbl").by("tbl_i").find((101,))] == [(101, "text 101")]


def test_nobody_waits_long_behind_a_load_that_waits_for_its_table(table, path):
    table.session.lock_timeout = 60.0
    with gmdb.connect(path) as writer, gmdb.connect(path, lock_timeout=10.0) as other:
        load = stage(table, "tbl", numbers(100, ROWS), overwrite=True)
        writer.select_for_update("tbl")  # and it holds the table until its transaction ends
        loading = threading.Thread(target=lambda: table._attach_load(load) and table.commit())
        loading.start()
        until = time.monotonic() + 60
        while len(writer.system_view("sys_waits")) == 0:
            assert time.monotonic() < until
        for n in range(20):
            other.insert("tbl", (-1 - n, "in between"))
            other.rollback()
        assert content(other) == expected(10)
        assert loading.is_alive()
        writer.commit()
        loading.join(60)
        assert content(other) == expected(ROWS, 100)


def test_a_load_that_waits_in_vain_says_for_which_table_and_how_long(table, path):
    table.session.lock_timeout = 0.3
    load = stage(table, "tbl", numbers(100, ROWS), overwrite=True)
    with gmdb.connect(path) as reader, gmdb.connect(path) as writer:
        assert content(reader) == expected(10)  # a reader that is idle is in nobody's way
        writer.select_for_update("tbl")
        with pytest.raises(LockTimeout, match=r"^table tbl was held .* for over 0\.3 s \(lock_timeout\)"):
            table._attach_load(load)
        writer.rollback()
        assert table._attach_load(load) == ROWS
        table.commit()
        assert content(reader) == expected(ROWS, 100)


def test_overwriting_with_nothing_empties_the_table(table):
    assert table._attach_load(stage(table, "tbl", overwrite=True)) == 0
    table.commit()
    assert content(table) == []


def test_a_table_is_made_with_its_rows_or_not_at_all(db):
    db.create_table("tbl", {"i": "INT", "s": "VARCHAR(20)"})
    load = stage(db, "tbl", numbers(0, ROWS))
    new = NewTable(db.table("tbl").columns, "main", 10)
    db.drop_table("tbl")
    db.commit()
    with pytest.raises(Corruption):
        db._attach_load(Load("tbl", load.load_id, (*load.files, damaged(db, load)), create=new))
    with pytest.raises(NoSuchTable):
        db.table("tbl")
    db._attach_load(Load("tbl", load.load_id, load.files, create=new))
    db.commit()
    assert content(db) == expected(ROWS)
    with pytest.raises(TableExists):
        db._attach_load(Load("tbl", load.load_id, load.files, create=new))


def damaged(db: Connection, load: Load) -> str:
    staged_path(db.path, load.load_id, "bad").write_bytes(b"nothing")
    return "bad"


# ---- files that are not as they were written


def rewritten(path: Path, at: int, byte: int) -> None:
    """Change a byte of a file of pages, and seal it anew."""
    data = bytearray(path.read_bytes())
    data[at] = byte
    fields = STAGED_SEAL.values(bytes(data[-STAGED_SEAL.size :]))
    kept = {name: fields[name] for name in ("kind", "page_size", "page_count", "row_count", "length")}
    crc, definition = crc32c(data[: -STAGED_SEAL.size]), list(bytes.fromhex(fields["definition"]))
    data[-STAGED_SEAL.size :] = pack_seal(**kept, definition=definition, content_crc=crc)
    path.write_bytes(data)


def test_a_file_that_is_cut_off_or_changed_is_named_and_nothing_is_loaded(table):
    load = stage(table, "tbl", numbers(10, ROWS), numbers(10 + ROWS, ROWS))
    path = staged_path(table.path, load.load_id, load.files[1])
    whole = path.read_bytes()
    flipped = bytes([whole[5000] ^ 1])
    for data, why in [
        (whole[:-1], "does not end in a seal"),
        (whole[:100], "does not end in a seal"),
        (b"", "does not end in a seal"),
        (whole[8192:], "before its seal"),
        (whole[:5000] + flipped + whole[5001:], "its bytes are not those that were written"),
    ]:
        path.write_bytes(data)
        with pytest.raises(Corruption, match=rf"{load.files[1]} is not a whole staging file: .*{why}"):
            table._attach_load(load)
        assert content(table) == expected(10)
    path.write_bytes(whole)
    assert table._attach_load(load) == 2 * ROWS


@pytest.mark.parametrize(
    ("at", "byte"),
    [
        (NODE_AT + HEAP_NODE.offset("slot_count"), 0),  # rows that no slot leads to
        (NODE_AT + HEAP_NODE.size, 0),  # a lock on the first row
        (NODE_AT + HEAP_NODE.size + 3, 1),  # a flag of it
        (NODE_AT + HEAP_NODE.size + 6, 3),  # another number of columns
        (8192 - 10, 0xFF),  # a slot that leads elsewhere
    ],
)
def test_a_page_that_no_task_makes_is_refused(table, at, byte):
    load = stage(table, "tbl", numbers(10, ROWS))
    rewritten(staged_path(table.path, load.load_id, load.files[0]), 8192 + at, byte)
    with pytest.raises(Corruption, match="part-00000 is not a whole staging file: its page 1 is unsound"):
        table._attach_load(load)
    assert content(table) == expected(10)


def test_batches_that_arrow_cannot_read_are_refused(db):
    """Whatever their bytes are: they are read, or nothing of them is loaded."""
    db.create_table("large", {"i": "INT", "b": "BLOB"})
    db.commit()
    load = stage(db, "large", pa.table({"i": pa.array(range(9), pa.int32()), "b": [b"x" * 40] * 9}))
    path = staged_path(db.path, load.load_id, load.files[0])
    whole, refused = path.read_bytes(), 0
    for at in range(0, len(whole) - STAGED_SEAL.size, 7):
        path.write_bytes(whole)
        rewritten(path, at, 0xFF)
        try:
            db._attach_load(load)
        except gmdb.Error:
            refused += 1
            assert db.execute("select count(*) from large").fetchone() == (0,)
        db.rollback()
    assert refused > 20


def test_rows_that_were_made_for_another_definition_are_refused(table):
    load = stage(table, "tbl", numbers(10, 5))
    changes = [
        lambda: table.add_column("tbl", ("c", "INT")),
        lambda: table.rename_column("tbl", "s", "t"),
        lambda: table.alter_column("tbl", "s", nullable=False),
        lambda: table.add_constraint("tbl", gmdb.Constraint("check", text="i < 5")),
    ]
    for change in changes:
        change()
        with pytest.raises(SchemaMismatch, match="table tbl: its columns, checks or tablespace are not those"):
            table._attach_load(load)
        table.rollback()
    table.create_tablespace("wide", page_size=16384)
    table.create_table("other", {"i": "INT", "s": "VARCHAR(20)"}, tablespace="wide")
    with pytest.raises(SchemaMismatch):
        table._attach_load(Load("other", load.load_id, load.files))


@pytest.mark.parametrize(
    ("load_id", "name"), [("..", "x"), ("x", ".."), ("x", "a/b"), ("x", "/etc/passwd"), ("", "x"), ("x", "")]
)
def test_files_elsewhere_are_not_reached(table, load_id, name):
    with pytest.raises(InterfaceError, match="is not a name of a"):
        table._attach_load(Load("tbl", load_id, (name,)))


# ---- what only the owner can finish


def test_large_objects_and_numbers_are_the_owners_to_give(db):
    long = "x" * 20_000
    db.execute("create table t (id bigint generated always as identity, s varchar(5), c clob)")
    db.execute("insert into t (s) values ('a')")
    db.commit()
    rows = pa.table({"s": ["b", None], "c": pa.array([long, None], pa.large_string())})
    load = stage(db, "t", rows, rows.slice(0, 1))
    assert db._attach_load(load) == 3
    db.commit()
    found = db.execute("select id, s, c from t order by id").fetchall()
    assert [row[1:] for row in found] == [("a", None), ("b", long), (None, None), ("b", long)]
    assert len({row[0] for row in found}) == 4
    assert db._attach_load(Load("t", load.load_id, load.files, overwrite=True)) == 3
    db.commit()
    assert db.execute("select count(*), count(distinct id) from t").fetchall() == [(3, 3)]


def test_a_load_goes_through_the_owner(path, peer):
    peer(f"db = gmdb.connect({str(path)!r}); db.create_table('tbl', {{'i': 'INT', 's': 'VARCHAR(20)'}}); db.commit()")
    try:
        with gmdb.connect(path) as db:
            assert db._attach_load(stage(db, "tbl", numbers(0, ROWS))) == ROWS
            db.commit()
            load = stage(db, "tbl", numbers(0, 1))
            staged_path(path, load.load_id, load.files[0]).write_bytes(b"")
            with pytest.raises(Corruption, match="part-00000"):
                db._attach_load(load)
            new = NewTable(db.table("tbl").columns, "main", 10)
            again = stage(db, "tbl", numbers(0, 5))
            assert db._attach_load(Load("other", again.load_id, again.files, create=new)) == 5
        assert peer("db.execute('select count(*), sum(i) from tbl').fetchall()") == [(ROWS, sum(range(ROWS)))]
        assert peer("db.execute('select count(*) from other').fetchall()") == [(5,)]
    finally:
        peer("db.close()")
    assert_sound(path)


def test_a_file_without_rows_is_a_file(table):
    load = stage(table, "tbl", numbers(0, 0))
    assert table._attach_load(load) == 0
    stage_file(table, "tbl", staged_path(table.path, load.load_id, "more"), numbers(10, 1))
    assert table._attach_load(Load("tbl", load.load_id, ("more",))) == 1
