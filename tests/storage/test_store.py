"""Directories, devices and tablespaces, as users meet them and as accidents leave them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import gmdb
from gmdb.database.connection import Connection
from gmdb.errors import (
    Corruption,
    DatabaseClosed,
    DatabaseInUse,
    InterfaceError,
    NoSuchTablespace,
    NotADatabase,
    ReadOnly,
    SchemaError,
    SpaceFull,
    StorageError,
    UnsupportedVersion,
)
from gmdb.format.checksum import crc32c, page_crc
from gmdb.format.control import CONTROL, COPY_DISTANCE, pack_control
from gmdb.storage.directory import device_path
from tests.integrity import assert_sound, read_pages


def numbers(count: int, start: int = 0) -> pa.Table:
    values = np.arange(start, start + count, dtype=np.int32)
    return pa.table({"i": pa.array(values), "s": pa.array(["hello"] * count)})


def fill(path: Path, count: int = 5000) -> None:
    with gmdb.connect(path) as db:
        db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"})
        db.commit()
        db.append("t", numbers(count))


def total(db: Connection) -> int:
    return int(db.arrow("t").read_all()["i"].to_numpy().sum())


def test_what_was_closed_is_there_again(path: Path) -> None:
    fill(path)
    with gmdb.connect(path) as db:
        assert db.tables() == ["t"]
        assert total(db) == sum(range(5000))
    assert_sound(path)


def test_a_program_that_forgets_to_close_loses_nothing_it_committed(path: Path) -> None:
    code = """
import sys, gmdb
db = gmdb.connect(sys.argv[1])
db.create_table("t", {"i": "INT"})
db.heap("t").insert((7,))
db.commit()
db.heap("t").insert((8,))
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)
    with gmdb.connect(path) as db:
        assert [values for _, values in db.heap("t").rows()] == [(7,)]


def test_what_a_process_that_dies_had_not_committed_is_not_there(path: Path) -> None:
    fill(path)
    code = """
import os, sys, gmdb, pyarrow as pa
db = gmdb.connect(sys.argv[1])
db.append("t", db.arrow("t").read_all())
db.heap("t").insert((1, "x"))
os._exit(1)
"""
    subprocess.run([sys.executable, "-c", code, str(path)], check=False)
    with gmdb.connect(path) as db:
        assert total(db) == sum(range(5000))
    assert_sound(path)


def test_a_writer_is_told_that_other_processes_read_the_database(path: Path) -> None:
    gmdb.connect(path).close()
    code = f"import gmdb; db = gmdb.connect({str(path)!r}, read_only=True); print('open', flush=True); input()"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == "open\n"
        with pytest.raises(DatabaseInUse, match=f"{path} is open in .*; close it there first"):
            gmdb.connect(path)
        reader.communicate("\n")


def test_a_second_connection_in_the_same_process_shares_the_database(db: Connection, path: Path) -> None:
    with gmdb.connect(path) as other:
        other.create_table("t", {"i": "INT"})
        other.commit()
        other.heap("t").insert((1,))
    assert [values for _, values in db.heap("t").rows()] == [(1,)]
    with pytest.raises(DatabaseInUse, match="open for writing in this process already"):
        gmdb.connect(path, read_only=True)


def test_a_forked_child_lets_go_of_the_database_without_writing(db: Connection) -> None:
    db.create_table("t", {"i": "INT"})
    db.commit()
    child = os.fork()
    if child == 0:
        try:
            db.heap("t")
        except DatabaseClosed:
            os._exit(7)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    db.heap("t").insert((1,))


def test_readers_share_a_database_and_cannot_change_it(path: Path) -> None:
    fill(path)
    with gmdb.connect(path, read_only=True) as one, gmdb.connect(path, read_only=True) as two:
        assert total(one) == total(two) == sum(range(5000))
        with pytest.raises(ReadOnly):
            one.append("t", numbers(1))
        with pytest.raises(ReadOnly):
            two.heap("t").insert((1, "x"))
        with pytest.raises(DatabaseInUse):
            gmdb.connect(path)


def test_a_closed_database_says_so(path: Path) -> None:
    db = gmdb.connect(path)
    db.create_table("t", {"i": "INT"})
    db.commit()
    heap = db.heap("t")
    db.close()
    db.close()
    for use in (
        lambda: db.heap("t"),
        lambda: heap.insert((1,)),
        lambda: db.create_table("u", {"i": "INT"}),
        db.checkpoint,
    ):
        with pytest.raises(InterfaceError, match="is closed"):
            use()


