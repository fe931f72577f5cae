"""What every closed database of a test must pass: nothing that ``gmdb verify`` checks may be wrong with it."""

from __future__ import annotations

from pathlib import Path

from gmdb.format.address import page_id_of
from gmdb.format.device import DEVICE_HEAD, DEVICE_HEAD_AT, SPACE_HEAD, SPACE_HEAD_AT
from gmdb.storage.directory import device_numbers, device_path
from gmdb.verify import verify


def read_pages(directory: Path) -> dict[int, bytes]:
    """Every page below the high-water marks, by id, straight from the files."""
    pages = {}
    for device in device_numbers(directory):
        data = device_path(directory, device).read_bytes()
        size = SPACE_HEAD.at(data, SPACE_HEAD_AT).page_size
        for offset in range(DEVICE_HEAD.at(data, DEVICE_HEAD_AT).hwm):
            pages[page_id_of(device, offset)] = data[offset * size : (offset + 1) * size]
    return pages


def problems(directory: Path) -> list[str]:
    """What is wrong with a closed database; empty if nothing is."""
    return [str(finding) for finding in verify(directory).findings]


def assert_sound(directory: Path) -> None:
    found = problems(directory)
    assert not found, "\n".join(found[:20])
