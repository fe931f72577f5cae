"""What sqlglot accepts although PostgreSQL does not, and what it drops without an error.

 1. Commas too many, and clauses that were not finished.
 2. Clauses that its parser drops, so that no reader of its tree could know of them: ``ROLLBACK AND CHAIN`` is read as
    ROLLBACK.  The tree is written out as SQL again; a word of the statement that is not there was dropped, unless it
    is one of the few that mean nothing where they stand.
What its tree has and the binder does not take is refused elsewhere (syntax.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from sqlglot import exp
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from gmdb.errors import InvalidSyntax, UnsupportedExpression
from gmdb.process.late_patterns import late_pattern

# Words with which no statement ends.
_OPEN = frozenset(
    {
        *("and", "as", "between", "by", "case", "distinct", "else", "except", "fetch", "from", "group", "having", "in"),
        *("insert", "intersect", "into", "is", "join", "like", "limit", "not", "offset", "on", "or", "order"),
        *("select", "set", "then", "union", "using", "values", "when", "where", "with"),
    }
)
# Words that PostgreSQL reserves: nothing is called by them, unless they are quoted.
_RESERVED = _OPEN | {
    *("all", "analyse", "analyze", "any", "array", "asc", "asymmetric", "authorization", "binary", "both", "cast"),
    *("check", "collate", "collation", "column", "concurrently", "constraint", "create", "cross", "current_catalog"),
    *("current_date", "current_role", "current_schema", "current_time", "current_timestamp", "current_user"),
    *("default", "deferrable", "desc", "do", "end", "false", "fetch", "for", "foreign", "freeze", "full", "grant"),
    *("ilike", "initially", "inner", "isnull", "lateral", "leading", "left", "localtime", "localtimestamp", "natural"),
    *("notnull", "null", "only", "outer", "overlaps", "placing", "primary", "references", "returning", "right"),
    *("session_user", "similar", "some", "symmetric", "table", "tablesample", "to", "trailing", "true", "unique"),
    *("user", "variadic", "verbose", "window"),
}
_NAME = late_pattern(r"[^\W\d][\w$]*")  # what is not quoted; the parser takes numbers and pairs of words, too
# What any word may name behind AS; and columns, as which the parser reads DEFAULT and the like.
_OF_ANY_WORD = (exp.Alias, exp.Column)
# Clauses of a query, by the place that each has among them; those of the same place come in any order.
_PLACES = {
    **dict.fromkeys((TokenType.SELECT, TokenType.VALUES, TokenType.SET), 0),
    **dict.fromkeys((TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT), 0),
    TokenType.FROM: 1,
    TokenType.WHERE: 2,
    TokenType.GROUP_BY: 3,
    TokenType.HAVING: 4,
    TokenType.WINDOW: 5,
    TokenType.ORDER_BY: 6,
    **dict.fromkeys((TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH, TokenType.FOR), 7),
    TokenType.RETURNING: 8,
}
SET_TOKENS = (TokenType.UNION, TokenType.INTERSECT, TokenType.EXCEPT)
_LATER = frozenset(kind for kind, place in _PLACES.items() if place > 1) | {*SET_TOKENS, TokenType.JOIN}
_WITHOUT_LIST = (TokenType.WHERE, TokenType.HAVING, TokenType.LIMIT, TokenType.OFFSET, TokenType.FETCH)
# Words that the parser never drops: statements of these, of names and of literals only need not be written out.
_KEPT = frozenset(
    {
        *("and", "as", "asc", "between", "by", "case", "cross", "delete", "desc", "else", "end", "exists", "false"),
        *("from", "group", "having", "in", "inner", "insert", "into", "is", "join", "left", "like", "not", "null"),
        *(
            "default",
            "limit",
            "offset",
            "on",
            "or",
            "over",
            "partition",
            "returning",
            "union",
            "with",
            "order",
            "outer",
            "right",
            "select",
            "set",
            "then",
            "true",
            "update",
            "using",
        ),
        *("values", "when", "where"),
    }
)
# Words that may go, because the tree says the same without them.
_NOISE = frozenset(
    {
        *("asc", "both", "column", "inner", "isnull", "leading", "notnull", "outer", "savepoint", "some", "trailing"),
        *("transaction", "trim", "unknown", "work"),
        *("precision", "time", "varying", "without", "zone"),  # of types' names
    }
)
_STRINGS = frozenset(
    (TokenType.STRING, TokenType.HEREDOC_STRING, TokenType.HEX_STRING, TokenType.BYTE_STRING, TokenType.RAW_STRING)
)
_TWO_TEXTS = (TokenType.STRING, TokenType.STRING)
_SILENT = _STRINGS | {
    *(
        TokenType.COMMA,
        TokenType.L_PAREN,
        TokenType.R_PAREN,
        TokenType.NUMBER,
        TokenType.IDENTIFIER,
        TokenType.SEMICOLON,
    )
}
_SETS = frozenset({"union", "intersect", "except"})
_WORDS_MAX = 1000  # among which a lost one is looked for first
_COUNT_LENGTH_MAX = 8  # tokens between FETCH or OFFSET and ROWS
_UNITS = frozenset({"year", "month", "day", "hour", "minute", "second"})
_ENDS = (TokenType.COMMA, TokenType.R_PAREN, TokenType.FROM, TokenType.WHERE, TokenType.SEMICOLON)
_NEVER_PAIRS = frozenset(
    {
        *((TokenType.COMMA, end) for end in _ENDS),
        *((TokenType.ALIAS, end) for end in _ENDS),
        *((begin, TokenType.ALIAS) for begin in (TokenType.SELECT, TokenType.COMMA, TokenType.L_PAREN)),
        (TokenType.L_PAREN, TokenType.COMMA),
        (TokenType.SELECT, TokenType.COMMA),
        (TokenType.ALIAS, TokenType.STRING),
        (TokenType.INTO, TokenType.ONLY),
    }
)
_NEVER_TRIPLES = frozenset(
    {
        (TokenType.R_PAREN, TokenType.L_PAREN, TokenType.R_PAREN),
        (TokenType.L_PAREN, TokenType.ALL, TokenType.STAR),
        (TokenType.INTO, TokenType.VAR, TokenType.STAR),
        (TokenType.INTO, TokenType.IDENTIFIER, TokenType.STAR),
    }
)
# NOT NULL behind what values end with belongs to the definition of a column only.
_VALUES = (TokenType.VAR, TokenType.IDENTIFIER, TokenType.R_PAREN, TokenType.STRING, TokenType.NUMBER)
_NOT_NULL = frozenset((value, TokenType.NOT, TokenType.NULL) for value in _VALUES)
_DEFINITIONS = (TokenType.CREATE, TokenType.ALTER)


def require_finished(tokens: Sequence[Any], text: str) -> None:
    """Refuse tokens that do not follow each other, and a last word that cannot be the last."""
    kinds = [token.token_type for token in tokens]
    pairs = set(pairwise(kinds))
    is_suspicious = any(
        pair == _TWO_TEXTS or (pair[0] == TokenType.NUMBER and pair[1] not in _SILENT) for pair in pairs
    )
    wrong: set[tuple[Any, ...]] = set(_NEVER_PAIRS & pairs)
    triples = set(zip(kinds, kinds[1:], kinds[2:], strict=False))
    if not kinds or kinds[0] not in _DEFINITIONS:
        wrong |= {triple for triple in triples if triple in _NOT_NULL}
    wrong |= _NEVER_TRIPLES & triples
    for number, kind in enumerate(kinds[1:], 1) if wrong or is_suspicious else ():
        before, token = tokens[number - 1], tokens[number]
        pair, gap = (kinds[number - 1], kind), text[before.end + 1 : token.start]
        is_wrong = pair in wrong or (*kinds[number - 2 : number - 1], *pair) in wrong
        if pair == _TWO_TEXTS:  # literals go on in another line only
            is_wrong = "\n" not in gap
        if is_wrong or (pair[0] == TokenType.NUMBER and not gap and token.text[:1].isidentifier()):  # 1x
            raise unexpected(token)
    ends = [token for token in tokens[-4:] if token.token_type != TokenType.SEMICOLON]
    words = " ".join(token.text.lower() for token in ends)
    if not ends or words.endswith(("default values", "nulls distinct", "nulls not distinct")):
        return
    last = ends[-1]
    if last.token_type == TokenType.COMMA or _is_open(last):
        raise InvalidSyntax(f"syntax error: the statement ends with {last.text!r}", *_place(last))


def require_order(tokens: Sequence[Any]) -> None:
    """Refuse clauses out of their order, and what is listed or joined behind a clause that cannot have that."""
    if _LATER.isdisjoint(token.token_type for token in tokens):
        return
    for number, token in enumerate(tokens):
        is_name = number > 0 and tokens[number - 1].token_type in (TokenType.ALIAS, TokenType.DOT)
        if token.token_type == TokenType.WINDOW and not is_name:
            definition = [one.token_type for one in tokens[number + 2 : number + 4]]
            if definition != [TokenType.ALIAS, TokenType.L_PAREN]:
                raise InvalidSyntax("syntax error: a window is written as name AS (...)", *_place(token))
    clauses: list[Any] = [None]  # the last one at each depth of parentheses
    for before, token in pairwise([None, *tokens]):
        kind, clause = token.token_type, clauses[-1]
        if kind == TokenType.L_PAREN:
            clauses.append(None)
        elif kind == TokenType.R_PAREN:
            clauses[1:] = clauses[1:-1]
        elif kind == TokenType.SEMICOLON:
            clauses = [None]
        elif kind == TokenType.VAR and token.text.lower() == "conflict":
            clauses[-1] = None
        elif before is not None and before.token_type in (TokenType.DOT, TokenType.ALIAS, TokenType.DISTINCT):
            continue  # a name, or IS DISTINCT FROM
        elif kind in _PLACES:
            if not _may_follow(kind, clause):
                raise unexpected(token)
            clauses[-1] = kind
        elif (kind == TokenType.COMMA and clause in _WITHOUT_LIST) or (
            kind == TokenType.JOIN and _PLACES.get(clause, 0) > 1
        ):
            raise unexpected(token)


def _may_follow(kind: Any, clause: Any) -> bool:
    """Whether a clause may come after another one, at the same depth."""
    if clause is None:
        return True
    place, last = _PLACES[kind], _PLACES[clause]
    if kind in SET_TOKENS:
        return last < _PLACES[TokenType.ORDER_BY]
    return place == 0 or place > last or place == last == _PLACES[TokenType.LIMIT]


def require_whole(node: exp.Expr, nodes: Sequence[exp.Expr]) -> None:
    """Refuse statements that lack a part.  ``nodes``: all of the tree's."""
    if isinstance(node, exp.Update) and not node.expressions:
        raise InvalidSyntax("syntax error: UPDATE needs SET", 1, 1)
    if isinstance(node, exp.Delete) and not isinstance(node.this, exp.Expr):
        raise InvalidSyntax("syntax error: DELETE needs FROM", 1, 1)
    if isinstance(node, exp.Insert) and node.args.get("expression") is None and not node.args.get("default"):
        raise InvalidSyntax("syntax error: INSERT needs VALUES, a query or DEFAULT VALUES", 1, 1)
    if any(isinstance(one, exp.Select) and not one.expressions for one in nodes):
        raise InvalidSyntax("syntax error: SELECT needs a list of values", 1, 1)
    for name in (one for one in nodes if isinstance(one, exp.Identifier)):
        if name.quoted or (_NAME.fullmatch(name.name) and name.name.lower() not in _RESERVED):
            continue
        if isinstance(name.parent, _OF_ANY_WORD) and _NAME.fullmatch(name.name):
            continue
        line, column = name.meta.get("line"), name.meta.get("col")
        first = None if column is None else max(1, column - len(name.name) + 1)
        hint = f'A name that is such a word is quoted: "{name.name.lower()}"'
        raise InvalidSyntax(f"syntax error near {name.name!r}", line, first, hint)


