"""Ways to rows that programs seldom take: a key at once, some row ids, values in odd orders, closed objects."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import MappingProxyType

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    Corruption,
    DataError,
    InterfaceError,
    NoSuchColumn,
    NoSuchRow,
    NotSupportedError,
    RowLocked,
    SchemaError,
    TypeMismatch,
    UniqueViolation,
    ValueTooLong,
    WriteConflict,
)
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.storage.directory import device_path
from gmdb.storage.store import Segment
from gmdb.tables.access import index_build
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.index_entries import BTreeIndex
from gmdb.tables.access.indexes import KeyCodec
from tests.sessions import Connect, answer, connect, in_thread, until  # noqa: F401

COLUMNS = {"k": "INT", "a": "INT", "s": "VARCHAR(3000)"}


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.create_table("t", COLUMNS)
    db.create_index("by_k", "t", ["k"])
    db.create_index("by_ka", "t", ["k", "a"], using="hash")
    for number in range(30):
        db.insert("t", (number // 2, number, "x"))
    db.insert("t", (100, 100, "alone"))
    db.commit()
    return db.heap("t")


# ---- a row changed by its key, at once


def test_a_row_is_changed_by_its_key_only_if_nothing_has_to_be_waited_for(
    db: Connection,
    heap: Heap,
    connect: Connect,  # noqa: F811
) -> None:
    keyed, patch = heap.by("by_k"), heap.patch_encoder(["a"])
    assert keyed.change_at_once((100,), lambda _: patch((1,))) == -1  # no transaction is open yet
    db.insert("t", (200, 200, None))
    assert keyed.change_at_once((100,), lambda row: patch((row[1] + 1,))) == 1
    assert keyed.find((100,))[0][1] == (100, 101, "alone")
    assert keyed.change_at_once((-1,), lambda _: patch((1,))) == 0
    db._database.store.scans += 1  # as while somebody scans: then scans are given way to
    assert keyed.change_at_once((100,), lambda row: patch((row[1],))) == 1
    db._database.store.scans -= 1
    assert keyed.change_at_once((3,), lambda _: patch((1,))) == -1  # there are two
    db.commit()
    other = connect()
    other.heap("t").lock(heap.by("by_k").find((100,))[0][0])
    db.insert("t", (201, 201, None))
    assert keyed.change_at_once((100,), lambda _: patch((1,))) == -1
    db.rollback()


def test_patches_take_columns_in_any_order(db: Connection, heap: Heap) -> None:
    row_id, _ = heap.by("by_k").find((100,))[0]
    db.insert("t", (300, 300, None))
    for names, values in ((["a"], (1,)), (["a", "s"], (2, "two")), (["s", "k", "a"], ("three", 100, 3))):
        patch = heap.patch_encoder(names)(values)
        assert heap.by("by_k").change_at_once((100,), lambda _, patch=patch: patch) == 1
        assert {**dict(zip("kas", heap.fetch(row_id), strict=True))} | dict(zip(names, values, strict=True)) == dict(
            zip("kas", heap.fetch(row_id), strict=True)
        )
    with pytest.raises(NoSuchColumn, match="has no column z"):
        heap.patch_encoder(["z"])
    with pytest.raises(NoSuchColumn):
        heap.update(row_id, {"z": 1})
    with pytest.raises(DataError, match="2 values for 3 columns"):
        heap.update(row_id, (1, 2))
    heap.update(row_id, (100, 4, "four"))
    assert heap.fetch(row_id) == (100, 4, "four")
    heap.update(row_id, MappingProxyType({"a": 5}))
    assert heap.fetch(row_id) == (100, 5, "four")


# ---- keys


def test_a_key_that_no_entry_can_have_finds_nothing_and_a_wrong_one_is_refused(db: Connection, heap: Heap) -> None:
    db.create_index("by_s", "t", ["s"])
    assert heap.by("by_s").find(("x" * 2900,)) == []
    assert len(heap.by("by_s").find(("x",))) == 30
    for key in ((), (1, 2)):
        with pytest.raises(DataError, match="a key has 1 to 1 values"):
            heap.by("by_k").find(key)
    with pytest.raises(NotSupportedError, match="all of its 2 columns"):
        heap.by("by_ka").find((1,))
    with pytest.raises(NotSupportedError, match="single keys only"):
        list(heap.by("by_ka").range((1, 1), (2, 2)))
    with pytest.raises(NotSupportedError, match="all of its 2 columns"):
        list(heap.by("by_ka").range((1,), (1,)))
    codec = KeyCodec(heap.by("by_ka").tree.columns)
    assert codec.decode(codec.encode((1, 2)), 2) == (1, 2)
    with pytest.raises(SchemaError, match="an index has 1 to"):
        BTreeIndex(heap.segment, [])


def test_a_range_that_was_asked_for_is_read_by_the_index_as_it_is_then(db: Connection, heap: Heap) -> None:
    rows, keyed = heap.by("by_k").range((100,), (100,)), heap.by("by_k")
    db.drop_index("by_k")
    db.create_index("by_k", "t", ["k"])
    assert [values for _, values in rows] == [(100, 100, "alone")]
    db.drop_index("by_k")
    with pytest.raises(SchemaError, match="has no index by_k"):
        keyed.find((1,))


def test_reads_under_autocommit_leave_no_transaction(heap: Heap, connect: Connect) -> None:  # noqa: F811
    session = connect(autocommit=True)
    found = session.heap("t").by("by_k").find((100,))
    assert not session.in_transaction
    assert session.heap("t").fetch(found[0][0]) == (100, 100, "alone")
    assert session.heap("t").by("by_k").find((-5,)) == []
    assert list(session.heap("t").rows_at([found[0][0], RowId(found[0][0].page_id, 5000)])) == found
    assert len(list(session.heap("t").encoded_rows())) == len(list(heap.rows()))
    assert not session.in_transaction


def test_a_key_is_looked_up_while_others_hold_the_guard(db: Connection, heap: Heap) -> None:
    keyed = heap.by("by_k")
    keyed.find((1,))
    with db._database.store.guard:
        looking = in_thread(lambda: keyed.find((100,)))
        assert not looking.done()
    assert [values for _, values in answer(looking)] == [(100, 100, "alone")]


@pytest.mark.usefixtures("heap")
def test_a_session_that_was_closed_finds_no_key(connect: Connect) -> None:  # noqa: F811
    session = connect()
    keyed = session.heap("t").by("by_k")
    keyed.find((100,))
    session.close()
    with pytest.raises(InterfaceError):
        keyed.find((100,))


def test_statements_find_rows_by_their_ids(heap: Heap) -> None:
    row_id, values = heap.by("by_k").find((100,))[0]
    heap.insert((500, 500, None))
    with heap.statement() as steps:
        assert list(steps.rows_at([row_id, RowId(row_id.page_id, 6000)])) == [(row_id, values)]
        assert [found for _, found in steps.rows_by("by_k", gmdb.KeyRange((100,), (100,)))] == [values]


def test_rows_that_others_hold_are_skipped_or_refused(heap: Heap, connect: Connect) -> None:  # noqa: F811
    other = connect()
    row_id, _ = heap.by("by_k").find((100,))[0]
    other.heap("t").lock(row_id)
    session = connect()
    assert len(session.select_for_update("t", lambda row: row["k"] >= 14, skip_locked=True)) == 2
    with pytest.raises(RowLocked):
        session.select_for_update("t", nowait=True)


def test_a_statement_that_undoes_its_own_rows_is_told_so(db: Connection, heap: Heap) -> None:
    """Its function has changed the row that it is asked about: to start over would not help."""
    row_id, _ = heap.by("by_k").find((100,))[0]
    db.commit()

    def change(_: dict[str, int]) -> dict[str, int]:
        heap.delete(row_id)
        return {"a": 0}

    with pytest.raises(InterfaceError, match="by the statement's own function"):
        db.update("t", change, lambda row: row["k"] == 100)
    assert heap.fetch(row_id) == (100, 100, "alone")


@pytest.mark.usefixtures("heap")
def test_under_repeatable_read_a_row_that_has_changed_is_a_conflict(
    db: Connection,
    connect: Connect,  # noqa: F811
) -> None:
    session = connect(isolation="repeatable read")
    assert len(list(session.heap("t").rows())) == 31
    db.update("t", {"a": -1}, lambda row: row["k"] == 100)
    db.commit()
    with pytest.raises(WriteConflict):
        session.update("t", {"a": -2}, lambda row: row["k"] == 100)


# ---- building indexes


def test_an_index_that_rows_do_not_allow_is_refused(db: Connection, heap: Heap) -> None:
    with pytest.raises(UniqueViolation, match="two rows have the same key"):
        db.create_index("unique_k", "t", ["k"], unique=True)
    heap.insert((900, 900, "y" * 2900))
    with pytest.raises(ValueTooLong, match="a key has at most"):
        db.create_index("by_s", "t", ["s"])
    db.rollback()
    assert [index.name for index in db.table("t").indexes] == ["by_k", "by_ka"]


def test_runs_of_a_large_table_lie_in_a_file(db: Connection, heap: Heap, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_build, "MEMORY_MAX", 0)
    db.create_index("by_a", "t", ["a"])
    assert [values[1] for _, values in heap.by("by_a").range()] == [*range(30), 100]
    assert not [file for file in os.listdir(db.path) if file.startswith("tmp")]


# ---- large objects


@pytest.fixture
def lobs(db: Connection) -> Heap:
    db.create_table("l", {"k": "INT", "b": "BLOB", "c": "CLOB"})
    return db.heap("l")


def test_large_objects_are_given_in_every_way(db: Connection, lobs: Heap, connect: Connect) -> None:  # noqa: F811
    data = os.urandom(20_000)
    row_id = lobs.insert((1, memoryview(data), io.StringIO("text" * 1000)))
    assert lobs.fetch(row_id) == (1, data, "text" * 1000)
    lobs.update(row_id, (2, data[::-1], "é" * 3000))
    assert lobs.fetch(row_id) == (2, data[::-1], "é" * 3000)
    with pytest.raises(TypeMismatch, match="is not a str"):
        lobs.insert((3, None, data))
    for bad in (5, object()):
        with pytest.raises(TypeMismatch):
            lobs.insert((3, None, bad))
        with pytest.raises(TypeMismatch):
            lobs.insert((3, bad, None))
    db.commit()
    with pytest.raises(NoSuchRow):
        lobs.update(RowId(row_id.page_id, 7000), {"b": data})
    with pytest.raises(NoSuchRow):
        lobs.fetch(RowId(row_id.page_id, 7000))
    other = connect(lock_timeout=60)
    other.heap("l").update(row_id, {"k": 3})
    waiting = in_thread(lambda: lobs.update(row_id, {"b": data}))
    until(lambda: db.session.hub.waits.is_waiting(db.session))
    other.commit()
    answer(waiting)  # it goes by what was committed meanwhile
    assert lobs.fetch(row_id) == (3, data, "é" * 3000)


def test_an_open_large_object_is_a_file_until_it_is_closed(db: Connection, lobs: Heap) -> None:
    data = os.urandom(20_000)
    row_id = lobs.insert((1, data, None))
    file = db.open_lob("l", "b", row_id)
    assert file.seek(-5, os.SEEK_END) == 19_995
    assert file.read() == data[-5:]
    with pytest.raises(ValueError, match="whence 9 is not"):
        file.raw.seek(0, 9)
    with pytest.raises(ValueError, match="before the beginning"):
        file.raw.seek(-1)
    raw = file.raw
    file.close()
    raw.close()
    with pytest.raises((InterfaceError, ValueError)):
        raw.readinto(bytearray(5))
    with pytest.raises(DataError, match="is NULL"):
        db.open_lob("l", "c", row_id)
    with pytest.raises(SchemaError, match="not BLOB or CLOB"):
        db.open_lob("l", "k", row_id)
    with pytest.raises(NoSuchColumn):
        db.open_lob("l", "z", row_id)
    with pytest.raises(NoSuchRow):
        db.open_lob("l", "b", RowId(row_id.page_id, 7000))


# ---- damage


@pytest.mark.parametrize("way", ["fetch", "find", "update", "lob"])
def test_a_page_of_noise_is_damage_by_every_way(path: Path, way: str) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT", "b": "BLOB"} if way == "lob" else {"k": "INT", "s": "VARCHAR(10)"})
        db.create_index("by_k", "t", ["k"])
        row_id = db.insert("t", (1, os.urandom(9000) if way == "lob" else "x"))
        db.commit()
        definition = db.table("t")
        pages = db.heap("t").segment.page_ids().tolist()
        if way == "lob":
            pages = (
                Segment(db._database.store, db.heap("t").segment.space, definition.lobs.entry_page).page_ids().tolist()
            )
        elif way == "find":
            pages = db.heap("t").by("by_k").tree.segment.page_ids().tolist()
    for page_id in pages:
        with device_path(path, device_of(page_id)).open("r+b") as file:
            file.seek(offset_of(page_id) * 8192 + 200)
            file.write(os.urandom(500))
    with gmdb.connect(path) as db:
        heap = db.heap("t")
        reading = {
            "fetch": lambda: heap.fetch(row_id),
            "find": lambda: heap.by("by_k").find((1,)),
            "update": lambda: heap.update(row_id, {"k": 2}),
            "lob": lambda: heap.fetch(row_id),
        }
        with pytest.raises(Corruption):
            reading[way]()
        db.rollback()
