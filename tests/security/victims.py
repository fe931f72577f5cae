"""Databases for an attacker to change: between them they have every kind of page and of file."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from pathlib import Path
from random import Random
from unittest.mock import patch

import pyarrow as pa

from gmdb import engine
from gmdb.connection import Connection
from tests.crash.harness import connect

REDO_FILE_SIZE = 1 << 20


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


def _fill(db: Connection, random: Random) -> None:
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
    ids = [db.insert("plain", (n, "s" * random.randrange(60), n % 2 == 0, None, None)) for n in range(300)]
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
    db.append("plain", _batch(1500))
    db.execute("insert into told (n) values (1)")
    db.drop_table("gone")
    db.commit()


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
    """A database that was closed, one that was closed and has log for readers of changes, and one that crashed."""
    random = Random(seed)
    with small_files():
        with connect(place / "closed") as db:
            _fill(db, random)
            db.changes(tables=["keyed"], reader="slow").close()
        with connect(place / "closed") as db:
            for n in range(500, 520):
                db.insert("keyed", (n, "c" * 20, None, 2.0))
            db.update("keyed", {"f": 1.5}, lambda row: row["k"] > 510)
            db.commit()
        shutil.copytree(place / "closed", place / "source")
        _leave_at_work(place / "source", place / "crashed", random)
    return {name: place / name for name in ("closed", "crashed")}
