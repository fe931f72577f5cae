"""Random histories of serializable transactions, one step at a time, and the order that their commits could be in.

``play(world, seed)`` lets several sessions read and write a few rows in every way that there is; the seed decides
everything.  Each read is compared with a model of its snapshot; what has committed goes to ``serialization_graph``.

``python -m tests.isolation.serializable_histories --count 10000 --seed 1`` plays many.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import Error, NoSuchRow, OwnerGone, Transient, UniqueViolation
from gmdb.format.address import RowId
from gmdb.tables.access.indexes import KeyRange
from tests.isolation.serialization_graph import Condition, Edges, Played, Row, circle_in, edges_of, explain

ITEMS = range(8)
GROUPS = range(4)
TABLE = "t"
NEW_PAGES_AFTER = 500  # histories


class World:
    """A database with one table, and sessions that can be used again."""

    def __init__(self, path: Path, sessions: int = 4) -> None:
        self.path = path
        self._played = 0
        self.master = gmdb.connect(path)
        if TABLE not in self.master.tables():
            self.master.create_table(TABLE, {"id": "INT NOT NULL", "k": "INT", "v": "INT"})
            self.master.create_index("t_id", TABLE, ["id"], unique=True)
            self.master.create_index("t_k", TABLE, ["k", "id"])
            self.master.commit()
        self.pool = [gmdb.connect(path, isolation="serializable", lock_timeout=0.0) for _ in range(sessions)]

    def start_again(self, rows: dict[int, Row]) -> dict[int, RowId]:
        for session in self.pool:
            session.rollback()
        self._played += 1
        if self._played % NEW_PAGES_AFTER:
            self.master.delete(TABLE)
        else:
            self.master.truncate_table(TABLE)
        places = {item: self.master.insert(TABLE, (item, *row)) for item, row in rows.items()}
        self.master.commit()
        return places

    def close(self) -> None:
        for session in (*self.pool, self.master):
            session.close()


class Player:
    """A session, and the transaction that it is in."""

    def __init__(self, session: Connection, autocommit: bool) -> None:
        self.session = session
        session.autocommit = autocommit
        self.is_autocommit = autocommit
        self.transaction: Played | None = None
        self.snapshot: dict[int, Row] = {}
        self.steps_left = 0

    def rows(self) -> dict[int, Row]:
        """What the transaction sees, by the model."""
        assert self.transaction is not None
        rows: dict[int, Any] = {**self.snapshot, **self.transaction.writes}
        return {item: row for item, row in rows.items() if row is not None}


class History:
    def __init__(self, world: World, seed: int, autocommit: float = 0.15) -> None:
        """``autocommit``: how many of the sessions make each statement a transaction."""
        self.random = random.Random(seed)
        self.in_doubt: Played | None = None  # its commit was not acknowledged, since the owner was killed
        self.is_cut_off = False
        self.world = world
        chosen = self.random.sample(ITEMS, self.random.randint(2, len(ITEMS)))
        self.beginning: dict[int, Row] = {item: (self.random.choice(GROUPS), 0) for item in chosen}
        self.row_ids = world.start_again(self.beginning)
        count = self.random.randint(2, len(world.pool))
        self.players = [Player(session, self.random.random() < autocommit) for session in world.pool[:count]]
        self.committed: list[Played] = []
        self.now = dict(self.beginning)
        self.number = 0
        self.value = 0
        self.outcomes: Counter[str] = Counter()

    def play(self, transactions: int = 8) -> None:
        begun = 0
        while not self.is_cut_off:
            able = [one for one in self.players if one.transaction is not None or begun < transactions]
            if not able:
                break
            player = self.random.choice(able)
            if player.transaction is None:
                begun += 1
                self.begin(player)
            self.step(player)

    def go_on(self, world: World) -> None:
        """After a crash: with other sessions, from what was committed."""
        self.world, self.is_cut_off = world, False
        self.players = [Player(session, False) for session in world.pool]
        rows = {item: (k, v) for _, (item, k, v) in world.master.heap(TABLE).rows()}
        world.master.rollback()
        if self.in_doubt is not None and rows != self.now:
            self.keep(self.in_doubt)
        assert rows == self.now
        self.in_doubt = None

    def begin(self, player: Player) -> None:
        self.number += 1
        player.transaction = Played(self.number, -1)
        player.steps_left = 1 if player.is_autocommit else self.random.randint(1, 5)

    def step(self, player: Player) -> None:
        assert player.transaction is not None
        if player.transaction.seen < 0:  # its first statement begins now
            player.transaction.seen, player.snapshot = len(self.committed), dict(self.now)
        try:
            if player.steps_left:
                player.steps_left -= 1
                kind = self.random.choice(KINDS)
                kind(self, player)
                if not player.is_autocommit:
                    return
            elif self.random.random() < 0.1:
                player.session.rollback()
                player.transaction = None
                return
            else:
                player.session.commit()
            self.note_commit(player)
        except OwnerGone:
            self.is_cut_off = True
            self.in_doubt = None if player.steps_left else player.transaction
        except Transient as error:
            self.outcomes[type(error).__name__] += 1
            player.session.rollback()
            player.transaction = None

    def note_commit(self, player: Player) -> None:
        done = player.transaction
        assert done is not None
        player.transaction = None
        self.outcomes["committed"] += 1
        self.keep(done)

    def keep(self, done: Played) -> None:
        self.committed.append(done)
        for item, row in done.writes.items():
            if row is None:
                self.now.pop(item, None)
            else:
                self.now[item] = row

    def edges(self) -> Edges:
        return edges_of(self.beginning, self.committed)

    # ---- reads

    def note_read(self, player: Player, condition: Condition) -> dict[int, Row]:
        """Note a read by a condition; returns what it has to find."""
        assert player.transaction is not None
        player.transaction.reads.append((condition, frozenset(player.transaction.writes)))
        return {item: row for item, row in player.rows().items() if condition(item, row)}

    def by_row_id(self, player: Player) -> None:
        item = self.random.choice(list(self.row_ids))
        row_id, heap = self.row_ids[item], player.session.heap(TABLE)
        how = self.random.randrange(3)
        try:
            if how == 0:
                found = [heap.fetch(row_id)]
            elif how == 1:
                found = [row for _, row in player.session.select(TABLE, row_ids=[row_id]).rows()]
            else:
                text = f"select * from {TABLE} where rowid = ?"
                found = player.session.execute(text, (str(row_id),)).fetchall()
        except NoSuchRow:
            found = []
        for item, *row in found:  # it may have come to another item; one without a row tells nothing of any
            expected = self.note_read(player, lambda one, row, item=item: one == item and row is not None)
            assert {item: tuple(row)} == expected

    def by_id(self, player: Player) -> None:
        item = self.random.choice(ITEMS)
        expected = self.note_read(player, lambda one, row: one == item and row is not None)
        how = self.random.randrange(4)
        if how == 0:
            rows = [row for _, row in player.session.heap(TABLE).by("t_id").find((item,))]
        elif how == 1:
            rows = player.session.execute(f"select * from {TABLE} where id = ?", (item,)).fetchall()
        elif how == 2:
            keys = KeyRange((item,), (item,))
            rows = [row for _, row in player.session.select(TABLE, by="t_id", keys=keys).rows()]
        else:
            rows = player.session.execute(f"select * from {TABLE} where id in (?, 99)", (item,)).fetchall()
        assert {one: (k, v) for one, k, v in rows} == expected

    def by_range(self, player: Player) -> None:
        low, high = sorted(self.random.choices(ITEMS, k=2))
        low_open, high_open = self.random.random() < 0.3, self.random.random() < 0.3
        without = {end for end, is_open in ((low, low_open), (high, high_open)) if is_open}
        expected = self.note_read(
            player, lambda one, row: row is not None and low <= one <= high and one not in without
        )
        how = self.random.randrange(3)
        keys = KeyRange((low,), (high,), low_open, high_open)
        if how == 0:
            rows = [row for _, row in player.session.heap(TABLE).by("t_id").walk(keys)]
        elif how == 1:
            rows = [row for _, row in player.session.select(TABLE, by="t_id", keys=keys).rows()]
        else:
            more, less = ">" if low_open else ">=", "<" if high_open else "<="
            text = f"select * from {TABLE} where id {more} ? and id {less} ?"
            rows = player.session.execute(text, (low, high)).fetchall()
        assert {one: (k, v) for one, k, v in rows} == expected

    def by_group(self, player: Player) -> None:
        group = self.random.choice(GROUPS)
        expected = self.note_read(player, lambda _, row: row is not None and row[0] == group)
        how = self.random.randrange(3)
        if how == 0:
            rows = [row for _, row in player.session.heap(TABLE).by("t_k").range((group,), (group,))]
        elif how == 1:
            found = player.session.select(TABLE, ["id"], by="t_k", keys=KeyRange((group,), (group,))).rows()
            assert {row[0] for _, row in found} == set(expected)  # by the index alone
            return
        else:
            rows = player.session.execute(f"select * from {TABLE} where k = ?", (group,)).fetchall()
        assert {one: (k, v) for one, k, v in rows} == expected

    def all_rows(self, player: Player) -> None:
        expected = self.note_read(player, lambda _, row: row is not None)
        how = self.random.randrange(4)
        if how == 0:
            rows = [row for _, row in player.session.heap(TABLE).rows()]
        elif how == 1:
            rows = [tuple(row.values()) for row in player.session.arrow(TABLE).read_all().to_pylist()]
        elif how == 2:
            text, total = f"select count(*), sum(v) from {TABLE}", sum(v for _, v in expected.values())
            found = player.session.execute(text).fetchone()
            assert found == (len(expected), total if expected else None)
            return
        else:
            rows = player.session.execute(f"select * from {TABLE} order by v").fetchall()
        assert {one: (k, v) for one, k, v in rows} == expected

    def joined(self, player: Player) -> None:
        """The group of one row, and who else is in it."""
        item, rows = self.random.choice(ITEMS), player.rows() if player.transaction else {}
        group = rows[item][0] if item in rows else None
        self.note_read(player, lambda one, row: one == item and row is not None)
        expected = self.note_read(player, lambda _, row: row is not None and row[0] == group)
        text = f"select b.id, b.k, b.v from {TABLE} a join {TABLE} b on b.k = a.k where a.id = ?"
        found = player.session.execute(text, (item,)).fetchall()
        assert {one: (k, v) for one, k, v in found} == expected

    # ---- writes

    def new_value(self) -> int:
        self.value += 1
        return self.value

    def update(self, player: Player) -> None:
        item, value = self.random.choice(ITEMS), self.new_value()
        moves = self.random.random() < 0.4
        group = self.random.choice(GROUPS)
        expected = self.note_read(player, lambda one, row: one == item and row is not None)
        how = self.random.randrange(3)
        if how == 0:
            changed = [item] if self._update_by_heap(player, item, group if moves else None, value) else []
        elif how == 1 or not moves:
            sets, values = ("k = ?, v = ?", (group, value)) if moves else ("v = ?", (value,))
            text = f"update {TABLE} set {sets} where id = ?"
            changed = [item] if player.session.execute(text, (*values, item)).rowcount else []
        else:
            new = {"k": group, "v": value}
            changed = [item] if player.session.update(TABLE, new, where=lambda row: row["id"] == item) else []
            self.note_read(player, lambda _, row: row is not None)
        assert changed == list(expected)
        for one in changed:
            self.note_write(player, one, (group if moves else expected[one][0], value))

    def _update_by_heap(self, player: Player, item: int, group: int | None, value: int) -> bool:
        heap = player.session.heap(TABLE)
        for row_id, _ in heap.by("t_id").find((item,)):
            heap.update(row_id, {"v": value} if group is None else {"k": group, "v": value})
            return True
        return False

    def update_group(self, player: Player) -> None:
        group, value = self.random.choice(GROUPS), self.new_value()
        expected = self.note_read(player, lambda _, row: row is not None and row[0] == group)
        text = f"update {TABLE} set v = ? where k = ?"
        assert player.session.execute(text, (value, group)).rowcount == len(expected)
        for item in expected:
            self.note_write(player, item, (group, value))

    def insert(self, player: Player) -> None:
        item, row = self.random.choice(ITEMS), (self.random.choice(GROUPS), self.new_value())
        is_there = item in player.rows()
        try:
            if self.random.random() < 0.5:
                self.row_ids[item] = player.session.insert(TABLE, (item, *row))
            else:
                player.session.execute(f"insert into {TABLE} values (?, ?, ?)", (item, *row))
            assert not is_there
        except UniqueViolation:
            assert is_there, "of a key that the snapshot does not know"
            self.note_read(player, lambda one, row: one == item and row is not None)
            return
        self.note_read(player, lambda one, row: one == item and row is not None)
        self.note_write(player, item, row)

    def upsert(self, player: Player) -> None:
        item, row = self.random.choice(ITEMS), (self.random.choice(GROUPS), self.new_value())
        expected = self.note_read(player, lambda one, row: one == item and row is not None)
        text = f"insert into {TABLE} values (?, ?, ?) on conflict (id) do update set v = excluded.v"
        player.session.execute(text, (item, *row))
        self.note_write(player, item, (expected[item][0], row[1]) if item in expected else row)

    def delete(self, player: Player) -> None:
        item = self.random.choice(ITEMS)
        expected = self.note_read(player, lambda one, row: one == item and row is not None)
        deleted = player.session.execute(f"delete from {TABLE} where id = ?", (item,)).rowcount
        assert deleted == len(expected)
        if deleted:
            self.note_write(player, item, None)

    def lock(self, player: Player) -> None:
        item = self.random.choice(ITEMS)
        expected = self.note_read(player, lambda one, row: one == item and row is not None)
        found = player.session.execute(f"select * from {TABLE} where id = ? for update", (item,)).fetchall()
        assert {one: (k, v) for one, k, v in found} == expected

    def append(self, player: Player) -> None:
        """Pages of new items, which count as a change of the whole table."""
        item, row = 100 + self.new_value(), (self.random.choice(GROUPS), self.value)
        names = ("id", "k", "v")
        data = pa.table({name: pa.array([one], pa.int32()) for name, one in zip(names, (item, *row), strict=True)})
        assert player.session.append(TABLE, data) == 1
        self.note_write(player, item, row)

    def note_write(self, player: Player, item: int, row: Row | None) -> None:
        assert player.transaction is not None
        player.transaction.writes[item] = row


KINDS: tuple[Callable[[History, Player], None], ...] = (
    History.by_row_id, History.by_id, History.by_id, History.by_range, History.by_range, History.by_group,
    History.by_group, History.all_rows, History.joined, History.update, History.update, History.update,
    History.update_group, History.insert, History.insert, History.upsert, History.delete, History.delete,
    History.lock, History.append,
)  # fmt: skip


def play(world: World, seed: int) -> History:
    history = History(world, seed)
    history.play()
    return history


def require_order(history: History, seed: int) -> None:
    """Fail if the transactions that have committed are in no order."""
    edges = history.edges()
    circle = circle_in(edges)
    assert not circle, f"seed {seed}: {explain(circle, edges)}"


def anomalies_of(history: History) -> Iterator[str]:
    """What is wrong with a history that has a circle."""
    edges = history.edges()
    circle = circle_in(edges)
    if not circle:
        return
    if any(edges[a].get(b) == edges[b].get(a) == "rw" for a in edges for b in edges[a]):
        yield "write skew"
    readers = frozenset(one.number for one in history.committed if not one.writes)
    if readers and not circle_in(edges, readers):
        yield "read-only anomaly"
    yield "some"


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="Play random histories of serializable transactions.")
    parser.add_argument("--count", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    outcomes: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as directory, closing(World(Path(directory) / "histories.gmdb")) as world:
        for seed in range(given.seed, given.seed + given.count):
            try:
                history = play(world, seed)
            except (AssertionError, Error):
                print(f"seed {seed}", file=sys.stderr)
                raise
            require_order(history, seed)
            outcomes += history.outcomes
    print(f"{given.count} histories, no circle; {dict(outcomes)}")


if __name__ == "__main__":
    main(sys.argv[1:])