def require_nothing_lost(
    tokens: Sequence[Any], nodes: Sequence[exp.Expr], types: frozenset[Any], write: Callable[[], Sequence[Any]]
) -> None:
    """Refuse a statement of which the parser has dropped a word.

    ``nodes``: those of its tree.  ``types``: the kinds of tokens that are names of types, which the tree
    has by other names.  ``write`` gives the tokens of the statement as the tree has it.
    """
    texts_ = (token.text.lower() for token in tokens if token.token_type not in _SILENT)
    words = {word for text in texts_ if text[:1].isalpha() for word in text.split()}
    names = list(_names(nodes))
    is_typed = any(token.token_type in types for token in tokens)
    texts = sum(1 for token in tokens if token.token_type in _STRINGS)
    if not is_typed and texts == names.count("'") and words - _KEPT <= set(names):
        return
    before, after = list(_words(tokens, types)), list(_words(write(), types))
    lost = Counter(word for word, _ in before) - Counter(word for word, _ in after)
    lost -= Counter({word: count for word, count in lost.items() if word in _NOISE})
    if not lost:
        return
    first, second = ([word for word, _ in side[:_WORDS_MAX]] for side in (before, after))
    from difflib import SequenceMatcher

    matcher = SequenceMatcher(None, first, second, autojunk=False)
    changed = [pair for kind, i, j, _, _ in matcher.get_opcodes() if kind != "equal" for pair in before[i:j]]
    token = next(token for word, token in (*changed, *before) if word in lost)
    raise UnsupportedExpression(f"{token.text[:60].upper()} is not supported here", *_place(token))


