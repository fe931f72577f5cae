"""The control file: both copies, not only the one that counts."""

from __future__ import annotations

from typing import Any

from gmdb.format.address import DEVICES, FIRST_USER_DEVICE
from gmdb.format.checksum import crc32c
from gmdb.format.control import CONTROL, CONTROL_1, CONTROL_SIZE, COPY_DISTANCE, FORMAT_VERSION, MAGIC
from gmdb.format.redo import FILE_SIZES
from gmdb.storage.directory import CONTROL_NAME
from gmdb.storage.disk import read_plain
from gmdb.verify.findings import Findings
from gmdb.verify.reader import VerifiedFiles

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
        said = f"CRC {stored:08x} is stored, but the copy's bytes give {computed:08x}"
        findings.in_file(CONTROL_NAME, said, at + crc_at)
        return None
    fields = form.values(raw)
    if fields["format_version"] > FORMAT_VERSION:
        said = f"format version {fields['format_version']} is newer than {FORMAT_VERSION}"
        findings.in_file(CONTROL_NAME, said, at + CONTROL.offset("format_version"))
    if COPY_DISTANCE * (fields["sequence"] % 2) != at:
        said = f"sequence {fields['sequence']} belongs into the other copy"
        findings.in_file(CONTROL_NAME, said, at + CONTROL.offset("sequence"))
    if fields["format_version"] == FORMAT_VERSION:
        _check_fields(fields, at, findings)
    return fields


def _check_fields(fields: dict[str, Any], at: int, findings: Findings) -> None:
    """What a copy says of the log and of devices."""
    for name in _SWITCHES:
        if fields[name] not in (0, 1):
            said = f"{name} {fields[name]} is neither 0 nor 1"
            findings.in_file(CONTROL_NAME, said, at + CONTROL.offset(name))
    smallest, largest = FILE_SIZES
    if not smallest <= fields["redo_file_size"] <= largest:
        said = f"redo_file_size {fields['redo_file_size']} is not between {smallest} and {largest}"
        findings.in_file(CONTROL_NAME, said, at + CONTROL.offset("redo_file_size"))
    if not FIRST_USER_DEVICE < fields["next_device"] <= DEVICES:
        said = f"next_device {fields['next_device']} is not between {FIRST_USER_DEVICE + 1} and {DEVICES}"
        findings.in_file(CONTROL_NAME, said, at + CONTROL.offset("next_device"))


def _compare(first: dict[str, Any], second: dict[str, Any], findings: Findings) -> None:
    older, newer = sorted((first, second), key=lambda fields: int(fields["sequence"]))
    at = 0 if newer is first else COPY_DISTANCE
    if newer["sequence"] != older["sequence"] + 1:
        said = f"sequence {newer['sequence']} does not follow that of the other copy, {older['sequence']}"
        findings.in_file(CONTROL_NAME, said, at + CONTROL.offset("sequence"))
    if newer["database_id"] != older["database_id"]:
        findings.in_file(CONTROL_NAME, "the copies are of two databases", at + CONTROL.offset("database_id"))
    for name in _NEVER_BACK:
        if newer.get(name, 0) < older.get(name, 0):
            said = f"{name} {newer[name]} is lower than in the copy before, {older[name]}"
            findings.in_file(CONTROL_NAME, said, at + CONTROL.offset(name))