def test_paths_that_are_no_database_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("hello")
    with pytest.raises(NotADatabase, match="is a file; a gmdb database is a directory"):
        gmdb.connect(file)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "letter.txt").write_text("dear")
    with pytest.raises(NotADatabase, match="has files in it"):
        gmdb.connect(tmp_path / "folder")
    with pytest.raises(NotADatabase, match="does not exist"):
        gmdb.connect(tmp_path / "nothing", read_only=True)
    assert not (tmp_path / "nothing").exists()
    assert file.read_text() == "hello"


def test_a_control_file_of_noise_is_refused(path: Path) -> None:
    fill(path)
    (path / "gmdb.control").write_bytes(os.urandom(8192))
    with pytest.raises(NotADatabase, match="control"):
        gmdb.connect(path)


def test_a_torn_control_write_falls_back_to_the_copy_before(path: Path) -> None:
    fill(path)
    control = path / "gmdb.control"
    data = bytearray(control.read_bytes())
    sequences = [CONTROL.at(data, at).sequence for at in (0, COPY_DISTANCE)]
    newest = COPY_DISTANCE * sequences.index(max(sequences))
    data[newest + 30] ^= 1
    control.write_bytes(data)
    with gmdb.connect(path):
        pass


def test_a_newer_format_is_refused(path: Path) -> None:
    fill(path)
    raw = bytearray(pack_control(sequence=99))
    CONTROL.at(raw).format_version = 3
    raw[-4:] = crc32c(raw[:-4]).to_bytes(4, "little")
    (path / "gmdb.control").write_bytes(bytes(raw))
    with pytest.raises(UnsupportedVersion, match="format version 3"):
        gmdb.connect(path)


def test_a_file_that_was_cut_short_is_refused_with_what_is_lost(path: Path) -> None:
    fill(path, 100_000)
    device = device_path(path, 4)
    os.truncate(device, device.stat().st_size - 3 * 8192)
    with pytest.raises(Corruption, match=r"device-0004 was cut short: .* 3 pages are lost") as caught:
        gmdb.connect(path)
    assert caught.value.page_id is not None


def test_a_missing_device_file_is_named(path: Path) -> None:
    fill(path)
    device_path(path, 4).unlink()
    with pytest.raises(Corruption, match="device-0004 is missing"):
        gmdb.connect(path)


@pytest.mark.parametrize("device", [0, 1, 4])
def test_a_device_head_of_noise_is_refused(path: Path, device: int) -> None:
    fill(path)
    with open(device_path(path, device), "r+b") as file:
        file.write(os.urandom(8192))
    with pytest.raises(Corruption, match=f"device-000{device}"):
        gmdb.connect(path)


@pytest.mark.parametrize("offset", [1, 2, 3, 20])
def test_a_page_of_noise_is_found_by_the_read_that_touches_it(path: Path, offset: int) -> None:
    fill(path)
    with open(device_path(path, 4), "r+b") as file:
        file.seek(offset * 8192)
        file.write(os.urandom(8192))
    with (
        gmdb.connect(path, read_only=True) as db,
        pytest.raises(Corruption, match=f"page 4:{offset}, offset") as caught,
    ):
        db.arrow("t").read_all()
    assert caught.value.page_id == 4 << 22 | offset


def test_every_flipped_bit_of_a_page_is_found(path: Path) -> None:
    fill(path, 200)
    device = device_path(path, 4)
    good = device.read_bytes()
    generator = np.random.default_rng(1)
    for at in generator.integers(2 * 8192, 3 * 8192 - 4, 60).tolist():
        data = bytearray(good)
        data[at] ^= 1 << int(generator.integers(8))
        device.write_bytes(data)
        with gmdb.connect(path, read_only=True) as db, pytest.raises(Corruption, match="page 4:2"):
            db.arrow("t").read_all()


def test_pages_with_a_right_crc_but_mad_contents_crash_nothing(path: Path) -> None:
    """Noise under a valid checksum: scans raise, or answer with rows, but the process lives."""
    fill(path, 200)
    device = device_path(path, 4)
    good = device.read_bytes()
    generator = np.random.default_rng(2)
    refused = 0
    for _ in range(150):
        data = bytearray(good)
        page = memoryview(data)[2 * 8192 : 3 * 8192]
        for at in generator.integers(24, 8184, int(generator.integers(1, 6))).tolist():
            page[at] = int(generator.integers(256))
        page[-8:-4] = page_crc(page).to_bytes(4, "little")
        device.write_bytes(data)
        with gmdb.connect(path, read_only=True) as db:
            try:
                list(db.heap("t").rows())
                db.arrow("t").read_all()
            except gmdb.Error:
                refused += 1
    assert refused > 20


