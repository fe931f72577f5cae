"""Hash indexes of tables beside transactions: what they find, what they refuse, who waits for whom."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import LockTimeout, NotSupportedError, SchemaError, UniqueViolation, ValueTooLong
from gmdb.format.address import device_of, offset_of
from gmdb.format.codec import RowCodec
from gmdb.format.undo import NODE_AT, UNDO_ENTRY, UNDO_HEAD, UNDO_RECORD, UndoOperation, record_extents
from gmdb.storage.store import Segment
from gmdb.tables.catalog.schema import SYS_INDEXES_COLUMNS, SYS_INDEXES_ID
from tests.model.histories import check_indexes

COLUMNS = {"k": "INT", "s": "VARCHAR(3000)"}


@pytest.fixture
def table(db: Connection) -> Connection:
    db.create_table("t", COLUMNS)
    db.create_index("t_k", "t", ["k"], unique=True, using="hash")
    db.commit()
    return db


def found(db: Connection, *key: Any, index: str = "t_k") -> list[tuple[Any, ...]]:
    return sorted(values for _, values in db.heap("t").by(index).find(key))


def test_an_index_of_a_table_with_rows_has_them(db: Connection) -> None:
    db.create_table("t", COLUMNS)
    db.commit()
    db.append("t", pa.table({"k": pa.array(range(5000), pa.int32()), "s": [f"{n % 7}" for n in range(5000)]}))
    db.commit()
    db.create_index("t_k", "t", ["k"], unique=True, using="hash")
    db.create_index("t_s", "t", ["s"], using="hash")
    db.commit()
    for n in range(0, 5000, 99):
        assert found(db, n) == [(n, f"{n % 7}")]
    assert found(db, 5000) == []
    assert found(db, "3", index="t_s") == [(n, "3") for n in range(3, 5000, 7)]
    db.commit()
    check_indexes(db, "t")
    assert [index.using for index in db.table("t").indexes] == ["hash", "hash"]


def test_a_key_is_found_once_its_row_is_committed_and_not_after_it_is_gone(table: Connection, path: Path) -> None:
    other = gmdb.connect(path)
    row_id = table.insert("t", (1, "a"))
    assert (found(other, 1), found(table, 1)) == ([], [(1, "a")])
    table.commit()
    assert found(other, 1) == [(1, "a")]
    table.heap("t").update(row_id, {"k": 2})
    assert (found(other, 1), found(other, 2)) == ([(1, "a")], [])
    assert (found(table, 1), found(table, 2)) == ([], [(2, "a")])
    table.commit()
    assert (found(other, 1), found(other, 2)) == ([], [(2, "a")])
    table.heap("t").delete(row_id)
    table.rollback()
    assert found(table, 2) == [(2, "a")]
    table.heap("t").delete(row_id)
    table.commit()
    assert found(other, 2) == []
    other.close()
    table.gc()
    check_indexes(table, "t")


def test_a_duplicate_is_refused_and_the_statement_leaves_no_trace(table: Connection) -> None:
    row_id = table.insert("t", (1, "a"))
    table.insert("t", (2, "b"))
    table.commit()
    with pytest.raises(UniqueViolation, match=rf"table t, index t_k \(k\): row {row_id} has the same key already"):
        table.insert("t", (1, "again"))
    with pytest.raises(UniqueViolation):
        table.update("t", {"k": 1}, lambda row: row["k"] == 2)
    with pytest.raises(UniqueViolation):
        table.append("t", pa.table({"k": pa.array([7, 8, 2], pa.int32()), "s": ["x"] * 3}))
    assert [found(table, n) for n in (1, 2, 7, 8)] == [[(1, "a")], [(2, "b")], [], []]
    table.commit()
    table.gc()
    check_indexes(table, "t")


def test_nulls_are_no_duplicates_and_find_each_other(table: Connection) -> None:
    for text in "ab":
        table.insert("t", (None, text))
    assert found(table, None) == [(None, "a"), (None, "b")]


def test_a_key_that_another_transaction_may_give_up_is_waited_for(table: Connection, path: Path) -> None:
    other = gmdb.connect(path, lock_timeout=10)
    table.insert("t", (1, "a"))
    done: list[object] = []
    waiting = threading.Thread(target=lambda: done.append(other.insert("t", (1, "b"))))
    waiting.start()
    waiting.join(0.3)
    assert not done, "it did not wait"
    table.rollback()
    waiting.join(10)
    assert done
    other.commit()
    other.close()
    impatient = gmdb.connect(path, lock_timeout=0.1)
    table.insert("t", (9, "a"))
    with pytest.raises(LockTimeout):
        impatient.insert("t", (9, "b"))
    impatient.close()


def test_more_rows_with_one_key_than_a_call_gives_out_are_all_found(db: Connection) -> None:
    db.create_table("t", COLUMNS)
    db.create_index("t_k", "t", ["k"], using="hash")
    db.commit()
    for n in range(3000):
        db.insert("t", (n % 2, f"{n}"))
    assert found(db, 1) == sorted((1, f"{n}") for n in range(1, 3000, 2))
    db.rollback()
    assert found(db, 1) == []
    db.commit()
    db.gc()
    check_indexes(db, "t")


def test_ranges_and_parts_of_keys_are_refused_with_advice(table: Connection) -> None:
    table.create_index("t_both", "t", ["k", "s"], using="hash")
    table.commit()
    by = table.heap("t").by("t_both")
    with pytest.raises(NotSupportedError, match=r"index t_both finds single keys only; .* use a B-tree index"):
        by.range()
    for key in ((1,), (), (1, "a", 2)):
        with pytest.raises(NotSupportedError, match=rf"by all of its 2 columns, not by {len(key)}; .* B-tree"):
            by.find(key)
    with pytest.raises(SchemaError, match="there is no kind 'bitmap' of index, only btree and hash"):
        table.create_index("x", "t", ["k"], using="bitmap")


def undo_operations(db: Connection) -> Iterator[int]:
    store = db._database.store
    for page_id in Segment(store, store.spaces[1], UNDO_ENTRY).page_ids().tolist():
        page = bytes(store.devices[device_of(page_id)].memory(offset_of(page_id)))
        assert UNDO_HEAD.at(page, NODE_AT).slot_count == len(record_extents(page))
        yield from (UNDO_RECORD.at(page, offset).op_type for offset, _, _ in record_extents(page))


def test_undo_tells_a_hash_indexs_entries_from_a_b_trees(table: Connection) -> None:
    table._database.transactions.stop()
    row_id = table.insert("t", (1, "a"))
    table.heap("t").update(row_id, {"k": 2})
    assert {UndoOperation.HASH_INSERT, UndoOperation.HASH_DELETE} <= set(undo_operations(table))
    table.create_index("t_s", "t", ["s"])
    table.commit()
    table.insert("t", (3, "b"))
    assert UndoOperation.BTREE_INSERT in set(undo_operations(table))
    table.rollback()


FIRST, SECOND, ALL = 0x2545_F491_4F6C_DD1D, -0x4B47_D0C5_C0D3_2F4B, (1 << 64) - 1


def unmix(state: int) -> int:
    """What the hash's state was before a word was mixed in, xor that word."""
    state ^= state >> 32
    state = state * pow(SECOND, -1, 1 << 64) & ALL
    state ^= state >> 29 ^ state >> 58
    return state * pow(FIRST, -1, 1 << 64) & ALL


