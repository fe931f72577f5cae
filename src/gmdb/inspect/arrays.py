"""Arrow columns out of NumPy's numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gmdb.format.address import OFFSET_BITS, PAGES_PER_DEVICE
from gmdb.late import compute as pc
from gmdb.late import pyarrow as pa


def numbers(values: np.ndarray, type_: pa.DataType, is_known: np.ndarray | None = None) -> pa.Array:
    """Numbers, NULL where they are negative, or where nothing is known."""
    signed = values.astype(np.float64 if pa.types.is_floating(type_) else np.int64)
    missing = signed < 0 if is_known is None else ~is_known
    return pa.array(signed, type_, mask=missing)


def labels(values: np.ndarray, label: Callable[[int], str | None]) -> pa.Array:
    """A text for each number, made once for each that occurs."""
    unique, places = np.unique(values, return_inverse=True)
    return pa.array([label(value) for value in unique.tolist()], pa.string()).take(pa.array(places))


def page_names(page_ids: np.ndarray) -> pa.Array:
    """``4:7`` for each page."""
    ids = page_ids.astype(np.int64)
    parts = (ids >> OFFSET_BITS, ids & (PAGES_PER_DEVICE - 1))
    return pc.binary_join_element_wise(*(pa.array(part).cast(pa.string()) for part in parts), ":")