def test_a_tablespace_spreads_over_its_devices(db: Connection) -> None:
    db.create_tablespace("many", devices=3, device_pages_max=20)
    db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"}, tablespace="many")
    db.commit()
    assert db.append("t", numbers(9000)) == 9000
    heap = db.heap("t")
    while len({page_id >> 22 for page_id in heap.segment.page_ids().tolist()}) < 3:
        heap.insert((1, "x" * 10))
    with pytest.raises(SpaceFull, match="tablespace many is full: add a device to it"):
        db.append("t", numbers(100_000))
    with pytest.raises(SpaceFull):
        [heap.insert((1, "x" * 10)) for _ in range(10_000)]
    # all but the device heads, the entry page, and one page kept back in case a map page is needed
    assert len(heap.segment.page_ids()) == 3 * 20 - 3 - 1 - 1
    assert db.arrow("t").read_all().num_rows == sum(1 for _ in heap.rows())


@pytest.mark.parametrize("page_size", [8192, 16384, 32768])
def test_every_page_size_holds_a_table(db: Connection, page_size: int) -> None:
    db.create_tablespace("sized", page_size=page_size)
    db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"}, tablespace="sized")
    db.commit()
    db.append("t", numbers(50_000))
    heap = db.heap("t")
    row_id = heap.insert((-1, "last"))
    assert heap.fetch(row_id) == (-1, "last")
    assert total(db) == sum(range(50_000)) - 1


def test_bad_tablespaces_and_tables_are_refused(db: Connection) -> None:
    for make, message in [
        (lambda: db.create_tablespace("x", page_size=4096), "page size 4096 is not one of"),
        (lambda: db.create_tablespace("main"), "there is a tablespace main already"),
        (lambda: db.create_tablespace("x" * 40), "not a tablespace name"),
        (lambda: db.create_table("t", {"i": "INT"}, pct_free=95), "pct_free 95"),
        (lambda: db.create_table("t", {}), "0 columns"),
        (lambda: db.create_table("t", {"i": "INTT"}), "there is no type INTT"),
        (lambda: db.create_table("t", {"i": "INT", "I": "INT"}), "two columns called I"),
        (lambda: db.create_table("t", {"s": "CHAR(4001)"}), "1 to 4000 bytes"),
        (lambda: db.create_table("", {"i": "INT"}), "not a valid table name"),
        (lambda: db.create_table("t", {"i": "INT"}, tablespace="undo"), "gmdb's own"),
        (lambda: db.drop_table("sys_tables"), "is a system table"),
    ]:
        with pytest.raises(SchemaError, match=message):
            make()
    with pytest.raises(NoSuchTablespace, match="there are system, undo, main"):
        db.create_table("t", {"i": "INT"}, tablespace="elsewhere")
    assert db.tables() == []


def test_dropped_pages_are_used_again(db: Connection, path: Path) -> None:
    for _ in range(5):
        db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"})
        db.commit()
        heap = db.heap("t")
        for n in range(3000):
            heap.insert((n, "hello"))
        db.commit()
        db.drop_table("t")
        db.commit()
        db.gc()  # until then, snapshots may need the pages
    db.checkpoint()
    assert len([page_id for page_id in read_pages(path) if page_id >> 22 == 4]) < 25


def test_a_full_disk_fails_the_statement_and_nothing_else(path: Path) -> None:
    code = """
import resource, sys, pyarrow as pa, gmdb
from gmdb.errors import DiskFull
db = gmdb.connect(sys.argv[1])
db.create_table("t", {"i": "INT", "s": "VARCHAR(10)"})
rows = pa.table({"i": pa.array(range(700_000), pa.int32()), "s": ["hello"] * 700_000})
db.append("t", rows.slice(0, 1000))
db.commit()
resource.setrlimit(resource.RLIMIT_FSIZE, (17 << 20, 17 << 20))  # more than a redo file has
for attempt in (lambda: db.append("t", rows), lambda: [db.heap("t").insert((1, "x" * 10)) for _ in range(700_000)]):
    try:
        attempt()
    except DiskFull as error:
        print(error)
print(db.arrow("t").read_all().num_rows > 1000)
db.commit()
db.close()
"""
    result = subprocess.run([sys.executable, "-c", code, str(path)], capture_output=True, text=True, check=False)
    assert result.stdout.count("device-0004: File too large; nothing was changed") == 2, result.stderr
    assert result.stdout.endswith("True\n")
    assert_sound(path)


def test_a_directory_that_cannot_be_made_is_a_storage_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError):
        gmdb.connect(tmp_path / "file" / "below")
