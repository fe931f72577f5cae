"""A database with every kind of table and page that the engine makes, and tools to damage a copy of it."""

from __future__ import annotations

import random
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa

import gmdb
from gmdb.database.connection import Connection
from gmdb.format import heap
from gmdb.format.address import RowId, device_of, offset_of
from gmdb.format.checksum import crc32c, page_crc
from gmdb.format.control import CONTROL, COPY_DISTANCE
from gmdb.format.layout import Layout
from gmdb.format.page import PAGE_TAIL, TAIL_SIZE
from gmdb.storage.directory import CONTROL_NAME, device_path
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.verify import Finding, verify

ALL_TYPES = {
    "i": "INT NOT NULL",
    "b": "BIGINT",
    "d": "DOUBLE",
    "t": "BOOLEAN",
    "day": "DATE",
    "at": "TIMESTAMP",
    "d9": "DECIMAL(9,2)",
    "d18": "DECIMAL(18,4)",
    "d38": "DECIMAL(38,10)",
    "c": "CHAR(5)",
    "v": "VARCHAR(40)",
    "bin": "BINARY(4)",
    "vb": "VARBINARY(20)",
}
WIDE_COLUMNS = 40


def all_types_row(n: int) -> tuple[Any, ...]:
    if n % 7 == 3:
        return (n, *[None] * (len(ALL_TYPES) - 1))
    return (
        n,
        -(n**3),
        n / 3,
        n % 2 == 0,
        date(2000, 1, 1 + n % 28),
        datetime(2001, 2, 3, 4, 5, n % 60),
        Decimal(n % 1000 * 7) / 100,
        Decimal(-n * 1001) / 10000,
        Decimal(-1 if n % 2 else 1) * Decimal(10**27 + n),
        "äö"[: n % 3] + "x",
        "grüße €😀"[: n % 9],
        bytes([n % 256, 1]),
        bytes(range(n % 20)),
    )


def build_database(path: Path) -> Path:
    """Bulk appends, inserts, updates, migrations, deletes, dropped tables; tablespaces of all page sizes."""
    chance = random.Random(7)
    with gmdb.connect(path) as db:
        db.create_tablespace("medium", page_size=16384, devices=2, device_pages_max=40)
        db.create_tablespace("large", page_size=32768)
        db.create_table("bulk", {"i": "INT NOT NULL", "s": "VARCHAR(10)"})
        db.commit()
        texts = ["hello", None, "", "é"]
        db.append("bulk", pa.table({"i": pa.array(range(70_000), pa.int32()), "s": texts * 17_500}))
        _types(db, "main", "types8", 600)
        _types(db, "medium", "types16", 900)
        _types(db, "large", "types32", 300)
        wide = {f"c{n}": "INT" for n in range(WIDE_COLUMNS)}
        db.create_table("wide", wide)
        db.commit()
        for n in range(50):
            db.insert("wide", [n if (n + k) % 3 else None for k in range(WIDE_COLUMNS)])
        _moved(db, chance)
        _lobs(db, "lobs8", "main")
        _lobs(db, "lobs32", "large")
        for n in range(3):
            db.create_table(f"gone{n}", {"v": "VARCHAR(100)"})
            db.commit()
            db.append(f"gone{n}", pa.table({"v": ["x" * 100] * 3_000}))
        db.commit()
        db.drop_table("gone0")
        db.drop_table("gone2")
        db.commit()
        db.delete("gone1", where=lambda _: chance.random() < 0.95)
        db.create_table("empty", {"i": "INT"}, tablespace="large")
    with gmdb.connect(path) as db:
        db.delete("bulk", where=lambda row: 20_000 <= row["i"] < 40_000)
        db.insert("bulk", (1, "again"))
    return path


