"""A table that is to be imported: its definition, and its rows as a stream."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Protocol

import pyarrow as pa

from gmdb.catalog.schema import Constraint
from gmdb.errors import InterfaceError
from gmdb.format.columns import Column


@dataclass(frozen=True)
class IndexPlan:
    name: str
    columns: tuple[str, ...]
    unique: bool


@dataclass
class TablePlan:
    """``batches`` gives the rows from the beginning, each time that it is called."""

    name: str
    columns: list[Column]
    rows: int
    batches: Callable[[], Iterator[pa.RecordBatch]]
    keys: list[Constraint] = field(default_factory=list)  # primary key and unique constraints
    checks: list[str] = field(default_factory=list)
    indexes: list[IndexPlan] = field(default_factory=list)
    identity: tuple[str, int] | None = None  # a numbered column, and its last number


class Source(Protocol):
    """A file with tables.  ``remarks`` say what of it is left out, or is not as it was, a line each."""

    remarks: list[str]

    def plans(self) -> list[TablePlan]: ...

    def __enter__(self) -> Source: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


def table_name(path: Path, given: str | None) -> str:
    """The name of the one table of a file: what was given, or the file's own."""
    return given if given is not None else path.stem.lower()


def in_short(error: Exception) -> str:
    """What is wrong, without the place in a text that the user has not written, and without advice."""
    return re.sub(r"^line \d+, column \d+: ", "", str(error)).split(". ", 1)[0]


def require_file(path: Path) -> bytes:
    """The first bytes of a file that can be read."""
    try:
        with path.open("rb") as file:
            return file.read(16)
    except OSError as error:
        raise InterfaceError(f"{path} cannot be read: {error.strerror}") from None
