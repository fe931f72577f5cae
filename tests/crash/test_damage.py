"""A page of a database is damaged, and statements of all kinds meet it.

Each succeeds, or raises Corruption that names the page; whatever does not need the page goes on: other tables, a
rollback, a commit, closing.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random

import pytest

from gmdb.database.connection import Connection
from gmdb.errors import Corruption
from gmdb.format.address import UNDO_DEVICE, device_of, offset_of, page_name
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.storage import disk
from gmdb.storage.log import backup
from tests.crash.harness import QuickDisk, connect, scratch
from tests.crash.test_bit_flips import flip, pages_of
from tests.security.uses import CHANGING, LASTING, READING, Use
from tests.security.victims import WITNESS, fill, small_files

CASES = int(os.environ.get("GMDB_DAMAGE", "25"))
SEED = int(os.environ.get("GMDB_DAMAGE_SEED", "1"))
SLOW = {"list rows plain", "verify while open"}
USES: dict[str, Use] = {name: use for name, use in {**READING, **CHANGING, **LASTING}.items() if name not in SLOW}
AT_ONCE = 25  # uses of a case


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with disk.use(QuickDisk()):
        yield


class Closed:
    """A database that was closed: its pages, each kind of them of each object apart, and whose the witness's are."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with small_files(), connect(path) as db:
            fill(db, Random(1))
            db.changes(tables=["keyed", "every"], reader="slow", without_lobs=True).close()
            table = db.table("witness")
            self.needed = {table.obj_id, *(index.obj_id for index in table.indexes)}
            tables = [db.table(name) for name in db.tables()]
            self.objects = {table.name: table.obj_id for table in tables}
            self.objects |= {index.name: index.obj_id for table in tables for index in table.indexes}
        self.kinds: dict[tuple[int, ...], list[tuple[Path, int, int, int]]] = {}
        self.witnessed: set[int] = set()
        for file, at, size, page_id in pages_of(path):
            head = PAGE_HEAD.at(file.read_bytes()[at : at + size])
            self.kinds.setdefault((head.page_type, head.seg_type, head.obj_id), []).append((file, at, size, page_id))
            shared = head.page_type in (PageType.DEVICE_HEAD, PageType.TRANSACTIONS)
            shared |= device_of(page_id) == UNDO_DEVICE
            if shared or head.obj_id in self.needed or head.seg_type == SegmentType.SYSTEM:
                self.witnessed.add(page_id)


@pytest.fixture(scope="module")
def closed() -> Iterator[Closed]:
    with scratch() as place, disk.use(QuickDisk()):
        yield Closed(place / "db")


def require_place(error: Corruption, page_id: int | None, name: str) -> None:
    """The error says which page is damaged, and where."""
    assert error.page_id == page_id, f"{name}: {error!r} names page {error.page_id}"
    assert page_id is not None
    assert error.offset is not None, f"{name}: {error}"
    assert page_name(page_id) in str(error) or f"page {offset_of(page_id)}" in str(error), f"{name}: {error}"


def use(db: Connection, name: str, page_id: int | None) -> bool:
    """Do one thing, and take it back; returns whether the damaged page was met."""
    try:
        USES[name](db)
    except Corruption as error:
        require_place(error, page_id, name)
        return True
    except Exception as error:
        raise AssertionError(f"{name}, page {page_id} damaged: {error!r}") from error
    finally:
        db.rollback()
    return False


def test_every_use_succeeds_where_nothing_is_damaged(closed: Closed) -> None:
    with scratch() as place:
        shutil.copytree(closed.path, place / "db")
        with connect(place / "db", lock_timeout=0.5) as db:
            for name in Random(SEED).sample(list(USES), len(USES)):
                assert not use(db, name, None), name


def test_statements_that_meet_damage_say_where_and_others_go_on(closed: Closed) -> None:
    met = 0
    for number in range(CASES):
        random = Random(SEED * 1_000_000 + number)
        file, at, size, page_id = random.choice(closed.kinds[random.choice(list(closed.kinds))])
        with scratch() as place:
            shutil.copytree(closed.path, place / "db")
            flip(place / "db" / file.name, 8 * at + random.randrange(8 * (size - 4)))
            try:
                met += go_on(place / "db", closed, page_id, random)
            except BaseException as error:
                error.add_note(f"case {number}: page {page_name(page_id)}")
                raise
    assert met > CASES // 3


def go_on(directory: Path, closed: Closed, page_id: int, random: Random) -> bool:
    try:
        db = connect(directory, lock_timeout=0.5)
    except Corruption as error:
        require_place(error, page_id, "opening")
        return True
    met = False
    for name in random.sample(list(USES), AT_ONCE):
        met |= use(db, name, page_id)
    if page_id not in closed.witnessed:
        assert db.execute("select * from witness order by k").fetchall() == WITNESS
        db.execute("insert into witness values (1000, 'new')")
        db.commit()
        db.execute("update witness set s = 'other' where k = 1000")
        db.rollback()
        assert db.execute("select s from witness where k = 1000").fetchall() == [("new",)]
    db.close()
    return met


# ---- what was found so


@pytest.mark.parametrize(
    ("damaged", "name"),
    [
        ("every", "analyze every"),  # DuckDB reads the table
        ("keyed", "backup"),
        ("keyed_hash", "update keyed set k = k + 5000 where k between 21 and 40"),
        ("keyed_hash", "rows by id"),
    ],
)
def test_damage_is_not_taken_for_something_else(closed: Closed, damaged: str, name: str) -> None:
    """Every page of the table or index, in turn."""
    obj_id = closed.objects[damaged]
    pages = [page for (_, _, owner), pages in closed.kinds.items() if owner == obj_id for page in pages]
    met = 0
    for file, at, size, page_id in pages:
        with scratch() as place:
            shutil.copytree(closed.path, place / "db")
            flip(place / "db" / file.name, 8 * at + 8 * (size // 2))
            with connect(place / "db") as db:
                met += use(db, name, page_id)
    assert met


def test_a_backup_does_not_wait_for_a_page_that_nobody_writes(closed: Closed) -> None:
    file, at, size, page_id = closed.kinds[(PageType.DATA, SegmentType.HEAP, closed.objects["keyed"])][0]
    with scratch() as place:
        shutil.copytree(closed.path, place / "db")
        flip(place / "db" / file.name, 8 * at + 8 * (size // 2))
        with connect(place / "db") as db:
            began = time.monotonic()
            assert use(db, "backup", page_id)
            assert time.monotonic() - began < backup.PATIENCE
