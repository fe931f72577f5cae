"""Change feeds: what the folder ``feeds`` has beside the log.

The log has the changes of tables with a change feed; a number there says by which definition a row is read.
``definitions/NUMBER.json`` is the table's definition of that number.  ``NAME.reader`` says how far a named reader has
come: the log is kept from there on, but not more of it than the reader's limit.

Invariants
 1. A definition is on disk before a row that it describes is logged.  Its number is never used again.
 2. A reader's file is written whole by the reader, and only removed by the database's owner, or by a user.
 3. A reader first writes its file, then checks whether the log is still there.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any, NamedTuple

from gmdb.errors import Corruption, InterfaceError, NoSuchFeedReader, PositionUnknown, StorageError
from gmdb.format.redo import payload
from gmdb.process.late_dataclasses import dataclass, replace
from gmdb.process.late_patterns import late_pattern
from gmdb.storage import disk
from gmdb.storage.directory import read_control
from gmdb.storage.disk import read_plain
from gmdb.storage.documents import is_number, make, parse

FOLDER = "feeds"
KEEP = 1 << 30  # bytes of log that are kept for a reader, unless it asks for more or less
KEEP_MIN = 1 << 20
_SUFFIX = ".reader"
_POSITION = late_pattern(r"([0-9a-f]{8})" + 4 * r"-([0-9]{1,19})")
_NAME = late_pattern(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Feed(NamedTuple):
    """That a table's changes are logged: what its feed is called for good, and its definition's number."""

    feed_id: int
    version: int


@dataclass(frozen=True, order=True)
class LogPosition:
    """A place in the feed: behind commit ``scn``, whose group is at ``lsn`` (0 if that is not known).

    Reading on needs the log from ``needs`` on; transactions that began before ``whole`` would not be there whole.
    """

    scn: int
    lsn: int
    needs: int
    whole: int

    def to_text(self, database_id: str) -> str:
        return f"{database_id[:8]}-{self.scn}-{self.lsn}-{self.needs}-{self.whole}"

    @classmethod
    def from_text(cls, text: str, database_id: str) -> LogPosition:
        match = _POSITION.fullmatch(text)
        if match is None:
            raise PositionUnknown(f"{text!r} is not a position in a change feed")
        if match.group(1) != database_id[:8]:
            raise PositionUnknown(f"position {text} is of another database's feed")
        numbers = [int(digits) for digits in match.groups()[1:]]
        if not all(map(is_number, numbers)):
            raise PositionUnknown(f"{text!r} is not a position in a change feed")
        return cls(*numbers)


# ---- definitions


def _definition_path(directory: Path, version: int) -> Path:
    return directory / FOLDER / "definitions" / f"{version}.json"


def write_definition(directory: Path, version: int, plain: Any) -> None:
    """Keep a definition for later readers of the log."""
    path = _definition_path(directory, version)
    for folder in (path.parent.parent, path.parent):
        _make_folder(folder)
    _write_whole(path, json.dumps(plain, separators=(",", ":")).encode())


def keep_definition(directory: Path, version: int, plain: Any) -> None:
    """Write a definition unless it is there."""
    if not _definition_path(directory, version).is_file():
        write_definition(directory, version, plain)


def read_definition(directory: Path, version: int) -> Any:
    path = _definition_path(directory, version)
    try:
        return parse(read_plain(path))
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}; without it the log's changes cannot be read") from error
    except ValueError as error:
        raise Corruption(f"{path} is damaged: {error}; without it the log's changes cannot be read") from error


def definition_numbers(directory: Path) -> list[int]:
    stems = (path.stem for path in (directory / FOLDER / "definitions").glob("*.json"))
    return [int(stem) for stem in stems if stem.isdecimal()]


# ---- readers


@dataclass(frozen=True)
class Reader:
    """How far a named reader has come.  ``position``: as text; ``needs``: the LSN from which on it needs the log."""

    name: str
    database_id: str
    position: str
    needs: int
    keep: int
    seen: float  # when it last said so
    feeds: dict[str, int]  # by the names of the tables that it asked for, what their feeds were; none: all tables


def require_reader_name(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise InterfaceError(f"{name!r} is not a name for a reader: use letters, digits, '_', '-' and '.', 100 at most")
    return name


def require_keep(keep: int) -> int:
    if keep < KEEP_MIN:
        raise InterfaceError(f"{keep} bytes of log are too few to keep for a reader; it must be {KEEP_MIN} or more")
    return keep


def _reader_path(directory: Path, name: str) -> Path:
    return directory / FOLDER / f"{require_reader_name(name)}{_SUFFIX}"


def write_reader(directory: Path, reader: Reader) -> None:
    path = _reader_path(directory, reader.name)
    _make_folder(path.parent)
    fields = replace(reader, seen=time.time()).__dict__
    _write_whole(path, json.dumps(fields, separators=(",", ":")).encode())


def read_reader(directory: Path, name: str) -> Reader | None:
    """A reader by its name; None if it does not exist, or not any more."""
    path = _reader_path(directory, name)
    try:
        reader = make(Reader, parse(read_plain(path)))
        if reader.name != name:
            raise ValueError(f"it is of {reader.name[:40]!r}")
        return reader
    except FileNotFoundError:
        return None
    except OSError as error:
        raise StorageError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise Corruption(f"{path} is damaged: {error}; drop it: gmdb feeds drop") from error


def read_readers(directory: Path) -> list[Reader]:
    """All readers that can be read, by name."""
    readers = []
    for path in sorted((directory / FOLDER).glob(f"*{_SUFFIX}")):
        try:
            reader = read_reader(directory, path.name.removesuffix(_SUFFIX))
        except (StorageError, InterfaceError):
            continue
        if reader is not None:
            readers.append(reader)
    return readers


def remove_reader(directory: Path, name: str) -> None:
    path = _reader_path(directory, name)
    if not path.exists():
        known = ", ".join(reader.name for reader in read_readers(directory)) or "none"
        raise NoSuchFeedReader(f"{directory} has no reader {name} of its changes; there are: {known}")
    disk.current.remove(path)


def log_needed(directory: Path, database_id: str, end: int) -> int | None:
    """The LSN from which on readers need the log, of which ``end`` is the end; None if none does.

    A reader that is further behind than its limit does not count: it gets PositionGone.  While one cannot be read, all
    log is kept.
    """
    needed = []
    for path in (directory / FOLDER).glob(f"*{_SUFFIX}"):
        try:
            reader = read_reader(directory, path.name.removesuffix(_SUFFIX))
        except InterfaceError:
            continue
        except StorageError:
            return 0
        if reader is not None and reader.database_id == database_id and end - reader.needs <= reader.keep:
            needed.append(reader.needs)
    return min(needed, default=None)


def log_behind(directory: Path, reader: Reader) -> int:
    """About how many bytes of log there are from where a reader stands: of whole files."""
    control = read_control(directory)
    size = max(int(control["redo_file_size"]), 1)
    first = reader.needs // payload(size) if control["redo_file_size"] else 0
    numbers = [int(path.name.rpartition("-")[2]) for path in directory.glob("redo-*[0-9]")]
    return sum(size for number in numbers if number >= first)


# ---- files


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise disk.storage_error(folder, error) from error
    disk.current.sync_directory(folder.parent)


def _write_whole(path: Path, data: bytes) -> None:
    """Write a file under another name, and let it take its place."""
    unfinished = path.with_name(f".{path.name}-{os.urandom(4).hex()}.new")
    with disk.current.open(unfinished, create=True, exclusive=True) as file:
        file.write(data, 0)
        file.sync()
    disk.current.replace(unfinished, path)
    disk.current.sync_directory(path.parent)
