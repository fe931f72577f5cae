"""Random histories of ALTER TABLE and rows, beside a plain model: savepoints, rollbacks, old snapshots, power cuts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pytest

from gmdb.database.connection import Connection
from gmdb.storage import disk
from gmdb.tables.access.indexes import KeyRange
from tests.crash.faults import marks
from tests.crash.harness import QuickDisk, QuickRecordingDisk, connect, create, points_of, scratch, spread
from tests.crash.power_cut import crash_states
from tests.integrity import problems
from tests.searches import extent

SEEDS, STEPS, CUTS = extent(3, 60), 60, extent(25, 200)
TYPES = {"int": "INT", "bigint": "BIGINT", "text": "VARCHAR(30)", "long": "VARCHAR(60)", "decimal": "DECIMAL(18,2)"}
Row = dict[str, Any]


def digits(value: str) -> int | None:
    found = re.sub("[^0-9]", "", value)
    return int(found[:6]) if found else None


FROM_TEXT = "nullif(substr(regexp_replace({0}, '[^0-9]', '', 'g'), 1, 6), '')::int"
CONVERSIONS: dict[tuple[str, str], tuple[str, Callable[[Any], Any]]] = {
    ("int", "bigint"): ("", int),
    ("bigint", "int"): (" using ({0} % 1000)::int", lambda value: int(abs(value) % 1000 * (1 if value >= 0 else -1))),
    ("int", "text"): ("", str),
    ("int", "decimal"): ("", Decimal),
    ("decimal", "text"): (" using {0}::text || '!'", lambda value: f"{value:.2f}!"),
    ("text", "long"): ("", str),
    ("long", "text"): (" using substr({0}, 1, 30)", lambda value: value[:30]),
    ("text", "int"): (f" using {FROM_TEXT}", digits),
    ("long", "decimal"): (f" using {FROM_TEXT}", digits),
    ("text", "text"): (" using {0} || id", str),
}


@dataclass
class Model:
    """A table: the columns behind its key, and its rows by their keys."""

    columns: dict[str, str] = field(default_factory=dict)  # what they are called, and their types
    indexes: dict[str, tuple[str, ...]] = field(default_factory=dict)
    rows: dict[int, Row] = field(default_factory=dict)

    def shown(self) -> list[tuple[Any, ...]]:
        return [(key, *(row[name] for name in self.columns)) for key, row in sorted(self.rows.items())]


def value_of(random: Random, type_: str) -> Any:
    if random.random() < 0.2:
        return None
    number = random.randrange(-999, 1000)
    if type_ in ("text", "long"):
        return f"{random.choice('abc')}{number}" * random.randrange(1, 3)
    return number * 10_000_000_000 if type_ == "bigint" else Decimal(number) / 4 if type_ == "decimal" else number


class History:
    def __init__(self, db: Connection, seed: int) -> None:
        self.db, self.random = db, Random(seed)
        self.model, self.committed = Model(), Model()
        self.saved: list[tuple[str, Model]] = []
        self.changes = 0

    def step(self) -> None:
        """One statement about the table, or about the transaction."""
        chosen = self.random.choice(
            (self.add, self.drop, self.convert, self.convert, self.rename, self.index, self.several, self.savepoint)
            + 4 * (self.insert, self.update, self.delete)
        )
        chosen()

    def run(self, text: str, parameters: tuple[Any, ...] = ()) -> None:
        self.changes += 1
        self.db.execute(text, parameters)

    def column(self) -> str | None:
        return self.random.choice(list(self.model.columns)) if self.model.columns else None

    def new_name(self) -> str | None:
        free = [name for name in "abcdefg" if name not in self.model.columns]
        return self.random.choice(free) if free else None

    # ---- rows

    def insert(self) -> None:
        for _ in range(self.random.randrange(1, 20)):
            key = self.random.randrange(10_000)
            if key not in self.model.rows:
                row = {name: value_of(self.random, type_) for name, type_ in self.model.columns.items()}
                marks_ = ", ".join("?" * (len(row) + 1))
                self.run(f"insert into t values ({marks_})", (key, *row.values()))
                self.model.rows[key] = row

    def update(self) -> None:
        name = self.column()
        for key in self.random.sample(sorted(self.model.rows), min(3, len(self.model.rows))) if name else ():
            value = value_of(self.random, self.model.columns[str(name)])
            self.run(f"update t set {name} = ? where id = ?", (value, key))
            self.model.rows[key][str(name)] = value

    def delete(self) -> None:
        if self.model.rows:
            key = self.random.choice(sorted(self.model.rows))
            self.run("delete from t where id = ?", (key,))
            del self.model.rows[key]

    # ---- columns

    def added(self) -> str:
        name, type_ = self.new_name(), self.random.choice(list(TYPES))
        if name is None:
            return ""
        value = value_of(self.random, type_) if self.random.random() < 0.5 else None
        self.model.columns[name] = type_
        for row in self.model.rows.values():
            row[name] = value
        quoted = "" if value is None else f" default '{value}'" if isinstance(value, str) else f" default {value}"
        return f"add column {name} {TYPES[type_]}{quoted}"

    def dropped(self) -> str:
        name = self.column()
        if name is None:
            return ""
        del self.model.columns[name]
        for row in self.model.rows.values():
            del row[name]
        self.model.indexes = {index: names for index, names in self.model.indexes.items() if name not in names}
        return f"drop column {name}"

    def converted(self, name: str | None) -> str:
        """To another type, if there is a way from the column's own."""
        ways = [(to, way) for (of, to), way in CONVERSIONS.items() if name and self.model.columns[name] == of]
        if not ways or name is None:
            return ""
        to, (using, convert) = self.random.choice(ways)
        for key, row in self.model.rows.items():
            if row[name] is not None:
                row[name] = row[name] + str(key) if "|| id" in using else convert(row[name])
                if isinstance(row[name], str):
                    row[name] = row[name][: 30 if to == "text" else 60]
        using = using.replace("{0} || id", "substr({0} || id, 1, 30)").format(name)
        self.model.columns[name] = to
        return f"alter column {name} drop default, alter column {name} type {TYPES[to]}{using}"

    def add(self) -> None:
        self.alter([self.added()])

    def drop(self) -> None:
        self.alter([self.dropped()])

    def convert(self) -> None:
        self.alter([self.converted(self.column())])

    def several(self) -> None:
        """What is dropped, another type, and a new column, which may have the name of the one that went."""
        dropped = self.dropped()
        self.alter([part for part in (dropped, self.converted(self.column()), self.added()) if part][::-1])

    def alter(self, actions: list[str]) -> None:
        if all(actions) and actions:
            self.run(f"alter table t {', '.join(actions)}")

    def rename(self) -> None:
        old, new = self.column(), self.new_name()
        if old and new:
            self.run(f"alter table t rename column {old} to {new}")
            self.model.columns = {new if name == old else name: type_ for name, type_ in self.model.columns.items()}
            self.model.rows = {
                key: {new if name == old else name: value for name, value in row.items()}
                for key, row in self.model.rows.items()
            }
            self.model.indexes = {
                index: tuple(new if name == old else name for name in names)
                for index, names in self.model.indexes.items()
            }

    def index(self) -> None:
        names = tuple(dict.fromkeys(name for name in (self.column(), self.column()) if name))
        index = f"i{self.random.randrange(4)}"
        if index in self.model.indexes:
            self.run(f"drop index {index}")
            del self.model.indexes[index]
        elif names:
            self.run(f"create index {index} on t ({', '.join(names)})")
            self.model.indexes[index] = names

    # ---- transactions

    def savepoint(self) -> None:
        if self.saved and self.random.random() < 0.5:
            name, model = self.saved[-1]
            self.db.rollback_to(name)
            self.model = deepcopy(model)
        else:
            self.saved.append((f"s{len(self.saved)}", deepcopy(self.model)))
            self.db.savepoint(self.saved[-1][0])

    def end(self, commit: bool) -> None:
        if commit:
            self.db.commit()
            self.committed = deepcopy(self.model)
        else:
            self.db.rollback()
            self.model = deepcopy(self.committed)
        self.saved.clear()


