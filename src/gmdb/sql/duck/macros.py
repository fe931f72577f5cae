"""What DuckDB lacks of PostgreSQL's answers, as macros that every statement can use."""

from __future__ import annotations

from gmdb.sql.texts import CHARACTERS_MAX

_TRUE = "'t', 'tr', 'tru', 'true', 'y', 'ye', 'yes', 'on', '1'"
_FALSE = "'f', 'fa', 'fal', 'fals', 'false', 'n', 'no', 'of', 'off', '0'"
_INTEGER = r"'\s*[+-]?[0-9]+\s*'"
_NUMBER = r"'\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*'"
_LOGARITHM = "gm_fail('undefined: the logarithm of zero or less')"
_DIGITS_AT_ONCE = 8
SERIES_MAX = 100_000_000
FAILURE = "gmdb "  # how the text begins that gm_fail could not turn into a number

MACROS = (
    # An error with a message of our own.  DuckDB's error() would do, but counts as volatile, which windows refuse.
    f"gm_fail(message) AS CAST('{FAILURE}' || message AS INTEGER)",
    # A divisor, unless it is zero.
    "gm_divisor(b) AS CASE WHEN b = 0 THEN gm_fail('division by zero') ELSE b END",
    # The digits of a DECIMAL as an integer, whatever its scale.
    "gm_digits(a) AS CAST(replace(CAST(a AS VARCHAR), '.', '') AS HUGEINT)",
    # A text, if an integer or a number is written there.
    f"gm_integer_text(t, name) AS CASE WHEN t IS NULL OR regexp_full_match(t, {_INTEGER}) THEN trim(t)"
    " ELSE CAST(gm_fail('invalid text: ''' || t || ''' is no ' || name) AS VARCHAR) END",
    f"gm_number_text(t, name) AS CASE WHEN t IS NULL OR regexp_full_match(t, {_NUMBER}) THEN trim(t)"
    " ELSE CAST(gm_fail('invalid text: ''' || t || ''' is no ' || name) AS VARCHAR) END",
    f"gm_boolean_text(t) AS CASE WHEN t IS NULL THEN NULL WHEN lower(trim(t)) IN ({_TRUE}) THEN TRUE"
    f" WHEN lower(trim(t)) IN ({_FALSE}) THEN FALSE"
    " ELSE CAST(gm_fail('invalid text: ''' || t || ''' is no boolean') AS BOOLEAN) END",
    r"gm_binary_text(t) AS CASE WHEN starts_with(t, '\x') THEN unhex(substr(t, 3)) ELSE encode(t) END",
    # PostgreSQL writes 1, not 1.0, and Infinity, not inf.
    "gm_double_text(d) AS CASE WHEN isinf(d) THEN CASE WHEN d > 0 THEN 'Infinity' ELSE '-Infinity' END"
    r" WHEN isnan(d) THEN 'NaN' ELSE regexp_replace(CAST(d AS VARCHAR), '\.0$', '') END",
    "gm_root(d) AS CASE WHEN d < 0 THEN gm_fail('undefined: the square root of a negative number') ELSE sqrt(d) END",
    f"gm_ln(d) AS CASE WHEN d <= 0 THEN {_LOGARITHM} ELSE ln(d) END",
    f"gm_log10(d) AS CASE WHEN d <= 0 THEN {_LOGARITHM} ELSE log10(d) END",
    "gm_finite(d) AS CASE WHEN isinf(d) THEN gm_fail('out of range: the result is no DOUBLE') ELSE d END",
    "gm_power(a, b) AS CASE"
    " WHEN a = 0 AND b < 0 THEN gm_fail('undefined: zero raised to a negative power is undefined')"
    " WHEN a < 0 AND b <> floor(b) THEN gm_fail('undefined: a negative number raised to a non-integer power yields a"
    " complex result') ELSE gm_finite(pow(a, b)) END",
    # Positions before the first count, but hold nothing.
    "gm_substring(t, first, count) AS substring(t, greatest(first, 1), CASE"
    " WHEN count < 0 THEN gm_fail('undefined: negative substring length not allowed')"
    " ELSE greatest(0, first + count - greatest(first, 1)) END)",
    "gm_split(t, separator, number) AS CASE WHEN separator = '' AND number <> 0"
    " THEN CASE WHEN abs(number) = 1 THEN t ELSE '' END ELSE split_part(t, separator,"
    " CASE WHEN number = 0 THEN gm_fail('undefined: field position must not be zero') ELSE number END) END",
    # The last number of a series, unless that is too long to be meant.
    f"gm_last(first, last, step) AS CASE WHEN (CAST(last AS HUGEINT) - first) / step > {SERIES_MAX}"
    f" THEN gm_fail('out of range: a series has at most {SERIES_MAX} numbers') ELSE last END",
    "gm_initcap(t) AS array_to_string(list_transform("
    r"regexp_extract_all(t, '[\pL\pN]+|[^\pL\pN]+'), lambda w: upper(w[1]) || lower(w[2:])), '')",
    "gm_overlay(t, new, first, count) AS"
    " left(t, first - 1) || new || substring(t, CAST(greatest(first + count, 1) AS BIGINT))",
    "gm_chr(code) AS chr(CASE WHEN code = 0 THEN gm_fail('out of range: null character not permitted') ELSE code END)",
    # A number of characters, unless it is too large to be meant.
    f"gm_size(count) AS CASE WHEN count > {CHARACTERS_MAX}"
    f" THEN gm_fail('too long: the requested text has ' || count || ' characters; at most {CHARACTERS_MAX} are made')"
    " ELSE count END",
    "gm_repeat(t, count) AS repeat(t, CASE WHEN gm_size(length(t) * greatest(count, 0)) > 0 THEN count ELSE 0 END)",
    "gm_lpad(t, count, filling) AS CASE WHEN filling = '' THEN left(t, greatest(count, 0))"
    " ELSE lpad(t, CAST(gm_size(greatest(count, 0)) AS INTEGER), CASE filling WHEN '' THEN ' ' ELSE filling END) END",
    "gm_rpad(t, count, filling) AS CASE WHEN filling = '' THEN left(t, greatest(count, 0))"
    " ELSE rpad(t, CAST(gm_size(greatest(count, 0)) AS INTEGER), CASE filling WHEN '' THEN ' ' ELSE filling END) END",
)


def quotient(dividend: str, divisor: str, digits: int) -> str:
    """The SQL of dividend * 10**digits / divisor, rounded half away from zero, for integers of up to 30 digits.

    Long division, some digits at a time: DuckDB divides DECIMALs as DOUBLEs, and has no integer in which the
    product would always fit.
    """
    value = f"({dividend}) // ({divisor})"
    remainder = f"(({dividend}) % ({divisor}))"
    while digits > 0:
        step = min(digits, _DIGITS_AT_ONCE)
        shifted = f"({remainder} * {10**step})"
        value = f"({value}) * {10**step} + {shifted} // ({divisor})"
        remainder = f"({shifted} % ({divisor}))"
        digits -= step
    half = f"CASE WHEN abs({remainder}) * 2 >= abs({divisor}) THEN sign({dividend}) * sign({divisor}) ELSE 0 END"
    return f"({value} + {half})"
