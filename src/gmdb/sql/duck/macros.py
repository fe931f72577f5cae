"""What queries need in DuckDB beside its own functions and those of operations/macros.py, as macros."""

from __future__ import annotations

from gmdb.sql.numbers import SERIES_MAX
from gmdb.sql.operations.macros import failure

_TOO_LONG = failure("ValueOutOfRange", f"a series has at most {SERIES_MAX} numbers")

MACROS = (
    f"gm_step(step) AS CASE WHEN step = 0 THEN {failure('ValueOutOfRange', 'step size cannot equal zero')}"
    " ELSE step END",
    f"gm_last(first, last, step) AS CASE WHEN (CAST(last AS HUGEINT) - first) / step >= {SERIES_MAX} THEN {_TOO_LONG}"
    " ELSE last END",
    # Intervals as Python is given them (python.py): months, days and microseconds.
    "gm_interval(parts) AS to_months(CAST(parts[1] AS INTEGER)) + to_days(CAST(parts[2] AS INTEGER))"
    " + to_microseconds(parts[3])",
    "gm_interval_parts(i) AS CASE WHEN i IS NOT NULL THEN CAST([extract(year FROM i) * 12 + extract(month FROM i),"
    " extract(day FROM i), extract(hour FROM i) * 3600000000 + extract(minute FROM i) * 60000000"
    " + extract(microseconds FROM i)] AS BIGINT[]) END",
)
