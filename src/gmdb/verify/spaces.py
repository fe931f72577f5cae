"""Devices and tablespaces: file lengths, lists of free pages, counts, and pages without an owner."""

from __future__ import annotations

from typing import Any

import numpy as np

from gmdb.format.address import (
    DEVICES,
    FIRST_USER_DEVICE,
    NO_PAGE,
    SYSTEM_DEVICE,
    UNDO_DEVICE,
    device_of,
    page_id_of,
    page_name,
)
from gmdb.format.checksum import crc32c
from gmdb.format.control import CONTROL, CONTROL_1, CONTROL_SIZE, COPY_DISTANCE, FORMAT_VERSION, MAGIC
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, FREE_NODE_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.format.page import PAGE_HEAD, PageType, SegmentType
from gmdb.format.redo import FILE_SIZES
from gmdb.kernel.checks.row_checks import SUSPECT, UNWRITTEN
from gmdb.storage.directory import CONTROL_NAME, device_path, dropped_numbers
from gmdb.storage.disk import read_plain
from gmdb.verify.findings import Findings
from gmdb.verify.page_reader import VerifiedFiles
from gmdb.verify.segments import CheckedSegment, Owners, doubtful_objects
from gmdb.verify.survey import MISSING, Survey

# ---- The control file: both copies, not only the one that counts.

FIRST_SEQUENCE = 1
_NEVER_BACK = ("ckpt_id", "next_obj_id", "next_transaction", "redo_lsn", "scn", "next_device")
_SWITCHES = ("clean", "archiving")


def check_control(files: VerifiedFiles, findings: Findings) -> None:
    data = read_plain(files.path / CONTROL_NAME)
    if len(data) != CONTROL_SIZE:
        findings.in_file(CONTROL_NAME, f"the file has {len(data)} bytes instead of {CONTROL_SIZE}")
    data = data.ljust(CONTROL_SIZE, b"\0")
    copies = [_check_copy(data, at, findings) for at in (0, COPY_DISTANCE)]
    if copies[0] is not None and copies[1] is not None:
        _compare(copies[0], copies[1], findings)


def _check_copy(data: bytes, at: int, findings: Findings) -> dict[str, Any] | None:
    """One copy's fields; None if it is damaged, or was never written."""
    raw, other = data[at : at + CONTROL.size], data[COPY_DISTANCE - at :][: CONTROL.size]
    if not any(raw) and CONTROL.values(other)["sequence"] == FIRST_SEQUENCE:
        return None
    if not raw.startswith(MAGIC):
        findings.in_file(CONTROL_NAME, f"a copy of the control record begins with {MAGIC.decode()}; this does not", at)
        return None
    form = CONTROL_1 if CONTROL.values(raw)["format_version"] == 1 else CONTROL
    crc_at = form.offset("crc")
    stored, computed = int.from_bytes(raw[crc_at : form.size], "little"), crc32c(raw[:crc_at])
    if stored != computed:
        message = f"CRC {stored:08x} is stored, but the copy's bytes give {computed:08x}"
        findings.in_file(CONTROL_NAME, message, at + crc_at)
        return None
    fields = form.values(raw)
    if fields["format_version"] > FORMAT_VERSION:
        message = f"format version {fields['format_version']} is newer than {FORMAT_VERSION}"
        findings.in_file(CONTROL_NAME, message, at + CONTROL.offset("format_version"))
    if COPY_DISTANCE * (fields["sequence"] % 2) != at:
        message = f"sequence {fields['sequence']} belongs in the other copy"
        findings.in_file(CONTROL_NAME, message, at + CONTROL.offset("sequence"))
    if fields["format_version"] == FORMAT_VERSION:
        _check_fields(fields, at, findings)
    return fields


def _check_fields(fields: dict[str, Any], at: int, findings: Findings) -> None:
    """The fields of a copy about the log and devices."""
    for name in _SWITCHES:
        if fields[name] not in (0, 1):
            message = f"{name} {fields[name]} is neither 0 nor 1"
            findings.in_file(CONTROL_NAME, message, at + CONTROL.offset(name))
    smallest, largest = FILE_SIZES
    if not smallest <= fields["redo_file_size"] <= largest:
        message = f"redo_file_size {fields['redo_file_size']} is not between {smallest} and {largest}"
        findings.in_file(CONTROL_NAME, message, at + CONTROL.offset("redo_file_size"))
    if not FIRST_USER_DEVICE < fields["next_device"] <= DEVICES:
        message = f"next_device {fields['next_device']} is not between {FIRST_USER_DEVICE + 1} and {DEVICES}"
        findings.in_file(CONTROL_NAME, message, at + CONTROL.offset("next_device"))


