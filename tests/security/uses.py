"""What users do with a database, one thing at a time: for tests that give them files which are not as gmdb wrote them.

A use takes a connection and changes nothing that lasts unless it is one of ``LASTING``: whoever calls it rolls back
afterwards, so that uses can come in any order.  Each is named, so that a failure can say what was being done.
"""

from __future__ import annotations

import shutil
from argparse import Namespace
from collections.abc import Callable
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from random import Random
from typing import Any

from gmdb.cli.stat_verbs import SalvageVerb
from gmdb.database.connection import Connection
from gmdb.database.copies import restore, verify_backup
from gmdb.inspect.inspector import Inspector, open_inspector
from gmdb.storage.loads import LOADS_NAME
from gmdb.storage.log.reports import finish
from gmdb.storage.pins import Pin
from gmdb.tables.access.indexes import KeyRange
from gmdb.tables.arrow.attach import Load
from gmdb.tables.catalog.definition_documents import table_from_plain
from gmdb.verify import verify
from tests.frozen import read_table

TABLES = ("plain", "keyed", "lobs", "told", "every", "more.recent")
INDEXES = ("keyed_k", "keyed_s", "keyed_hash", "keyed_deep", "every_pkey", "every_d", "every_h", "every_l")
VIEWS = ("sys_tables", "sys_columns", "sys_indexes", "sys_constraints", "sys_identities", "sys_statistics")
VIEWS += ("sys_streams", "sys_locks", "sys_transactions", "sys_snapshots", "sys_feed_readers")

Use = Callable[[Connection], Any]


def sql(statement: str) -> Use:
    return lambda db: db.execute(statement).fetchall()


def change(statement: str) -> Use:
    return lambda db: db.execute(statement)


# ---- reading

_SELECTS = (
    "select * from keyed where k = 17",
    "select k from keyed where k between 5 and 60 order by k",
    "select k from keyed where k > 90 order by k desc",
    "select k from keyed where s = '3333'",
    "select max(k), min(k) from keyed",
    "select s, w from keyed where s >= '2' and s < '5' order by s limit 50",
    "select * from told where id = 1",
    "select * from every",
    "select * from more.recent where lower(left(l, 20)) = 'long' or k + 1 = 5",
    "select r, v, t, z::text from more.recent where r > 2 order by r, v",
    "select jb -> 'b', j ->> 'a', n[1], s, length(l) from more.recent where v between '1 hour' and '9 hours'",
    "select u, count(*), max(t), min(v), array_agg(k), max(z) from more.recent group by u",
    "select * from every where k = 3",
    "select * from every where k in (1, 5, 900)",
    "select k, p from every where l = 'text 4'",
    "select h, c, m from every where d between date '2001-01-01' and date '2030-01-01' order by d desc",
    "select count(*), sum(f), avg(e), min(i), max(l), count(o), sum(length(p)) from every",
    "select b, count(*), max(h) from every group by b order by b",
    "select a.k, b.s from every a join keyed b on a.k = b.k where b.f > 1 order by a.k",
    "select count(*) from plain p left join keyed q on p.i = q.k where q.k is null",
    "select k, row_number() over (order by f, k) from keyed order by 2 limit 20",
    "select distinct s from keyed",
    "select k from keyed where k in (select i from plain where b)",
    "select * from plain order by s, i limit 10",
    "select rowid, i from plain where i < 5",
    "select * from keyed where k < 40 for update",
    "select * from every where k = 4 for update",
    "explain select * from every where d = date '2001-01-01' and l = 'x'",
    "explain select count(*) from keyed, every where keyed.k = every.k and s = '1'",
    "select * from gm_segments()",
    "select * from gm_rows('every')",
)


def _rows(name: str) -> Use:
    def read(db: Connection) -> None:
        for number, _ in enumerate(db.heap(name).rows()):
            if number > 3000:
                break

    return read


def _arrow(name: str) -> Use:
    def read(db: Connection) -> None:
        for batch in db.arrow(name):
            batch.validate()

    return read


def _by_index(db: Connection) -> None:
    for index, table, keys in (("keyed_k", "keyed", (5,)), ("keyed_s", "keyed", ("2",)), ("every_pkey", "every", (3,))):
        for number, _ in enumerate(db.select(table, by=index, keys=KeyRange(keys, None)).rows()):
            if number > 3000:
                break
    db.select("every", ["k", "o"], by="every_l", keys=KeyRange(("text 4",), ("text 4",))).arrow().read_all()


def _by_row_id(db: Connection) -> None:
    heap = db.heap("plain")
    ids = [row_id for row_id, _ in zip((row_id for row_id, _ in heap.rows()), range(200), strict=False)]
    db.select("plain", row_ids=ids).arrow().read_all()
    for row_id in ids[:50]:
        heap.fetch(row_id)


