"""An index, taken apart: what it is of, how full each of its levels is, and its pages as a tree.

Nothing is trusted: what cannot be followed becomes a problem of the index, and the rest is shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from gmdb.errors import Corruption, DataError, InterfaceError, NoSuchIndex, StorageError
from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT, key_values
from gmdb.format.columns import Column
from gmdb.format.hash import HASH_NODE, is_directory, slot_pages
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import ROW_HEAD, SIZE_AT
from gmdb.format.slotted import slot_room, slots
from gmdb.tables.access.indexes import IndexDefinition
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.page_view import plain

Key = tuple[Any, ...] | None  # None: there is none, or it cannot be read
Pages = Callable[[int], bytes]
Table = tuple[tuple[str, ...], list[tuple[object, ...]]]  # headings and rows


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
class IndexView(ABC):
    """An index of any kind; ``root`` is a page of that kind, None if there is none that can be read."""

    definition: IndexDefinition
    table: TableDefinition
    kind: str
    problems: list[tuple[str, str]] = field(default_factory=list)  # where, what
    root: Any = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.table.columns[position] for position in self.definition.positions)

    @abstractmethod
    def read(self, pages: Pages) -> None:
        """Take the pages apart, from the root on."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Its pages and entries, counted, in plain values."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The same for people."""

    def document(self) -> dict[str, Any]:
        return {
            "index": self.definition.name,
            "kind": self.kind,
            "table": self.table.name,
            "columns": [{"name": column.name, "type": str(column.type)} for column in self.columns],
            "unique": self.definition.unique,
            "entry_page": page_name(self.definition.entry_page),
            "root_page": None if self.root is None else page_name(self.root.page_id),
            **self.summary(),
            "tree": None if self.root is None else self.root.document(),
            "problems": [f"{where}: {what}" for where, what in self.problems],
        }

    def page_below(self, pages: Pages, page_id: int, parent: int, seg_type: SegmentType) -> bytes | None:
        """A page that another one leads to; None, and a problem, if it is none of the index."""
        wrong, page = "", b""
        try:
            page = pages(page_id)
        except StorageError as error:
            wrong = str(error)
        if page:
            head = PAGE_HEAD.at(page)
            if (head.page_type, head.seg_type) != (PageType.DATA, seg_type):
                wrong = f"it is no {self.kind} page"
            elif head.obj_id != self.definition.obj_id:
                wrong = f"it is a page of object {head.obj_id}"
        if wrong:
            self.lost(page_id, parent, wrong)
        return None if wrong else page

    def lost(self, page_id: int, parent: int, wrong: str) -> None:
        self.problems.append((page_name(parent), f"leads to page {page_name(page_id)}, but {wrong}"))

    def entries_on(self, page_id: int, page: bytes, count: int) -> tuple[np.ndarray, int]:
        """Where a page's entries are, without those that cannot be on it, and the bytes that they take."""
        found = np.array(slots(page, min(count, slot_room(page, ENTRIES_AT))), np.int64)
        inside = found[(found >= ENTRIES_AT) & (found < len(page) - TAIL_SIZE - ROW_HEAD.size)]
        if len(inside) != count:
            self.problems.append((page_name(page_id), f"{count - len(inside)} slots lead outside the entries"))
        raw = np.frombuffer(page, np.uint8).astype(np.int64)
        sizes = raw[inside + SIZE_AT] | raw[inside + SIZE_AT + 1] << 8
        return inside, int(sizes.sum()) + 2 * len(inside)


class BTreeView(IndexView):
    root: Node | None

    def levels(self) -> list[Level]:
        """The levels, the root's first."""
        found: dict[int, Level] = {}
        for node in walk(self.root):
            found.setdefault(node.level, Level(node.level)).count(node)
        return [found[level] for level in sorted(found, reverse=True)]

    def summary(self) -> dict[str, Any]:
        return {
            "levels": [
                {
                    "level": level.level, "pages": level.pages, "entries": level.entries, "bytes": level.used,
                    "fill_percent": round(level.fill, 1), "fill_percent_min": round(level.fill_min, 1),
                }
                for level in self.levels()
            ]
        }  # fmt: skip

    def tables(self) -> list[Table]:
        rows: list[tuple[object, ...]] = [
            (level.level, level.pages, level.entries, level.used, round(level.fill), round(level.fill_min))
            for level in self.levels()
        ]
        return [(("level", "pages", "entries", "bytes", "fill %", "lowest %"), rows)]

    def read(self, pages: Pages) -> None:
        _BTreeReader(pages, self).read()


