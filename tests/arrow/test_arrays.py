"""Columns of arrays: NumPy's way gives what the way of one value gives, and damage is noticed by both."""

from __future__ import annotations

from random import Random
from typing import Any

import pyarrow as pa
import pytest

from gmdb.errors import Corruption, DataError
from gmdb.format.arrays import decode_array, encode_array
from gmdb.format.columns import Column, parse_column
from gmdb.tables.arrow.array_columns import as_cells, as_lists
from gmdb.tables.arrow.arrow_types import arrow_type
from tests.column_values import VALUES

SPELLINGS = [spelling for spelling in VALUES if spelling.endswith("[]")]


def random_lists(column: Column, random: Random, count: int) -> list[Any]:
    known = [one for values in VALUES[f"{column.type}"] for one in values[:20] if one is not None]
    lists: list[Any] = []
    for _ in range(count):
        chosen = random.choices(known, k=random.choice([0, 0, 1, 2, 7, 8, 9, 40]))
        lists.append(random.choice([None, chosen, [None if random.random() < 0.3 else one for one in chosen]]))
    return lists


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_cells_of_a_batch_are_those_of_its_values(spelling: str) -> None:
    column, random = parse_column("c", spelling), Random(spelling)
    for count in (0, 1, 2, 50):
        lists = random_lists(column, random, count)
        array = pa.array([[], *lists, None], arrow_type(column.type)).slice(1, count)  # which begins within a buffer
        (cells,) = as_cells([column], [array])
        expected = [None if one is None else bytes(encode_array(column.type.element, one)) for one in lists]
        assert cells.to_pylist() == expected
        assert [None if raw is None else decode_array(column.type.element, raw) for raw in expected] == lists
        padded = pa.array([b"", *expected, b"x"], pa.binary()).slice(1, count)
        for some in (cells, padded):
            (again,) = as_lists([column], [some])
            again.validate(full=True)
            assert again.to_pylist() == lists


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_bytes_that_are_no_array_are_noticed(spelling: str) -> None:
    column, random = parse_column("c", spelling), Random(spelling)
    element = column.type.element
    for one in random_lists(column, random, 200):
        raw = bytearray(encode_array(element, one or []))
        kind = random.randrange(3)
        if kind == 0:
            raw = raw[: random.randrange(len(raw))]
        elif kind == 1:
            raw += random.randbytes(random.randint(1, 9))
        else:
            raw[random.randrange(min(len(raw), 8))] ^= 1 << random.randrange(8)
        try:
            expected: Any = decode_array(element, bytes(raw))
        except (DataError, ValueError):
            expected = Corruption
        try:
            (lists,) = as_lists([column], [pa.array([bytes(raw)], pa.binary())])
            lists.validate(full=True)
            found = lists.to_pylist()[0]
        except (Corruption, ValueError, pa.ArrowInvalid):
            found = Corruption
        assert found == expected, bytes(raw[:20]).hex()
