"""The control file: two copies, of which the newest whole one counts."""

from __future__ import annotations

import random

import pytest

from gmdb.errors import NotADatabase, UnsupportedVersion
from gmdb.format.checksum import crc32c
from gmdb.format.control import CONTROL, CONTROL_SIZE, COPY_DISTANCE, newest_control, pack_control
from gmdb.storage.directory import CONTROL_NAME, read_control, require_database, write_control


def written_twice(directory):
    fields = write_control(directory, {"ckpt_id": 1, "database_id": [7] * 16, "next_obj_id": 16, "clean": 1})
    return write_control(directory, {**fields, "ckpt_id": 2})


def test_writes_alternate_between_two_copies_and_the_newest_counts(tmp_path):
    assert written_twice(tmp_path)["sequence"] == 2
    data = (tmp_path / CONTROL_NAME).read_bytes()
    assert len(data) == CONTROL_SIZE
    assert [CONTROL.values(data, at)["ckpt_id"] for at in (0, COPY_DISTANCE)] == [2, 1]
    assert read_control(tmp_path)["ckpt_id"] == 2


@pytest.mark.parametrize("torn_at", [0, 8, 20, 63])
def test_a_newest_copy_that_is_torn_leaves_the_one_before(tmp_path, torn_at):
    written_twice(tmp_path)
    path = tmp_path / CONTROL_NAME
    data = bytearray(path.read_bytes())
    data[torn_at] ^= 0xFF
    path.write_bytes(data)
    assert read_control(tmp_path)["ckpt_id"] == 1


def test_both_copies_damaged_are_refused(tmp_path):
    written_twice(tmp_path)
    path = tmp_path / CONTROL_NAME
    data = bytearray(path.read_bytes())
    data[20] ^= 1
    data[COPY_DISTANCE + 20] ^= 1
    path.write_bytes(data)
    with pytest.raises(NotADatabase, match="both copies"):
        read_control(tmp_path)


def test_a_newer_format_version_is_refused():
    raw = bytearray(pack_control(sequence=3))
    raw[8:12] = (99).to_bytes(4, "little")
    raw[-4:] = crc32c(raw[:-4]).to_bytes(4, "little")
    with pytest.raises(UnsupportedVersion, match="99"):
        newest_control(bytes(raw).ljust(CONTROL_SIZE, b"\0"))


@pytest.mark.parametrize("length", [0, 1, 64, 4100, 8192])
def test_noise_is_no_control_file(length):
    with pytest.raises(NotADatabase):
        newest_control(random.Random(length).randbytes(length))


def test_what_a_path_is_instead_of_a_database_is_said(tmp_path):
    (tmp_path / "file").write_text("text")
    (tmp_path / "directory").mkdir()
    for name, said in [("file", "is a file"), ("directory", "without gmdb.control"), ("nothing", "does not exist")]:
        with pytest.raises(NotADatabase, match=said):
            require_database(tmp_path / name)
