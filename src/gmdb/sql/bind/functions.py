"""Functions: calls by name, and the syntaxes of their own that PostgreSQL has for some of them.

A call is a name and arguments: which operation that is, their types say (operations/).  Known here are those whose
arguments are not evaluated as those of functions are, and those that ask for the time.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sqlglot import exp

from gmdb.errors import IllTyped, NoSuchFunction, UnsupportedExpression
from gmdb.sql import operations
from gmdb.sql.bind.coercion import apply, same_type
from gmdb.sql.bind.expressions import Handler, bind, handles, now
from gmdb.sql.dialect import place
from gmdb.sql.syntax import Syntax
from gmdb.sql.tree import Coalesce, Constant, Expression
from gmdb.sql.types import TEXT, pg_name

if TYPE_CHECKING:
    from gmdb.sql.bind.binder import Binder
    from gmdb.sql.bind.scope import Scope

SPECIAL: dict[str, Handler] = {}  # by name; given the call, of which the name is taken
_NAMES = frozenset(operations.names())
_DIGITS_OF_TIME = "6"
_TRIMS = {"LEADING": "ltrim", "TRAILING": "rtrim", "BOTH": "btrim", "": "btrim"}


def special(*names: str) -> Callable[[Handler], Handler]:
    """Register the handler of functions that are more than an operation."""

    def register(handler: Handler) -> Handler:
        SPECIAL.update(dict.fromkeys(names, handler))
        return handler

    return register


@handles(exp.Anonymous)
def _call(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = syntax.need("this", "a name")
    name = name.name if isinstance(name, exp.Identifier) else str(name).lower()
    handler = SPECIAL.get(name)
    if handler is not None:
        return handler(binder, syntax, scope)
    if name not in _NAMES:
        raise no_function(name, syntax.node)
    return apply(binder, name, _arguments(binder, syntax, scope, "expressions"), syntax.node)


def no_function(name: str, node: exp.Expr) -> NoSuchFunction:
    """The error for a function that there is not."""
    names = sorted(_NAMES | SPECIAL.keys())
    close = get_close_matches(name, names, 1)
    hint = f"Did you mean {close[0]}?" if close else f"The functions are {', '.join(names)}"
    return NoSuchFunction(f"there is no function {name}", *place(node), hint)


def _arguments(binder: Binder, syntax: Syntax, scope: Scope, *parts: str) -> list[Expression]:
    return [bind(binder, one, scope) for part in parts for one in syntax.list(part)]


# ---- functions that are more than an operation


@special("coalesce")
def _coalesce(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    arguments = _arguments(binder, syntax, scope, "expressions")
    if not arguments:
        raise IllTyped("coalesce takes at least one value", *place(syntax.node))
    values, type_ = same_type(binder, arguments, "COALESCE", syntax.node)
    return Coalesce(type_, tuple(values))


@special("pg_typeof")
def _type_of(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    arguments = _arguments(binder, syntax, scope, "expressions")
    if len(arguments) != 1:
        raise IllTyped("pg_typeof takes one value", *place(syntax.node))
    return Constant(TEXT, pg_name(arguments[0].type))


@special("now", "current_timestamp", "localtimestamp")
def _now(binder: Binder, syntax: Syntax, _scope: Scope) -> Expression:
    digits = [one.name if isinstance(one, exp.Literal) else "?" for one in syntax.list("expressions")]
    if digits and (digits != [_DIGITS_OF_TIME] or syntax.node.name.lower() == "now"):
        raise UnsupportedExpression("the current time has six digits", *place(syntax.node), "Write it without a number")
    return now(binder)


# ---- syntaxes of their own


@handles(exp.Extract)
def _extract(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    field = syntax.need("this", "a field")
    if not isinstance(field, exp.Var | exp.Literal | exp.Column):
        raise UnsupportedExpression("extract takes the name of a field, such as year", *place(field))
    value = bind(binder, syntax.need("expression", "a time"), scope)
    return apply(binder, "extract", [Constant(TEXT, field.name.lower()), value], syntax.node)


_SYNTAXES: dict[type, tuple[str, ...]] = {  # the function's name, and the parts that are its arguments
    exp.StrPosition: ("strpos", "this", "substr"),
    exp.Substring: ("substring", "this", "start", "length"),
    exp.Overlay: ("overlay", "this", "expression", "from_", "for_"),
    exp.StartsWith: ("starts_with", "this", "expression"),  # text ^@ start
}


@handles(*_SYNTAXES)
def _spelt(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name, *parts = _SYNTAXES[type(syntax.node)]
    return apply(binder, name, _arguments(binder, syntax, scope, *parts), syntax.node)


@handles(exp.Trim)
def _trim(binder: Binder, syntax: Syntax, scope: Scope) -> Expression:
    name = _TRIMS[syntax.word("position", "LEADING", "TRAILING", "BOTH")]
    return apply(binder, name, _arguments(binder, syntax, scope, "this", "expression"), syntax.node)
