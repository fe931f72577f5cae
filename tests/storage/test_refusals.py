"""What cannot be is refused, whoever says it: heads of devices, ids of pages, groups of the log, keys."""

from __future__ import annotations

import threading
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Corruption, DataError, InterfaceError, NotSupportedError, WriteConflict
from gmdb.format.address import FIRST_USER_DEVICE, page_id_of
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_SIZES
from gmdb.format.redo import REDO_GROUP, REDO_ITEM, RedoItem
from gmdb.kernel.locks import LOCKS_MAX
from gmdb.kernel.page.area import STATE
from gmdb.storage.directory import device_path
from gmdb.storage.log.checkpoint import _is_whole
from gmdb.storage.log.replay import _images
from gmdb.storage.pinned_pages import FrozenStore, read_locks
from gmdb.storage.pins import locks_path
from gmdb.tables.access.heap import Heap
from gmdb.tables.access.indexes import KeyRange
from tests.inspect.build import change_page
from tests.sessions import until

HEAD = page_id_of(FIRST_USER_DEVICE, 0)


@pytest.fixture
def closed(path: Path) -> Path:
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, k int, s varchar(20))")
        db.executemany("insert into t values (?, ?, ?)", [(n, n % 2, "x") for n in range(600)])
    return path


@pytest.fixture
def db(closed: Path):
    with gmdb.connect(closed) as db:
        yield db


# ---- heads of devices


def test_a_device_head_that_is_damaged(closed: Path) -> None:
    change_page(closed, HEAD, 100, b"\xff")
    with pytest.raises(Corruption, match="page 0, offset"):
        gmdb.connect(closed)


def test_a_device_of_more_pages_than_there_can_be(closed: Path) -> None:
    at = DEVICE_HEAD_AT + DEVICE_HEAD.offset("page_count")
    change_page(closed, HEAD, at, (1 << 30).to_bytes(4, "little"), sealed=True)
    with pytest.raises(Corruption):
        gmdb.connect(closed)


def test_a_device_of_a_tablespace_that_is_another_kind(closed: Path) -> None:
    at = SPACE_HEAD_AT + SPACE_HEAD.offset("space_id")
    change_page(closed, HEAD, at, (1).to_bytes(SPACE_HEAD.dtype["space_id"].itemsize, "little"), sealed=True)
    with pytest.raises(Corruption, match="it cannot be of tablespace 1"):
        gmdb.connect(closed)


# ---- pages that are named, and are not there


def test_a_page_of_a_device_that_is_not_there(db: Connection) -> None:
    store = db.heap("t").segment.store
    with pytest.raises(Corruption, match="does not exist"):
        store.space_of(page_id_of(900, 1))
    table = db.table("t")
    with pytest.raises(Corruption, match="lies in tablespace 99, which has no device"):
        Heap(store, db.session, lambda _: replace(table, space_id=99))


@pytest.mark.parametrize(
    ("page_id", "said"),
    [
        (page_id_of(900, 1), "does not exist"),
        (page_id_of(FIRST_USER_DEVICE, 1 << 20), "does not exist"),
        (page_id_of(FIRST_USER_DEVICE, 0), "is whole, but"),
    ],
)
def test_what_is_said_of_a_page_that_a_kernel_stumbled_over(db: Connection, page_id: int, said: str) -> None:
    db.checkpoint()
    store = db.heap("t").segment.store
    STATE.at(store._area).damaged_page = page_id
    with pytest.raises(Corruption, match=said):
        store.raise_damage()


def test_a_snapshot_of_what_cannot_be(db: Connection) -> None:
    pin = db.take_snapshot()
    for devices in ({FIRST_USER_DEVICE: 0}, {5000: 1}):
        with pytest.raises(Corruption, match="cannot be; load again"):
            FrozenStore(db.path, replace(pin, devices={**pin.devices, **devices}))
    file = locks_path(db.path, pin.name)
    raw = bytearray(np.array([1, 0], "<i8").tobytes()) + LOCKS_MAX.to_bytes(4, "little")
    file.write_bytes(raw + bytes(read_locks(Path("nowhere"))[0].dtype.itemsize))
    with pytest.raises(Corruption, match="is damaged; load again"):
        read_locks(file)


