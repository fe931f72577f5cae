"""Aggregates over odd values: DuckDB's template gives what the fold gives, errors included."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import duckdb
import pytest

from gmdb.database.connection import Connection
from gmdb.errors import DataError, UnsupportedExpression
from gmdb.format.columns import ColumnType
from gmdb.sql import operations
from gmdb.sql.duck.values import duck_type
from gmdb.sql.operations import Aggregation
from gmdb.sql.operations.aggregates import AGGREGATES, WINDOW_ONLY
from gmdb.sql.types import BIGINT, BOOLEAN, DOUBLE, INT, INTERVAL, TEXT, TIMESTAMPTZ
from tests.sql.test_operations import TYPES, WIDE, Duck, error_of, literal, odd_values

_CALL = re.compile(r"\{call:((?:[^{}]|\{\d+\})*)\}")
_ORDERED = ("percentile_cont", "percentile_disc", "mode")


def template(aggregation: Aggregation, over: str = "") -> str:
    sql = _CALL.sub(lambda match: match[1] + over, aggregation.duck)
    for n in range(len(aggregation.takes)):
        sql = sql.replace(f"{{{n}}}", f"a{n}")
    return sql


def folded(aggregation: Aggregation, rows: Sequence[tuple[Any, ...]]) -> Any:
    fold = aggregation.fold
    assert fold is not None
    state = fold.start()
    for row in rows:
        if fold.takes_nulls or None not in row:
            state = fold.step(state, *row)
    return fold.finish(state)


def from_rows(aggregation: Aggregation, rows: Sequence[tuple[Any, ...]]) -> str:
    takes = aggregation.takes
    lines = [
        f"({', '.join([str(n), *(literal(value, type_) for value, type_ in zip(row, takes, strict=True))])})"
        for n, row in enumerate(rows)
    ]
    names = ", ".join(["n", *(f"a{n}" for n in range(len(takes)))])
    return f"(SELECT * FROM (VALUES {', '.join(lines)}) AS t({names}))" if lines else "(SELECT NULL AS n)"


def close(a: Any, b: Any) -> bool:
    if isinstance(a, tuple | list) and isinstance(b, list):
        return len(a) == len(b) and all(map(close, a, b))
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (a != a and b != b) or math.isclose(a, b, rel_tol=1e-12)
    if isinstance(a, Decimal) and isinstance(b, Decimal):
        return a == b and a.as_tuple().exponent == b.as_tuple().exponent
    return (isinstance(a, str) and a == b) or (type(a) is type(b) and a == b)


def all_aggregations() -> Iterator[Aggregation]:
    for name in AGGREGATES:
        choices: list[tuple[ColumnType, ...]] = [(type_,) for type_ in TYPES]
        choices += [(TEXT, TEXT), (DOUBLE, DOUBLE), (INT, BIGINT), (DOUBLE, INT), (DOUBLE, TEXT)]
        choices += [()] if name == "count" else []
        for types in choices:
            aggregation = operations.aggregation(name, types)
            if aggregation is not None:
                yield aggregation


def samples(aggregation: Aggregation, seed: int) -> list[tuple[Any, ...]]:
    """Some rows; with string_agg, of one separator, and with percentiles, of one share."""
    chance = random.Random(seed)
    count = chance.choice([1, 2, 3, 8, 30])
    columns = [[chance.choice([*odd_values(type_), None]) for _ in range(count)] for type_ in aggregation.takes]
    if aggregation.name == "string_agg":
        columns[1] = [chance.choice([",", "", "; "])] * count
    if aggregation.name in _ORDERED[:2]:
        columns[0] = [chance.choice([0.0, 0.25, 0.5, 1.0])] * count
    if seed % 3 and aggregation.takes[:1] in ((INT,), (BIGINT,)):
        columns[0] = [None if value is None else value % 1000 for value in columns[0]]
    return list(zip(*columns, strict=True)) if columns else [()] * count


def beyond_range(aggregation: Aggregation, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Whether a sum has too many digits on the way: DuckDB may fail then, though the end is no error."""
    if aggregation.name not in ("sum", "avg") or aggregation.takes[0].name != "DECIMAL":
        return False
    sums = itertools.accumulate((row[0] for row in rows if row[0] is not None), WIDE.add)
    return any(abs(one) >= WIDE.power(10, 38 - aggregation.takes[0].scale) for one in sums)


@pytest.fixture(scope="module")
def duck() -> Duck:
    return Duck()


