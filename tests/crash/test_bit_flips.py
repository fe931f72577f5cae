"""One bit of a file is flipped: it is found by ``verify`` and by whoever reads the page, or it meant nothing."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import Random

import numpy as np
import pyarrow as pa
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import Corruption, Error
from gmdb.format.address import page_id_of
from gmdb.format.control import CONTROL, COPY_DISTANCE
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.redo import HEAD_SPACE, REDO_FILE, payload
from gmdb.kernel.page.checkpoint import page_is_whole
from gmdb.storage import disk
from gmdb.storage.directory import CONTROL_NAME, device_numbers, device_path, read_control
from gmdb.storage.log.log_files import redo_numbers, redo_path
from tests.crash.harness import QuickDisk, connect, scratch, small_log
from tests.crash.workload import COLUMNS, SCHEMA, Tables, found
from tests.integrity import problems

FLIPS = int(os.environ.get("GMDB_FLIPS", "10000"))  # by the compiled check of pages
VERIFIED = int(os.environ.get("GMDB_FLIPS_VERIFIED", "80"))  # by verify, and by reading all there is

SEED = int(os.environ.get("GMDB_FLIPS_SEED", "0"))


@pytest.fixture(autouse=True)
def quick() -> Iterator[None]:
    with small_log(), disk.use(QuickDisk()):
        yield


def fill(db: Connection) -> Tables:
    db.create_table("t", COLUMNS)
    db.create_table("u", COLUMNS)
    db.commit()
    heap = db.heap("t")
    ids = [heap.insert((k, "x" * (k % 90))) for k in range(200)]
    db.commit()
    for k in range(0, 200, 9):
        heap.update(ids[k], {"s": "y" * 2000})
    db.append("u", pa.table([list(range(400)), ["z" * 70] * 400], schema=SCHEMA))
    db.commit()
    return found(db)


@pytest.fixture(scope="module")
def closed() -> Iterator[tuple[Path, Tables]]:
    with scratch() as place, disk.use(QuickDisk()), small_log():
        with connect(place / "db") as db:
            contents = fill(db)
        yield place / "db", contents


def pages_of(directory: Path) -> list[tuple[Path, int, int, int]]:
    """File, offset, size and id of every page below the high-water marks."""
    found = []
    for number in device_numbers(directory):
        data = device_path(directory, number).read_bytes()
        size = SPACE_HEAD.at(data, SPACE_HEAD_AT).page_size
        for page in range(DEVICE_HEAD.at(data, DEVICE_HEAD_AT).hwm):
            found.append((device_path(directory, number), page * size, size, page_id_of(number, page)))
    return found


def flip(path: Path, bit: int) -> None:
    with path.open("r+b") as file:
        file.seek(bit // 8)
        byte = file.read(1)[0]
        file.seek(bit // 8)
        file.write(bytes([byte ^ 1 << bit % 8]))


def test_the_check_of_pages_finds_every_flipped_bit(closed: tuple[Path, Tables]) -> None:
    random = Random(SEED + 1)
    pages = [(np.fromfile(path, np.uint8, size, offset=at), size, n) for path, at, size, n in pages_of(closed[0])]
    assert all(page_is_whole(page.ctypes.data, n, size) for page, size, n in pages)
    for _ in range(FLIPS):
        page, size, page_id = random.choice(pages)
        bit = random.randrange(8 * (size - 4))  # what lies behind the CRC means nothing
        page[bit // 8] ^= 1 << bit % 8
        assert not page_is_whole(page.ctypes.data, page_id, size), f"page {page_id}, bit {bit}"
        page[bit // 8] ^= 1 << bit % 8


def test_a_flipped_bit_of_a_page_is_found_by_verify_and_never_read_as_a_row(closed: tuple[Path, Tables]) -> None:
    directory, contents = closed
    random = Random(SEED + 2)
    pages = pages_of(directory)
    for n in range(VERIFIED):
        path, at, size, page_id = pages[n % len(pages)]
        bit = 8 * at + random.randrange(8 * (size - 4))
        flip(path, bit)
        try:
            assert problems(directory), f"page {page_id}, bit {bit} of {path.name}"
            read_all(directory, contents)
        finally:
            flip(path, bit)
    assert not problems(directory)


def read_all(directory: Path, contents: Tables) -> None:
    """Read every table by rows and by Arrow: each gives the right rows, or says that a page is damaged."""
    try:
        db = connect(directory, read_only=True)
    except Corruption:
        return
    with db:
        for name, rows in contents.items():
            with suppress(Corruption):
                assert {k: s for _, (k, s) in db.heap(name).rows()} == rows
            with suppress(Corruption):
                table = db.arrow(name).read_all()
                assert dict(zip(table["k"].to_pylist(), table["s"].to_pylist(), strict=True)) == rows


def test_a_database_with_a_flipped_bit_may_be_changed_and_closed_without_making_it_worse(
    closed: tuple[Path, Tables],
) -> None:
    random = Random(SEED + 3)
    pages = pages_of(closed[0])
    for n in range(30):
        with scratch() as place:
            shutil.copytree(closed[0], place / "db")
            path, at, size, page_id = pages[n * 5 % len(pages)]
            flip(place / "db" / path.name, 8 * at + random.randrange(8 * (size - 4)))
            opened: list[Connection] = []
            try:
                opened.append(connect(place / "db"))
                for k in range(1000, 1020):
                    opened[0].insert("t", (k, "new"))
                opened[0].delete("u", lambda row: row["k"] % 3 == 0)
                opened[0].commit()
                opened[0].gc()
            except Corruption:
                pass
            for db in opened:
                with suppress(Corruption):
                    db.close()
            read_right(place / "db", closed[1], f"page {page_id}")


def read_right(directory: Path, before: Tables, where: str) -> None:
    try:
        with connect(directory, read_only=True) as db:
            for name in before:
                for _, (k, s) in db.heap(name).rows():
                    assert s == before[name].get(k, "new"), where
    except Corruption:
        pass


# ---- files beside the devices


class Crashed:
    """A copy of a database that is open, with all commits on disk, and what was there after each of them."""

    def __init__(self, place: Path) -> None:
        self.path = place / "crashed"
        self.states: list[Tables] = []
        with connect(place / "db") as db:
            db._database.transactions.stop()
            fill(db)
            db.checkpoint()
            heap = db.heap("t")
            for k in range(1000, 1040):
                heap.insert((k, "after the checkpoint" * 3))
                db.commit()
                self.states.append(found(db))
            shutil.copytree(place / "db", self.path)


@pytest.fixture(scope="module")
def crashed() -> Iterator[Crashed]:
    with scratch() as place, disk.use(QuickDisk()), small_log():
        yield Crashed(place)


def open_flipped(crashed: Crashed, name: str, bit: int) -> Tables | Error:
    """What is found in the crashed database with a bit flipped, or how it is refused."""
    with scratch() as place:
        shutil.copytree(crashed.path, place / "db")
        flip(place / "db" / name, bit)
        try:
            with connect(place / "db") as db:
                return found(db)
        except Error as error:
            return error


def test_a_flipped_bit_of_the_log_is_found_unless_it_lies_at_its_very_end(crashed: Crashed) -> None:
    """The last group alone can be lost: nothing behind it says that it was on disk."""
    random = Random(SEED + 4)
    control = read_control(crashed.path)
    number, start = divmod(control["redo_lsn"], payload(control["redo_file_size"]))
    path = redo_path(crashed.path, number)
    used = np.flatnonzero(np.fromfile(path, np.uint8)).max() + 1
    places = [random.randrange(REDO_FILE.size) for _ in range(20)]
    places += [random.randrange(HEAD_SPACE + start, used) for _ in range(100)]
    refused = 0
    for bit in [8 * place + random.randrange(8) for place in places]:
        answer = open_flipped(crashed, path.name, bit)
        if isinstance(answer, Error):
            assert isinstance(answer, Corruption), f"bit {bit}: {answer!r}"
            refused += 1
        else:
            assert answer in crashed.states[-2:], f"bit {bit} of {path.name}: commits were lost without a word"
    assert refused > 80


def test_a_damaged_file_in_the_middle_of_the_log_is_found() -> None:
    """Not only its groups: its head, too, without which it looks as if the log ended before it."""
    with scratch() as place:
        with connect(place / "db") as db:
            db._database.transactions.stop()
            db.create_table("t", COLUMNS)
            db.commit()
            for k in range(400):
                db.insert("t", (k, "x" * 2900))
                db.commit()
            shutil.copytree(place / "db", place / "crashed")
            expected = found(db)
        used = [n for n in redo_numbers(place / "crashed") if any(redo_path(place / "crashed", n).read_bytes()[512:])]
        assert len(used) >= 4
        for number in used[1:]:
            for damage in ("flip", "remove"):
                shutil.copytree(place / "crashed", place / "copy")
                if damage == "flip":
                    flip(redo_path(place / "copy", number), 8 * 20)
                else:
                    redo_path(place / "copy", number).unlink()
                if number == used[-1] and damage == "remove":
                    pass  # what was in the last file nobody else speaks of
                else:
                    with pytest.raises(Corruption, match="redo"):
                        connect(place / "copy").close()
                shutil.rmtree(place / "copy")
        with connect(place / "crashed") as db:
            assert found(db) == expected


def test_a_flipped_bit_of_the_mirror_is_harmless(crashed: Crashed) -> None:
    random = Random(SEED + 5)
    for bit in [random.randrange(8 * 64) for _ in range(5)] + [8 * 65536 + random.randrange(1 << 18) for _ in range(5)]:
        assert open_flipped(crashed, "gmdb.mirror", bit) == crashed.states[-1], f"bit {bit}"


@pytest.mark.parametrize("after", ["opening", "a new tablespace"])
def test_a_flipped_bit_of_the_control_file_is_harmless(after: str) -> None:
    """One copy is enough, whichever it is: it must not say that the database was closed, or forget a device."""
    random = Random(SEED + 6)
    with scratch() as place:
        with connect(place / "db") as db:
            fill(db)
        with connect(place / "db") as db:
            if after == "a new tablespace":
                db.create_tablespace("more")
                db.create_table("v", COLUMNS, tablespace="more")
                db.commit()
            db.insert("t", (5000, "new"))
            db.commit()
            expected = found(db)
            shutil.copytree(place / "db", place / "crashed")
        for n in range(40):
            shutil.copytree(place / "crashed", place / "copy")
            flip(place / "copy" / CONTROL_NAME, 8 * COPY_DISTANCE * (n % 2) + random.randrange(8 * CONTROL.size))
            with connect(place / "copy") as db:
                assert found(db) == expected, f"flip {n}"
            shutil.rmtree(place / "copy")
