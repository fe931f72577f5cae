"""Who sees a row: the table, for every flag and action, own and other, each operation, and each lock beneath.

The reader is another session under repeatable read, so that its snapshot stays where the case wants it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path
from typing import NamedTuple

import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import LockTimeout, NoSuchRow, WriteConflict
from gmdb.format.address import RowId
from gmdb.kernel.locks import LockAction
from gmdb.kernel.read.visibility import FROM_UNDO, HIDDEN, VISIBLE, decide_visibility
from gmdb.tables.access.heap import Heap
from tests.integrity import assert_sound
from tests.sessions import Connect, row_state

DOCUMENTATION = Path(__file__).parents[2] / "docs" / "visibility.md"
NEVER = None  # "–" in the table

#        flag      action       own      other
TABLE = {
    ("none", "none"): (NEVER, VISIBLE),
    ("none", "INSERT"): (VISIBLE, HIDDEN),
    ("none", "UPDATE"): (VISIBLE, FROM_UNDO),
    ("none", "U_LOCK"): (VISIBLE, VISIBLE),
    ("none", "DELETE"): (VISIBLE, VISIBLE),
    ("DELETE", "none"): (NEVER, HIDDEN),
    ("DELETE", "INSERT"): (HIDDEN, HIDDEN),
    ("DELETE", "UPDATE"): (HIDDEN, FROM_UNDO),
    ("DELETE", "U_LOCK"): (NEVER, NEVER),
    ("DELETE", "DELETE"): (HIDDEN, VISIBLE),
}
BENEATH = ("nothing", "committed before", "committed after", "inserted after")
OPERATIONS = ("select", "update", "delete")

CANNOT_HAPPEN = {
    "no lock is nobody's own": lambda c: c.own and c.action == "none",
    "deleting a row under a U-lock makes the lock's action delete": lambda c: c.state == ("DELETE", "U_LOCK"),
    "a row that is inserted has no past": lambda c: c.action == "INSERT" and c.beneath != "nothing",
    "a delete after the snapshot is a lock that counts": lambda c: (
        c.state == ("DELETE", "none") and c.beneath.endswith("after")
    ),
}

OLD, BETWEEN, TOP = 10, 20, 30


class Case(NamedTuple):
    flag: str
    action: str
    own: bool
    operation: str
    beneath: str

    @property
    def state(self) -> tuple[str, str]:
        return self.flag, self.action

    def __str__(self) -> str:
        who = "own" if self.own else "other"
        return f"{self.flag}/{self.action}, {who} {self.operation}, beneath {self.beneath}"


ALL = [Case(*state, *rest) for state, *rest in product(TABLE, (True, False), OPERATIONS, BENEATH)]
CASES = [case for case in ALL if not any(rule(case) for rule in CANNOT_HAPPEN.values())]


class Stage:
    """A row, the session that holds it, and a reader whose snapshot stands still."""

    def __init__(self, db: Connection) -> None:
        self.db = db
        self.heap = db.heap("t")
        self.anchor = self.heap.insert((0, 0))
        self.settled = self.heap.insert((1, OLD))
        db.commit()
        db.gc()
        repeatable = {"isolation": "repeatable read", "lock_timeout": 0.01}
        self.keeper = gmdb.connect(db.path, **repeatable)
        self.holder = gmdb.connect(db.path)
        self.reader = gmdb.connect(db.path, **repeatable)
        self.keeper.heap("t").fetch(self.anchor)  # from now on nothing is purged: the keeper might need it
        self._commit(lambda: self.heap.update(self.anchor, (0, 1)))

    def close(self) -> None:
        for session in (self.reader, self.holder, self.keeper):
            session.close()

    def _commit(self, change: Callable[[], None]) -> None:
        change()
        self.db.commit()

    def take_snapshot(self) -> None:
        self.reader.heap("t").fetch(self.anchor)

    def lay(self, beneath: str, action: str) -> RowId:
        """Put the row and what is beneath the holder's lock in place."""
        row_id = self.settled
        if beneath == "committed before":
            self._commit(lambda: self.heap.update(row_id, {"value": BETWEEN}))
        if beneath == "committed before" and action == "none":
            return row_id  # whatever comes now is before the snapshot, too
        self.take_snapshot()
        if beneath == "committed after":
            self._commit(lambda: self.heap.update(row_id, {"value": BETWEEN}))
        if beneath == "inserted after":
            row_id = self.heap.insert((1, BETWEEN))
            self.db.commit()
        return row_id


