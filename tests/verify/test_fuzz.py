"""Random damage: nothing raises, nothing goes unnoticed, and the compiled check agrees with the plain one."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest

import gmdb
from gmdb.format.address import page_id_of
from gmdb.format.checksum import page_crc
from gmdb.format.page import HEAD_SIZE, TAIL_SIZE, slot_offset
from gmdb.format.row import MIN_OCCUPIED
from gmdb.kernel.checks.page_checks import NOTE, PAGE_FACTS, check_pages
from gmdb.kernel.checks.row_checks import ASK, GOOD, UNWRITTEN
from gmdb.storage.directory import device_path
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.verify import verify
from gmdb.verify.page_contents import Rules
from gmdb.verify.survey import page_findings
from tests.searches import extent

FLIPS = extent(150, 500)
MUTATIONS = extent(400, 1_400)
TWIN_MUTATIONS = extent(300, 1_000)
BODY = 900  # most structures lie near a page's start
pytestmark = pytest.mark.search


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small database with migrated rows, freed slots and free pages, so that one verify takes milliseconds."""
    path = tmp_path_factory.mktemp("fuzz") / "small.gmdb"
    with gmdb.connect(path) as db:
        db.create_table("t", {"k": "INT NOT NULL", "v": "VARCHAR(900)"}, pct_free=5)
        db.commit()
        table = db.heap("t")
        row_ids = [table.insert((n, "v" * 90)) for n in range(60)]
        db.commit()
        for row_id in row_ids[::10]:
            table.update(row_id, {"v": "w" * 800})
        for row_id in row_ids[5:40:3]:
            table.delete(row_id)
        db.create_table("types", {"i": "INT", "t": "BOOLEAN", "d": "DECIMAL(30,2)", "c": "CHAR(3)"})
        db.commit()
        for n in range(10):
            db.insert("types", (n, n % 2 == 0, Decimal(n), "é"))
        db.create_table("keyed", {"k": "INT", "s": "VARCHAR(900)", "w": "DECIMAL(30,2)", "d": "DOUBLE"})
        db.create_index("keyed_k", "keyed", ["k"], unique=True)
        db.create_index("keyed_s", "keyed", ["s", "w", "d"])
        db.create_index("keyed_hash", "keyed", ["k"], unique=True, using="hash")
        db.create_index("keyed_deep", "keyed", ["s"], using="hash")  # a key with more rows than a page takes
        db.commit()
        for n in range(60):
            db.insert("keyed", (n if n % 9 else None, f"{n % 5}" * 700, n if n % 4 else None, n / 2))
        db.create_table("lobs", {"k": "INT", "b": "BLOB"})
        for n, size in enumerate((5, 900, 1001, 8080, 30_000)):
            db.insert("lobs", (n, bytes([n + 1]) * size))
        db.create_table("gone", {"i": "INT"})
        db.commit()
        db.insert("gone", (1,))
        db.drop_table("gone")
    assert verify(path).clean
    return path


class Target:
    """The pages in use of a database, each of which can be written and put back."""

    def __init__(self, path: Path) -> None:
        self.path, self.places = path, []
        with DatabaseFiles(path) as files:
            self.tables = {table.obj_id: table for table in files.tables()}
            for number, device in files.devices.items():
                for offset in range(device.hwm):
                    self.places.append((number, offset, device.page(offset)))
        numbers = {number for number, _, _ in self.places}
        self._files = {number: os.open(device_path(path, number), os.O_WRONLY) for number in numbers}

    def write(self, number: int, offset: int, page: bytes) -> None:
        os.pwrite(self._files[number], page, offset * len(page))

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)


@pytest.fixture
def target(small: Path) -> Iterator[Target]:
    made = Target(small)
    yield made
    for place in made.places:
        made.write(*place)
    made.close()


def sealed(page: bytes) -> bytes:
    return page[:-TAIL_SIZE] + page_crc(page).to_bytes(4, "little") + bytes(TAIL_SIZE - 4)


def mutated(page: bytes, chance: random.Random) -> bytes:
    """The page with some bytes changed: mostly in heads and directory, to values that mean something."""
    changed = bytearray(page)
    end = len(page) - TAIL_SIZE
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        row = int.from_bytes(page[slot_offset(len(page), 0) :][:2], "little") + 24 * chance.randrange(20)
        at = chance.choice(
            (
                chance.randrange(8, HEAD_SIZE + 24),
                chance.randrange(HEAD_SIZE, BODY),
                end - chance.randrange(1, 200),
                chance.randrange(end),
                min(row + chance.randrange(20), end - 1),
            )
        )
        width = chance.choice((1, 1, 2, 4))
        value = chance.choice((0, (1 << 8 * width) - 1, chance.randrange(1 << 8 * width), chance.randrange(40)))
        changed[at : min(at + width, end)] = value.to_bytes(width, "little")[: end - at]
    return bytes(changed)


def test_a_flipped_bit_below_the_high_water_mark_is_always_found(target: Target) -> None:
    chance = random.Random(1)
    for _ in range(FLIPS):
        number, offset, page = chance.choice(target.places)
        flipped = bytearray(page)
        bit = chance.randrange(8 * (len(page) - 4))  # the tail's last 4 bytes are reserved
        flipped[bit // 8] ^= 1 << bit % 8
        target.write(number, offset, bytes(flipped))
        found = verify(target.path).findings
        assert page_id_of(number, offset) in {finding.page_id for finding in found}, (number, offset, bit)
        target.write(number, offset, page)


def test_no_damage_raises_anything(target: Target) -> None:
    chance = random.Random(2)
    for step in range(MUTATIONS):
        number, offset, page = chance.choice(target.places)
        changed = mutated(page, chance)
        target.write(number, offset, sealed(changed) if step % 4 else changed)
        for finding in verify(target.path).findings:
            assert "bug in gmdb" not in finding.message
            assert str(finding)
        if chance.random() < 0.9:  # else the next damage comes on top
            target.write(number, offset, page)
        if step % 50 == 0:
            for place in target.places:
                target.write(*place)


def test_the_compiled_check_and_the_plain_one_agree(target: Target, sound_database: Path) -> None:
    chance = random.Random(3)
    large = Target(sound_database)
    large.close()
    places = [(place, made.tables) for made in (target, large) for place in made.places]
    for _ in range(TWIN_MUTATIONS):
        (number, offset, page), tables = chance.choice(places)
        changed = sealed(mutated(page, chance))
        page_id = page_id_of(number, offset)
        verdict = compiled_verdict(changed, page_id, tables)
        if verdict not in (ASK, UNWRITTEN):
            plain = [f for f in page_findings(changed, page_id, tables) if "listed twice" not in f.message]
            assert (verdict == GOOD) == (not plain), (page_id, verdict, plain)


def compiled_verdict(page: bytes, page_id: int, tables: dict[int, TableDefinition]) -> int:
    memory, facts = np.frombuffer(page, np.uint8), np.zeros(1, PAGE_FACTS)
    notes, rules = np.empty(2 * len(page) // MIN_OCCUPIED, NOTE), Rules(tables)
    arguments = rules.address, facts.ctypes.data, notes.ctypes.data
    check_pages(memory.ctypes.data, 1, len(page), page_id, *arguments)
    return int(facts["verdict"][0])
