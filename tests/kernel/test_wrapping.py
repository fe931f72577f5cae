"""Numbers that overflow keep their low 64 bits, whatever the compiler knows about their signs."""

from __future__ import annotations

import pytest

from gmdb.kernel.checks.index_checks import _FIRST_FACTOR, _POSITIVE, _SECOND_FACTOR, _mix
from gmdb.kernel.runtime.compiler import kernel
from gmdb.kernel.runtime.memory import add, multiply


@kernel
def product(a, b):
    return multiply(a, b)


@kernel
def positive_product(a, b):
    """Of two numbers that are not negative: to leave out the mask would be right if products did not overflow."""
    return multiply(a & _POSITIVE, b & _POSITIVE) & _POSITIVE


@kernel
def total(a, b):
    return add(a, b)


@kernel
def mixed(word):
    return _mix(word)


def wrapped(number: int) -> int:
    return (number + 2**63) % 2**64 - 2**63


NUMBERS = (0, 1, 5, -1, 1 << 31, _FIRST_FACTOR, _SECOND_FACTOR, _POSITIVE, -(1 << 63))


@pytest.mark.parametrize("a", NUMBERS)
def test_products_and_sums_are_those_of_64_bits(a: int):
    for b in NUMBERS:
        assert product(a, b) == wrapped(a * b)
        assert positive_product(a, b) == (a & _POSITIVE) * (b & _POSITIVE) & _POSITIVE
        assert total(a, b) == wrapped(a + b)


@pytest.mark.parametrize("word", [number for number in NUMBERS if number >= 0])
def test_words_of_keys_are_mixed_as_python_does(word: int):
    expected = word ^ word >> 30
    expected = expected * _FIRST_FACTOR & _POSITIVE
    expected ^= expected >> 27
    expected = expected * _SECOND_FACTOR & _POSITIVE
    assert mixed(word) == expected ^ expected >> 31