def walk(node: Any) -> Iterator[Any]:
    """A page and all below it; none if there is none."""
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


class _BTreeReader:
    def __init__(self, pages: Pages, view: BTreeView) -> None:
        self._pages, self._view, self._columns = pages, view, view.columns
        self._seen: set[int] = set()

    def read(self) -> None:
        entry = self._view.definition.entry_page
        root = INDEX_HEAD.at(self._pages(entry), INDEX_AT).root
        self._view.root = self._read(root, None, entry)

    def _read(self, page_id: int, level: int | None, parent: int) -> Node | None:
        """A page and those below it; None, and a problem, if the page cannot be the one that its parent means."""
        page = self._view.page_below(self._pages, page_id, parent, SegmentType.BTREE)
        if page is None:
            return None
        found = BTREE_NODE.at(page, NODE_AT).level
        if level is not None and found != level:
            self._view.lost(page_id, parent, f"it is of level {found} instead of {level}")
            return None
        if page_id in self._seen:
            self._view.lost(page_id, parent, "the tree leads there twice")
            return None
        self._seen.add(page_id)
        return self._take_apart(page_id, page)

    def _take_apart(self, page_id: int, page: bytes) -> Node:
        head = BTREE_NODE.at(page, NODE_AT)
        offsets, used = self._view.entries_on(page_id, page, head.slot_count)
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

    def _key(self, page_id: int, page: bytes, offset: int) -> Key:
        try:
            return key_values(self._columns, page, offset)
        except (Corruption, DataError) as error:
            self._view.problems.append((page_name(page_id), f"offset {offset}: the key cannot be read: {error}"))
            return None


def sibling(node: Node) -> int | None:
    """The page to the right; None if there is none."""
    return None if node.next == NO_PAGE else node.next


# ---- A hash index, taken apart: its directories, its buckets, by how many bits these are chosen, and how full they
# are.

LEVELS_MAX = 12  # of directories


@dataclass
class HashPage:
    """A directory or a bucket.  ``prefix``: the bits that lead there, of which the last ``own`` are its directory's."""

    page_id: int
    level: int
    prefix: str
    own: int
    depth: int
    is_directory: bool
    slots: int = 0  # of a directory; free ones lead nowhere
    free_slots: int = 0
    entries: int = 0  # of a bucket
    used: int = 0
    capacity: int = 0
    children: list[HashPage] = field(default_factory=list)

    @property
    def fill(self) -> float:
        """Of a bucket: bytes of entries and slots in percent of those that there is room for."""
        return 100 * self.used / self.capacity if self.capacity else 0.0

    @property
    def bits(self) -> str:
        """The bits by which its directory chooses the page."""
        return self.prefix[len(self.prefix) - self.own :]

    def document(self) -> dict[str, Any]:
        """The page and those below it in plain values, for JSON."""
        place = {"page_id": self.page_id, "page": page_name(self.page_id), "level": self.level, "bits": self.prefix}
        if not self.is_directory:
            full = {"entries": self.entries, "bytes": self.used, "fill_percent": round(self.fill, 1)}
            return {**place, "type": "bucket", "depth": self.depth, **full}
        counts = {"depth": self.depth, "slots": self.slots, "free_slots": self.free_slots}
        return {**place, "type": "directory", **counts, "children": [child.document() for child in self.children]}


