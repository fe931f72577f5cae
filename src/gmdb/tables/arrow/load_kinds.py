"""How rows of a load go into a table by its primary key.

Not here: doing it (attach.py), which of several changes of a row counts (attach.py).
"""

from __future__ import annotations

import hashlib
from enum import IntEnum

from gmdb.errors import SchemaError
from gmdb.process.late_dataclasses import dataclass
from gmdb.tables.catalog.schema import PRIMARY_KEY, TableDefinition

REFUSE, UPSERT, REPLACE = "refuse", "upsert", "replace"  # what becomes of rows that were there before a first snapshot


class Operation(IntEnum):
    """What a change does, in a staging file."""

    PUT = 1  # the row is there from now on, as it says
    DELETE = 2  # no row has the key any more
    TRUNCATE = 3  # there are no rows any more
    SNAPSHOT = 4  # PUT, of a row that was there before the changes begin


@dataclass(frozen=True)
class Apply:
    """How rows of a load go into a table by its primary key, and what their staging files have."""

    given: tuple[str, ...]  # columns that rows bring; of a row that is there, others stay as they are
    has_operations: bool = False
    order_count: int = 0  # columns by which the last of several changes of a row is found
    on_existing: str = REFUSE

    def digest(self, table: TableDefinition) -> bytes:
        """As ``definition_digest``, of staging files of changes."""
        from gmdb.tables.arrow.staging import definition_digest  # brings compiled code, which planning does not need

        rows = definition_digest(table.columns, table.constraints)
        facts = (rows, table.primary_key, self.has_operations, self.order_count)
        return hashlib.sha256(repr(facts).encode()).digest()[:16]


def require_key(table: TableDefinition) -> tuple[int, ...]:
    """The positions of a table's primary key, in the order of its index."""
    for constraint in table.constraints:
        if constraint.kind == PRIMARY_KEY:
            return table.index(constraint.name).positions
    advice = f"alter table {table.name} add primary key (...)"
    raise SchemaError(f"table {table.name} has no primary key by which its rows could be found; {advice}")


def key_index(table: TableDefinition) -> str:
    return next(constraint.name for constraint in table.constraints if constraint.kind == PRIMARY_KEY)
