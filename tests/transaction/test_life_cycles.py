"""The lives of a row that is inserted, updated or deleted: every follow-up, own and other, and every way back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import LockTimeout, NoSuchRow
from gmdb.format.address import RowId
from gmdb.tables.access.heap import Heap
from tests.sessions import Connect, row_state

Act = Callable[[Heap, RowId], object]


def select(heap: Heap, row_id: RowId) -> object:
    return heap.fetch(row_id)


def update(heap: Heap, row_id: RowId) -> None:
    heap.update(row_id, {"value": heap.fetch(row_id)[1] + 1})


def blind_update(heap: Heap, row_id: RowId) -> None:
    heap.update(row_id, {"value": 99})


def delete(heap: Heap, row_id: RowId) -> None:
    heap.delete(row_id)


EVERYTHING = [select, blind_update, delete]
WRITES = [blind_update, delete]


@pytest.fixture
def heap(db: Connection) -> Heap:
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    return db.heap("t")


@pytest.fixture
def other(heap: Heap, connect: Connect) -> Heap:
    return connect().heap(heap.name)


@pytest.fixture
def old(db: Connection, heap: Heap) -> RowId:
    """A row that everyone sees, without a lock."""
    row_id = heap.insert((1, 10))
    db.commit()
    db.gc()
    return row_id


# ---- a new record: lock action insert


def test_its_own_transaction_fetches_the_row_that_it_inserted(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, 10))
    assert heap.fetch(row_id) == (1, 10)
    assert row_state(db, row_id) == ("none", "INSERT")


def test_updates_after_an_insert_keep_the_state_of_flag_and_action(db: Connection, heap: Heap) -> None:
    row_id = heap.insert((1, 10))
    for value in (11, 12, 13):
        update(heap, row_id)
        assert heap.fetch(row_id) == (1, value)
        assert row_state(db, row_id) == ("none", "INSERT")


@pytest.mark.parametrize("updates", [0, 1, 3])
@pytest.mark.parametrize("act", EVERYTHING)
def test_a_delete_after_an_insert_changes_the_flag_and_hides_the_row(
    db: Connection, heap: Heap, updates: int, act: Act
) -> None:
    row_id = heap.insert((1, 10))
    for _ in range(updates):
        update(heap, row_id)
    heap.delete(row_id)
    assert row_state(db, row_id) == ("DELETE", "INSERT")
    with pytest.raises(NoSuchRow):
        act(heap, row_id)


@pytest.mark.usefixtures("db")
@pytest.mark.parametrize("own", [[], [update], [delete], [update, delete]])
@pytest.mark.parametrize("act", EVERYTHING)
def test_others_neither_see_an_inserted_row_nor_wait_for_it(heap: Heap, other: Heap, own: list[Act], act: Act) -> None:
    row_id = heap.insert((1, 10))
    for step in own:
        step(heap, row_id)
    with pytest.raises(NoSuchRow):
        act(other, row_id)
    assert list(other.rows()) == []


# ---- an old record: lock action update


def test_updates_of_an_old_row_keep_the_state_of_flag_and_action(db: Connection, heap: Heap, old: RowId) -> None:
    for value in (11, 12, 13):
        update(heap, old)
        assert heap.fetch(old) == (1, value)
        assert row_state(db, old) == ("none", "UPDATE")


@pytest.mark.parametrize("updates", [1, 3])
@pytest.mark.parametrize("act", EVERYTHING)
def test_a_delete_after_an_update_changes_the_flag_and_hides_the_row(
    db: Connection, heap: Heap, old: RowId, updates: int, act: Act
) -> None:
    for _ in range(updates):
        update(heap, old)
    heap.delete(old)
    assert row_state(db, old) == ("DELETE", "UPDATE")
    with pytest.raises(NoSuchRow):
        act(heap, old)


@pytest.mark.parametrize("own", [[update], [update, update, update], [update, delete]])
def test_others_fetch_an_updated_row_from_undo(heap: Heap, other: Heap, old: RowId, own: list[Act]) -> None:
    for step in own:
        step(heap, old)
    assert other.fetch(old) == (1, 10)
    assert list(other.rows()) == [(old, (1, 10))]


@pytest.mark.parametrize("own", [[update], [update, update, update], [update, delete]])
@pytest.mark.parametrize("act", WRITES)
def test_others_wait_to_write_an_updated_row(heap: Heap, other: Heap, old: RowId, own: list[Act], act: Act) -> None:
    for step in own:
        step(heap, old)
    with pytest.raises(LockTimeout):
        act(other, old)


# ---- an old record: lock action delete


@pytest.mark.parametrize("act", EVERYTHING)
def test_its_own_transaction_does_not_see_a_row_that_it_deleted(
    db: Connection, heap: Heap, old: RowId, act: Act
) -> None:
    heap.delete(old)
    assert row_state(db, old) == ("DELETE", "DELETE")
    with pytest.raises(NoSuchRow):
        act(heap, old)


def test_others_fetch_a_deleted_row_from_its_page(heap: Heap, other: Heap, old: RowId) -> None:
    heap.delete(old)
    assert other.fetch(old) == (1, 10)
    assert list(other.rows()) == [(old, (1, 10))]


@pytest.mark.parametrize("act", WRITES)
def test_others_wait_to_write_a_deleted_row(heap: Heap, other: Heap, old: RowId, act: Act) -> None:
    heap.delete(old)
    with pytest.raises(LockTimeout):
        act(other, old)


# ---- the ways back


@pytest.mark.parametrize(
    ("kept", "undone", "state", "value"),
    [
        ([], [update], ("none", "none"), 10),
        ([], [delete], ("none", "none"), 10),
        ([], [update, delete], ("none", "none"), 10),
        ([], [update, update, update, delete], ("none", "none"), 10),
        ([update], [update], ("none", "UPDATE"), 11),
        ([update], [delete], ("none", "UPDATE"), 11),
        ([update], [update, update, delete], ("none", "UPDATE"), 11),
        ([update, update], [update, delete], ("none", "UPDATE"), 12),
    ],
)
def test_a_savepoint_takes_changes_of_an_old_row_back(
    db: Connection,
    heap: Heap,
    other: Heap,
    old: RowId,
    kept: list[Act],
    undone: list[Act],
    state: tuple[str, str],
    value: int,
) -> None:
    for step in kept:
        step(heap, old)
    db.savepoint("here")
    for step in undone:
        step(heap, old)
    db.rollback_to("here")
    assert row_state(db, old) == state
    assert heap.fetch(old) == (1, value)
    assert other.fetch(old) == (1, 10)
    if state == ("none", "none"):
        other.update(old, {"value": 50})
    else:
        with pytest.raises(LockTimeout):
            other.update(old, {"value": 50})


@pytest.mark.parametrize(
    ("kept", "undone", "value"),
    [([], [update], 10), ([], [delete], 10), ([update], [update, update], 11), ([update], [update, delete], 11)],
)
def test_a_savepoint_takes_changes_of_an_inserted_row_back(
    db: Connection, heap: Heap, other: Heap, kept: list[Act], undone: list[Act], value: int
) -> None:
    row_id = heap.insert((1, 10))
    for step in kept:
        step(heap, row_id)
    db.savepoint("here")
    for step in undone:
        step(heap, row_id)
    db.rollback_to("here")
    assert row_state(db, row_id) == ("none", "INSERT")
    assert heap.fetch(row_id) == (1, value)
    with pytest.raises(NoSuchRow):
        other.fetch(row_id)
    db.commit()
    assert other.fetch(row_id) == (1, value)


@pytest.mark.parametrize("follow_ups", [[], [update], [delete], [update, update, delete]])
@pytest.mark.parametrize("by_savepoint", [False, True])
def test_an_insert_that_is_taken_back_is_seen_by_nobody(
    db: Connection, heap: Heap, other: Heap, follow_ups: list[Act], by_savepoint: bool
) -> None:
    db.savepoint("here")
    row_id = heap.insert((1, 10))
    for step in follow_ups:
        step(heap, row_id)
    db.rollback_to("here") if by_savepoint else db.rollback()
    for session in (heap, other):
        for act in EVERYTHING:
            with pytest.raises(NoSuchRow):
                act(session, row_id)
    assert list(other.rows()) == []


@pytest.mark.parametrize("changes", [[update], [delete], [update, update], [update, delete]])
def test_a_rollback_gives_the_row_back_to_others_as_it_was(
    db: Connection, heap: Heap, other: Heap, old: RowId, changes: list[Act]
) -> None:
    for step in changes:
        step(heap, old)
    db.rollback()
    assert row_state(db, old) == ("none", "none")
    assert heap.fetch(old) == other.fetch(old) == (1, 10)
    other.update(old, {"value": 50})


@pytest.mark.parametrize("change", [update, delete])
def test_after_the_first_change_is_taken_back_others_read_the_page_again(
    db: Connection, heap: Heap, other: Heap, old: RowId, change: Act
) -> None:
    heap.lock(old)
    db.savepoint("here")
    change(heap, old)
    db.rollback_to("here")
    assert row_state(db, old) == ("none", "U_LOCK")
    assert [lock["undo_page"] for lock in db.locks().to_pylist()] == [0xFFFFFFFF]
    assert other.fetch(old) == (1, 10)
    with pytest.raises(LockTimeout):
        other.update(old, {"value": 50})


def test_a_rollback_puts_the_lock_beneath_back(db: Connection, heap: Heap, old: RowId, connect: Connect) -> None:
    reader = connect("repeatable read").heap("t")
    assert reader.fetch(old) == (1, 10)
    update(heap, old)
    db.commit()
    writer = connect()
    for change in (update, delete):
        change(writer.heap("t"), old)
        writer.rollback()
        assert row_state(db, old) == ("none", "UPDATE")
        assert reader.fetch(old) == (1, 10)
        assert heap.fetch(old) == (1, 11)


def test_a_row_that_moved_to_another_page_is_taken_back_whole(db: Connection, connect: Connect) -> None:
    db.create_table("wide", {"id": "INT", "s": "VARCHAR(4000)"})
    db.commit()
    heap = db.heap("wide")
    rows = [heap.insert((n, "x" * 1000)) for n in range(5)]
    db.commit()
    heap.update(rows[0], {"s": "y" * 4000})
    assert connect().heap("wide").fetch(rows[0]) == (0, "x" * 1000)
    db.rollback()
    assert [heap.fetch(row) for row in rows] == [(n, "x" * 1000) for n in range(5)]
