"""Damage to what holds the pages: control file, device files, lists of free pages, counts of a tablespace."""

from __future__ import annotations

import os

import pytest

from gmdb.errors import NotClosed
from gmdb.format.address import NO_PAGE, page_id_of
from gmdb.format.control import CONTROL, COPY_DISTANCE
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, FREE_NODE_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.storage.directory import CONTROL_NAME, device_path
from gmdb.verify import Finding
from tests.verify.build import Damage
from tests.verify.expect import found, only

USERS, MEDIUM = page_id_of(4, 0), page_id_of(5, 0)


def in_file(damage: Damage, file: str, offset: int | None, message: str) -> list[Finding]:
    findings = damage.findings()
    there = [f for f in findings if (f.page_id, f.file, f.offset) == (None, file, offset) and message in f.message]
    assert there, "\n".join(map(str, findings)) or "nothing was found"
    return findings


# ---- lists of free pages


def free_pages(damage: Damage) -> list[int]:
    """The free pages of device 4, in the order of their list."""
    at, pages = damage.get(USERS, DEVICE_HEAD, DEVICE_HEAD_AT, "first_free_page"), []
    while at != NO_PAGE:
        pages.append(at)
        at = int.from_bytes(damage.page(at)[FREE_NODE_AT : FREE_NODE_AT + 4], "little")
    return pages


def test_a_wrong_count_of_free_pages(damage: Damage) -> None:
    count = len(free_pages(damage))
    at = damage.set(USERS, DEVICE_HEAD, DEVICE_HEAD_AT, "free_page_count", count + 1)
    findings = found(damage, USERS, at, f"free_page_count {count + 1}, but the list has {count} pages")
    assert len(findings) == 2  # the tablespace counts the devices' pages


def test_a_wrong_count_of_a_tablespaces_free_pages(damage: Damage) -> None:
    count = len(free_pages(damage))
    at = damage.set(USERS, SPACE_HEAD, SPACE_HEAD_AT, "free_pages", count + 1)
    only(damage, USERS, at, f"free_pages {count + 1}, but the tablespace has {count}")


def test_a_wrong_count_of_segments(damage: Damage) -> None:
    only(
        damage,
        MEDIUM,
        damage.set(MEDIUM, SPACE_HEAD, SPACE_HEAD_AT, "seg_num", 3),
        "seg_num 3, but the tablespace has 1",
    )


def test_a_list_of_free_pages_that_leads_to_a_page_in_use(damage: Damage) -> None:
    page_id = free_pages(damage)[4]
    damage.write(page_id, FREE_NODE_AT, damage.pages("bulk")[0].to_bytes(4, "little"))
    only(damage, page_id, FREE_NODE_AT, "which is not free: its page_type is 3")


def test_a_list_of_free_pages_that_leads_nowhere(damage: Damage) -> None:
    at = damage.set(USERS, DEVICE_HEAD, DEVICE_HEAD_AT, "first_free_page", page_id_of(5, 3))
    only(damage, USERS, at, "the list of free pages leads to page 5:3, which is not in use on this device")


def test_a_list_of_free_pages_in_a_circle(damage: Damage) -> None:
    first, *_, last = free_pages(damage)
    damage.write(last, FREE_NODE_AT, first.to_bytes(4, "little"))
    only(damage, last, FREE_NODE_AT, "which belongs to the list of free pages already")


def test_a_list_of_free_pages_that_leads_to_a_damaged_page(damage: Damage) -> None:
    before, page_id = free_pages(damage)[3:5]
    damage.write(page_id, 4000, b"\1", sealed=False)
    findings = found(damage, before, FREE_NODE_AT, "which is damaged")
    assert {f.page_id for f in findings} == {before, page_id}


def test_free_pages_that_are_on_no_list(damage: Damage) -> None:
    *_, before, last = free_pages(damage)
    damage.write(before, FREE_NODE_AT, NO_PAGE.to_bytes(4, "little"))
    found(damage, last, PAGE_HEAD.offset("page_type"), "it is free, but on no list of free pages")


def test_a_page_that_belongs_to_nobody(damage: Damage) -> None:
    page_id = free_pages(damage)[-1]
    page = bytearray(damage.page(damage.pages("bulk")[0]))
    at = PAGE_HEAD.offset("page_id")
    page[at : at + 4] = page_id.to_bytes(4, "little")
    damage.write_page(page_id, bytes(page))
    found(damage, page_id, PAGE_HEAD.offset("obj_id"), "the page has no owner: a heap page of object 16")


# ---- devices


def test_a_device_without_a_head(damage: Damage) -> None:
    found(damage, MEDIUM, damage.set(MEDIUM, PAGE_HEAD, 0, "page_type", PageType.FREE), "but this is page 0")


def test_a_second_device_head(damage: Damage) -> None:
    page_id = damage.pages("bulk")[5]
    damage.set(page_id, PAGE_HEAD, 0, "page_type", PageType.DEVICE_HEAD)
    found(damage, page_id, PAGE_HEAD.offset("page_id"), "a device head on page")


def test_a_device_with_more_pages_than_it_may_have(damage: Damage) -> None:
    damage.set(MEDIUM, DEVICE_HEAD, DEVICE_HEAD_AT, "pages_max", 20)
    only(damage, MEDIUM, DEVICE_HEAD_AT + DEVICE_HEAD.offset("page_count"), "is over pages_max, 20")


def test_a_file_that_is_too_short(damage: Damage) -> None:
    os.truncate(device_path(damage.path, 5), 20 * 16384)
    assert len(in_file(damage, "device-0005", None, "the file ends after 20 of 32 pages")) == 1


