"""What guards what: the rules of docs/invariants.md that no other test is about."""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import InterfaceError, LockTimeout, NoSuchRow
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.storage.device import device_state
from gmdb.tables.access.heap import Heap
from tests.sessions import (
    PATIENCE,
    Connect,
    answer,
    in_thread,
    page_bytes,
    row_state,
    start_waiting,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def rows(db: Connection, heap: Heap) -> list[RowId]:
    made = [heap.insert((n, 10)) for n in range(300)]
    db.commit()
    db.gc()
    return made


def total(session: Connection) -> int:
    return sum(session.arrow("t", ["value"]).read_all()["value"].to_pylist())


def pages_of(heap: Heap) -> int:
    return len(heap.segment.page_ids())


# ---- the guard


@pytest.mark.parametrize(
    "change",
    [
        lambda db, _: db.heap("t").insert((0, 0)),
        lambda db, row_id: db.heap("t").update(row_id, {"value": 1}),
        lambda db, row_id: db.heap("t").delete(row_id),
        lambda db, row_id: db.heap("t").lock(row_id),
        lambda db, _: db.append("t", pa.table({"id": pa.array([1], pa.int32()), "value": pa.array([1], pa.int32())})),
        lambda db, _: db.create_table(f"u{len(db.tables())}", {"i": "INT"}),
        lambda db, _: db.gc(),
    ],
    ids=["insert", "update", "delete", "lock", "append", "create table", "gc"],
)
def test_no_page_changes_while_somebody_holds_the_guard(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect, change: Callable[[Connection, RowId], object]
) -> None:
    heap.update(rows[0], {"value": 5})
    other = connect(lock_timeout=PATIENCE)
    change(other, rows[1])  # so that its kernel is compiled
    other.rollback()
    with db._database.store.guard:
        db.commit()
        before = page_bytes(db, rows[0].page_id)
        future = in_thread(lambda: change(other, rows[0]))
        time.sleep(0.02)
        assert not future.done()
        assert page_bytes(db, rows[0].page_id) == before
    answer(future)


def test_threads_that_change_neighbours_on_a_page_lose_nothing(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    def count_up(session: Connection, row_id: RowId) -> None:
        heap = session.heap("t")
        for _ in range(200):
            heap.update(row_id, {"value": heap.fetch(row_id)[1] + 1})
            session.commit()

    sessions = [connect() for _ in range(4)]
    work = [in_thread(partial(count_up, session, row_id)) for session, row_id in zip(sessions, rows, strict=False)]
    for future in work:
        answer(future)
    assert [db.heap("t").fetch(row_id)[1] for row_id in rows[:5]] == [210, 210, 210, 210, 10]


# ---- page versions


def version_of(db: Connection, page_id: int) -> np.ndarray:
    """The page's entry in the table of versions."""
    state = device_state(db._database.store._area, device_of(page_id))
    address = state.versions + 4 * offset_of(page_id)
    return np.ctypeslib.as_array((ctypes.c_uint32 * 1).from_address(address))


def test_a_scan_waits_while_a_page_is_being_changed(db: Connection, rows: list[RowId], connect: Connect) -> None:
    version, other = version_of(db, rows[0].page_id), connect()
    assert total(other) == 3000
    assert version[0] % 2 == 0
    with db._database.store.guard:  # as whoever changes a page holds it: a scan looks for some time, then asks for it
        version[0] += 1
        try:
            future = in_thread(lambda: total(other))
            time.sleep(0.05)
            assert not future.done()
        finally:
            version[0] += 1
    assert answer(future) == 3000


def test_every_change_of_a_page_moves_its_version_on_and_leaves_it_even(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    version = version_of(db, rows[0].page_id)
    connect("repeatable read").heap("t").fetch(rows[0])
    for change in (
        lambda: heap.update(rows[0], {"value": 1}),
        lambda: heap.lock(rows[1]),
        lambda: heap.delete(rows[2]),
        db.rollback,
    ):
        before = int(version[0])
        change()
        assert int(version[0]) > before
        assert int(version[0]) % 2 == 0


@pytest.mark.usefixtures("rows")
def test_a_scan_needs_no_guard_to_read_pages(db: Connection, connect: Connect) -> None:
    batches = connect().arrow("t")
    with db._database.store.guard:
        batch = answer(in_thread(batches.read_next_batch))
    assert batch.num_rows == 300
    with pytest.raises(StopIteration):
        batches.read_next_batch()


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_scan_beside_writers_sees_whole_transactions_only(
    rows: list[RowId], connect: Connect, isolation: str
) -> None:
    stop = threading.Event()

    def move(session: Connection, numbers: range) -> None:
        heap = session.heap("t")
        while not stop.is_set():
            for n in numbers:
                heap.update(rows[n], {"value": heap.fetch(rows[n])[1] - 7})
                heap.update(rows[299 - n], {"value": heap.fetch(rows[299 - n])[1] + 7})
                session.rollback() if n % 5 == 0 else session.commit()

    work = [partial(move, connect(lock_timeout=PATIENCE), numbers) for numbers in (range(75), range(75, 150))]
    writers = [in_thread(work_of_one) for work_of_one in work]
    reader = connect(isolation)
    deadline = time.monotonic() + 0.3
    sums = set()
    while time.monotonic() < deadline:
        sums.add(total(reader))
        sums.add(sum(values[1] for _, values in reader.heap("t").rows()))
        reader.commit()
    stop.set()
    for writer in writers:
        answer(writer)
    assert sums == {3000}


# ---- snapshots and garbage


@pytest.mark.usefixtures("rows")
@pytest.mark.usefixtures("heap")
def test_a_reader_keeps_what_it_needs_and_lets_it_go_when_it_ends(db: Connection, connect: Connect) -> None:
    reader = connect("repeatable read")
    assert total(reader) == 3000
    for n in range(20):
        db.update("t", {"value": n})
        db.commit()
        db.gc()
    assert total(reader) == 3000
    assert db.locks().num_rows > 0
    reader.commit()
    db.gc()
    assert db.locks().num_rows == 0


@pytest.mark.usefixtures("heap")
def test_a_reader_holds_back_only_what_is_newer_than_its_snapshot(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    for n in range(5):
        db.update("t", {"value": n})
        db.commit()
    reader = connect("repeatable read")
    reader.heap("t").fetch(rows[0])
    db.gc()
    assert db.locks().num_rows == 0


def test_rows_that_are_deleted_for_everyone_give_their_pages_back(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    more = [heap.insert((n, 0)) for n in range(1000)]
    db.commit()
    before = pages_of(heap)
    reader = connect("repeatable read")
    reader.heap("t").fetch(rows[0])
    db.delete("t")
    db.commit()
    db.gc()
    assert pages_of(heap) == before
    assert reader.heap("t").fetch(more[0]) == (0, 0)
    reader.commit()
    db.gc()
    assert pages_of(heap) <= 1
    with pytest.raises(NoSuchRow):
        heap.fetch(more[0])


@pytest.mark.usefixtures("db")
def test_a_cursor_does_not_see_what_its_transaction_does_later(heap: Heap, rows: list[RowId]) -> None:
    heap.update(rows[299], {"value": 1})
    seen = []
    for row_id, (_, value) in heap.rows():
        seen.append(value)
        if row_id != rows[298]:
            heap.update(row_id, {"value": -1})
        if row_id == rows[0]:
            heap.update(rows[299], {"value": 2})
            heap.delete(rows[298])
            heap.insert((300, 3))
    assert seen == [*[10] * 299, 1]


@pytest.mark.usefixtures("heap")
@pytest.mark.parametrize("end", ["commit", "rollback"])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_cursor_that_outlives_its_transaction_keeps_its_instant_or_says_that_it_cannot(
    db: Connection, rows: list[RowId], connect: Connect, isolation: str, end: str
) -> None:
    reader = connect(isolation)
    for _ in range(5):
        reader.heap("t").update(rows[1], {"value": 10})
    cursor, batches = reader.heap("t").rows(), reader.arrow("t", ["value"])
    next(cursor)
    getattr(reader, end)()
    db.gc()
    writer = connect()  # it may get the slot that the reader's transaction had
    writer.heap("t").update(rows[299], {"value": 99})
    for finish in (
        lambda: [values[1] for _, values in cursor][-1],
        lambda: batches.read_all()["value"].to_pylist()[-1],
    ):
        assert _value_or_refusal(finish) in (10, "refused")
    writer.commit()
    db.gc()


def test_a_cursor_that_saw_only_locks_does_not_take_another_transactions_changes_for_its_own(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    reader = connect("read committed")
    reader.heap("t").lock(rows[1])
    cursor, batches = reader.heap("t").rows(), reader.arrow("t", ["value"])
    next(cursor)
    before = db.heap("t").fetch(rows[299])[1]
    reader.rollback()
    db.gc()
    writer = connect()  # it gets the slot that the reader's transaction had
    writer.heap("t").update(rows[299], {"value": 99})
    assert [values[1] for _, values in cursor][-1] == before
    assert batches.read_all()["value"].to_pylist()[-1] == before
    writer.commit()


def _value_or_refusal(read: Callable[[], int]) -> int | str:
    try:
        return read()
    except InterfaceError:
        return "refused"


# ---- locks


def test_a_lock_id_that_is_purged_is_in_no_undo_image(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    """Else a rollback would put the lock of a stranger, who has the id now, on the row."""
    reader, second, stranger, late = connect("repeatable read"), connect(), connect(), connect()
    reader.heap("t").fetch(rows[0])
    heap.update(rows[0], {"value": 1})
    db.commit()
    second.heap("t").update(rows[0], {"value": 2})
    reader.commit()
    assert db.gc() == 1
    for row_id in rows[1:4]:
        stranger.heap("t").update(row_id, {"value": 3})
    second.rollback()
    assert row_state(db, rows[0]) == ("none", "none")
    assert late.heap("t").fetch(rows[0]) == (0, 1)
    late.heap("t").update(rows[0], {"value": 4})


@pytest.mark.usefixtures("connect")
def test_a_writer_saves_no_lock_that_everybody_sees(db: Connection, heap: Heap, rows: list[RowId]) -> None:
    heap.update(rows[0], {"value": 1})
    db.commit()
    db._database.transactions.snapshots.oldest()
    heap.update(rows[0], {"value": 2})
    newest = max(db.locks().to_pylist(), key=lambda lock: lock["transaction"])
    assert newest["previous"] == 0xFFFFFF


def test_a_statement_that_others_keep_changing_rows_under_comes_to_an_end(
    db: Connection, rows: list[RowId], connect: Connect
) -> None:
    busy = connect(lock_timeout=0.01)
    outcomes = []

    def disturb(row: dict[str, int]) -> dict[str, int]:
        if row["id"] == 0 and len(outcomes) < 10:
            try:
                busy.update("t", lambda found: {"value": found["value"] + 100}, where=lambda found: found["id"] < 2)
                busy.commit()
                outcomes.append("changed")
            except LockTimeout:
                outcomes.append("held off")
        return {"value": row["value"] + 1}

    assert db.update("t", disturb, where=lambda row: row["id"] < 3) == 3
    db.commit()
    assert outcomes == ["changed", "changed", "held off"]
    assert [db.heap("t").fetch(row_id)[1] for row_id in rows[:3]] == [211, 211, 11]


def test_an_update_meets_no_row_twice_however_far_it_moves(db: Connection) -> None:
    db.create_table("wide", {"id": "INT", "n": "INT", "s": "VARCHAR(4000)"})
    db.commit()
    for n in range(50):
        db.insert("wide", (n, 0, "x" * 500))
    assert db.update("wide", lambda row: {"n": row["n"] + 1, "s": "y" * 3000}) == 50
    assert {values[1] for _, values in db.heap("wide").rows()} == {1}


def test_a_connection_that_is_closed_while_it_waits_says_so(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    heap.update(rows[0], {"value": 1})
    other = connect(lock_timeout=PATIENCE)
    waiting = start_waiting(other, lambda: other.heap("t").update(rows[0], {"value": 2}))
    other.close()
    with pytest.raises(InterfaceError, match="closed"):
        answer(waiting)
    db.commit()
    assert heap.fetch(rows[0]) == (0, 1)


def test_garbage_is_collected_while_pages_are_flushed(db: Connection, heap: Heap, rows: list[RowId]) -> None:
    """The collector waits for the guard, and whoever flushes for the collector: in one order only."""
    for n in range(50):
        heap.update(rows[n], {"value": n})
        db.commit()
    collecting = in_thread(lambda: [db._database.transactions.collector.collect() for _ in range(300)])
    flushing = in_thread(lambda: [db.checkpoint() for _ in range(30)])
    answer(collecting)
    answer(flushing)


# ---- bulk loads


def test_a_load_is_seen_whole_or_not_at_all(db: Connection, heap: Heap, connect: Connect) -> None:
    count = 50_000
    old, other = connect("repeatable read"), connect()
    assert total(old) == 0
    data = pa.table({"id": pa.array(range(count), pa.int32()), "value": pa.array([1] * count, pa.int32())})
    db.append("t", data)
    assert (total(db), total(other), total(old)) == (count, 0, 0)
    assert db.session.mark() < 10  # undo records, for ranges of pages
    db.commit()
    assert (total(db), total(other), total(old)) == (count, count, 0)
    row_id = next(heap.rows())[0]
    heap.update(row_id, {"value": 5})
    db.commit()
    assert (total(other), total(old)) == (count + 4, 0)


def test_a_load_that_is_rolled_back_gives_its_pages_back(db: Connection, heap: Heap) -> None:
    before = pages_of(heap)
    data = pa.table({"id": pa.array(range(9999), pa.int32()), "value": pa.array([1] * 9999, pa.int32())})
    db.append("t", data)
    db.rollback()
    db.gc()
    assert total(db) == 0
    assert pages_of(heap) <= before + 1


# ---- the document


def test_every_test_that_the_rules_name_exists() -> None:
    text = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(test_\w+)`", text))
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    assert named
    assert sorted(name for name in named if f"def {name}(" not in sources) == []


def test_every_rule_names_a_test() -> None:
    text = (ROOT / "docs/invariants.md").read_text(encoding="utf-8")
    rules = re.findall(r"(?ms)^(\d+)\. (.*?)(?=^\d+\. |^#|\Z)", text)
    assert [int(number) for number, _ in rules] == list(range(1, len(rules) + 1))
    assert [number for number, rule in rules if "`test_" not in rule] == []


def test_a_lock_that_leads_to_the_undo_record_of_another_row_is_not_followed(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    heap.update(rows[0], {"value": 1})
    heap.update(rows[1], {"value": 2})
    by_slot = {lock["slot_id"]: lock["lock_id"] for lock in db.locks().to_pylist()}
    first, second = by_slot[rows[0].slot_id], by_slot[rows[1].slot_id]
    locks = db._database.transactions.memory.locks
    right = int(locks[first]["undo_slot"])
    locks[first]["undo_slot"] = locks[second]["undo_slot"]
    with pytest.raises(NoSuchRow):
        connect().heap("t").fetch(rows[0])
    locks[first]["undo_slot"] = right
    assert connect().heap("t").fetch(rows[0])[1] == 10
    db.rollback()
