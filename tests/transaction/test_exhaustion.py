"""Lock ids or undo space running out: old snapshots are given up first, writers are refused last."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import LocksExhausted, SnapshotTooOld, Transient, UndoExhausted
from gmdb.format.address import UNDO_DEVICE, RowId
from gmdb.format.segment import SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.format.undo import UNDO_ENTRY
from gmdb.tables.access.heap import Heap
from tests.sessions import Connect, page_bytes

LOCKS, UNDO_PAGES = 50, 4


def undo_pages(db: Connection) -> int:
    return SEGMENT_HEAD.at(page_bytes(db, UNDO_ENTRY), SEGMENT_HEAD_AT).page_count


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.create_table("t", {"id": "INT", "s": "VARCHAR(2000)"})
    db.commit()
    return db.heap("t")


@pytest.fixture
def rows(db: Connection, heap: Heap) -> list[RowId]:
    made = [heap.insert((n, "a" * 1000)) for n in range(100)]
    db.commit()
    db.gc()
    return made


def limit(db: Connection, resource: str) -> None:
    memory = db._database.transactions.memory
    memory.set("lock_limit", LOCKS) if resource == "locks" else memory.set("undo_limit", UNDO_PAGES)


@pytest.fixture(params=["locks", "undo"])
def scarce(db: Connection, rows: list[RowId], request: pytest.FixtureRequest) -> str:
    """A database that is soon out of lock ids, or of undo space."""
    assert rows
    limit(db, request.param)
    return request.param


def churn(db: Connection, heap: Heap, rows: list[RowId], rounds: int = 5) -> None:
    """Far more work than the limits allow at once, in small transactions."""
    for n in range(rounds):
        for start in range(0, len(rows), 10):
            for row_id in rows[start : start + 10]:
                heap.update(row_id, {"s": chr(98 + n) * 1000})
            db.commit()


@pytest.mark.usefixtures("scarce")
def test_a_long_reader_gives_way_and_writers_go_on(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    reader = connect("repeatable read")
    assert reader.heap("t").fetch(rows[0])[1] == "a" * 1000
    churn(db, heap, rows)
    with pytest.raises(SnapshotTooOld, match="too old") as error:
        reader.heap("t").fetch(rows[1])
    assert isinstance(error.value, Transient)
    reader.rollback()
    assert reader.heap("t").fetch(rows[1]) == (1, "f" * 1000)


@pytest.mark.usefixtures("scarce")
@pytest.mark.parametrize(
    "read",
    [
        lambda reader: list(reader.heap("t").rows()),
        lambda reader: reader.arrow("t").read_all(),
        lambda reader: reader.update("t", {"s": "z"}),
        lambda reader: reader.select_for_update("t"),
    ],
    ids=["rows", "arrow", "update", "select for update"],
)
def test_every_kind_of_reading_notices_that_its_snapshot_is_gone(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect, read: Callable[[Connection], object]
) -> None:
    reader = connect("repeatable read")
    reader.heap("t").fetch(rows[0])
    churn(db, heap, rows)
    with pytest.raises(SnapshotTooOld):
        read(reader)


@pytest.mark.usefixtures("scarce")
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_scan_that_has_begun_hands_out_nothing_more_once_its_snapshot_is_gone(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect, isolation: str
) -> None:
    reader = connect(isolation)
    scan, batches = reader.heap("t").rows(), reader.arrow("t")
    first = next(scan)
    churn(db, heap, rows)

    def rest() -> Iterator[str]:
        yield first[1][1]
        for _, values in scan:
            yield values[1]

    seen = set()
    with pytest.raises(SnapshotTooOld):
        seen.update(rest())
    with pytest.raises(SnapshotTooOld):
        seen.update(row["s"] for row in batches.read_all().to_pylist())
    assert seen <= {"a" * 1000}


def test_only_the_oldest_snapshots_give_way(db: Connection, heap: Heap, rows: list[RowId], connect: Connect) -> None:
    limit(db, "locks")
    old, young = connect("repeatable read").heap("t"), connect("repeatable read").heap("t")
    old.fetch(rows[0])
    for row_id in rows[:40]:
        heap.update(row_id, {"s": "b"})
    db.commit()
    assert young.fetch(rows[0]) == (0, "b")
    for row_id in rows[:20]:
        heap.update(row_id, {"s": "c"})
    db.commit()
    with pytest.raises(SnapshotTooOld):
        old.fetch(rows[0])
    assert young.fetch(rows[0]) == (0, "b")


def test_an_open_transaction_that_needs_all_there_is_is_refused_and_loses_nothing(
    db: Connection, heap: Heap, rows: list[RowId], scarce: str
) -> None:
    expected = LocksExhausted if scarce == "locks" else UndoExhausted
    done = 0

    def change_everything_again_and_again() -> None:
        nonlocal done
        for n in range(10):
            for row_id in rows:
                heap.update(row_id, {"s": chr(98 + n) * 1000})
                done += 1

    with pytest.raises(expected, match="open transactions") as error:
        change_everything_again_and_again()
    assert isinstance(error.value, Transient)
    assert done >= LOCKS - 1 if scarce == "locks" else done > 50
    changed = min(done, len(rows))
    assert {heap.fetch(row_id)[1][0] for row_id in rows[:changed]} <= set("bcdefghijk")
    db.rollback()
    assert [heap.fetch(row_id)[1] for row_id in rows] == ["a" * 1000] * len(rows)
    churn(db, heap, rows)


@pytest.mark.usefixtures("rows")
def test_a_statement_that_is_refused_leaves_no_trace(db: Connection, heap: Heap, scarce: str) -> None:
    expected = ["a" * 1000] * 100

    def change_everything_again_and_again() -> None:
        nonlocal expected
        for n in range(10):
            db.update("t", {"s": str(n) * 1000})
            expected = [str(n) * 1000] * 100

    with pytest.raises(LocksExhausted if scarce == "locks" else UndoExhausted):
        change_everything_again_and_again()
    assert [values[1] for _, values in heap.rows()] == expected
    db.commit()
    assert [values[1] for _, values in heap.rows()] == expected


def test_writers_are_refused_while_others_hold_everything_and_go_on_afterwards(
    db: Connection, heap: Heap, rows: list[RowId], connect: Connect
) -> None:
    limit(db, "locks")
    greedy = connect().heap("t")
    for row_id in rows[:LOCKS]:
        greedy.lock(row_id)
    with pytest.raises(LocksExhausted):
        greedy.lock(rows[LOCKS])
    with pytest.raises(LocksExhausted):
        heap.update(rows[99], {"s": "x"})
    with pytest.raises(LocksExhausted):
        heap.insert((100, "x"))
    assert heap.fetch(rows[99])[1] == "a" * 1000  # reading needs nothing
    greedy.session.rollback()
    heap.update(rows[99], {"s": "x"})
    heap.insert((100, "x"))
    db.commit()


def test_undo_space_and_lock_ids_are_free_again_when_nobody_needs_them(
    db: Connection, heap: Heap, rows: list[RowId]
) -> None:
    churn(db, heap, rows)
    db.gc()
    assert db.locks().num_rows == 0
    assert db.transactions().num_rows == 0
    assert undo_pages(db) <= 1


def test_a_table_is_made_while_open_transactions_have_filled_the_undo_file(
    db: Connection, heap: Heap, connect: Connect
) -> None:
    del heap
    size = db._database.store.devices[UNDO_DEVICE].path.stat().st_size
    number = 0
    while db._database.store.devices[UNDO_DEVICE].path.stat().st_size == size:
        db.create_table(f"made{number}", {"i": "INT"})
        db.commit()
        connect().heap("t").insert((number, "x"))
        number += 1
    assert len(db.tables()) == 1 + number
