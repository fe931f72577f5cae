"""Which pages of a device, or of all, somebody wants to look at: ``4:7``, or ``4:7..4:20`` with both ends."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from gmdb.errors import InterfaceError
from gmdb.format.address import NO_PAGE, parse_page_id


class PageRange(NamedTuple):
    first: int = 0
    last: int = NO_PAGE - 1

    @classmethod
    def parse(cls, text: str) -> PageRange:
        first, dots, last = text.partition("..")
        found = cls(parse_page_id(first), parse_page_id(last if dots else first))
        if found.last < found.first:
            raise InterfaceError(f"{text!r} is no range of pages: it ends before it begins")
        return found

    def of(self, page_ids: Iterable[int]) -> Iterator[int]:
        """Those of some pages that are in the range."""
        return (page_id for page_id in page_ids if self.first <= page_id <= self.last)


ALL_PAGES = PageRange()
