"""Any page taken apart: good pages are found sound, and no bytes make the inspection fail."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gmdb.format.anatomy import check, regions
from gmdb.format.page import PAGE_HEAD, PAGE_SIZES, PageType, SegmentType
from tests.inspect.build import DeviceBuilder, build_database, reference_rows, seal

TYPES = [(page_type, SegmentType.NONE) for page_type in (*PageType, 77)]
TYPES += [(PageType.DATA, seg_type) for seg_type in (*SegmentType, 99)]


@st.composite
def noise_pages(draw):
    """Noise behind a head of each type; some heads keep plausible offsets, so that entries are looked at."""
    size = draw(st.sampled_from(PAGE_SIZES))
    page_type, seg_type = draw(st.sampled_from(TYPES))
    generator = random.Random(draw(st.integers(0, 2**32)))
    page = bytearray(generator.randbytes(size))
    head = PAGE_HEAD.at(page)
    head.page_type, head.seg_type = page_type, seg_type
    if draw(st.booleans()):
        head.hash_page_type = draw(st.integers(0, 3))
        head.free_begin, head.free_end = sorted(draw(st.tuples(st.integers(0, size), st.integers(0, size))))
        count = draw(st.integers(0, 40))
        page[84:86] = page[90:92] = page[80:82] = count.to_bytes(2, "little")
        for slot in range(count):
            at = size - 8 - 2 * (slot + 1)
            page[at : at + 2] = draw(st.integers(80, 600)).to_bytes(2, "little")
    return bytes(page)


def built_pages(tmp_path):
    built = build_database(tmp_path / "db")
    for path in sorted(built.glob("device-*")):
        number, data = int(path.name[-4:]), path.read_bytes()
        size = 32768 if number == 1 else 8192
        for offset in range(len(data) // size):
            yield number << 22 | offset, data[offset * size : (offset + 1) * size]


def covers_every_byte_once(page):
    at = 0
    for region in regions(page):
        assert region.offset == at
        assert region.length > 0
        at = region.end
    return at == len(page)


@settings(max_examples=120, deadline=None)
@given(noise_pages())
def test_regions_cover_each_byte_of_any_page_once_and_check_raises_nothing(page):
    assert covers_every_byte_once(page)
    findings = check(page, 5)
    assert findings
    assert all(0 <= finding.offset < 1 << 17 for finding in findings)


def test_every_page_of_a_good_database_is_sound_and_named_in_full(tmp_path):
    for page_id, page in built_pages(tmp_path):
        assert check(page, page_id) == []
        assert covers_every_byte_once(page)


@pytest.mark.parametrize("size", PAGE_SIZES)
def test_a_page_of_zeros_is_sound_and_covered(size):
    assert check(bytes(size), 3) == []
    assert covers_every_byte_once(bytes(size))


def test_bytes_that_are_no_whole_page_are_one_finding():
    assert [finding.offset for finding in check(bytes(100))] == [0]


@pytest.mark.parametrize("offset", [12, 36, 84, 110, 5000, 8170, 8184])
def test_a_changed_byte_is_found_by_the_crc(tmp_path, offset):
    page = bytearray(dict(built_pages(tmp_path))[4 << 22 | 7])
    page[offset] ^= 0x40
    assert any("CRC" in finding.message for finding in check(bytes(page)))


@pytest.mark.parametrize(
    ("offset", "raw", "said"),
    [
        (12, b"\x09\x00\x00\x00", "its head says 0:9"),
        (0, b"\x01", "latch and mutex"),
        (26, b"\x4d\x00", "not a page of gmdb"),
        (36, b"\xff\xff", "free_begin 65535"),
        (38, b"\x00\x00", "free_end 0"),
        (40, b"\x05\x00", "del_count 5"),
        (84, b"\xff\xff", "slot_count 65535"),
        (107, b"\x01", "1 rows are deleted"),
        (107, b"\x08", "compaction"),
        (107, b"\x06", "both ENTRY and LINK"),
        (108, b"\x03\x00", "size 3"),
        (112, b"\x0f\x00\x00\x00", "reach past the row's end"),
        (8182, b"\x7c\x00", "overlap"),
        (8182, b"\x00\x1f", "lies outside the entries"),
    ],
)
def test_what_is_wrong_with_a_heap_page_is_said(tmp_path, offset, raw, said):
    page = bytearray(dict(built_pages(tmp_path))[4 << 22 | 7])
    page[offset : offset + len(raw)] = raw
    findings = check(seal(bytes(page)), 4 << 22 | 7)
    assert any(said in finding.message for finding in findings), findings
    assert not any("CRC" in finding.message for finding in findings)


def test_the_builder_fills_pages_as_the_worked_example_does(tmp_path):
    built = build_database(tmp_path / "db", reference_rows(600))
    data = (built / "device-0004").read_bytes()
    first, second = (PAGE_HEAD.at(data, 8192 * n) for n in (7, 8))
    assert (first.free_begin, first.free_end) == (5688, 7718)
    assert (second.free_begin, second.free_end) == (5696, 7718)
    assert DeviceBuilder(4, "users").next_id == 4 << 22 | 1
