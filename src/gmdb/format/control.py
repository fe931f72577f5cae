"""The control file: what makes a directory a database, and which state of it is valid.

Two copies lie 4096 bytes apart, written in turn.  The valid copy with the higher ``sequence`` counts, so that
a write that is cut short leaves the copy before it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from gmdb.errors import NotADatabase, UnsupportedVersion
from gmdb.format.address import DEVICES, FIRST_USER_DEVICE
from gmdb.format.checksum import crc32c
from gmdb.format.layout import Layout, layout
from gmdb.format.redo import FILE_SIZES, HEAD_SPACE

MAGIC = b"GMDBCTRL"
FORMAT_VERSION = 2
COPY_DISTANCE = 4096
CONTROL_SIZE = 2 * COPY_DISTANCE


class Purpose(IntEnum):
    """What a directory with a control file is."""

    DATABASE = 0
    DUMP = 1


CONTROL = layout(
    "control record",
    128,
    magic=("S8", "GMDBCTRL"),
    format_version=("<u4", "version of this format"),
    ckpt_id=("<u4", "the last checkpoint: every page in the device files is of it, of an older or of the next one"),
    sequence=("<u8", "counts the writes of the control file"),
    database_id=("16u1", "made at random when the database was"),
    next_obj_id=("<u4", "the next table or index gets this number"),
    next_transaction=("<u8", "the next transaction gets this number, or a higher one"),
    purpose=("<u4", "0 a database, 1 a dump of one for gmstat, which cannot be opened"),
    clean=("<u4", "1: it was closed; the device files hold all of it"),
    redo_lsn=("<u8", "where in the log replaying begins"),
    scn=("<u8", "the newest commit when this was written"),
    next_device=("<u4", "the next device gets this number; a file with it or a higher one is litter"),
    redo_file_size=("<u4", "bytes of a redo file"),
    archiving=("<u4", "1: redo files that are needed no more go to the folder archive"),
    reserved=("36u1", "0"),
    crc=("<u4", "CRC32C of all bytes before it"),
)

CONTROL_1 = layout(
    "control record, version 1",
    64,
    magic=("S8", "GMDBCTRL"),
    format_version=("<u4", "1"),
    ckpt_id=("<u4", "the last time that all pages were written"),
    sequence=("<u8", "counts the writes of the control file"),
    database_id=("16u1", "made at random when the database was"),
    next_obj_id=("<u4", "the next table gets this number"),
    next_transaction=("<u8", "the next transaction gets this number, or a higher one"),
    purpose=("<u4", "0 a database, 1 a dump"),
    reserved=("4u1", "0"),
    crc=("<u4", "CRC32C of all bytes before it"),
)
# What version 1 did not have: it knew no log, and its files changed only as a whole.
_SINCE_1 = {"clean": 1, "redo_lsn": 0, "scn": 1, "next_device": 0, "redo_file_size": 0, "archiving": 0}
# Counters are far from their ends, however long a database is used: no code checks for overflow.
_COUNTER = (0, 1 << 60)
_BOUNDS = {
    "ckpt_id": (0, 0xFFFF_0000),
    "sequence": _COUNTER,
    "next_obj_id": (0, 0x7FFF_0000),
    "next_transaction": _COUNTER,
    "redo_lsn": _COUNTER,
    "scn": _COUNTER,
    "next_device": (0, DEVICES),  # 0: the database is older
    "redo_file_size": (0, FILE_SIZES[1]),
}
_VERSIONS_MAX = 1000  # a higher one is a copy that was torn
_VERSION_AT = CONTROL.offset("format_version")
_SIZES = (64, 128, 256, 512, 1024, 2048, 4096)  # that a record of some version may have


def pack_control(**fields: Any) -> bytes:
    raw = CONTROL.pack(magic=MAGIC, format_version=FORMAT_VERSION, **fields)[:-4]
    return raw + crc32c(raw).to_bytes(4, "little")


def _layout_of(raw: bytes) -> Layout:
    return CONTROL_1 if raw[_VERSION_AT : _VERSION_AT + 4] == b"\1\0\0\0" else CONTROL


def _is_valid(raw: bytes) -> bool:
    size = _layout_of(raw).size
    return len(raw) >= size and crc32c(raw[: size - 4]) == int.from_bytes(raw[size - 4 : size], "little")


def _version_of(raw: bytes) -> int:
    return int.from_bytes(raw[_VERSION_AT : _VERSION_AT + 4], "little")


def _is_sealed(raw: bytes) -> bool:
    """Whether the record ends in its CRC, whatever size a version that is not known has given it."""
    ends = [size for size in _SIZES if size <= len(raw)]
    return any(crc32c(raw[: end - 4]) == int.from_bytes(raw[end - 4 : end], "little") for end in ends)


def newest_control(data: bytes) -> dict[str, Any]:
    """The valid control record of a control file's bytes, with what older versions did not have filled in."""
    copies = [data[at : at + COPY_DISTANCE] for at in (0, COPY_DISTANCE)]
    whole = [raw for raw in copies if raw.startswith(MAGIC)]
    if not whole:
        raise NotADatabase("the control file does not begin as one")
    valid = [raw for raw in whole if _version_of(raw) <= FORMAT_VERSION and _is_valid(raw)]
    newer = [raw for raw in whole if FORMAT_VERSION < _version_of(raw) < _VERSIONS_MAX]
    if any(not valid or _is_sealed(raw) for raw in newer):  # else it is a damaged copy beside a whole one
        version = max(_version_of(raw) for raw in newer)
        raise UnsupportedVersion(
            f"the database has format version {version}; this gmdb knows up to {FORMAT_VERSION}: use a newer gmdb"
        )
    if not valid:
        raise NotADatabase("both copies of the control record are damaged")
    records = [{**_SINCE_1, **_layout_of(raw).values(raw)} for raw in valid]
    newest = max(records, key=lambda fields: fields["sequence"])
    for name, (lowest, highest) in _BOUNDS.items():
        if not lowest <= newest[name] <= highest:
            raise NotADatabase(f"the control record says {name} {newest[name]}, which cannot be")
    if 0 < newest["next_device"] <= FIRST_USER_DEVICE:
        raise NotADatabase(f"the control record says next_device {newest['next_device']}, which cannot be")
    if newest["redo_file_size"] <= HEAD_SPACE and (newest["redo_file_size"] or not newest["clean"]):
        raise NotADatabase(f"the control record says {newest['redo_file_size']} bytes a redo file, which cannot be")
    return newest