def _types(db: Connection, space: str, name: str, count: int) -> None:
    db.create_table(name, ALL_TYPES, tablespace=space)
    db.commit()
    for n in range(count // 3):
        db.insert(name, all_types_row(n))
    db.commit()
    db.append(name, db.arrow(name).read_all())
    db.append(name, db.arrow(name).read_all().slice(0, count // 3))


def _moved(db: Connection, chance: random.Random) -> None:
    """Rows that grow and shrink, so that some leave their page, some come back, and some are gone."""
    db.create_table("moved", {"k": "INT NOT NULL", "v": "VARCHAR(900)"}, pct_free=5)
    db.commit()
    table = db.heap("moved")
    row_ids = [table.insert((n, "v" * chance.randrange(60))) for n in range(400)]
    db.commit()
    for row_id in chance.choices(row_ids, k=500):
        table.update(row_id, {"v": "w" * chance.choice((0, 10, 200, 880))})
    for row_id in set(chance.choices(row_ids, k=120)):
        table.delete(row_id)
    db.commit()


LOB_SIZES = (0, 900, 1001, 8080, 50_000, 200_000)


def _lobs(db: Connection, name: str, space: str) -> None:
    """Large objects in the row, on one page and on many; some are gone."""
    db.create_table(name, {"k": "INT NOT NULL", "b": "BLOB", "c": "CLOB"}, tablespace=space)
    rows = [db.insert(name, (n, bytes([n]) * size, "é" * (size // 2))) for n, size in enumerate(LOB_SIZES * 2)]
    db.commit()
    for row_id in rows[:4]:
        db.heap(name).delete(row_id)
    db.heap(name).update(rows[5], {"b": b"short", "k": 7})
    db.commit()


# ---- damage


class Damage:
    """Writes into a database's files.  Pages are sealed again unless a test is about their CRC."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def page(self, page_id: int) -> bytes:
        with DatabaseFiles(self.path) as files:
            return files.page(page_id)

    def write(self, page_id: int, offset: int, raw: bytes, sealed: bool = True) -> None:
        page = bytearray(self.page(page_id))
        page[offset : offset + len(raw)] = raw
        self.write_page(page_id, bytes(page), sealed)

    def write_page(self, page_id: int, page: bytes, sealed: bool = True) -> None:
        if sealed:
            page = page[:-TAIL_SIZE] + PAGE_TAIL.pack(crc=page_crc(page))
        with open(device_path(self.path, device_of(page_id)), "r+b") as file:
            file.seek(offset_of(page_id) * len(page))
            file.write(page)

    def set(self, page_id: int, layout: Layout, at: int, field: str, value: int) -> int:
        """Change one field of a structure; answers the field's offset on the page."""
        offset = at + layout.offset(field)
        size = next(f.size for f in layout.fields if f.name == field)
        self.write(page_id, offset, value.to_bytes(size, "little"))
        return offset

    def get(self, page_id: int, layout: Layout, at: int, field: str) -> int:
        return int(layout.values(self.page(page_id), at)[field])

    def table(self, name: str) -> TableDefinition:
        with DatabaseFiles(self.path) as files:
            return files.table(name)

    def pages(self, name: str) -> list[int]:
        """A table's data pages."""
        with DatabaseFiles(self.path) as files:
            return files.segment_pages(files.table(name).entry_page)

    def map_pages(self, name: str) -> list[int]:
        with DatabaseFiles(self.path) as files:
            return files.map_pages(files.table(name).entry_page)

    def rows(self, name: str, wanted: int = 0, unwanted: int = 0) -> list[tuple[RowId, int]]:
        """(row id, offset) of a table's rows with all of the wanted flags and none of the others."""
        found = []
        for page_id in self.pages(name):
            page = self.page(page_id)
            for slot, offset in heap.live_slots(page):
                flags = heap.flags_of(page, offset)
                if flags & wanted == wanted and not flags & unwanted:
                    found.append((RowId(page_id, slot), offset))
        return found

    def newest_copy(self) -> int:
        """Where the control record that counts is in the control file."""
        data = (self.path / CONTROL_NAME).read_bytes()
        return max((0, COPY_DISTANCE), key=lambda at: int(CONTROL.values(data, at)["sequence"]))

    def set_control(self, field: str, value: int) -> int:
        """Change a field of the control record that counts, with a right CRC; answers the field's offset."""
        data, at = bytearray((self.path / CONTROL_NAME).read_bytes()), self.newest_copy()
        place, end = at + CONTROL.offset(field), at + CONTROL.offset("crc")
        size = next(f.size for f in CONTROL.fields if f.name == field)
        data[place : place + size] = value.to_bytes(size, "little")
        data[end : end + 4] = crc32c(data[at:end]).to_bytes(4, "little")
        (self.path / CONTROL_NAME).write_bytes(data)
        return place

    def findings(self) -> list[Finding]:
        return verify(self.path).findings