def mix(state: int, word: int) -> int:
    state = (state ^ word) * FIRST & ALL
    state ^= state >> 29
    state = state * SECOND & ALL
    return state ^ state >> 32


def keys_that_clash(count: int, length: int) -> list[bytes]:
    """Keys of a VARBINARY column, of whole words, with the same 40 bits of hash."""
    before = mix(0, length)
    for _ in range(length // 8 - 1):
        before = mix(before, int.from_bytes(b"12345678", "little"))
    last = [unmix(unmix(0xABCDEF_1234 << 24 | n)) ^ before for n in range(count)]
    return [b"12345678" * (length // 8 - 1) + word.to_bytes(8, "little") for word in last]


def test_keys_with_the_same_hash_are_told_apart(db: Connection) -> None:
    db.create_table("t", {"n": "INT", "k": "VARBINARY(2000)"})
    db.create_index("t_k", "t", ["k"], unique=True, using="hash")
    db.commit()
    keys = keys_that_clash(60, 1600)
    row_ids = [db.insert("t", (n, key)) for n, key in enumerate(keys)]
    for n, key in enumerate(keys):
        assert found(db, key) == [(n, key)]
        with pytest.raises(UniqueViolation):
            db.insert("t", (100, key))
    for row_id in row_ids[::2]:
        db.heap("t").delete(row_id)
    db.commit()
    db.gc()
    check_indexes(db, "t")
    assert [len(found(db, key)) for key in keys] == [0, 1] * 30


def test_a_row_whose_versions_have_more_keys_of_one_hash_than_a_bucket_takes_is_refused(db: Connection) -> None:
    db.create_table("t", {"n": "INT", "k": "VARBINARY(2000)"})
    db.create_index("t_k", "t", ["k"], using="hash")
    db.commit()
    keys = keys_that_clash(6, 1992)
    row_id = db.insert("t", (0, keys[0]))
    for n in (1, 2):
        db.heap("t").update(row_id, {"n": n, "k": keys[n]})
    with pytest.raises(ValueTooLong, match="several long keys of the row's versions have the same hash; commit"):
        db.heap("t").update(row_id, {"n": 3, "k": keys[3]})
    assert [found(db, key) for key in keys[:4]] == [[], [], [(2, keys[2])], []]
    db.commit()
    db.gc()
    check_indexes(db, "t")
    db.heap("t").update(row_id, {"k": keys[5]})
    assert len(found(db, keys[5])) == 1


def test_indexes_are_there_after_the_database_was_closed(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", COLUMNS)
        db.create_index("t_s", "t", ["s", "k"], using="hash")
        db.commit()
        for n in range(2000):
            db.insert("t", (n, f"{n % 7}"))
    with gmdb.connect(path) as db:
        assert [index.using for index in db.table("t").indexes] == ["hash"]
        assert found(db, "3", 10, index="t_s") == [(10, "3")]
        check_indexes(db, "t")
        db.drop_index("t_s")
    with gmdb.connect(path) as db:
        assert db.table("t").indexes == ()


def test_a_database_from_before_indexes_had_kinds_gets_the_column(path: Path) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", COLUMNS)
        db.create_index("t_k", "t", ["k"])
        db.commit()
        db.insert("t", (1, "a"))
        db.commit()
        indexes, columns = db.heap("sys_indexes"), db.heap("sys_columns")
        (row_id, values), *_ = indexes.rows()
        indexes.delete(row_id)
        indexes.encode = RowCodec(SYS_INDEXES_COLUMNS[:6]).encode
        indexes.insert(values[:6])
        for row_id, values in list(columns.rows()):
            if values[0] == SYS_INDEXES_ID and values[1] >= 6:
                columns.delete(row_id)
    for _ in range(2):
        with gmdb.connect(path) as db:
            assert [index.using for index in db.table("t").indexes] == ["btree"]
            assert [column.name for column in db.table("sys_indexes").columns][-3:] == ["positions", "kind", "options"]
            assert found(db, 1) == [(1, "a")]
    with gmdb.connect(path) as db:
        db.create_index("t_h", "t", ["k"], using="hash")
        db.commit()
        rows = db.arrow("sys_indexes").read_all().to_pylist()
        assert {row["name"]: row["kind"] for row in rows} == {"t_k": None, "t_h": "hash"}