class HashView(IndexView):
    root: HashPage | None

    def _pages(self, directories: bool) -> list[HashPage]:
        return [page for page in walk(self.root) if page.is_directory == directories]

    def levels(self) -> list[dict[str, Any]]:
        """Directories by their level, from the root's on, each with the buckets that they lead to."""
        found = []
        buckets, directories = self._pages(False), self._pages(True)
        for level in range(max((page.level for page in directories), default=-1) + 1):
            own = [bucket for bucket in buckets if bucket.level == level + 1]
            fills = [bucket.fill for bucket in own]
            found.append(
                {
                    "level": level,
                    "directories": sum(page.level == level for page in directories),
                    "buckets": len(own),
                    "entries": sum(bucket.entries for bucket in own),
                    "bytes": sum(bucket.used for bucket in own),
                    "fill_percent": round(sum(fills) / len(fills), 1) if own else None,
                    "fill_percent_min": round(min(fills), 1) if own else None,
                }
            )
        return found

    def depths(self) -> list[dict[str, int]]:
        """How many buckets are chosen by how many bits of the address."""
        buckets = sorted((len(bucket.prefix), bucket.entries) for bucket in self._pages(False))
        groups = ((bits, [entries for _, entries in same]) for bits, same in groupby(buckets, lambda one: one[0]))
        return [{"bits": bits, "buckets": len(counts), "entries": sum(counts)} for bits, counts in groups]

    def summary(self) -> dict[str, Any]:
        return {"levels": self.levels(), "depths": self.depths()}

    def tables(self) -> list[Table]:
        levels: list[tuple[object, ...]] = []
        for level in self.levels():
            *counts, fill, lowest = level.values()
            levels.append((*counts, *("" if percent is None else round(percent) for percent in (fill, lowest))))
        headings = ("level", "directories", "buckets", "entries", "bytes", "fill %", "lowest %")
        depths: list[tuple[object, ...]] = [tuple(depth.values()) for depth in self.depths()]
        return [(headings, levels), (("bits", "buckets", "entries"), depths)]

    # ---- reading

    def read(self, pages: Pages) -> None:
        entry = self.definition.entry_page
        root = INDEX_HEAD.at(pages(entry), INDEX_AT).root
        self.root = self._read(pages, root, entry, "", 0, 0, set())

    def _read(
        self, pages: Pages, page_id: int, parent: int, prefix: str, own: int, level: int, seen: set[int]
    ) -> HashPage | None:
        """A page and those below it; None, and a problem, if the page cannot be the one that its parent means."""
        page = self.page_below(pages, page_id, parent, SegmentType.HASH)
        if page is None:
            return None
        if page_id in seen:
            self.lost(page_id, parent, "the index leads there twice")
            return None
        if level > LEVELS_MAX or (level == 0 and not is_directory(page)):
            self.lost(page_id, parent, "there is no directory on that level")
            return None
        seen.add(page_id)
        node = HASH_NODE.at(page, NODE_AT)
        if not is_directory(page):
            bits = prefix[: len(prefix) - own + min(node.depth, own)]
            made = HashPage(page_id, level, bits, min(node.depth, own), node.depth, False)
            offsets, made.used = self.entries_on(page_id, page, node.slot_count)
            made.entries, made.capacity = len(offsets), len(page) - ENTRIES_AT - TAIL_SIZE
            return made
        slots = slot_pages(page)
        made = HashPage(page_id, level, prefix, own, node.depth, True, len(slots), slots.count(NO_PAGE))
        first = 0
        for child_id, same in groupby(slots):
            bits = f"{first:0{node.depth}b}" if node.depth else ""
            first += len(list(same))
            if child_id != NO_PAGE:
                child = self._read(pages, child_id, page_id, prefix + bits, len(bits), level + 1, seen)
                if child is not None:
                    made.children.append(child)
        return made


# ---- Taking an index apart, whatever its kind, which is the type of its segment; ``VIEWS`` says how each is read.

VIEWS: dict[SegmentType, tuple[str, type[IndexView]]] = {
    SegmentType.BTREE: ("B-tree", BTreeView),
    SegmentType.HASH: ("hash", HashView),
}
"""By the type of an index's segment: what the kind is called, and what takes it apart."""


def read_index(pages: Pages, definition: IndexDefinition, table: TableDefinition) -> IndexView:
    """Take an index apart.  ``pages`` answers the bytes of a page."""
    kind = PAGE_HEAD.at(pages(definition.entry_page)).seg_type
    if kind not in VIEWS:
        known = ", ".join(name for name, _ in VIEWS.values())
        said = f"index {definition.name} has a segment of type {kind}; gmstat index knows {known}"
        raise InterfaceError(f"{said}; gmstat page DB {page_name(definition.entry_page)} draws its entry page")
    name, view_type = VIEWS[SegmentType(kind)]
    view = view_type(definition, table, name)
    view.read(pages)
    return view
