"""Power is cut in the middle of splits and merges of B-tree pages: in their group of the log, and between their pages.

A run of inserts and deletes is played once to see which of them changes the tree in which way.  Then the database is
made as it was before such a step, and the step is recorded, with the checkpoint that brings its pages to their places.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from gmdb.database.connection import Connection
from gmdb.format.address import device_of, offset_of
from gmdb.format.redo import REDO_GROUP, REDO_ITEM, RedoItem
from gmdb.storage import disk
from gmdb.storage.directory import device_path
from tests.access.trees import shape
from tests.crash.faults import Create, Journal, Mark, Rename, Write
from tests.crash.harness import Cuts, QuickDisk, QuickRecordingDisk, connect, create, scratch, small_log
from tests.crash.power_cut import SECTOR
from tests.crash.workload import Tables, found

PAGE_SIZE = 8192
SEED, ROWS = 5, 130
IN_GROUP, IN_PAGES = 12, 3  # states that are built after each write of the group, and of a page to its place
# What happens to a tree -> its levels before, pages that come or go at each from the leaves upwards, pages that change.
KINDS: dict[str, tuple[int, tuple[int, ...], int]] = {
    "a root that is a leaf splits": (1, (1, 1), 3),
    "a leaf splits": (3, (1, 0, 0), 2),
    "a branch splits": (3, (1, 1, 0), 4),
    "a root splits": (2, (1, 1, 1), 5),
    "a leaf merges": (3, (-1, 0, 0), 2),
    "a branch merges": (3, (-1, -1, 0), 4),
    "a root gives way": (3, (-1, -1, -1), 5),
}


def text(key: int) -> str:
    """Eight of these are a full page."""
    return f"{key * 7919 % 1000:03d}" * 300


@dataclass(frozen=True)
class Step:
    """A row comes, or goes and is cleaned up after."""

    key: int
    comes: bool

    def take(self, db: Connection) -> None:
        if self.comes:
            db.insert("t", (self.key, text(self.key)))
        else:
            assert db.delete("t", lambda row: row["k"] == self.key) == 1
        db.commit()
        db.gc()


def steps(seed: int) -> list[Step]:
    random = Random(seed)
    coming, going = list(range(ROWS)), list(range(ROWS))
    random.shuffle(coming)
    random.shuffle(going)
    return [Step(key, True) for key in coming] + [Step(key, False) for key in going]


def make(path: Path) -> Connection:
    db = connect(path)
    db._database.transactions.stop()
    if not db.tables():
        db.create_table("t", {"k": "INT NOT NULL", "s": "VARCHAR(1000)"})
        db.create_index("t_s", "t", ["s"], unique=True)
        db.commit()
    return db


def difference(before: tuple[int, ...], after: tuple[int, ...]) -> tuple[int, ...]:
    levels = max(len(before), len(after))
    padded = [shape_ + (0,) * (levels - len(shape_)) for shape_ in (before, after)]
    return tuple(b - a for a, b in zip(*padded, strict=True))


@pytest.fixture(autouse=True, scope="module")
def small() -> Iterator[None]:
    with small_log():
        yield


def first_of_each_kind(seed: int) -> dict[str, int]:
    """Which step is the first of each kind."""
    first: dict[str, int] = {}
    with scratch() as place, disk.use(QuickDisk()), make(place / "db") as db:
        tree = db.heap("t").by("t_s").tree
        before = shape(tree)
        for number, step in enumerate(steps(seed)):
            step.take(db)
            after = shape(tree)
            seen = (len(before), difference(before, after))
            for kind, wanted in KINDS.items():
                if seen == wanted[:2]:
                    first.setdefault(kind, number)
            before = after
    return first


class Group:
    """The group of redo that has the images of a step's pages, and where it lies."""

    def __init__(self, journal: Journal, count: int) -> None:
        start = max(n for n, one in enumerate(journal) if isinstance(one, Mark) and one.what[0] == "trying")
        self._writes = [one for one in journal[start:] if isinstance(one, Write) and one.file.startswith("redo-")]
        self._names = {one.file: one.name for one in journal if isinstance(one, Create)}
        self._names |= {one.file: one.new for one in journal if isinstance(one, Rename)}
        self._stream = b"".join(one.data for one in self._writes)
        self.begin = next(at for at, pages in self._groups() if len(pages) >= count)
        self.pages = dict(self._groups())[self.begin]
        self.end = self.begin + REDO_GROUP.at(self._stream, self.begin).length

    def _groups(self) -> Iterator[tuple[int, list[int]]]:
        at = 0
        while at + REDO_GROUP.size <= len(self._stream):
            end = at + REDO_GROUP.at(self._stream, at).length
            pages, item_at = [], at + REDO_GROUP.size
            while item_at + REDO_ITEM.size <= end:
                item = REDO_ITEM.at(self._stream, item_at)
                if item.offset in (RedoItem.IMAGE, RedoItem.FORMAT):
                    pages.append(item.page_id)
                item_at += REDO_ITEM.size + item.length
            yield at, sorted(set(pages))
            at = end

    def points(self, journal: Journal) -> list[int]:
        """After each write of a part of the group, and after each of one of its pages to their places since."""
        start, found, at = journal.index(self._writes[0]), [], 0
        for number, one in enumerate(journal[start:], start + 1):
            if isinstance(one, Write) and one.file.startswith("redo-"):
                found += [number] * IN_GROUP if at < self.end and self.begin < at + len(one.data) else []
                at += len(one.data)
            elif isinstance(one, Write) and any(_is_in(one, page_id) for page_id in self.pages):
                found += [number] * IN_PAGES
        return found

    def sectors(self, directory: Path) -> list[bool]:
        """Of each sector that the group lies in, whether it is there."""
        kept, at = [], 0
        for write in self._writes:
            path = directory / self._names.get(write.file, write.file)
            data = path.read_bytes() if path.exists() else b""
            for offset in range(max(self.begin - at, 0), min(self.end - at, len(write.data)), SECTOR):
                part = write.data[offset : min(offset + SECTOR, self.end - at)]
                kept.append(data[write.offset + offset : write.offset + offset + len(part)] == part)
            at += len(write.data)
        return kept