def _pandas(db: Connection) -> None:
    db.execute("select * from plain").df()
    db.execute("select k, a, d, e, l from every").df()


def _lobs(db: Connection) -> None:
    for row_id, _ in db.heap("lobs").rows():
        for column in ("b", "c"):
            with db.open_lob("lobs", column, row_id) as file:
                file.read(1000)
                file.seek(max(0, file.seek(0, 2) - 10))
                file.read()


def _changes(**options: Any) -> Use:
    def read(db: Connection) -> None:
        with db.changes(tables=["keyed", "every"], without_lobs=True, **options) as feed:
            for number, one in enumerate(feed):
                str(one)
                if number > 2000:
                    break

    return read


def _indexes(db: Connection) -> None:
    for index in INDEXES:
        db._index_pages(index)


def _definitions(db: Connection) -> None:
    for name in db.tables():
        repr(db.table(name))
        db.statistics(name)


_PLAIN = ("spaces", "devices", "segments", "fill", "cells", "undo", "locks", "transactions", "waits")
LISTED: tuple[tuple[str, ...], ...] = (
    *((name,) for name in (*_PLAIN, "snapshots", "checkpoints", "lobs")),
    *(("diff", "4:1", "4:2"), ("regions", "4:3"), ("image", "4:2"), ("maps", "every"), ("freelists", "plain")),
    *(("rows", name) for name in ("plain", "keyed", "lobs", "every", "sys_columns")),
    *(("index", "keyed_s"), ("entries", "keyed_k"), ("entries", "every_h"), ("hash", "keyed_deep")),
    *(("entries", "keyed_deep"), ("pages", "every_d"), ("fill", "keyed")),
)
LISTED_OF_FILES = (("pages",), ("redo",), ("history", "4:3"))  # they take long while a database is changed


def _listing(name: str, *arguments: str) -> Use:
    return lambda db: db.inspect(name, *arguments)


READING: dict[str, Use] = {
    **{statement: sql(statement) for statement in _SELECTS if not statement.endswith("for update")},
    **{f"rows {name}": _rows(name) for name in TABLES},
    **{f"arrow {name}": _arrow(name) for name in TABLES},
    **{f"count {name}": sql(f"select count(*) from {name}") for name in TABLES},
    **{f"view {name}": (lambda db, name=name: db.system_view(name)) for name in VIEWS},  # type: ignore[misc]
    "by index": _by_index,
    "by row id": _by_row_id,
    "pandas": _pandas,
    "large objects": _lobs,
    "pages of indexes": _indexes,
    "definitions": _definitions,
    **{f"list {' '.join(words)}": _listing(*words) for words in LISTED},
    "changes": _changes(reader="slow"),
    "changes with values before": _changes(reader="slow", before=True),
}


# ---- changing

_CHANGES = (
    "insert into plain values (1, 'new', true, null, null)",
    "insert into plain select i + 10000, s, b, d, t from plain",
    "insert into keyed values (3001, 'a', 1, 1)",
    "update more.recent set l = l || '!', v = v * 2, n = n || 4, r = r + 1 where k < 30",
    "insert into more.recent (k, u, l) values (900, null, 'New'), (901, null, 'New') on conflict do nothing",
    "delete from more.recent where t > '10:00:09'",
    "alter table more.recent alter column g drop expression",
    "drop schema more cascade",
    "insert into every (k, l, o, p) values (3001, 'new', null, 'clob')",
    "insert into told (n, m) values (9, 'new')",
    "update keyed set s = 'changed' where k = 20",
    "update keyed set k = k + 5000 where k between 21 and 40",
    "update every set h = h + 1, l = l || '!', d = null where k < 30",
    "update every set o = null, p = p || p",
    "update plain set s = s || 'longer longer longer longer longer longer' where i < 30",
    "delete from keyed where k = 22",
    "delete from keyed",
    "delete from every where d > date '2001-01-01'",
    "delete from plain where i > 400",
    "delete from lobs where k = 4",
    "create index made on keyed (w, k)",
    "create unique index made on every (k, l)",
    "create index made on plain using hash (i)",
    "drop index keyed_s",
    "drop index every_l",
    "drop table plain",
    "drop table keyed",
    "drop table lobs",
    "drop table every",
    "truncate table keyed",
    "truncate table every",
    "create table made (i int primary key, c clob)",
    "create table made as select k, s from keyed",
    "alter table every add column z int",
    "alter table every add column z int default 5",
    "alter table keyed rename column s to t",
    "alter table plain rename to plainer",
    "alter table keyed alter column k set not null",
    "alter table keyed add constraint positive check (k >= 0)",
    "alter table plain set (change_feed = true)",
    "alter table keyed set (change_feed = false)",
)


