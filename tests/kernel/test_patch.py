"""Patches against the plain codec: putting columns into a row, and keeping what was there."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gmdb.format.codec import RowCodec
from gmdb.format.columns import Column
from gmdb.format.row import decode_row, encode_row
from gmdb.kernel.row import extract_image, merge_patch, patch_bytes
from gmdb.kernel.runtime.compiler import kernel
from gmdb.tables.catalog.schema import make_columns

BUFFER = 1 << 17


@kernel
def merge(target, row, patch):  # type: ignore[no-untyped-def]
    return merge_patch(target, row, patch)


@kernel
def extract(target, row, patch):  # type: ignore[no-untyped-def]
    return extract_image(target, row, patch)


@kernel
def measure(patch):  # type: ignore[no-untyped-def]
    return patch_bytes(patch)


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "INT": st.integers(-(2**31), 2**31 - 1),
    "BIGINT": st.integers(-(2**63), 2**63 - 1),
    "DOUBLE": st.floats(allow_nan=False),
    "VARCHAR(300)": st.text(st.characters(codec="ascii", exclude_characters="\0"), max_size=80) | st.just("y" * 300),
    "VARBINARY(40)": st.binary(max_size=40),
    "BOOLEAN": st.booleans(),
}


def make_row(columns: tuple[Column, ...], values: list[Any]) -> np.ndarray:
    """The row in a buffer with some room behind it."""
    return in_buffer(encode_row(columns, values))


def in_buffer(data: bytes) -> np.ndarray:
    buffer = np.full(BUFFER, 0xAA, np.uint8)
    buffer[: len(data)] = np.frombuffer(data, np.uint8)
    return buffer


def merged(row: np.ndarray, patch: np.ndarray) -> bytes:
    target = in_buffer(b"")
    size = merge(target.ctypes.data, row.ctypes.data, patch.ctypes.data)
    assert bytes(target[size : size + 64]) == b"\xaa" * 64
    return bytes(target[:size])


@st.composite
def changes(draw: st.DrawFn) -> tuple[tuple[Column, ...], list[Any], dict[int, Any]]:
    """Columns, a row's values (maybe of a time with fewer columns), and new values of some columns."""
    types = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=40))
    columns = tuple(make_columns("t", {f"c{n}": name for n, name in enumerate(types)}))
    some = [st.none() | VALUES[name] for name in types]
    values = draw(st.tuples(*some))
    numbers = draw(st.sets(st.integers(0, len(types) - 1)))
    patch = {n: draw(st.just(values[n]) | some[n]) for n in sorted(numbers)}
    count = draw(st.integers(1, len(types)) | st.just(len(types)))
    return columns, list(values[:count]), patch


def expected(columns: tuple[Column, ...], values: list[Any], patch: dict[int, Any]) -> tuple[Any, ...]:
    after = values + [None] * (len(columns) - len(values))
    for number, value in patch.items():
        after[number] = value
    return tuple(after)


many = settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))


def encode_patch(columns: tuple[Column, ...], patch: dict[int, Any]) -> np.ndarray:
    codec = RowCodec([columns[n] for n in patch], list(patch))
    return in_buffer(codec.encode(list(patch.values())))


@many
@given(changes())
def test_merging_a_patch_gives_the_row_that_the_codec_would_write(
    case: tuple[tuple[Column, ...], list[Any], dict[int, Any]],
) -> None:
    columns, values, patch = case
    row = make_row(columns[: len(values)], values)
    result = merged(row, encode_patch(columns, patch))
    after = expected(columns, values, patch)
    count = max(len(values), max(patch, default=-1) + 1)
    assert decode_row(columns, result) == after
    assert result == encode_row(columns[:count], after[:count])


@many
@given(changes())
def test_merging_the_image_of_a_patch_restores_the_row(
    case: tuple[tuple[Column, ...], list[Any], dict[int, Any]],
) -> None:
    columns, values, patch = case
    row = make_row(columns[: len(values)], values)
    encoded = encode_patch(columns, patch)
    image = in_buffer(b"")
    size = extract(image.ctypes.data, row.ctypes.data, encoded.ctypes.data)
    assert size == measure(image.ctypes.data)
    assert bytes(image[size + 2 : size + 64]) == b"\xaa" * 62  # it may end in two bytes of filling
    restored = merged(in_buffer(merged(row, encoded)), image)
    assert decode_row(columns, restored) == expected(columns, values, {})


@many
@given(changes())
def test_an_image_holds_the_columns_that_change_and_no_others(
    case: tuple[tuple[Column, ...], list[Any], dict[int, Any]],
) -> None:
    columns, values, patch = case
    row = make_row(columns[: len(values)], values)
    image, encoded = in_buffer(b""), encode_patch(columns, patch)
    extract(image.ctypes.data, row.ctypes.data, encoded.ctypes.data)
    before = expected(columns, values, {})
    codes = [column.type.encode for column in columns]
    changed = [
        n
        for n, new in patch.items()
        if (new is None) != (before[n] is None) or (new is not None and codes[n](new) != codes[n](before[n]))
    ]
    size, count = (int.from_bytes(image[at : at + 2].tobytes(), "little") for at in (4, 6))
    assert count == len(changed)
    assert np.frombuffer(image[size : size + 2 * count].tobytes(), np.uint16).tolist() == changed
    assert decode_row([columns[n] for n in changed], image.tobytes()) == tuple(before[n] for n in changed)
