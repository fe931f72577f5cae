"""A database with every kind of page, in every state in which it may be looked at: closed, crashed, damaged."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random

import gmdb
from gmdb.storage.directory import device_path

ROWS = 300


def fill(db: gmdb.Connection) -> None:
    """Tables with rows that moved and rows that were deleted, indexes of both kinds, large objects."""
    db.create_table("t", {"i": "INT", "s": "VARCHAR(900)", "d": "DECIMAL(7,2)", "c": "CLOB"})
    db.create_index("t_i", "t", ["i"], unique=True)
    db.create_index("t_h", "t", ["i"], using="hash")
    db.commit()
    for k in range(ROWS):
        db.insert("t", (k, "x" * (k % 60), None, "c" * (k % 7 * 400)))
    db.commit()
    db.execute("update t set s = repeat('y', 800) where i < 20")
    db.execute("delete from t where i between 30 and 40")
    db.commit()


def build(folder: Path) -> dict[str, Path]:
    """``closed`` as it was closed; ``crashed`` with the files as they are while a transaction is at work, once before
    and once behind a checkpoint."""
    path = folder / "closed"
    db = gmdb.connect(path)
    fill(db)
    db.execute("update t set s = 'once' where i = 100")
    db.commit()
    db.execute("update t set s = 'twice' where i = 100")
    db.execute("delete from t where i = 101")
    db.checkpoint()
    shutil.copytree(path, folder / "checkpointed")
    db.execute("update t set s = 'thrice' where i = 100")
    db.execute("insert into t (i, s) values (1000, 'new')")
    db.commit()
    shutil.copytree(path, folder / "crashed")
    db.close()
    return {name: folder / name for name in ("closed", "checkpointed", "crashed")}


# ---- damage, by what a disk may do to a file


def _flip(data: bytearray, random: Random, size: int) -> None:
    for _ in range(len(data) // size):
        at = random.randrange(len(data))
        data[at] ^= 1 << random.randrange(8)


def _misdirect(data: bytearray, random: Random, size: int) -> None:
    pages = len(data) // size
    for _ in range(pages // 4):
        a, b = random.randrange(1, pages) * size, random.randrange(1, pages) * size
        data[a : a + size] = data[b : b + size]


def _tear(data: bytearray, random: Random, size: int) -> None:
    for page in range(0, len(data) // size, 3):
        data[page * size + 4096 : (page + 1) * size] = random.randbytes(size - 4096)


def _wipe(data: bytearray, random: Random, size: int) -> None:
    for page in range(len(data) // size):
        if random.random() < 0.3:
            data[page * size : (page + 1) * size] = bytes(size)


def _noise(data: bytearray, random: Random, size: int) -> None:
    for page in range(len(data) // size):
        if random.random() < 0.3:
            data[page * size : (page + 1) * size] = random.randbytes(size)


DAMAGE: dict[str, Callable[[bytearray, Random, int], None]] = {
    "flip": _flip,
    "misdirect": _misdirect,
    "tear": _tear,
    "wipe": _wipe,
    "noise": _noise,
}


def damaged(source: Path, target: Path, kind: str, seed: int = 0, devices: tuple[int, ...] = (0, 1, 4)) -> Path:
    """A copy of a database, with damage of one kind to some of its devices."""
    shutil.copytree(source, target)
    random = Random(seed)
    for number in devices:
        path = device_path(target, number)
        if kind == "cut":
            os.truncate(path, path.stat().st_size // 2 + 100)
        elif kind == "lost":
            if number == 4:
                path.unlink()
        else:
            data = bytearray(path.read_bytes())
            DAMAGE[kind](data, random, 32768 if number == 1 else 8192)
            path.write_bytes(data)
    return target


ALL_DAMAGE = (*DAMAGE, "cut", "lost")
