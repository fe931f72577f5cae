"""Aggregates and window functions.

count                      BIGINT
sum                        of SMALLINT and INT a BIGINT; of BIGINT and DECIMAL a DECIMAL(38, s); else as its values
avg, stddev, variance      DECIMAL with at least 16 digits behind the point, or DOUBLE of a REAL or DOUBLE
rank and the like          BIGINT; ntile INT; percent_rank and cume_dist DOUBLE
What rows come in no matter which order has a Fold if Python gives the same value as DuckDB to the last digit.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal
from typing import Any

from gmdb.errors import SchemaError
from gmdb.format.columns import DECIMAL_DIGITS_MAX, JSONS, ColumnType, array_of
from gmdb.format.interval import Interval
from gmdb.sql import numbers
from gmdb.sql.operations.macros import failure
from gmdb.sql.operations.operators import key_of, long_division, with_point
from gmdb.sql.operations.registry import Aggregation, Fold
from gmdb.sql.types import (
    BIGINT,
    BOOLEAN,
    BYTEA,
    DOUBLE,
    FLOATS,
    INT,
    INTEGERS,
    INTERVAL,
    JSON,
    JSONB,
    NUMERIC,
    QUOTIENT_SCALE,
    REAL,
    SMALLINT,
    TEXT,
    common_type,
    is_binary,
    is_integer,
    is_number,
    is_text,
    numeric,
    turns_into,
    unlimited,
)

_SQUARE_SCALE = 8  # of the variance of BIGINTs, which may have 30 digits before the point
_SPREADS = {
    "stddev": "stddev_samp",
    "stddev_samp": "stddev_samp",
    "stddev_pop": "stddev_pop",
    "variance": "var_samp",
    "var_samp": "var_samp",
    "var_pop": "var_pop",
}
_PAIRS = ("corr", "covar_pop", "covar_samp", "regr_slope", "regr_intercept", "regr_r2", "regr_count")
_BITS: dict[str, Callable[[int, int], int]] = {
    "bit_and": lambda a, b: a & b,
    "bit_or": lambda a, b: a | b,
    "bit_xor": lambda a, b: a ^ b,
}
_TRUTHS = {"bool_and": "bool_and", "every": "bool_and", "bool_or": "bool_or"}
_EXTREMES = ("min", "max", "any_value")
_ORDERED = ("percentile_cont", "percentile_disc", "mode")
_RANKS = {"row_number": BIGINT, "rank": BIGINT, "dense_rank": BIGINT, "percent_rank": DOUBLE, "cume_dist": DOUBLE}
_OF_ROWS = ("ntile", "lag", "lead", "first_value", "last_value", "nth_value")
DOCUMENTS = {"json_agg": JSON, "jsonb_agg": JSONB, "json_object_agg": JSON, "jsonb_object_agg": JSONB}
AGGREGATES = (
    "count",
    "sum",
    "avg",
    "string_agg",
    "array_agg",
    *DOCUMENTS,
    *_SPREADS,
    *_PAIRS,
    *_BITS,
    *_TRUTHS,
    *_EXTREMES,
    *_ORDERED,
)
SORTED = "array_agg, sorted"  # what array_agg is with DISTINCT
WINDOW_ONLY = (*_RANKS, *_OF_ROWS)

Types = Sequence[ColumnType | None]


def aggregation(name: str, types: Types, window: bool = False, descending: bool = False) -> Aggregation | None:
    """The aggregate, or if ``window`` also the window function, that a name means for arguments of such types.

    None if there is none.  count(*) has no argument.  The argument of mode, and the second one of percentile_cont and
    percentile_disc, is what WITHIN GROUP orders by; ``descending`` is about that order.
    """
    if name in WINDOW_ONLY:
        return _of_window(name, types) if window else None
    if name in _ORDERED:
        return None if window else _of_order(name, types, descending)
    if name == "count" and len(types) < 2:
        return _count(types)
    if name == "string_agg" and len(types) == 2:
        return _string_agg(types)
    if name in DOCUMENTS:
        return _document(name, types)
    if name in _PAIRS and len(types) == 2:
        return _pair(name, types)
    if len(types) != 1:
        return None
    type_ = types[0]
    if name in ("array_agg", SORTED):
        return _array_agg(name, type_ or TEXT)
    if name in _TRUTHS:
        return _truth(name) if type_ in (None, BOOLEAN) else None
    if name in _EXTREMES:
        return _extreme(name, type_ or TEXT)
    if name in _BITS:
        return _bits(name, type_) if type_ is not None and is_integer(type_) else None
    if type_ == INTERVAL and name == "sum":
        return _sum_of_intervals()
    if type_ is None or not is_number(type_):
        return None
    if name in _SPREADS:
        return _spread(name, type_)
    return _sum(type_) if name == "sum" else _average(type_) if name == "avg" else None


# ---- counts, sums, averages


def _count(types: Types) -> Aggregation:
    takes = tuple(one or TEXT for one in types)
    duck = "{call:count({0})}" if takes else "{call:count(*)}"
    return Aggregation("count", takes, BIGINT, duck, Fold(int, lambda count, *_: count + 1))


def _none() -> None:
    return None


def _or_first(step: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """A step whose state is None before the first value."""
    return lambda state, value: value if state is None else step(state, value)


def _add(total: Any, value: Any) -> Any:
    return value if total is None else total + value


def _sum(type_: ColumnType) -> Aggregation:
    if type_ in (SMALLINT, INT):
        return Aggregation("sum", (type_,), BIGINT, "CAST({call:sum({0})} AS BIGINT)", Fold(_none, _add, _bigint))
    if type_ == BIGINT:
        fold = Fold(_none, _add, lambda total: None if total is None else numbers.of_digits(total, 0))
        return Aggregation("sum", (BIGINT,), NUMERIC, "CAST({call:sum({0})} AS DECIMAL(38,0))", fold)
    if type_ == DOUBLE:
        step = _or_first(lambda total, value: numbers.checked_double(total + value, total, value))
        duck = "gm_total({call:sum({0})}, {call:bool_or(isinf({0}))})"
        return Aggregation("sum", (DOUBLE,), DOUBLE, duck, Fold(_none, step))
    if type_ == REAL:
        duck = "gm_real(gm_total({call:sum(CAST({0} AS DOUBLE))}, {call:bool_or(isinf({0}))}))"
        return Aggregation("sum", (REAL,), REAL, duck, Fold(_none, _or_first(numbers.add_reals)))
    scale = type_.scale
    fold = Fold(
        _none, _or_first(numbers.wide_sum), lambda total: None if total is None else numbers.at_scale(total, scale)
    )
    return Aggregation("sum", (type_,), numeric(scale), _duck_sum(type_), fold)


def _sum_of_intervals() -> Aggregation:
    parts = ", ".join(f"CAST({{call:sum(gm_interval_parts({{0}})[{n}])}} AS BIGINT)" for n in (1, 2, 3))
    duck = f"CASE WHEN {{call:count({{0}})}} > 0 THEN gm_interval([{parts}]) END"
    return Aggregation("sum", (INTERVAL,), INTERVAL, duck, Fold(_none, _or_first(Interval.plus)))


def _bigint(total: int | None) -> int | None:
    if total is not None and not INTEGERS["BIGINT"][0] <= total <= INTEGERS["BIGINT"][1]:
        numbers.out_of_range("BIGINT")
    return total


def _duck_sum(type_: ColumnType) -> str:
    """DuckDB adds up DECIMALs in 128 bits, which hold a bit more than 38 digits."""
    total = "{call:sum({0})}"
    if type_.length <= 18:
        return f"CAST({total} AS DECIMAL(38,{type_.scale}))"
    digits = "9" * DECIMAL_DIGITS_MAX
    limit = f"{digits[type_.scale :] or '0'}.{digits[: type_.scale]}".rstrip(".")
    message = failure(
        "ValueOutOfRange", f"value overflows numeric format: a DECIMAL has at most {DECIMAL_DIGITS_MAX} digits"
    )
    bound = f"CAST('{limit}' AS DECIMAL(38,{type_.scale}))"
    return f"CASE WHEN {total} > {bound} OR {total} < -{bound} THEN {message} ELSE {total} END"


def _average(type_: ColumnType) -> Aggregation:
    type_ = DOUBLE if type_ == REAL else type_
    if type_ == DOUBLE:

        def step_double(state: tuple[float, int], value: float) -> tuple[float, int]:
            return numbers.checked_double(state[0] + value, state[0], value), state[1] + 1

        fold = Fold(lambda: (0.0, 0), step_double, lambda state: state[0] / state[1] if state[1] else None)
        duck = "gm_total({call:avg({0})}, {call:bool_or(isinf({0}))})"
        return Aggregation("avg", (DOUBLE,), DOUBLE, duck, fold)
    scale = max(QUOTIENT_SCALE, type_.scale)
    divide = numbers.divide_to(scale)

    def step(state: tuple[Any, int], value: Any) -> tuple[Any, int]:
        total, count = state
        return (value if not count else numbers.wide_sum(total, value)), count + 1

    def finish(state: tuple[Any, int]) -> Decimal | None:
        total, count = state
        if isinstance(total, Decimal):
            total = numbers.at_scale(total, type_.scale)
        return divide(total, count) if count else None

    fold = Fold(lambda: (0, 0), step, finish)
    total = ColumnType("DECIMAL", DECIMAL_DIGITS_MAX, type_.scale)
    sum_ = _duck_sum(type_) if type_.name == "DECIMAL" else "{call:sum({0})}"
    count = "nullif({call:count({0})}, 0)"
    quotient = long_division(sum_, total, count, BIGINT, scale - type_.scale)
    return Aggregation("avg", (type_,), numeric(scale), with_point(quotient, scale), fold)


def _spread(name: str, type_: ColumnType) -> Aggregation:
    """stddev and variance, calculated as DOUBLEs: DECIMALs have 15 digits of it."""
    sql = f"{{call:{_SPREADS[name]}(CAST({{0}} AS DOUBLE))}}"
    if type_.name in FLOATS:
        return Aggregation(name, (type_,), DOUBLE, sql)
    scale = _SQUARE_SCALE if type_ == BIGINT and "var" in name else max(QUOTIENT_SCALE, type_.scale)
    gives = numeric(scale)
    return Aggregation(name, (type_,), gives, f"CAST(printf('%.15g', {sql}) AS {gives})")


def _pair(name: str, types: Types) -> Aggregation | None:
    if not all(type_ is None or is_number(type_) for type_ in types):
        return None
    gives = BIGINT if name == "regr_count" else DOUBLE
    sql = f"{{call:{name}({{0}}, {{1}})}}"
    return Aggregation(name, (DOUBLE, DOUBLE), gives, f"CAST({sql} AS BIGINT)" if gives == BIGINT else sql)


# ---- choices and truths


def _extreme(name: str, type_: ColumnType) -> Aggregation | None:
    if type_.name in ("BOOLEAN", *JSONS) and name != "any_value":
        return None
    gives = TEXT if type_.name == "VARCHAR" else BYTEA if is_binary(type_) else type_
    if name == "any_value":
        return Aggregation(name, (gives,), gives, "{call:any_value({0})}", Fold(_none, _or_first(lambda a, _: a)))
    choose: Any = max if name == "max" else min
    key = key_of(gives)
    step = _or_first(choose) if key is None else _or_first(lambda a, b: choose(a, b, key=key))
    duck = f"{{call:{name}({{0}})}}"
    if type_.name == "CHAR":
        duck = f"{{call:arg_{name}({{0}}, rtrim({{0}}, ' '))}}"
    return Aggregation(name, (gives,), gives, duck, Fold(_none, step))


def _truth(name: str) -> Aggregation:
    function = _TRUTHS[name]
    step: Any = (lambda a, b: a and b) if function == "bool_and" else (lambda a, b: a or b)
    return Aggregation(name, (BOOLEAN,), BOOLEAN, f"{{call:{function}({{0}})}}", Fold(_none, _or_first(step)))


def _bits(name: str, type_: ColumnType) -> Aggregation:
    return Aggregation(name, (type_,), type_, f"{{call:{name}({{0}})}}", Fold(_none, _or_first(_BITS[name])))


def _array_agg(name: str, type_: ColumnType) -> Aggregation | None:
    """All values, NULL among them, in the order in which they come, or sorted."""
    try:
        gives = array_of(unlimited(type_))
    except SchemaError:
        return None

    def step(state: list[Any], value: Any) -> list[Any]:
        state.append(value)
        return state

    if name == "array_agg":
        fold = Fold(list, step, lambda state: state or None, takes_nulls=True)
        return Aggregation(name, (type_,), gives, "{call:list({0})}", fold)
    key = key_of(array_of(type_))
    assert key is not None
    fold = Fold(list, step, lambda state: sorted(state, key=lambda one: key((one,))) or None, takes_nulls=True)
    return Aggregation(name, (type_,), gives, "list_sort({call:list({0})}, 'ASC', 'NULLS LAST')", fold)


def _string_agg(types: Types) -> Aggregation | None:
    if not all(type_ is None or is_text(type_) for type_ in types):
        return None

    def step(state: list[str], value: str | None, separator: str | None) -> list[str]:
        if value is not None:
            state += [separator or "", value] if state else [value]
        return state

    fold = Fold(list, step, lambda state: "".join(state) if state else None, takes_nulls=True)
    return Aggregation("string_agg", (TEXT, TEXT), TEXT, "{call:string_agg({0}, coalesce({1}, ''))}", fold)


def _add_to(state: list[str], part: str) -> list[str]:
    state.append(part)
    return state


def _document(name: str, types: Types) -> Aggregation | None:
    """json_agg and the like, of values that are JSON already; an object's members are given quoted names.

    jsonb_object_agg gives JSON, too, which the binder converts.
    """
    if name.endswith("_object_agg"):
        if types != [TEXT, JSON]:
            return None
        members = Fold(
            list,
            lambda state, key, value: _add_to(state, f"{key} : {value or 'null'}"),
            lambda state: f"{{ {', '.join(state)} }}" if state else None,
            takes_nulls=True,
        )
        joined = "{call:string_agg({0} || ' : ' || coalesce({1}, 'null'), ', ')}"
        return Aggregation("json_object_agg", (TEXT, JSON), JSON, f"'{{ ' || {joined} || ' }}'", members)
    if types != [DOCUMENTS[name]]:
        return None
    elements = Fold(
        list,
        lambda state, value: _add_to(state, value or "null"),
        lambda state: f"[{', '.join(state)}]" if state else None,
        takes_nulls=True,
    )
    joined = "'[' || {call:string_agg(coalesce({0}, 'null'), ', ')} || ']'"
    return Aggregation(name, (DOCUMENTS[name],), DOCUMENTS[name], joined, elements)


# ---- WITHIN GROUP


def _of_order(name: str, types: Types, descending: bool) -> Aggregation | None:
    if any(one is not None and one.is_json for one in types):
        return None
    if name == "mode":
        if len(types) != 1:
            return None
        type_ = types[0] or TEXT
        # The first of those that occur most often.
        counts = "{call:histogram({0})}"
        values, numbers_ = f"map_keys({counts})", f"map_values({counts})"
        if descending:
            values, numbers_ = f"list_reverse({values})", f"list_reverse({numbers_})"
        duck = f"list_extract({values}, list_position({numbers_}, list_max({numbers_})))"
        return Aggregation(name, (type_,), type_, duck, ordered=True)
    if len(types) != 2 or not turns_into(types[0], DOUBLE):
        return None
    type_ = types[1] or TEXT
    order = " DESC" if descending else ""
    if name == "percentile_cont":
        if not is_number(type_):
            return None
        type_ = DOUBLE
    share = "coalesce({0}, 0)"  # DuckDB takes no NULL
    duck = f"CASE WHEN {{0}} IS NOT NULL THEN {{call:{name}({share}) WITHIN GROUP (ORDER BY {{1}}{order})}} END"
    return Aggregation(name, (DOUBLE, type_), type_, duck, ordered=True)


# ---- windows


def _of_window(name: str, types: Types) -> Aggregation | None:
    if name in _RANKS and not types:
        return Aggregation(name, (), _RANKS[name], f"{{call:{name}()}}")
    if name == "ntile" and len(types) == 1 and turns_into(types[0], INT):
        return Aggregation(name, (INT,), INT, "CAST({call:ntile({0})} AS INTEGER)")
    if not types:
        return None
    type_ = types[0] or TEXT
    if name in ("first_value", "last_value") and len(types) == 1:
        return Aggregation(name, (type_,), type_, f"{{call:{name}({{0}})}}")
    if len(types) > 1 and not turns_into(types[1], INT):
        return None
    if name == "nth_value" and len(types) == 2:
        return Aggregation(name, (type_, INT), type_, "{call:nth_value({0}, gm_nth({1}))}")
    if name in ("lag", "lead") and len(types) < 4:
        return _neighbour(name, types)
    return None


def _neighbour(name: str, types: Types) -> Aggregation | None:
    try:
        type_ = common_type([types[0], *types[2:]]) or TEXT
    except ValueError:
        return None
    takes = (type_, INT, type_)[: len(types)]
    places = ", ".join(f"{{{n}}}" for n in range(len(types)))
    return Aggregation(name, takes, type_, f"{{call:{name}({places})}}")
