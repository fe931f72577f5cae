"""Getting changed pages ready to be written."""

from __future__ import annotations

from gmdb.format.address import NO_PAGE
from gmdb.kernel.area import page_head
from gmdb.kernel.compiler import long_kernel
from gmdb.kernel.crc32c import seal_page
from gmdb.kernel.memory import store_64


@long_kernel
def seal_run(pages, count, page_size, ckpt_id):
    """Stamp neighbouring pages with the checkpoint and their CRC; what only memory needs becomes zero or none."""
    for i in range(count):
        page = pages + i * page_size
        head = page_head(page)
        store_64(page, 0)  # latch and mutex
        head.ckpt_id = ckpt_id
        head.dirty_flag = 0
        head.next_ckpt_page = NO_PAGE
        seal_page(page, page_size)
