"""Listings of indexes and large objects: their pages, and the entries of an index in the order of its keys."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from gmdb.errors import Corruption, DataError, Error, InterfaceError
from gmdb.format.address import NO_PAGE, RowId, page_name
from gmdb.format.btree import POINTER_SIZE, entry_extents, key_values
from gmdb.format.lob import LOB_MAX, LOB_NODE, NODE_AT, page_counts
from gmdb.format.page import PAGE_HEAD, PageType
from gmdb.format.row import NO_LOCK, ROW_HEAD, header_size
from gmdb.format.slotted import bounded
from gmdb.inspect.index_view import BTreeView, HashView, IndexView, find_index, read_index, walk
from gmdb.inspect.listing import BIGINT, DOUBLE, INT, TEXT, ListColumn, Listing
from gmdb.inspect.objects import segment_objects
from gmdb.inspect.page_lists import ALL_PAGES, PageSelection, data_pages
from gmdb.tables.files.database_files import DatabaseFiles
from gmdb.tables.files.page_view import flag_names, known_tables, plain

INDEX = (
    ListColumn("page_id", BIGINT, "the page's number", True),
    ListColumn("page", TEXT, "as people write it"),
    ListColumn("level", INT, "0: a leaf"),
    ListColumn("parent", TEXT, "the page that leads to it; NULL: it is the root"),
    ListColumn("entries", INT, "entries on it"),
    ListColumn("bytes", INT, "bytes that these and their slots take"),
    ListColumn("fill", DOUBLE, "share of the room for them that is in use"),
    ListColumn("up_to", TEXT, "the separator that bounds it, as JSON; NULL: it takes the rest"),
    ListColumn("first_key", TEXT, "the first key on it or below, as JSON"),
    ListColumn("last_key", TEXT, "the last one"),
    ListColumn("prev", TEXT, "the page to its left", True),
    ListColumn("next", TEXT, "the page to its right", True),
)
HASH = (
    ListColumn("page_id", BIGINT, "the page's number", True),
    ListColumn("page", TEXT, "as people write it"),
    ListColumn("type", TEXT, "`directory` or `bucket`"),
    ListColumn("level", INT, "how many directories are above it"),
    ListColumn("parent", TEXT, "the directory that leads to it; NULL: it is the first"),
    ListColumn("bits", TEXT, "the first bits of an address, which lead there"),
    ListColumn("depth", INT, "bits that a directory chooses by, or that a bucket was chosen by"),
    ListColumn("slots", INT, "of a directory: its slots"),
    ListColumn("free_slots", INT, "those of them that lead nowhere"),
    ListColumn("entries", INT, "of a bucket: its entries"),
    ListColumn("bytes", INT, "bytes that these and their slots take"),
    ListColumn("fill", DOUBLE, "share of the room for them that is in use"),
)
ENTRIES = (
    ListColumn("page_id", BIGINT, "the page's number", True),
    ListColumn("page", TEXT, "the leaf or bucket"),
    ListColumn("slot", INT, "the entry's slot"),
    ListColumn("key", TEXT, "the key's values, as JSON"),
    ListColumn("row", TEXT, "the row that it leads to"),
    ListColumn("lock_id", BIGINT, "its lock; NULL: none"),
    ListColumn("flags", TEXT, "`DELETE`: it is deleted, by a transaction that may not have committed"),
    ListColumn("problem", TEXT, "what is wrong with it; NULL: nothing"),
)
LOBS = (
    ListColumn("table", TEXT, "the table"),
    ListColumn("first", TEXT, "the value's first page"),
    ListColumn("first_page", BIGINT, "its number", True),
    ListColumn("length", BIGINT, "bytes of the value"),
    ListColumn("levels", INT, "levels of its tree"),
    ListColumn("pages", BIGINT, "pages that say that they are the value's"),
    ListColumn("expected", BIGINT, "pages that a value of that length has"),
    ListColumn("problem", TEXT, "what is wrong with it; NULL: nothing"),
)


def view_of(files: DatabaseFiles, name: str) -> IndexView:
    """An index, decoded."""
    tables = known_tables(files)
    _, definition = find_index((index for _, index in files.index_rows()), tables.values(), name)
    if definition.table_id not in tables:
        raise Corruption(f"index {definition.name} is of table {definition.table_id}, which the catalog does not list")
    return read_index(files.page, definition, tables[definition.table_id])


def index(files: DatabaseFiles, name: str, pages: PageSelection = ALL_PAGES) -> Listing:
    """The pages of an index, from the root down."""
    view = view_of(files, name)
    if isinstance(view, HashView):
        return _hash_pages(view, pages)
    listing = Listing("index", INDEX, problems=list(view.problems))
    parents: dict[int, tuple[int, Any]] = {}
    for node in walk(view.root):
        for key, child in zip(node.separators, node.children, strict=False):
            parents[child.page_id] = (node.page_id, key)
        parent, up_to = parents.get(node.page_id, (NO_PAGE, None))
        if not pages.first <= node.page_id <= pages.last:
            continue
        listing.add(
            page_id=node.page_id,
            page=page_name(node.page_id),
            level=node.level,
            parent=_named(parent),
            entries=node.entries,
            bytes=node.used,
            fill=round(node.fill / 100, 4),
            up_to=key_text(up_to),
            first_key=key_text(node.first),
            last_key=key_text(node.last),
            prev=_named(node.prev),
            next=_named(node.next),
        )
    return listing


def hash_pages(files: DatabaseFiles, name: str, pages: PageSelection = ALL_PAGES) -> Listing:
    """The directories and buckets of a hash index."""
    view = view_of(files, name)
    if not isinstance(view, HashView):
        raise InterfaceError(f"index {view.definition.name} is a {view.kind}; gmstat index shows it")
    return _hash_pages(view, pages)


def _hash_pages(view: HashView, pages: PageSelection) -> Listing:
    listing = Listing("hash", HASH, problems=list(view.problems))
    parents: dict[int, int] = {}
    for node in walk(view.root):
        parents |= {child.page_id: node.page_id for child in node.children}
        if not pages.first <= node.page_id <= pages.last:
            continue
        of_kind: dict[str, Any] = {"type": "directory", "slots": node.slots, "free_slots": node.free_slots}
        if not node.is_directory:
            fill = round(node.fill / 100, 4)
            of_kind = {"type": "bucket", "entries": node.entries, "bytes": node.used, "fill": fill}
        listing.add(
            page_id=node.page_id,
            page=page_name(node.page_id),
            level=node.level,
            parent=_named(parents.get(node.page_id, NO_PAGE)),
            bits=node.prefix,
            depth=node.depth,
            **of_kind,
        )
    return listing


def entries(files: DatabaseFiles, name: str, pages: PageSelection = ALL_PAGES) -> Listing:
    """The entries of an index, leaf by leaf in the order of keys, or bucket by bucket."""
    view = view_of(files, name)
    listing = Listing("entries", ENTRIES, problems=list(view.problems))
    for page_id in pages.of(_last_pages(view)):
        page = files.page(page_id)
        for offset, end, slot in bounded(page, entry_extents(page)):
            head = ROW_HEAD.at(page, offset)
            at = offset + header_size(head.col_count)
            key, problem = None, None
            try:
                key = key_text(key_values(view.columns, page, offset))
            except (Corruption, DataError) as error:
                problem = str(error)
                listing.wrong(f"{page_name(page_id)}:{slot}", problem)
            lock = head.lock_id & NO_LOCK
            listing.add(
                page_id=page_id,
                page=page_name(page_id),
                slot=slot,
                key=key,
                row=str(RowId.from_word(int.from_bytes(page[at : min(at + POINTER_SIZE, end)], "little"))),
                lock_id=None if lock == NO_LOCK else lock,
                flags=" ".join(flag_names(head.lock_id >> 24)) or None,
                problem=problem,
            )
    return listing


def _last_pages(view: IndexView) -> Iterator[int]:
    for node in walk(view.root):
        is_last = node.level == 0 if isinstance(view, BTreeView) else not node.is_directory
        if is_last:
            yield node.page_id


def key_text(key: tuple[Any, ...] | None) -> str | None:
    return None if key is None else json.dumps([plain(value) for value in key], ensure_ascii=False)


def lobs(files: DatabaseFiles, table: str | None = None) -> Listing:
    """The large objects of a table, or of all, by their first pages."""
    listing = Listing("lobs", LOBS)
    for stored in segment_objects(files):
        owner = stored.table.name if stored.table is not None else None
        if stored.kind not in ("lobs", "lob") or (table is not None and owner != table.lower()):
            continue
        firsts: dict[int, Any] = {}
        counts: dict[int, int] = {}
        for page_id in data_pages(files, stored.entry_page, listing.wrong):
            try:
                page = files.sound_page(page_id)
            except Error as error:
                listing.wrong(page_name(page_id), error)
                continue
            if PAGE_HEAD.at(page).page_type == PageType.DATA:
                node = LOB_NODE.values(page, NODE_AT)
                counts[node["first_page"]] = counts.get(node["first_page"], 0) + 1
                if node["first_page"] == page_id:
                    firsts[page_id] = (node, len(page))
        for first, count in sorted(counts.items()):
            _add_lob(listing, owner, first, count, firsts.get(first))
    return listing


def _add_lob(listing: Listing, table: str | None, first: int, count: int, root: tuple[Any, int] | None) -> None:
    length = levels = expected = problem = None
    if root is None:
        problem = "its first page is not there, or is damaged"
    else:
        node, size = root
        length, levels = node["length"], node["level"] + 1
        if length > LOB_MAX:
            length, problem = None, f"it cannot have {length} bytes"
        else:
            expected = sum(page_counts(length, size))
            problem = None if expected == count else f"it has {count} pages, but a value of its length has {expected}"
    if problem:
        listing.wrong(f"large object {page_name(first)}", problem)
    listing.add(
        table=table,
        first=page_name(first),
        first_page=first,
        length=length,
        levels=levels,
        pages=count,
        expected=expected,
        problem=problem,
    )


def _named(page_id: int) -> str | None:
    return None if page_id == NO_PAGE else page_name(page_id)
