"""Databases for an attacker to change: between them they have every kind of page and of file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa

from gmdb.database import engine
from gmdb.database.connection import Connection
from gmdb.storage.loads import load_path
from tests.arrow.staged import stage
from tests.crash.harness import connect

REDO_FILE_SIZE = 1 << 20
LEASE = 1e6  # seconds: pins outlast every case
WITNESS = [(n, f"witness {n}") for n in range(60)]
EVERY = (
    "create table every (k int primary key, a bigint, b boolean, c char(5), d date, e double, f decimal(7,2), "
    "g decimal(15,3), h decimal(38,5), i timestamp, l varchar(200), m binary(6), n varbinary(50), o blob, p clob)"
)
RECENT = (
    "create schema more",
    "create table more.recent (k smallint primary key, r real, t time, z timestamptz, v interval, u uuid, j json,"
    " jb jsonb, n int[], s text[], l text, g int generated always as (k * 2) stored)",
    "create index recent_r on more.recent (r, v)",
    "create unique index recent_u on more.recent (u) nulls not distinct",
    "create index recent_l on more.recent (lower(left(l, 20)), (k + 1) desc)",
    "create index recent_h on more.recent using hash (v)",
    "insert into more.recent select i, i / 2.0, time '10:00' + i * interval '1 second', now(), i * interval '1 hour',"
    " ('00000000-0000-0000-0000-' || lpad(i::text, 12, '0'))::uuid, '{\"a\": [1, 2]}', '{\"b\": null}',"
    " array[i, null, 3], array['x', null, 'é'], repeat('Long', i * i) from generate_series(1, 40) as q (i)",
)


@contextmanager
def small_files() -> Iterator[None]:
    """Redo files that can be copied thousands of times."""
    with patch.object(engine, "REDO_FILE_SIZE", REDO_FILE_SIZE):
        yield


def _batch(count: int) -> pa.Table:
    empty = {
        "b": pa.nulls(count, pa.bool_()),
        "d": pa.nulls(count, pa.date32()),
        "t": pa.nulls(count, pa.timestamp("us")),
    }
    return pa.table({"i": pa.array(range(count), pa.int32()), "s": ["a" * 20] * count, **empty})


def _row_of_every(n: int) -> tuple[object, ...]:
    if n % 11 == 10:
        return n, *[None] * 14
    large = n % 9 == 8
    numbers = (n * 10**12, n % 2 == 0, f"c{n % 90}", date(2000 + n % 60, 1 + n % 12, 1), n / 3)
    decimals = (Decimal(n) / 4, Decimal(n) / 8, Decimal(n) * 10**20)
    texts = (datetime(2000, 1, 1 + n % 28, n % 24), f"text {n}", bytes([n % 250]) * 6, bytes(n % 40))
    return n, *numbers, *decimals, *texts, b"o" * (9_000 if large else n % 60), "p" * (3_000 if large else n % 60)


def fill_every(db: Connection, count: int = 90) -> None:
    """Tables that between them have every type of column and every kind of index, and one to bear witness."""
    db.execute(EVERY)
    db.execute("create index every_d on every (d, i)")
    db.execute("create index every_h on every (h, c, m, e)")
    db.execute("create index every_l on every using hash (l)")
    db.execute("create table witness (k int primary key, s varchar(30))")
    db.executemany("insert into witness values (?, ?)", WITNESS)
    db.commit()
    db.set_change_feed("every", True)
    db.commit()
    for n in range(count):
        db.insert("every", _row_of_every(n))
    db.commit()


def fill(db: Connection, random: Random) -> None:
    db.create_table("plain", {"i": "INT", "s": "VARCHAR(2000)", "b": "BOOLEAN", "d": "DATE", "t": "TIMESTAMP"})
    db.create_tablespace("wide", page_size=16384)
    db.create_table("keyed", {"k": "INT NOT NULL", "s": "VARCHAR(900)", "w": "DECIMAL(30,2)", "f": "DOUBLE"})
    db.create_index("keyed_k", "keyed", ["k"], unique=True)
    db.create_index("keyed_s", "keyed", ["s", "w", "f"])
    db.create_index("keyed_hash", "keyed", ["k"], unique=True, using="hash")
    db.create_index("keyed_deep", "keyed", ["s"], using="hash")
    db.create_table("lobs", {"k": "INT", "b": "BLOB", "c": "CLOB"}, tablespace="wide")
    db.create_table("gone", {"i": "INT"})
    db.commit()
    db.set_change_feed("keyed", True)
    db.execute(
        "create table told (id bigint generated always as identity primary key, n int check (n < 100000), "
        "m varchar(20) default 'x' unique)"
    )
    db.commit()
    ids = [db.insert("plain", (n, "s" * random.randrange(60), n % 2 == 0, None, None)) for n in range(200)]
    for n in range(120):
        db.insert("keyed", (n, f"{n % 7}" * random.randrange(1, 700), Decimal(n) / 4, n / 3))
    for n, size in enumerate((5, 900, 1001, 20_000, 70_000)):
        db.insert("lobs", (n, bytes([n + 1]) * size, "c" * size))
    db.insert("gone", (1,))
    db.commit()
    heap = db.heap("plain")
    for row_id in ids[::5]:
        heap.update(row_id, {"s": "m" * 1500})  # many rows leave their pages
    for row_id in ids[3::7]:
        heap.delete(row_id)
    db.append("plain", _batch(500))
    db.execute("insert into told (n) values (1)")
    db.drop_table("gone")
    db.commit()
    fill_every(db)
    for statement in RECENT:
        db.execute(statement)
    db.execute("analyze")


def _stage(db: Connection) -> None:
    """Loads that were made ready and not yet taken in: one of pages, one of Arrow batches."""
    count = 300
    keyed = {"k": pa.array(range(20_000, 20_000 + count), pa.int32()), "s": ["staged"] * count}
    keyed |= {"w": pa.nulls(count, pa.decimal128(30, 2)), "f": pa.array([0.5] * count)}
    schema = db.arrow("every").schema
    every = db.execute("select * from every where k < 40").arrow()
    every = every.set_column(0, "k", pa.array(range(20_000, 20_000 + len(every)), pa.int32())).cast(schema)
    for name, rows in (("keyed", pa.table(keyed)), ("every", every)):
        load = stage(db, name, rows, rows.slice(0, 0))
        folder = load_path(db.path, load.load_id)
        folder.rename(folder.with_name(f"load-{name[0]}"))


def _pin(db: Connection) -> None:
    """A snapshot, of which some pages are images only, taken while a transaction was under way."""
    with connect(db.path) as other:
        other.insert("plain", (1, "o", None, None, None))
        db.take_snapshot(lease=LEASE)
        db.update("keyed", {"f": 2.5}, lambda row: row["k"] < 60)
        db.update("plain", {"s": "image"}, lambda row: (row["i"] or 0) < 20)
        db.commit()
        db.checkpoint()
        other.rollback()


def _leave_at_work(directory: Path, copy: Path, random: Random) -> None:
    """Copy a database while transactions are under way: some of their work is on pages, some in the log only."""
    with connect(directory) as db, connect(directory) as other, connect(directory) as reader:
        reader.execute("begin")
        reader.execute("select count(*) from plain").fetchall()  # its snapshot keeps undo of what commits
        rows = [row_id for row_id, _ in db.heap("plain").rows()]
        keyed = [row_id for row_id, _ in db.heap("keyed").rows()]
        plain, entries = other.heap("plain"), other.heap("keyed")
        for row_id in rows[:20]:
            plain.update(row_id, {"s": "u" * random.randrange(1200)})
            plain.update(row_id, {"i": 7})
        for row_id in keyed[:10]:
            entries.update(row_id, {"s": "z" * 50, "k": 1000 + row_id[1]})
        entries.delete(keyed[11])
        other.insert("lobs", (77, b"x" * 30_000, "y"))
        for row_id in rows[30:40]:
            db.heap("plain").delete(row_id)
        for n in range(200, 230):
            db.insert("keyed", (n, "n" * 100, None, None))
        db.commit()
        db.checkpoint()
        for row_id in rows[40:60]:
            db.heap("plain").update(row_id, {"s": "w" * 900})
        for n in range(230, 260):
            db.insert("keyed", (n, "n" * 300, Decimal(1), 1.0))
        db.heap("keyed").update(keyed[40], {"f": 9.0})
        db.commit()
        for row_id in rows[60:70]:
            plain.delete(row_id)
        other.create_table("unborn", {"i": "INT"})
        other.insert("unborn", (1,))
        db.execute("insert into told (n, m) values (50, 'late')")
        db.commit()
        shutil.copytree(directory, copy)
        other.rollback()


def make_victims(place: Path, seed: int = 1) -> dict[str, Path]:
    """A database that was closed, with log for readers, pins and staged loads; one that crashed; and a backup."""
    random = Random(seed)
    with small_files():
        with connect(place / "closed") as db:
            fill(db, random)
            db.changes(tables=["keyed", "every"], reader="slow", without_lobs=True).close()
            db.set_archiving(True)
        with connect(place / "closed") as db:
            for n in range(500, 520):
                db.insert("keyed", (n, "c" * 20, None, 2.0))
            db.update("keyed", {"f": 1.5}, lambda row: row["k"] > 510)
            db.update("every", {"l": "fed"}, lambda row: row["k"] < 20)
            db.commit()
            _pin(db)
            _stage(db)
            db.backup(place / "backup")
        shutil.copytree(place / "closed", place / "source")
        _leave_at_work(place / "source", place / "crashed", random)
    return {name: place / name for name in ("closed", "crashed", "backup")}
