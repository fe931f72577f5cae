"""Image files of pins: what they are called, and finding in them the pages of an instant.

A file is named by the checkpoint of the pin that was the newest when it was begun, and a number: pins up to that one
may need it.  So files from before the oldest pin are nobody's.

Invariants
 1. Of several images of a page the newest counts that is not newer than the pin.
 2. A file that was found once stays open: it can be read even if the pin is dropped meanwhile.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from gmdb.format.images import IMAGE_BATCH, IMAGE_ENTRY, read_batch_head, read_entries
from gmdb.storage import disk
from gmdb.storage.disk import open_plain
from gmdb.storage.pins import Pin, folder_of

SUFFIX = ".images"


class Image(NamedTuple):
    """Where a page's image is."""

    ckpt_id: int
    file: int
    offset: int
    size: int


def image_path(directory: Path, ckpt_id: int, number: int) -> Path:
    return folder_of(directory) / f"{ckpt_id:010d}-{number:04d}{SUFFIX}"


def image_files(directory: Path) -> list[tuple[int, int, Path]]:
    """Checkpoint, number and path of each file, in order."""
    found = []
    for path in folder_of(directory).glob(f"*{SUFFIX}"):
        ckpt_id, _, number = path.name.removesuffix(SUFFIX).partition("-")
        if ckpt_id.isdecimal() and number.isdecimal():
            found.append((int(ckpt_id), int(number), path))
    return sorted(found)


def remove_unneeded(directory: Path, pins: list[Pin]) -> None:
    """Remove image files that none of all pins needs."""
    oldest = min((pin.ckpt_id for pin in pins), default=None)
    for ckpt_id, _, path in image_files(directory):
        if oldest is None or ckpt_id < oldest:
            disk.current.remove(path)


class _File:
    """An image file, read as far as its batches are whole."""

    def __init__(self, path: Path) -> None:
        self.number = open_plain(path)
        self._read = 0

    def new_images(self) -> list[tuple[int, Image]]:
        """The images of batches that were added since the last time, with their page ids."""
        found: list[tuple[int, Image]] = []
        while head := read_batch_head(os.pread(self.number, IMAGE_BATCH.size, self._read)):
            size = IMAGE_ENTRY.size * head["page_count"]
            entries = read_entries(os.pread(self.number, size, self._read + IMAGE_BATCH.size), head)
            if entries is None:
                break
            at = self._read + IMAGE_BATCH.size + size
            for page_id, ckpt_id, length in entries.tolist():
                found.append((page_id, Image(ckpt_id, self.number, at, length)))
                at += length
            self._read += head["size"]
        return found

    def close(self) -> None:
        os.close(self.number)


class ImageIndex:
    """The images that a pin's reader may need, by page id."""

    def __init__(self, directory: Path, pin: Pin) -> None:
        self._directory = directory
        self._pin = pin
        self._files: dict[Path, _File] = {}
        self.newest: dict[int, Image] = {}
        self.refresh()

    def refresh(self) -> None:
        """Look for images that were added."""
        for ckpt_id, _, path in image_files(self._directory):
            if path not in self._files and ckpt_id >= self._pin.ckpt_id:
                try:
                    self._files[path] = _File(path)
                except FileNotFoundError:
                    continue  # dropped just now, with the pin; who reads on finds that out
        for file in self._files.values():
            for page_id, image in file.new_images():
                if image.ckpt_id <= self._pin.ckpt_id:
                    known = self.newest.get(page_id)
                    if known is None or known.ckpt_id < image.ckpt_id:
                        self.newest[page_id] = image

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files = {}
