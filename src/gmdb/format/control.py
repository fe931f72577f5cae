"""The control file: what makes a directory a database, and which state of it is valid.

Two copies lie 4096 bytes apart, written in turn.  The valid copy with the higher ``sequence`` counts, so that
a write that is cut short leaves the copy before it.
"""

from __future__ import annotations

from typing import Any

from gmdb.errors import NotADatabase, UnsupportedVersion
from gmdb.format.checksum import crc32c
from gmdb.format.layout import layout

MAGIC = b"GMDBCTRL"
FORMAT_VERSION = 1
COPY_DISTANCE = 4096
CONTROL_SIZE = 2 * COPY_DISTANCE

CONTROL = layout(
    "control record",
    64,
    magic=("S8", "GMDBCTRL"),
    format_version=("<u4", "version of this format"),
    ckpt_id=("<u4", "the last checkpoint: every page in the device files is of it or older"),
    sequence=("<u8", "counts the writes of the control file"),
    database_id=("16u1", "made at random when the database was"),
    next_obj_id=("<u4", "the next table or index gets this number"),
    next_transaction=("<u8", "the next transaction gets this number, or a higher one"),
    purpose=("<u4", "0 a database, 1 a dump of one for gmstat, which cannot be opened"),
    reserved=("4u1", "0"),
    crc=("<u4", "CRC32C of all bytes before it"),
)


def pack_control(**fields: Any) -> bytes:
    raw = CONTROL.pack(magic=MAGIC, format_version=FORMAT_VERSION, **fields)[:-4]
    return raw + crc32c(raw).to_bytes(4, "little")


def newest_control(data: bytes) -> dict[str, Any]:
    """The valid control record of a control file's bytes."""
    copies = [data[at : at + CONTROL.size] for at in (0, COPY_DISTANCE)]
    whole = [raw for raw in copies if len(raw) == CONTROL.size and raw.startswith(MAGIC)]
    if not whole:
        raise NotADatabase("the control file does not begin as one")
    valid = [raw for raw in whole if crc32c(raw[:-4]) == int.from_bytes(raw[-4:], "little")]
    if not valid:
        raise NotADatabase("both copies of the control record are damaged")
    newest = max((CONTROL.values(raw) for raw in valid), key=lambda fields: fields["sequence"])
    if newest["format_version"] > FORMAT_VERSION:
        found = newest["format_version"]
        raise UnsupportedVersion(f"the database has format version {found}; this gmdb knows up to {FORMAT_VERSION}")
    return newest
