"""An index, decoded: its columns, how full each of its levels is, and its pages as a tree.

Nothing is trusted: a page that cannot be followed becomes a problem of the index, and the rest is shown.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from typing import Any

from gmdb.errors import Corruption, DataError, InterfaceError, NoSuchIndex, StorageError
from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import BTREE_NODE, ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT, key_values
from gmdb.format.columns import Column
from gmdb.format.hash import HASH_NODE, is_directory, slot_pages
from gmdb.format.page import PAGE_HEAD, TAIL_SIZE, PageType, SegmentType
from gmdb.format.row import ROW_HEAD, SIZE_AT
from gmdb.format.slotted import slot_room, slots
from gmdb.process.late_dataclasses import dataclass, field
from gmdb.process.late_imports import numpy as np
from gmdb.tables.access.indexes import HIDDEN, IndexDefinition, written_columns
from gmdb.tables.catalog.names import PUBLIC, full_name
from gmdb.tables.catalog.schema import TableDefinition
from gmdb.tables.files.page_view import plain

Key = tuple[Any, ...] | None  # None: there is none, or it cannot be read
Pages = Callable[[int], bytes]
Table = tuple[tuple[str, ...], list[tuple[object, ...]]]  # headings and rows


@dataclass
class Node:
    """A page of the tree.  ``separators`` are its own keys, one per child; that of the last child is None."""

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
        """How much of the room for entries and slots is in use, in per cent."""
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
    """An index of any kind; ``root`` is a page of that kind, None if it cannot be read."""

    definition: IndexDefinition
    table: TableDefinition
    kind: str
    problems: list[tuple[str, str]] = field(default_factory=list)  # where, what
    root: Any = None

    @property
    def columns(self) -> tuple[Column, ...]:
        return tuple(self.table.stored[position] for position in self.definition.positions)

    @abstractmethod
    def read(self, pages: Pages) -> None:
        """Decode the pages, from the root on."""

    @abstractmethod
    def summary(self) -> dict[str, Any]:
        """Counts of its pages and entries, in plain values."""

    @abstractmethod
    def tables(self) -> list[Table]:
        """The same as tables to print."""

    def document(self) -> dict[str, Any]:
        return {
            "index": self.definition.name,
            "kind": self.kind,
            "table": self.table.name,
            "columns": [
                {"name": column.name.removeprefix(HIDDEN), "type": str(column.type)} for column in self.columns
            ],
            "unique": self.definition.unique,
            "on": written_columns(self.definition, self.table.stored),
            "entry_page": page_name(self.definition.entry_page),
            "root_page": None if self.root is None else page_name(self.root.page_id),
            **self.summary(),
            "tree": None if self.root is None else self.root.document(),
            "problems": [f"{where}: {what}" for where, what in self.problems],
        }

    def page_below(self, pages: Pages, page_id: int, parent: int, seg_type: SegmentType) -> bytes | None:
        """A page that ``parent`` leads to; None, and a problem is noted, if it is not a page of the index."""
        wrong, page = "", b""
        try:
            page = pages(page_id)
        except StorageError as error:
            wrong = str(error)
        if page:
            head = PAGE_HEAD.at(page)
            if (head.page_type, head.seg_type) != (PageType.DATA, seg_type):
                wrong = f"it is not a {self.kind} page"
            elif head.obj_id != self.definition.obj_id:
                wrong = f"it is a page of object {head.obj_id}"
        if wrong:
            self.lost(page_id, parent, wrong)
        return None if wrong else page

    def lost(self, page_id: int, parent: int, wrong: str) -> None:
        self.problems.append((page_name(parent), f"leads to page {page_name(page_id)}, but {wrong}"))

    def entries_on(self, page_id: int, page: bytes, count: int) -> tuple[np.ndarray, int]:
        """The offsets of a page's entries, those outside the page left out, and the bytes that entries take."""
        offsets = np.array(slots(page, min(count, slot_room(page, ENTRIES_AT))), np.int64)
        inside = offsets[(offsets >= ENTRIES_AT) & (offsets < len(page) - TAIL_SIZE - ROW_HEAD.size)]
        if len(inside) != count:
            self.problems.append((page_name(page_id), f"{count - len(inside)} slots lead outside the entries"))
        raw = np.frombuffer(page, np.uint8).astype(np.int64)
        sizes = raw[inside + SIZE_AT] | raw[inside + SIZE_AT + 1] << 8
        return inside, int(sizes.sum()) + 2 * len(inside)


class BTreeView(IndexView):
    root: Node | None

    def levels(self) -> list[Level]:
        """The levels, the root's first."""
        by_level: dict[int, Level] = {}
        for node in walk(self.root):
            by_level.setdefault(node.level, Level(node.level)).count(node)
        return [by_level[level] for level in sorted(by_level, reverse=True)]

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
    """A page and all below it; nothing for None."""
    if node is not None:
        yield node
        for child in node.children:
            yield from walk(child)


def _plain_key(key: Key) -> list[Any] | None:
    return None if key is None else [plain(value) for value in key]


