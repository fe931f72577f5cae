"""Taking an index apart, whatever its kind, which is the type of its segment; ``VIEWS`` says how each is read."""

from __future__ import annotations

from gmdb.access.indexes import IndexDefinition
from gmdb.catalog.schema import TableDefinition
from gmdb.errors import InterfaceError
from gmdb.format.address import page_name
from gmdb.format.page import PAGE_HEAD, SegmentType
from gmdb.inspect.hash_view import HashView
from gmdb.inspect.index_view import BTreeView, IndexView, Pages

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