def insert(_: Stage, heap: Heap, __: RowId) -> RowId:
    return heap.insert((1, TOP))


def update(_: Stage, heap: Heap, row_id: RowId) -> RowId:
    heap.update(row_id, {"value": TOP})
    return row_id


def delete(_: Stage, heap: Heap, row_id: RowId) -> RowId:
    heap.delete(row_id)
    return row_id


def lock(_: Stage, heap: Heap, row_id: RowId) -> RowId:
    heap.lock(row_id)
    return row_id


def take_delete_back(stage: Stage, heap: Heap, row_id: RowId) -> RowId:
    stage.holder.savepoint("before")
    heap.delete(row_id)
    stage.holder.rollback_to("before")
    return row_id


def delete_for_all(stage: Stage, heap: Heap, row_id: RowId) -> RowId:
    """Deleted and no lock that counts: an insert that was taken back, or a delete before the snapshot."""
    if row_state(stage.db, row_id)[1] == "none":
        row_id = heap.insert((1, TOP))
        stage.holder.rollback()
    else:
        heap.delete(row_id)
        stage.holder.commit()
        stage.take_snapshot()
    return row_id


STEPS: dict[tuple[str, str], list[Callable[[Stage, Heap, RowId], RowId]]] = {
    ("none", "none"): [],
    ("none", "INSERT"): [insert],
    ("none", "UPDATE"): [update],
    ("none", "U_LOCK"): [lock],
    ("none", "DELETE"): [take_delete_back],
    ("DELETE", "none"): [delete_for_all],
    ("DELETE", "INSERT"): [insert, delete],
    ("DELETE", "UPDATE"): [update, delete],
    ("DELETE", "DELETE"): [delete],
}


def build(stage: Stage, case: Case) -> RowId:
    row_id = stage.lay(case.beneath, case.action)
    for step in STEPS[case.state]:
        row_id = step(stage, stage.holder.heap("t"), row_id)
    if case.state == ("none", "none"):
        stage.take_snapshot()
    return row_id


def seen(case: Case) -> int | None:
    """The value that the table says a select finds; None for no row."""
    decision = TABLE[case.state][0 if case.own else 1]
    if decision == HIDDEN:
        return None
    newest = BETWEEN if case.beneath != "nothing" else OLD
    if case.own:
        return TOP if case.action in ("INSERT", "UPDATE") else newest
    # visible or from undo: the version with the lock beneath, and the table is asked again
    return {"nothing": OLD, "committed before": BETWEEN, "committed after": OLD, "inserted after": None}[case.beneath]


def refused(case: Case) -> type[Exception] | None:
    """What the table and the rules for writers say of an update or delete; None if it goes through."""
    if case.own:
        return NoSuchRow if seen(case) is None else None
    if case.action == "INSERT" or case.state == ("DELETE", "none"):
        return NoSuchRow
    if case.action in ("UPDATE", "U_LOCK") or case.state == ("DELETE", "DELETE"):
        return LockTimeout
    # A row that was inserted since is a conflict, too: whoever has its row id knows more than the snapshot does.
    return WriteConflict if case.beneath.endswith("after") else None


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    path = tmp_path_factory.mktemp("visibility") / "test.gmdb"
    db = gmdb.connect(path)
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    yield db
    db.commit()
    db.close()
    assert_sound(path)