def find_index(
    indexes: Iterable[IndexDefinition], tables: Iterable[TableDefinition], name: str
) -> tuple[str, IndexDefinition]:
    """An index by its full name, as written or in lower case; with that name."""
    schemas = {table.obj_id: table.schema for table in tables}
    named = ((full_name(schemas.get(index.table_id, PUBLIC), index.name), index) for index in indexes)
    by_name = dict(named)
    for spelling in (name, name.lower()):
        if spelling in by_name:
            return spelling, by_name[spelling]
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
        """A page and those below it; None, and a problem is noted, if the page cannot be a child of ``parent``."""
        page = self._view.page_below(self._pages, page_id, parent, SegmentType.BTREE)
        if page is None:
            return None
        own_level = BTREE_NODE.at(page, NODE_AT).level
        if level is not None and own_level != level:
            self._view.lost(page_id, parent, f"it has level {own_level} instead of {level}")
            return None
        if page_id in self._seen:
            self._view.lost(page_id, parent, "the tree leads there twice")
            return None
        self._seen.add(page_id)
        return self._decode(page_id, page)

    def _decode(self, page_id: int, page: bytes) -> Node:
        head = BTREE_NODE.at(page, NODE_AT)
        offsets, used = self._view.entries_on(page_id, page, head.slot_count)
        capacity = len(page) - ENTRIES_AT - TAIL_SIZE
        node = Node(page_id, head.level, head.prev, head.next, len(offsets), used, capacity)
        if head.level == 0:
            if len(offsets):
                node.first, node.last = (self._key(page_id, page, int(offsets[n])) for n in (0, -1))
            return node
        for n, offset in enumerate(offsets.tolist()):
            at = offset + ROW_HEAD.size
            child = self._read(int.from_bytes(page[at : at + 4], "little"), head.level - 1, page_id)
            if child is not None:
                node.separators.append(None if n == len(offsets) - 1 else self._key(page_id, page, offset))
                node.children.append(child)
        if node.children:
            node.first, node.last = node.children[0].first, node.children[-1].last
        return node

    def _key(self, page_id: int, page: bytes, offset: int) -> Key:
        try:
            return key_values(self._columns, page, offset)
        except (Corruption, DataError) as error:
            self._view.problems.append((page_name(page_id), f"offset {offset}: the key cannot be read: {error}"))
            return None


def sibling(node: Node) -> int | None:
    """The page to the right; None if there is none."""
    return None if node.next == NO_PAGE else node.next


# ---- A hash index, decoded: its directories and buckets, how many bits choose each bucket, and how full it is.

LEVELS_MAX = 12  # of directories


@dataclass
class HashPage:
    """A directory or a bucket.  ``prefix``: the bits that lead to it, the last ``own`` of them in its directory."""

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
        """Of a bucket: how much of the room for entries and slots is in use, in per cent."""
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
        """The levels of directories, the root's first, each with the buckets that they lead to."""
        rows = []
        buckets, directories = self._pages(False), self._pages(True)
        for level in range(max((page.level for page in directories), default=-1) + 1):
            own = [bucket for bucket in buckets if bucket.level == level + 1]
            fills = [bucket.fill for bucket in own]
            rows.append(
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
        return rows

    def depths(self) -> list[dict[str, int]]:
        """The number of buckets for each number of address bits that choose them."""
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
        """A page and those below it; None, and a problem is noted, if the page cannot be a child of ``parent``."""
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
            bucket = HashPage(page_id, level, bits, min(node.depth, own), node.depth, False)
            offsets, bucket.used = self.entries_on(page_id, page, node.slot_count)
            bucket.entries, bucket.capacity = len(offsets), len(page) - ENTRIES_AT - TAIL_SIZE
            return bucket
        slots = slot_pages(page)
        directory = HashPage(page_id, level, prefix, own, node.depth, True, len(slots), slots.count(NO_PAGE))
        first = 0
        for child_id, same in groupby(slots):
            bits = f"{first:0{node.depth}b}" if node.depth else ""
            first += len(list(same))
            if child_id != NO_PAGE:
                child = self._read(pages, child_id, page_id, prefix + bits, len(bits), level + 1, seen)
                if child is not None:
                    directory.children.append(child)
        return directory


# ---- Decoding an index of any kind: its kind is the type of its segment, by which ``VIEWS`` has the class.

VIEWS: dict[SegmentType, tuple[str, type[IndexView]]] = {
    SegmentType.BTREE: ("B-tree", BTreeView),
    SegmentType.HASH: ("hash", HashView),
}
"""By the type of an index's segment: the name of the kind, and the class that decodes it."""


def read_index(pages: Pages, definition: IndexDefinition, table: TableDefinition) -> IndexView:
    """Decode an index.  ``pages`` returns the bytes of a page."""
    kind = PAGE_HEAD.at(pages(definition.entry_page)).seg_type
    if kind not in VIEWS:
        known = ", ".join(name for name, _ in VIEWS.values())
        problem = f"index {definition.name} has a segment of type {kind}; gmstat index knows {known}"
        raise InterfaceError(f"{problem}; gmstat page DB {page_name(definition.entry_page)} draws its entry page")
    name, view_type = VIEWS[SegmentType(kind)]
    view = view_type(definition, table, name)
    view.read(pages)
    return view
