"""What may be found on a disk after power was cut: directories made from a journal of file operations.

A state after ``upto`` operations has
 1. all that was written to a file before its last sync, and the length that it had then;
 2. of what was written since, any sectors of 512 bytes: a sector is as some write since left it, or as it was synced.
    The system writes whole sectors, so one that outlives power has all that was written to it before as well;
 3. any of the lengths that the file has had since, by allocation, cutting or writing at its end; zeros fill it up;
 4. of the names that were given, changed or taken away in a directory since it was synced, any part: syncing a file
    does not make its name last.  A new name is there as a whole, or not at all.
A sync that is cut short leaves what may be found before it, and a write that is cut short what may be found after.

States are built in the order of the journal: the files' contents are kept in memory and advance with it.
Not here: writing the journal (faults.py).
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

import numpy as np

from tests.crash.faults import (
    Allocate,
    Create,
    Journal,
    Operation,
    Remove,
    Rename,
    Sync,
    SyncDirectory,
    Truncate,
    Write,
)

SECTOR = 512
ODDS = (0.0, 0.1, 0.5, 0.9, 1.0)

# (position in the journal, file or directory, count) -> which of ``count`` parts outlive power; part 0 is metadata
Fate = Callable[[int, str, int], np.ndarray]


def crash_state(journal: Journal, upto: int, base: Path, target: Path, random: Random) -> None:
    """Make ``target`` as it may be found after power was cut when the first ``upto`` operations had been asked for.

    ``base`` is a copy of the recorded directory from before the journal began; it need not exist.
    """
    cut = PowerCut(journal, base)
    cut.advance(upto)
    cut.build(target, random)


def crash_states(
    journal: Journal, base: Path, target: Path, random: Random, points: Iterable[int] | None = None
) -> Iterator[tuple[int, Path]]:
    """(upto, directory) at growing points of the journal, all if none are given; a point may come more than once.

    A directory is removed when the next is asked for: one that a test fails on stays.
    """
    cut = PowerCut(journal, base)
    for number, upto in enumerate(range(len(journal) + 1) if points is None else points):
        cut.advance(upto)
        directory = target / f"state-{number:06d}-{upto:06d}"
        cut.build(directory, random)
        yield upto, directory
        shutil.rmtree(directory)


class PowerCut:
    """A disk at a moment of the journal: what is on it for sure, and what is still on its way."""

    def __init__(self, journal: Journal, base: Path) -> None:
        self._journal = journal
        self._position = 0
        self._files: dict[str, _File] = {}
        self._names: dict[str, str] = {}  # what the directories surely say
        self._unsynced: list[tuple[int, Create | Rename | Remove]] = []
        for path in base.rglob("*") if base.exists() else ():
            if path.is_file():
                name = str(path.relative_to(base))
                self._names[name] = name
                self._files[name] = _File(path.read_bytes())

    def advance(self, upto: int) -> None:
        """Go on to the moment after the first ``upto`` operations."""
        assert self._position <= upto <= len(self._journal), f"{upto} does not come after {self._position}"
        for position in range(self._position, upto):
            self._apply(position, self._journal[position])
        self._position = upto

    def _apply(self, position: int, operation: Operation) -> None:
        match operation:
            case Write(file, offset, data):
                self._file(file).write(position, offset, data)
            case Allocate(file, length):
                self._file(file).allocate(position, length)
            case Truncate(file, length):
                self._file(file).truncate(position, length)
            case Sync(file):
                self._file(file).sync()
            case Create(file, _):
                self._files[file] = _File(b"")
                self._unsynced.append((position, operation))
            case Rename() | Remove():
                self._unsynced.append((position, operation))
            case SyncDirectory(name):
                for _, change in self._unsynced:
                    if _directory_of(change) == name:
                        _change_names(self._names, change)
                self._unsynced = [entry for entry in self._unsynced if _directory_of(entry[1]) != name]

    def _file(self, identity: str) -> _File:
        assert identity in self._files, f"the journal changes {identity}, which was not there when it began"
        return self._files[identity]

    def build(self, target: Path, random: Random) -> None:
        """Make a directory that may be found now."""
        fate = self._draw(random)
        names = dict(self._names)
        for position, change in self._unsynced:
            if fate(position, f"directory {_directory_of(change)}", 1)[0]:
                _change_names(names, change)
        target.mkdir(parents=True, exist_ok=True)
        for name, identity in sorted(names.items()):
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            self._files[identity].build(path, identity, fate)

    def _draw(self, random: Random) -> Fate:
        """How this power cut goes: all kept, all lost, cut off at one moment, or each sector on its own."""
        kind = random.choices((_keep_all, _keep_none, None, _scatter), (1, 1, 3, 5))[0]
        if kind is not None:
            return kind(random)
        unsynced = [change.position for file in self._files.values() for change in file.unsynced]
        unsynced += [position for position, _ in self._unsynced]
        return _cut_off_at(random.choice(sorted(unsynced)) if unsynced else 0, random)


# ---- fates


def _keep_all(_random: Random) -> Fate:
    return lambda _position, _file, count: np.ones(count, bool)


def _keep_none(_random: Random) -> Fate:
    return lambda _position, _file, count: np.zeros(count, bool)


def _cut_off_at(cut: int, random: Random) -> Fate:
    """All before one operation, a beginning of it, nothing after."""

    def fate(position: int, _file: str, count: int) -> np.ndarray:
        kept = count if position < cut else random.randint(0, count) if position == cut else 0
        return np.arange(count) < kept

    return fate


def _scatter(random: Random) -> Fate:
    """Each part on its own; a file that was written out early keeps most, another one little."""
    odds: dict[str, float] = {}
    generator = np.random.default_rng(random.getrandbits(64))

    def fate(_position: int, file: str, count: int) -> np.ndarray:
        if file not in odds:
            odds[file] = ODDS[int(generator.integers(len(ODDS)))]
        return generator.random(count) < odds[file]

    return fate


# ---- names


def _directory_of(change: Create | Rename | Remove) -> str:
    """The directory whose sync makes the change last."""
    return str(Path(change.new if isinstance(change, Rename) else change.name).parent)


def _change_names(names: dict[str, str], change: Create | Rename | Remove) -> None:
    """A change happens to the file that it was meant for, though changes before it may have been lost."""
    if isinstance(change, Create):
        names[change.name] = change.file
        return
    for name in [name for name, file in names.items() if file == change.file]:
        if isinstance(change, Rename) or name == change.name:
            del names[name]
    if isinstance(change, Rename):
        names[change.new] = change.file


# ---- contents


@dataclass
class _Change:
    """Sectors from ``first`` on as an operation left them, and the length that it asked for."""

    position: int
    length: int
    cuts: bool = False
    first: int = 0
    sectors: np.ndarray = field(default_factory=lambda: np.zeros((0, SECTOR), np.uint8))


class _File:
    """A file's contents: as synced, as the system has it, and the changes between the two.

    Of each content a row is a sector.  Bytes past the length are zero in both.
    """

    def __init__(self, data: bytes) -> None:
        self.unsynced: list[_Change] = []
        self._length = self._synced_length = len(data)
        self._image = np.zeros((0, SECTOR), np.uint8)
        self._synced = np.zeros((0, SECTOR), np.uint8)
        self._used = np.zeros(0, bool)  # sectors that may be other than zero; the rest stays a hole
        self._reserve(len(data))
        self._image.reshape(-1)[: len(data)] = np.frombuffer(data, np.uint8)
        self._synced[:] = self._image
        self._used[:] = self._image.any(axis=1)

    def _reserve(self, length: int) -> None:
        """Have room for ``length`` bytes in both contents.  Memory that was never written costs nothing."""
        have, need = len(self._image), -(-length // SECTOR)
        if need <= have:
            return
        used = np.zeros(max(need, 2 * have), bool)
        used[:have] = self._used
        self._used = used
        for name in ("_image", "_synced"):
            grown = np.zeros((len(used), SECTOR), np.uint8)
            kept = np.flatnonzero(used[:have])
            grown[kept] = getattr(self, name)[kept]
            setattr(self, name, grown)

    def write(self, position: int, offset: int, data: bytes) -> None:
        end = offset + len(data)
        self._reserve(end)
        self._image.reshape(-1)[offset:end] = np.frombuffer(data, np.uint8)
        self._length = max(self._length, end)
        first, behind = offset // SECTOR, -(-end // SECTOR)
        self._used[first:behind] = True
        self.unsynced.append(_Change(position, end, first=first, sectors=self._image[first:behind].copy()))

    def allocate(self, position: int, length: int) -> None:
        self._length = max(self._length, length)
        self.unsynced.append(_Change(position, length))

    def truncate(self, position: int, length: int) -> None:
        self._reserve(length)
        self._image.reshape(-1)[length:] = 0
        first, behind = length // SECTOR, -(-self._length // SECTOR)
        sectors = self._image[first:behind].copy()
        self._length = length
        self.unsynced.append(_Change(position, length, cuts=True, first=first, sectors=sectors))

    def sync(self) -> None:
        for change in self.unsynced:
            part = slice(change.first, change.first + len(change.sectors))
            self._synced[part] = self._image[part]
        self._synced_length = self._length
        self.unsynced = []

    def build(self, path: Path, identity: str, fate: Fate) -> None:
        """Write the file as power may have left it."""
        image, length = self._synced, self._synced_length
        if self.unsynced:
            image = image.copy()
            for change in self.unsynced:
                length = _outlive(image, length, change, fate, identity)
            image.reshape(-1)[length:] = 0
        used = np.flatnonzero(self._used[: -(-length // SECTOR)])
        runs = np.split(used, np.flatnonzero(np.diff(used) != 1) + 1) if len(used) else []
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        try:
            for run in runs:
                os.pwrite(number, image[run[0] : run[-1] + 1].data, int(run[0]) * SECTOR)
            os.ftruncate(number, length)
        finally:
            os.close(number)


def _outlive(image: np.ndarray, length: int, change: _Change, fate: Fate, identity: str) -> int:
    """Put what is left of a change into the image; answers the file's length then."""
    kept = fate(change.position, identity, 1 + len(change.sectors))
    has_length, sectors = bool(kept[0]), kept[1:]
    if change.cuts:
        if not has_length:
            return length
        image.reshape(-1)[change.length :] = 0
        return change.length
    if has_length:
        length = max(length, change.length)
    place = np.flatnonzero(sectors[: max(-(-length // SECTOR) - change.first, 0)])
    image[change.first + place] = change.sectors[place]
    return length
