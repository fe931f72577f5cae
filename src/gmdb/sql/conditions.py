"""Three-valued logic and what chooses between values: AND, OR, IN, BETWEEN, CASE, COALESCE, NULLIF, GREATEST.

What PostgreSQL may leave unevaluated is left unevaluated here, in the same order: no division by zero comes out of
the branch that was not taken.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from sqlglot import exp

from gmdb.format.columns import ColumnType
from gmdb.sql import operators
from gmdb.sql.code import Captured, Term, Writer, described, ill_typed
from gmdb.sql.operators import comparable, compare
from gmdb.sql.types import BOOLEAN, DOUBLE, INTEGERS, TEXT

Thunk = Callable[[], Term]


def truth(writer: Writer, term: Term, what: str) -> Term:
    """A term that must be a boolean."""
    if term.type is not None and term.type != BOOLEAN:
        ill_typed(f"{what} takes a boolean, not {described(term)}", term.node, "Compare it with something")
    return writer.typed(term, BOOLEAN)


def connect(writer: Writer, parts: Sequence[Thunk], absorbing: bool, node: exp.Expr) -> Term:
    """AND (whose absorbing value is False) or OR (True), from left to right until the value is clear."""
    what = "OR" if absorbing else "AND"
    kept: list[Captured] = []
    for part in parts:
        captured = writer.capture(lambda part=part: truth(writer, part(), what))  # type: ignore[misc]
        term = captured.term
        if term.constant and term.value is absorbing:
            # What stands before it is not evaluated either, but its constants have been.
            for one in kept:
                writer.failures.extend(one.failures)
            return writer.constant(absorbing, BOOLEAN, node)
        if not (term.constant and term.value is (not absorbing)):
            kept.append(captured)
    if not kept:
        return writer.constant(not absorbing, BOOLEAN, node)
    first = writer.place(kept[0])
    if len(kept) == 1:
        return replace(first, node=node)
    if all(one.term.constant for one in kept):
        for one in kept[1:]:
            writer.failures.extend(one.failures)
        return writer.constant(None, BOOLEAN, node)
    result = writer.assign(first.code, BOOLEAN, node)
    for captured in kept[1:]:

        def add(captured: Captured = captured) -> None:
            term = writer.place(captured)
            if term.constant:  # it is NULL: other constants are not kept
                writer.emit(f"{result.code} = None")
                return
            writer.emit(f"if {term.code} is {absorbing}: {result.code} = {absorbing}")
            writer.emit(f"elif {term.code} is None: {result.code} = None")

        writer.when(f"{result.code} is not {absorbing}", add)
    nullable = any(captured.term.nullable for captured in kept)
    return replace(result, nullable=nullable)


def inverted(writer: Writer, term: Term, node: exp.Expr) -> Term:
    return writer.apply("not {0}", [truth(writer, term, "NOT")], BOOLEAN, node)


def is_null(writer: Writer, term: Term, negate: bool, node: exp.Expr) -> Term:
    if term.unknown == "parameter":
        return Term(writer.assign(f"{term.code} is {'not ' * negate}None", BOOLEAN, node).code, BOOLEAN, node, False)
    made = writer.apply(f"({{0}} is {'not ' * negate}None)", [term], BOOLEAN, node, strict=False)
    return replace(made, nullable=False)


def is_truth(writer: Writer, term: Term, wanted: bool, node: exp.Expr) -> Term:
    """IS TRUE, IS FALSE."""
    made = writer.apply(f"({{0}} is {wanted})", [truth(writer, term, "IS")], BOOLEAN, node, strict=False)
    return replace(made, nullable=False)


def between(writer: Writer, term: Term, low: Thunk, high: Thunk, symmetric: bool, node: exp.Expr) -> Term:
    def inside(one: Thunk, other: Thunk) -> Thunk:
        return lambda: connect(
            writer,
            [
                lambda: compare(writer, ">=", term, one(), node),
                lambda: compare(writer, "<=", term, other(), node),
            ],
            False,
            node,
        )

    if not symmetric:
        return inside(low, high)()
    return connect(writer, [inside(low, high), inside(high, low)], True, node)


def compare_rows(writer: Writer, symbol: str, left: Sequence[Term], right: Sequence[Term], node: exp.Expr) -> Term:
    """(a, b) < (c, d): from the left, the first pair that differs decides."""
    if len(left) != len(right):
        ill_typed(f"rows of {len(left)} and {len(right)} values cannot be compared", node)

    def pair(at: int, sign: str) -> Thunk:
        return lambda: compare(writer, sign, left[at], right[at], node)

    if symbol in ("==", "!="):
        return connect(writer, [pair(at, symbol) for at in range(len(left))], symbol == "!=", node)

    def decided(at: int) -> Term:
        if at == len(left) - 1:
            return pair(at, symbol)()
        equal: list[Thunk] = [pair(at, "=="), lambda: decided(at + 1)]
        return connect(writer, [pair(at, symbol[0]), lambda: connect(writer, equal, False, node)], True, node)

    return decided(0)


def in_list(writer: Writer, term: Term, items: Sequence[Thunk], node: exp.Expr) -> Term:
    """Constants and parameters are looked up at once; other items are compared one by one, as far as needed."""
    captured = [writer.capture(item) for item in items]
    terms = [one.term for one in captured]
    shared = operators.common([term, *terms], "IN", node)
    fixed = [one for one in captured if one.term.constant or one.term.unknown]
    others = [one for one in captured if not (one.term.constant or one.term.unknown)]
    parts: list[Thunk] = []
    if fixed:
        parts.append(lambda: _member(writer, term, [writer.place(one) for one in fixed], shared or TEXT, node))
    parts += [
        lambda one=one: compare(writer, "==", term, writer.place(one), node)  # type: ignore[misc]
        for one in others
    ]
    return connect(writer, parts, True, node)


def _member(writer: Writer, term: Term, items: list[Term], shared: ColumnType, node: exp.Expr) -> Term:
    """Whether one of the items equals the term."""
    term = writer.typed(term, shared) if term.type is None else term
    pairs = [comparable(writer, term, writer.typed(item, shared), "=", node) for item in items]
    left, rights = pairs[0][0], [right for _, right in pairs]
    if all(right.constant for right in rights) and left.type != DOUBLE:
        values = frozenset(right.value for right in rights if right.value is not None)
        has_null = any(right.value is None for right in rights)
        otherwise = "None" if has_null else "False"
        made = writer.apply(f"(True if {{0}} in {writer.bind(values)} else {otherwise})", [left], BOOLEAN, node)
        return replace(made, nullable=left.nullable or has_null)
    return writer.call(_find, [left, *rights], BOOLEAN, node, strict=False)


def _find(value: Any, *values: Any) -> bool | None:
    """Whether one of the values equals the first; NaN equals itself."""
    if value is None:
        return None
    if value in values or (value != value and any(one != one for one in values)):
        return True
    return None if None in values else False


def case(
    writer: Writer, subject: Term | None, branches: Sequence[tuple[Thunk, Thunk]], default: Thunk, node: exp.Expr
) -> Term:
    """Both forms of CASE.  ``branches``: conditions, or values that the subject is compared with, and results."""
    kept: list[tuple[Captured | None, Captured]] = []
    types: list[Term] = []
    dropped: list[Term] = []
    over = False
    for condition, result in branches:
        tested = writer.capture(lambda c=condition: _tested(writer, subject, c(), node))  # type: ignore[misc]
        chosen = writer.capture(result)
        types.append(chosen.term)
        if over or (tested.term.constant and tested.term.value is not True):
            dropped.append(chosen.term)
            continue
        over = tested.term.constant
        kept.append((None if over else tested, chosen))
    last = writer.capture(default)
    if over:
        dropped.append(last.term)
    else:
        kept.append((None, last))
    # PostgreSQL looks at the default first.
    type_ = operators.common([last.term, *types], "CASE", node)
    _check(writer, dropped, type_)
    return _first_true(writer, kept, type_, node)


def _check(writer: Writer, dropped: Sequence[Term], type_: ColumnType | None) -> None:
    """What is never evaluated must still have the type of the rest."""
    for term in dropped:
        writer.capture(lambda term=term: writer.typed(term, type_ or TEXT))  # type: ignore[misc]


def _tested(writer: Writer, subject: Term | None, condition: Term, node: exp.Expr) -> Term:
    if subject is None:
        return truth(writer, condition, "CASE WHEN")
    return compare(writer, "==", subject, condition, node)


def _first_true(
    writer: Writer, kept: Sequence[tuple[Captured | None, Captured]], type_: ColumnType | None, node: exp.Expr
) -> Term:
    target = type_ or TEXT
    if kept[0][0] is None:
        return _as(writer, writer.place(kept[0][1]), target, type_ is None)
    result = writer.assign("pending", target if type_ else _null_or_text(kept), node)
    for condition, chosen in kept:

        def choose(chosen: Captured = chosen) -> None:
            term = _as(writer, writer.place(chosen), target, False)
            writer.emit(f"{result.code} = {term.code}")

        def test(condition: Captured | None = condition, choose: Callable[[], None] = choose) -> None:
            if condition is None:
                choose()
            else:
                writer.when(writer.place(condition).code, choose)

        writer.when(f"{result.code} is pending", test)
    return result


def _null_or_text(kept: Sequence[tuple[Captured | None, Captured]]) -> ColumnType | None:
    return None if all(chosen.term.unknown == "null" for _, chosen in kept) else TEXT


def _as(writer: Writer, term: Term, type_: ColumnType, keep_unknown: bool) -> Term:
    return term if keep_unknown and term.unknown else writer.typed(term, type_)


def coalesce(writer: Writer, items: Sequence[Thunk], node: exp.Expr) -> Term:
    """The first that is not NULL; the others are not evaluated."""
    captured = [writer.capture(item) for item in items]
    type_ = operators.common([one.term for one in captured], "COALESCE", node)
    target = type_ or TEXT
    _check(writer, [one.term for one in captured], type_)
    kept: list[Captured] = []
    for one in captured:
        if one.term.constant and one.term.value is None:
            continue
        kept.append(one)
        if one.term.constant:
            break
    if not kept:
        return writer.constant(None, type_, node, "" if type_ else "null")
    first = writer.typed(writer.place(kept[0]), target)
    if len(kept) == 1:
        return replace(first, node=node)
    result = writer.assign(first.code, target, node)
    nullable = first.nullable
    for one in kept[1:]:

        def take(one: Captured = one) -> None:
            nonlocal nullable
            term = writer.typed(writer.place(one), target)
            nullable = nullable and term.nullable
            writer.emit(f"{result.code} = {term.code}")

        writer.when(f"{result.code} is None", take)
    return replace(result, nullable=nullable)


def nullif(writer: Writer, term: Term, other: Term, node: exp.Expr) -> Term:
    """The type is that of the first as = takes it: integers stay as they are, texts become text."""
    if term.type is None:
        term = writer.typed(term, other.type or TEXT)
    elif other.type is not None and not {term.type.name, other.type.name} <= {*INTEGERS, "DATE", "TIMESTAMP"}:
        shared = operators.common([term, other], "NULLIF", node)
        assert shared is not None
        shared = TEXT if TEXT in (term.type, other.type) else shared
        term = writer.typed(term, shared)
    if term.type is not None and term.type.name == "VARCHAR":
        term = replace(term, type=TEXT)
    equal = compare(writer, "==", term, other, node)
    assert term.type is not None
    if any(one.constant and one.value is None for one in (term, equal)):
        return replace(term, node=node)
    return writer.apply("None if {1} else {0}", [term, equal], term.type, node, strict=False)


def extreme(writer: Writer, terms: Sequence[Term], largest: bool, node: exp.Expr) -> Term:
    """GREATEST and LEAST: NULLs do not take part."""
    type_ = operators.common(list(terms), "GREATEST" if largest else "LEAST", node) or TEXT
    values = [writer.typed(term, type_) for term in terms]
    function = _EXTREMES[largest, type_.name if type_.name in ("DOUBLE", "CHAR", "INTERVAL") else ""]
    return writer.call(function, values, type_, node, strict=False)


def _extreme(largest: bool, key: Callable[[Any], Any] | None) -> Callable[..., Any]:
    choose: Any = max if largest else min
    return lambda *values: choose([value for value in values if value is not None], default=None, key=key)


_KEYS: dict[str, Callable[[Any], Any] | None] = {
    "": None,
    "DOUBLE": lambda value: (value != value, value),
    "CHAR": lambda value: value.rstrip(" "),
    "INTERVAL": lambda value: value.length(),
}
_EXTREMES = {(largest, kind): _extreme(largest, key) for largest in (True, False) for kind, key in _KEYS.items()}
