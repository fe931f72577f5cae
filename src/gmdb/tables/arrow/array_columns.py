"""Columns of arrays: Arrow's lists as the cells that rows have, and cells as lists.

All elements of a column are brought to their places together, by NumPy: no Python runs for each row or element.
Not here: the bytes of one value (format/arrays.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from gmdb.errors import Corruption, ValueTooLong
from gmdb.format.arrays import ARRAY_HEAD, END_SIZE
from gmdb.format.columns import Column, ColumnType, Kind
from gmdb.process.late_imports import compute as pc
from gmdb.process.late_imports import numpy as np
from gmdb.process.late_imports import pyarrow as pa
from gmdb.tables.arrow.arrow_types import arrow_type, require_times

_HEAD = ARRAY_HEAD.size
_COUNT_AT = ARRAY_HEAD.offset("count")
_DECIMALS = (Kind.DECIMAL_WORD, Kind.DECIMAL_LONG, Kind.DECIMAL_WIDE)  # which take 16 bytes in Arrow
_CELLS_MAX = (1 << 31) - 1  # bytes of one Arrow array of cells


def has_arrays(columns: Sequence[Column]) -> bool:
    return any(column.type.is_array for column in columns)


# ---- lists as cells


def as_cells(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """A batch's columns, with cells instead of lists."""
    return [
        _cells_of(column.type.element, array) if column.type.is_array else array
        for column, array in zip(columns, arrays, strict=True)
    ]