def found_in(db: Connection) -> list[tuple[Any, ...]]:
    """The rows by every way; each must give the same."""
    rows: list[tuple[Any, ...]] = db.execute("select * from t order by id").fetchall()
    table = db.table("t")
    assert (
        sorted(row for _, row in db.heap("t").rows()) == rows
        or sorted((row for _, row in db.heap("t").rows()), key=lambda row: row[0]) == rows
    )
    for index in table.indexes:
        walked = sorted((row for _, row in db.heap("t").by(index.name).walk(KeyRange())), key=lambda row: row[0])
        assert walked == rows
    return rows


def require(db: Connection, model: Model) -> None:
    table = db.table("t")
    assert [column.name for column in table.columns] == ["id", *model.columns]
    assert [str(column.type) for column in table.columns[1:]] == [TYPES[type_] for type_ in model.columns.values()]
    names = {index.name: tuple(table.columns[n].name for n in index.positions) for index in table.indexes}
    assert names == {"t_pkey": ("id",), **model.indexes}
    assert found_in(db) == model.shown()


@pytest.mark.search
@pytest.mark.parametrize("seed", range(SEEDS))
def test_the_table_is_what_the_model_says(seed: int, path: Path) -> None:
    random = Random(seed)
    with connect(path) as db, connect(path, isolation="repeatable read") as old:
        db.execute("create table t (id int primary key)")
        db.commit()
        history = History(db, seed)
        old_model = deepcopy(history.committed)
        require(old, old_model)
        for number in range(STEPS):
            history.step()
            if random.random() < 0.2:
                require(db, history.model)
            if random.random() < 0.15:
                require(old, old_model)
            if random.random() < 0.15:
                history.end(random.random() < 0.7)
                require(db, history.model)
            if random.random() < 0.1:
                old.rollback()
                old_model = deepcopy(history.committed)
                require(old, old_model)
            if number % 20 == 19:
                db.checkpoint()
        old.rollback()
        history.end(True)
        require(db, history.model)
        require(old, history.model)
        assert history.changes > STEPS // 2
    assert problems(path) == []


