"""One run of a statement: what both executors are given beside the plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gmdb.database.connection import Connection
    from gmdb.tables.arrow.scan import Reading

Parameters = Sequence[Any] | Mapping[str, Any]


@dataclass(slots=True)
class Run:
    """``reading``: the instant by which everything is read.  ``now``: when the statement began."""

    connection: Connection
    reading: Reading
    parameters: Parameters
    now: datetime
