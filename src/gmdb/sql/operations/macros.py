"""What operations and queries need in DuckDB beside its own functions: macros, which every connection gets.

``gm_fail('ClassName: message')`` raises an error whose text holds ``gmdb ClassName: message``.
"""

from __future__ import annotations

from gmdb.sql.numbers import SERIES_MAX

FAILURE = "gmdb "  # how the text begins that gm_fail could not turn into a number


def failure(class_name: str, message: str) -> str:
    """The SQL that raises an error of gmdb's."""
    text = message.replace("'", "''")
    return f"gm_fail('{class_name}: {text}')"


_OVERFLOW = failure("ValueOutOfRange", "value out of range: overflow")
_UNDERFLOW = failure("ValueOutOfRange", "value out of range: underflow")
_ZERO = failure("DivisionByZero", "division by zero")
_ROOT = failure("UndefinedResult", "cannot take square root of a negative number")
_LENGTH = failure("UndefinedResult", "negative substring length not allowed")
_NTH = failure("ValueOutOfRange", "argument of nth_value must be greater than zero")
_TOO_LONG = failure("ValueOutOfRange", f"a series has at most {SERIES_MAX} numbers")
_POSITION = failure("UndefinedResult", "field position must not be zero")

MACROS = (
    # An error with a message of our own.  DuckDB's error() would do, but counts as volatile, which windows refuse.
    f"gm_fail(message) AS CAST('{FAILURE}' || message AS INTEGER)",
    # The digits of a DECIMAL as an integer, whatever its scale.
    "gm_digits(a) AS CAST(replace(CAST(a AS VARCHAR), '.', '') AS HUGEINT)",
    # Doubles: an infinite result of finite operands is an overflow, a zero that cannot be one is an underflow.
    f"gm_sum(r, a, b) AS CASE WHEN isinf(r) AND NOT isinf(a) AND NOT isinf(b) THEN {_OVERFLOW} ELSE r END",
    f"gm_product(r, a, b) AS CASE WHEN isinf(r) AND NOT isinf(a) AND NOT isinf(b) THEN {_OVERFLOW}"
    f" WHEN r = 0 AND a <> 0 AND b <> 0 THEN {_UNDERFLOW} ELSE r END",
    f"gm_quotient(a, b) AS CASE WHEN b = 0 AND NOT isnan(a) THEN {_ZERO}"
    f" WHEN isinf(a / b) AND NOT isinf(a) AND NOT isnan(b) THEN {_OVERFLOW}"
    f" WHEN a / b = 0 AND a <> 0 AND NOT isinf(b) THEN {_UNDERFLOW} ELSE a / b END",
    f"gm_total(r, infinite) AS CASE WHEN isinf(r) AND NOT infinite THEN {_OVERFLOW} ELSE r END",
    f"gm_real(a) AS CASE WHEN a <> 0 AND abs(a) <= 7.006492321624085e-46 THEN {_UNDERFLOW}"
    f" WHEN abs(a) >= 3.4028235677973366e38 AND NOT isinf(a) AND NOT isnan(a) THEN {_OVERFLOW}"
    " ELSE CAST(a AS FLOAT) END",
    f"gm_sqrt(a) AS CASE WHEN a < 0 THEN {_ROOT} ELSE sqrt(a) END",
    # Positions before the first count, but hold nothing.
    "gm_substring(t, first, count) AS CASE WHEN t IS NULL OR first IS NULL OR count IS NULL THEN NULL"
    f" WHEN count < 0 THEN CAST({_LENGTH} AS VARCHAR) ELSE substring(t, greatest(first, 1),"
    " CAST(least(greatest(0, CAST(first AS BIGINT) + count - greatest(first, 1)), 2147483647) AS INTEGER)) END",
    "gm_split(t, separator, number) AS CASE WHEN t IS NULL OR separator IS NULL OR number IS NULL THEN NULL"
    f" WHEN number = 0 THEN CAST({_POSITION} AS VARCHAR)"
    " WHEN separator = '' THEN CASE WHEN number IN (1, -1) THEN t ELSE '' END"
    " ELSE split_part(t, separator, number) END",
    f"gm_nth(number) AS CASE WHEN number < 1 THEN {_NTH} ELSE number END",
    # Days that gmdb can store.
    "gm_date(d) AS CASE WHEN d < DATE '0001-01-01' OR d > DATE '9999-12-31'"
    f" THEN CAST({failure('ValueOutOfRange', 'date out of range')} AS VARCHAR)::DATE ELSE d END",
    "gm_timestamp(t) AS CASE WHEN t < TIMESTAMP '0001-01-01' OR t > TIMESTAMP '9999-12-31 23:59:59.999999'"
    f" THEN CAST({failure('ValueOutOfRange', 'timestamp out of range')} AS VARCHAR)::TIMESTAMP ELSE t END",
    # Comparisons with all elements of an array, by what each of them gives.
    "gm_any(results, is_null) AS CASE WHEN results IS NULL THEN NULL WHEN len(results) = 0 THEN FALSE"
    " WHEN is_null THEN NULL WHEN list_contains(results, TRUE) THEN TRUE"
    " WHEN list_count(results) < len(results) THEN NULL ELSE FALSE END",
    "gm_all(results, is_null) AS CASE WHEN results IS NULL THEN NULL WHEN len(results) = 0 THEN TRUE"
    " WHEN is_null THEN NULL WHEN list_contains(results, FALSE) THEN FALSE"
    " WHEN list_count(results) < len(results) THEN NULL ELSE TRUE END",
    # Series of numbers.
    f"gm_step(step) AS CASE WHEN step = 0 THEN {failure('ValueOutOfRange', 'step size cannot equal zero')}"
    " ELSE step END",
    f"gm_last(first, last, step) AS CASE WHEN (CAST(last AS HUGEINT) - first) / step >= {SERIES_MAX} THEN {_TOO_LONG}"
    " ELSE last END",
    # Intervals as Python is given them (sql/duck/values.py): months, days and microseconds.
    "gm_interval(parts) AS to_months(CAST(parts[1] AS INTEGER)) + to_days(CAST(parts[2] AS INTEGER))"
    " + to_microseconds(parts[3])",
    "gm_interval_parts(i) AS CASE WHEN i IS NOT NULL THEN CAST([extract(year FROM i) * 12 + extract(month FROM i),"
    " extract(day FROM i), extract(hour FROM i) * 3600000000 + extract(minute FROM i) * 60000000"
    " + extract(microseconds FROM i)] AS BIGINT[]) END",
)
