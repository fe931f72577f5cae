"""How an on-disk structure is declared: once, as data.

A layout is a NumPy dtype with a meaning for every field.  Kernels, the inspector and the documentation
derive from it; nothing else in the project writes an offset down.

Invariants
 1. A layout's declared size is the size of its dtype: fields are packed, little-endian, without padding.
 2. Every layout that is declared is found in ``LAYOUTS``, in order of declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np

LAYOUTS: list[Layout] = []


class Region(NamedTuple):
    """Some bytes of a page, with a name and what they mean."""

    offset: int
    length: int
    name: str
    value: Any
    meaning: str

    @property
    def end(self) -> int:
        return self.offset + self.length


class Record:
    """The fields of a structure in memory, by name.  (A NumPy record has attributes of its own, such as ``size``.)"""

    __slots__ = ("_fields",)

    def __init__(self, fields: np.void) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        value = self._fields[name]
        return Record(value) if isinstance(value, np.void) and value.dtype.names else value.tolist()

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    offset: int
    size: int
    meaning: str


@dataclass(frozen=True, eq=False)
class Layout:
    """One structure: its dtype, and its fields with nested ones spelled out (``latch.spinlock``)."""

    name: str
    size: int
    dtype: np.dtype
    fields: tuple[Field, ...]

    def offset(self, field: str) -> int:
        return next(f.offset for f in self.fields if f.name == field)

    def at(self, page: Any, offset: int = 0) -> Any:
        """A record over ``page``'s own bytes: reading a field reads the page, setting one changes it."""
        return Record(np.frombuffer(page, self.dtype, 1, offset)[0])

    def pack(self, **values: Any) -> bytes:
        """The structure's bytes, with every field that is not named zero."""
        record = np.zeros(1, self.dtype)
        for name, value in values.items():
            record[name] = value
        return record.tobytes()

    def values(self, page: Any, offset: int = 0) -> dict[str, Any]:
        """Every field by its name, as plain Python values."""
        return {r.name: r.value for r in self.regions(page, offset)}

    def regions(self, page: Any, offset: int = 0, prefix: str = "") -> Iterator[Region]:
        """The fields of the structure that lies at ``offset``, one region each."""
        view = memoryview(page)
        for field in self.fields:
            at = offset + field.offset
            value = _decoder(field.type)(view[at : at + field.size])
            yield Region(at, field.size, prefix + field.name, value, field.meaning)


@cache
def _decoder(type_: str) -> Callable[[memoryview], Any]:
    """What makes a plain value of a field's bytes."""
    dtype = np.dtype(type_)
    if dtype.kind == "S":
        return lambda raw: bytes(raw).rstrip(b"\0").decode("utf-8", "replace")
    if dtype.shape:
        return memoryview.hex
    is_signed = dtype.kind == "i"
    return lambda raw: int.from_bytes(raw, "little", signed=is_signed)


def _spell_out(name: str, spec: Any, offset: int, meaning: str) -> Iterator[Field]:
    if isinstance(spec, Layout):
        for field in spec.fields:
            yield Field(f"{name}.{field.name}", field.type, offset + field.offset, field.size, field.meaning)
    elif isinstance(spec, tuple):
        inner, count = spec
        for i in range(count):
            yield from _spell_out(f"{name}[{i}]", inner, offset + i * inner.size, meaning)
    else:
        yield Field(name, spec, offset, np.dtype(spec).itemsize, meaning)


def _dtype(spec: Any) -> np.dtype:
    if isinstance(spec, Layout):
        return spec.dtype
    if isinstance(spec, tuple):
        return np.dtype((spec[0].dtype, (spec[1],)))
    return np.dtype(spec)


def layout(name: str, size: int, /, **fields: tuple[Any, str]) -> Layout:
    """Declare a structure.  A field is ``(type, meaning)``; a type is a NumPy type, a layout, or (layout, count)."""
    dtype = np.dtype([(field, _dtype(spec)) for field, (spec, _) in fields.items()])
    assert dtype.itemsize == size, f"{name}: {dtype.itemsize} bytes declared as {size}"
    spelled: list[Field] = []
    offset = 0
    for field, (spec, meaning) in fields.items():
        spelled.extend(_spell_out(field, spec, offset, meaning))
        offset += _dtype(spec).itemsize
    result = Layout(name, size, dtype, tuple(spelled))
    LAYOUTS.append(result)
    return result


class Finding(NamedTuple):
    """Something that is wrong with a page, and where in the page it shows."""

    offset: int
    message: str
