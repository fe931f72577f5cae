"""Which operation a name or a symbol means for arguments of given types.

A function is a list of overloads.  The one with the most arguments of exactly its types is called; among equals the
first, so those of PostgreSQL's preferred types (double, text) come first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache, partial
from typing import Any

from gmdb.format.columns import ColumnType
from gmdb.sql.operations import operators
from gmdb.sql.operations.registry import Operation, Overload, RowFunction
from gmdb.sql.types import BOOLEAN, JSONB, TEXT, is_array, pg_name

_NO_CONSTANTS: Mapping[int, Any] = {}
_ARITHMETIC = frozenset("+-*/%")
_BITS = frozenset(("&", "|", "#", "<<", ">>"))
_ARRAYS = frozenset(("@>", "<@", "&&"))
COMPARISONS = frozenset((*operators.SYMBOLS, operators.DISTINCT, operators.SAME))
ALIASES = {
    "ceiling": "ceil",
    "char_length": "length",
    "character_length": "length",
    "pow": "power",
    "position": "strpos",
    "trim": "btrim",
}
_BUILDERS = tuple(f"{kind}_build_{what}" for kind in ("json", "jsonb") for what in ("object", "array"))
_EXTRACTIONS = tuple(f"{kind}_extract_path{end}" for kind in ("json", "jsonb") for end in ("", "_text"))
JSON_NAMES = ("to_json", "to_jsonb", *_BUILDERS, *_EXTRACTIONS)
# Of any number of arguments, or chosen by other rules than overloads are.
_SPECIAL = ("greatest", "least", "nullif", "concat", "concat_ws", "mod", *JSON_NAMES)
_BOUND = ("coalesce", "now", "cast", "pg_typeof")  # what the binder itself knows
_OF_DOCUMENTS = frozenset(("->", "->>", "#>", "#>>", "@>", "<@", "??", "??|", "??&", "#-", "-", "||"))
_OPERATORS = {"like", "ilike", "like_escape", "ilike_escape", "similar", "similar_escape"}  # that SQL writes otherwise


@cache
def functions_by_name() -> Mapping[str, Sequence[Overload]]:
    from gmdb.sql.operations import functions, json_functions  # statements without a function do not need them

    tables = [functions.NUMBER_FUNCTIONS, functions.TEXT_FUNCTIONS, functions.TIME_FUNCTIONS, functions.UUID_FUNCTIONS]
    tables.append(json_functions.JSON_FUNCTIONS)
    return {name: overloads for table in tables for name, overloads in table.items()}


def row_function(name: str) -> RowFunction | None:
    """The function in FROM of a name."""
    if not name.startswith("json"):
        return None
    from gmdb.sql.operations.json_functions import ROW_FUNCTIONS

    return ROW_FUNCTIONS.get(name)


@cache
def _of_arrays() -> Mapping[str, Any]:
    from gmdb.sql.operations import arrays  # statements without arrays do not need it

    return arrays.FUNCTIONS


def names() -> list[str]:
    """The names of all functions, for hints."""
    return sorted({*functions_by_name(), *_of_arrays(), *ALIASES, *_SPECIAL, *_BOUND} - _OPERATORS)


def overloads(name: str) -> str:
    """How a function can be called, for hints."""
    name = ALIASES.get(name, name)
    return " or ".join(f"{name}({', '.join(map(pg_name, one.takes))})" for one in functions_by_name().get(name, ()))


def resolve(
    name: str, types: Sequence[ColumnType | None], constants: Mapping[int, Any] = _NO_CONSTANTS
) -> Operation | None:
    """The operation that a function's name means; None if there is none of such arguments.

    A type of None is that of an open argument.  ``constants``: the values of arguments that are constants, by their
    places; of open ones, their texts.
    """
    name = ALIASES.get(name, name)
    if len(types) == 1 and name in ("is_null", "neg", "bitnot", *operators.TRUTHS):
        return unary(name, types[0])
    known = functions_by_name().get(name)
    if known is not None:
        return _best(name, known, types, constants)
    if name in _of_arrays():
        from gmdb.sql.operations import arrays

        return arrays.resolve(name, types, constants)
    if name in ("greatest", "least") and types:
        return operators.extreme(name, types, constants)
    if name == "nullif" and len(types) == 2:
        return operators.nullif(types, constants)
    if name in ("concat", "concat_ws") and types:
        from gmdb.sql.operations.functions import concatenation, join_operation

        return concatenation(types) if name == "concat" else join_operation(types)
    if name in JSON_NAMES:
        from gmdb.sql.operations import json_functions

        return json_functions.variadic(name, types)
    if name == "mod" and len(types) == 2:
        return operator("%", types[0], types[1], constants)
    return None


def _best(
    name: str, overloads: Sequence[Overload], types: Sequence[ColumnType | None], constants: Mapping[int, Any]
) -> Operation | None:
    scored = [(score, one) for one in overloads if (score := one.matches(types)) is not None]
    return max(scored, key=lambda pair: pair[0])[1].operation(name, types, constants) if scored else None


def operator(
    symbol: str, left: ColumnType | None, right: ColumnType | None, constants: Mapping[int, Any] = _NO_CONSTANTS
) -> Operation | None:
    """The operation that an operator means between two values; None if there is none of such types."""
    if symbol in COMPARISONS:
        return operators.comparison(symbol, left, right, constants)
    if symbol in _OF_DOCUMENTS and (symbol not in ("-", "||", "@>", "<@") or JSONB in (left, right)):
        from gmdb.sql.operations.json_functions import operator_overloads

        for name, known in operator_overloads(symbol, left, right).items():
            operation = _best(name, known, (left, right), constants)
            if operation is not None:
                return operation
    if symbol in _ARRAYS or (symbol == "||" and (is_array(left) or is_array(right))):
        from gmdb.sql.operations import arrays

        of_arrays = arrays.concatenation if symbol == "||" else partial(arrays.comparison, symbol)
        return of_arrays(left, right, constants)
    if symbol in _ARITHMETIC:
        return operators.arithmetic(symbol, left, right, constants)
    if symbol in _BITS:
        return operators.bitwise(symbol, left, right)
    if symbol in ("||", "~", "~*"):
        from gmdb.sql.operations.functions import regular_match, shown

        return shown(left, right) if symbol == "||" else regular_match(symbol, left, right)
    return resolve("power", (left, right), constants) if symbol == "^" else None


def unary(name: str, type_: ColumnType | None) -> Operation | None:
    """neg, bitnot, not, is_null, is_true and is_false."""
    if name == "is_null":
        return operators.is_null(type_ or TEXT)
    if name in operators.TRUTHS:
        return operators.TRUTHS[name] if type_ in (None, BOOLEAN) else None
    if type_ is None:
        return None
    return operators.negation(type_) if name == "neg" else operators.bit_inversion(type_)
