"""Where the rows of a range of an index's keys are, in a database's pages at an instant."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gmdb.access.index_entries import INDEX_KINDS, Walk
from gmdb.access.indexes import IndexDefinition, KeyRange
from gmdb.arrow.lookup import Lookup
from gmdb.arrow.scan import Reading
from gmdb.catalog.schema import TableDefinition
from gmdb.storage.frozen import FrozenStore
from gmdb.storage.segment import Segment


def find_places(
    store: FrozenStore, table: TableDefinition, index: IndexDefinition, keys: KeyRange
) -> Iterator[np.ndarray]:
    """The places of the rows that the instant sees (page id << 16 | slot), in the order of the keys."""
    columns = [table.columns[n] for n in index.positions]
    segment = Segment(store, None, index.entry_page)  # type: ignore[arg-type]  # nothing is added to it
    tree = INDEX_KINDS[index.using](segment, columns)
    store.load_all_undo()
    lookup = Lookup(store, table.obj_id, columns, [], covered=True)
    for _, places in lookup.by_walk(Walk(tree, keys), Reading.of_closed()):
        yield places
