"""A hash index, taken apart: its directories, its buckets, by how many bits these are chosen, and how full they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from gmdb.format.address import NO_PAGE, page_name
from gmdb.format.btree import ENTRIES_AT, INDEX_AT, INDEX_HEAD, NODE_AT
from gmdb.format.hash import HASH_NODE, is_directory, slot_pages
from gmdb.format.page import TAIL_SIZE, SegmentType
from gmdb.inspect.index_view import IndexView, Pages, Table, walk

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