def _is_in(write: Write, page_id: int) -> bool:
    at = offset_of(page_id) * PAGE_SIZE
    is_there = write.offset <= at < write.offset + len(write.data)
    return is_there and write.file == device_path(Path(), device_of(page_id)).name


class SplitCuts(Cuts):
    """Counts how many of the states lie between the parts of a step."""

    def __init__(self, journal: Journal, place: Path, group: Group) -> None:
        super().__init__(journal, place / "base", place / "states", Random(1))
        self._base, self._group = place / "base", group
        self.torn_groups = self.mixed_pages = 0

    def check(self, upto: int, directory: Path) -> None:
        kept = self._group.sectors(directory)
        self.torn_groups += any(kept) and not all(kept)
        changed = [read_page(directory, n) != read_page(self._base, n) for n in self._group.pages]
        self.mixed_pages += any(changed) and not all(changed)
        super().check(upto, directory)


def read_page(directory: Path, page_id: int) -> bytes:
    data = device_path(directory, device_of(page_id)).read_bytes()
    at = offset_of(page_id) * PAGE_SIZE
    return data[at : at + PAGE_SIZE]


def record(path: Path, step: Step) -> Journal:
    recording = QuickRecordingDisk(path)
    with disk.use(recording), make(path) as db:
        before = found(db)
        rows = dict(before["t"])
        if step.comes:
            rows[step.key] = text(step.key)
        else:
            del rows[step.key]
        after: Tables = {**before, "t": rows}
        db.checkpoint()
        recording.mark(("done", before))
        recording.mark(("trying", after))
        step.take(db)
        recording.mark(("done", after))
        db.checkpoint()
    return recording.journal


def cut_step(seed: int, number: int, kind: str) -> SplitCuts:
    """Cut the power in the neighbourhood of a step."""
    with scratch() as place:
        create(place / "db")
        with disk.use(QuickDisk()), make(place / "db") as db:
            for step in steps(seed)[:number]:
                step.take(db)
        shutil.copytree(place / "db", place / "base")
        journal = record(place / "db", steps(seed)[number])
        group = Group(journal, KINDS[kind][2])
        cuts = SplitCuts(journal, place, group)
        cuts.check_at(group.points(journal))
    return cuts


@pytest.fixture(scope="module")
def numbers() -> dict[str, int]:
    return first_of_each_kind(SEED)


@pytest.mark.parametrize("kind", KINDS)
def test_power_is_cut_between_the_parts_of_a_split_or_merge(numbers: dict[str, int], kind: str) -> None:
    assert kind in numbers, f"no step is one: {numbers}"
    cuts = cut_step(SEED, numbers[kind], kind)
    assert cuts.torn_groups >= 1, "no cut was within the group"
    assert cuts.mixed_pages >= 1, "no cut was between its pages"
