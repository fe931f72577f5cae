"""PostgreSQL's dialect as gmdb reads it: sqlglot's, with what it forgets about a text.

sqlglot's tree has no place for some nodes and no order for ``?``; here every parameter has its number (from 0, in
the order of the text) and its place.  Three readings of sqlglot's lose something and are done anew: the text of an
interval is kept whole, ``date_part`` is not taken for ``extract``, whose type is another, and in
``date '2024-01-01'::text`` the cast is that of the date.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.postgres import Postgres
from sqlglot.errors import ParseError, SqlglotError
from sqlglot.tokens import TokenType  # type: ignore[attr-defined]

from gmdb.errors import Error, InvalidSyntax
from gmdb.sql.strictness import require_finished, require_nothing_lost, require_order, require_whole

logging.getLogger("sqlglot").setLevel(logging.ERROR)  # what it cannot parse is told by an error of ours
_INTERNALS = re.compile(r" but got <Token.*>| for <class .*>|^Required keyword: ")  # of sqlglot's messages
_SYNTAXES = ("CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "TRIM")  # of calls with words between arguments
NUMBER = "gmdb_number"  # of a ``?``, in node.meta
UNKNOWN = "unknown"  # in the meta of a Null that was written so


class GmdbSql(Postgres):
    """The dialect of gmdb's statements."""

    class Tokenizer(Postgres.Tokenizer):
        """A tokenizer that tells large objects from bytes and texts that rows keep themselves."""

        # A question mark is a parameter, whatever follows it.
        KEYWORDS: ClassVar[dict[str, Any]] = {
            **{word: kind for word, kind in Postgres.Tokenizer.KEYWORDS.items() if "?" not in word},
            "BLOB": TokenType.BLOB,
            "CLOB": TokenType.LONGTEXT,
        }

    class Parser(Postgres.Parser):  # type: ignore[misc, valid-type]
        """A parser that keeps places, the order of parameters and the text of intervals."""

        FUNCTIONS: ClassVar[dict[str, Any]] = {}  # what a call means is not for the parser to say
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Postgres.Parser.FUNCTION_PARSERS[name] for name in _SYNTAXES
        }
        NO_PAREN_FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: Postgres.Parser.NO_PAREN_FUNCTION_PARSERS[name] for name in ("ANY", "CASE")
        }

        def _parse_placeholder(self) -> Any:
            token, before = self._curr, self._index
            node = super()._parse_placeholder()
            if isinstance(node, exp.Placeholder) and token is not None:
                node.update_positions(token)
                if token.token_type == TokenType.PLACEHOLDER:
                    node.meta[NUMBER] = self._numbers()[before]
            return node

        def _numbers(self) -> dict[int, int]:
            """The numbers of the question marks, by where they stand among the tokens."""
            kept = getattr(self, "_numbered", None)
            if kept is None or kept[0] is not self._tokens:
                places = (at for at, t in enumerate(self._tokens) if t.token_type == TokenType.PLACEHOLDER)
                kept = self._numbered = (self._tokens, {at: number for number, at in enumerate(places)})
            found: dict[int, int] = kept[1]
            return found

        def _parse_interval(self, require_interval: bool = True, parse_function_unit: bool = True) -> Any:
            start = self._index
            if self._match(TokenType.INTERVAL) and self._match(TokenType.STRING):
                text = exp.Literal.string(self._prev.text).update_positions(self._prev)
                unit = self._parse_var(any_token=True, upper=True) if self._at_unit() else None
                return self.expression(exp.Interval(this=text, unit=unit))
            self._retreat(start)
            return super()._parse_interval(require_interval, parse_function_unit)

        def _parse_type(self, parse_interval: bool = True, fallback_to_identifier: bool = False) -> Any:
            kind = self._curr.token_type if self._curr is not None else TokenType.INTERVAL
            is_type = kind in self.TYPE_TOKENS and kind != TokenType.INTERVAL
            if is_type and self._next is not None and self._next.token_type == TokenType.NUMBER:
                self.raise_error("a literal behind a type is quoted", self._next)
            if is_type and self._next is not None and self._next.token_type == TokenType.STRING:
                start = self._index
                type_ = self._parse_types(check_func=True, allow_identifiers=False)
                if isinstance(type_, exp.DataType) and self._match(TokenType.STRING):
                    text = exp.Literal.string(self._prev.text).update_positions(self._prev)
                    return self._parse_column_ops(self.expression(exp.Cast(this=text, to=type_)))
                self._retreat(start)
            return super()._parse_type(parse_interval, fallback_to_identifier)

        def _parse_null(self) -> Any:
            is_unknown = self._curr is not None and self._curr.token_type == TokenType.UNKNOWN
            node = super()._parse_null()
            if is_unknown and isinstance(node, exp.Null):
                node.meta[UNKNOWN] = True
            return node

        def _parse_type_size(self) -> Any:
            if self._curr is not None and self._curr.token_type == TokenType.STRING:
                self.raise_error("the length of a type is a number")
            return super()._parse_type_size()

        def _parse_join(self, *args: Any, **options: Any) -> Any:
            is_comma = self._curr is not None and self._curr.token_type == TokenType.COMMA
            node = super()._parse_join(*args, **options)
            if isinstance(node, exp.Join) and not is_comma and not node.args.get("on") and not node.args.get("using"):
                is_cross = str(node.args.get("kind") or "").upper() == "CROSS"
                if not is_cross and not node.args.get("method") and not isinstance(node.this, exp.Lateral):
                    self.raise_error("JOIN needs ON or USING")
            return node

        def _parse_limit(self, this: Any = None, top: bool = False, skip_limit_token: bool = False) -> Any:
            node = super()._parse_limit(this, top, skip_limit_token)
            is_all = isinstance(node, exp.Limit) and isinstance(node.expression, exp.Var)
            return this if is_all and node.expression.name.upper() == "ALL" else node

        def _at_unit(self) -> bool:
            word = self._curr.text.upper() if self._curr is not None else ""
            return word in ("YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND")


