"""An index, taken apart: what it is of, how full each of its levels is, and its pages as a tree.

A kind of index is the type of its segment; ``READERS`` says how each is read.  Nothing is trusted: what cannot be
followed becomes a problem of the index, and the rest is shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import Corruption, DataError, InterfaceError, NoSuchIndex, StorageError
from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT, key_values
from gmdb.format.columns import Column
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import ROW_HEAD, SIZE_AT
from gmdb.format.slotted import slot_room, slots
from gmdb.inspect.row_view import plain

Key = tuple[Any, ...] | None  # None: there is none, or it cannot be read
Pages = Callable[[int], bytes]


@dataclass
class Node:
    """A page of the tree.  ``separators`` are its own keys, by child; the last child has none."""

    page_id: int
    level: int
    prev: int
    next: int
    entries: int
    used: int
    capacity: int
    first: Key = None
    last: Key = None
    separators: list[Key] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)

    @property
    def fill(self) -> float:
        """Bytes of entries and slots in percent of those that there is room for."""
        return 100 * self.used / self.capacity

    def document(self) -> dict[str, Any]:
        """The page and those below it in plain values, for JSON."""
        below = zip(self.separators, self.children, strict=False)
        return {
            "page_id": self.page_id,
            "page": page_name(self.page_id),
            "level": self.level,
            "prev": page_name(self.prev),
            "next": page_name(self.next),
            "entries": self.entries,
            "bytes": self.used,
            "fill_percent": round(self.fill, 1),
            "first_key": _plain_key(self.first),
            "last_key": _plain_key(self.last),
            "children": [{"up_to": _plain_key(key), **child.document()} for key, child in below],
        }


@dataclass
class Level:
    level: int
    pages: int = 0
    entries: int = 0
    used: int = 0
    fill_sum: float = 0.0
    fill_min: float = 100.0

    def count(self, node: Node) -> None:
        self.pages += 1
        self.entries += node.entries
        self.used += node.used
        self.fill_sum += node.fill
        self.fill_min = min(self.fill_min, node.fill)

    @property
    def fill(self) -> float:
        return self.fill_sum / self.pages


@dataclass
class IndexView:
    definition: IndexDefinition
    table: TableDefinition
    kind: str
    root: Node | None
    problems: list[tuple[str, str]]  # where, what

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.table.columns[position] for position in self.definition.positions)

    def levels(self) -> list[Level]:
        """The levels, the root's first."""
        found: dict[int, Level] = {}
        for node in walk(self.root):
            found.setdefault(node.level, Level(node.level)).count(node)
        return [found[level] for level in sorted(found, reverse=True)]

    def document(self) -> dict[str, Any]:
        levels = [
            {
                "level": level.level, "pages": level.pages, "entries": level.entries, "bytes": level.used,
                "fill_percent": round(level.fill, 1), "fill_percent_min": round(level.fill_min, 1),
            }
            for level in self.levels()
        ]  # fmt: skip
        return {
            "index": self.definition.name,
            "kind": self.kind,
            "table": self.table.name,
            "columns": [{"name": column.name, "type": str(column.type)} for column in self.columns],
            "unique": self.definition.unique,
            "entry_page": page_name(self.definition.entry_page),
            "root_page": None if self.root is None else page_name(self.root.page_id),
            "levels": levels,
            "tree": None if self.root is None else self.root.document(),
            "problems": [f"{where}: {what}" for where, what in self.problems],
        }


def walk(node: Node | None) -> Iterator[Node]:
    if node is not None:
        yield node
        for child in node.children:
            yield from walk(child)


def _plain_key(key: Key) -> list[Any] | None:
    return None if key is None else [plain(value) for value in key]


def find_index(indexes: Sequence[IndexDefinition], name: str) -> IndexDefinition:
    """An index by its name, as it was given or in small letters."""
    by_name = {index.name: index for index in indexes}
    for spelling in (name, name.lower()):
        if spelling in by_name:
            return by_name[spelling]
    raise NoSuchIndex(f"there is no index {name}; the indexes are: {', '.join(sorted(by_name)) or 'none yet'}")


