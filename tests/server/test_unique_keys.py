"""Unique keys that sessions of several processes want at the same time."""

from __future__ import annotations

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import Deadlock, UniqueViolation
from tests.server.peer import SOON, Peer
from tests.sessions import until

INDEX = "db.create_index('t_i', 't', ['i'], unique=True); db.commit()"
RACE = """
import random
from gmdb.errors import Error, NoSuchRow, Transient, UniqueViolation
numbers, counts = random.Random(seed), {'committed': 0, 'refused': 0, 'rolled back': 0}
while min(counts.values()) < 30:
    try:
        for _ in range(numbers.randint(1, 3)):
            heap = db.heap('t')
            found = heap.by('t_i').find((numbers.randrange(5),))
            assert len(found) < 2, found
            try:
                if not found or numbers.random() < 0.3:
                    heap.insert((numbers.randrange(5), str(seed)))
                elif numbers.random() < 0.5:
                    heap.update(found[0][0], {'i': numbers.randrange(5)})
                else:
                    heap.delete(found[0][0])
            except UniqueViolation:
                counts['refused'] += 1
            except NoSuchRow:
                pass
        if numbers.random() < 0.3:
            db.rollback()
            counts['rolled back'] += 1
        else:
            db.commit()
            counts['committed'] += 1
    except Error as error:
        db.rollback()
        if not isinstance(error, Transient):
            raise
"""


@pytest.fixture
def indexed(owner: Peer) -> Peer:
    owner(INDEX)
    return owner


def is_waiting(owner: Peer) -> bool:
    return bool(owner("len(db._database.transactions.waits.waiting()) == 1"))


@pytest.mark.parametrize("holder", ["owner", "client"])
@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_a_key_that_another_process_may_give_up_is_waited_for(
    indexed: Peer, db: Connection, second: Peer, holder: str, end: str
) -> None:
    if holder == "owner":
        indexed("db.insert('t', (7, 'first'))")
    else:
        db.insert("t", (7, "first"))
    second.start("db.insert('t', (7, 'second')) and db.commit()")
    until(lambda: is_waiting(indexed))
    assert not second.has_answered()
    if holder == "owner":
        indexed(f"db.{end}()")
    else:
        getattr(db, end)()
    assert second.has_answered(SOON)
    if end == "commit":
        with pytest.raises(UniqueViolation, match=r"table t, index t_i \(i\): row"):
            second.finish()
        second("db.rollback()")
    else:
        second.finish()
    told = "first" if end == "commit" else "second"
    assert [values for _, values in db.heap("t").by("t_i").find((7,))] == [(7, told)]


def test_processes_that_wait_for_each_others_keys_are_told_of_their_deadlock(
    indexed: Peer, db: Connection, second: Peer
) -> None:
    db.insert("t", (7, "first"))
    second("db.insert('t', (8, 'second'))")
    second.start("db.insert('t', (7, 'second'))")
    until(lambda: is_waiting(indexed))
    with pytest.raises(Deadlock):
        db.insert("t", (8, "first"))
    db.rollback()
    assert second.has_answered(SOON)
    second.finish()
    second("db.commit()")
    assert [values for _, values in db.heap("t").by("t_i").range((7,))] == [(7, "second"), (8, "second")]


def test_processes_that_race_for_keys_never_both_have_one(indexed: Peer, second: Peer, db: Connection) -> None:
    for seed, peer in enumerate((indexed, second)):
        peer.start(RACE, seed=seed)
    while not (indexed.has_answered() and second.has_answered()):
        for found in ([v[0] for _, v in db.heap("t").rows()], [v[0] for _, v in db.heap("t").by("t_i").range()]):
            assert len(set(found)) == len(found), found
        db.commit()
    for peer in (indexed, second):
        peer.finish()
    rows = sorted(values for _, values in db.heap("t").rows())
    assert [values for _, values in db.heap("t").by("t_i").range()] == rows