def _names(nodes: Sequence[exp.Expr]) -> Iterator[str]:
    """The names among nodes that are no keywords, and their texts, as one word each."""
    for node in nodes:
        if isinstance(node, exp.Identifier):
            yield str(node.this).lower()
        elif isinstance(node, exp.Anonymous):
            yield node.name.lower()
        elif isinstance(node, exp.Literal) and node.is_string:
            yield "'"


def _words(tokens: Sequence[Any], types: frozenset[Any]) -> Iterator[tuple[str, Any]]:
    """The words of a statement that mean something, with the tokens that they are of; literals as one word each."""
    before: Any = None
    for number, token in enumerate(tokens):
        kind, text = token.token_type, token.text.lower()
        last = before.text.lower() if before is not None else ""
        before = token
        after = tokens[number + 1].text.lower() if number + 1 < len(tokens) else ""
        if kind in _STRINGS:
            yield "'", token
        elif kind == TokenType.NUMBER:
            yield "0", token
        elif kind in types:
            if last not in ("with", "without") or after != "zone":  # WITH TIME ZONE
                yield "type", token
        elif kind != TokenType.IDENTIFIER and text[:1].isalpha():
            is_unit = text in _UNITS and number and tokens[number - 1].token_type == TokenType.STRING
            is_count = text in ("row", "rows") and any(
                one.text.lower() in ("fetch", "offset") for one in tokens[max(0, number - _COUNT_LENGTH_MAX) : number]
            )
            if not is_unit and not is_count and not _is_redundant(text, last, after):  # an interval's text has its unit
                for word in text.split():
                    yield word, token


def _is_redundant(word: str, before: str, after: str) -> bool:
    """Whether a word means nothing between these, or is part of a type's name: LIMIT ALL, UNION DISTINCT, count(ALL x),
    trim(BOTH FROM x), WITH TIME ZONE."""
    if word == "with":
        return after == "time"
    if word == "all":
        return before in ("(", "select", "limit")
    if word == "limit":
        return after == "all"
    if word in ("by", "target"):  # NOT MATCHED BY TARGET
        return (before == "matched" and after == "target") if word == "by" else before == "by"
    if word == "distinct":
        return before in _SETS
    if word in ("nulls", "first", "last"):  # the tree says where NULLs come in any case
        return after in ("first", "last") or before == "nulls"
    return word == "from" and before in ("(", "both", "leading", "trailing")


def _is_open(token: Any) -> bool:
    words = token.text.lower().split()
    is_word = token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    return is_word and bool(words) and words[-1] in _OPEN


def _place(token: Any) -> tuple[int, int]:
    return token.line, max(1, token.col - len(token.text) + 1)


def unexpected(token: Any) -> InvalidSyntax:
    return InvalidSyntax(f"syntax error near {token.text!r}", *_place(token))