_TYPES = frozenset({*GmdbSql.Parser.TYPE_TOKENS, *GmdbSql.Parser.ENUM_TYPE_TOKENS}) - {
    TokenType.UNKNOWN,
    TokenType.NULL,
}


def parse(text: str) -> list[exp.Expr]:
    """The statements of a text.  Raises InvalidSyntax with the place of what cannot be read."""
    return _parsed(text, 0)


def parse_expression(text: str) -> exp.Expr:
    """An expression alone: of a DEFAULT or CHECK kept in the catalog, for instance."""
    statements = _parsed(f"SELECT\n{text}", 1)
    chosen = statements[0].expressions if len(statements) == 1 else []
    extras = [name for name, value in statements[0].args.items() if value and name not in ("kind", "expressions")]
    if len(chosen) != 1 or extras or isinstance(chosen[0], exp.Star | exp.Alias):
        raise InvalidSyntax(f"{text!r} is not one expression")
    for node in chosen[0].walk():
        if "line" in node.meta:
            node.meta["line"] -= 1
    return chosen[0]


def _parsed(text: str, lines_before: int) -> list[exp.Expr]:
    try:
        reader = GmdbSql()
        tokens = reader.tokenize(text)
        require_finished(tokens, text)
        require_order(tokens)
        trees = [tree for tree in reader.parser().parse(tokens, text) if tree is not None]
        nodes: list[exp.Expr] = []
        for tree in trees:
            nodes += tree.walk()
            require_whole(tree, nodes)
        require_nothing_lost(tokens, nodes, _TYPES, lambda: _written(reader, trees))
        return trees
    except ParseError as error:
        first = error.errors[0] if error.errors else {}
        what = _INTERNALS.sub("", str(first.get("description") or error)).rstrip(". ")
        near = f" near {first['highlight']!r}" if first.get("highlight") else ""
        line = first["line"] - lines_before if first.get("line") else None
        raise InvalidSyntax(f"syntax error: {what}{near}", line, _column(first)) from None
    except SqlglotError as error:
        raise InvalidSyntax(f"{error}", hint="A quote or a comment may not be closed") from None
    except RecursionError:
        raise InvalidSyntax("the statement is nested too deeply") from None
    except Error:
        raise
    except Exception as error:  # its own bugs, which texts that are no statements bring out
        raise InvalidSyntax(f"syntax error: the statement cannot be read ({error})") from None


def _written(reader: GmdbSql, trees: Sequence[exp.Expr]) -> Sequence[Any]:
    """The tokens of statements as their trees have them."""
    tokens: Sequence[Any] = reader.tokenize("; ".join(tree.sql(dialect=GmdbSql) for tree in trees))
    return tokens


def place(node: exp.Expr) -> tuple[int | None, int | None]:
    """Line and column of a node's first token that has a place, both from 1."""
    found = [n.meta for n in node.walk() if n.meta.get("line") is not None]
    if not found:
        return (None, None) if node.parent is None or isinstance(node, exp.Query) else place(node.parent)
    first = min(found, key=lambda meta: (meta["line"], meta["col"]))
    return first["line"], max(1, first["col"] - (first["end"] - first["start"]))


def _column(error: dict[str, Any]) -> int | None:
    """sqlglot tells the column where the bad token ends."""
    return max(1, error["col"] - len(error.get("highlight") or "x") + 1) if error.get("col") else None
