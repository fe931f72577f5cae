"""rownum: the number of a row in the result, before it is ordered.

A row gets its number when it has met all other conditions, and the numbers have no gaps.  So a condition on rownum
says how many rows there are: ``rownum <= 3`` is a limit, and ``rownum = 2`` is never met, for no row is the first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import UnsupportedExpression
from gmdb.sql.duck.casts import coerce
from gmdb.sql.duck.expressions import bind, condition
from gmdb.sql.duck.scope import ROWNUM, Scope, folded, spot
from gmdb.sql.duck.types import DOUBLE

if TYPE_CHECKING:
    from gmdb.sql.duck.query import Statement

_ALL = str((1 << 63) - 1)
_MIRRORED: dict[type[exp.Expr], type[exp.Expr]] = {
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.EQ: exp.EQ,
}
_AMOUNTS: dict[type[exp.Expr], str] = {
    exp.LT: "ceil({0}) - 1",
    exp.LTE: "floor({0})",
    exp.EQ: "CASE WHEN {0} = 1 THEN 1 ELSE 0 END",
    exp.GTE: "CASE WHEN {0} <= 1 THEN " + _ALL + " ELSE 0 END",
    exp.GT: "CASE WHEN {0} < 1 THEN " + _ALL + " ELSE 0 END",
}


def uses_rownum(node: exp.Expr, scope: Scope) -> bool:
    """Whether a query's own clauses name rownum, and no table has such a column."""
    if any(column.name == ROWNUM for column in scope.visible):
        return False
    clauses = [*node.expressions, *(node.args.get(key) for key in ("where", "group", "having", "order"))]
    return any(_names_rownum(clause) for clause in clauses if clause is not None)


def _is_rownum(node: exp.Expr) -> bool:
    return isinstance(node, exp.Column) and node.args.get("table") is None and folded(node.this) == ROWNUM


def _names_rownum(node: exp.Expr) -> bool:
    pending = [node]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.Column):
            if not isinstance(part.this, exp.Star) and _is_rownum(part):
                return True
        elif not isinstance(part, exp.Query):
            pending += list(part.iter_expressions())
    return False


def split_rownum(statement: Statement, where: exp.Expr | None, scope: Scope) -> tuple[str, str]:
    """A WHERE as the conditions without rownum and the LIMIT that the others make."""
    terms = list(where.flatten()) if isinstance(where, exp.And) else [] if where is None else [where]
    plain = [term for term in terms if not _names_rownum(term)]
    amounts = [_amount(statement, term.unnest(), scope) for term in terms if _names_rownum(term)]
    rest = " AND ".join(condition(statement, term, scope) for term in plain)
    if not amounts:
        return rest, ""
    return rest, f" LIMIT CAST(greatest(0, least({', '.join(amounts)}, {_ALL})) AS BIGINT)"


def _amount(statement: Statement, term: exp.Expr, scope: Scope) -> str:
    """How many rows a condition on rownum lets through."""

    def value(node: exp.Expr) -> str:
        return coerce(bind(statement, node, scope), DOUBLE, node).sql

    if isinstance(term, exp.Between) and _is_rownum(term.this):
        low, high = value(term.args["low"]), value(term.args["high"])
        return f"CASE WHEN {low} <= 1 THEN floor({high}) ELSE 0 END"
    kind = type(term)
    if kind in _MIRRORED:
        left, right = term.this, term.expression
        if _is_rownum(right):
            left, right, kind = right, left, _MIRRORED[kind]
        if _is_rownum(left) and right.find(exp.Column) is None:
            return "(" + _AMOUNTS[kind].format(value(right)) + ")"
    raise UnsupportedExpression(
        "rownum can be compared with a value by <, <=, =, >=, > and BETWEEN, joined with AND", *spot(term)
    )