def test_an_aggregate_gives_the_same_in_duckdb(duck: Duck) -> None:
    wrong = []
    for aggregation in all_aggregations():
        if aggregation.fold is None or INTERVAL in aggregation.takes:
            continue
        for seed in range(6):
            rows = samples(aggregation, seed)
            try:
                expected = folded(aggregation, rows)
            except DataError as error:
                expected = type(error)
            if beyond_range(aggregation, rows):
                continue
            sql = template(aggregation)
            if aggregation.name == "string_agg":
                sql = sql.replace("a1", literal(rows[0][1], TEXT))
            try:
                result = duck.connection.execute(f"SELECT {sql} FROM {from_rows(aggregation, rows)}").fetchall()[0][0]
            except duckdb.Error as error:
                result = type(error_of(error))
            if aggregation.gives == TIMESTAMPTZ and isinstance(result, datetime):
                result = result.replace(tzinfo=UTC)
            if not close(expected, result) and expected is not result:
                wrong.append(f"{aggregation.name}({aggregation.takes}) {rows}: {result!r}, not {expected!r}")
    assert not wrong, "\n".join(wrong[:20])


def test_an_aggregate_runs_in_duckdb_with_the_type_that_it_gives(duck: Duck) -> None:
    for aggregation in all_aggregations():
        rows = [row for row in samples(aggregation, 4) if None not in row][:2] or samples(aggregation, 4)
        sql = template(aggregation)
        for n in range(len(aggregation.takes)):
            if (aggregation.name, n) in (("string_agg", 1), ("percentile_cont", 0), ("percentile_disc", 0)):
                sql = sql.replace(f"a{n}", literal(rows[0][n], aggregation.takes[n]))
        try:
            kind = duck.connection.execute(f"DESCRIBE SELECT {sql} FROM {from_rows(aggregation, rows)}").fetchall()[0][
                1
            ]
        except duckdb.Error as error:
            raise AssertionError(f"{aggregation}: {error}") from error
        assert kind == duck_type(aggregation.gives), aggregation


def test_a_window_function_runs_in_duckdb_with_the_type_that_it_gives(duck: Duck) -> None:
    for name in WINDOW_ONLY:
        for types in [(), (INT,), (TEXT,), (TEXT, INT), (INT, INT, BIGINT)]:
            aggregation = operations.aggregation(name, types, window=True)
            if aggregation is None:
                continue
            rows = [tuple(1 if one != TEXT else "a" for one in aggregation.takes)] * 3
            sql = template(aggregation, " OVER (ORDER BY n)")
            kind = duck.connection.execute(f"DESCRIBE SELECT {sql} FROM {from_rows(aggregation, rows)}").fetchall()
            assert kind[0][1] == duck_type(aggregation.gives), aggregation
            duck.connection.execute(f"SELECT {sql} FROM {from_rows(aggregation, rows)}").fetchall()


@pytest.mark.parametrize(
    ("name", "descending", "expected"), [("mode", False, "b"), ("mode", True, "c"), ("percentile_disc", True, "b")]
)
def test_an_ordered_aggregate_takes_the_first_of_its_order(
    duck: Duck, name: str, descending: bool, expected: str
) -> None:
    types = (TEXT,) if name == "mode" else (DOUBLE, TEXT)
    aggregation = operations.aggregation(name, types, descending=descending)
    assert aggregation is not None
    rows: list[tuple[Any, ...]] = [(one,) if name == "mode" else (0.75, one) for one in ("c", "b", "a", "b", "c", None)]
    sql = template(aggregation)
    if name != "mode":
        sql = sql.replace("a0", "0.75")
    assert duck.connection.execute(f"SELECT {sql} FROM {from_rows(aggregation, rows)}").fetchall() == [(expected,)]


def test_booleans_have_no_minimum() -> None:
    assert operations.aggregation("min", (BOOLEAN,)) is None
    assert operations.aggregation("row_number", (), window=False) is None


@pytest.mark.parametrize("share", ["i / 10.0", "(select 0.5)"])
def test_a_percentile_is_of_a_number_that_is_the_same_for_all_rows(db: Connection, share: str) -> None:
    db.execute("create table t (i int, j int)")
    with pytest.raises(UnsupportedExpression, match="percentile_cont takes a number that is the same for all rows"):
        db.execute(f"select percentile_cont({share}) within group (order by j) from t group by i")
