"""Image files of pins: what they are called, and finding in them the pages of an instant.

A file is named by the checkpoint of the pin that was the newest when it was begun, and a number.  Pins share images,
which may move from file to file while somebody reads by them.

Invariants
 1. Of several images of a page the newest counts that is not newer than the pin.
 2. A file that was found once stays open: it can be read even if the pin is dropped meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from gmdb.format.images import IMAGE_BATCH, IMAGE_ENTRY, read_batch_head, read_entries
from gmdb.format.page import PAGE_SIZES
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


class KeptPage(NamedTuple):
    """A version of a page in an image file."""

    ckpt_id: int
    path: Path
    offset: int
    size: int


def read_images(path: Path) -> Iterator[tuple[int, KeptPage]]:
    """All images of a file, with their page ids."""
    file = _File(path)
    try:
        for page_id, image in file.new_images():
            if image.size in PAGE_SIZES:
                yield page_id, KeptPage(image.ckpt_id, path, image.offset, image.size)
    finally:
        file.close()


class _File:
    """An image file, read as far as its batches are whole."""

    def __init__(self, path: Path) -> None:
        self.number = open_plain(path)
        self._read = 0

    def new_images(self) -> list[tuple[int, Image]]:
        """The images of batches that were added since the last time, with their page ids."""
        found: list[tuple[int, Image]] = []
        end = os.fstat(self.number).st_size
        while head := read_batch_head(os.pread(self.number, IMAGE_BATCH.size, self._read)):
            size = IMAGE_ENTRY.size * head["page_count"]
            at = self._read + IMAGE_BATCH.size + size
            entries = read_entries(os.pread(self.number, size, at - size), head) if at <= end else None
            if entries is None or head["size"] != IMAGE_BATCH.size + size + int(entries[:, 2].sum(dtype=np.int64)):
                break
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
        gone: set[Path] = set()
        while found := [path for _, _, path in image_files(self._directory) if path not in {*self._files, *gone}]:
            for path in found:
                try:
                    self._files[path] = _File(path)
                except FileNotFoundError:
                    gone.add(path)  # what is needed of it is in another one by now
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
