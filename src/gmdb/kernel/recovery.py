"""What recovery asks of single pages."""

from __future__ import annotations

from gmdb.kernel.area import state_of, touch
from gmdb.kernel.compiler import kernel
from gmdb.kernel.redo import close_group, require_log_room
from gmdb.kernel.segment import release_page
from gmdb.kernel.status import DONE, LOG_FULL
from gmdb.kernel.undo import is_dead, touch_undo


@kernel
def check_page(area, page_id):
    """DONE if the page exists and is sound, so that Python may follow its offsets."""
    return min(touch(area, page_id), DONE)


@kernel
def release_dead_page(area, page_id):
    """Give an undo page back that has no live record, whatever it says of who writes there."""
    if require_log_room(area) < 0:
        return LOG_FULL
    page = touch_undo(area, page_id)
    if page < 0:
        return page
    return close_group(area, 0, release_page(area, state_of(area).undo_entry, page_id) if is_dead(page) else DONE)
