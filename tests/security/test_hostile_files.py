"""A database whose files somebody else has written may not work; but that is all that it may do."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import gmdb
from gmdb.errors import Corruption, NotADatabase, StorageError
from gmdb.format.checksum import crc32c
from gmdb.format.control import CONTROL, COPY_DISTANCE
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.format.segment import ENTRY_MAP_AT, MAP_ENTRY, MAP_HEAD, SEGMENT_HEAD, SEGMENT_HEAD_AT
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.verify import verify
from tests.inspect.build import change_page

CASES = int(os.environ.get("GMDB_HOSTILE", "24"))
SEED = int(os.environ.get("GMDB_HOSTILE_SEED", "1"))


def test_files_that_an_attacker_has_changed_raise_errors_of_gmdb_and_nothing_else() -> None:
    """A process of its own: what goes wrong may end it."""
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-m", "tests.security.hostile", str(CASES), str(SEED)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout[-6000:] + ended.stderr[-4000:]
    done = json.loads(ended.stdout.splitlines()[-1])
    assert done["cases"] == CASES
    assert done["damaged"] >= CASES // 8, f"the attacks should do harm: {done}"  # about a third of many cases do


@pytest.fixture
def closed(tmp_path: Path) -> Path:
    path = tmp_path / "shop.gmdb"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(10))")
        db.execute("insert into t values (1, 'one')")
        db.commit()
    return path


def outside(path: Path) -> Path:
    """A file of the user's that is none of the database's business."""
    made = path.parent / "precious"
    made.write_bytes(b"do not touch" * 100)
    return made


FILES = ("gmdb.control", "gmdb.lock", "gmdb.mirror", "device-0001", "device-0004", "redo-0000000001")
FOLDERS = ("archive", "feeds", "pins", "loads")


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("name", [*FILES, *FOLDERS])
def test_a_link_leads_nowhere(closed: Path, name: str, read_only: bool) -> None:
    target = outside(closed) if name in FILES else closed.parent / "elsewhere"
    if name in FOLDERS:
        target.mkdir()
    (closed / name).unlink(missing_ok=True)
    (closed / name).symlink_to(target)
    with pytest.raises(StorageError, match=r"is a link|is not a database|control"):
        gmdb.connect(closed, read_only=read_only)
    if name in FILES:
        assert target.read_bytes() == b"do not touch" * 100
    else:
        assert not list(target.iterdir())


@pytest.mark.parametrize("kind", ["pipe", "folder"])
@pytest.mark.parametrize("name", ["gmdb.control", "gmdb.lock", "gmdb.mirror", "device-0004"])
def test_what_is_no_file_is_an_error_at_once(closed: Path, name: str, kind: str) -> None:
    (closed / name).unlink(missing_ok=True)
    os.mkfifo(closed / name) if kind == "pipe" else (closed / name).mkdir()
    for read_only in (False, True):
        if name == "gmdb.mirror" and read_only:
            continue  # nobody reads it: the database was closed
        with pytest.raises(StorageError):
            gmdb.connect(closed, read_only=read_only)
    if name.startswith("device"):
        with pytest.raises(StorageError):
            verify(closed)
        with pytest.raises(StorageError):
            DatabaseFiles(closed)


def set_control(path: Path, **fields: int) -> None:
    """Change the control record, in both copies, with its checksum."""
    file = path / "gmdb.control"
    data = bytearray(file.read_bytes())
    for start in (0, COPY_DISTANCE):
        record = bytearray(data[start : start + CONTROL.size])
        for name, value in fields.items():
            field = next(f for f in CONTROL.fields if f.name == name)
            record[field.offset : field.offset + field.size] = value.to_bytes(field.size, "little")
        record[-4:] = crc32c(bytes(record[:-4])).to_bytes(4, "little")
        data[start : start + CONTROL.size] = record
    file.write_bytes(data)


@pytest.mark.parametrize(
    "fields",
    [
        {"scn": (1 << 64) - 1},
        {"next_transaction": 1 << 63},
        {"redo_lsn": (1 << 64) - 1},
        {"sequence": (1 << 64) - 1},
        {"ckpt_id": 0xFFFF_FFFF},
        {"next_obj_id": 0xFFFF_FFFF},
        {"next_device": 1},
        {"next_device": 0xFFFF},
        {"redo_file_size": 512},
        {"redo_file_size": 0xFFFF_FFFF},
    ],
)
def test_a_control_record_that_says_what_cannot_be_is_refused(closed: Path, fields: dict[str, int]) -> None:
    set_control(closed, **fields)
    for read_only in (False, True):
        with pytest.raises(NotADatabase, match="cannot be"):
            gmdb.connect(closed, read_only=read_only)


def test_a_database_that_says_it_is_new_but_has_pages_is_refused(closed: Path) -> None:
    set_control(closed, ckpt_id=0)
    with pytest.raises(Corruption):
        gmdb.connect(closed)


@pytest.mark.parametrize("page_id", [1023 << 22, 1023 << 22 | 0x3FFFFE, 9 << 22 | 5, 4 << 22 | 0x3FFFFF])
def test_a_map_that_lists_a_page_which_cannot_be(closed: Path, page_id: int) -> None:
    with gmdb.connect(closed) as db:
        entry_page = db.table("t").entry_page
    change_page(
        closed,
        entry_page,
        ENTRY_MAP_AT + MAP_HEAD.size + MAP_ENTRY.offset("page_id"),
        page_id.to_bytes(4, "little"),
        sealed=True,
    )
    with gmdb.connect(closed) as db:
        for read in (lambda: db.arrow("t").read_all(), lambda: db.execute("select count(*) from t").fetchall()):
            with pytest.raises(Corruption):
                read()


def test_an_attack_is_undone_by_putting_the_files_back(closed: Path) -> None:
    """What was refused has not been changed by that."""
    copy = closed.with_name("copy.gmdb")
    shutil.copytree(closed, copy)
    set_control(copy, next_device=1)
    with pytest.raises(NotADatabase):
        gmdb.connect(copy)
    shutil.copy(closed / "gmdb.control", copy / "gmdb.control")
    with gmdb.connect(copy) as db:
        assert db.execute("select * from t").fetchall() == [(1, "one")]


KINDS = ("heap", "btree", "hash", "lob")
SAME = {"type": "seg_type", "obj_id": "obj_id"}  # what a segment's head and its page's both say
GROWING = """
import sys, gmdb
from gmdb.errors import Corruption
with gmdb.connect(sys.argv[1]) as db:
    try:
        for n in range(2, 3000):
            db.insert("t", (n, f"{n:09}", n, b"x" * 20_000 if n < 20 else None))
    except Corruption as error:
        print("told:", error)
    db.rollback()
