"""Functions and operators of arrays, for elements of any type: chosen by the types of a call.

Where PostgreSQL takes an array and an element, or two arrays, both are brought to the type that they share.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from gmdb.errors import SchemaError
from gmdb.format.columns import ColumnType, array_of
from gmdb.sql import arrays
from gmdb.sql.casts import write_element
from gmdb.sql.operations import operators
from gmdb.sql.operations.registry import Operation, function_of, written
from gmdb.sql.types import BOOLEAN, INT, TEXT, beside, common_type, is_array, is_text, unlimited

Types = Sequence[ColumnType | None]
Constants = Mapping[int, Any]
Build = Callable[[str, Types, Constants], Operation | None]
TEXTS = array_of(TEXT)
ANY, ALL = "any", "all"  # behind the symbol of a comparison with an array's elements


def _plain(
    name: str,
    takes: Sequence[ColumnType],
    gives: ColumnType,
    python: Callable[..., Any] | str,
    duck: str | None = None,
    strict: bool = True,
    fails: bool = False,
) -> Operation:
    return Operation(name, tuple(takes), gives, python, duck, strict=strict, fails=fails)


def _array(type_: ColumnType | None) -> ColumnType | None:
    """An argument that must be an array; one that is open is an array of texts."""
    return TEXTS if type_ is None else type_ if is_array(type_) else None


def _opened(known: ColumnType, constants: Constants, number: int) -> ColumnType:
    """The type that an open argument has beside a value of a known type; NULL has no digits or letters of its own."""
    text = constants.get(number)
    return beside(known, text) if isinstance(text, str) else unlimited(known)


def _shared(array: ColumnType | None, elements: Mapping[int, ColumnType | None], constants: Constants) -> Any:
    """The type of arrays whose elements are those of an array, and further arguments, which come by their numbers;
    None if there is none."""
    known = [*([array.element] if array is not None else []), *(one for one in elements.values() if one is not None)]
    try:
        element = common_type(known)
        if element is None:
            return TEXTS
        opened = [_opened(element, constants, n) for n, one in elements.items() if one is None]
        return array_of(common_type([*known, *opened]) or TEXT)
    except (ValueError, SchemaError):
        return None


# ---- of an array alone


def _of_array(
    gives: ColumnType | None, python: Callable[..., Any] | str, duck: str | None, *more: ColumnType, fails: bool = False
) -> Build:
    """A function of an array, and of values of given types; ``gives`` None: such an array."""

    def build(name: str, types: Types, _: Constants) -> Operation | None:
        array = _array(types[0]) if types else None
        if array is None or len(types) != 1 + len(more) or not _are(types[1:], more):
            return None
        return _plain(name, (array, *more), gives or array, python, duck, fails=fails)

    return build


def _are(types: Types, wanted: Sequence[ColumnType]) -> bool:
    return all(type_ is None or type_.name == one.name for type_, one in zip(types, wanted, strict=True))


_SIZE = "CAST(CASE WHEN {1} = 1 THEN nullif(len({0}), 0) END AS INTEGER)"


# ---- of an array and a value, or two arrays


def _with_element(name: str, types: Types, constants: Constants) -> Operation | None:
    """array_append and array_prepend."""
    if len(types) != 2:
        return None
    is_first = name == "array_append"
    array, value = types if is_first else types[::-1]
    if array is not None and not is_array(array):
        return None
    shared = _shared(array, {int(is_first): value}, constants)
    if shared is None:
        return None
    takes = (shared, shared.element) if is_first else (shared.element, shared)
    python, duck = (arrays.appended, "list_append") if is_first else (arrays.prepended, "list_prepend")
    return _plain(name, takes, shared, python, f"{duck}({{0}}, {{1}})", strict=False)


def _joined(name: str, types: Types, constants: Constants) -> Operation | None:
    if len(types) != 2 or not any(map(is_array, types)) or not all(one is None or is_array(one) for one in types):
        return None
    known = [unlimited(one) for one in types if one is not None]
    try:
        opened = [_opened(known[0], constants, n) for n, one in enumerate(types) if one is None]
        shared = common_type([*known, *opened])
    except ValueError:
        return None
    assert shared is not None
    duck = "CASE WHEN {0} IS NULL THEN {1} ELSE list_concat({0}, {1}) END"
    return _plain(name, (shared, shared), shared, arrays.joined, duck, strict=False)


def concatenation(left: ColumnType | None, right: ColumnType | None, constants: Constants) -> Operation | None:
    """``||`` where one side is an array; an open one beside it is an array, too."""
    if is_array(left) and (right is None or is_array(right)):
        return _joined("||", (left, right), constants)
    if left is None and is_array(right):
        return _joined("||", (left, right), constants)
    return _with_element("array_append" if is_array(left) else "array_prepend", (left, right), constants)


def _searching(gives: ColumnType | None, function: Callable[..., Any], count: int, *more: ColumnType) -> Build:
    """A function of an array and ``count`` values that are compared with its elements, and of others."""

    def build(name: str, types: Types, constants: Constants) -> Operation | None:
        if len(types) != 1 + count + len(more) or not (types[0] is None or is_array(types[0])):
            return None
        shared = _shared(types[0], dict(enumerate(types[1 : 1 + count], 1)), constants)
        if shared is None or not _are(types[1 + count :], more):
            return None
        key = operators.element_key(shared.element)
        takes = (shared, *[shared.element] * count, *more)
        return _plain(name, takes, gives or shared, partial(function, key), strict=False, fails=bool(more))

    return build


def comparison(
    symbol: str, left: ColumnType | None, right: ColumnType | None, constants: Constants
) -> Operation | None:
    """``@>``, ``<@`` and ``&&`` of arrays of one type."""
    known = left or right
    if known is None or not all(one is None or (is_array(one) and one.name == known.name) for one in (left, right)):
        return None
    takes = (left or _opened(known, constants, 0), right or _opened(known, constants, 1))
    key = operators.element_key(known.element)
    there = "list_filter({%d}, lambda e: e IS NOT NULL)"
    if symbol == "&&":
        duck, python = f"list_has_any({there % 0}, {there % 1})", partial(arrays.overlap, key)
    else:
        whole, part = (0, 1) if symbol == "@>" else (1, 0)
        all_there = f"list_has_all({there % whole}, {there % part})"
        duck = f"CASE WHEN {{{whole}}} IS NOT NULL THEN {all_there} AND list_count({{{part}}}) = len({{{part}}}) END"
        python = partial(arrays.contains, key)
    if symbol == "<@":
        return _plain(symbol, takes, BOOLEAN, lambda part, whole: python(whole, part), _same(duck, takes))
    return _plain(symbol, takes, BOOLEAN, python, _same(duck, takes))


def _same(duck: str, takes: Sequence[ColumnType]) -> str | None:
    """DuckDB's SQL, if both sides are of one type there; it would bring decimals to one that may be too short."""
    return duck if takes[0] == takes[1] or takes[0].element.name != "DECIMAL" else None


