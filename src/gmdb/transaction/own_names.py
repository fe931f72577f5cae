"""What names mean to a session: where SQL looks for them, and its temporary tables.

Not here: how a name is looked up (sql/bind/names.py), what a schema is (tables/catalog/names.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gmdb.transaction.session import Session

USUAL_PATH = ("public",)


class HasOwnNames:
    """The part of a session that is about names."""

    search_path: tuple[str, ...] = USUAL_PATH  # the schemas in which SQL looks for a name that has none
    temporary_schema = ""  # of its temporary tables, if it has had any
    at_commit: Callable[[Session], None] | None = None  # what becomes of them at the end of a transaction
    tables_known: tuple[Any, Any] = (None, None)  # committed definitions, and those of them that it knows

    @property
    def has_own_names(self) -> bool:
        """Whether another session would understand names in another way."""
        return bool(self.temporary_schema) or self.search_path != USUAL_PATH