"""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("field", ["type", "obj_id"])
def test_a_segment_that_says_it_is_of_something_else(tmp_path: Path, kind: str, field: str) -> None:
    """Pages that it gets are not what the table or index takes them for; in a process of its own, which may die."""
    path = tmp_path / "shop.gmdb"
    with gmdb.connect(path) as db:
        db.execute("create table t (i int primary key, s varchar(10), h int, b blob)")
        db.execute("create index t_h on t using hash (h)")
        db.insert("t", (1, "one", 1, b"x" * 20_000))
        db.commit()
        table = db.table("t")
        assert table.lobs is not None
        pages = {"heap": table.entry_page, "lob": table.lobs.entry_page}
        pages |= {index.using: index.entry_page for index in table.indexes}
    other = 77_777 if field == "obj_id" else int(SegmentType.BTREE if kind == "heap" else SegmentType.HEAP)
    for layout, at, name in ((SEGMENT_HEAD, SEGMENT_HEAD_AT, field), (PAGE_HEAD, 0, SAME[field])):
        raw = other.to_bytes(layout.dtype[name].itemsize, "little")
        change_page(path, pages[kind], at + layout.offset(name), raw, sealed=True)
    ended = subprocess.run(
        [sys.executable, "-X", "faulthandler", "-c", GROWING, str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode >= 0, ended.stderr[-3000:]
    if field == "type":  # another object's pages can be written to, and are told of when they are read
        assert "told:" in ended.stdout or "Corruption" in ended.stderr, ended.stderr[-3000:]
