"""A database that was not closed, opened for reading only: recovered in memory, and not a byte is written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gmdb
from gmdb.errors import ReadOnly
from gmdb.format.address import device_of, offset_of
from gmdb.format.mirror import PAGES_AT
from gmdb.format.page import PAGE_HEAD
from gmdb.storage.directory import device_path
from gmdb.storage.log.checkpoint import Mirror
from tests.crash.faults import RecordingDisk
from tests.crash.workload import Workload, found
from tests.log.bank import TOTAL, balances, open_bank

NAME_AT = PAGE_HEAD.offset("page_id")


def contents(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.iterdir() if file.is_file()}


@pytest.mark.parametrize("seed", range(4))
def test_rows_are_right_and_files_unchanged(tmp_path: Path, seed: int) -> None:
    path, copy = tmp_path / "db", tmp_path / "copy"
    db, other = gmdb.connect(path), gmdb.connect(path)
    workload = Workload(RecordingDisk(tmp_path), db, other, seed)
    for _ in range(150):
        workload.step()
    workload.commit()
    expected = found(db, quiet=False)
    db.rollback()
    shutil.copytree(path, copy)
    other.close()
    db.close()
    before = contents(copy)
    for _ in range(2):
        with gmdb.connect(copy, read_only=True) as reader:
            assert reader.recovery is not None
            assert found(reader) == expected
            with pytest.raises(ReadOnly):
                reader.create_table("more", {"i": "INT"})
    assert contents(copy) == before
    with gmdb.connect(copy) as writer:
        assert found(writer) == expected


def test_torn_pages_are_mended_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checkpoint is stopped behind the mirror: the copy of then has some pages torn in their places."""
    path, copy = tmp_path / "db", tmp_path / "copy"
    db = open_bank(path)
    db.checkpoint()
    db.update("accounts", {"note": "x" * 300})
    db.commit()
    page_id = int(db.heap("accounts").segment.page_ids()[0])
    write = Mirror.write

    def write_and_crash(self: Mirror, *arguments: object) -> None:
        write(self, *arguments)
        if not copy.exists():
            shutil.copytree(path, copy)

    monkeypatch.setattr(Mirror, "write", write_and_crash)
    db.checkpoint()
    db.close()
    mirror, name = (copy / "gmdb.mirror").read_bytes(), page_id.to_bytes(4, "little")
    at = next(at for at in range(PAGES_AT, len(mirror), 8192) if mirror[at + NAME_AT : at + NAME_AT + 4] == name)
    with open(device_path(copy, device_of(page_id)), "r+b") as file:
        file.seek(offset_of(page_id) * 8192)
        file.write(mirror[at : at + 4096])
    before = contents(copy)
    with gmdb.connect(copy, read_only=True) as reader:
        assert reader.recovery is not None
        assert page_id in reader.recovery.torn_pages  # beside pages that were never in their places
        assert sum(balances(reader).values()) == TOTAL
        assert {values[2] for _, values in reader.heap("accounts").rows()} == {"x" * 300}
    assert contents(copy) == before