def read_index(pages: Pages, definition: IndexDefinition, table: TableDefinition) -> IndexView:
    """Take an index apart.  ``pages`` answers the bytes of a page."""
    kind = PAGE_HEAD.at(pages(definition.entry_page)).seg_type
    if kind not in READERS:
        known = ", ".join(name for name, _ in READERS.values())
        said = f"index {definition.name} has a segment of type {kind}; gmstat index knows {known}"
        raise InterfaceError(f"{said}; gmstat page DB {page_name(definition.entry_page)} draws its entry page")
    name, reader = READERS[SegmentType(kind)]
    view = IndexView(definition, table, name, None, [])
    reader(pages, view)
    return view


class _BTreeReader:
    def __init__(self, pages: Pages, view: IndexView) -> None:
        self._pages, self._view, self._columns = pages, view, view.columns
        self._seen: set[int] = set()

    def read(self) -> None:
        entry = self._view.definition.entry_page
        root = INDEX_HEAD.at(self._pages(entry), INDEX_AT).root
        self._view.root = self._read(root, None, entry)

    def _read(self, page_id: int, level: int | None, parent: int) -> Node | None:
        """A page and those below it; None, and a problem, if the page cannot be the one that its parent means."""
        wrong, page = "", b""
        try:
            page = self._pages(page_id)
        except StorageError as error:
            wrong = str(error)
        if page:
            head, node = PAGE_HEAD.at(page), BTREE_NODE.at(page, NODE_AT)
            if (head.page_type, head.seg_type) != (PageType.DATA, SegmentType.BTREE):
                wrong = "it is no B-tree page"
            elif head.obj_id != self._view.definition.obj_id:
                wrong = f"it is a page of object {head.obj_id}"
            elif level is not None and node.level != level:
                wrong = f"it is of level {node.level} instead of {level}"
            elif page_id in self._seen:
                wrong = "the tree leads there twice"
        if wrong:
            self._view.problems.append((page_name(parent), f"leads to page {page_name(page_id)}, but {wrong}"))
            return None
        self._seen.add(page_id)
        return self._take_apart(page_id, page)

    def _take_apart(self, page_id: int, page: bytes) -> Node:
        head = BTREE_NODE.at(page, NODE_AT)
        offsets = self._offsets(page_id, page, head.slot_count)
        raw = np.frombuffer(page, np.uint8).astype(np.int64)
        sizes = raw[offsets + SIZE_AT] | raw[offsets + SIZE_AT + 1] << 8
        used = int(sizes.sum()) + 2 * len(offsets)
        capacity = len(page) - ENTRIES_AT - TAIL_SIZE
        made = Node(page_id, head.level, head.prev, head.next, len(offsets), used, capacity)
        if head.level == 0:
            if len(offsets):
                made.first, made.last = (self._key(page_id, page, int(offsets[n])) for n in (0, -1))
            return made
        for n, offset in enumerate(offsets.tolist()):
            at = offset + ROW_HEAD.size
            child = self._read(int.from_bytes(page[at : at + 4], "little"), head.level - 1, page_id)
            if child is not None:
                made.separators.append(None if n == len(offsets) - 1 else self._key(page_id, page, offset))
                made.children.append(child)
        if made.children:
            made.first, made.last = made.children[0].first, made.children[-1].last
        return made

    def _offsets(self, page_id: int, page: bytes, count: int) -> np.ndarray:
        """Where the page's entries are; not those that cannot be on it."""
        found = np.array(slots(page, min(count, slot_room(page, ENTRIES_AT))), np.int64)
        inside = found[(found >= ENTRIES_AT) & (found < len(page) - TAIL_SIZE - ROW_HEAD.size)]
        if len(inside) != count:
            self._view.problems.append((page_name(page_id), f"{count - len(inside)} slots lead outside the entries"))
        return inside

    def _key(self, page_id: int, page: bytes, offset: int) -> Key:
        try:
            return key_values(self._columns, page, offset)
        except (Corruption, DataError) as error:
            self._view.problems.append((page_name(page_id), f"offset {offset}: the key cannot be read: {error}"))
            return None


def _read_btree(pages: Pages, view: IndexView) -> None:
    _BTreeReader(pages, view).read()


READERS: dict[SegmentType, tuple[str, Callable[[Pages, IndexView], None]]] = {
    SegmentType.BTREE: ("B-tree", _read_btree)
}
"""By the type of an index's segment: what the kind is called, and what finds its root."""


def sibling(node: Node) -> int | None:
    """The page to the right; None if there is none."""
    return None if node.next == NO_PAGE else node.next