@pytest.mark.search
@pytest.mark.parametrize("seed", range(extent(1, 5)))
def test_after_a_power_cut_the_table_is_as_some_commit_left_it(seed: int) -> None:
    with scratch() as place:
        create(place / "db")
        with disk.use(QuickDisk()), connect(place / "db") as db:
            db.execute("create table t (id int primary key)")
            db.commit()
        shutil.copytree(place / "db", place / "base")
        recording = QuickRecordingDisk(place / "db")
        with disk.use(recording), connect(place / "db") as db:
            history = History(db, seed + 1000)
            recording.mark(("done", deepcopy(history.model)))
            for number in range(STEPS):
                history.step()
                if number % 3 == 0 or number == STEPS - 1:
                    recording.mark(("tried", deepcopy(history.model)))
                    history.end(True)
                    recording.mark(("done", deepcopy(history.model)))
                if number % 25 == 24:
                    db.checkpoint()
        points = spread(points_of(recording.journal), CUTS)
        for upto, directory in crash_states(recording.journal, place / "base", place / "cut", Random(seed), points):
            told = marks(recording.journal, upto)
            last = max(n for n, (kind, _) in enumerate(told) if kind == "done")
            with disk.use(QuickDisk()), connect(directory) as db:
                names = [column.name for column in db.table("t").columns[1:]]
                allowed = [model for _, model in told[last:]]
                assert (names, found_in(db)) in [(list(model.columns), model.shown()) for model in allowed]
            assert problems(directory) == []
