"""How an on-disk structure is declared: once, as data.

A layout is a structure's fields, each with a type and a meaning.  Kernels, the inspector and the documentation
derive from it; nothing else in the project writes an offset down.  NumPy is read only by those who ask for a dtype.

Invariants
 1. A layout's declared size is the size of its fields: they are packed, little-endian, without padding.
 2. Every layout that is declared is found in ``LAYOUTS``, in order of declaration.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import cache, cached_property
from struct import Struct
from typing import Any, NamedTuple

from gmdb.process.late_dataclasses import dataclass
from gmdb.process.late_imports import numpy as np

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


# ---- Types of fields: a number's as NumPy writes them, ``<u4``; ``S8``, a text; ``16u1``, some bytes; a structure; or
# some of those in a row, as (type, count).

_CODES = {"u1": "B", "u2": "H", "u4": "I", "u8": "Q", "i1": "b", "i2": "h", "i4": "i", "i8": "q", "f8": "d"}


@cache
def _number_of(type_: str) -> Struct | None:
    """How a number is read and written; None for a type that is not one."""
    code = _CODES.get(type_.lstrip("<"))
    return None if code is None else Struct(f"<{code}")


def _size(spec: Any) -> int:
    if isinstance(spec, Structure):
        return spec.itemsize
    if isinstance(spec, tuple):
        return _size(spec[0]) * int(spec[1])
    number = _number_of(spec)
    return int(spec.strip("Su").removesuffix("u1")) if number is None else number.size


def _dtype(spec: Any) -> np.dtype:
    if isinstance(spec, tuple):
        return np.dtype((_dtype(spec[0]), (spec[1],)))
    return spec.dtype if isinstance(spec, Structure) else np.dtype(spec)


def _read(spec: Any, view: memoryview, offset: int) -> Any:
    """The value of a field: a number, bytes without the zeros behind them, a list of bytes, a record, or tuples."""
    if isinstance(spec, Structure):
        return Record(spec, view, offset)
    if isinstance(spec, tuple):
        found = [_read(spec[0], view, offset + i * _size(spec[0])) for i in range(spec[1])]
        return [tuple(one) if isinstance(one, Record) else one for one in found]
    number = _number_of(spec)
    if number is not None:
        return number.unpack_from(view, offset)[0]
    raw = bytes(view[offset : offset + _size(spec)])
    return raw.rstrip(b"\0") if spec.startswith("S") else list(raw)


def _write(spec: Any, view: memoryview, offset: int, value: Any) -> None:
    if isinstance(spec, tuple):
        for i, one in enumerate(value):
            _write(spec[0], view, offset + i * _size(spec[0]), one)
    elif isinstance(spec, Structure):
        for (inner, at), one in zip(spec.parts.values(), value, strict=True):
            _write(inner, view, offset + at, one)
    elif (number := _number_of(spec)) is not None:
        number.pack_into(view, offset, value)
    else:
        size = _size(spec)
        raw = bytes(value)
        if len(raw) > size:
            raise ValueError(f"{len(raw)} bytes do not fit into {size}")
        view[offset : offset + size] = raw.ljust(size, b"\0")


class Structure:
    """Fields that follow each other in memory, by their names: ``(name, type)``, or ``(name, type, count)``.

    NumPy takes one for a dtype: ``np.zeros(1, STATE)``.
    """

    def __init__(self, declared: Sequence[tuple[Any, ...]]) -> None:
        self.parts: dict[str, tuple[Any, int]] = {}  # by name: type and offset
        end = 0
        for name, *rest in declared:
            spec = rest[0] if len(rest) == 1 else tuple(rest)
            self.parts[name] = spec, end
            end += _size(spec)
        self.names = tuple(self.parts)
        self.itemsize = end

    @cached_property
    def dtype(self) -> np.dtype:
        return np.dtype([(name, _dtype(spec)) for name, (spec, _) in self.parts.items()])

    def at(self, page: Any, offset: int = 0) -> Any:
        """A record over ``page``'s own bytes: reading a field reads the page, setting one changes it."""
        return Record(self, memoryview(page).cast("B"), offset)

    def pack(self, **values: Any) -> bytes:
        """The structure's bytes, with every field that is not named zero."""
        raw = bytearray(self.itemsize)
        record = Record(self, memoryview(raw), 0)
        for name, value in values.items():
            setattr(record, name, value)
        return bytes(raw)

    def offset(self, name: str) -> int:
        return self.parts[name][1]


class Record:
    """The fields of a structure in memory, by name; in a loop, their values."""

    __slots__ = ("_at", "_structure", "_view")

    def __init__(self, structure: Structure, view: memoryview, at: int) -> None:
        object.__setattr__(self, "_structure", structure)
        object.__setattr__(self, "_view", view)
        object.__setattr__(self, "_at", at)

    def __getattr__(self, name: str) -> Any:
        try:
            spec, offset = self._structure.parts[name]
        except KeyError:
            raise AttributeError(f"there is no field {name}") from None
        return _read(spec, self._view, self._at + offset)

    def __setattr__(self, name: str, value: Any) -> None:
        spec, offset = self._structure.parts[name]
        _write(spec, self._view, self._at + offset, value)

    def __iter__(self) -> Iterator[Any]:
        for spec, offset in self._structure.parts.values():
            yield _read(spec, self._view, self._at + offset)


# ---- Layouts: structures on disk, each field with its meaning.


@dataclass(frozen=True)
class Field:
    name: str
    type: str
    offset: int
    size: int
    meaning: str


class Layout(Structure):
    """One structure: its fields by name, and spelled out with those of nested ones (``latch.spinlock``)."""

    def __init__(self, name: str, declared: dict[str, tuple[Any, str]]) -> None:
        super().__init__([(field, spec) for field, (spec, _) in declared.items()])
        self.name = name
        self.size = self.itemsize
        self.fields = tuple(
            one
            for field, (spec, meaning) in declared.items()
            for one in _spell_out(field, spec, self.parts[field][1], meaning)
        )
        self._offsets = {field.name: field.offset for field in self.fields}

    def offset(self, name: str) -> int:
        return self._offsets[name]

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
    if type_.startswith("S"):
        return lambda raw: bytes(raw).rstrip(b"\0").decode("utf-8", "replace")
    if _number_of(type_) is None:
        return memoryview.hex
    is_signed = "i" in type_
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
        yield Field(name, spec, offset, _size(spec), meaning)


def layout(name: str, size: int, /, **fields: tuple[Any, str]) -> Layout:
    """Declare a structure on disk.  A field is ``(type, meaning)``; a type may be (layout, count)."""
    result = Layout(name, fields)
    assert result.size == size, f"{name}: {result.size} bytes declared as {size}"
    LAYOUTS.append(result)
    return result


class Finding(NamedTuple):
    """Something that is wrong with a page, and where in the page it shows."""

    offset: int
    message: str