def _compare(first: dict[str, Any], second: dict[str, Any], findings: Findings) -> None:
    older, newer = sorted((first, second), key=lambda fields: int(fields["sequence"]))
    at = 0 if newer is first else COPY_DISTANCE
    if newer["sequence"] != older["sequence"] + 1:
        message = f"sequence {newer['sequence']} does not follow that of the other copy, {older['sequence']}"
        findings.in_file(CONTROL_NAME, message, at + CONTROL.offset("sequence"))
    if newer["database_id"] != older["database_id"]:
        findings.in_file(CONTROL_NAME, "the copies are of two databases", at + CONTROL.offset("database_id"))
    for name in _NEVER_BACK:
        if newer.get(name, 0) < older.get(name, 0):
            message = f"{name} {newer[name]} is lower than in the copy before, {older[name]}"
            findings.in_file(CONTROL_NAME, message, at + CONTROL.offset(name))


# ---- Devices and tablespaces.

REQUIRED = (SYSTEM_DEVICE, UNDO_DEVICE, FIRST_USER_DEVICE)


def check_files(files: VerifiedFiles, findings: Findings) -> None:
    """Devices that are missing, and files that are too short."""
    users = range(FIRST_USER_DEVICE, min(files.control.get("next_device", 0), DEVICES))
    dropped = dropped_numbers(files.path)
    for number in sorted({*REQUIRED, *users}):
        if number not in files.devices and number not in dropped:
            findings.in_file(device_path(files.path, number).name, "the file is missing")
    for number, device in files.devices.items():
        name = device.path.name
        if device.has_head and device.space_id not in files.devices:
            message = f"it belongs to tablespace {device.space_id}, whose first device is missing"
            findings.in_file(name, message)
        if device.file_pages < device.page_count:
            findings.in_file(name, f"the file ends after {device.file_pages} of {device.page_count} pages")
        if device.file_size % device.page_size:
            message = f"the file ends in {device.file_size % device.page_size} bytes that are not a whole page"
            findings.in_file(name, message, device.file_size // device.page_size * device.page_size)
        if number and device.has_head and device.space_id in files.devices:
            first = files.devices[device.space_id]
            if (first.page_size, first.space_name) != (device.page_size, device.space_name):
                message = f"pages of {device.page_size} bytes for space {device.space_name!r}"
                message = f"{message}, but its first device says {first.page_size} and {first.space_name!r}"
                findings.in_file(name, message)


def check_device_heads(survey: Survey, owners: Owners) -> None:
    """Page 0 of each device is its head."""
    for device in survey.files.devices:
        if len(survey.facts[device]):
            owners.claim(page_id_of(device, 0), "the device")
        fact = survey.fact(page_id_of(device, 0))
        if fact["verdict"] <= SUSPECT and fact["page_type"] != PageType.DEVICE_HEAD:
            at = PAGE_HEAD.offset("page_type")
            survey.findings.on_page(page_id_of(device, 0), at, f"page_type {fact['page_type']}, but this is page 0")
        elif not survey.is_doubtful(device):
            head = DEVICE_HEAD.at(survey.files.page(page_id_of(device, 0)), DEVICE_HEAD_AT)
            if head.pages_max and head.page_count > head.pages_max:
                at = DEVICE_HEAD_AT + DEVICE_HEAD.offset("page_count")
                message = f"page_count {head.page_count} is over pages_max, {head.pages_max}"
                survey.findings.on_page(page_id_of(device, 0), at, message)


def check_spaces(survey: Survey, segments: list[CheckedSegment], owners: Owners) -> None:
    """Lists of free pages and the counts in the space heads; then the pages left without an owner."""
    lists_whole = {device: _check_free_pages(survey, device, owners) for device in survey.files.devices}
    for space in survey.files.spaces():
        if survey.is_doubtful(space.devices[0].number) or space.devices[0].number != space.space_id:
            continue
        if any(survey.is_doubtful(device.number) for device in space.devices):
            continue
        numbers = {device.number for device in space.devices}
        right = {
            "seg_num": sum(device_of(segment.entry_page) in numbers for segment in segments),
            "free_pages": space.free_pages,
        }
        stored = {"seg_num": space.seg_num, "free_pages": space.devices[0].space_free_pages}
        if _has_broken_entry(survey, numbers):
            del right["seg_num"]
        for name, value in right.items():
            if stored[name] != value:
                at = SPACE_HEAD_AT + SPACE_HEAD.offset(name)
                message = f"{name} {stored[name]}, but the tablespace has {value}"
                survey.findings.on_page(page_id_of(space.space_id, 0), at, message)
    _check_unowned(survey, segments, owners, lists_whole)


def _has_broken_entry(survey: Survey, devices: set[int]) -> bool:
    """Whether a damaged page may have been the entry page of a segment."""
    return any(bool((survey.facts[device]["verdict"] > SUSPECT).any()) for device in devices)


def _check_free_pages(survey: Survey, device: int, owners: Owners) -> bool:
    """Walk the device's list of free pages; returns whether it could be followed to its end."""
    if survey.is_doubtful(device):
        return False
    home = page_id_of(device, 0)
    head = DEVICE_HEAD.at(survey.files.page(home), DEVICE_HEAD_AT)
    at, count = head.first_free_page, 0
    before, where = home, DEVICE_HEAD_AT + DEVICE_HEAD.offset("first_free_page")
    while at != NO_PAGE:
        wrong = _wrong_free_page(survey, device, at, owners)
        if wrong:
            survey.findings.on_page(before, where, f"the list of free pages leads to page {page_name(at)}, {wrong}")
            return False
        before, where, count = at, FREE_NODE_AT, count + 1
        at = int(survey.fact(at)["next"])
    if count != head.free_page_count:
        place = DEVICE_HEAD_AT + DEVICE_HEAD.offset("free_page_count")
        survey.findings.on_page(home, place, f"free_page_count {head.free_page_count}, but the list has {count} pages")
    return True


def _wrong_free_page(survey: Survey, device: int, page_id: int, owners: Owners) -> str:
    """Why a page cannot be on the device's list of free pages; empty if it can, and then it is claimed."""
    fact = survey.fact(page_id)
    if fact["verdict"] == MISSING or device_of(page_id) != device:
        return "which is not in use on this device"
    if fact["verdict"] > SUSPECT:
        return "which is damaged"
    if fact["page_type"] != PageType.FREE:
        return f"which is not free: its page_type is {fact['page_type']}"
    other = owners.claim(page_id, "the list of free pages")
    return f"which belongs to {other} already" if other else ""


# ---- pages without an owner


def _check_unowned(
    survey: Survey, segments: list[CheckedSegment], owners: Owners, lists_whole: dict[int, bool]
) -> None:
    doubtful = np.array(sorted(doubtful_objects(survey, segments)), np.int64)
    for device, facts in survey.facts.items():
        if survey.is_doubtful(device):
            continue
        unowned = owners.unowned(device)
        unowned = unowned[(facts["verdict"][unowned] <= SUSPECT)]
        unowned = unowned[facts["page_type"][unowned] != PageType.DEVICE_HEAD]  # its own check has reported it
        is_free = facts["page_type"][unowned] == PageType.FREE
        if not lists_whole[device]:
            unowned, is_free = unowned[~is_free], is_free[~is_free]
        unowned = unowned[is_free | ~np.isin(facts["obj_id"][unowned], doubtful)]
        for offset in unowned.tolist():
            at, message = _describe(facts[offset])
            survey.findings.on_page(page_id_of(device, offset), at, f"the page has no owner: {message}")
        _check_unwritten(survey, device, segments)


def _describe(fact: np.void) -> tuple[int, str]:
    """Where an unowned page says what it is, and what that is."""
    kind = int(fact["page_type"])
    if kind == PageType.FREE:
        return PAGE_HEAD.offset("page_type"), "it is free, but on no list of free pages"
    if kind == PageType.MAP:
        return PAGE_HEAD.offset("obj_id"), f"a map page of object {fact['obj_id']}, to which no other map page leads"
    seg_type = int(fact["seg_type"])
    name = SegmentType(seg_type).name.lower() if seg_type in list(SegmentType) else f"type {seg_type}"
    return PAGE_HEAD.offset("obj_id"), f"a {name} page of object {fact['obj_id']}, which no map lists"


def _check_unwritten(survey: Survey, device: int, segments: list[CheckedSegment]) -> None:
    """Pages of zeros; while a bulk load is running, those that it has not written yet are allowed."""
    unwritten = np.flatnonzero(survey.facts[device]["verdict"] == UNWRITTEN)
    if not len(unwritten):
        return
    loading: set[int] = set()
    if not survey.files.is_settled:
        for segment in segments:
            loading.update(segment.loading_pages())
    hwm = survey.files.devices[device].hwm
    for offset in unwritten.tolist():
        if page_id_of(device, offset) not in loading:
            message = f"all bytes are zero, but the device uses its first {hwm} pages"
            survey.findings.on_page(page_id_of(device, offset), 0, message)