def _cells_of(element: ColumnType, lists: pa.Array) -> pa.Array:
    counts = _plain(pc.fill_null(pc.list_value_length(lists), 0)).astype(np.int64)
    elements, rows = lists.flatten(), len(lists)
    owners = np.repeat(np.arange(rows), counts)
    numbers = _numbers_within(counts)  # of elements, within their lists
    there = _plain(elements.is_valid()).astype(bool)
    has_nulls = np.bincount(owners[~there], minlength=rows) > 0
    bits = np.where(has_nulls, (counts + 7) // 8, 0)
    size = element.fixed_size
    if size:
        raw, sizes = _bytes_of(element, elements, there), np.full(len(elements), size)
        ends_room = np.zeros(rows, np.int64)
    else:
        raw, sizes = _texts_of(elements)
        ends_room = counts * END_SIZE
    bytes_of = np.bincount(owners, sizes, rows).astype(np.int64)
    valid = _plain(lists.is_valid()).astype(bool)
    ends = np.cumsum(np.where(valid, _HEAD + bits + ends_room + bytes_of, 0))
    if rows and ends[-1] > _CELLS_MAX:
        raise ValueTooLong(f"arrays of {ends[-1]} bytes in one batch: append them in smaller batches")
    starts = np.concatenate([[0], ends[:-1]]).astype(np.int64) if rows else np.zeros(0, np.int64)
    data = np.zeros(int(ends[-1]) if rows else 0, np.uint8)
    heads = starts[valid]
    _put(data, heads + _COUNT_AT, counts[valid].astype("<u4"))
    data[heads[has_nulls[valid]]] = 1
    marked = there & has_nulls[owners]
    np.bitwise_or.at(
        data,
        (starts[owners] + _HEAD + numbers // 8)[marked],
        (1 << numbers % 8).astype(np.uint8)[marked],
    )
    first = (starts + _HEAD + bits)[owners]
    if not size:
        own_ends = np.cumsum(sizes) - (np.cumsum(bytes_of) - bytes_of)[owners] if len(sizes) else sizes
        _put(data, first + numbers * END_SIZE, own_ends.astype("<u4"))
    places = (starts + _HEAD + bits + ends_room)[owners] + _before_in_list(sizes, bytes_of, owners)
    data[_spread(places, sizes)] = raw
    return pa.Array.from_buffers(
        pa.binary(), rows, [_validity(valid), pa.py_buffer(_offsets(ends)), pa.py_buffer(data)]
    )


def _before_in_list(sizes: np.ndarray, of_lists: np.ndarray, owners: np.ndarray) -> np.ndarray:
    """How many bytes of each element's list come before it."""
    return np.cumsum(sizes) - sizes - (np.cumsum(of_lists) - of_lists)[owners]


def _bytes_of(element: ColumnType, elements: pa.Array, there: np.ndarray) -> np.ndarray:
    """The stored bytes of elements of a fixed size."""
    kind = element.kind
    if kind in (Kind.BIT, Kind.SHORT):
        stored = _plain(pc.fill_null(elements, False if kind is Kind.BIT else 0)).astype("<i4")
    else:
        _, values = elements.buffers()
        width = 16 if kind in _DECIMALS else element.fixed_size
        stored = np.frombuffer(values, np.uint8)[elements.offset * width :][: len(elements) * width].reshape(-1, width)
        stored = np.ascontiguousarray(stored[:, : element.fixed_size])
    raw = stored.view(np.uint8).reshape(-1, element.fixed_size)
    return np.where(there[:, None], raw, 0).astype(np.uint8).ravel()


def _texts_of(elements: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The bytes of all elements one after the other, and how many each has; of NULL none."""
    sizes = _plain(pc.fill_null(pc.binary_length(elements), 0)).astype(np.int64)
    _, offsets, values = elements.buffers()
    if values is None or not len(elements):
        return np.zeros(0, np.uint8), sizes
    starts = np.frombuffer(offsets, np.int32)[elements.offset : elements.offset + len(elements)].astype(np.int64)
    return np.frombuffer(values, np.uint8)[_spread(starts, sizes)], sizes


# ---- cells as lists


def as_lists(columns: Sequence[Column], arrays: Sequence[pa.Array]) -> list[pa.Array]:
    """The columns that kernels have read, with lists instead of cells."""
    return [
        _lists_of(column, array) if column.type.is_array else array
        for column, array in zip(columns, arrays, strict=True)
    ]


def _lists_of(column: Column, cells: pa.Array) -> pa.Array:
    element, rows = column.type.element, len(cells)
    _, offsets, values = cells.buffers()
    data = np.frombuffer(values, np.uint8) if values is not None else np.zeros(0, np.uint8)
    ends = np.frombuffer(offsets, np.int32)[cells.offset : cells.offset + rows + 1].astype(np.int64)
    valid = _plain(cells.is_valid()).astype(bool)
    starts, sizes = ends[:-1], np.where(valid, np.diff(ends), 0)

    def require(is_sound: bool) -> None:
        if not is_sound:
            raise Corruption(f"column {column.name} has bytes that are no {column.type}; see gmdb verify")

    require(bool((sizes[valid] >= _HEAD).all()))
    heads, counts, has_nulls = starts[valid], np.zeros(rows, np.int64), np.zeros(rows, bool)
    counts[valid] = _taken(data, heads + _COUNT_AT)
    require(bool((data[heads] <= 1).all()))
    has_nulls[valid] = data[heads] != 0
    bits = np.where(has_nulls, (counts + 7) // 8, 0)
    first = starts + _HEAD + bits
    size = element.fixed_size
    require(bool((np.where(valid, _HEAD + bits + counts * (size or END_SIZE), 0) <= sizes).all()))
    owners, numbers = np.repeat(np.arange(rows), counts), _numbers_within(counts)
    there = np.ones(len(owners), bool)
    if has_nulls.any():
        asked = has_nulls[owners]
        at = (starts + _HEAD)[owners[asked]] + numbers[asked] // 8
        there[asked] = data[at] >> (numbers[asked] % 8).astype(np.uint8) & 1
    if size:
        require(bool((sizes == np.where(valid, _HEAD + bits + counts * size, 0)).all()))
        raw = data[_spread(first[owners] + numbers * size, np.full(len(owners), size))]
        if element.kind is Kind.SHORT:
            shorts = raw.view("<i4")[there]
            require(bool((shorts == shorts.astype("<i2")).all()))
        elements = _elements_of(element, raw, there)
        if element.name == "TIME":
            require_times(column, elements)
    else:
        own_ends = _taken(data, first[owners] + numbers * END_SIZE)
        before = np.where(numbers > 0, np.concatenate([[0], own_ends[:-1]]) if len(own_ends) else own_ends, 0)
        lengths = own_ends - before
        whole = _HEAD + bits + counts * END_SIZE + np.bincount(owners, np.maximum(lengths, 0), rows).astype(np.int64)
        require(bool((lengths >= 0).all()) and bool((sizes == np.where(valid, whole, 0)).all()))
        raw = data[_spread((first + counts * END_SIZE)[owners] + before, lengths)]
        buffers = [_validity(there), pa.py_buffer(_offsets(np.cumsum(lengths))), pa.py_buffer(raw)]
        elements = pa.Array.from_buffers(arrow_type(element), len(owners), buffers)
    type_ = arrow_type(column.type)
    return pa.Array.from_buffers(
        type_, rows, [_validity(valid), pa.py_buffer(_offsets(np.cumsum(counts)))], children=[elements]
    )


def _elements_of(element: ColumnType, raw: np.ndarray, there: np.ndarray) -> pa.Array:
    """Elements of a fixed size, of their stored bytes one after the other."""
    kind, count = element.kind, len(there)
    if kind is Kind.BIT:
        data = np.packbits(raw.view("<i4") != 0, bitorder="little")
    elif kind is Kind.SHORT:
        data = raw.view("<i4").astype("<i2")
    elif kind in _DECIMALS and element.fixed_size < 16:
        low = raw.view(f"<i{element.fixed_size}").astype(np.int64)
        data = np.stack([low, low >> 63], axis=1).ravel()
    else:
        data = raw
    return pa.Array.from_buffers(arrow_type(element), count, [_validity(there), pa.py_buffer(data)])


# ---- places of bytes


def _plain(values: pa.Array) -> np.ndarray:
    return values.to_numpy(zero_copy_only=False)


def _numbers_within(counts: np.ndarray) -> np.ndarray:
    """0, 1, 2, … for each of some lists."""
    return np.arange(int(counts.sum())) - np.repeat(np.cumsum(counts) - counts, counts)


def _spread(starts: np.ndarray, sizes: np.ndarray) -> np.ndarray:
    """The places of all bytes of some values."""
    return np.repeat(starts, sizes) + _numbers_within(np.asarray(sizes, np.int64))


def _put(data: np.ndarray, places: np.ndarray, numbers: np.ndarray) -> None:
    """Write numbers of 4 bytes."""
    data[places[:, None] + np.arange(4)] = np.ascontiguousarray(numbers).view(np.uint8).reshape(-1, 4)


def _taken(data: np.ndarray, places: np.ndarray) -> np.ndarray:
    """Read numbers of 4 bytes."""
    raw = np.ascontiguousarray(data[places[:, None] + np.arange(4)]) if len(places) else np.zeros((0, 4), np.uint8)
    return raw.view("<u4").ravel().astype(np.int64)


def _offsets(ends: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], ends]).astype(np.int32)


def _validity(there: np.ndarray) -> pa.Buffer | None:
    return None if there.all() else pa.py_buffer(np.packbits(there, bitorder="little"))
