"""What all kinds of index share: the head on the segment's entry page, and scratch memory to work in.

Only holders of the guard work on indexes, so one scratch serves all.
"""

from __future__ import annotations

from gmdb.format.btree import INDEX_AT, INDEX_HEAD, IndexKind
from gmdb.format.segment import ENTRY_MAP_AT, PROGRAM_ENTRIES, SEGMENT_HEAD_AT
from gmdb.kernel.page.area import change, page_head, segment_head, state_of
from gmdb.kernel.page.redo import log_bytes
from gmdb.kernel.page.segment import log_map_head, map_head
from gmdb.kernel.page.soundness import LEVELS_MAX
from gmdb.kernel.row import ENTRY_BUFFER, index_head
from gmdb.kernel.runtime.compiler import routine
from gmdb.kernel.runtime.memory import move_bytes
from gmdb.kernel.runtime.status import DONE

OTHER_AT = 4 * ENTRY_BUFFER  # in the scratch: the entry at hand, three for splits and merges, another, the way down
SCRATCH_SIZE = 5 * ENTRY_BUFFER + 8 * LEVELS_MAX
_PATH_AT = 5 * ENTRY_BUFFER
_HASH = int(IndexKind.HASH)
_INDEX_SIZE = INDEX_HEAD.size


@routine
def entry_page_of(index):
    return page_head(index - INDEX_AT).page_id


@routine
def space_of(index):
    """The tablespace that the index's pages come from."""
    return segment_head(index - INDEX_AT + SEGMENT_HEAD_AT).space_id


@routine
def object_of(index):
    return segment_head(index - INDEX_AT + SEGMENT_HEAD_AT).obj_id


@routine
def is_hash(index):
    return index_head(index).kind == _HASH


@routine
def root_of(index):
    """The root page's id."""
    return index_head(index).root


@routine
def set_root(area, index, root):
    page = index - INDEX_AT
    change(area, page)
    index_head(index).root = root
    log_bytes(area, page, INDEX_AT, 4)


@routine
def write_head(area, index, head, root):
    """Give an index without pages its head, with its first page.  Behind ``head`` lies its key program, if any."""
    page, size = index - INDEX_AT, index_head(head).program_size
    change(area, page)
    move_bytes(index, head, _INDEX_SIZE)
    index_head(index).root = root
    log_bytes(area, page, INDEX_AT, _INDEX_SIZE)
    if size:
        at = index_head(index).program_at
        move_bytes(index + at, head + _INDEX_SIZE, size)
        log_bytes(area, page, INDEX_AT + at, size)
        map_head(page + ENTRY_MAP_AT).map_capacity -= PROGRAM_ENTRIES
        log_map_head(area, page)
    return DONE


@routine
def path_at(area, level):
    """Where the page of a level, on the way down, is kept: 8 bytes."""
    return state_of(area).index_scratch + _PATH_AT + 8 * level
