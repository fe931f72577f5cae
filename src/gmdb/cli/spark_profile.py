"""What is printed of a table's columns: a row for each, with a picture of how its values are spread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gmdb.cli.table import print_table

if TYPE_CHECKING:
    from gmdb.spark.column_profile import ColumnProfile, TableProfile

CELL = 24  # characters of a value in the table
LEVELS = "▁▂▃▄▅▆▇█"


def print_profile(table: TableProfile) -> None:
    print(f"table {table.table}: {table.rows:,} rows")
    headings = ("column", "type", "nulls", "distinct", "min", "max", "spread")
    sign = "" if table.distinct_is_exact else "~"
    print_table(
        headings,
        [
            (c.name, c.type, c.nulls, f"{sign}{c.distinct}", _cell(c.smallest), _cell(c.largest), spread(c))
            for c in table.columns
        ],
    )
    if table.left_out:
        print(f"left out, as large objects: {', '.join(table.left_out)}")
    print()


def _cell(value: Any) -> str:
    from gmdb.spark.column_profile import plain

    text = "-" if value is None else str(plain(value))
    return text if len(text) <= CELL else text[: CELL - 1] + "…"


def spread(column: ColumnProfile) -> str:
    """A histogram as a line of bars, or the most frequent values and how often each is there."""
    if column.histogram is not None:
        most = max(column.histogram.counts, default=0) or 1
        heights = (-(-count * len(LEVELS) // most) for count in column.histogram.counts)
        return "".join(LEVELS[height - 1] if height else " " for height in heights)
    pairs = (column.frequent or [])[:3]
    return ", ".join(f"{_cell(value)} ×{count}" for value, count in pairs)