def _many(db: Connection) -> None:
    rows = [(n, "m" * (n % 50), None, n / 7) for n in range(7000, 7400)]
    db.executemany("insert into keyed values (?, ?, ?, ?)", rows)
    db.executemany("update keyed set f = ? where k = ?", [(1.0, n) for n in range(100)])
    db.executemany("delete from keyed where k = ?", [(n,) for n in range(0, 100, 3)])


def _rows_by_id(db: Connection) -> None:
    heap = db.heap("keyed")
    ids = [row_id for row_id, _ in heap.rows()][:300]
    for number, row_id in enumerate(ids):
        if number % 3:
            heap.delete(row_id)
        else:
            heap.update(row_id, {"s": "x" * (number % 800), "k": 10_000 + number})


def _append(db: Connection) -> None:
    db.append("plain", db.execute("select * from plain limit 400").arrow())


def _savepoints(db: Connection) -> None:
    db.begin()
    db.insert("keyed", (8001, "s", None, None))
    db.savepoint("here")
    db.insert("keyed", (8002, "s" * 300, None, None))
    db.delete("told", lambda row: row["id"] > 0)
    db.rollback_to("here")
    db.insert("plain", (5, "after", None, None, None))


CHANGING: dict[str, Use] = {
    **{statement: change(statement) for statement in _CHANGES},
    **{statement: sql(statement) for statement in _SELECTS if statement.endswith("for update")},
    "executemany": _many,
    "rows by id": _rows_by_id,
    "a large object": lambda db: db.insert("lobs", (9, b"b" * 40_000, "c" * 2000)),
    "append": _append,
    "savepoints": _savepoints,
    "rows that a function chooses": lambda db: db.update("every", {"l": "x"}, lambda row: (row["k"] or 0) % 2 == 1),
    "select for update": lambda db: list(db.select_for_update("keyed", lambda row: row["k"] < 5)),
}


# ---- what lasts


def _backup(db: Connection) -> None:
    target = db.path.with_name("made.backup")
    try:
        db.backup(target)
    finally:
        shutil.rmtree(target, ignore_errors=True)


def read_pinned(directory: Path, pin: Pin) -> None:
    """What Spark reads: by a pin, out of the files, as another process would."""
    for name in sorted(table.name for table in map(table_from_plain, pin.tables)):
        if not name.startswith("sys_"):
            read_table(directory, pin, name, skips_damage=True)
            read_table(directory, pin, name)


def _snapshot(db: Connection) -> None:
    pin = db.take_snapshot(lease=60)
    try:
        read_pinned(db.path, pin)
    finally:
        db.drop_snapshot(pin.name)


def _attach(db: Connection) -> None:
    for folder in sorted((db.path / LOADS_NAME).glob("*")):
        parts = tuple(sorted(path.name for path in folder.glob("part-*")))
        db._attach_load(Load("every" if folder.name.endswith("e") else "keyed", folder.name, parts))


LASTING: dict[str, Use] = {
    "analyze": change("analyze"),
    "analyze keyed": change("analyze keyed"),
    "analyze every": change("analyze every"),
    "gc": lambda db: db.gc(),
    "checkpoint": lambda db: db.checkpoint(),
    "shrink": lambda db: db.shrink(),
    "backup": _backup,
    "verify while open": lambda db: db.verify(),
    "a snapshot": _snapshot,
    "staged loads": _attach,
    "commit": lambda db: db.commit(),
    "identity": lambda db: db.next_identity("told", "id"),
}


# ---- closed files


def _list_files(directory: Path, random: Random) -> None:
    with open_inspector(directory, random.choice((None, None, "end"))) as inspector:
        for name, *arguments in random.sample((*LISTED, *LISTED_OF_FILES), 4):
            _tolerant(inspector, name, arguments)


def _tolerant(inspector: Inspector, name: str, arguments: list[str]) -> None:
    listing = inspector.listing(name, *arguments)
    listing.arrow()
    repr(listing.problems)


def _salvage(directory: Path, random: Random) -> None:
    out = directory.with_name("rescued")
    output = {"json": True, "csv": False, "arrow": None, "where": None, "all": False}
    at = random.choice((None, "end"))
    try:
        with redirect_stdout(StringIO()):
            SalvageVerb.run(Namespace(database=directory, out=out, deleted=True, at=at, **output))
    finally:
        shutil.rmtree(out, ignore_errors=True)


def _restore(directory: Path, random: Random) -> None:
    """If it is a backup."""
    target = directory.with_name("restored")
    try:
        restore(directory, target, archive=random.choice((None, directory)))
    finally:
        shutil.rmtree(target, ignore_errors=True)


CLOSED: dict[str, Callable[[Path, Random], Any]] = {
    "verify": lambda directory, _: verify(directory),
    "listings of files": _list_files,
    "salvage": _salvage,
}
OF_BACKUPS: dict[str, Callable[[Path, Random], Any]] = {
    "restore": _restore,
    "verify the backup": lambda directory, _: finish(verify_backup(directory), None),
}
