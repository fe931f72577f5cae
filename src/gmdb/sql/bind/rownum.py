"""rownum: the number of a row, in the order in which rows are found.

A row gets its number when it has met all other conditions, and the numbers have no gaps.  So a condition on rownum says
how many rows there are: ``rownum <= 3`` is a limit, and ``rownum = 2`` is never met, for no row is the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import UnsupportedExpression
from gmdb.sql import tree
from gmdb.sql.bind.coercion import apply, coerce, comparison, convert, is_open, operator
from gmdb.sql.bind.expressions import bind, condition
from gmdb.sql.bind.scope import ROWNUM, Scope
from gmdb.sql.dialect import place
from gmdb.sql.names import folded
from gmdb.sql.tree import Case, Coalesce, Constant, Expression
from gmdb.sql.types import BIGINT, is_number

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder

_MANY = 1 << 62  # rows, more than there ever are; a DOUBLE is exactly that
_MIRRORED: dict[type, type] = {exp.LT: exp.GT, exp.LTE: exp.GTE, exp.GT: exp.LT, exp.GTE: exp.LTE, exp.EQ: exp.EQ}


def names_rownum(node: exp.Expr) -> bool:
    """Whether an expression names rownum, not counting queries within it."""
    pending = [node]
    while pending:
        part = pending.pop()
        if _is_rownum(part):
            return True
        if not isinstance(part, exp.Column | exp.Query):
            pending += list(part.iter_expressions())
    return False


def _is_rownum(node: exp.Expr) -> bool:
    if not isinstance(node, exp.Column) or node.args.get("table") is not None:
        return False
    return isinstance(node.this, exp.Identifier) and folded(node.this) == ROWNUM


def split_rownum(binder: Binder, where: exp.Expr, scope: Scope) -> tuple[Expression | None, Expression]:
    """A WHERE as the conditions without rownum, and the number of rows that the others let through."""
    plain, amounts = [], []
    for term in _terms(where):
        if names_rownum(term):
            amounts.append(_amount(binder, term, scope))
        else:
            plain.append(condition(binder, term, scope))
    amount = amounts[0] if len(amounts) == 1 else apply(binder, "least", amounts, where)
    return tree.conjunction(plain), amount


def _terms(where: exp.Expr) -> list[exp.Expr]:
    """The parts that AND joins, from the left."""
    terms: list[exp.Expr] = []
    pending = [where]
    while pending:
        node = pending.pop()
        if isinstance(node, exp.Paren):
            pending.append(node.this)
        elif isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            terms.append(node)
    return terms


def _amount(binder: Binder, term: exp.Expr, scope: Scope) -> Expression:
    """How many rows a condition on rownum lets through: a BIGINT of at least 0."""

    def number(node: exp.Expr) -> Expression:
        value = bind(binder, node, Scope(None, scope.views))
        if is_open(value):
            value = coerce(binder, value, BIGINT, node)
        return value if is_number(value.type) else coerce(binder, value, BIGINT, node)

    if isinstance(term, exp.Between) and _is_rownum(term.this) and not term.args.get("symmetric"):
        last = _bound(binder, exp.LTE, number(term.args["high"]), term)
        return _if(comparison(binder, "<=", number(term.args["low"]), Constant(BIGINT, 1), term), last)
    kind: type = type(term)
    if kind in _MIRRORED:
        left, right = term.this, term.expression
        if _is_rownum(right):
            left, right, kind = right, left, _MIRRORED[kind]
        if _is_rownum(left) and not names_rownum(right):
            return _bound(binder, kind, number(right), term)
    hint = "Use it in a query in FROM"
    raise UnsupportedExpression(
        "rownum can be compared with a value by <, <=, =, >=, > and BETWEEN, joined with AND", *place(term), hint
    )


def _bound(binder: Binder, kind: type, value: Expression, node: exp.Expr) -> Expression:
    """How many rows ``rownum < value`` and the like let through; of NULL, none."""
    one = Constant(BIGINT, 1)
    if kind is exp.EQ:
        return _if(comparison(binder, "=", value, one, node), one)
    if kind in (exp.GT, exp.GTE):
        symbol = "<" if kind is exp.GT else "<="
        return _if(comparison(binder, symbol, value, one, node), Constant(BIGINT, _MANY))
    is_open_end = kind is exp.LT
    whole = value
    if value.type.name in ("DECIMAL", "DOUBLE"):
        whole = apply(binder, "ceil" if is_open_end else "floor", [value], node)
    low, high = Constant(BIGINT, int(is_open_end)), Constant(BIGINT, _MANY)
    whole = apply(binder, "least", [apply(binder, "greatest", [whole, low], node), high], node)
    count = convert(binder, whole, BIGINT, node)
    if is_open_end:
        count = operator(binder, "-", count, one, node)
    zero = Constant(BIGINT, 0)
    # NULL is below nothing, though greatest and least pass over it.
    is_null = apply(binder, "is_null", [value], node)
    return Case(BIGINT, ((is_null, zero),), Coalesce(BIGINT, (count, zero)))


def _if(test: Expression, amount: Expression) -> Expression:
    return Case(BIGINT, ((test, amount),), Constant(BIGINT, 0))
