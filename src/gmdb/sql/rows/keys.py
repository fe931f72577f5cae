"""Values as keys: for hashing, so that equal values have equal keys, and for sorting.

Invariants
 1. NaN is equal to itself and sorts above all numbers; blanks at the end of a CHAR count neither way.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from gmdb.format.columns import ColumnType
from gmdb.sql.rows.code import Code, Term
from gmdb.sql.tree import Call, Column, Expression, columns_of
from gmdb.sql.types import TEXT

NAN = float("nan")  # this object stands for all: tuples and dicts take an object to be equal to itself


def hash_key(code: Code, term: Term, type_: ColumnType, is_stripped: bool | None = None) -> str:
    """Code that is equal for equal values; NULL stays None."""
    key = term.code
    if type_.name == "DOUBLE":
        code.names["NAN"] = NAN
        key = f"({key} if {key} == {key} else NAN)"  # of None, too
    elif type_.name == "INTERVAL":
        key = _unless_null(term, f"{key}.length()")
    elif type_.name == "CHAR" if is_stripped is None else is_stripped:
        key = _unless_null(term, f"{key}.rstrip(' ')")
    return key


class Side(NamedTuple):
    """One side of an equality, as ``=`` takes it."""

    value: Expression
    type: ColumnType
    is_stripped: bool

    def key(self, code: Code, term: Term) -> str:
        """What is equal for equal sides; ``term``: the value."""
        return hash_key(code, term, self.type, self.is_stripped)


class Equality(NamedTuple):
    """A condition ``inner = outer``, of which the inner side refers to columns of a relation, and the outer one not."""

    inner: Side
    outer: Side


def equality_of(condition: Expression, columns: set[Column]) -> Equality | None:
    """The condition, if it is such an equality; ``columns``: those of the relation."""
    if not isinstance(condition, Call) or condition.operation.name != "=":
        return None
    takes = condition.operation.takes
    both = "CHAR" in (one.name for one in takes) and TEXT not in takes
    sides = [
        Side(value, type_, both or type_.name == "CHAR")
        for value, type_ in zip(condition.arguments, takes, strict=True)
    ]
    own = [columns_of(side.value) for side in sides]
    for inner, outer in ((0, 1), (1, 0)):
        if own[inner] and own[inner] <= columns and not own[outer] & columns:
            return Equality(sides[inner], sides[outer])
    return None


def sort_key(term: Term, type_: ColumnType, nulls_last: bool) -> str:
    """Code that sorts as the value does; ``nulls_last``: NULL above all values."""
    key = term.code
    if type_.name == "DOUBLE":
        key = f"({key} != {key}, {key})"
    elif type_.name == "INTERVAL":
        key = f"{key}.length()"
    elif type_.name == "CHAR":
        key = f"{key}.rstrip(' ')"
    if not term.nullable:
        return key
    return f"(({not nulls_last}, {key}) if {term.code} is not None else ({nulls_last},))"


def _unless_null(term: Term, code: str) -> str:
    return f"(None if {term.code} is None else {code})" if term.nullable else code


def sort_rows(rows: list[Any], first: int, descending: Sequence[bool]) -> None:
    """Sort rows by their fields from ``first`` on, each of which may descend."""
    if len(set(descending)) == 1:
        count = len(descending)
        key: Any = itemgetter(first) if count == 1 else itemgetter(slice(first, first + count))
        rows.sort(key=key, reverse=descending[0])
        return
    for n in range(len(descending) - 1, -1, -1):
        rows.sort(key=itemgetter(first + n), reverse=descending[n])


def sorter(first: int, descending: Sequence[bool]) -> Any:
    return partial(sort_rows, first=first, descending=tuple(descending))
