"""``python -m tests.access.builds COUNT SEED``: build indexes over tables of every shape, each within limits.

It compiles what it needs once, and forks a child for each case: a build that does not end, or takes ever more memory,
ends its child and nobody else.  A case fills a table, lets its rows grow, move and go, builds an index, and compares
what the index finds with what a scan finds.  It prints the cases that went wrong.
"""

from __future__ import annotations

import faulthandler
import os
import resource
import shutil
import sys
import tempfile
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from random import Random

from gmdb.database.connection import Connection
from gmdb.format.btree import KEY_BYTES_MAX
from gmdb.storage import disk
from tests.crash.harness import QuickDisk, connect
from tests.integrity import assert_sound
from tests.limits import run_limited
from tests.speed import MEMORY

CPU_SECONDS = 10
MEMORY_MAX = 200 << 20
TEXT_MAX = KEY_BYTES_MAX - 10  # with its length, and a number behind it
KEYS = ("short", "long", "longest", "equal", "equal and long", "unique", "any")


@dataclass(frozen=True)
class Case:
    """A table and an index on it."""

    using: str = "btree"
    rows: int = 400
    page_size: int = 8192
    keys: str = "equal"
    grown: float = 0.5  # of the rows are updated, so that most of them move to other pages
    grown_keys: str = "equal and long"
    deleted: float = 0.0
    unique: bool = False
    autocommit: bool = False
    uncommitted: bool = False  # the builder's own transaction has changed the rows
    kept: bool = False  # a snapshot keeps the rows' locks and older versions
    lobs: bool = False
    seed: int = 1


def random_case(seed: int) -> Case:
    random = Random(seed)
    autocommit = random.random() < 0.4
    return Case(
        using=random.choice(("btree", "hash")),
        rows=random.choice((1, 30, 400, 400, 700, 1500)),
        page_size=random.choice((8192, 8192, 16384, 32768)),
        keys=random.choice(KEYS),
        grown=random.choice((0.0, 0.3, 0.5, 1.0)),
        grown_keys=random.choice(KEYS),
        deleted=random.choice((0.0, 0.0, 0.3, 0.9)),
        unique=random.random() < 0.3,
        autocommit=autocommit,
        uncommitted=not autocommit and random.random() < 0.3,
        kept=random.random() < 0.3,
        lobs=random.random() < 0.2,
        seed=seed,
    )


EXAMPLES = [
    *(Case(using, autocommit=autocommit) for using in ("btree", "hash") for autocommit in (False, True)),
    *(Case(using, keys="short", grown=1.0, grown_keys="longest", rows=1500) for using in ("btree", "hash")),
    Case(keys="equal and long", grown=0.0),
    Case("hash", keys="equal and long", grown=0.0),
    Case(page_size=32768, rows=1500, grown=1.0, unique=True, grown_keys="longest", uncommitted=True),
    Case(keys="longest", grown=1.0, grown_keys="short", kept=True),
    Case(lobs=True, grown=1.0),
]


def key(kind: str, number: int, random: Random) -> str | None:
    if kind == "any":
        kind = random.choice(KEYS[:-1])
        if random.random() < 0.1:
            return None
    return {
        "short": f"{random.randrange(10_000)}",
        "long": "l" * 290 + f"{random.randrange(10_000)}",
        "longest": f"{random.randrange(10_000):05}".ljust(TEXT_MAX, "x"),
        "equal": "same",
        "equal and long": "m" * 300,
        "unique": f"u{number}",
    }[kind]


def fill(db: Connection, case: Case, random: Random) -> None:
    db.create_tablespace("space", page_size=case.page_size)
    columns = {"i": "INT", "s": "VARCHAR(2000)"} | ({"b": "BLOB"} if case.lobs else {})
    db.create_table("t", columns, tablespace="space")
    db.create_table("other", {"i": "INT"})
    db.commit()
    for n in range(case.rows):
        db.insert("t", (n, key(case.keys, n, random), *((b"b" * random.randrange(5000),) if case.lobs else ())))
    db.commit()


def change(db: Connection, case: Case, random: Random) -> None:
    heap = db.heap("t")
    for row_id, row in list(heap.rows()):
        if random.random() < case.grown:
            heap.update(row_id, {"s": key(case.grown_keys, row[0], random)})
        elif random.random() < case.deleted:
            heap.delete(row_id)


def check(db: Connection) -> None:
    """What the index finds is what a scan finds."""
    rows = defaultdict(set)
    for row_id, row in db.heap("t").rows():
        rows[row[1], row[0]].add(row_id)
    index = db.heap("t").by("t_s")
    for (s, i), row_ids in rows.items():
        found = [row_id for row_id, row in index.find((s, i)) if (row[1], row[0]) == (s, i)]
        assert sorted(found) == sorted(row_ids), f"{s!r:.20}, {i}: the index has {found}, the table {row_ids}"
    assert sum(1 for _ in index.find(("no such key", -1))) == 0


def run(directory: Path, case: Case) -> None:
    random = Random(case.seed)
    with connect(directory) as db, connect(directory) as reader:
        fill(db, case, random)
        if case.kept:
            reader.begin()
            reader.execute("select count(*) from other").fetchall()
        change(db, case, random)
        if not case.uncommitted:
            db.commit()
        db.autocommit = case.autocommit
        db.create_index("t_s", "t", ["s", "i"], unique=case.unique, using=case.using)
        check(db)
        if not case.autocommit:
            db.commit()
        check(db)
        reader.rollback()
    assert_sound(directory)


def judge(place: Path, case: Case, base: int) -> str:
    """What was wrong with a case; nothing if it went well."""
    ended = run_limited(lambda: run(place / "db", case), CPU_SECONDS)
    shutil.rmtree(place / "db", ignore_errors=True)
    return str(ended) if ended.code or ended.memory - base > MEMORY_MAX else ""


def main(count: int, seed: int) -> int:
    faulthandler.enable()
    place = Path(tempfile.mkdtemp(prefix="gmdb-builds-", dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    bad = 0
    try:
        with disk.use(QuickDisk()):
            for using in ("btree", "hash"):  # compiles all that the children need, with keys of which none moves
                run(place / using, Case(using, rows=40, keys="unique", grown=0.1, grown_keys="unique", deleted=0.1))
            base = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10
            for case in [*EXAMPLES, *map(random_case, range(seed, seed + count))]:
                wrong = judge(place, case, base)
                if wrong:
                    bad += 1
                    print(f"BAD {case}: {wrong}", flush=True)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    print(f"{len(EXAMPLES) + count} cases, {bad} bad")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
