"""The structures: their sizes, where their fields lie, and the numbers that follow from them."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gmdb.errors import InterfaceError
from gmdb.format import address, btree, checksum, control, device, heap, redo, row, segment, undo
from gmdb.format.address import RowId, device_of, offset_of, page_id_of, page_name, parse_page_id
from gmdb.format.checksum import CRC_TABLE, crc32c
from gmdb.format.layout import LAYOUTS, Record, layout
from gmdb.format.page import PAGE_HEAD, PAGE_TAIL, slot_offset

SIZES = [
    (PAGE_HEAD, 80),
    (PAGE_TAIL, 8),
    (address.ROW_ID, 8),
    (device.DEVICE_HEAD, 76),
    (device.SPACE_HEAD, 72),
    (segment.SEGMENT_HEAD, 560),
    (segment.MAP_HEAD, 12),
    (segment.MAP_ENTRY, 32),
    (segment.LIST_HEAD, 24),
    (heap.HEAP_NODE, 24),
    (btree.BTREE_NODE, 28),
    (undo.UNDO_HEAD, 4),
    (undo.UNDO_RECORD, 24),
    (row.ROW_HEAD, 12),
    (redo.REDO_GROUP, 32),
    (redo.REDO_ITEM, 16),
    (control.CONTROL, 128),
]
HEAD_OFFSETS = {
    "latch.spinlock": 0,
    "latch.latch_cnt": 2,
    "mutex": 4,
    "chg_num": 8,
    "page_id": 12,
    "obj_id": 16,
    "page_create_no": 20,
    "seg_type": 24,
    "page_type": 26,
    "map_page_id": 28,
    "map_offset": 32,
    "free_begin": 36,
    "free_end": 38,
    "del_count": 40,
    "data_begin": 42,
    "ckpt_id": 44,
    "mirror_page": 48,
    "next_ckpt_page": 52,
    "dirty_flag": 56,
    "fl_flag": 59,
    "hash_tab_head.page_count": 62,
    "hash_page_type": 64,
    "reserve": 65,
}


@pytest.mark.parametrize(("structure", "size"), SIZES, ids=lambda value: getattr(value, "name", str(value)))
def test_a_structure_has_the_size_the_format_gives_it(structure, size):
    assert structure.size == structure.dtype.itemsize == size


@pytest.mark.parametrize(("field", "offset"), HEAD_OFFSETS.items())
def test_a_field_of_the_page_head_lies_where_the_format_says(field, offset):
    assert PAGE_HEAD.offset(field) == offset


@pytest.mark.parametrize("structure", LAYOUTS, ids=lambda structure: structure.name)
def test_the_fields_of_every_structure_lie_side_by_side_without_gaps(structure):
    at = 0
    for field in structure.fields:
        assert field.offset == at
        at += field.size
    assert at == structure.size


@pytest.mark.parametrize("structure", LAYOUTS, ids=lambda structure: structure.name)
def test_a_record_has_what_numpy_finds_in_the_same_bytes(structure):
    page = bytearray(random.Random(structure.name).randbytes(structure.size + 3))
    found, record = np.frombuffer(page, structure, 1, 3)[0], structure.at(page, 3)
    for name in structure.names:
        assert np.array_equal(plain(getattr(record, name)), plain(found[name]))
        setattr(record, name, getattr(structure.at(bytes(structure.size)), name))
    assert page[3:] == bytes(structure.size)


def plain(value):
    """A field's value as bytes, numbers, lists and tuples."""
    if isinstance(value, Record):
        return tuple(map(plain, value))
    if isinstance(value, list | tuple | np.ndarray | np.void):
        return [plain(one) for one in value] if len(value) else []
    return value


@pytest.mark.parametrize("size", [0, 63, 64, 5000, 8192, 40_000])
def test_a_checksum_is_the_same_by_bytes_and_by_numpy(size, monkeypatch):
    data = random.Random(size).randbytes(size)
    monkeypatch.setattr(checksum, "_left", 1 << 20)
    by_bytes = crc32c(data, 5)
    monkeypatch.setattr(checksum, "_left", 0)
    assert crc32c(data, 5) == by_bytes


def test_a_structure_declared_with_the_wrong_size_is_refused():
    with pytest.raises(AssertionError, match="4 bytes declared as 5"):
        layout("wrong", 5, number=("<u4", "four bytes"))


def test_what_is_packed_is_what_is_read():
    raw = PAGE_HEAD.pack(page_id=16777223, latch=(1, 2, 3), free_begin=5688)
    values = PAGE_HEAD.values(raw)
    assert (values["page_id"], values["latch.latch_cnt"], values["free_begin"]) == (16777223, 3, 5688)


def test_a_record_reads_and_changes_the_bytes_it_lies_over():
    page = bytearray(PAGE_HEAD.size)
    head = PAGE_HEAD.at(page)
    head.chg_num = 7
    assert page[8] == 7
    page[8] = 9
    assert head.chg_num == 9


@pytest.mark.parametrize(
    ("number", "place", "name"),
    [(16777561, (4, 345), "4:345"), (4194309, (1, 5), "1:5"), (16777223, (4, 7), "4:7"), (1, (0, 1), "0:1")],
)
def test_a_page_id_is_a_device_and_an_offset(number, place, name):
    assert page_id_of(*place) == number
    assert (device_of(number), offset_of(number)) == place
    assert page_name(number) == name
    assert parse_page_id(name) == parse_page_id(str(number)) == number


@pytest.mark.parametrize("text", ["", "4:", ":7", "x", "1024:0", "4:4194304", "-1", "4294967295", "4:7:1"])
def test_what_is_no_page_id_is_refused(text):
    with pytest.raises(InterfaceError, match="is not a page id"):
        parse_page_id(text)


def test_a_row_id_is_eight_bytes_that_read_back():
    row_id = RowId(16777223, 2)
    assert row_id.word.to_bytes(8, "little") == address.ROW_ID.pack(page_id=16777223, slot_id=2, sid_reserve=65535)
    assert RowId.from_word(row_id.word) == row_id
    assert str(row_id) == "4:7:2"


@pytest.mark.parametrize(("page_size", "entry", "further"), [(8192, 235, 252), (16384, 491, 508), (32768, 1003, 1020)])
def test_a_map_page_has_room_for_as_many_entries_as_the_format_says(page_size, entry, further):
    assert segment.map_capacity(page_size, is_entry_page=True) == entry
    assert segment.map_capacity(page_size, is_entry_page=False) == further


def test_a_heap_page_of_8_kib_has_8080_bytes_for_rows_and_slots():
    assert heap.usable_size(8192) == 8080
    assert heap.row_size_max(8192) == 8078
    assert heap.reserve_size(8192, 25) == 2020


def test_map_heads_and_slots_lie_where_the_format_says():
    assert segment.ENTRY_MAP_AT == 640
    assert heap.ROWS_AT == 104
    assert btree.ENTRIES_AT == 108
    assert undo.RECORDS_AT == 84
    assert [slot_offset(8192, slot) for slot in range(3)] == [8182, 8180, 8178]
    assert slot_offset(32768, 0) == 32758


def test_crc32c_gives_the_check_value():
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(b"") == 0
    assert crc32c(bytes(32)) == 0x8A9136AA


@pytest.mark.parametrize("length", [63, 64, 65, 4092, 8188, 32764, 32768, 32769])
def test_crc32c_is_the_same_by_bits_and_byte_by_byte(length):
    data = random.Random(length).randbytes(length)
    crc = 0xFFFF_FFFF
    for byte in data:
        crc = CRC_TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    assert crc32c(data) == crc ^ 0xFFFF_FFFF
