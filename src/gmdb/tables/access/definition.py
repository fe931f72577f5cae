"""The part of a table's definition that rows are read and changed by."""

from __future__ import annotations

from typing import NamedTuple, Protocol

from gmdb.format.columns import Column
from gmdb.format.lob import LobSegment
from gmdb.storage.feeds import Feed
from gmdb.tables.access.indexes import IndexDefinition


class Definition(Protocol):
    """The part of a table's definition that a heap uses."""

    @property
    def name(self) -> str: ...
    @property
    def obj_id(self) -> int: ...
    @property
    def number(self) -> int: ...
    @property
    def space_id(self) -> int: ...
    @property
    def entry_page(self) -> int: ...
    @property
    def columns(self) -> tuple[Column, ...]: ...
    @property
    def stored(self) -> tuple[Column, ...]: ...
    @property
    def indexes(self) -> tuple[IndexDefinition, ...]: ...
    @property
    def lobs(self) -> LobSegment | None: ...
    @property
    def feed(self) -> Feed | None: ...


class Checked(Protocol):
    """A snapshot that is held while it is read by."""

    def check(self) -> None: ...


class View(NamedTuple):
    """A table by one definition, as kernels know it: a read that has begun keeps to it."""

    obj_id: int
    target: int
    memory: tuple[object, ...]  # that ``target`` leads to