# ---- comparisons with an array's elements


def quantified(
    symbol: str, every: bool, left: ColumnType | None, right: ColumnType | None, constants: Constants
) -> Operation | None:
    """``left = ANY (right)``, or with ``every`` ALL; ``constants``: as for ``=``, but of an open array its text."""
    if right is not None and not is_array(right):
        return None
    element = right.element if right is not None else None
    known = {n: value for n, value in constants.items() if n == 0}
    if element is None and left is not None:
        element = _opened(array_of(unlimited(left)), constants, 1).element
    inner = operators.comparison(symbol, left, element, known)
    if inner is None:
        return None
    return of_each(symbol, inner, every)


def of_each(name: str, inner: Operation, every: bool, negate: bool = False) -> Operation:
    """A comparison with each element of an array, or its negation, any of which or all are to be true."""
    value, element = inner.takes
    test, word = function_of(inner), ALL if every else ANY
    duck = None
    if inner.duck is not None and "{python}" not in inner.duck:
        result = written(inner.duck, ["{0}", "e"])
        results = f"list_transform({{1}}, lambda e: {f'(NOT {result})' if negate else result})"
        duck = f"gm_{word}({results}, {{0}} IS NULL)"

    def compare(one: Any, values: Any) -> bool | None:
        return arrays.holds(test if not negate else lambda a, b: not test(a, b), one, values, every)

    takes = (value, array_of(element))
    return _plain(f"{name} {word}", takes, BOOLEAN, compare, duck, strict=False, fails=inner.fails)