def test_a_file_that_ends_within_a_page(damage: Damage) -> None:
    with open(device_path(damage.path, 5), "ab") as file:
        file.write(b"x" * 100)
    assert len(in_file(damage, "device-0005", 32 * 16384, "100 bytes that are not a whole page")) == 1


def test_a_file_that_ends_below_the_high_water_mark(damage: Damage) -> None:
    os.truncate(device_path(damage.path, 4), 100 * 8192)
    findings = in_file(damage, "device-0004", None, "the file ends after 100 of")
    assert any("which is not in use" in f.message for f in findings)


@pytest.mark.parametrize("size", [0, 60, 8192])
def test_a_file_that_is_cut_off_near_its_start(damage: Damage, size: int) -> None:
    os.truncate(device_path(damage.path, 4), size)
    assert damage.findings()


@pytest.mark.parametrize("device", [0, 1, 4])
def test_a_missing_device(damage: Damage, device: int) -> None:
    device_path(damage.path, device).unlink()
    in_file(damage, f"device-{device:04d}", None, "the file is missing")


def test_a_missing_first_device_of_a_tablespace(damage: Damage) -> None:
    device_path(damage.path, 5).unlink()
    in_file(damage, "device-0006", None, "whose first device is missing")


def test_a_device_of_another_page_size_than_its_tablespace(damage: Damage) -> None:
    second = page_id_of(6, 0)
    damage.set(second, SPACE_HEAD, SPACE_HEAD_AT, "space_id", 4)
    in_file(damage, "device-0006", None, "but its first device says 8192 and 'main'")


# ---- the control file


def control(damage: Damage) -> bytearray:
    return bytearray((damage.path / CONTROL_NAME).read_bytes())


@pytest.mark.parametrize("newest", [True, False])
def test_a_damaged_copy_of_the_control_record(damage: Damage, newest: bool) -> None:
    data = control(damage)
    at = damage.newest_copy() if newest else COPY_DISTANCE - damage.newest_copy()
    data[at + 20] ^= 1
    (damage.path / CONTROL_NAME).write_bytes(data)
    in_file(damage, CONTROL_NAME, at + CONTROL.offset("crc"), "CRC")


def test_a_copy_of_the_control_record_that_is_something_else(damage: Damage) -> None:
    data = control(damage)
    at = COPY_DISTANCE - damage.newest_copy()
    data[at : at + 4] = b"nope"
    (damage.path / CONTROL_NAME).write_bytes(data)
    assert len(in_file(damage, CONTROL_NAME, at, "begins with GMDBCTRL")) == 1


def test_a_control_file_with_both_copies_damaged_is_no_reason_to_stop(damage: Damage) -> None:
    page_id = damage.pages("bulk")[3]
    damage.write(page_id, 7000, b"\1", sealed=False)
    data = control(damage)
    data[20] ^= 1
    data[COPY_DISTANCE + 20] ^= 1
    (damage.path / CONTROL_NAME).write_bytes(data)
    findings = in_file(damage, CONTROL_NAME, CONTROL.offset("crc"), "CRC")
    assert [f.page_id for f in findings] == [None, None, page_id]


def test_a_control_file_of_another_length(damage: Damage) -> None:
    with open(damage.path / CONTROL_NAME, "ab") as file:
        file.write(b"\0")
    assert len(in_file(damage, CONTROL_NAME, None, "8193 bytes instead of 8192")) == 1


def test_a_copy_in_the_others_place(damage: Damage) -> None:
    sequence = CONTROL.values(control(damage), damage.newest_copy())["sequence"]
    place = damage.set_control("sequence", sequence + 1)
    in_file(damage, CONTROL_NAME, place, "belongs in the other copy")


def test_copies_that_do_not_follow_each_other(damage: Damage) -> None:
    sequence = CONTROL.values(control(damage), damage.newest_copy())["sequence"]
    place = damage.set_control("sequence", sequence + 2)
    assert len(in_file(damage, CONTROL_NAME, place, "does not follow")) == 1


def test_copies_of_two_databases(damage: Damage) -> None:
    place = damage.set_control("database_id", 7)
    assert len(in_file(damage, CONTROL_NAME, place, "two databases")) == 1


@pytest.mark.parametrize("field", ["ckpt_id", "next_obj_id", "next_transaction", "redo_lsn", "scn"])
def test_a_number_that_went_back(damage: Damage, field: str) -> None:
    place = damage.set_control(field, 0)
    in_file(damage, CONTROL_NAME, place, f"{field} 0 is lower")


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("clean", 7, "clean 7 is neither 0 nor 1"),
        ("archiving", 2, "archiving 2 is neither 0 nor 1"),
        ("redo_file_size", 5, "redo_file_size 5 is not between"),
        ("next_device", 2000, "next_device 2000 is not between"),
    ],
)
def test_a_field_of_the_control_record_that_makes_no_sense(
    damage: Damage, field: str, value: int, message: str
) -> None:
    place = damage.set_control(field, value)
    in_file(damage, CONTROL_NAME, place, message)


def test_a_last_device_that_is_missing(damage: Damage) -> None:
    device_path(damage.path, 7).unlink()
    in_file(damage, "device-0007", None, "the file is missing")


def test_a_file_that_no_tablespace_was_finished_with_is_no_device(damage: Damage) -> None:
    device_path(damage.path, 8).write_bytes(b"litter")
    assert damage.findings() == []


def test_files_of_a_database_that_was_not_closed_are_not_verified(damage: Damage) -> None:
    damage.set_control("clean", 0)
    with pytest.raises(NotClosed, match="was not closed properly"):
        damage.findings()