@pytest.fixture
def stage(database: Connection) -> Iterator[Stage]:
    made = Stage(database)
    yield made
    made.close()


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_row_is_seen_and_changed_as_the_table_says(stage: Stage, case: Case) -> None:
    row_id = build(stage, case)
    session = stage.holder if case.own else stage.reader
    heap = session.heap("t")
    if case.operation == "select":
        if seen(case) is None:
            with pytest.raises(NoSuchRow):
                heap.fetch(row_id)
        else:
            assert heap.fetch(row_id) == (1, seen(case))
        scanned = [values for found, values in heap.rows() if found == row_id]
        assert scanned == ([] if seen(case) is None else [(1, seen(case))])
        assert [tuple(row.values()) for row in session.arrow("t").read_all().to_pylist()] == [v for _, v in heap.rows()]
        return
    act = (lambda: heap.update(row_id, {"value": 99})) if case.operation == "update" else lambda: heap.delete(row_id)
    expected = refused(case)
    if expected is None:
        act()
    else:
        with pytest.raises(expected):
            act()


def lock_that_counts(case: Case) -> tuple[str, str]:
    """Flag and action on the page, which differ from the case's where a lock is as good as none."""
    if case.state == ("none", "DELETE"):
        return lock_that_counts(case._replace(action="none"))  # the lock goes with the delete that is taken back
    if case.state == ("DELETE", "none") and case.beneath == "committed before":
        return "DELETE", "DELETE"
    if case.state == ("none", "none") and case.beneath != "nothing":
        return "none", "INSERT" if case.beneath == "inserted after" else "UPDATE"
    return case.state


@pytest.mark.parametrize("case", [c for c in CASES if c.operation == "select"], ids=str)
def test_every_case_has_on_the_page_what_it_is_about(stage: Stage, case: Case) -> None:
    assert row_state(stage.db, build(stage, case)) == lock_that_counts(case)


@pytest.mark.parametrize(("state", "own"), list(product(TABLE, (True, False))))
def test_the_kernel_decides_as_the_table_says(state: tuple[str, str], own: bool) -> None:
    flag, action = state
    expected = TABLE[state][0 if own else 1]
    if expected is not NEVER:
        action_number = 0 if action == "none" else LockAction[action]
        assert decide_visibility(flag == "DELETE", action_number, own) == expected


def test_the_documentation_prints_the_table() -> None:
    words = {NEVER: "–", VISIBLE: "visible", HIDDEN: "invisible", FROM_UNDO: "from undo"}
    actions = {"none": "none", "INSERT": "insert", "UPDATE": "update", "U_LOCK": "U-lock", "DELETE": "delete"}
    lines = [
        f"| {flag} | {actions[action]} | {words[own]} | {words[other]} |"
        for (flag, action), (own, other) in TABLE.items()
    ]
    assert "\n".join(lines) in DOCUMENTATION.read_text(encoding="utf-8")


def test_every_cell_is_tested_or_cannot_happen() -> None:
    assert len(ALL) == 10 * 2 * 3 * 4
    assert {c.state for c in ALL} - {c.state for c in CASES} == {("DELETE", "U_LOCK")}
    never = {
        (state, who)
        for state, cells in TABLE.items()
        for who, cell in zip((True, False), cells, strict=True)
        if cell is NEVER
    }
    assert {(c.state, c.own) for c in ALL} - {(c.state, c.own) for c in CASES} == never


def test_a_u_lock_becomes_the_lock_of_the_delete_that_follows(stage: Stage) -> None:
    heap = stage.holder.heap("t")
    lock(stage, heap, stage.settled)
    delete(stage, heap, stage.settled)
    assert row_state(stage.db, stage.settled) == ("DELETE", "DELETE")


def test_versions_chain_to_any_depth(db: Connection, connect: Connect) -> None:
    db.create_table("t", {"id": "INT", "value": "INT"})
    db.commit()
    heap = db.heap("t")
    row_id = heap.insert((1, 0))
    db.commit()
    readers = []
    for value in range(1, 31):
        readers.append(connect("repeatable read").heap("t"))
        assert readers[-1].fetch(row_id) == (1, value - 1)
        if value % 3 == 0:
            heap.lock(row_id)
        heap.update(row_id, {"value": -value})
        heap.update(row_id, {"value": value})
        db.commit()
    heap.delete(row_id)
    db.commit()
    assert [reader.fetch(row_id)[1] for reader in readers] == list(range(30))
    assert [next(iter(reader.rows()))[1][1] for reader in readers] == list(range(30))
