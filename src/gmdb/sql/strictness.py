"""What sqlglot reads although it is no statement of PostgreSQL's: commas too many, clauses that were not finished."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from gmdb.errors import InvalidSyntax

# Words with which no statement ends, and which no table is called by another name.
_OPEN = frozenset(
    {
        *("and", "as", "between", "by", "case", "distinct", "else", "except", "from", "group", "having", "in"),
        *("insert", "intersect", "into", "is", "join", "like", "limit", "not", "offset", "on", "or", "order"),
        *("select", "set", "then", "union", "using", "values", "when", "where", "with"),
    }
)
_NO_ALIAS = _OPEN | {"fetch", "for", "returning", "window"}
_AFTER_COMMA = (TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.SEMICOLON)


def require_finished(tokens: Sequence[Any]) -> None:
    """Refuse a comma that nothing follows, and a last word that cannot be the last."""
    for token, after in pairwise(tokens):
        if token.token_type == TokenType.COMMA and after.token_type in _AFTER_COMMA:
            raise _unexpected(after)
        if token.token_type == TokenType.L_PAREN and after.token_type == TokenType.COMMA:
            raise _unexpected(after)
    ends = [token for token in tokens[-3:] if token.token_type != TokenType.SEMICOLON]
    if not ends or " ".join(token.text.lower() for token in ends[-2:]) == "default values":
        return
    last = ends[-1]
    if last.token_type == TokenType.COMMA or _is_open(last):
        raise InvalidSyntax(f"syntax error: the statement ends with {last.text!r}", *_place(last))


def require_whole(node: exp.Expr) -> None:
    """Refuse statements that lack a part."""
    if isinstance(node, exp.Update) and not node.expressions:
        raise InvalidSyntax("syntax error: UPDATE needs SET", 1, 1)
    if isinstance(node, exp.Delete) and not isinstance(node.this, exp.Expr):
        raise InvalidSyntax("syntax error: DELETE needs FROM", 1, 1)
    if isinstance(node, exp.Insert) and node.args.get("expression") is None and not node.args.get("default"):
        raise InvalidSyntax("syntax error: INSERT needs VALUES, a query or DEFAULT VALUES", 1, 1)
    if any(not query.expressions for query in node.find_all(exp.Select)):
        raise InvalidSyntax("syntax error: SELECT needs a list of values", 1, 1)
    for alias in node.find_all(exp.TableAlias):
        name = alias.this
        if isinstance(name, exp.Identifier) and not name.quoted and name.name.lower() in _NO_ALIAS:
            line, column = name.meta.get("line"), name.meta.get("col")
            first = None if column is None else max(1, column - len(name.name) + 1)
            raise InvalidSyntax(f"syntax error near {name.name!r}", line, first)


def _is_open(token: Any) -> bool:
    words = token.text.lower().split()
    is_word = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    return is_word and bool(words) and words[-1] in _OPEN


def _place(token: Any) -> tuple[int, int]:
    return token.line, max(1, token.col - len(token.text) + 1)


def _unexpected(token: Any) -> InvalidSyntax:
    return InvalidSyntax(f"syntax error near {token.text!r}", *_place(token))
