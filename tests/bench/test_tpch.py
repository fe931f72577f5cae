"""TPC-H: that every query finds something to compare, and how answers are compared; test_bench.py compares them."""

from __future__ import annotations

from decimal import Decimal

from bench.tpch import SCALE_MIN, answer, same_rows
from bench.tpch_queries import queries


def test_every_query_of_tpch_finds_something():
    assert [number for number, query in enumerate(queries(SCALE_MIN), 1) if not answer(query, SCALE_MIN)] == []


def test_answers_differ_if_a_value_does():
    rows = [(1, "a", Decimal("2.50")), (2, "b", None)]
    assert same_rows(rows, [(2, "b", None), (1, "a", 2.5)])
    assert not same_rows(rows, [(2, "b", None), (1, "a", 2.51)])
    assert not same_rows(rows, [(2, "b", None), (1, "c", 2.5)])
    assert not same_rows(rows, rows[:1])