# ---- the log


def group_of(*items: tuple[int, int, bytes], length: int | None = None) -> bytes:
    body = b"".join(REDO_ITEM.pack(page_id=page, offset=at, length=len(raw)) + raw for page, at, raw in items)
    whole = REDO_GROUP.size + len(body) if length is None else length
    return REDO_GROUP.pack(length=whole) + body


def test_images_in_a_group_of_the_log() -> None:
    image = int(RedoItem.IMAGE)
    assert list(_images(group_of((7, 16, b"some bytes"), (8, image, b"a page"), (9, image, b"")))) == [
        (8, b"a page"),
        (9, b""),
    ]
    assert list(_images(group_of((8, image, b"a page"), length=REDO_GROUP.size + REDO_ITEM.size + 3))) == []


def test_a_copy_in_the_mirror_that_is_not_a_page() -> None:
    assert not _is_whole(bytes(100), 7, PAGE_SIZES[0])
    assert not _is_whole(bytes(100), 7, 100)
    assert not _is_whole(bytes(PAGE_SIZES[0]), 7, PAGE_SIZES[0])


# ---- keys and sessions


def test_keys_that_an_index_does_not_take(db: Connection) -> None:
    db.execute("create index t_h on t using hash (k)")
    db.execute("create table u (s varchar(4000))")
    db.execute("create index u_s on u (s)")
    with pytest.raises(NotSupportedError, match="finds single keys only"):
        list(db.select("t", by="t_h").rows())
    assert len(list(db.select("t", by="t_h", keys=KeyRange((1,), (1,))).rows())) == 300
    with pytest.raises(DataError, match="an index key has at most"):
        db.heap("u").by("u_s").tree.encode(("x" * 4000,))


def test_more_rows_of_a_key_than_are_found_at_once(db: Connection) -> None:
    db.execute("create index t_k on t (k)")
    assert len(db.heap("t").by("t_k").find((1,))) == 300


def test_a_session_that_is_closed_finds_nothing_more(closed: Path, db: Connection) -> None:
    other = gmdb.connect(closed)
    heap = other.heap("t")
    find = heap.by("t_pkey").find
    ((row_id, _),) = find((1,))
    other.commit()
    find((1,))  # by the definition that the session knows
    other.close()
    with pytest.raises(InterfaceError):
        find((1,))
    with pytest.raises(InterfaceError):
        heap.fetch(row_id)
    assert len(db.heap("t").by("t_pkey").find((1,))) == 1


def test_under_repeatable_read_a_statement_does_not_start_over(closed: Path, db: Connection) -> None:
    with gmdb.connect(closed, isolation="repeatable read") as other:
        assert other.execute("select k from t where i = 1").fetchall() == [(1,)]
        db.execute("update t set k = 5 where i = 1")
        db.commit()
        with pytest.raises(WriteConflict):
            other.update("t", {"k": 6}, lambda row: row["i"] == 1)
        other.rollback()


def test_an_insert_gives_way_to_scans_and_to_those_who_wait(closed: Path, db: Connection) -> None:
    heap = db.heap("t")
    heap.insert((1001, 0, "x"))
    store = heap.segment.store
    store.scans += 1
    try:
        heap.insert((1002, 0, "x"))
    finally:
        store.scans -= 1
    with gmdb.connect(closed) as holder, gmdb.connect(closed) as waiter:
        holder.execute("update t set k = 7 where i = 3")
        thread = threading.Thread(target=waiter.execute, args=("update t set k = 8 where i = 3",))
        thread.start()
        until(lambda: bool(db.session.hub.waits.queues))
        heap.insert((1003, 0, "x"))
        holder.commit()
        thread.join(60)
    assert db.execute("select count(*) from t where i > 1000").fetchall() == [(3,)]


def test_a_device_that_has_no_file(closed: Path) -> None:
    device_path(closed, FIRST_USER_DEVICE).unlink()
    with pytest.raises(gmdb.Error):
        gmdb.connect(closed)