# ---- elements and parts


def subscript(array: ColumnType) -> Operation:
    duck = "CASE WHEN {1} > 0 THEN list_extract({0}, {1}) END"
    return _plain("subscript", (array, INT), array.element, arrays.element_at, duck)


def part(array: ColumnType) -> Operation:
    both = "{1} IS NOT NULL AND {2} IS NOT NULL"  # the largest of NULL and a number is the number
    duck = f"CASE WHEN {both} THEN list_slice({{0}}, greatest({{1}}, 1), greatest({{2}}, 0)) END"
    return _plain("slice", (array, INT, INT), array, arrays.part_of, duck)


def constructor(element: ColumnType, count: int) -> Operation:
    """``array[a, b]``."""
    places = ", ".join(f"{{{n}}}" for n in range(count))
    takes = (element,) * count
    return _plain("array", takes, array_of(element), lambda *values: values, f"[{places}]", strict=False)


# ---- texts


def _split(name: str, types: Types, _: Constants) -> Operation | None:
    if len(types) not in (2, 3) or not all(one is None or is_text(one) for one in types):
        return None
    return _plain(name, (TEXT,) * len(types), TEXTS, arrays.split, strict=False)


def _to_string(name: str, types: Types, _: Constants) -> Operation | None:
    array = _array(types[0]) if types else None
    if array is None or len(types) not in (2, 3) or not all(one is None or is_text(one) for one in types[1:]):
        return None
    write = write_element(array.element)

    def join(values: Any, separator: str | None, null: str | None = None) -> str | None:
        return arrays.join(write, values, separator, null)

    return _plain(name, (array, *[TEXT] * (len(types) - 1)), TEXT, join, strict=False)


FUNCTIONS: dict[str, Sequence[Build]] = {
    "array_length": [_of_array(INT, arrays.length, _SIZE, INT)],
    "array_upper": [_of_array(INT, arrays.length, _SIZE, INT)],
    "array_lower": [_of_array(INT, arrays.lower, "CASE WHEN {1} = 1 AND len({0}) > 0 THEN 1 END", INT)],
    "array_ndims": [_of_array(INT, arrays.dimensions, "CASE WHEN len({0}) > 0 THEN 1 END")],
    "array_dims": [_of_array(TEXT, arrays.extent, None)],
    "cardinality": [_of_array(INT, "len({0})", "CAST(len({0}) AS INTEGER)")],
    "array_append": [_with_element],
    "array_prepend": [_with_element],
    "array_cat": [_joined],
    "array_remove": [_searching(None, arrays.removed, 1)],
    "array_replace": [_searching(None, arrays.replaced, 2)],
    "array_position": [_searching(INT, arrays.position, 1), _searching(INT, arrays.position, 1, INT)],
    "array_positions": [_searching(array_of(INT), arrays.positions, 1)],
    "trim_array": [_of_array(None, arrays.trimmed, None, INT, fails=True)],
    "array_to_string": [_to_string],
    "string_to_array": [_split],
}


def resolve(name: str, types: Types, constants: Constants) -> Operation | None:
    """The operation that a function's name means for arguments of some types; None if there is none."""
    return next((one for build in FUNCTIONS[name] if (one := build(name, types, constants)) is not None), None)
